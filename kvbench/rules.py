"""One check, held against the measurements of its cells: what each rule of a gate file means. Pure.

Whatever is missing is named and makes its finding INCONCLUSIVE; no rule passes on absence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple, cast

from kvbench import stats, wording
from kvbench.model import Arm, Check, Engine, Finding, Measurement, Metric, Outcome, Plan, Role, Step, Target
from kvbench.units import format_value

# ---------------------------------------------------------------- the measurements, found once


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


class _Seen(NamedTuple):
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
        self._selections: dict[tuple[str, str, str], list[Cell]] = {}

    def cells(self, check: Check) -> list[Cell]:
        """The cells of a check, by concurrency; none where no such step was planned."""
        key = (check.step, check.arms, check.divide_by)
        if key not in self._selections:
            self._selections[key] = list(self._select(check))
        cells = self._selections[key]
        return cells[-1:] if check.at == "highest" else cells

    def _select(self, check: Check) -> Iterator[Cell]:
        arms = _arms(check, self.plan.target)
        rows: dict[tuple[int, str], list[Row]] = {}
        for row in self.rows:
            step = row.step
            if step.kind == check.step and step.arm in arms:
                rows.setdefault((step.params.get("concurrency", 0), step.cell), []).append(row)
        for (_, name), chosen in sorted(rows.items()):
            names = {row.step.arm for row in chosen}
            yield Cell(name, self.at[name], names.pop() if len(names) == 1 else "", tuple(chosen))

    def arm(self, role: Role) -> Arm | None:
        return next((arm for arm in self.plan.target.arms if arm.role == role), None)


def _at(step: Step) -> str:
    load = wording.load(step)
    return f" at {load}" if load else f" in cell {step.cell}" if step.cell else ""


def _arms(check: Check, target: Target) -> set[str]:
    """The arms that a check is about; "" stands for steps of no arm.

    A check against a figure of storage (`divide_by`) is not about an arm that recomputes.
    """
    arms = [arm for arm in target.arms if check.arms in ("all", arm.role, arm.kv)]
    if check.divide_by:
        return {arm.name for arm in arms if arm.kv == "storage"}
    return {arm.name for arm in arms} | ({""} if check.arms == "all" else set())


def _see(check: Check, rows: Iterable[Row], run: Run) -> list[_Seen]:
    seen = [_figure(row, check.metric) for row in rows]
    return [_divide(figure, check.divide_by, run) for figure in seen] if check.divide_by else seen


def _figure(row: Row, metric: str) -> _Seen:
    step, measurement = row
    if measurement is None:
        return _Seen(step, None, "was not measured", ())
    figure = measurement.metrics.get(metric)
    sources = (figure.source,) if figure else ()
    value = figure.value if figure and figure.value is not None and math.isfinite(figure.value) else None
    if measurement.error:
        return _Seen(step, value, f"could not be measured ({measurement.error.rstrip('.')})", sources)
    return _Seen(step, value, _absence(metric, figure) if value is None else "", sources)


def _absence(metric: str, figure: Metric | None) -> str:
    note = f" ({figure.note.rstrip('.')})" if figure and figure.note else ""
    return f"has no figure for {wording.label(metric)}{note}"


def _divide(seen: _Seen, divide_by: str, run: Run) -> _Seen:
    """The figure ÷ the mean of another step's metric on the same arm."""
    kind, _, metric = divide_by.partition(".")
    rows = [row for row in run.rows if row.step.kind == kind and row.step.arm == seen.step.arm]
    divisors = [_figure(row, metric) for row in rows]
    missing = seen.missing or next((d.missing for d in divisors if d.missing), "")
    total = sum(d.value for d in divisors if d.value is not None)
    if seen.value is None or missing or total <= 0:
        return seen._replace(value=None, missing=missing or f"has no {divide_by} to be held against")
    sources = (*seen.sources, *(source for d in divisors for source in d.sources))
    return seen._replace(value=seen.value / (total / len(divisors)), sources=sources)


# ---------------------------------------------------------------- one check


