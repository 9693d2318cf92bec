"""From what ranks moved to the figures of the probe `store.checkpoint`. Pure: what is absent says why.

Time is that of the slowest rank, from the first rank's begin to the last one's end; the throughput of a rank is its own
bytes ÷ its own time, of which the smallest counts (MLPerf Storage, Rules.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvbench.checkpoint.shards import Moved
from kvbench.host.activity.pagecache import Residency
from kvbench.model import Metric
from kvbench.probes.metrics import CHECKPOINT_METRICS
from kvbench.probes.params import CheckpointParams

_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What was moved and seen around it. Bytes are of the leaf devices' counters; None where nothing counts."""

    moved: Sequence[Moved]
    device_bytes: int | None
    idle_read_bytes: int | None
    residency_before: Residency | None
    cpu_pressure_share: float | None
    medium_proven: bool


def metrics(params: CheckpointParams, seen: Seen, source: str, why_not: str = "") -> dict[str, Metric]:
    """Every metric of the probe but that of the array's cache."""
    found = dict[str, float | None]()
    if seen.moved:
        found = (
            _evidence(seen)
            | _checked(params, seen.moved)
            | (_switching(params, seen.moved) if params.access == "switch" else _at_once(params, seen))
        )
    return {
        name: Metric(found.get(name), unit, len(seen.moved), source, _note(name, found, params, why_not))
        for name, unit in CHECKPOINT_METRICS.items()
    }


def _note(name: str, found: Mapping[str, float | None], params: CheckpointParams, why_not: str) -> str:
    """Why a figure is absent, or what it was made from."""
    if found.get(name) is not None:
        scaled = name == "effective_utilisation_share" and params.scale != 1
        return f"of models in full size: time of a switch ÷ {params.scale:g}" if scaled else ""
    not_seen = _NOT_SEEN.get(name) if name in found else None
    return why_not or not_seen or f"not measured by access {params.access}"


_NOT_SEEN = {
    "ledger_ratio": "no block device with counters under the arm's folders",
    "cpu_pressure_share": "the kernel does not count pressure",
    "residency_before_share": "nothing was read cold",
    "idle_read_share": "nothing was read cold",
    "wrong_chunks": "nothing was read back",
    "starved_share": "torch makes its bytes before it begins",
}


def effective_utilisation(switch_s: float, switches_per_hour: float) -> float:
    """The share of an hour that is left to computing: 1 − switches per hour × time of a switch ÷ 3600 s, at least 0."""
    return max(0.0, 1 - switches_per_hour * switch_s / _HOUR_S)


def _at_once(params: CheckpointParams, seen: Seen) -> dict[str, float | None]:
    size = sum(one.bytes for one in seen.moved)
    seconds = (max(one.ended_ns for one in seen.moved) - min(one.began_ns for one in seen.moved)) / 1e9
    name = params.access
    return {
        f"{name}_s": seconds,
        f"{name}_bandwidth_bytes_per_s": size / seconds,
        "rank_bandwidth_min_bytes_per_s": min(one.bytes / one.seconds for one in seen.moved),
    }


def _switching(params: CheckpointParams, moved: Sequence[Moved]) -> dict[str, float | None]:
    mean_s = sum(one.seconds for one in moved) / len(moved)
    return {
        "switch_s": mean_s,
        "effective_utilisation_share": effective_utilisation(mean_s / params.scale, params.switches_per_hour),
        "rank_bandwidth_min_bytes_per_s": min(one.bytes / one.seconds for one in moved),
    }


def _checked(params: CheckpointParams, moved: Sequence[Moved]) -> dict[str, float | None]:
    """What a save writes is not read back, and torch makes its own bytes before it begins."""
    starved = max(one.starved_ns / (one.ended_ns - one.began_ns) for one in moved)
    return {
        "wrong_chunks": None if params.access == "save" else sum(one.wrong_chunks for one in moved),
        "starved_share": None if params.writer == "torch" else starved,
    }


def _evidence(seen: Seen) -> dict[str, float | None]:
    size = sum(one.bytes for one in seen.moved)
    resident = seen.residency_before
    return {
        "moved_bytes": size,
        "ledger_ratio": None if seen.device_bytes is None else seen.device_bytes / size,
        "idle_read_share": None if seen.idle_read_bytes is None else seen.idle_read_bytes / size,
        "residency_before_share": resident.share if resident else None,
        "cpu_pressure_share": seen.cpu_pressure_share,
        "medium_proven": float(seen.medium_proven),
    }
