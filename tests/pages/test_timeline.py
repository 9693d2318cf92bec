"""What the times of page I/Os say, on timelines made by hand."""

import pytest

from kvbench.pages.timeline import Disturbance, Timeline

S = 10**9
PAGE_BYTES = 1_000_000


def timeline_of(*ios: tuple[str, float, float]) -> Timeline:
    timeline = Timeline(PAGE_BYTES)
    for kind, began_s, ended_s in ios:
        timeline.add(kind, round(began_s * S), round(ended_s * S))  # type: ignore[arg-type]
    return timeline


def steady(*silent: tuple[float, float], end_s: int = 60, per_s: int = 10) -> Timeline:
    """Ten reads a second, but none that ends within the silent stretches."""
    times = [number / per_s for number in range(end_s * per_s)]
    heard = [at for at in times if not any(begin < at < end for begin, end in silent)]
    return timeline_of(*(("read", at - 0.05, at) for at in heard))


def test_bandwidth_counts_pages_that_ended_within() -> None:
    timeline = timeline_of(("read", 0, 1), ("read", 1, 2), ("write", 1, 2), ("failed", 1, 2), ("read", 9, 11))
    assert timeline.bandwidth("read", 0, 10 * S) == 2 * PAGE_BYTES / 10
    assert timeline.bandwidth("write", 0, 10 * S) == PAGE_BYTES / 10


@pytest.mark.parametrize(
    ("ios", "busy_s"),
    [
        ([("read", 0, 2), ("write", 1, 3)], 3),
        ([("read", 0, 1), ("write", 2, 3)], 2),
        ([("read", 0, 10), ("write", 2, 3)], 10),
        ([("failed", 0, 1), ("held", 0.5, 2)], 2),
        ([], 0),
    ],
)
def test_busy_is_the_union_of_all_that_was_under_way_or_held_back(ios, busy_s: float) -> None:
    assert timeline_of(*ios).busy_ns() == busy_s * S


def test_an_error_that_comes_back_at_once_is_no_service() -> None:
    timeline = timeline_of(("read", 0, 1), *(("failed", at, at + 0.1) for at in range(2, 80)), ("read", 80, 81))
    assert max(timeline.stalls_s(0, 100 * S)) == 80
    assert timeline.unavailable_s(0, 100 * S) == 80


@pytest.mark.parametrize(("silent_s", "unavailable_s"), [(50, 0), (70, 70)])
def test_a_stall_above_a_minute_is_unavailability(silent_s: int, unavailable_s: int) -> None:
    timeline = steady((100, 100 + silent_s), end_s=300)
    assert timeline.unavailable_s(0, 300 * S) == pytest.approx(unavailable_s)


def test_a_stall_reaches_to_the_end_of_the_slice() -> None:
    assert timeline_of(("read", 0, 1)).stalls_s(0, 90 * S) == [1, 89]


FAULTS = [
    # silent stretches, outage, recovery; the fault is at 20 s
    ((), 0.1, 0),
    (((20, 25),), 5, 5),
    (((20.2, 22),), 1.8, 2),
    (((20, 25), (26, 32)), 6, 12),
    (((20, 60),), 40, None),
    (((20, 55),), 35, None),
]


@pytest.mark.parametrize(("silent", "outage_s", "recovery_s"), FAULTS)
def test_outage_and_recovery_follow_from_the_pages_served(silent, outage_s: float, recovery_s: float | None) -> None:
    found = steady(*silent).disturbance(20 * S, 0, 60 * S)
    assert found.outage_s == pytest.approx(outage_s, abs=0.11)
    assert found.recovery_s == recovery_s


def test_without_ten_seconds_before_a_fault_there_is_nothing_to_recover_to() -> None:
    assert steady().disturbance(5 * S, 0, 60 * S) == Disturbance(pytest.approx(0.1, abs=0.11), None)


def test_a_rollup_has_a_row_for_ten_seconds_and_the_sums_of_all() -> None:
    timeline = steady(end_s=25)
    timeline.add("write", 3 * S, 4 * S)
    timeline.add("failed", 3 * S, 4 * S)
    timeline.add("held", 0, 24 * S)
    rows = timeline.rollup(0)
    assert [row["at_s"] for row in rows] == [0, 10, 20]
    assert [row["reads"] for row in rows] == [100, 100, 50]
    assert [(row["writes"], row["failed"]) for row in rows] == [(1, 1), (0, 0), (0, 0)]
    assert rows[1]["read_latency_p50_s"] == pytest.approx(0.05)
    assert timeline_of(("write", 0, 1)).rollup(0)[0]["read_latency_p50_s"] is None
