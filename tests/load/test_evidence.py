"""What was observed around a wave, as metrics: absent ones with their reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvbench.host.activity.pagecache import Residency
from kvbench.load.evidence import Expected, Observed, common_metrics, storage_metrics
from kvbench.model import Metric

SOURCE = {name: f"raw/{name}" for name in ("requests", "devices", "host", "engine", "faults", "files")}
EXPECTED = Expected(hit_tokens=4096, read_bytes=1000)
COLD = Residency(resident_bytes=0, total_bytes=1000, method="cachestat", why_blind="")
SEEN = Observed(
    stored_bytes=1000,
    idle_read_bytes=1,
    device_read_bytes=1010,
    residency_before=COLD,
    residency_after=replace(COLD, resident_bytes=10),
    wave_s=2.0,
    peak_bytes_per_s=800.0,
    cpu_pressure_share=0.1,
    engine={"external_hit_tokens": 4096.0, "preemptions": 0.0, "host_tier_hit_tokens": 256.0},
    link_bytes_per_s=1600,
    medium_proven=True,
)
NOTHING_SEEN = Observed(0, None, None, None, None, None, None, None, {}, None, False)


def metrics(seen: Observed) -> dict[str, Metric]:
    return common_metrics(seen, SOURCE, 2) | storage_metrics(EXPECTED, seen, SOURCE, 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stored_ratio", 1.0),
        ("ledger_ratio", 1.01),
        ("idle_read_share", 0.001),
        ("residency_before_share", 0.0),
        ("residency_after_share", 0.01),
        ("wave_bandwidth_bytes_per_s", 505.0),
        ("link_use_share", 0.5),
        ("external_hit_ratio", 1.0),
        ("host_tier_hits", 256.0),
        ("medium_proven", 1.0),
        ("cpu_pressure_share", 0.1),
    ],
)
def test_what_was_seen_becomes_a_figure(name: str, value: float) -> None:
    assert metrics(SEEN)[name].value == value


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("ledger_ratio", "no block device with counters under the arm's folders"),
        ("residency_before_share", "the page cache could not be looked at"),
        ("peak_bandwidth_bytes_per_s", "the wave was shorter than 1 s"),
        ("link_use_share", "the target declares no link_bytes_per_s for this arm"),
        ("external_hit_ratio", "the engine does not export a counter of external hits"),
        ("allocation_failures", "the engine does not export allocation failures"),
        ("cpu_pressure_share", "the kernel does not count pressure"),
    ],
)
def test_what_was_not_seen_has_no_figure_and_says_why(name: str, note: str) -> None:
    metric = metrics(NOTHING_SEEN)[name]
    assert (metric.value, metric.note) == (None, note)


def test_where_nothing_was_stored_nothing_is_resident_and_that_is_said() -> None:
    metric = metrics(replace(SEEN, residency_before=replace(COLD, total_bytes=0)))["residency_before_share"]
    assert (metric.value, metric.note) == (None, "nothing was stored")
