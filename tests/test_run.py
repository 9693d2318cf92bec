"""The loop and its folder: what a kill, a full disk or a failing step leaves behind."""

import json
import multiprocessing
import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from small_runs import folder_in_memory

from kvbench import clock, content, plan, run, safety
from kvbench.errors import KvbenchError, StepError
from kvbench.journal import RunFolder, to_json
from kvbench.judge.verdict import judge
from kvbench.kv import ModelShape
from kvbench.model import Arm, Engine, Measurement, Outcome, Step, Storage, Target
from kvbench.probes.context import Context, Measured
from kvbench.probes.table import PROBES

GATE = str(Path(__file__).parent / "fixtures" / "gates" / "fake.yaml")
KILLS = 200
PATIENCE_S = 120.0


class Nobody:
    """An observer that watches nothing."""

    def began(self, step: Step, attempt: int, done: int, total: int) -> None: ...
    def progress(self, text: str, share: float | None) -> None: ...
    def measured(self, step: Step, measurement: Measurement) -> None: ...
    def note(self, text: str) -> None: ...


def new_run(where: Path, name: str, **options: object) -> RunFolder:
    node = where / "node"
    node.mkdir(exist_ok=True)
    arms = (
        Arm("dut", "dut", Engine(), storage=Storage((str(node),))),
        Arm("base", "baseline", Engine(), kv="recompute"),
    )
    loaded = content.load_gate(GATE)
    made = plan.make_plan(loaded, Target("t", arms), content.model_shapes(), plan.Options(**options))  # type: ignore[arg-type]
    return RunFolder.create(where / name, made, loaded.files, loaded.source)


def execute(folder: RunFolder) -> None:
    run.execute(folder, content.model_shapes(), Nobody())


def verdict_bytes(folder: RunFolder) -> bytes:
    return to_json(judge(folder.plan, folder.measurements()))


def journal_events(folder: RunFolder) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder.path / "journal.jsonl").read_bytes().splitlines()]


def test_a_run_measures_every_step_once_and_leaves_nothing_on_the_target(tmp_path: Path) -> None:
    folder = new_run(tmp_path, "run")
    execute(folder)
    measured = Counter(event["step"] for event in journal_events(folder) if event["event"] == "measured")
    assert measured == Counter(step.id for step in folder.plan.steps)
    assert list((tmp_path / "node").iterdir()) == []
    assert judge(folder.plan, folder.measurements()).outcome is Outcome.PASS


def forked(folder: RunFolder, shapes: Mapping[str, ModelShape]) -> BaseProcess:
    """The run, in a child that can be killed."""
    child = multiprocessing.get_context("fork").Process(target=run.execute, args=(folder, shapes, Nobody()))
    child.start()
    return child


def ended(child: BaseProcess, within_s: float) -> bool:
    """Whether the child ends well by itself; it is killed where it takes longer."""
    child.join(within_s)
    if by_itself := not child.is_alive():
        assert child.exitcode == 0
    child.kill()
    child.join()
    return by_itself


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What a killed process has written there, the kernel still holds."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    with folder_in_memory(tmp_path) as folder:
        yield folder


def test_after_kills_at_random_moments_the_verdict_is_that_of_the_undisturbed_run(memory: Path) -> None:
    shapes, undisturbed = content.model_shapes(), new_run(memory, "undisturbed")
    began_ns = clock.monotonic_ns()
    assert ended(forked(undisturbed, shapes), PATIENCE_S)
    longest_s = (clock.monotonic_ns() - began_ns) / 1e9
    expected = verdict_bytes(undisturbed)
    rng = random.Random(20261130)
    kills = runs = 0
    while kills < KILLS:
        runs += 1
        folder = new_run(memory, f"run-{runs}")
        while not ended(forked(folder, shapes), rng.uniform(0, longest_s) if kills < KILLS else PATIENCE_S):
            kills += 1
        again = RunFolder.open(folder.path)
        measured = Counter(event["step"] for event in journal_events(again) if event["event"] == "measured")
        assert measured == Counter(step.id for step in again.plan.steps)
        assert verdict_bytes(again) == expected
        assert list((memory / "node").iterdir()) == []


