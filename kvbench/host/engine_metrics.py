"""What an engine says of itself in its Prometheus exposition, by meaning and not by name. Pure.

Engines rename their families, and export old and new ones side by side for a while: of each meaning one family is
counted, the newest that is there. All its label sets are summed, over every instance; nothing is joined by
model_name, since the parts of one engine name the same model differently. A family that is absent, or of which
one line is broken, gives None: not exported, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from kvbench.errors import StepError


@dataclass(frozen=True, slots=True)
class Family:
    """A family by its name in the documentation; the series may carry `_total`. `label` must begin with `value`."""

    name: str
    label: str = ""
    value: str = ""

    def holds(self, sample: Sample) -> bool:
        return sample.labels.get(self.label, "").startswith(self.value)


def _families(*names: str) -> tuple[Family, ...]:
    return tuple(Family(name) for name in names)


# The newest name of each engine first; an engine's own count of a tier before that of a layer below it.
COUNTERS: Mapping[str, tuple[Family, ...]] = {
    "external_hit_tokens": (
        Family("vllm:external_prefix_cache_hits"),
        Family("sglang:cached_tokens", "cache_source", "storage"),  # `storage_file`, `storage_mooncake` …
        *_families("lmcache_mp_lookup_hit_tokens", "lmcache:num_hit_tokens"),
    ),
    "external_query_tokens": _families(
        "vllm:external_prefix_cache_queries",
        "sglang:prompt_tokens",
        "lmcache_mp_lookup_requested_tokens",
        "lmcache:num_requested_tokens",
    ),
    "prefix_hit_tokens": (
        *_families("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
        Family("sglang:cached_tokens", "cache_source", "device"),
    ),
    "preemptions": _families(
        "vllm:num_preemptions",
        "sglang:num_retracted_requests",
        "sglang:num_retracted_reqs_total",  # without _total it is a gauge of the last batch
    ),
    "host_tier_hit_tokens": (
        Family("kvbench:host_tier_hit_tokens"),
        Family("sglang:cached_tokens", "cache_source", "host"),
    ),
    "allocation_failures": _families(
        "kvbench:allocation_failures",
        "lmcache:local_cpu_evict_failed_count",  # no room made for an allocation
        "master_put_start_failures",  # of Mooncake's master
    ),
    "content_mismatches": _families("kvbench:content_mismatches"),
}
GAUGES: Mapping[str, tuple[Family, ...]] = {
    "stores_pending": _families("kvbench:stores_pending"),
    "running": _families(
        "vllm:num_requests_running",
        "sglang:num_running_reqs",
        "dynamo_frontend_inflight_requests",
        "dynamo_component_inflight_requests",
    ),
    "waiting": _families("vllm:num_requests_waiting", "sglang:num_queue_reqs", "dynamo_frontend_queued_requests"),
}
MEANINGS: Mapping[str, tuple[Family, ...]] = {**COUNTERS, **GAUGES}

_Series = dict[str, list[Sample] | None]  # None: a line of that name could not be read


def read(text: str) -> dict[str, float | None]:
    """Every meaning's value in one exposition, or in several one after another; None where it is not exported.

    Raises StepError when the exposition is empty, or holds nothing that is known.
    """
    series = _known_series(text)
    if not series:
        raise StepError(
            f"the engine's metrics {'name nothing that is known' if text.strip() else 'are empty'}",
            "vLLM and LMCache export nothing without the variable PROMETHEUS_MULTIPROC_DIR, set alike for all their "
            "processes; SGLang needs --enable-metrics",
        )
    return {meaning: _value(families, series) for meaning, families in MEANINGS.items()}


def delta(before: Mapping[str, float | None], after: Mapping[str, float | None]) -> dict[str, float | None]:
    """Growth of every counter between two readings; None where one of them lacks it, or where it began anew."""
    return {meaning: _growth(before[meaning], after[meaning]) for meaning in COUNTERS}


def _growth(then: float | None, now: float | None) -> float | None:
    return now - then if then is not None and now is not None and now >= then else None


def _value(families: Iterable[Family], series: _Series) -> float | None:
    for family in families:
        for name in (f"{family.name}_total", family.name):
            if name in series:
                samples = series[name]
                return None if samples is None else _sum(family, samples)
    return None


def _sum(family: Family, samples: Iterable[Sample]) -> float | None:
    """A labelled counter springs into being with its first count: in a family that is there, no such label is 0."""
    total = sum(sample.value for sample in samples if family.holds(sample))
    return total if isfinite(total) else None


def _known_series(text: str) -> _Series:
    """Samples by name, of the names in the table. Read line by line, so that a broken one spoils its own name only."""
    known = {name for families in MEANINGS.values() for one in families for name in (one.name, f"{one.name}_total")}
    series: _Series = {}
    for line in text.split("\n")[:-1]:  # the last of an exposition that was cut off may hold half a number
        name = line.replace("{", " ", 1).split(" ", 1)[0]
        if name not in known:
            continue
        sample = _parse(line)
        so_far = series.setdefault(name, [])
        if sample is None or so_far is None:
            series[name] = None
        else:
            so_far.append(sample)
    return series


def _parse(line: str) -> Sample | None:
    try:
        families = list(text_string_to_metric_families(line.strip()))
    except ValueError:
        return None
    return families[0].samples[0] if families and families[0].samples else None