def judge_check(check: Check, run: Run) -> list[Finding]:
    """The findings of one check: one a cell, or one a cell and arm. None when the target has no arm of its kind."""
    if check.rule == "arms_equal":
        return [_arms_equal(check, run)]
    ops, rule = _RULES.get(check.rule, ((), None))
    if rule is None:
        return [_finding(check, NOWHERE, Outcome.INCONCLUSIVE, f"kvbench knows no rule {check.rule!r}")]
    limit_fits = isinstance(check.limit, tuple) == (check.op == "in") and (check.limit is None) == (check.op == "")
    if check.op not in ops or not limit_fits:
        reason = f"rule {check.rule} cannot be judged with op {check.op!r} and limit {check.limit}"
        return [_finding(check, NOWHERE, Outcome.INCONCLUSIVE, reason)]
    if not _arms(check, run.plan.target):
        return []
    cells = run.cells(check)
    if not cells:
        return [_finding(check, NOWHERE, Outcome.INCONCLUSIVE, f"no step {check.step} was planned")]
    return [finding for cell in cells for finding in rule(check, cell, run)]


def _finding(
    check: Check, cell: Cell, outcome: Outcome, reason: str, seen: Sequence[_Seen] = (), **figures: Any
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


def _missing(check: Check, cell: Cell, seen: Sequence[_Seen], **figures: Any) -> Finding:
    absent = [figure for figure in seen if figure.missing]
    more = f" (and {len(absent) - 1} more)" if len(absent) > 1 else ""
    reason = f"{wording.place(absent[0].step)} {absent[0].missing}{more}"
    return _finding(check, cell, Outcome.INCONCLUSIVE, reason, seen, **figures)


def _breach(check: Check) -> Outcome:
    """Evidence that contradicts proves nothing about the storage: it only takes the figures' worth away."""
    return Outcome.INCONCLUSIVE if check.kind == "evidence" else Outcome.FAIL


_BEYOND: Mapping[str, Callable[[float, Any], float]] = {  # how far a value is beyond its limit; above 0 is a breach
    "<=": lambda value, limit: value - limit,
    ">=": lambda value, limit: limit - value,
    "==": lambda value, limit: abs(value - limit),
    "in": lambda value, limit: max(limit[0] - value, value - limit[1]),
}


# ---------------------------------------------------------------- the rules: each judges one check in one cell


def _each(check: Check, cell: Cell, run: Run) -> list[Finding]:
    """Every measurement meets the limit. A breach is a breach, whatever else is missing; evidence needs to be whole."""
    seen = _see(check, cell.rows, run)
    beyond = _BEYOND[check.op]
    known = [(beyond(figure.value, check.limit), figure.value, figure) for figure in seen if figure.value is not None]
    excess, value, worst = max(known, key=itemgetter(0), default=(0.0, 0.0, None))
    fails = excess > 0 and check.kind != "evidence"
    if worst is None or (not fails and any(figure.missing for figure in seen)):
        return [_missing(check, cell, seen)]
    reason = (
        f"{wording.label(check.metric)} is {format_value(value, check.unit)} ({wording.place(worst.step)}) "
        f"where {wording.asked(check.op, check.limit, check.unit)} is asked, "
        f"the worst of {wording.count(len(known), 'measurement')}"
    )
    outcome = _breach(check) if excess > 0 else Outcome.PASS
    return [_finding(check, cell, outcome, reason, seen, observed=value, n=len(known))]


def _present(check: Check, cell: Cell, run: Run) -> list[Finding]:
    seen = _see(check, cell.rows, run)
    if any(figure.missing for figure in seen):
        return [_missing(check, cell, seen)]
    reason = f"{wording.label(check.metric)} is there in {wording.count(len(seen), 'measurement')}"
    return [_finding(check, cell, Outcome.PASS, reason, seen, n=len(seen))]


def _paired_log_ratio(check: Check, cell: Cell, run: Run) -> list[Finding]:
    """Arm `of` ÷ arm `against`, round by round: the whole interval must lie on one side of the limit."""
    paired = _paired(check, cell, run)
    if isinstance(paired, Finding):
        return [paired]
    outcome, doubt = _side(check, paired.interval)
    need = wording.asked_change(check.op, cast(float, check.limit))
    reason = f"{wording.changed(check.metric, paired.interval)}{cell.at}, where {need} is asked{doubt}"
    return [_finding(check, cell, outcome, reason, paired.seen, **paired.figures)]


def _no_difference(check: Check, cell: Cell, run: Run) -> list[Finding]:
    """An arm against itself, held to the limit of the real comparison: passing that would be passing on nothing.

    Which of the two is called better is arbitrary, so neither way round may pass.
    """
    paired = _paired(check, cell, run)
    if isinstance(paired, Finding):
        return [paired]
    interval, limit = paired.interval, cast(float, check.limit)
    change, need = wording.changed(check.metric, interval), wording.asked_change(check.op, limit)
    if interval.low is None or interval.high is None or interval.log_sd is None:
        reason = f"{change}{cell.at}; one round has no interval"
        return [_finding(check, cell, Outcome.INCONCLUSIVE, reason, paired.seen, **paired.figures)]
    either_way = ((interval.low, interval.high), (1 / interval.high, 1 / interval.low))
    passes = any(all(_BEYOND[check.op](end, limit) <= 0 for end in ends) for ends in either_way)
    noise = f"spread of rounds {100 * stats.round_cv(interval.log_sd):.2g} %"
    reason = f"{change}{cell.at} between an arm and itself, where {need} must not be found; {noise}"
    return [_finding(check, cell, _breach(check) if passes else Outcome.PASS, reason, paired.seen, **paired.figures)]


class _Paired(NamedTuple):
    interval: stats.RatioInterval
    seen: Sequence[_Seen]
    figures: Mapping[str, Any]


def _paired(check: Check, cell: Cell, run: Run) -> _Paired | Finding:
    """The two arms of a check over their rounds, or the finding that says why they cannot be held together."""
    of, against = run.arm(check.of), run.arm(check.against)
    if of is None or against is None:
        role = check.of if of is None else check.against
        return _finding(check, cell, Outcome.INCONCLUSIVE, f"the target has no arm in the role {role}")
    seen = [_positive(f, check.metric) for f in _see(check, cell.rows, run) if f.step.arm in (of.name, against.name)]
    if any(figure.missing for figure in seen):
        return _missing(check, cell, seen, arm=of.name)
    sides = [{s.step.round: s.value for s in seen if s.step.arm == arm and s.value} for arm in (of.name, against.name)]
    rounds = sorted(sides[0])
    if not rounds or rounds != sorted(sides[1]):
        reason = f"the rounds of {of.name} and {against.name}{cell.at} do not pair up"
        return _finding(check, cell, Outcome.INCONCLUSIVE, reason, arm=of.name)
    interval = stats.paired_log_ratio([sides[0][r] for r in rounds], [sides[1][r] for r in rounds])
    ends = None if interval.low is None or interval.high is None else (interval.low, interval.high)
    return _Paired(interval, seen, {"observed": interval.ratio, "interval": ends, "n": interval.n, "arm": of.name})


def paired_interval(check: Check, cell: Cell, run: Run) -> stats.RatioInterval | None:
    """The ratio of the check's two arms in one cell; None where a round is missing."""
    paired = _paired(check, cell, run)
    return paired.interval if isinstance(paired, _Paired) else None


def _positive(figure: _Seen, metric: str) -> _Seen:
    if figure.missing or (figure.value or 0) > 0:
        return figure
    return figure._replace(missing=f"has no positive figure for {wording.label(metric)}")


def _side(check: Check, interval: stats.RatioInterval) -> tuple[Outcome, str]:
    """On which side of the limit the interval lies; and if on both, what would decide."""
    if interval.low is None or interval.high is None or interval.log_sd is None:
        return Outcome.INCONCLUSIVE, "; one round has no interval"
    breaches = [_BEYOND[check.op](end, check.limit) > 0 for end in (interval.low, interval.high)]
    if not any(breaches):
        return Outcome.PASS, ""
    if all(breaches):
        return _breach(check), ""
    rounds = stats.rounds_to_decide(math.log(interval.ratio), interval.log_sd, cast(float, check.limit))
    decide = f"about {rounds} rounds" if rounds else f"not even {stats.MOST_ROUNDS:,} rounds"
    return Outcome.INCONCLUSIVE, f"; {decide} of this spread would decide"


def _cv(check: Check, cell: Cell, run: Run) -> list[Finding]:
    """Scattered rounds are no failure of the storage, but no experiment either: a breach is INCONCLUSIVE."""
    return [_cv_of_arm(check, cell, _see(check, rows, run), arm) for arm, rows in _by_arm(cell)]


def _cv_of_arm(check: Check, cell: Cell, seen: Sequence[_Seen], arm: str) -> Finding:
    if any(figure.missing for figure in seen):
        return _missing(check, cell, seen, arm=arm)
    values = [figure.value for figure in seen if figure.value is not None]
    try:
        cv, low = stats.coefficient_of_variation(values), stats.cv_lower_bound(values)
    except ValueError as error:
        return _finding(check, cell, Outcome.INCONCLUSIVE, f"arm {arm}{cell.at}: {error}", seen, arm=arm)
    outcome = Outcome.INCONCLUSIVE if _BEYOND[check.op](low, check.limit) > 0 else Outcome.PASS
    reason = (
        f"{wording.label(check.metric)} of arm {arm}{cell.at} varies by {100 * cv:.1f} % over "
        f"{wording.count(len(seen), 'round')} (lower 95 % bound {100 * low:.1f} %), "
        f"where {wording.asked(check.op, check.limit, check.unit)} is asked of the bound"
    )
    return _finding(check, cell, outcome, reason, seen, observed=cv, n=len(seen), arm=arm)


def _drift(check: Check, cell: Cell, run: Run) -> list[Finding]:
    return [_drift_of_arm(check, cell, rows, _see(check, rows, run), arm) for arm, rows in _by_arm(cell)]


def _drift_of_arm(check: Check, cell: Cell, rows: Sequence[Row], seen: Sequence[_Seen], arm: str) -> Finding:
    """The trend over the run, up or down, must stay within the limit with its whole interval."""
    if any(figure.missing for figure in seen):
        return _missing(check, cell, seen, arm=arm)
    times_s = [datetime.fromisoformat(row.measurement.start.wall).timestamp() for row in rows if row.measurement]
    try:
        drift = stats.theil_sen_drift(times_s, [figure.value for figure in seen if figure.value is not None])
    except ValueError as error:
        return _finding(check, cell, Outcome.INCONCLUSIVE, f"arm {arm}{cell.at}: {error}", seen, arm=arm)
    largest = max(abs(drift.low), abs(drift.high))
    smallest = 0.0 if drift.low <= 0 <= drift.high else min(abs(drift.low), abs(drift.high))
    limit = cast(float, check.limit)
    outcome = Outcome.PASS if largest <= limit else _breach(check) if smallest > limit else Outcome.INCONCLUSIVE
    reason = (
        f"{wording.label(check.metric)} of arm {arm}{cell.at} moved by {100 * drift.change:+.1f} % over the run "
        f"(95 % interval {100 * drift.low:+.1f} to {100 * drift.high:+.1f} %, {drift.n} measurements), "
        f"where {wording.asked(check.op, check.limit, check.unit)} up or down is asked"
    )
    figures = {"observed": abs(drift.change), "interval": (smallest, largest), "n": drift.n, "arm": arm}
    return _finding(check, cell, outcome, reason, seen, **figures)


def _by_arm(cell: Cell) -> list[tuple[str, list[Row]]]:
    arms: dict[str, list[Row]] = {}
    for row in cell.rows:
        arms.setdefault(row.step.arm, []).append(row)
    return sorted(arms.items())


_RULES: Mapping[str, tuple[tuple[str, ...], Callable[[Check, Cell, Run], list[Finding]]]] = {
    "each": (("<=", ">=", "==", "in"), _each),
    "paired_log_ratio": (("<=", ">="), _paired_log_ratio),
    "no_difference": (("<=", ">="), _no_difference),
    "cv": (("<=",), _cv),
    "drift": (("<=",), _drift),
    "present": (("",), _present),
}


# ---------------------------------------------------------------- what the arms have in common

# where an engine answers is not what it is
_ENGINE_KEYS = tuple(field.name for field in fields(Engine) if field.name != "urls")


def _arms_equal(check: Check, run: Run) -> Finding:
    """The two arms differ in storage only: engines configured alike, telling the same of themselves, sent the same."""
    of, against = run.arm(check.of), run.arm(check.against)
    if of is None or against is None:
        return _finding(check, NOWHERE, Outcome.INCONCLUSIVE, "the target lacks one of the arms to compare")
    pair = f"arms {of.name} and {against.name}"
    differing = [f"engine.{key}" for key in _ENGINE_KEYS if getattr(of.engine, key) != getattr(against.engine, key)]
    rows = [[row for row in run.rows if row.step.kind == check.step and row.step.arm == a.name] for a in (of, against)]
    sent = [{(row.step.cell, row.step.round): (row.step.seed, row.step.params) for row in side} for side in rows]
    if sent[0] != sent[1]:
        differing.append("the prompts that they are sent")
    told = [
        row.measurement.facts.get("engine")
        for side in rows
        for row in side
        if row.measurement and not row.measurement.error
    ]
    if any(fact != told[0] for fact in told):
        differing.append("what the engines tell of themselves")
    if differing:
        return _finding(check, NOWHERE, Outcome.INCONCLUSIVE, f"{pair} differ in {', '.join(differing)}")
    if of.engine.kind == "openai" and not all(told):
        return _finding(check, NOWHERE, Outcome.INCONCLUSIVE, f"the engines of {pair} do not tell version and flags")
    return _finding(check, NOWHERE, Outcome.PASS, f"{pair} differ in storage only")
