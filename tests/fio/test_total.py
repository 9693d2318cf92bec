"""Totals: bytes of all jobs over the time in which they ran, with the time's definition beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvbench.fio.result import FioJob
from kvbench.fio.total import total, totals

JOB = FioJob(
    name="a", host="", direction="read", bytes=1000, runtime_s=10.0, ios=10, latency_ns={50.0: 7}, latency_kind="clat",
    latency_n=10, errors=0, options={},
)  # fmt: skip


@pytest.mark.parametrize(
    ("jobs", "runtime_s", "window"),
    [
        ([JOB], 10.0, "its runtime"),
        ([JOB, replace(JOB, runtime_s=12.0)], 12.0, "longest runtime"),
        ([replace(JOB, start_s=100.0), replace(JOB, start_s=105.0)], 15.0, "last end − first start"),
        ([replace(JOB, start_s=100.0), JOB], 10.0, "longest runtime"),  # one does not say when it began
        (
            [replace(JOB, host="a", start_s=100.0), replace(JOB, host="b", start_s=900.0)],
            10.0,
            "longest runtime",
        ),  # clocks of two hosts
        ([JOB, replace(JOB, runtime_s=None)], None, "a job has no runtime"),
    ],
)
def test_the_time_of_several_jobs(jobs: list[FioJob], runtime_s: float | None, window: str) -> None:
    found = total(jobs, "read")
    assert (found.runtime_s, found.window) == (runtime_s, window)
    assert found.bandwidth_bytes_per_s == (1000 * len(jobs) / runtime_s if runtime_s else None)


def test_a_job_without_bytes_leaves_the_total_without() -> None:
    found = total([JOB, replace(JOB, bytes=None)], "read")
    assert (found.bytes, found.bandwidth_bytes_per_s, found.iops) == (None, None, 2.0)


def test_percentiles_of_parts_are_never_combined() -> None:
    found = total([JOB, JOB], "read")
    assert (dict(found.latency_ns), found.latency_n) == ({}, 0)
    assert "need the histogram of each" in found.note


def test_completion_and_whole_latency_are_never_merged() -> None:
    parts = [replace(JOB, bins={7: 10}), replace(JOB, bins={9: 10}, latency_kind="lat")]
    assert total(parts, "read").latency_kind == ""


def test_directions_that_nobody_drove_have_no_total() -> None:
    assert [part.direction for part in totals([JOB, replace(JOB, direction="trim")])] == ["read", "trim"]
