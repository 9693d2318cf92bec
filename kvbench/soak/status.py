"""A soak while it lasts: how far it is, what it has shown, whether anybody runs it. From the journal as it grows.

`status` is pure and takes ordinary measurements. `Follower` feeds it, and reads each line of the journal once: what it
keeps of a measurement are its stamps and the few figures that a status shows.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple

from kvbench import clock, content, lasting, safety, wording
from kvbench.errors import KvbenchError
from kvbench.journal import RunFolder, from_json
from kvbench.model import Measurement, Metric, Plan, Stamp, Step
from kvbench.plan import cost
from kvbench.units import format_bytes, format_seconds, format_value

State = Literal["not started", "running", "stopping", "dead", "stopped", "finished"]

SHOWN = ("ttft_p50_s", "wave_bandwidth_bytes_per_s", "read_bandwidth_bytes_per_s", "write_bandwidth_bytes_per_s")
_SUMMED = ("content_mismatches", "io_errors", "media_errors", "requests_failed")
_WITHIN = "unavailable_s"
_LONGEST = "longest_stall_s"
_HOUR_S = 3600.0
_SET_ABOVE_S = 1.0  # a wall clock that moved less against the monotonic one was corrected and not set


# ---------------------------------------------------------------- the state of a soak, pure


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known of a soak beside its journal. `ended` and `starts` are the run folder's."""

    now: Stamp
    boot_id: str
    alive: bool
    ended: str
    starts: int
    free_bytes: Mapping[str, int]  # by arm; "": the run folder


class Figure(NamedTuple):
    """A median over the measurements of the last hour."""

    step: str
    cell: str
    arm: str
    metric: str
    unit: str
    median: float
    n: int


@dataclass(frozen=True, slots=True)
class Status:
    """How a soak stands. A slice is done when all its steps are measured; `lasted_s` are the slices done.

    `unavailable_s` counts what docs/method.md (G4) counts: gaps above 60 s, between steps (the one that lasts now
    included) and within them. What no step has looked at yet is None, as `available_share` is before the first.
    """

    state: State
    lasted_s: float
    planned_s: float
    slices_done: int
    slices_planned: int
    steps_failed: int
    available_share: float | None
    unavailable_s: float
    revivals: int
    longest_stall_s: float | None
    content_mismatches: float | None
    io_errors: float | None
    media_errors: float | None
    requests_failed: float | None
    last_hour: tuple[Figure, ...]
    free_bytes: Mapping[str, int]
    wall_clock_set_s: float
    last_measured: str
    next_wave: str
    next_wave_in_s: float | None
    left_s: float
    end: str


def status(
    plan: Plan, measurements: Sequence[Measurement], expected_s: Mapping[str, float], around: Surroundings
) -> Status:
    """How a soak stands at `around.now`. Of each step the last measurement, in the order in which they were taken.

    `expected_s`: step id → what the plan takes it to last.
    """
    measured = {m.step_id: m for m in measurements}
    done = {step_id: m for step_id, m in measured.items() if not m.error}
    todo = [step for step in plan.steps if step.id not in done]
    slices = {step.round for step in plan.steps if step.round}
    slices_done = len(slices - {step.round for step in todo})
    state = _state(around)
    account = lasting.account(measurements, {step.id: step.kind for step in plan.steps})
    last = next(reversed(done.values()), None)
    down_s = _since(last, around) if last and state == "dead" else 0.0
    span_s = account.span_s + down_s
    between_s = sum(gap.length_s for gap in account.outages) + down_s * (down_s > lasting.UNAVAILABLE_ABOVE_S)
    unavailable_s = between_s + sum(_values(measurements, _WITHIN))
    pace = _pace(done.values(), expected_s)
    left_s = pace * sum(expected_s[step.id] for step in todo)
    wave = next((step for step in todo if step.cell), None)
    before_wave = todo[: todo.index(wave)] if wave else []
    return Status(
        state=state,
        lasted_s=slices_done * plan.slice_s,
        planned_s=len(slices) * plan.slice_s,
        slices_done=slices_done,
        slices_planned=len(slices),
        steps_failed=len(measured) - len(done),
        available_share=1 - unavailable_s / span_s if span_s else None,
        unavailable_s=unavailable_s,
        revivals=max(0, around.starts - 1),
        longest_stall_s=max(_values(measurements, _LONGEST), default=None),
        **{name: sum(found) if (found := _values(measurements, name)) else None for name in _SUMMED},
        last_hour=tuple(_last_hour(plan.steps, done)),
        free_bytes=around.free_bytes,
        wall_clock_set_s=_wall_clock_set_s(measurements),
        last_measured=last.end.wall if last else "",
        next_wave=wave.id if wave else "",
        next_wave_in_s=pace * sum(expected_s[step.id] for step in before_wave) if wave else None,
        left_s=left_s,
        end=(datetime.fromisoformat(around.now.wall) + timedelta(seconds=left_s)).isoformat(timespec="minutes"),
    )


