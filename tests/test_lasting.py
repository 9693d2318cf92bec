"""A run as a stretch of time: hours that add up, whatever became of the clocks and the process."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from kvbench import lasting
from kvbench.model import Measurement, Stamp

WALL_0_S = 1_790_000_000


def measured(
    step_id: str, start_s: float, length_s: float, boot: str = "a", *, wall_s: float | None = None, error: str = ""
) -> Measurement:
    """A measurement at `start_s` of its boot; its wall clock shows `wall_s`, or the same."""
    wall = WALL_0_S + (start_s if wall_s is None else wall_s)
    begins, ends = (
        Stamp(datetime.fromtimestamp(wall + after, UTC).isoformat(), round((start_s + after) * 1e9))
        for after in (0, length_s)
    )
    return Measurement(step_id, 1, "measured", begins, ends, boot, {}, error=error)


def account(measurements: Sequence[Measurement]) -> lasting.Account:
    return lasting.account(measurements, {m.step_id: m.step_id.partition("-")[0] for m in measurements})


def test_slices_other_steps_and_gaps_add_up_to_the_span() -> None:
    told = account([measured("churn-1", 5, 600), measured("wave-1", 606, 40), measured("churn-2", 716, 600)])
    assert (told.span_s, told.by_kind_s) == (1311, {"churn": 1200, "wave": 40})
    assert told.covered_s + told.gaps_s == told.span_s
    assert [(gap.after, gap.length_s, gap.is_outage) for gap in told.gaps] == [
        ("churn-1", 1, False),
        ("wave-1", 70, True),
    ]


@pytest.mark.parametrize(("gap_s", "outages"), [(50, 0), (60, 0), (60.5, 1), (70, 1)])
def test_a_gap_above_a_minute_is_an_outage(gap_s: float, outages: int) -> None:
    assert len(account([measured("c-1", 0, 100), measured("c-2", 100 + gap_s, 100)]).outages) == outages


@pytest.mark.parametrize("set_by_s", [-3600, -60, 60, 86_400])
def test_a_wall_clock_that_is_set_changes_nothing_within_a_boot(set_by_s: float) -> None:
    told = account([measured("c-1", 0, 100), measured("c-2", 101, 100, wall_s=101 + set_by_s)])
    assert (told.span_s, told.gaps_s) == (201, 1)


def test_across_a_reboot_the_wall_clock_leads() -> None:
    run = [
        measured("c-1", 1000, 100, wall_s=0),
        measured("c-2", 1100, 100, wall_s=40),  # set back by a minute meanwhile
        measured("c-3", 30, 100, boot="b", wall_s=140 + 300),
    ]
    told = account(run)
    assert [(gap.after, gap.length_s) for gap in told.gaps] == [("c-2", 300)]
    assert told.span_s == 600


def test_a_clock_set_back_across_a_reboot_never_makes_time_run_backwards() -> None:
    told = account([measured("c-1", 1000, 100, wall_s=0), measured("c-2", 5, 100, boot="b", wall_s=50)])
    assert (told.span_s, told.gaps) == (200, ())


def test_a_step_that_could_not_be_measured_covers_nothing() -> None:
    told = account([measured("c-1", 0, 100), measured("c-2", 100, 80, error="hung"), measured("c-3", 181, 100)])
    assert [(gap.after, gap.length_s) for gap in told.outages] == [("c-1", 81)]


def test_a_step_that_was_measured_late_stands_where_it_was_measured() -> None:
    late = [measured("c-1", 0, 100), measured("c-2", 301, 100), measured("c-3", 200, 100)]
    assert [*lasting.spans(late)] == ["c-1", "c-3", "c-2"]
    assert [gap.after for gap in account(late).outages] == ["c-1"]


def test_nothing_measured_is_no_time() -> None:
    assert account([]) == lasting.Account(0.0, {}, ())


def test_hourly_medians_take_the_hours_of_the_run() -> None:
    times_s = [0, 1200, 2400, 3600, 10_000]
    assert lasting.hourly_medians(times_s, [1, 3, 2, 7, 9]) == [(1800, 2), (5400, 7), (9000, 9)]


@pytest.mark.parametrize(("end_s", "hourly"), [(3 * 3600 - 1, False), (3 * 3600, True)])
def test_a_run_of_three_hours_is_looked_at_hour_by_hour(end_s: float, hourly: bool) -> None:
    assert lasting.is_hourly([lasting.Span(0, 10), lasting.Span(10, end_s)]) is hourly
