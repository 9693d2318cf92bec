"""From what a slice of coming and going pages saw to its metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kvbench.host.health import drive_metrics
from kvbench.host.machine.smart import Smart
from kvbench.model import Metric, Storage
from kvbench.pages.timeline import Disturbance, Timeline
from kvbench.probes.metrics import CHURN_METRICS
from kvbench.stats import percentile


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a slice beside its I/O. Moments are monotonic; the turnover went from `full_ns` to `end_ns`.

    `device_read_bytes` is what the devices read meanwhile, None without a device. `disturbances` are the faults'.
    """

    began_ns: int
    first_io_ns: int
    full_ns: int
    end_ns: int
    wrong_pages: int
    io_errors: int
    file_bytes: int
    device_read_bytes: int | None
    residency_share: float | None
    cpu_pressure_share: float | None
    medium_proven: bool
    disturbances: Sequence[Disturbance] = ()


def metrics(timeline: Timeline, seen: Seen, source: Mapping[str, str]) -> dict[str, Metric]:
    """Every metric of the probe; `source` names the rollup and the evidence in the run folder."""
    reads, writes = timeline.count("read"), timeline.count("write")
    latencies_s = timeline.latencies_s("read")
    span = seen.first_io_ns, seen.end_ns
    stalls_s = timeline.stalls_s(*span)
    read_bytes = reads * timeline.page_bytes
    files_bytes = reads * seen.file_bytes
    no_read = "" if reads else "no page was read"
    values: dict[str, tuple[float | None, int, str]] = {
        "read_bandwidth_bytes_per_s": (timeline.bandwidth("read", seen.full_ns, seen.end_ns), reads, ""),
        "write_bandwidth_bytes_per_s": (timeline.bandwidth("write", seen.full_ns, seen.end_ns), writes, ""),
        "read_latency_p50_s": (percentile(latencies_s, 50) if reads else None, reads, no_read),
        "read_latency_p99_s": (percentile(latencies_s, 99) if reads else None, reads, no_read),
        "bytes_read": (read_bytes, reads, ""),
        "bytes_written": (writes * timeline.page_bytes, writes, ""),
        "content_mismatches": (seen.wrong_pages, reads, ""),
        "io_errors": (seen.io_errors, reads + writes, ""),
        "duty_share": (timeline.busy_ns() / (seen.end_ns - seen.began_ns), reads + writes, ""),
        "longest_stall_s": (max(stalls_s), len(stalls_s), ""),
        "unavailable_s": (timeline.unavailable_s(*span), len(stalls_s), ""),
        "ledger_ratio": _ledger(seen.device_read_bytes, files_bytes, reads),
        "residency_share": (seen.residency_share, 1, "" if seen.residency_share is not None else "cannot be told"),
        "cpu_pressure_share": (seen.cpu_pressure_share, 1, "" if seen.cpu_pressure_share is not None else "no PSI"),
        "medium_proven": (float(seen.medium_proven), 1, ""),
        **_faults(seen.disturbances),
    }
    return {
        name: Metric(value, CHURN_METRICS[name], n, source["evidence" if name in _BESIDE else "rollup"], note)
        for name, (value, n, note) in values.items()
    }


def health(before: Mapping[str, Smart], after: Mapping[str, Smart], storage: Storage, source: str) -> dict[str, Metric]:
    """What the drives say of themselves: new media errors since `before`, and how they stand `after` the slice."""
    told, hottest = (drive_metrics(smarts, storage, source) for smarts in (after, before))
    temperatures = [metric.value for one in (told, hottest) if (metric := one["temperature_max_c"]).value is not None]
    absent = told["media_errors_total"].note
    then, now = (_total(smart.media_errors for smart in smarts.values()) for smarts in (before, after))
    new = None if then is None or now is None else now - then
    why_no_new = absent or ("" if new is not None else "a drive did not tell at the beginning of the slice")
    return {
        "media_errors": Metric(new, "count", len(after), source, why_no_new),
        "media_errors_total": Metric(now, "count", len(after), source, absent),
        "temperature_max_c": replace(told["temperature_max_c"], value=max(temperatures, default=None)),
        "wear_share": told["wear_share"],
        "lifetime_written_bytes": told["lifetime_written_bytes"],
    }


def _total(counts: Iterable[int | None]) -> int | None:
    """None when one drive does not tell, or there is none."""
    known = list(counts)
    return sum(count for count in known if count is not None) if known and None not in known else None


_BESIDE = ("ledger_ratio", "residency_share", "cpu_pressure_share", "medium_proven", "content_mismatches", "io_errors",
           "fault_outage_s", "fault_recovery_s")  # fmt: skip


def _ledger(device_bytes: int | None, due_bytes: int, reads: int) -> tuple[float | None, int, str]:
    if device_bytes is None:
        return None, reads, "no device below these directories counts its reads"
    return (device_bytes / due_bytes, reads, "") if due_bytes else (None, 0, "no page was read")


def _faults(disturbances: Sequence[Disturbance]) -> dict[str, tuple[float | None, int, str]]:
    """The worst of the slice's faults; a single one that did not recover leaves no recovery time."""
    n = len(disturbances)
    if not n:
        return dict.fromkeys(("fault_outage_s", "fault_recovery_s"), (None, 0, "no fault in this slice"))
    back_s = [one.recovery_s for one in disturbances if one.recovery_s is not None]
    recovered = len(back_s) == n
    return {
        "fault_outage_s": (max(one.outage_s for one in disturbances), n, ""),
        "fault_recovery_s": (
            max(back_s) if recovered else None, n, "" if recovered else "bandwidth was not back within the slice"
        ),
    }  # fmt: skip
