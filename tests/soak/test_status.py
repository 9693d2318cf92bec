"""How a soak stands: from its plan and what has been measured, and from the journal as it grows."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from builders import make_measurement
from small_runs import execute
from soaks import make_plan, new_soak

from kvbench.errors import KvbenchError
from kvbench.journal import RunFolder
from kvbench.lasting import place
from kvbench.model import Measurement, Metric, Plan, Stamp, Step
from kvbench.soak import status as of_soak

HOUR_S, SLICE_S = 3600, 600
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def stamp(at_s: float, wall_offset_s: float = 0) -> Stamp:
    wall = BEGIN + timedelta(seconds=at_s + wall_offset_s)
    return Stamp(wall.isoformat(timespec="milliseconds"), round(at_s * 1e9))


def slices(made: Plan, hours: float, gap_after: tuple[int, float] = (0, 0), **fields: Any) -> Iterator[Measurement]:
    """A measurement of every step of the first hours: a slice lasts 600 s, a wave nothing; one gap after a slice."""
    at_s = 0.0
    for step in made.steps:
        if step.round * SLICE_S > hours * HOUR_S:
            continue
        if step.kind == "churn":
            at_s += gap_after[1] if step.round == gap_after[0] + 1 else 0
            yield measured(step, at_s, at_s + SLICE_S, read_bandwidth_bytes_per_s=1e9 + step.round, **fields)
            at_s += SLICE_S
        else:
            yield measured(step, at_s, at_s, ttft_p50_s=1.0 + step.round, **fields)


def measured(step: Step, start_s: float, end_s: float, **values: float) -> Measurement:
    metrics = {name: Metric(value, "count", 1, "") for name, value in values.items()}
    return replace(make_measurement(step, metrics), start=stamp(start_s), end=stamp(end_s))


def status(made: Plan, measurements: list[Measurement], now_s: float, **around: Any) -> of_soak.Status:
    known: dict[str, Any] = {"boot_id": "b", "alive": True, "ended": "", "starts": 1, "free_bytes": {}}
    expected_s = {step.id: SLICE_S if step.kind == "churn" else 0.0 for step in made.steps}
    return of_soak.status(made, measurements, expected_s, of_soak.Surroundings(now=stamp(now_s), **{**known, **around}))


def test_after_thirty_hours_and_a_half_it_is_hour_31_of_72() -> None:
    made = make_plan(72 * HOUR_S, SLICE_S)
    found = status(made, list(slices(made, 30.5)), 30.5 * HOUR_S)
    assert (found.slices_done, found.slices_planned) == (183, 432)
    assert place(found.lasted_s, found.planned_s) == "hour 31 of 72"
    assert found.left_s == pytest.approx(41.5 * HOUR_S)
    assert found.end == (BEGIN + timedelta(hours=72)).isoformat(timespec="minutes")
    assert found.next_wave.startswith("wave-r186-c8-")
    assert found.next_wave_in_s == pytest.approx(3 * SLICE_S)
    assert (found.available_share, found.unavailable_s, found.revivals) == (1.0, 0.0, 0)


@pytest.mark.parametrize(
    ("done_s", "planned_s", "told"),
    [
        (0, 72 * HOUR_S, "hour 1 of 72"),
        (72 * HOUR_S, 72 * HOUR_S, "hour 72 of 72"),
        (3600, 3600, "hour 1 of 1"),
        (190, 600, "minute 4 of 10"),
        (1, 2, "minute 1 of 1"),
    ],
)
def test_where_a_run_stands_is_said_in_hours_or_minutes(done_s: float, planned_s: float, told: str) -> None:
    assert place(done_s, planned_s) == told


@pytest.mark.parametrize(("gap_s", "unavailable_s"), [(50, 0), (60, 0), (70, 70)])
def test_a_gap_above_a_minute_is_time_without_service(gap_s: float, unavailable_s: float) -> None:
    made = make_plan(72 * HOUR_S, SLICE_S)
    found = status(made, list(slices(made, 2, gap_after=(5, gap_s))), 2 * HOUR_S + gap_s, starts=2)
    assert found.unavailable_s == unavailable_s
    assert found.available_share == pytest.approx(1 - unavailable_s / (2 * HOUR_S + gap_s))
    assert found.revivals == 1


def test_so_is_what_a_slice_reports_of_itself_and_the_time_since_a_dead_run_last_measured() -> None:
    made = make_plan(72 * HOUR_S, SLICE_S)
    found = status(made, list(slices(made, 2, unavailable_s=1.0)), 2 * HOUR_S + 300, alive=False)
    assert found.state == "dead"
    assert found.unavailable_s == 12 + 4 + 4 + 300  # 12 slices, 4 waves on both arms


def test_a_wall_clock_that_is_set_back_changes_no_figure_and_is_told() -> None:
    made = make_plan(72 * HOUR_S, SLICE_S)
    taken = list(slices(made, 2))
    back = [
        replace(m, start=stamp(m.start.monotonic_ns / 1e9, -60), end=stamp(m.end.monotonic_ns / 1e9, -60))
        for m in taken[6:]
    ]
    before, after = (status(made, list(m), 2 * HOUR_S) for m in (taken, [*taken[:6], *back]))
    assert after.wall_clock_set_s == pytest.approx(-60)
    assert replace(after, wall_clock_set_s=0.0, last_measured=before.last_measured) == before
    assert any("was set by -60 s" in text for _, text in of_soak.describe(after))


def test_a_step_that_failed_is_still_to_do_until_it_is_measured() -> None:
    made = make_plan(72 * HOUR_S, SLICE_S)
    *taken, last = slices(made, 2.2)
    found = status(made, [*taken, replace(last, error="the path went away")], 2 * HOUR_S)
    assert (found.steps_failed, found.slices_done) == (1, 12)
    mended = status(made, [*taken, last], 2 * HOUR_S)
    assert (mended.steps_failed, mended.slices_done) == (0, 13)


def test_only_the_last_hour_makes_its_medians() -> None:
    made = make_plan(72 * HOUR_S, SLICE_S)
    found = status(made, list(slices(made, 10)), 10 * HOUR_S)
    figures = {(f.step, f.arm, f.metric): (f.median, f.n) for f in found.last_hour}
    assert figures["churn", "dut", "read_bandwidth_bytes_per_s"] == (1e9 + 57, 7)  # slices 54 to 60
    assert figures["wave", "base", "ttft_p50_s"] == (1.0 + 57, 3)


def test_what_nobody_has_looked_at_is_not_zero() -> None:
    made = make_plan(72 * HOUR_S, SLICE_S)
    assert status(made, [], 0).content_mismatches is None
    assert status(made, [], 0).available_share is None
    looked = status(made, list(slices(made, 1, content_mismatches=0, longest_stall_s=2)), HOUR_S)
    assert (looked.content_mismatches, looked.longest_stall_s, looked.io_errors) == (0, 2, None)
    assert ("wrong pages", "not known") in of_soak.describe(status(made, [], 0))


@pytest.mark.parametrize(
    ("alive", "ended", "starts", "state"),
    [
        (False, "", 0, "not started"),
        (True, "", 1, "running"),
        (False, "", 1, "dead"),
        (True, "stopped", 1, "stopping"),
        (False, "stopped", 1, "stopped"),
        (False, "finished", 2, "finished"),
    ],
)
def test_states(alive: bool, ended: str, starts: int, state: str) -> None:
    assert status(make_plan(72 * HOUR_S, SLICE_S), [], 0, alive=alive, ended=ended, starts=starts).state == state


# ---------------------------------------------------------------- the run folder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Twenty slices that take no time."""
    return new_soak(tmp_path, 2e-5, 1e-6)


def test_the_journal_is_followed_line_by_line_and_a_line_in_the_making_is_left_alone(folder: RunFolder) -> None:
    execute(folder)
    journal = folder.path / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"")
    follower, seen = of_soak.Follower(folder), []
    for line in lines:
        with journal.open("ab") as file:
            file.write(line[:40])
            file.flush()
            before = follower.status()
            file.write(line[40:])
        seen.append((before.slices_done, follower.status().slices_done))
    assert seen[-1] == (19, 20)
    assert all(
        before == after or line.startswith(b'{"version":1,"event":"measured"')
        for (before, after), line in zip(seen, lines, strict=True)
    )
    journal.write_bytes(b"")  # what was read is not read again
    assert follower.status().slices_done == 20


def test_a_damaged_line_is_named(folder: RunFolder) -> None:
    (folder.path / "journal.jsonl").write_bytes(b'{"event": "begin"}\n{"event\n')
    with pytest.raises(KvbenchError, match="is damaged before byte 27"):
        of_soak.Follower(folder).status()
