"""A run as a stretch of time: where its measurements lie on it, what lies between them, and its hours. Pure.

Within one boot, time is the monotonic clock's, so that a wall clock which is set changes nothing. From one boot to the
next only the wall clock leads; set back across a reboot, it makes the gap there 0 at least.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from kvbench.model import Measurement

UNAVAILABLE_ABOVE_S = 60.0  # docs/method.md, G4: a longer gap counts as unavailability
_HOUR_S = 3600.0
_HOURLY_FROM_S = 3 * _HOUR_S  # below, hours are too few to show a course


@dataclass(frozen=True, slots=True)
class Span:
    """A measurement on the run's own time: seconds since the first one began."""

    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch after step `after` in which nothing was measured."""

    after: str
    start_s: float
    length_s: float

    @property
    def is_outage(self) -> bool:
        return self.length_s > UNAVAILABLE_ABOVE_S


@dataclass(frozen=True, slots=True)
class Account:
    """Where a run's time went: `covered_s` (by kind of step in `by_kind_s`) and the gaps add up to `span_s`."""

    span_s: float
    by_kind_s: Mapping[str, float]
    gaps: tuple[Gap, ...]

    @property
    def covered_s(self) -> float:
        return sum(self.by_kind_s.values())

    @property
    def gaps_s(self) -> float:
        return sum(gap.length_s for gap in self.gaps)

    @property
    def outages(self) -> tuple[Gap, ...]:
        return tuple(gap for gap in self.gaps if gap.is_outage)


def spans(measurements: Iterable[Measurement]) -> dict[str, Span]:
    """Every measurement's place on the run's time, by step id, in the order in which they began."""
    boots: dict[str, list[Measurement]] = {}
    for measured in measurements:
        boots.setdefault(measured.boot_id, []).append(measured)
    for boot in boots.values():
        boot.sort(key=lambda measured: measured.start.monotonic_ns)
    placed: dict[str, Span] = {}
    end_ns, end_wall_ns = 0, None
    for boot in sorted(boots.values(), key=lambda boot: _wall_ns(boot[0].start.wall)):
        down_ns = max(0, _wall_ns(boot[0].start.wall) - end_wall_ns) if end_wall_ns is not None else 0
        shift_ns = end_ns + down_ns - boot[0].start.monotonic_ns
        for measured in boot:
            start, end = measured.start.monotonic_ns + shift_ns, measured.end.monotonic_ns + shift_ns
            placed[measured.step_id] = Span(start / 1e9, end / 1e9)
        last = max(boot, key=lambda measured: measured.end.monotonic_ns)
        end_ns, end_wall_ns = last.end.monotonic_ns + shift_ns, _wall_ns(last.end.wall)
    return placed


def account(measurements: Sequence[Measurement], kinds: Mapping[str, str]) -> Account:
    """Where the time went, from the first measurement's start to the last one's end; `kinds`: step id → kind of step.

    A step that could not be measured covers nothing: its time is a gap.
    """
    placed = list(spans(measurements).items())
    failed = {measured.step_id for measured in measurements if measured.error}
    covering = [(step_id, span) for step_id, span in placed if step_id not in failed]
    if not covering:
        return Account(0.0, {}, ())
    by_kind_s: dict[str, float] = {}
    for step_id, span in covering:
        kind = kinds[step_id]
        by_kind_s[kind] = by_kind_s.get(kind, 0.0) + span.end_s - span.start_s
    gaps = tuple(
        Gap(step_id, span.end_s, following.start_s - span.end_s)
        for (step_id, span), (_, following) in pairwise(covering)
        if following.start_s > span.end_s
    )
    return Account(covering[-1][1].end_s - covering[0][1].start_s, by_kind_s, gaps)


def is_hourly(placed: Iterable[Span]) -> bool:
    """Whether a run is long enough to be looked at hour by hour."""
    ends = [span.end_s for span in placed]
    return max(ends, default=0.0) >= _HOURLY_FROM_S


def place(done_s: float, planned_s: float) -> str:
    """Where a run stands: `hour 31 of 72`; one planned for less than an hour, `minute 4 of 10`."""
    unit, unit_s = ("hour", _HOUR_S) if planned_s >= _HOUR_S else ("minute", 60.0)
    planned = math.ceil(planned_s / unit_s)
    return f"{unit} {min(int(done_s // unit_s) + 1, planned)} of {planned}"


def hourly_medians(times_s: Sequence[float], values: Sequence[float]) -> list[tuple[float, float]]:
    """The median of every hour of the run that has values, with the middle of the hour in seconds."""
    hours: dict[int, list[float]] = {}
    for time_s, value in zip(times_s, values, strict=True):
        hours.setdefault(int(time_s // _HOUR_S), []).append(value)
    return [((hour + 0.5) * _HOUR_S, statistics.median(hours[hour])) for hour in sorted(hours)]


def _wall_ns(wall: str) -> int:
    return round(datetime.fromisoformat(wall).timestamp() * 1e9)
