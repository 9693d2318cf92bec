"""A plan in lines for people: what runs, on what, how long, what is written, what it can decide. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kvbench import demonstration, wording
from kvbench.kv import ModelShape, stored_shape
from kvbench.model import Arm, GateStep, Override, Plan, Step
from kvbench.plan import cost, total_cost
from kvbench.probes.cost import Cost
from kvbench.units import format_bytes, format_rate, format_seconds


def summary(plan: Plan, shapes: Mapping[str, ModelShape], steps: bool = False) -> list[str]:
    whole = total_cost(plan, plan.steps, shapes)
    untold = sum(not cost(step, plan, shapes).seconds for step in plan.steps)
    beside = f" beside {wording.count(untold, 'step')} whose time only the run tells" if untold else ""
    lines = [
        f"{plan.gate.id} {plan.gate.title} on {plan.target.name}: {wording.count(len(plan.steps), 'step')}, "
        f"about {format_seconds(whole.seconds)}{beside} (an estimate from assumed rates)",
        f"writes {format_bytes(whole.written_bytes)}, reads {format_bytes(whole.read_bytes)}, "
        f"holds at most {format_bytes(whole.space_bytes)} at any moment; "
        + ("the data is kept" if plan.keep_data or plan.destroy_data else "everything is removed at the end"),
        f"leaves about {format_bytes(whole.evidence_bytes)} of evidence in the run folder",
    ]
    for arm in plan.target.arms:
        where = ", ".join(arm.storage.nodes) if arm.storage else "no storage, computes again"
        if arm.storage and arm.storage.rate_limit_bytes_per_s is not None:
            where += f", throttled to {format_rate(arm.storage.rate_limit_bytes_per_s)} each"
        lines.append(f"  arm {arm.name} ({arm.role}): {where}; engine {arm.engine.kind}, {_served(arm, shapes)}")
    if shared := _shared_nodes(plan):
        lines.append(f"dut and baseline are on the same storage, {shared}: it is held against itself")
    destroyed = f"everything on the drives {', '.join(plan.destroy_data)}" if plan.destroy_data else ""
    lines.append(f"destructive: {destroyed or 'nothing; only folders of our own making'}")
    if basis := demonstration.of_plan(plan):
        lines.append(f"a demonstration, not an acceptance test: {', '.join(demonstration.in_order(basis))}")
    lines += _left_out(plan)
    if _arms_stay_unequal(plan):
        lines.append("it cannot PASS: endpoints that run already do not tell version and flags, and so not equal arms")
    lines += [f"  {line}" for line in decidable(plan)]
    lines += [f"  {line}" for override in plan.overrides for line in _overridden(override)]
    if steps:
        lines += [f"  {line}" for line in _steps(plan, shapes)]
    return lines


def _shared_nodes(plan: Plan) -> str:
    dut, baseline = (
        {node for arm in plan.target.arms if arm.role == role and arm.storage for node in arm.storage.nodes}
        for role in ("dut", "baseline")
    )
    return ", ".join(sorted(dut & baseline))


def _left_out(plan: Plan) -> Iterator[str]:
    """The gate's steps that this target, or a quick run, has not."""
    kinds = {step.kind for step in plan.steps}
    for step in plan.gate.steps:
        if step.id not in kinds and (reason := _why_left_out(step, plan)):
            yield f"without the step {step.id}: {reason}"


def _why_left_out(step: GateStep, plan: Plan) -> str:
    if step.hook and not any(name.startswith(step.hook) for name in plan.target.hooks):
        return f"the target has no hook {step.hook}…"
    if step.scaling and not plan.target.can_scale:
        return "the target has no hooks node_add and node_remove"
    if step.arms == "two_pools":
        return "no arm has checkpoint_nodes"
    return "a quick run leaves it out" if plan.quick else ""


def _arms_stay_unequal(plan: Plan) -> bool:
    """Whether a check asks what the engines of both arms are, and they will not say (`judge.rules`)."""
    return any(check.rule == "arms_equal" for check in plan.gate.checks) and any(
        arm.engine.kind == "openai" for arm in plan.target.arms
    )


def _served(arm: Arm, shapes: Mapping[str, ModelShape]) -> str:
    shape = stored_shape(arm.engine, shapes)
    size = f"{shape.kv_bytes_per_token:,} B" if shape else "an unknown number of bytes"
    return f"{arm.engine.model or 'no model named'}, {size} of KV a token"


def _steps(plan: Plan, shapes: Mapping[str, ModelShape]) -> Iterator[str]:
    """A line a step, and one for those that differ in nothing but their round: a gate of days has hundreds."""
    alike: dict[tuple[str, str, str, str], list[Step]] = {}
    for step in plan.steps:
        expected = _expected(cost(step, plan, shapes))
        alike.setdefault((step.kind, step.cell, step.arm, expected), []).append(step)
    for (*_, expected), steps in alike.items():
        if len(steps) == 1:
            yield f"{steps[0].id}: {expected}"
        else:
            yield f"{steps[0].id} … {steps[-1].id}: {len(steps)} steps, each {expected}"


def _expected(cost: Cost) -> str:
    return f"{cost.seconds:.0f} s expected" if cost.seconds else "time and bytes known only in the run"


def _overridden(override: Override) -> Iterator[str]:
    for key, value in override.params.items():
        said = format_rate(value) if key.endswith("bytes_per_s") else value
        yield f"{override.step}: {key} is {said}, {override.source}"


ASSUMED_ROUND_CV = 0.03  # spread of rounds where no A/A has been measured yet; said wherever it is used


def decidable(plan: Plan) -> list[str]:
    """For each check that asks for a gain, the smallest true effect that the rounds pass with 80 % probability."""
    from kvbench.stats import smallest_effect

    round_cv = ASSUMED_ROUND_CV if plan.round_cv is None else plan.round_cv
    source = plan.round_cv_source or "assumed; in a campaign, the A/A rounds of G2 measure it"
    lines = []
    for check in plan.gate.checks:
        if check.rule != "paired_log_ratio" or not isinstance(check.limit, int | float):
            continue
        rounds = len({step.round for step in plan.steps if step.kind == check.step})
        asks_for_gain = check.limit < 1 if check.op == "<=" else check.limit > 1
        if rounds and asks_for_gain and (ratio := smallest_effect(round_cv, rounds, check.limit)) is not None:
            lines.append(
                f"{check.id}: asks for {check.metric} {check.op} {check.limit:g} × the {check.against}'s; "
                f"a true {ratio:.3g} × passes in 80 % of runs "
                f"({rounds} rounds, spread of rounds {100 * round_cv:.2g} %, {source})"
            )
    return lines
