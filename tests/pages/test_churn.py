"""A slice of coming and going pages on real files: short, small, and with things going wrong in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from threading import Event

import pyarrow.parquet as pq
import pytest
from builders import make_context

from kvbench import clock, marks, plan, safety
from kvbench.errors import StepError
from kvbench.model import Arm, Engine, Step, Storage
from kvbench.pages import churn
from kvbench.probes.context import Context, Measured
from kvbench.probes.metrics import CHURN_METRICS
from kvbench.probes.table import PROBES
from kvbench.store import pagefile, real

PAGE_BYTES = 64 * 1024
PARAMS = {
    "pages": "churn",
    "slice_s": 1.0,
    "working_set_bytes": 40 * PAGE_BYTES,
    "queue_depth": 4,
    "page_bytes": PAGE_BYTES,
}
UNTOLD = ("media_errors", "media_errors_total", "temperature_max_c", "wear_share", "lifetime_written_bytes")


def step_of(**params: object) -> Step:
    return Step("churn-r01-dut", "churn", "kv.churn", "dut", "", 1, {**PARAMS, **params}, 7, "none")


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """Two nodes in the page cache, where a slice does not depend on how busy the disk of the tests is."""
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)
    nodes = tuple(tmp_path / name for name in ("node0", "node1"))
    arm = Arm("dut", "dut", Engine(), storage=Storage(tuple(map(str, nodes)), direct=False))
    folders = tuple(node / "kvbench-run" / "churn-r01-dut-a1" for node in nodes)
    return make_context(tmp_path, "churn-r01-dut", arm, folders)


def values(measured: Measured) -> Mapping[str, float | None]:
    return {name: metric.value for name, metric in measured.metrics.items()}


def test_a_slice_reads_what_it_wrote_and_leaves_small_evidence(context: Context) -> None:
    measured = churn.measure(step_of(), context)
    told = values(measured)
    assert {name: metric.unit for name, metric in measured.metrics.items()} == dict(CHURN_METRICS)
    assert (told["content_mismatches"], told["io_errors"], told["unavailable_s"]) == (0, 0, 0)
    assert told["bytes_read"] and told["bytes_written"]
    assert told["bytes_written"] - told["bytes_read"] <= (40 + 8) * PAGE_BYTES
    assert 0 < (told["duty_share"] or 0) <= 1
    assert told["read_latency_p50_s"] <= told["read_latency_p99_s"]  # type: ignore[operator]
    assert all(told[name] is not None or measured.metrics[name].note for name in told)
    rows = pq.read_table(context.run_dir / measured.series["rollup"]).to_pylist()
    assert sum(row["reads"] for row in rows) * PAGE_BYTES == told["bytes_read"]
    cost = PROBES["kv.churn"].cost(plan.parse_params(step_of()), context.arm, None)
    assert sum(file.stat().st_size for file in context.raw_dir.iterdir()) < cost.evidence_bytes


def test_what_a_drive_does_not_tell_is_absent_with_its_reason(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(churn, "smart_counters", lambda devices: {})
    measured = churn.measure(step_of(), context)
    assert {measured.metrics[name].value for name in UNTOLD} == {None}
    assert all(measured.metrics[name].note for name in UNTOLD)


def test_a_stated_rate_is_not_exceeded_and_waiting_for_it_is_no_pause(context: Context) -> None:
    told = values(churn.measure(step_of(rate_bytes_per_s=5 * PAGE_BYTES, slice_s=2.0), context))
    assert 0 < (told["read_bandwidth_bytes_per_s"] or 0) <= 7 * PAGE_BYTES
    assert (told["duty_share"] or 0) > 0.5


def with_hook(context: Context, code: str) -> Context:
    hooks = {"fault_x": (sys.executable, "-c", code)}
    return replace(context, target=replace(context.target, hooks=hooks))


def test_pages_damaged_by_a_fault_are_found_and_named(context: Context) -> None:
    code = (
        "from pathlib import Path\n"
        f"for page in Path({str(context.data_dirs[0])!r}).glob('*.r0'):\n"
        "    try: page.open('r+b').write(b'x' * 9000)\n"
        "    except OSError: pass\n"
    )
    measured = churn.measure(step_of(hook="fault_x", slice_s=2.0), with_hook(context, code))
    assert (values(measured)["content_mismatches"] or 0) > 0
    (fault,) = measured.facts["faults"]
    assert (fault["name"], fault["kind"]) == ("fault_x", "hook")
    assert 0.5 < fault["at_s"] < 2
    assert fault["outage_s"] == values(measured)["fault_outage_s"]
    assert measured.metrics["fault_recovery_s"].note == "bandwidth was not back within the slice"
    assert measured.facts["bad_pages"]


def test_a_hook_that_fails_is_said(context: Context) -> None:
    failing = with_hook(context, "import sys; sys.exit('no such path')")
    (warning,) = churn.measure(step_of(hook="fault_x"), failing).warnings
    assert warning == "In churn-r01-dut, hook fault_x failed: exit code 1: no such path."


def test_a_mark_made_during_the_slice_is_a_fault_of_it(context: Context) -> None:
    pulled: list[marks.Mark] = []

    def pull(text: str, share: float | None) -> None:
        if text == "churn" and not pulled:
            pulled.append(marks.Mark("path A pulled", clock.stamp(), clock.boot_id()))
            marks.append(context.run_dir, pulled[0])

    measured = churn.measure(step_of(slice_s=2.0), replace(context, progress=pull))
    (fault,) = measured.facts["faults"]
    assert (fault["name"], fault["kind"]) == ("path A pulled", "mark")


def test_a_slice_stops_before_the_storage_is_full(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "free_bytes", lambda path: churn.KEEP_FREE_BYTES - 1)
    with pytest.raises(StepError, match=r"less than 134 MB is free at .*node1; the slice stopped before it was full"):
        churn.measure(step_of(slice_s=30.0), context)


def test_a_working_set_that_is_not_written_in_time_is_said(context: Context) -> None:
    with pytest.raises(StepError, match=r"working set of 131 MB was not written within the slice"):
        churn.measure(step_of(slice_s=0.01, working_set_bytes=2000 * PAGE_BYTES), context)


def test_a_slice_that_comes_to_nothing_waits_for_its_hook(
    context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven, undone, drive = tmp_path / "driven", tmp_path / "undone", churn._drive
    monkeypatch.setattr(churn, "_drive", lambda going: (drive(going), driven.touch()))
    code = f"""
