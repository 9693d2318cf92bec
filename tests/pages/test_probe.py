"""Pages through the store's own reader and writer, on real files: cold, each read once, every byte checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import make_context

from kvbench.errors import KvbenchError, StepError
from kvbench.model import Arm, Engine, Step, Storage
from kvbench.pages import probe
from kvbench.pages.carrier import Carrier, Pages
from kvbench.probes.context import Context, Measured
from kvbench.probes.metrics import PAGE_METRICS
from kvbench.store import pagefile

PAGE_BYTES = 256 * 1024
ALL = set(PAGE_METRICS)
EVIDENCE = {
    "content_mismatches", "io_errors", "residency_before_share", "residency_after_share", "medium_proven",
}  # fmt: skip
READ = {"read_bandwidth_bytes_per_s", "read_latency_p50_s", "read_latency_p99_s"}
WRITE = {"write_bandwidth_bytes_per_s", "write_latency_p50_s", "write_latency_p99_s"}
MEASURED = {
    "read": READ,
    "write": WRITE,
    "beside": READ | {"write_bandwidth_bytes_per_s", "p99_inflation", "bandwidth_loss_share"},
    "session": {
        "serial_bandwidth_bytes_per_s", "parallel_bandwidth_bytes_per_s", "merged_bandwidth_bytes_per_s",
        "parallel_gain", "merged_gain",
    },
}  # fmt: skip


def step(access: str, **params: Any) -> Step:
    given = {
        "pages": "small",
        "access": access,
        "total_bytes": 24 * PAGE_BYTES,
        "page_bytes": PAGE_BYTES,
        "concurrency": 4,
        "settle_dwell_s": 0.0,
        "write_page_bytes": 2 * PAGE_BYTES,
        "write_concurrency": 1,
        **params,
    }
    return Step("pages-c4-dut", "pages", "kv.pages", "dut", "c4", 0, given, 1, "none")


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """Two nodes; waiting for a silent device is left out, since others use this one too."""
    monkeypatch.setattr(probe, "wait_idle", lambda *_: 0.0)
    monkeypatch.setattr("kvbench.host.activity.cold.wait_idle", lambda *_: 0.0)
    data_dirs = tuple(tmp_path / f"node{number}" for number in range(2))
    for folder in data_dirs:
        folder.mkdir()
    try:
        pagefile.prepare_directory(data_dirs[0], direct=True)
    except KvbenchError as error:
        pytest.skip(error.message)
    arm = Arm("dut", "dut", Engine(), storage=Storage(tuple(map(str, data_dirs))))
    return make_context(tmp_path, "pages-c4-dut", arm, data_dirs)


def rows(context: Context, result: Measured) -> list[dict[str, Any]]:
    from pyarrow import parquet

    return parquet.read_table(context.run_dir / result.series["pages"]).to_pylist()


def values(result: Measured) -> dict[str, float | None]:
    return {name: metric.value for name, metric in result.metrics.items()}


@pytest.mark.parametrize("access", MEASURED)
def test_every_figure_of_an_access_is_there_and_every_other_says_why_not(access: str, context: Context) -> None:
    result = probe.measure(step(access), context)
    assert {name: metric.unit for name, metric in result.metrics.items()} == dict(PAGE_METRICS)
    found = {name for name, value in values(result).items() if value is not None}
    assert found >= MEASURED[access] | EVIDENCE
    assert not found & (set.union(*MEASURED.values()) - MEASURED[access])
    assert all(metric.note for metric in result.metrics.values() if metric.value is None)
    assert all((context.run_dir / metric.source).is_file() for metric in result.metrics.values() if metric.source)
    assert values(result) | {"content_mismatches": 0, "io_errors": 0, "residency_before_share": 0} == values(result)


def test_each_page_is_written_once_and_read_once_and_bandwidth_is_that_of_the_rows(context: Context) -> None:
    result = probe.measure(step("read"), context)
    reads = [row for row in rows(context, result) if row["phase"] == "read"]
    assert len(reads) == 24
    assert {row["node"] for row in reads} == {0, 1}
    assert {row["status"] for row in reads} == {"ok"}
    span_s = (max(row["ended_ns"] for row in reads) - min(row["began_ns"] for row in reads)) / 1e9
    assert values(result)["read_bandwidth_bytes_per_s"] == pytest.approx(24 * PAGE_BYTES / span_s)
    assert result.metrics["read_latency_p99_s"].note == "max of 24"
    assert set(context.overhead) == {"populate pages", "settle", "read"}


@pytest.mark.parametrize("depth", [1, 3])
def test_never_more_ios_are_under_way_than_the_queue_depth(depth: int, context: Context) -> None:
    result = probe.measure(step("read", concurrency=depth), context)
    reads = [row for row in rows(context, result) if row["phase"] == "read"]
    events = sorted([(row["began_ns"], 1) for row in reads] + [(row["ended_ns"], -1) for row in reads])
    under_way = most = 0
    for _, change in events:
        under_way += change
        most = max(most, under_way)
    assert 1 <= most <= depth


def test_a_small_workload_still_fills_its_queue(context: Context) -> None:
    result = probe.measure(step("read", total_bytes=PAGE_BYTES, concurrency=4), context)
    assert sum(row["phase"] == "read" for row in rows(context, result)) == 16


def test_writes_beside_reads_leave_a_bounded_number_of_pages(context: Context) -> None:
    result = probe.measure(step("beside", total_bytes=200 * PAGE_BYTES), context)
    left = [path for folder in context.data_dirs for path in (folder / "beside").iterdir()]
    written = sum(row["phase"] == "write beside" for row in rows(context, result))
    assert 0 < len(left) <= min(written, 8 * 1 + 6)  # the ring, and what was under way


def test_writes_go_to_a_pool_of_their_own_where_there_is_one(context: Context, tmp_path: Path) -> None:
    pool = tmp_path / "checkpoints"
    pool.mkdir()
    result = probe.measure(step("beside", write_pool="checkpoints"), replace(context, checkpoint_dirs=(pool,)))
    assert {path.name for path in pool.iterdir()} == {"beside"}
    assert {path.name for folder in context.data_dirs for path in folder.iterdir()} == {"pages"}
    assert values(result)["p99_inflation"] is not None
    with pytest.raises(StepError, match="the arm has no pool of checkpoints"):
        probe.measure(step("beside", write_pool="checkpoints"), context)


def test_a_page_damaged_between_writing_and_reading_is_counted_and_named(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = probe.settle

    def settle_and_damage(folders: Any, devices: Any, dwell_s: float) -> Any:
        path = min((folders[0] / "pages").iterdir())
        content = bytearray(path.read_bytes())
        content[-1] ^= 0xFF
        path.write_bytes(content)
        max((folders[0] / "pages").iterdir()).unlink()
        return settle(folders, devices, dwell_s)

    monkeypatch.setattr(probe, "settle", settle_and_damage)
    result = probe.measure(step("read"), context)
    assert (values(result)["content_mismatches"], values(result)["io_errors"]) == (1, 1)
    assert result.metrics["read_bandwidth_bytes_per_s"].n == 22
    assert len(result.facts["faults"]) == 2


def test_pages_that_cannot_be_written_end_the_step_with_the_reason(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    write = pagefile.write
    monkeypatch.setattr(pagefile, "write", lambda path, *rest: (write if ".part" in path.name else full)(path, *rest))
    with pytest.raises(StepError, match=r"populate pages: 24 of 24 pages could not be written: .*No space left"):
        probe.measure(step("read"), context)


def test_a_write_that_failed_is_explained_by_its_own_fault(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    carrier, missing, pages = Carrier(context, b"", 0.0), Pages("a", 1, PAGE_BYTES), Pages("b", 1, PAGE_BYTES)
    assert not carrier.read("read", missing, [0], 1).good
    write = pagefile.write
    monkeypatch.setattr(pagefile, "write", lambda path, *rest: (write if ".part" in path.name else full)(path, *rest))
    with pytest.raises(StepError, match=r"1 of 1 pages could not be written: .*No space left"):
        carrier.write("populate", pages, 1)


def test_a_hook_that_fails_before_the_reads_ends_the_step(context: Context) -> None:
    target = replace(context.target, hooks={"before_wave": ("false",)})
    with pytest.raises(StepError, match="the hook before_wave ended with exit code 1"):
        probe.measure(step("read"), replace(context, target=target))


@pytest.mark.parametrize(
    ("changes", "message"), [({"arm": None}, "the arm has no storage"), ({}, "page of the arm's model is not known")]
)
def test_what_cannot_be_driven_is_refused(changes: dict[str, Any], message: str, context: Context) -> None:
    with pytest.raises(StepError, match=message):
        probe.measure(step("read", page_bytes=0), replace(context, **changes))
