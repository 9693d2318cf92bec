"""A run whose node is a block device: pages, churn and a wave of the engine on it. A loop device stands for one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from loop_devices import loop_device
from small_runs import execute

from kvbench import content, plan, process, safety
from kvbench.errors import KvbenchError
from kvbench.host.activity import cold
from kvbench.host.machine import rawdevice
from kvbench.journal import RunFolder
from kvbench.model import Arm, Engine, Measurement, Plan, Storage, Target
from kvbench.pages import bench, probe
from kvbench.store import deviceindex

MIB = 2**20
SERIAL = "LOOP-1"
GATE = """
version: 1
id: DEV
title: Pages on a device
why: To be run.
rounds: 1
quick_rounds: 1
steps:
  - {id: read, probe: kv.pages, arms: dut, why: Read., page_bytes: [256 KiB, 1 MiB], concurrency: [4],
     params: {pages: page-read, total_bytes: 8 MiB, settle_dwell_s: 0}}
  - {id: session, probe: kv.pages, arms: dut, why: Read., page_bytes: [256 KiB], concurrency: [4],
     params: {pages: session-read, total_bytes: 8 MiB, settle_dwell_s: 0}}
  - {id: beside, probe: kv.pages, arms: dut, why: Read., page_bytes: [256 KiB], concurrency: [4],
     params: {pages: page-read-beside-writes, total_bytes: 8 MiB, settle_dwell_s: 0}}
  - {id: churn, probe: kv.churn, arms: dut, why: Churn.,
     params: {pages: churn, slice_s: 1, working_set_bytes: 8 MiB, page_bytes: 256 KiB}}
  - {id: wave, probe: load.cold_recovery, arms: dut, why: Wave., engine: restart, concurrency: [2],
     params: {workload: cold-recovery, session_tokens: 257, output_tokens: 2, settle_dwell_s: 0}}
checks:
  - {id: content, kind: integrity, step: read, metric: content_mismatches, rule: each, op: "==", limit: 0, unit: count,
     why: A wrong page.}
"""


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every device has the serial number that is named; a loop device has none. Waiting for silence is left out, since
    others use the disk below too."""
    observe = rawdevice.observe
    monkeypatch.setattr(rawdevice, "observe", lambda path: replace(observe(path), serials=(SERIAL,)))
    for module in (probe, cold):
        monkeypatch.setattr(module, "wait_idle", lambda *_: 0.0)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Path]:
    with loop_device(tmp_path / "backing", 2**30) as found:
        yield found


def a_plan(where: Path, storage: Storage, engine: Engine | None = None) -> tuple[Plan, content.Loaded]:
    (where / "gate.yaml").write_text(GATE)
    loaded = content.load_gate(str(where / "gate.yaml"))
    arms = (
        Arm("dut", "dut", engine or Engine(), storage=storage),
        Arm("base", "baseline", Engine(), kv="recompute"),
    )
    options = plan.Options(destroy_data=(SERIAL,))
    return plan.make_plan(loaded, Target("a device", arms), content.model_shapes(), options), loaded


def value(measurement: Measurement, metric: str) -> float | None:
    return measurement.metrics[metric].value


@pytest.mark.usefixtures("named")
def test_pages_churn_and_waves_run_on_a_device_that_was_named(device: Path, tmp_path: Path) -> None:
    made, loaded = a_plan(tmp_path, Storage((str(device),)))
    folder = RunFolder.create(tmp_path / "run", made, loaded.files, loaded.source)
    execute(folder)
    found = {measurement.step_id.split("-")[0]: measurement for measurement in folder.measurements()}
    assert [measurement.error for measurement in folder.measurements()] == [""] * 6
    assert found.keys() == {"read", "session", "beside", "churn", "wave"}
    for measurement in found.values():
        assert value(measurement, "content_mismatches") == 0
    for step in ("read", "session", "beside", "wave"):
        assert value(found[step], "residency_before_share") == 0
    assert value(found["churn"], "residency_share") == 0
    assert value(found["wave"], "stored_ratio") == pytest.approx(1, abs=0.01)
    assert value(found["wave"], "external_hit_ratio") == 1
    assert not deviceindex.is_store(device)


@pytest.mark.skipif(process.find_tool("fio") is None, reason="fio is not installed")
@pytest.mark.usefixtures("named")
def test_a_bench_reads_the_same_bytes_of_a_device_both_ways(device: Path) -> None:
    (pair,) = bench.run(device, 1, 8 * MIB, 1, cells=[(MIB, 2)], destroy_data=[SERIAL])
    assert pair.ours.bytes == pair.fio.bytes == pair.again.bytes == 8 * (MIB + 4096)
    assert not deviceindex.is_store(device)


def test_a_bench_refuses_a_device_that_was_not_named(device: Path) -> None:
    with pytest.raises(KvbenchError, match=f"{device} (has the|does not tell its) serial number"):
        bench.run(device, 1, 8 * MIB, 1, cells=[(MIB, 2)], destroy_data=[SERIAL])
    assert not deviceindex.is_store(device)


@pytest.mark.parametrize(
    ("storage", "engine", "why"),
    [
        ({"direct": False}, Engine(), "step read.* reads it with direct I/O alone, where the target has direct: false"),
        ({"array_cache_bytes": 2**30}, Engine(), "step read.* empties the array's cache by files"),
        ({}, Engine(kind="launch", command=("serve",)), "the engine of step wave.* keeps its pages in files"),
    ],
)
def test_what_takes_files_refuses_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, storage: dict[str, int], engine: Engine, why: str
) -> None:
    monkeypatch.setattr(rawdevice, "devices", tuple)
    made, _ = a_plan(tmp_path, Storage(("/dev/fast",), **storage), engine)
    with pytest.raises(KvbenchError, match=f"/dev/fast is a block device, and {why}"):
        safety.refuse(made)
