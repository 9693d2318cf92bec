"""What a report consists of, before it becomes HTML, Markdown or PDF. Plain frozen data, texts ready to print. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kvbench.model import Measurement, Outcome, Plan, Step

Rows = Sequence[Mapping[str, Any]]
Taken = list[tuple[Step, Measurement]]  # steps that were tried, and what came of them


# ---------------------------------------------------------------- what a report is made from


@dataclass(frozen=True, slots=True)
class Series:
    """The tables beside a run's measurements, by step id, as lists of rows.

    `requests`: one row a request (`request_id`, `due_ns`, `first_token_ns` …). `devices`: one row a device and sample
    (`at_ns`, `device`, and counters since boot: `read_bytes` …). `rounds`: one row a round of a profile (`round`,
    `bandwidth_bytes_per_s` …). `moves`: one row a reading of what moves between nodes (`at_ns`, `moved_bytes`,
    `moving`). `digests`: SHA-256 by path in the run folder.
    `problems`: sentences about what could not be read.
    """

    requests: Mapping[str, Rows] = field(default_factory=dict)
    devices: Mapping[str, Rows] = field(default_factory=dict)
    rounds: Mapping[str, Rows] = field(default_factory=dict)
    moves: Mapping[str, Rows] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """A plan with what came of it: the last attempt of every step that was tried."""

    plan: Plan
    measurements: Mapping[str, Measurement]
    series: Series

    def steps(self, kind: str) -> Taken:
        """Steps of one gate step that were tried, in the order of the plan."""
        return [
            (step, self.measurements[step.id])
            for step in self.plan.steps
            if step.kind == kind and step.id in self.measurements
        ]

    def cells(self, kind: str) -> dict[str, Taken]:
        """The same by cell."""
        found: dict[str, Taken] = {}
        for step, measured in self.steps(kind):
            found.setdefault(step.cell, []).append((step, measured))
        return found


# ---------------------------------------------------------------- what is on the pages


@dataclass(frozen=True, slots=True)
class Entry:
    """A word or figure in a table. `n` and `source` belong to a figure; `note` is printed small beneath it."""

    text: str
    n: int | None = None
    source: str = ""
    note: str = ""
    numeric: bool = False
    code: bool = False
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class ForestRow:
    """One check against its threshold. `low`, `point`, `high` are places on the axis, 0 (left) to 1 (right).

    `cut_low` and `cut_high` say that the interval goes on beyond the axis.
    """

    label: str
    cell: str
    low: float
    point: float
    high: float
    cut_low: bool
    cut_high: bool
    outcome: Outcome
    observed: str
    limit: str
    n: int


@dataclass(frozen=True, slots=True)
class Forest:
    """Checks of different units on one axis: how many times better than its threshold each is. Right passes."""

    rows: tuple[ForestRow, ...]
    threshold: float
    ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One set of points. Lines of the same `style` share colour, marker and dash; an empty label has no legend entry.

    `low` and `high` are the ends of error bars.
    """

    label: str
    style: int
    x: tuple[float, ...]
    y: tuple[float, ...]
    draw: Literal["line", "points", "steps", "medians"] = "line"
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture. Axis labels carry the unit. `band` shades a stretch of the x axis. `note` is its caption, with n."""

    title: str
    alt: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    note: str = ""
    band: tuple[float, float] | None = None
    band_label: str = ""
    x_ticks: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    intro: str = ""
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decider:
    """The finding that decided, for a reading in ten seconds. Texts; "" where there is none.

    A ratio of arms is told as the change that it stands for in `headline`, `needed` and `interval`, and as itself in
    `observed` and `limit`.
    """

    check: str
    where: str
    headline: str
    observed: str
    needed: str
    limit: str
    interval: str
    n: str
    outcome: Outcome
    reason: str


@dataclass(frozen=True, slots=True)
class View:
    """The whole report: page one, then sections."""

    gate: str
    title: str
    target: str
    outcome: Outcome
    headline: str
    demonstration: tuple[str, ...]
    why: str
    rejudged: str
    ungated: str
    identity: tuple[tuple[str, str], ...]
    bases: tuple[tuple[str, str], ...]
    decider: Decider | None
    forest: Forest | None
    deciding: Table
    supporting: Table
    warnings: tuple[str, ...]
    sections: tuple[Section, ...]
    definitions: tuple[tuple[str, str], ...]