import pathlib, time
while not pathlib.Path({str(driven)!r}).exists():
    time.sleep(0.01)
pathlib.Path({str(undone)!r}).touch()
"""
    with pytest.raises(StepError, match="was not written within the slice"):
        churn.measure(
            step_of(hook="fault_x", slice_s=0.01, working_set_bytes=2000 * PAGE_BYTES), with_hook(context, code)
        )
    assert undone.exists()


def test_an_io_that_never_ends_does_not_hold_the_run_for_ever(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    back, read = Event(), pagefile.read

    def hanging(path: Path, buffer: memoryview, direct: bool, offset: int) -> int:
        back.wait(30)
        return read(path, buffer, direct, offset)

    monkeypatch.setattr(pagefile, "read", hanging)
    monkeypatch.setattr(real, "_HANG_NS", 10**7)
    with pytest.raises(StepError, match="did not end within the time"):
        churn.measure(step_of(), replace(context, deadline_ns=clock.monotonic_ns() + 10**9))
    back.set()


def test_an_array_s_declared_cache_is_outrun_twice(context: Context) -> None:
    params = plan.parse_params(step_of())
    assert params.kept_bytes(Storage(("/a",), array_cache_bytes=10**9)) == 2 * 10**9
    assert params.kept_bytes(Storage(("/a",))) == 40 * PAGE_BYTES
