"""One check, held against the measurements of its cells: what each rule of a gate file means. Pure.

Whatever is missing is named and makes its finding INCONCLUSIVE; no rule passes on absence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from operator import itemgetter
from typing import Any, NamedTuple, cast

from kvbench import stats, wording
from kvbench.judge import as_ordered, over_time
from kvbench.judge.cells import (
    BEYOND,
    NOWHERE,
    Cell,
    Run,
    Seen,
    arms_of,
    breach,
    by_arm,
    finding,
    missing_finding,
    pairs,
    see,
)
from kvbench.judge.outputs import outputs_equal
from kvbench.model import Check, Engine, Finding, Outcome
from kvbench.units import format_value

# ---------------------------------------------------------------- one check


def judge_check(check: Check, run: Run) -> list[Finding]:
    """The findings of one check: one a cell, or one a cell and arm. None when the target has no arm of its kind."""
    if of_the_run := _OF_THE_RUN.get(check.rule):
        return of_the_run(check, run)
    ops, rule = _RULES.get(check.rule, ((), None))
    if rule is None:
        return [finding(check, NOWHERE, Outcome.INCONCLUSIVE, f"kvbench knows no rule {check.rule!r}")]
    limit_fits = isinstance(check.limit, tuple) == (check.op == "in") and (check.limit is None) == (check.op == "")
    if check.op not in ops or not limit_fits:
        reason = f"rule {check.rule} cannot be judged with op {check.op!r} and limit {check.limit}"
        return [finding(check, NOWHERE, Outcome.INCONCLUSIVE, reason)]
    if not arms_of(check, run.plan.target):
        return []
    cells = run.cells(check)
    if not cells:
        steps = [step for step in run.plan.gate.steps if step.id == check.step]
        not_for_all = any(step.hook or step.scaling or step.arms == "two_pools" for step in steps)
        absence = finding(check, NOWHERE, Outcome.INCONCLUSIVE, f"no step {check.step} was planned")
        return [] if not_for_all or check.only_if else [absence]
    return [finding for cell in cells for finding in rule(check, cell, run)]


# ---------------------------------------------------------------- the rules: each judges one check in one cell


def _each(check: Check, cell: Cell, run: Run) -> list[Finding]:
    """Every measurement meets the limit. A breach is a breach, whatever else is missing; evidence needs to be whole."""
    seen = see(check, cell.rows, run)
    beyond = BEYOND[check.op]
    known = [(beyond(figure.value, check.limit), figure.value, figure) for figure in seen if figure.value is not None]
    excess, value, worst = max(known, key=itemgetter(0), default=(0.0, 0.0, None))
    fails = excess > 0 and check.kind != "evidence"
    if worst is None or (not fails and any(figure.missing for figure in seen)):
        return [missing_finding(check, cell, seen)]
    reason = (
        f"{wording.subject(check)} is {format_value(value, check.unit)} ({wording.place(worst.step)}) "
        f"where {wording.asked(check.op, check.limit, check.unit)} is asked, "
        f"the worst of {wording.count(len(known), 'measurement')}"
    )
    outcome = breach(check) if excess > 0 else Outcome.PASS
    return [finding(check, cell, outcome, reason, seen, observed=value, n=len(known))]


def _present(check: Check, cell: Cell, run: Run) -> list[Finding]:
    """The figure is there in every measurement of an arm; the finding shows it, of several the median."""
    return [_present_of_arm(check, cell, see(check, rows, run), arm) for arm, rows in by_arm(cell)]


def _present_of_arm(check: Check, cell: Cell, seen: Sequence[Seen], arm: str) -> Finding:
    if any(figure.missing for figure in seen):
        return missing_finding(check, cell, seen, arm=arm)
    values = [figure.value for figure in seen if figure.value is not None]
    median = stats.percentile(values, 50)
    of = f", the median of {len(values)} measurements" if len(values) > 1 else ""
    reason = f"{wording.subject(check)} is {format_value(median, check.unit)}{cell.at}{of}"
    return finding(check, cell, Outcome.PASS, reason, seen, observed=median, n=len(values), arm=arm)


def _paired_log_ratio(check: Check, cell: Cell, run: Run) -> list[Finding]:
    """Arm `of` ÷ arm `against`, round by round: the whole interval must lie on one side of the limit."""
    paired = _paired(check, cell, run)
    if isinstance(paired, Finding):
        return [paired]
    outcome, doubt = _side(check, paired.interval)
    need = wording.asked_change(check.op, cast(float, check.limit))
    reason = f"{wording.changed(check.metric, paired.interval)}{cell.at}, where {need} is asked{doubt}"
    return [finding(check, cell, outcome, reason, paired.seen, **paired.figures)]


def _no_difference(check: Check, cell: Cell, run: Run) -> list[Finding]:
    """An arm against itself, held to the limit of the real comparison: passing that would be passing on nothing."""
    return [replace(_neither_way_round(check, cell, run), op=f"not {check.op}")]


def _neither_way_round(check: Check, cell: Cell, run: Run) -> Finding:
    """Which of the two is called the better one is arbitrary, so the comparison may pass neither way round."""
    paired = _paired(check, cell, run)
    if isinstance(paired, Finding):
        return paired
    interval, limit = paired.interval, cast(float, check.limit)
    change, need = wording.changed(check.metric, interval), wording.asked_change(check.op, limit)
    if interval.low is None or interval.high is None or interval.log_sd is None:
        reason = f"{change}{cell.at}; one round has no interval"
        return finding(check, cell, Outcome.INCONCLUSIVE, reason, paired.seen, **paired.figures)
    either_way = ((interval.low, interval.high), (1 / interval.high, 1 / interval.low))
    passes = any(all(BEYOND[check.op](end, limit) <= 0 for end in ends) for ends in either_way)
    noise = f"spread of rounds {100 * stats.round_cv(interval.log_sd):.2g} %"
    reason = f"{change}{cell.at} between an arm and itself, where {need} must not be found; {noise}"
    return finding(check, cell, breach(check) if passes else Outcome.PASS, reason, paired.seen, **paired.figures)


class _Paired(NamedTuple):
    interval: stats.RatioInterval
    seen: Sequence[Seen]
    figures: Mapping[str, Any]


def _paired(check: Check, cell: Cell, run: Run) -> _Paired | Finding:
    """The two arms of a check over their rounds, or the finding that says why they cannot be held together."""
    paired = pairs(check, cell, run)
    if isinstance(paired, Finding):
        return paired
    interval = stats.paired_log_ratio([of for of, _ in paired.values], [against for _, against in paired.values])
    ends = None if interval.low is None or interval.high is None else (interval.low, interval.high)
    figures = {"observed": interval.ratio, "interval": ends, "n": interval.n, "arm": paired.of[0].step.arm}
    return _Paired(interval, paired.seen, figures)


def paired_interval(check: Check, cell: Cell, run: Run) -> stats.RatioInterval | None:
    """The ratio of the check's two arms in one cell; None where a round is missing."""
    paired = _paired(check, cell, run)
    return paired.interval if isinstance(paired, _Paired) else None


