"""What a check looks at: the measurements of a run in their cells, and how a finding about them is put. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from kvbench import wording
from kvbench.model import Arm, Check, Finding, Measurement, Metric, Outcome, Plan, Role, Step, Target


class Row(NamedTuple):
    step: Step
    measurement: Measurement | None


class Cell(NamedTuple):
    """The planned steps that a check looks at in one cell. `arm` is "" when they are of several.

    `at` follows a noun in a sentence: `" at 8 sessions"`, or "" for steps that belong to no cell.
    """

    name: str
    at: str
    arm: str
    rows: tuple[Row, ...]


class Seen(NamedTuple):
    """One figure, or why there is none: `missing` is "" where it counts."""

    step: Step
    value: float | None
    missing: str
    sources: tuple[str, ...]


NOWHERE = Cell("", "", "", ())


class Run:
    """The plan's steps beside their measurements. Checks that look at the same cells share one selection of them."""

    def __init__(self, plan: Plan, measurements: Iterable[Measurement]) -> None:
        by_step = {measurement.step_id: measurement for measurement in measurements}
        self.plan = plan
        self.rows = [Row(step, by_step.get(step.id)) for step in plan.steps]
        self.at = {step.cell: _at(step) for step in plan.steps}
        self._selections: dict[tuple[str, str, str, str], list[Cell]] = {}

    def cells(self, check: Check) -> list[Cell]:
        """The cells of a check, by concurrency; none where no such step was planned."""
        key = (check.step, check.arms, check.divide_by, check.only_if)
        if key not in self._selections:
            self._selections[key] = list(self._select(check))
        cells = self._selections[key]
        return cells[-1:] if check.at == "highest" else cells

    def _select(self, check: Check) -> Iterator[Cell]:
        arms = arms_of(check, self.plan.target)
        rows: dict[tuple[int, str], list[Row]] = {}
        for row in self.rows:
            step = row.step
            if step.kind == check.step and step.arm in arms and not _states_as_false(row.measurement, check.only_if):
                rows.setdefault((step.params.get("concurrency", 0), step.cell), []).append(row)
        for (_, name), chosen in sorted(rows.items()):
            names = {row.step.arm for row in chosen}
            yield Cell(name, self.at[name], names.pop() if len(names) == 1 else "", tuple(chosen))

    def arm(self, role: Role) -> Arm | None:
        return next((arm for arm in self.plan.target.arms if arm.role == role), None)


def _states_as_false(measurement: Measurement | None, fact: str) -> bool:
    """One that fails to state it is judged, and found without its figure."""
    return bool(fact) and measurement is not None and measurement.facts.get(fact) is False


def _at(step: Step) -> str:
    load = wording.load(step)
    return f" at {load}" if load else f" in cell {step.cell}" if step.cell else ""


def arms_of(check: Check, target: Target) -> set[str]:
    """The arms that a check is about; "" stands for steps of no arm.

    A check against a figure of storage (`divide_by`) is not about an arm that recomputes.
    """
    arms = [arm for arm in target.arms if check.arms in ("all", arm.role, arm.kv) or _checks_pages(check, arm)]
    if check.divide_by:
        return {arm.name for arm in arms if arm.kv == "storage"}
    return {arm.name for arm in arms} | ({""} if check.arms == "all" else set())


def _checks_pages(check: Check, arm: Arm) -> bool:
    return check.arms == "own_store" and arm.kv == "storage" and arm.engine.kind == "emulated"


def see(check: Check, rows: Iterable[Row], run: Run) -> list[Seen]:
    seen = [_figure(row, check.metric) for row in rows]
    return [_divide(figure, check.divide_by, run) for figure in seen] if check.divide_by else seen


def _figure(row: Row, metric: str) -> Seen:
    step, measurement = row
    if measurement is None:
        return Seen(step, None, "was not measured", ())
    figure = measurement.metrics.get(metric)
    sources = (figure.source,) if figure else ()
    value = figure.value if figure and figure.value is not None and math.isfinite(figure.value) else None
    if measurement.error:
        return Seen(step, value, f"could not be measured ({measurement.error.rstrip('.')})", sources)
    return Seen(step, value, _absence(metric, figure) if value is None else "", sources)


def _absence(metric: str, figure: Metric | None) -> str:
    note = f" ({figure.note.rstrip('.')})" if figure and figure.note else ""
    return f"has no figure for {wording.label(metric)}{note}"


def _divide(seen: Seen, divide_by: str, run: Run) -> Seen:
    """The figure ÷ the mean of another step's metric on the same arm, or ÷ what the arm's data sheet states."""
    kind, _, metric = divide_by.partition(".")
    if kind == "datasheet":
        return _divide_by_data_sheet(seen, metric, run)
    rows = [row for row in run.rows if row.step.kind == kind and row.step.arm == seen.step.arm]
    divisors = [_figure(row, metric) for row in rows]
    missing = seen.missing or next((d.missing for d in divisors if d.missing), "")
    total = sum(d.value for d in divisors if d.value is not None)
    if seen.value is None or missing or total <= 0:
        return seen._replace(value=None, missing=missing or f"has no {divide_by} to be held against")
    sources = (*seen.sources, *(source for d in divisors for source in d.sources))
    return seen._replace(value=seen.value / (total / len(divisors)), sources=sources)


