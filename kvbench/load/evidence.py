"""What shows that a wave was cold, whole and the storage's own: observations in, metrics out. Pure.

Rules: docs/method.md, "Admissible only with evidence". What was not observed is None with the reason, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvbench.host.activity.pagecache import Residency
from kvbench.model import Metric
from kvbench.stats import ratio

_NO_STORAGE = "this arm keeps no KV on storage"


@dataclass(frozen=True, slots=True)
class Expected:
    """What a wave must read if every request hits all its full pages: tokens, and bytes over all ranks."""

    hit_tokens: int
    read_bytes: int


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen around a wave. Bytes are of the leaf devices' counters; None where a thing could not be seen.

    `engine` holds the change of the engine's own counters over the wave, by meaning (`load/engine_metrics.py`).
    """

    stored_bytes: int
    idle_read_bytes: int | None
    device_read_bytes: int | None
    residency_before: Residency | None
    residency_after: Residency | None
    wave_s: float | None
    peak_bytes_per_s: float | None
    cpu_pressure_share: float | None
    engine: Mapping[str, float | None]
    link_bytes_per_s: int | None
    medium_proven: bool


def storage_metrics(expected: Expected, seen: Observed, source: Mapping[str, str], requests: int) -> dict[str, Metric]:
    """The metrics of an arm with KV on storage. `source` names the raw file of each group; n counts requests."""
    devices, files = source["devices"], source["files"]

    def metric(value: float | None, unit: str, where: str, absent: str) -> Metric:
        return Metric(value, unit, requests, where, "" if value is not None else absent)

    no_counter = "no block device with counters under the arm's folders"
    wave_rate = ratio(seen.device_read_bytes, seen.wave_s)
    return {
        "stored_bytes": Metric(seen.stored_bytes, "B", requests, files),
        "stored_ratio": metric(ratio(seen.stored_bytes, expected.read_bytes), "ratio", files, "no full page to store"),
        "device_read_bytes": metric(seen.device_read_bytes, "B", devices, no_counter),
        "expected_read_bytes": Metric(expected.read_bytes, "B", requests, files),
        "ledger_ratio": metric(ratio(seen.device_read_bytes, expected.read_bytes), "ratio", devices, no_counter),
        "idle_read_share": metric(ratio(seen.idle_read_bytes, expected.read_bytes), "share", devices, no_counter),
        "residency_before_share": residency_metric(seen.residency_before, requests, files),
        "residency_after_share": residency_metric(seen.residency_after, requests, files),
        "wave_bandwidth_bytes_per_s": metric(wave_rate, "B/s", devices, no_counter),
        "peak_bandwidth_bytes_per_s": metric(seen.peak_bytes_per_s, "B/s", devices, "the wave was shorter than 1 s"),
        "link_use_share": metric(
            ratio(seen.peak_bytes_per_s or wave_rate, seen.link_bytes_per_s),
            "share",
            devices,
            "the target declares no link_bytes_per_s for this arm",
        ),
        "medium_proven": Metric(float(seen.medium_proven), "count", 1, files),
        **_engine_metrics(expected, seen, source["engine"], requests),
        "content_mismatches": counter_metric(seen.engine, "content_mismatches", source["faults"], requests),
    }


def common_metrics(seen: Observed, source: Mapping[str, str], requests: int) -> dict[str, Metric]:
    """The metrics of every arm, whether it stores KV or not."""
    return {
        "preemptions": counter_metric(seen.engine, "preemptions", source["engine"], requests),
        "cpu_pressure_share": pressure_metric(seen.cpu_pressure_share, source["host"]),
    }


def _engine_metrics(expected: Expected, seen: Observed, source: str, requests: int) -> dict[str, Metric]:
    hits = seen.engine.get("external_hit_tokens")
    return {
        "external_hit_ratio": Metric(
            ratio(hits, expected.hit_tokens),
            "ratio",
            requests,
            source,
            "" if hits is not None else "the engine does not export a counter of external hits",
        ),
        "host_tier_hits": counter_metric(seen.engine, "host_tier_hit_tokens", source, requests),
        "allocation_failures": counter_metric(seen.engine, "allocation_failures", source, requests),
    }


def counter_metric(engine: Mapping[str, float | None], meaning: str, source: str, requests: int) -> Metric:
    value = engine.get(meaning)
    note = "" if value is not None else f"the engine does not export {meaning.replace('_', ' ')}"
    return Metric(value, "count", requests, source, note)


def pressure_metric(share: float | None, source: str) -> Metric:
    return Metric(share, "share", 1, source, "" if share is not None else "the kernel does not count pressure")


def residency_metric(seen: Residency | None, requests: int, source: str) -> Metric:
    if seen is None:
        return Metric(None, "share", requests, source, "the page cache could not be looked at")
    nothing = "nothing was stored" if seen.share is None else ""
    return Metric(seen.share, "share", requests, source, seen.why_blind or nothing or f"by {seen.method}")
