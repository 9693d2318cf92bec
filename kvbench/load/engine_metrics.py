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
    """A family by its name in the documentation; the series may carry `_total`. `label` must begin with `value`.

    With `beside` it counts only where that other family is exported; there it is 0 before its first count, since
    OpenTelemetry exports a counter only after that.
    """

    name: str
    label: str = ""
    value: str = ""
    beside: str = ""

    def holds(self, sample: Sample) -> bool:
        return sample.labels.get(self.label, "").startswith(self.value)


_LMCACHE_SERVER = "lmcache_mp_l1_eviction_loop_ticks"  # there from its start
_VLLM_TIERS = "vllm:kv_offload_tiering_chunk_queries"


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
        Family("lmcache_mp_lookup_hit_l1_tokens", beside=_LMCACHE_SERVER),
        Family("mem_cache_hit_nums_"),  # of Mooncake's master: reads, not tokens
        Family("vllm:prompt_tokens_cached_by_source", "source", "host", beside=_VLLM_TIERS),
        Family("sglang:cached_tokens", "cache_source", "host"),
    ),
    "allocation_failures": (
        Family("kvbench:allocation_failures"),
        Family("lmcache_mp_l1_allocation_failure_chunks", beside=_LMCACHE_SERVER),
        Family("lmcache:local_cpu_evict_failed_count"),  # no room made for an allocation
        Family("master_put_start_failures"),  # of Mooncake's master
        Family("vllm:kv_offload_tiering_promotion_job_failures", beside=_VLLM_TIERS),
    ),
    "content_mismatches": _families("kvbench:content_mismatches"),
    "unreachable_pages": _families("kvbench:unreachable_pages"),
    "moved_pages": _families("kvbench:moved_pages"),
}
GAUGES: Mapping[str, tuple[Family, ...]] = {
    "stores_pending": _families("kvbench:stores_pending"),
    "pages_moving": _families("kvbench:pages_moving"),
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
        if family.beside and _series_of(family.beside, series) is None:
            continue
        name = _series_of(family.name, series)
        if name is not None:
            samples = series[name]
            return None if samples is None else _sum(family, samples)
        if family.beside:
            return 0.0
    return None


def _series_of(family: str, series: _Series) -> str | None:
    """The name under which a family is exported."""
    return next((name for name in (f"{family}_total", family) if name in series), None)


def _sum(family: Family, samples: Iterable[Sample]) -> float | None:
    """A labelled counter springs into being with its first count: in a family that is there, no such label is 0."""
    total = sum(sample.value for sample in samples if family.holds(sample))
    return total if isfinite(total) else None


def _known_series(text: str) -> _Series:
    """Samples by name, of the names in the table. Read line by line, so that a broken one spoils its own name only."""
    families = {name for meaning in MEANINGS.values() for one in meaning for name in (one.name, one.beside) if name}
    known = families | {f"{name}_total" for name in families}
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
