"""What makes a verdict a demonstration, as far as it is known before the run (docs/method.md, The verdict). Pure."""

from __future__ import annotations

from kvbench.model import Plan, Target

EMULATED, SIMULATED, RECOMPUTE = "emulated engine", "simulated", "recompute baseline"
UNPROVEN, THROTTLED = "medium unproven", "rate-limited node"
_ON_PAGE_ONE = (EMULATED, SIMULATED, RECOMPUTE, UNPROVEN, THROTTLED)

COMPARES = ("paired_log_ratio", "hourly_ratio")  # rules that hold the dut against the baseline


def of_target(target: Target, uses_engine: bool = True, compares: bool = True) -> set[str]:
    """What a target brings to a gate that uses engines, and that compares; the medium shows only in the run."""
    found = set()
    if uses_engine and any(arm.engine.kind == "emulated" for arm in target.arms):
        found.add(EMULATED)
    if compares and any(arm.role == "baseline" and arm.kv == "recompute" for arm in target.arms):
        found.add(RECOMPUTE)
    if any(arm.storage and arm.storage.rate_limit_bytes_per_s is not None for arm in target.arms):
        found.add(THROTTLED)
    return found


def uses_engine(plan: Plan) -> bool:
    """Whether requests are served in it: by engines that the run starts, or by one that a probe does."""
    return any(step.engine != "none" or step.probe == "load.scaling" for step in plan.steps)


def of_plan(plan: Plan) -> set[str]:
    """The same of a target under one gate."""
    return of_target(
        plan.target,
        uses_engine=uses_engine(plan),
        compares=any(check.rule in COMPARES for check in plan.gate.checks),
    )


def in_order(found: set[str]) -> tuple[str, ...]:
    """As page one has them."""
    return tuple(sorted(found, key=_ON_PAGE_ONE.index))