def test_a_step_that_cannot_be_measured_is_recorded_and_measured_by_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = new_run(tmp_path, "run")
    victim = folder.plan.steps[3].id
    real = PROBES["fake.wave"].load()

    def failing(step: Step, context: Context) -> Measured:
        if step.id == victim:
            raise StepError("the endpoint went away")
        return real(step, context)

    monkeypatch.setattr("kvbench.fake.measure", failing)
    execute(folder)
    broken = judge(folder.plan, folder.measurements())
    assert broken.outcome is Outcome.INCONCLUSIVE
    assert any("the endpoint went away" in finding.reason for finding in broken.findings)
    monkeypatch.setattr("kvbench.fake.measure", real)
    execute(folder)
    assert judge(folder.plan, folder.measurements()).outcome is Outcome.PASS


def test_a_step_keeps_its_times_its_files_and_its_phases_whether_it_was_measured_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = PROBES["fake.wave"].load()

    def every_other_fails(step: Step, context: Context) -> Measured:
        with context.phase("settle"):
            context.keep("seen.json", {"step": step.id})
        if step.round % 2:
            raise StepError(f"no answer in {step.id}")
        return real(step, context)

    monkeypatch.setattr("kvbench.fake.measure", every_other_fails)
    folder = new_run(tmp_path, "run")
    with suppress(KvbenchError):
        execute(folder)
    measurements = folder.measurements()
    assert {bool(measured.error) for measured in measurements} == {True, False}
    for measured in measurements:
        assert {Path(file).name for file in measured.raw_files} == {"seen.json", *(() if measured.error else ("fake",))}
        assert set(measured.overhead) == {"settle"}
        assert measured.start.monotonic_ns < measured.end.monotonic_ns
        assert bool(measured.metrics) is not bool(measured.error)


def test_steps_that_fail_alike_stop_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(step: Step, context: Context) -> Measured:
        raise StepError("connection refused")

    monkeypatch.setattr("kvbench.fake.measure", failing)
    folder = new_run(tmp_path, "run")
    with pytest.raises(KvbenchError, match="2 steps failed alike: connection refused"):
        execute(folder)
    assert len(folder.measurements()) == 2
    assert list((tmp_path / "node").iterdir()) == []


def test_too_little_space_stops_before_the_step_and_says_how_much_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safety, "free_bytes", lambda path: 1_000_000)
    folder = new_run(tmp_path, "run")
    with pytest.raises(KvbenchError, match=r"needs 268 MB free at .*; there are 1.00 MB"):
        execute(folder)
    assert journal_events(folder) == []


def test_a_missing_node_is_named_before_anything_runs(tmp_path: Path) -> None:
    folder = new_run(tmp_path, "run")
    (tmp_path / "node").rmdir()
    with pytest.raises(KvbenchError, match="node is not a directory"):
        execute(folder)
    assert journal_events(folder) == []


def test_kept_data_stays(tmp_path: Path) -> None:
    folder = new_run(tmp_path, "run", keep_data=True, quick=True)
    execute(folder)
    kept = {file.parent.name for file in (tmp_path / "node").rglob("fake")}
    assert kept == {f"{step.id}-a1" for step in folder.plan.steps if step.arm == "dut"}


def test_a_run_that_another_process_holds_is_not_run_twice(tmp_path: Path) -> None:
    folder = new_run(tmp_path, "run")
    with folder.locked(), pytest.raises(KvbenchError, match="is being run by another kvbench"):
        execute(RunFolder.open(folder.path))


def test_a_storage_that_goes_away_fails_its_steps_and_not_the_harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = new_run(tmp_path, "run")
    real = PROBES["fake.wave"].load()

    def vanishing(step: Step, context: Context) -> Measured:
        for data_dir in context.data_dirs:
            (data_dir / "page").write_bytes(b"x")
            safety.remove_tree(data_dir.parent)
        return real(step, context)

    monkeypatch.setattr("kvbench.fake.measure", vanishing)
    with pytest.raises(KvbenchError):
        execute(folder)
    assert any("went away while the step ran" in measurement.error for measurement in folder.measurements())
    monkeypatch.setattr("kvbench.fake.measure", real)
    execute(folder)
    assert judge(folder.plan, folder.measurements()).outcome is Outcome.PASS
