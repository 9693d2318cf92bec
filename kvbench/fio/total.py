"""Totals over jobs and hosts that ran at the same time. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kvbench.fio import histogram
from kvbench.fio.result import Direction, FioJob, FioTotal, LatencyKind

_DIRECTIONS: tuple[Direction, ...] = ("read", "write", "trim", "mixed")


def totals(jobs: Sequence[FioJob]) -> list[FioTotal]:
    """One total for every direction that any job drove."""
    return [total(jobs, direction) for direction in _DIRECTIONS if any(job.direction == direction for job in jobs)]


def total(jobs: Sequence[FioJob], direction: Direction) -> FioTotal:
    """Bytes of all jobs ÷ the time in which they ran. Percentiles come from the merged histogram, never from parts."""
    parts = [job for job in jobs if job.direction == direction]
    runtime_s, window = _window(parts)
    sizes = [job.bytes for job in parts if job.bytes is not None]
    latency_ns, kind, latency_n, note = _latency(parts)
    return FioTotal(
        direction=direction,
        jobs=len(parts),
        bytes=sum(sizes) if len(sizes) == len(parts) else None,
        runtime_s=runtime_s,
        window=window,
        ios=sum(job.ios for job in parts),
        latency_ns=latency_ns,
        latency_kind=kind,
        latency_n=latency_n,
        note=note,
    )


def _window(parts: Sequence[FioJob]) -> tuple[float | None, str]:
    """Clocks of several hosts need not agree, and before 3.36 fio does not say when a job began."""
    runtimes = [job.runtime_s for job in parts if job.runtime_s]
    if not runtimes or len(runtimes) < len(parts):
        return None, "a job has no runtime"
    if len(parts) == 1:
        return runtimes[0], "its runtime"
    starts = [job.start_s for job in parts if job.start_s is not None]
    if len(starts) < len(parts) or len({job.host for job in parts}) > 1:
        return max(runtimes), "longest runtime"
    ends = [start + runtime for start, runtime in zip(starts, runtimes, strict=True)]
    return round(max(ends) - min(starts), 3), "last end − first start"


def _latency(parts: Sequence[FioJob]) -> tuple[dict[float, int], LatencyKind, int, str]:
    kinds = {job.latency_kind for job in parts}
    if kinds <= {""}:
        return {}, "", 0, "no latency was recorded"
    if len(parts) == 1:
        return dict(parts[0].latency_ns), parts[0].latency_kind, parts[0].latency_n, ""
    if len(kinds) > 1 or not all(job.bins for job in parts):
        return {}, "", 0, "percentiles of several jobs need the histogram of each (--output-format=json+)"
    bins = histogram.merge(job.bins for job in parts)
    wanted = sorted({percentile for job in parts for percentile in job.latency_ns})
    latency_ns = {percentile: histogram.percentile_ns(bins, percentile) for percentile in wanted}
    return latency_ns, kinds.pop(), sum(bins.values()), ""