def _divide_by_data_sheet(seen: Seen, figure: str, run: Run) -> Seen:
    storage = run.plan.target.arm(seen.step.arm).storage
    stated = getattr(storage.datasheet, figure) if storage else None
    if seen.value is None or seen.missing or not stated:
        missing = seen.missing or f"has no storage.datasheet.{figure} in the target to be held against"
        return seen._replace(value=None, missing=missing)
    return seen._replace(value=seen.value / stated, sources=(*seen.sources, "plan.json"))


def by_arm(cell: Cell) -> list[tuple[str, list[Row]]]:
    arms: dict[str, list[Row]] = {}
    for row in cell.rows:
        arms.setdefault(row.step.arm, []).append(row)
    return sorted(arms.items())


# ---------------------------------------------------------------- two arms, round by round


class Pairs(NamedTuple):
    """The figures of two arms, paired by round: `of` and `against` have the same rounds in the same order."""

    of: tuple[Seen, ...]
    against: tuple[Seen, ...]

    @property
    def values(self) -> list[tuple[float, float]]:
        return [(cast(float, a.value), cast(float, b.value)) for a, b in zip(self.of, self.against, strict=True)]

    @property
    def seen(self) -> tuple[Seen, ...]:
        return (*self.of, *self.against)


def pairs(check: Check, cell: Cell, run: Run) -> Pairs | Finding:
    """Arms `of` and `against` of a check over their rounds, or the finding that says why they do not pair up."""
    of, against = run.arm(check.of), run.arm(check.against)
    if of is None or against is None:
        role = check.of if of is None else check.against
        return finding(check, cell, Outcome.INCONCLUSIVE, f"the target has no arm in the role {role}")
    rows = _compared(check, cell, run, of, against)
    seen = [_positive(figure, check.metric) for figure in see(check, rows, run)]
    if any(figure.missing for figure in seen):
        return missing_finding(check, cell, seen, arm=of.name)
    sides = [tuple(sorted((s for s in seen if s.step.arm == arm.name), key=_round)) for arm in (of, against)]
    if not sides[0] or [*map(_round, sides[0])] != [*map(_round, sides[1])]:
        reason = f"the rounds of {of.name} and {against.name}{cell.at} do not pair up"
        return finding(check, cell, Outcome.INCONCLUSIVE, reason, arm=of.name)
    return Pairs(*sides)


def _compared(check: Check, cell: Cell, run: Run, of: Arm, against: Arm) -> list[Row]:
    """The rows of both arms: of one cell, or those of the other step that have its load and its rounds."""
    if not check.against_step:
        return [row for row in cell.rows if row.step.arm in (of.name, against.name)]
    rows = [row for row in cell.rows if row.step.arm == of.name]
    place = {(row.step.params.get("concurrency"), row.step.round) for row in rows}
    return rows + [
        row
        for row in run.rows
        if row.step.kind == check.against_step
        and row.step.arm == against.name
        and (row.step.params.get("concurrency"), row.step.round) in place
    ]


def _round(seen: Seen) -> int:
    return seen.step.round


def _positive(figure: Seen, metric: str) -> Seen:
    if figure.missing or (figure.value or 0) > 0:
        return figure
    return figure._replace(missing=f"has no positive figure for {wording.label(metric)}")


# ---------------------------------------------------------------- what a rule says


def finding(
    check: Check, cell: Cell, outcome: Outcome, reason: str, seen: Sequence[Seen] = (), **figures: Any
) -> Finding:
    return Finding(
        check=check.id,
        kind=check.kind,
        cell=cell.name,
        arm=figures.pop("arm", cell.arm),
        outcome=outcome,
        reason=reason,
        why=check.why,
        op=check.op,
        limit=check.limit,
        unit=check.unit,
        evidence=tuple(dict.fromkeys([source for figure in seen for source in figure.sources if source])),
        **figures,
    )


def missing_finding(check: Check, cell: Cell, seen: Sequence[Seen], **figures: Any) -> Finding:
    absent = [figure for figure in seen if figure.missing]
    more = f" (and {len(absent) - 1} more)" if len(absent) > 1 else ""
    reason = f"{wording.place(absent[0].step)} {absent[0].missing}{more}"
    return finding(check, cell, Outcome.INCONCLUSIVE, reason, seen, **figures)


def breach(check: Check) -> Outcome:
    """Evidence that contradicts proves nothing about the storage: it only takes the figures' worth away."""
    return Outcome.INCONCLUSIVE if check.kind == "evidence" else Outcome.FAIL


BEYOND: Mapping[str, Callable[[float, Any], float]] = {  # how far a value is beyond its limit; above 0 is a breach
    "<=": lambda value, limit: value - limit,
    ">=": lambda value, limit: limit - value,
    "==": lambda value, limit: abs(value - limit),
    "in": lambda value, limit: max(limit[0] - value, value - limit[1]),
}
