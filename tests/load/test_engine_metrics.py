"""An engine's own counters, by meaning."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvbench.errors import StepError
from kvbench.load.engine_metrics import COUNTERS, MEANINGS, delta, read

SHARED = Path(__file__).parents[3] / "shared/cases/files"
RUNNING = "vllm:num_requests_running 2\n"  # something known, so that the exposition counts as one


@pytest.mark.parametrize(
    ("meaning", "lines", "value"),
    [
        # with and without _total; _created is a time and no count
        ("prefix_hit_tokens", "vllm:prefix_cache_hits_total 4.57e+08\n", 4.57e8),
        ("prefix_hit_tokens", "vllm:prefix_cache_hits 4.57e+08\n", 4.57e8),
        ("prefix_hit_tokens", "vllm:prefix_cache_hits_total 5\nvllm:prefix_cache_hits_created 1.75e+09\n", 5),
        ("external_hit_tokens", RUNNING + "vllm:external_prefix_cache_hits_created 1.75e+09\n", None),
        # old name, new name, both: one family a meaning
        ("prefix_hit_tokens", "vllm:gpu_prefix_cache_hits_total 7\n", 7),
        ("prefix_hit_tokens", "vllm:gpu_prefix_cache_hits_total 7\nvllm:prefix_cache_hits_total 8\n", 8),
        ("prefix_hit_tokens", "vllm:prefix_cache_hits_total 8\nvllm:gpu_prefix_cache_hits_total 7\n", 8),
        ("external_hit_tokens", "lmcache:num_hit_tokens_total 9\nvllm:external_prefix_cache_hits_total 8\n", 8),
        ("external_hit_tokens", "lmcache:num_hit_tokens_total 9\n", 9),
        # label sets are summed, whatever they call the model
        ("preemptions", 'vllm:num_preemptions_total{engine="0"} 1\nvllm:num_preemptions_total{engine="1"} 2\n', 3),
        (
            "running",
            'vllm:num_requests_running{model_name="/data/m"} 1\nvllm:num_requests_running{model_name="m"} 4\n',
            5,
        ),
        ("waiting", 'sglang:num_queue_reqs{model_name="空 {格}"} 3\n', 3),
        # one family, several tiers by label
        ("external_hit_tokens", 'sglang:cached_tokens_total{cache_source="storage_file"} 40\n', 40),
        ("host_tier_hit_tokens", 'sglang:cached_tokens_total{cache_source="host"} 30\n', 30),
        ("host_tier_hit_tokens", 'sglang:cached_tokens_total{cache_source="device"} 20\n', 0),
        # a gauge is no counter
        ("preemptions", RUNNING + "sglang:num_retracted_reqs 1\n", None),
        ("preemptions", "sglang:num_retracted_reqs_total 48\n", 48),
        # absent, and present with 0, are different answers
        ("preemptions", RUNNING, None),
        ("preemptions", "vllm:num_preemptions_total 0\n", 0),
        # broken expositions
        ("running", 'vllm:e2e_bucket{le="1"} 1\n' + RUNNING, 2),  # buckets without TYPE and without +Inf
        ("running", RUNNING + "# TYPE\n# HELP\n<html>\n\n{}\n", 2),
        ("preemptions", RUNNING + "vllm:num_preemptions_total 45", None),  # cut off: of 45, or of 457
        ("preemptions", 'vllm:num_preemptions_total{a="0"} 1\nvllm:num_preemptions_total{a="1" 2\n' + RUNNING, None),
        ("preemptions", "vllm:num_preemptions_total\n" + RUNNING, None),
        ("running", "vllm:num_requests_running NaN\n", None),
        ("running", "vllm:num_requests_running 2\r\n", 2),
        # a server that has counted nothing yet exports nothing of it, and is there; LMCache in process is not it
        ("host_tier_hit_tokens", "lmcache_mp_l1_eviction_loop_ticks_total 7\n", 0),
        ("allocation_failures", "lmcache_mp_l1_eviction_loop_ticks_total 7\n", 0),
        (
            "allocation_failures",
            "lmcache_mp_l1_eviction_loop_ticks_total 7\nlmcache_mp_l1_allocation_failure_chunks_total 2\n",
            2,
        ),
        ("host_tier_hit_tokens", RUNNING + "lmcache_mp_lookup_hit_l1_tokens_total 256\n", None),
        # vLLM knows the tier of a hit only when it offloads by itself
        ("host_tier_hit_tokens", 'vllm:prompt_tokens_cached_by_source_total{source="host"} 0\n', None),
        # our own engine
        ("content_mismatches", "kvbench:content_mismatches_total 1\n", 1),
        ("host_tier_hit_tokens", "kvbench:host_tier_hit_tokens_total 256\n", 256),
        ("allocation_failures", "kvbench:allocation_failures_total 3\n", 3),
        ("stores_pending", "kvbench:stores_pending 12\n", 12),
    ],
)
def test_one_value_for_a_meaning(meaning: str, lines: str, value: float | None) -> None:
    assert read(lines)[meaning] == value


def test_every_meaning_has_an_answer() -> None:
    assert set(read(RUNNING)) == set(MEANINGS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "are empty"),
        (" \n", "are empty"),
        ("<html>404</html>\n", "name nothing that is known"),
        ('{"error": "no such page"}\n', "name nothing that is known"),
        ("process_cpu_seconds_total 4\n", "name nothing that is known"),
        ("\x00\xff\n", "name nothing that is known"),
    ],
)
def test_an_exposition_that_says_nothing_is_an_error_with_a_hint(text: str, words: str) -> None:
    with pytest.raises(StepError, match=words) as caught:
        read(text)
    assert "PROMETHEUS_MULTIPROC_DIR" in caught.value.hint


@pytest.mark.parametrize(
    ("before", "after", "growth"),
    [
        ("vllm:num_preemptions_total 2\n", "vllm:num_preemptions_total 5\n", 3),
        ("vllm:num_preemptions_total 2\n", "vllm:num_preemptions_total 2\n", 0),
        (RUNNING, "vllm:num_preemptions_total 5\n", None),
        ("vllm:num_preemptions_total 2\n", RUNNING, None),
        ("vllm:num_preemptions_total 5\n", "vllm:num_preemptions_total 2\n", None),  # the engine started anew
    ],
)
def test_growth_between_two_readings(before: str, after: str, growth: float | None) -> None:
    grown = delta(read(before), read(after))
    assert grown["preemptions"] == growth
    assert set(grown) == set(COUNTERS)  # a gauge has no growth


@pytest.mark.skipif(not SHARED.is_dir(), reason="the collected cases are not beside the checkout")
@pytest.mark.parametrize(
    ("file", "meaning", "value"),
    [
        ("prometheus/chimera-vllm_metrics.txt", "prefix_hit_tokens", 371460),
        ("prometheus/chimera-vllm_metrics.txt", "preemptions", None),
        ("prometheus/chimera-sglang_metrics.txt", "waiting", 5),
        ("prometheus/llmprobe-vllm_metrics.txt", "running", 3),
        ("lmcache/lmcache-metrics-pr1100-excerpt.prom", "external_hit_tokens", 0),
    ],
)
def test_collected_expositions(file: str, meaning: str, value: float | None) -> None:
    assert read((SHARED / file).read_text())[meaning] == value
