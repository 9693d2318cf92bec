"""Plan + Measurements → Verdict. Pure: the same measurements give the same verdict, byte for byte.

Precedence (docs/method.md, The verdict): a breach of integrity is FAIL always; without its evidence no performance
figure of a cell counts, whatever its value; then the intervals speak. The worst finding wins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

from kvbench import demonstration, lasting, wording
from kvbench.judge.cells import Run
from kvbench.judge.rules import judge_check
from kvbench.model import FORMAT_VERSION, Check, Finding, Measurement, Outcome, Plan, Verdict
from kvbench.units import format_seconds


def judge(plan: Plan, measurements: Sequence[Measurement], rejudged: str = "") -> Verdict:
    """Hold every check of the plan's gate against the measurements; of a step measured twice, the last one counts.

    `rejudged` names the gate file that took the place of the plan's own, if one did.
    """
    run = Run(plan, measurements)
    basis = demonstration.in_order(_basis(run))
    findings: list[Finding] = []
    warned: list[str] = []
    unjudged: list[str] = []
    for check in plan.gate.checks:
        if basis and check.demonstration == "skip":
            unjudged.append(check.id)
            continue
        for finding in judge_check(check, run):
            bad = basis and finding.outcome is not Outcome.PASS
            if bad and check.demonstration == "warn" and finding.observed is not None:
                warned.append(wording.sentence(wording.because(finding)))
            elif bad and check.demonstration == "known" and finding.observed is None:
                unjudged.append(check.id)
            else:
                findings.append(finding)
    if unjudged:
        warned.append(f"Not judged in a demonstration: {', '.join(dict.fromkeys(unjudged))}.")
    findings = _hold_back_without_evidence(findings, plan)
    outcomes = {finding.outcome for finding in findings} or {Outcome.INCONCLUSIVE}
    outcome = max(outcomes, key=lambda outcome: outcome.severity)
    stopped = [wording.sentence(clause)] if (clause := _ended_early(run)) else []
    warnings = [
        *stopped,
        *_what_the_run_was_not(plan),
        *_faults(run),
        *_notes(findings, plan),
        *warned,
        *_warnings_of_probes(run),
    ]
    return Verdict(
        version=FORMAT_VERSION,
        gate=plan.gate.id,
        title=plan.gate.title,
        outcome=outcome,
        basis=basis,
        why=wording.sentence(_why(outcome, findings, run)),
        findings=tuple(findings),
        warnings=tuple(dict.fromkeys(warnings)),
        rejudged=rejudged,
    )


def _hold_back_without_evidence(findings: list[Finding], plan: Plan) -> list[Finding]:
    """Performance findings of a step's cell whose evidence is missing or contradicts become INCONCLUSIVE.

    Evidence that belongs to no cell is about all of them, of every step.
    """
    step_of = {check.id: check.step for check in plan.gate.checks}
    lacking: dict[tuple[str, str], list[str]] = {}
    for finding in findings:
        if finding.kind == "evidence" and finding.outcome is not Outcome.PASS:
            about = (step_of[finding.check], finding.cell) if finding.cell else _EVERYTHING
            lacking.setdefault(about, []).append(finding.check)
    return [
        _held_back(finding, [*lacking.get(_EVERYTHING, ()), *lacking.get((step_of[finding.check], finding.cell), ())])
        if finding.kind == "performance"
        else finding
        for finding in findings
    ]


_EVERYTHING = ("", "")


def _held_back(finding: Finding, lacking: Sequence[str]) -> Finding:
    if not lacking:
        return finding
    checks = ", ".join(dict.fromkeys(lacking))
    reason = f"does not count, since evidence is missing or contradicts ({checks}); {finding.reason}"
    return replace(finding, outcome=Outcome.INCONCLUSIVE, reason=reason)


# ---------------------------------------------------------------- what the verdict stands on


def _basis(run: Run) -> set[str]:
    """What makes the run a demonstration: what was known of it beforehand, and what it has shown."""
    bases = {row.measurement.basis for row in run.rows if row.measurement}
    shown = set()
    if "emulated" in bases:
        shown.add(demonstration.EMULATED)
    if "simulated" in bases:
        shown.add(demonstration.SIMULATED)
    elif _medium_is_unproven(run):
        shown.add(demonstration.UNPROVEN)
    return demonstration.of_plan(run.plan) | shown


def _medium_is_unproven(run: Run) -> bool:
    storage = {arm.name for arm in run.plan.target.arms if arm.kv == "storage"}
    told = [
        row.measurement.metrics.get("medium_proven") for row in run.rows if row.measurement and row.step.arm in storage
    ]
    return any(metric is not None and metric.value != 1 for metric in told)


def _what_the_run_was_not(plan: Plan) -> Iterator[str]:
    if plan.ungated:
        yield f"Ungated: the gate below had not passed when this one began. The reason given: {plan.ungated}"
    rounds = max((step.round for step in plan.steps), default=0)
    rules = {check.rule for check in plan.gate.checks}
    compares = "paired_log_ratio" in rules
    if rules & {"paired_log_ratio", "no_difference"} and rounds < plan.gate.rounds:
        quick = "Quick run: " if plan.quick else ""
        yield f"{quick}{wording.count(rounds, 'round')}, where the gate asks for {plan.gate.rounds}."
    if plan.target.session_tokens is not None and demonstration.uses_engine(plan):
        yield f"Sessions were shortened to {plan.target.session_tokens:,} tokens for this target."
    if compares and not any("scaling" in step.params for step in plan.steps):
        yield f"Scaling was not part of this run: {_why_no_scaling(plan)}."


def _why_no_scaling(plan: Plan) -> str:
    if not plan.target.can_scale:
        return "the target has no hooks node_add and node_remove"
    is_left_out = plan.quick and any(step.scaling for step in plan.gate.steps)
    return "a quick run leaves it out" if is_left_out else "no step adds or removes a node"


def _ended_early(run: Run) -> str:
    """Of a gate that lasts: how far it came and what is missing; "" of one that was run to its end."""
    slices = {row.step.round for row in run.rows if row.step.round}
    missing = {row.step.round for row in run.rows if row.step.round and row.measurement is None}
    if not missing or not run.plan.slice_s:
        return ""
    planned_s, missing_s = len(slices) * run.plan.slice_s, len(missing) * run.plan.slice_s
    return (
        f"the run ended in {lasting.place(planned_s - missing_s, planned_s)}: "
        f"{format_seconds(missing_s)} of {format_seconds(planned_s)} were not run"
    )


def _faults(run: Run) -> Iterator[str]:
    """Of a gate that has faults in it: whether there were any."""
    prefixes = sorted({step.hook for step in run.plan.gate.steps if step.hook})
    found = [fault for row in run.rows if row.measurement for fault in row.measurement.facts.get("faults", ())]
    if prefixes and not found:
        hooks = " or ".join(prefixes)
        yield f"No fault was part of this run: no hook {hooks}… of the target was run, and nobody marked one."


def _notes(findings: Sequence[Finding], plan: Plan) -> Iterator[str]:
    """A pass that is too good carries the note of its check."""
    checks = {check.id: check for check in plan.gate.checks if check.note_above is not None}
    for finding in findings:
        check = checks.get(finding.check)
        if check is None or check.note_above is None or finding.outcome is not Outcome.PASS or finding.observed is None:
            continue
        if finding.observed > check.note_above:
            yield wording.sentence(f"{finding.reason}: {check.note}")


def _warnings_of_probes(run: Run) -> Iterator[str]:
    for row in run.rows:
        yield from row.measurement.warnings if row.measurement else ()


# ---------------------------------------------------------------- the one sentence


def _why(outcome: Outcome, findings: Sequence[Finding], run: Run) -> str:
    """The deciding finding as a clause: of a pass the figure closest to its limit, else the first of the worst."""
    if not findings:
        return "no check of this gate is about this target, so nothing was judged"
    if outcome is Outcome.PASS:
        return _why_passed(findings, run.plan)
    if outcome is Outcome.INCONCLUSIVE and (clause := _ended_early(run)):
        return clause
    order = ("evidence", "integrity", "performance")  # evidence is never FAIL
    decisive = min((f for f in findings if f.outcome is outcome), key=lambda finding: order.index(finding.kind))
    if decisive.kind != "evidence":
        return decisive.reason if decisive.interval else wording.because(decisive)
    return f"no performance figure counts{run.at.get(decisive.cell, '')}, because {wording.because(decisive)}"


def _why_passed(findings: Sequence[Finding], plan: Plan) -> str:
    """Those decide that equal arms would not pass."""
    decides = {
        check.id for check in plan.gate.checks if check.rule in demonstration.COMPARES and _asks_for_a_gain(check)
    }
    deciding = [finding for finding in findings if finding.check in decides]
    if not deciding:
        judged, checks = len({finding.check for finding in findings}), len(plan.gate.checks)
        which = "all checks hold" if judged == checks else f"of {checks} checks {judged} could be judged, and hold"
        return f"{which} ({wording.count(len(findings), 'finding')})"
    closest = min(deciding, key=_distance)
    return closest.reason + (f", the closest of the {len(deciding)} deciding figures" if len(deciding) > 1 else "")


def _asks_for_a_gain(check: Check) -> bool:
    return isinstance(check.limit, int | float) and (check.limit < 1 if check.op == "<=" else check.limit > 1)


def _distance(finding: Finding) -> float:
    """From the limit to the nearer end of the interval, or to the figure where it has none, as a logarithm."""
    limit, observed = cast(float, finding.limit), cast(float, finding.observed)
    ends = finding.interval or (observed, observed)
    return min(abs(math.log(end / limit)) for end in ends)
