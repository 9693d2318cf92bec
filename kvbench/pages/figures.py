"""From page I/Os to the figures of the probe `kv.pages`. Pure: what was not observed is None with the reason.

Bandwidth is the bytes of good pages ÷ the time from the first I/O's begin to the last one's end; pages are filled and
checked outside of it. Latency is that of a page's I/O alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvbench.host.activity.pagecache import Residency
from kvbench.model import Metric
from kvbench.pages.loop import Ended
from kvbench.probes.metrics import PAGE_METRICS
from kvbench.stats import P99_NEEDS, percentile, ratio
from kvbench.store.protocol import Status

_WRONG = (Status.CORRUPT, Status.SHORT)


@dataclass(frozen=True, slots=True)
class Transfer:
    """The page I/Os of one phase, all in the same direction."""

    page_bytes: int
    ended: tuple[Ended, ...]

    @property
    def good(self) -> list[Ended]:
        return [io for io in self.ended if io.status is Status.OK]

    @property
    def bytes(self) -> int:
        """Of all pages that were asked for."""
        return self.page_bytes * len(self.ended)

    @property
    def span_ns(self) -> tuple[int, int]:
        return min(io.began_ns for io in self.ended), max(io.ended_ns for io in self.ended)

    @property
    def bandwidth(self) -> float | None:
        """Bytes per second; None when no page came whole."""
        if not self.good:
            return None
        first_ns, last_ns = self.span_ns
        return self.page_bytes * len(self.good) / ((last_ns - first_ns) / 1e9)

    def latency_s(self, q: float) -> float | None:
        return percentile([(io.ended_ns - io.began_ns) / 1e9 for io in self.good], q) if self.good else None

    def within(self, span_ns: tuple[int, int]) -> float:
        """Bytes per second of the good pages that ended within a span, over that span."""
        first_ns, last_ns = span_ns
        ended = [io for io in self.good if first_ns <= io.ended_ns <= last_ns]
        return self.page_bytes * len(ended) / ((last_ns - first_ns) / 1e9)


@dataclass(frozen=True, slots=True)
class Seen:
    """What was observed around the I/Os. Bytes are of the leaf devices' counters; None where nothing counts."""

    device_bytes: int | None
    moved: str  # what these bytes are: "read" or "written"
    page_bytes: int  # that the pages account for
    idle_read_bytes: int | None
    residency_before: Residency | None
    residency_after: Residency | None
    cpu_pressure_share: float | None
    link_bytes_per_s: int | None
    medium_proven: bool


def complete(found: dict[str, Metric], access: str) -> dict[str, Metric]:
    """Every metric of the probe; those that this access does not measure say so."""
    absent = f"not measured by access {access}"
    return {name: found.get(name, Metric(None, unit, 0, note=absent)) for name, unit in PAGE_METRICS.items()}


def side(name: str, transfer: Transfer, source: str) -> dict[str, Metric]:
    """Bandwidth and latency of one direction, `read` or `write`."""
    n = len(transfer.good)
    most = f"max of {n}" if n < P99_NEEDS else ""
    return {
        f"{name}_bandwidth_bytes_per_s": _metric("B/s", transfer.bandwidth, n, source),
        f"{name}_latency_p50_s": _metric("s", transfer.latency_s(50), n, source),
        f"{name}_latency_p99_s": _metric("s", transfer.latency_s(99), n, source, note=most),
    }


def beside(alone: Transfer, disturbed: Transfer, writes: Transfer, source: str) -> dict[str, Metric]:
    """What reads lose when pages are written beside them; the plain read figures are those beside the writes."""
    n = min(len(alone.good), len(disturbed.good))
    kept = ratio(disturbed.bandwidth, alone.bandwidth)
    most = f"maxima of {n}" if n < P99_NEEDS else ""
    return {
        **side("read", disturbed, source),
        "write_bandwidth_bytes_per_s": Metric(writes.within(disturbed.span_ns), "B/s", len(writes.good), source),
        "p99_inflation": _metric("ratio", ratio(disturbed.latency_s(99), alone.latency_s(99)), n, source, note=most),
        "bandwidth_loss_share": _metric("share", None if kept is None else 1 - kept, n, source),
    }


def session(ways: Mapping[str, Transfer], source: str) -> dict[str, Metric]:
    """One session's pages read in three ways: `serial`, `parallel`, `merged`."""
    gains = {name: ratio(ways[name].bandwidth, ways["serial"].bandwidth) for name in ("parallel", "merged")}
    return {
        **{
            f"{name}_bandwidth_bytes_per_s": _metric("B/s", way.bandwidth, len(way.good), source)
            for name, way in ways.items()
        },
        **{f"{name}_gain": _metric("ratio", gain, len(ways[name].good), source) for name, gain in gains.items()},
    }


def content(reads: Sequence[Transfer], source: str) -> dict[str, Metric]:
    """Pages that came wrong, and I/Os that failed, of all that were read."""
    ended = [io for transfer in reads for io in transfer.ended]
    wrong = sum(io.status in _WRONG for io in ended)
    failed = sum(io.status not in (Status.OK, *_WRONG) for io in ended)
    return {
        "content_mismatches": Metric(wrong, "count", len(ended), source),
        "io_errors": Metric(failed, "count", len(ended), source),
    }


def evidence(seen: Seen, bandwidth: float | None, n: int, devices: str, facts: str) -> dict[str, Metric]:
    """Whether the bytes came from the device, and all of them. `devices` and `facts` are the raw files; n is pages."""
    no_counter = "no block device with counters under the arm's folders"
    moved = f"device bytes {seen.moved}"
    return {
        "ledger_ratio": _metric(
            "ratio", ratio(seen.device_bytes, seen.page_bytes), n, devices, note=moved, absent=no_counter
        ),
        "idle_read_share": _metric(
            "share", ratio(seen.idle_read_bytes, seen.page_bytes), n, devices, absent=no_counter
        ),
        "residency_before_share": _residency(seen.residency_before, n, facts),
        "residency_after_share": _residency(seen.residency_after, n, facts),
        "link_use_share": _metric(
            "share",
            ratio(bandwidth, seen.link_bytes_per_s),
            n,
            facts,
            absent="the target declares no link_bytes_per_s",
        ),
        "cpu_pressure_share": _metric(
            "share", seen.cpu_pressure_share, 1, facts, absent="the kernel does not count pressure"
        ),
        "medium_proven": Metric(float(seen.medium_proven), "count", 1, facts),
    }


def _metric(
    unit: str, value: float | None, n: int, source: str, *, note: str = "", absent: str = "no page came whole"
) -> Metric:
    return Metric(value, unit, n, source, absent if value is None else note)


def _residency(seen: Residency | None, n: int, source: str) -> Metric:
    if seen is None:
        return Metric(None, "share", n, source, "nothing was read cold")
    return Metric(seen.share, "share", n, source, seen.why_blind or f"by {seen.method}")
