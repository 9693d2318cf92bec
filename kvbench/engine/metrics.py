"""The engine's Prometheus exposition: vLLM's names where they mean the same, `kvbench:` for the rest."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kvbench.engine.scheduler import EngineCore


def exposition(core: EngineCore) -> bytes:
    """All metrics as they are now, in the Prometheus text format."""
    registry = CollectorRegistry()
    registry.register(_Core(core))
    return generate_latest(registry)


class _Core(Collector):
    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._model = core.config.cost.shape.id

    def collect(self) -> Iterator[Metric]:
        for name, (value, about) in _gauges(self._core).items():
            gauge = GaugeMetricFamily(name, about, labels=["model_name"])
            gauge.add_metric([self._model], value)
            yield gauge
        for name, (value, about) in _counters(self._core).items():
            counter = CounterMetricFamily(name, about, labels=["model_name"])
            counter.add_metric([self._model], value)
            yield counter
        finished = CounterMetricFamily(
            "vllm:request_success", "Finished requests", labels=["model_name", "finished_reason"]
        )
        finished.add_metric([self._model, "length"], self._core.counters.requests_finished)
        yield finished


def _gauges(core: EngineCore) -> dict[str, tuple[float, str]]:
    config, below = core.config, core.below
    return {
        "vllm:num_requests_running": (core.requests_running, "Requests being computed"),
        "vllm:num_requests_waiting": (core.requests_waiting, "Requests not yet admitted, or waiting for their pages"),
        "kvbench:stores_pending": (
            below.stores_pending if below else 0,
            "Pages, of all ranks, on their way to storage",
        ),
        "kvbench:pages_moving": (
            int(below.is_moving) if below else 0,
            "1 while pages move between nodes, or wait for the pace of it",
        ),
        "kvbench:host_tier_bytes": (len(below.host) * config.page_bytes if below else 0, "Bytes held in host memory"),
        "kvbench:gpu_tier_bytes": (len(core.gpu) * config.page_bytes, "Bytes of KV held in GPU memory, over all ranks"),
        "kvbench:gpu_tier_capacity_bytes": (
            core.gpu.capacity_pages * config.page_bytes,
            "Bytes of KV that GPU memory has room for, over all ranks",
        ),
        "kvbench:page_bytes": (config.page_bytes / config.ranks, "Bytes of one page of one rank"),
        "kvbench:page_replication": (
            config.cost.shape.replication(config.ranks),
            "How often each value of a page is stored over the ranks",
        ),
    }


def _counters(core: EngineCore) -> dict[str, tuple[float, str]]:
    counters, below = core.counters, core.below
    return {
        "vllm:num_preemptions": (counters.preemptions, "Requests that lost their pages and were computed again"),
        "vllm:prompt_tokens": (counters.prompt_tokens, "Prompt tokens of requests that have a first token"),
        "vllm:generation_tokens": (counters.generation_tokens, "Output tokens"),
        "vllm:prefix_cache_queries": (counters.gpu_queries, "Prompt tokens looked up in GPU memory"),
        "vllm:prefix_cache_hits": (counters.gpu_hits, "Prompt tokens found in GPU memory"),
        "vllm:external_prefix_cache_queries": (counters.external_queries, "Prompt tokens looked up below GPU memory"),
        "vllm:external_prefix_cache_hits": (counters.external_hits, "Prompt tokens found below GPU memory"),
        "kvbench:host_tier_hit_tokens": (counters.host_hits, "Those of the external hits that host memory answered"),
        "kvbench:allocation_failures": (
            counters.allocation_failures,
            "Pages in transfer that host memory had no room for",
        ),
        "kvbench:content_mismatches": (
            counters.content_mismatches,
            "Pages that came back other than they were stored or not at all, the scan at the start included",
        ),
        "kvbench:unreachable_pages": (
            counters.unreachable_pages,
            "Pages of single ranks whose node went while they were read: misses",
        ),
        "kvbench:moved_pages": (below.moved_pages if below else 0, "Pages of single ranks that changed their node"),
        "kvbench:stored_pages": (counters.stored_pages, "Pages of single ranks written to storage"),
        "kvbench:read_pages": (counters.read_pages, "Pages of single ranks read from storage and found right"),
    }