def _state(around: Surroundings) -> State:
    if around.ended == "finished":
        return "finished"
    if around.ended:
        return "stopping" if around.alive else "stopped"
    return "running" if around.alive else "dead" if around.starts else "not started"


def _since(last: Measurement, around: Surroundings) -> float:
    """Seconds since a measurement ended: monotonic within one boot, else by the wall clock."""
    if last.boot_id == around.boot_id:
        return (around.now.monotonic_ns - last.end.monotonic_ns) / 1e9
    elapsed = datetime.fromisoformat(around.now.wall) - datetime.fromisoformat(last.end.wall)
    return max(0.0, elapsed.total_seconds())


def _pace(done: Iterable[Measurement], expected_s: Mapping[str, float]) -> float:
    """How long steps took ÷ how long the plan took them to last; 1 before the first."""
    took = [((m.end.monotonic_ns - m.start.monotonic_ns) / 1e9, expected_s[m.step_id]) for m in done]
    expected = sum(plan_s for _, plan_s in took)
    return sum(real_s for real_s, _ in took) / expected if expected else 1.0


def _values(measurements: Iterable[Measurement], metric: str) -> list[float]:
    found = (m.metrics[metric].value for m in measurements if metric in m.metrics)
    return [value for value in found if value is not None]


def _last_hour(steps: Iterable[Step], done: Mapping[str, Measurement]) -> Iterable[Figure]:
    placed = lasting.spans(done.values())
    since_s = max((span.end_s for span in placed.values()), default=0.0) - _HOUR_S
    values: dict[tuple[str, str, str, str, str], list[float]] = {}
    for step in steps:
        if step.id not in done or placed[step.id].end_s < since_s:
            continue
        for name in SHOWN:
            metric = done[step.id].metrics.get(name)
            if metric and metric.value is not None:
                values.setdefault((step.kind, step.cell, step.arm, name, metric.unit), []).append(metric.value)
    return (Figure(*key, statistics.median(found), len(found)) for key, found in sorted(values.items()))


def _wall_clock_set_s(measurements: Sequence[Measurement]) -> float:
    """By how much the wall clock was set within the boot of the last measurement; 0 when it was not."""
    if not measurements:
        return 0.0
    stamps = [m.start for m in measurements if m.boot_id == measurements[-1].boot_id]
    offsets_s = [datetime.fromisoformat(s.wall).timestamp() - s.monotonic_ns / 1e9 for s in stamps]
    moved_s = offsets_s[-1] - offsets_s[0]
    return moved_s if abs(moved_s) > _SET_ABOVE_S else 0.0


def describe(found: Status) -> list[tuple[str, str]]:
    """A status for people, line by line: what it is about, and what it says."""
    share, place = found.available_share, lasting.place(found.lasted_s, found.planned_s)
    lines = [
        ("state", f"{found.state}, {place}; {found.slices_done} of {found.slices_planned} slices"),
        ("available", "not measured yet" if share is None else f"{100 * share:.3f} %"),
        ("", f"{format_seconds(found.unavailable_s)} without service, {wording.count(found.revivals, 'revival')}"),
        ("longest stall", _known(found.longest_stall_s, "s")),
        ("wrong pages", _known(found.content_mismatches, "count")),
        ("errors", f"I/O: {_known(found.io_errors, 'count')}, media: {_known(found.media_errors, 'count')}"),
        ("failed", f"requests: {_known(found.requests_failed, 'count')}, steps: {found.steps_failed}"),
    ]
    lines += _figures(found.last_hour)
    lines += [(f"free, {arm or 'run folder'}", format_bytes(free)) for arm, free in found.free_bytes.items()]
    if found.wall_clock_set_s:
        lines.append(("wall clock", f"was set by {found.wall_clock_set_s:+.0f} s; durations are not made of it"))
    if found.state in ("running", "dead", "stopping"):
        if found.next_wave_in_s is not None:
            lines.append(("next wave", f"{found.next_wave}, in about {format_seconds(found.next_wave_in_s)}"))
        lines.append(("left", f"about {format_seconds(found.left_s)} of measuring, so not before {found.end}"))
    return lines


