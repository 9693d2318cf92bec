"""Rules about a run's course: trend, every hour, and the time without service. Pure.

A run of three hours or more is looked at hour by hour, a shorter one measurement by measurement; findings say which.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from kvbench import lasting, stats, wording
from kvbench.judge.cells import BEYOND, Cell, Row, Run, Seen, breach, by_arm, finding, missing_finding, pairs, see
from kvbench.model import Check, Finding, Outcome
from kvbench.units import format_seconds, format_value

_MOST_NAMED = 3  # stretches without service that a sentence names


def drift(check: Check, cell: Cell, run: Run) -> list[Finding]:
    """The trend over the run, up or down.

    Of hourly medians the trend itself is judged: it is what the run did, and its interval, which takes the hours for
    independent, stands beside it. Of single measurements the whole interval must lie on one side, as they are few.
    """
    return [_drift_of_arm(check, cell, rows, run, arm) for arm, rows in by_arm(cell)]


def _drift_of_arm(check: Check, cell: Cell, rows: Sequence[Row], run: Run, arm: str) -> Finding:
    seen = see(check, rows, run)
    if any(figure.missing for figure in seen):
        return missing_finding(check, cell, seen, arm=arm)
    spans = lasting.spans([row.measurement for row in run.rows if row.measurement])
    times_s = [spans[figure.step.id].start_s for figure in seen]
    hourly = bool(run.plan.slice_s) and lasting.is_hourly(spans.values())
    values = [cast(float, figure.value) for figure in seen]
    points = lasting.hourly_medians(times_s, values) if hourly else list(zip(times_s, values, strict=True))
    try:
        trend = stats.theil_sen_drift([at_s for at_s, _ in points], [value for _, value in points])
    except ValueError as error:
        return finding(check, cell, Outcome.INCONCLUSIVE, f"arm {arm}{cell.at}: {error}", seen, arm=arm)
    largest = max(abs(trend.low), abs(trend.high))
    smallest = 0.0 if trend.low <= 0 <= trend.high else min(abs(trend.low), abs(trend.high))
    least, most = (abs(trend.change),) * 2 if hourly else (smallest, largest)
    limit = cast(float, check.limit)
    outcome = Outcome.PASS if most <= limit else breach(check) if least > limit else Outcome.INCONCLUSIVE
    counted = wording.count(trend.n, "hourly median" if hourly else "measurement")
    reason = (
        f"{wording.label(check.metric)} of arm {arm}{cell.at} moved by {_signed(trend.change)} over the run "
        f"(95 % interval {_signed(trend.low)} to {_signed(trend.high)}, {counted}), "
        f"where {wording.asked(check.op, check.limit, check.unit)} up or down is asked"
    )
    figures = {"observed": abs(trend.change), "interval": (smallest, largest), "n": trend.n, "arm": arm}
    return finding(check, cell, outcome, reason, seen, **figures)


def _signed(share: float) -> str:
    return f"{100 * share:+.1f} %".replace("-", "−")


def growth(check: Check, cell: Cell, run: Run) -> list[Finding]:
    """What a counter has grown by, from the run's first measurement to its last, whatever lay between them."""
    return [_growth_of_arm(check, cell, rows, run, arm) for arm, rows in by_arm(cell)]


def _growth_of_arm(check: Check, cell: Cell, rows: Sequence[Row], run: Run, arm: str) -> Finding:
    seen = see(check, rows, run)
    values = [figure.value for figure in seen if figure.value is not None]
    grown = values[-1] - values[0] if values else 0.0
    breached = BEYOND[check.op](grown, check.limit) > 0
    if not values or (not breached and any(figure.missing for figure in seen)):
        return missing_finding(check, cell, seen, arm=arm)
    reason = (
        f"{wording.label(check.metric)} grew by {format_value(grown, check.unit)} on arm {arm} over the run, "
        f"where {wording.asked(check.op, check.limit, check.unit)} is asked"
    )
    outcome = breach(check) if breached else Outcome.PASS
    return finding(check, cell, outcome, reason, seen, observed=grown, n=len(values), arm=arm)


