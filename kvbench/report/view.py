"""From a run folder's content to what the pages say. Pure: `build_view` decides every word, the rest only draws.

Page one is composed here; the sections after it in `sections` and `waves`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from kvbench import demonstration
from kvbench.model import Arm, Check, Finding, Measurement, Outcome, Plan, Verdict
from kvbench.report import forest, glossary
from kvbench.report.document import Decider, Entry, Run, Series, Table, View
from kvbench.report.figures import (
    ABSENT,
    change,
    code,
    interval_text,
    is_paired,
    number,
    plural,
    required_change,
    requirement,
    text,
)
from kvbench.report.sections import all_sections
from kvbench.units import format_rate

Checks = dict[str, Check]


def build_view(plan: Plan, measurements: Sequence[Measurement], verdict: Verdict, series: Series | None = None) -> View:
    """The whole report of a run as plain data. A later measurement of a step replaces an earlier one."""
    run = Run(plan, {measured.step_id: measured for measured in measurements}, series or Series())
    checks = {check.id: check for check in plan.gate.checks}
    performance = [finding for finding in verdict.findings if finding.kind == "performance"]
    supporting = [finding for finding in verdict.findings if finding.kind != "performance"]
    return View(
        gate=verdict.gate,
        title=verdict.title,
        target=plan.target.name,
        outcome=verdict.outcome,
        headline=verdict.headline,
        demonstration=verdict.basis,
        why=verdict.why,
        rejudged=verdict.rejudged,
        ungated=plan.ungated,
        identity=_identity(run),
        bases=_bases(run),
        decider=decider(verdict, plan),
        forest=forest.build(performance),
        deciding=_deciding(performance, checks, plan),
        supporting=_supporting(supporting),
        warnings=(*_gaps(run), *verdict.warnings, *run.series.problems),
        sections=all_sections(run, verdict),
        definitions=glossary.DEFINITIONS,
    )


def _identity(run: Run) -> tuple[tuple[str, str], ...]:
    plan = run.plan
    starts = sorted(measured.start.wall for measured in run.measurements.values())
    ends = sorted(measured.end.wall for measured in run.measurements.values())
    span = f"{_minute(starts[0])} to {_minute(ends[-1])} UTC" if starts else "nothing was measured"
    rounds = max((step.round for step in plan.steps), default=0)
    extent = [
        *(["quick"] if plan.quick else []),
        *([plural(rounds, "round")] if rounds else []),
        plural(len(plan.steps), "step"),
    ]
    return (
        ("Target", plan.target.name),
        ("Arms", "; ".join(f"{arm.name} ({arm.role})" for arm in plan.target.arms)),
        ("Measured", span),
        ("Extent", ", ".join(extent)),
        ("Seed", str(plan.seed)),
        ("kvbench", plan.kvbench_version),
        ("Content", plan.content_digest),
    )


def _minute(wall: str) -> str:
    return wall[:16].replace("T", " ")


def _gaps(run: Run) -> list[str]:
    """Steps that the plan has and the run has not: nobody should have to count to find out."""
    planned = run.plan.steps
    missing = [step.id for step in planned if step.id not in run.measurements]
    failed = [m for m in run.measurements.values() if m.error]
    gaps = [f"{len(missing)} of {plural(len(planned), 'planned step')} not run: {', '.join(missing)}."] * bool(missing)
    return gaps + [f"Step {measured.step_id} was not measured: {measured.error}" for measured in failed]


# ---------------------------------------------------------------- what was emulated and what was measured


def _bases(run: Run) -> tuple[tuple[str, str], ...]:
    target = run.plan.target
    uses_engine = demonstration.uses_engine(run.plan)
    rows = _alike("Engine", target.arms, _engine_basis) if uses_engine else []
    rows += _alike("KV" if uses_engine else "Storage", target.arms, _storage_basis)
    rows.append(
        ("Figures", "; ".join(_figures_of(kind, run) for kind in dict.fromkeys(s.kind for s in run.plan.steps)))
    )
    return tuple(rows)


def _alike(subject: str, arms: Sequence[Arm], say: Callable[[Arm], str]) -> list[tuple[str, str]]:
    """What there is to say of each arm, once for the arms of which the same is to be said."""
    said: dict[str, list[str]] = {}
    for arm in arms:
        said.setdefault(say(arm), []).append(arm.name)
    return [(f"{subject}, {', '.join(names)}", sentence) for sentence, names in said.items()]


def _figures_of(kind: str, run: Run) -> str:
    counted = Counter(measured.basis for _, measured in run.steps(kind))
    said = ", ".join(f"{basis} ({plural(count, 'step')})" for basis, count in sorted(counted.items()))
    return f"{kind}: {said or 'none taken'}"


def _engine_basis(arm: Arm) -> str:
    engine = arm.engine
    if engine.kind == "emulated":
        ranks = f", tensor parallel {engine.tensor_parallel}" if engine.tensor_parallel > 1 else ""
        return (
            f"Emulated: computing time of {engine.model} on {engine.accelerator}{ranks} is modelled; no GPU was used."
        )
    started = "started by kvbench" if engine.kind == "launch" else f"running at {', '.join(engine.urls)}"
    return f"Real: {started}, model {engine.model}."


def _storage_basis(arm: Arm) -> str:
    storage = arm.storage
    if arm.kv == "recompute" or storage is None:
        return "None stored: every session's KV is recomputed."
    how = "direct I/O" if storage.direct else "I/O through the page cache"
    limit = storage.rate_limit_bytes_per_s
    throttled = f"; each node throttled to {format_rate(limit)} to stand for a slower medium" if limit else ""
    return f"Real reads and writes, {how}, on {', '.join(storage.nodes)}{throttled}."


# ---------------------------------------------------------------- the finding that decided

_WITHOUT_FIGURE = {Outcome.PASS: "holds", Outcome.FAIL: "does not hold", Outcome.INCONCLUSIVE: "no figure"}
_FIRST_BY_KIND = ("evidence", "integrity", "performance")  # the judge's order: evidence is never FAIL


def decider(verdict: Verdict, plan: Plan) -> Decider | None:
    """The first, by kind, of the findings as bad as the verdict.

    In a PASS, of the performance checks that equal arms would not pass, the figure closest to its threshold.
    """
    checks = {check.id: check for check in plan.gate.checks}
    worst = [finding for finding in verdict.findings if finding.outcome is verdict.outcome]
    if verdict.outcome is Outcome.PASS:
        gains = [finding for finding in worst if is_paired(finding, checks) and (forest.margin(finding, 1.0) or 1) < 1]
        worst = sorted(gains, key=_margin) or worst
    if not worst:
        return None
    finding = min(worst, key=lambda one: _FIRST_BY_KIND.index(one.kind))
    check = checks.get(finding.check)
    observed = _WITHOUT_FIGURE[finding.outcome] if finding.observed is None else number(finding.observed, finding.unit)
    where = (f"cell {finding.cell}" if finding.cell else "", finding.arm, check.metric if check else "")
    told_as_is = Decider(
        check=finding.check,
        where=", ".join(filter(None, where)),
        headline=observed,
        observed=observed,
        needed=requirement(finding),
        limit=requirement(finding),
        interval=interval_text(finding.interval, finding.unit),
        n=_counted(finding),
        outcome=finding.outcome,
        reason=finding.reason,
    )
    if check is None or finding.observed is None or not is_paired(finding, checks):
        return told_as_is
    return replace(
        told_as_is,
        headline=change(finding.observed),
        observed=f"{observed} × {_against(check, plan)}",
        needed=required_change(finding),
        interval=f"[{', '.join(map(change, finding.interval))}]" if finding.interval else "",
    )


def _margin(finding: Finding) -> float:
    ends = [value for value in (finding.observed, *(finding.interval or ())) if value is not None]
    return min((m for value in ends if (m := forest.margin(finding, value)) is not None), default=0.0)


def _against(check: Check, plan: Plan) -> str:
    return next((arm.name for arm in plan.target.arms if arm.role == check.against), check.against)


def _counted(finding: Finding) -> str:
    return plural(finding.n, "round" if finding.interval else "measurement") if finding.n else ""


# ---------------------------------------------------------------- the checks as tables


def _deciding(findings: Sequence[Finding], checks: Checks, plan: Plan) -> Table:
    rows = []
    for finding in findings:
        paired = is_paired(finding, checks) and finding.observed is not None
        observed = number(finding.observed, finding.unit)
        rows.append(
            (
                code(finding.check),
                text(" ".join(filter(None, (finding.cell, finding.arm))) or ABSENT),
                Entry(f"{observed} × {_against(checks[finding.check], plan)}" if paired else observed, numeric=True),
                Entry(interval_text(finding.interval, finding.unit) or ABSENT, numeric=True),
                Entry(str(finding.n or ABSENT), numeric=True),
                Entry(requirement(finding) or ABSENT, numeric=True),
                Entry(str(finding.outcome), outcome=finding.outcome),
            )
        )
    columns = ("Check", "Cell", "Observed", "95 % interval", "n", "Needed", "Finding")
    return Table("Checks that decide", columns, tuple(rows), "n counts rounds. The reasons are in All findings.")


def _supporting(findings: Sequence[Finding]) -> Table:
    """One row a check over all its cells and arms, with the worst outcome; each finding is in the annex."""
    rows = []
    for name in dict.fromkeys(finding.check for finding in findings):
        mine = [finding for finding in findings if finding.check == name]
        worst = max(mine, key=lambda finding: finding.outcome.severity)
        passed = sum(finding.outcome is Outcome.PASS for finding in mine)
        bad = worst.outcome is not Outcome.PASS
        where = f"{' '.join(filter(None, (worst.cell, worst.arm)))}: ".lstrip(": ") if bad else ""
        rows.append(
            (
                code(name),
                Entry(requirement(worst) or ABSENT, numeric=True),
                Entry(f"{passed} of {len(mine)}", numeric=True),
                Entry(str(worst.outcome), outcome=worst.outcome),
                text(f"{where}{worst.reason}" if bad else worst.why),
            )
        )
    return Table(
        "Integrity and evidence",
        ("Check", "Needed", "Hold", "Finding", "Why"),
        tuple(rows),
        "Without these, no figure above counts. A breach of integrity is FAIL; of evidence, INCONCLUSIVE.",
    )