def _side(check: Check, interval: stats.RatioInterval) -> tuple[Outcome, str]:
    """On which side of the limit the interval lies; and if on both, what would decide."""
    if interval.low is None or interval.high is None or interval.log_sd is None:
        return Outcome.INCONCLUSIVE, "; one round has no interval"
    breaches = [BEYOND[check.op](end, check.limit) > 0 for end in (interval.low, interval.high)]
    if not any(breaches):
        return Outcome.PASS, ""
    if all(breaches):
        return breach(check), ""
    rounds = stats.rounds_to_decide(math.log(interval.ratio), interval.log_sd, cast(float, check.limit))
    decide = f"about {rounds} rounds" if rounds else f"not even {stats.MOST_ROUNDS:,} rounds"
    return Outcome.INCONCLUSIVE, f"; {decide} of this spread would decide"


def _cv(check: Check, cell: Cell, run: Run) -> list[Finding]:
    """Scattered rounds are no failure of the storage, but no experiment either: a breach is INCONCLUSIVE."""
    return [_cv_of_arm(check, cell, see(check, rows, run), arm) for arm, rows in by_arm(cell)]


def _cv_of_arm(check: Check, cell: Cell, seen: Sequence[Seen], arm: str) -> Finding:
    if any(figure.missing for figure in seen):
        return missing_finding(check, cell, seen, arm=arm)
    values = [figure.value for figure in seen if figure.value is not None]
    try:
        cv, low = stats.coefficient_of_variation(values), stats.cv_lower_bound(values)
    except ValueError as error:
        return finding(check, cell, Outcome.INCONCLUSIVE, f"arm {arm}{cell.at}: {error}", seen, arm=arm)
    outcome = Outcome.INCONCLUSIVE if BEYOND[check.op](low, check.limit) > 0 else Outcome.PASS
    reason = (
        f"{wording.label(check.metric)} of arm {arm}{cell.at} varies by {100 * cv:.1f} % over "
        f"{wording.count(len(seen), 'round')} (lower 95 % bound {100 * low:.1f} %), "
        f"where {wording.asked(check.op, check.limit, check.unit)} is asked of the bound"
    )
    return finding(check, cell, outcome, reason, seen, observed=cv, n=len(seen), arm=arm)


_RULES: Mapping[str, tuple[tuple[str, ...], Callable[[Check, Cell, Run], list[Finding]]]] = {
    "each": (("<=", ">=", "==", "in"), _each),
    "paired_log_ratio": (("<=", ">="), _paired_log_ratio),
    "no_difference": (("<=", ">="), _no_difference),
    "cv": (("<=",), _cv),
    "drift": (("<=",), over_time.drift),
    "growth": (("<=", "=="), over_time.growth),
    "hourly_ratio": (("<=", ">="), over_time.hourly_ratio),
    "availability": (("<=",), over_time.availability),
    "present": (("",), _present),
    "expected": (("",), as_ordered.expected),
}


# ---------------------------------------------------------------- what the arms have in common

# where an engine answers, and to whom, is not what it is
_ENGINE_KEYS = tuple(field.name for field in fields(Engine) if field.name not in ("urls", "api_key_env"))


def _arms_equal(check: Check, run: Run) -> list[Finding]:
    """The two arms differ in storage only: engines configured alike, telling the same of themselves, sent the same."""
    of, against = run.arm(check.of), run.arm(check.against)
    if of is None or against is None:
        return [finding(check, NOWHERE, Outcome.INCONCLUSIVE, "the target lacks one of the arms to compare")]
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
        return [finding(check, NOWHERE, Outcome.INCONCLUSIVE, f"{pair} differ in {', '.join(differing)}")]
    if of.engine.kind == "openai" and not all(told):
        return [finding(check, NOWHERE, Outcome.INCONCLUSIVE, f"the engines of {pair} do not tell version and flags")]
    return [finding(check, NOWHERE, Outcome.PASS, f"{pair} differ in storage only")]


_OF_THE_RUN: Mapping[str, Callable[[Check, Run], list[Finding]]] = {
    "arms_equal": _arms_equal,
    "outputs_equal": outputs_equal,
}