def hourly_ratio(check: Check, cell: Cell, run: Run) -> list[Finding]:
    """Arm `of` ÷ arm `against`, round by round; of every hour the median meets the limit (short run: every round)."""
    paired = pairs(check, cell, run)
    if isinstance(paired, Finding):
        return [paired]
    spans = lasting.spans([row.measurement for row in run.rows if row.measurement])
    times_s = [spans[figure.step.id].start_s for figure in paired.of]
    ratios = [of / against for of, against in paired.values]
    hourly = lasting.is_hourly(spans.values())
    points = lasting.hourly_medians(times_s, ratios) if hourly else list(zip(times_s, ratios, strict=True))
    at_s, worst = max(points, key=lambda point: BEYOND[check.op](point[1], check.limit))
    outcome = breach(check) if BEYOND[check.op](worst, check.limit) > 0 else Outcome.PASS
    when = f"hour {int(at_s // 3600) + 1}" if hourly else f"round {paired.of[times_s.index(at_s)].step.round}"
    reason = (
        f"{wording.label(check.metric)} is {format_value(worst, check.unit)} × {paired.against[0].step.arm}'s in {when}"
        f"{cell.at}, the worst of {wording.count(len(points), 'hour' if hourly else 'round')}, "
        f"where {wording.asked(check.op, check.limit, check.unit)} is asked of every one"
    )
    return [
        finding(check, cell, outcome, reason, paired.seen, observed=worst, n=len(points), arm=paired.of[0].step.arm)
    ]


def availability(check: Check, cell: Cell, run: Run) -> list[Finding]:
    """The time without service: gaps above a minute between measurements, and what `metric` reports within them.

    All steps of the same probe report. A breach is a breach, however much of the run is still to come.
    """
    kinds = {row.step.id: row.step.kind for row in run.rows}
    account = lasting.account([row.measurement for row in run.rows if row.measurement], kinds)
    probe = cell.rows[0].step.probe
    seen = see(check, [row for row in run.rows if row.step.probe == probe], run)
    stretches = [(f"{format_seconds(gap.length_s)} after {gap.after}", gap.length_s) for gap in account.outages]
    stretches += [(f"{format_seconds(s.value)} within {s.step.id}", s.value) for s in seen if s.value]
    lost_s = sum(length_s for _, length_s in stretches)
    breached = BEYOND[check.op](lost_s, check.limit) > 0
    unmeasured = [row.step for row in run.rows if row.measurement is None and row.step.probe != probe]
    whole = [*seen, *(Seen(step, None, "was not measured", ()) for step in unmeasured)]
    if not breached and any(figure.missing for figure in whole):
        return [missing_finding(check, cell, whole)]
    outcome = breach(check) if breached else Outcome.PASS
    reason = (
        f"{_told(stretches)} in {_spent(account)}, where {wording.asked(check.op, check.limit, check.unit)} is asked"
    )
    return [finding(check, cell, outcome, reason, seen, observed=lost_s, n=len(seen))]


def _told(stretches: Sequence[tuple[str, float]]) -> str:
    """`no service for 2 min 20 s (1 min 10 s after churn-r031-dut, …)`, the longest stretches first."""
    if not stretches:
        return f"no stretch above {lasting.UNAVAILABLE_ABOVE_S:.0f} s without service"
    named = [text for text, _ in sorted(stretches, key=lambda stretch: -stretch[1])[:_MOST_NAMED]]
    more = [f"{len(stretches) - _MOST_NAMED} more"] if len(stretches) > _MOST_NAMED else []
    return f"no service for {format_seconds(sum(s for _, s in stretches))} ({', '.join(named + more)})"


def _spent(account: lasting.Account) -> str:
    """`72 h 9 min (churn 71 h 50 min + wave 14 min 2 s + gaps 4 min 58 s)`: the hours add up."""
    parts = [f"{kind} {format_seconds(seconds)}" for kind, seconds in account.by_kind_s.items()]
    return f"{format_seconds(account.span_s)} ({' + '.join([*parts, f'gaps {format_seconds(account.gaps_s)}'])})"
