"""A soak of thousands of slices: what it needs for one does not grow with those behind it."""

import gc
import os
import tracemalloc
from pathlib import Path

import pytest
from small_runs import folder_in_memory

from kvbench import content, plan, run
from kvbench.journal import RunFolder
from kvbench.model import Arm, Engine, Measurement, Step, Storage, Target

EVERY, SETTLED_AFTER = 100, 200  # slices
GROWTH_BYTES = 160  # a slice: less than a line of the journal
GATE = """
version: 1
id: LONG
title: t
why: w
rounds: 1
quick_rounds: 1
duration_s: {duration_s}
slice_s: 0.001
steps:
  - {{id: churn, probe: fake.wave, arms: dut, per_round: true, why: w}}
checks: []
"""


class Memory:
    """An observer that notes what Python holds in memory, without garbage, at every hundredth slice."""

    def __init__(self) -> None:
        self.held_bytes: list[int] = []

    def began(self, step: Step, attempt: int, done: int, total: int) -> None:
        if done % EVERY == 0:
            gc.collect()
            self.held_bytes.append(tracemalloc.get_traced_memory()[0])

    def progress(self, text: str, share: float | None) -> None: ...
    def measured(self, step: Step, measurement: Measurement) -> None: ...
    def note(self, text: str) -> None: ...


def new_run(tmp_path: Path, slices: int) -> RunFolder:
    (tmp_path / "long.yaml").write_text(GATE.format(duration_s=slices / 1000))
    loaded = content.load_gate(str(tmp_path / "long.yaml"))
    arms = (
        Arm("dut", "dut", Engine(), storage=Storage((str(tmp_path),))),
        Arm("base", "baseline", Engine(), kv="recompute"),
    )
    made = plan.make_plan(loaded, Target("t", arms), content.model_shapes(), plan.Options())
    return RunFolder.create(tmp_path / "run", made, loaded.files, loaded.source)


@pytest.mark.parametrize("slices", [600, pytest.param(2000, marks=pytest.mark.slow)])
def test_memory_and_journal_reads_stay_flat(slices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with folder_in_memory(tmp_path) as place:  # a disk's folders take as long as all the rest
        run_through(new_run(place, slices), slices, monkeypatch)


def run_through(folder: RunFolder, slices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, reads = folder.path / "journal.jsonl", []
    real = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: (reads.append(path), real(path))[1])
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # durability is specified elsewhere, and takes time
    memory = Memory()
    tracemalloc.start()
    try:
        run.execute(folder, content.model_shapes(), memory)
    finally:
        tracemalloc.stop()
    assert len(folder.measurements()) == slices
    assert memory.held_bytes[-1] - memory.held_bytes[SETTLED_AFTER // EVERY] < GROWTH_BYTES * (slices - SETTLED_AFTER)
    assert reads.count(journal) <= 5
