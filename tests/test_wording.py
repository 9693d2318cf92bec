from __future__ import annotations

from dataclasses import replace

import pytest
from builders import make_step

from kvbench import wording
from kvbench.model import Finding, Outcome
from kvbench.probes.metrics import COLD_RECOVERY_METRICS
from kvbench.stats import RatioInterval


@pytest.mark.parametrize(
    ("op", "ratio", "text"),
    [
        ("<=", 0.75, "a fall of at least 25 %"),
        ("<=", 1.0, "no rise"),
        ("<=", 1.10, "a rise of at most 10 %"),
        (">=", 1.29, "a rise of at least 29 %"),
        (">=", 1.0, "no fall"),
        (">=", 0.95, "a fall of at most 5 %"),
    ],
)
def test_a_ratio_asked_for_reads_as_a_change(op, ratio, text):
    assert wording.asked_change(op, ratio) == text


@pytest.mark.parametrize(
    ("op", "limit", "unit", "text"),
    [
        ("<=", 0.001, "share", "at most 0.1 %"),
        (">=", 0.85, "ratio", "at least 0.85"),
        ("==", 0, "count", "0"),
        ("in", (0.99, 1.05), "ratio", "0.99 to 1.05"),
        ("in", (1.0, 1.0), "ratio", "1"),
    ],
)
def test_a_threshold_asked_for(op, limit, unit, text):
    assert wording.asked(op, limit, unit) == text


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (RatioInterval(0.588, 0.559, 0.62, 3, 0.1), "TTFT p50 fell by 41.2 % (95 % interval 38.0 to 44.1 %, 3 rounds)"),
        (RatioInterval(1.31, 1.28, 1.34, 10, 0.1), "TTFT p50 rose by 31.0 % (95 % interval 28.0 to 34.0 %, 10 rounds)"),
        (RatioInterval(0.99, 0.95, 1.03, 3, 0.1), "TTFT p50 fell by 1.0 % (95 % interval −3.0 to 5.0 %, 3 rounds)"),
        (RatioInterval(0.5, None, None, 1, None), "TTFT p50 fell by 50.0 % (1 round)"),
    ],
)
def test_a_ratio_reads_as_a_change(interval, text):
    assert wording.changed("ttft_p50_s", interval) == text


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (make_step("wave", "dut", 8, 2), "arm dut, 8 sessions, round 2"),
        (make_step("wave", "dut", 1, 2), "arm dut, 1 session, round 2"),
        (make_step("ceiling", "local"), "arm local"),
        (make_step("environment"), "step environment"),
    ],
)
def test_place_of_a_measurement(step, text):
    assert wording.place(step) == text


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({}, ""),
        ({"page_bytes": 65536}, ""),
        ({"concurrency": 1}, "1 session"),
        ({"concurrency": 8, "page_bytes": 8_126_464}, "queue depth 8 with pages of 8.13 MB"),
    ],
)
def test_load_of_a_step(params, text):
    assert wording.load(replace(make_step("wave"), params=params)) == text


@pytest.mark.parametrize("metric", COLD_RECOVERY_METRICS)
def test_every_metric_reads_as_words(metric):
    assert "_" not in wording.label(metric)


@pytest.mark.parametrize(
    ("why", "text"),
    [
        ("Reads go on.", "it is 3: reads go on"),
        ("KV is warm.", "it is 3: KV is warm"),
        ("A hit is no read.", "it is 3: a hit is no read"),
        ("", "it is 3"),
    ],
)
def test_the_why_of_a_check_follows_its_reason(why, text):
    assert wording.because(Finding("c", "evidence", "", "", Outcome.PASS, "it is 3", why)) == text