def _known(value: float | None, unit: str) -> str:
    return "not known" if value is None else format_value(value, unit)


def _figures(last_hour: Iterable[Figure]) -> Iterable[tuple[str, str]]:
    where: dict[str, list[str]] = {}
    for figure in last_hour:
        text = f"{wording.label(figure.metric)} {format_value(figure.median, figure.unit)} (n = {figure.n})"
        where.setdefault(" ".join(filter(None, (figure.step, figure.cell, figure.arm))), []).append(text)
    if where:
        yield "the last hour", "medians"
    for name, texts in where.items():
        yield f"  {name}", ", ".join(texts)


# ---------------------------------------------------------------- the run folder, as it grows


class Follower:
    """Reads a run's journal as it grows, each line once. `latest` is the last whole measurement of every kind of step,
    cell and arm; of all others, only what a status needs is kept."""

    def __init__(self, folder: RunFolder) -> None:
        shapes = content.model_shapes()
        self.folder = folder
        self.latest: dict[tuple[str, str, str], Measurement] = {}
        self._steps = {step.id: step for step in folder.plan.steps}
        self._expected_s = {step.id: cost(step, folder.plan, shapes).seconds for step in folder.plan.steps}
        self._measured: dict[str, Measurement] = {}
        self._offset = 0

    def status(self) -> Status:
        """How the soak stands now."""
        self._read_on()
        starts, holder = self.folder.starts(), self.folder.holder()
        around = Surroundings(
            now=clock.stamp(),
            boot_id=clock.boot_id(),
            alive=holder is not None,
            ended=self.folder.ended(),
            starts=len(starts),
            free_bytes=self._free_bytes(),
        )
        return status(self.folder.plan, list(self._measured.values()), self._expected_s, around)

    def _read_on(self) -> None:
        journal = self.folder.path / "journal.jsonl"
        with journal.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # still being written, or torn
                self._offset += len(line)
                self._take(line, journal)

    def _take(self, line: bytes, journal: Path) -> None:
        try:
            entry = json.loads(line)
        except ValueError:
            raise KvbenchError(f"{journal} is damaged before byte {self._offset}", "restore it from a copy") from None
        if entry["event"] != "measured":
            return
        measurement = from_json(entry["measurement"], Measurement, journal)
        step = self._steps[measurement.step_id]
        if not measurement.error:
            self.latest[step.kind, step.cell, step.arm] = measurement
        self._measured.pop(step.id, None)  # measured again, it takes its place in time
        self._measured[step.id] = _thin(measurement)

    def _free_bytes(self) -> dict[str, int]:
        """Free space by arm (its fullest node), and under "" of the run folder."""
        free = {"": safety.free_bytes(self.folder.path)}
        for arm in self.folder.plan.target.arms:
            nodes = [Path(node) for node in arm.storage.every_node] if arm.storage else []
            if nodes and all(node.is_dir() for node in nodes):
                free[arm.name] = min(safety.free_bytes(node) for node in nodes)
        return free


def _thin(measurement: Measurement) -> Measurement:
    """What a status needs of a measurement: some 2 kB, for each of a soak's thousands of steps."""
    names = (*SHOWN, *_SUMMED, _WITHIN, _LONGEST)
    kept = {
        name: Metric(metric.value, sys.intern(metric.unit), metric.n)
        for name in names
        if (metric := measurement.metrics.get(name))
    }
    thin = replace(measurement, metrics=kept, boot_id=sys.intern(measurement.boot_id))
    return replace(thin, series={}, raw_files=(), overhead={}, facts={}, warnings=())
