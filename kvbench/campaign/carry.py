"""What a passed G2 puts into the plans of the gates above it: its noise into G3's, its rate into G4's. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kvbench.judge.noise import round_noise
from kvbench.model import Gate, Measurement, Override, Plan
from kvbench.units import format_rate

# A soak reads and writes every page that it turns over: where writing costs what reading does, a quarter of the read
# rate keeps the device busy for half of the time, and leaves the other half to the waves.
SOAK_SHARE = 0.25


def carried(gate: Gate, baseline: Plan, measurements: Sequence[Measurement], name: str) -> dict[str, Any]:
    """Fields of `plan.Options` for a gate, from G2's run `name`; what that run does not tell is left out."""
    if gate.id == "G3" and (noise := round_noise(baseline, measurements)):
        spread, pairs = noise
        return {"round_cv": spread, "round_cv_source": f"{pairs} pairs of rounds A/A in {name}"}
    churn = [step.id for step in gate.steps if step.probe == "kv.churn"]
    if churn and (found := page_read_rate(baseline, measurements)):
        rate, step_id = found
        source = f"{100 * SOAK_SHARE:g} % of the {format_rate(rate)} of {step_id} in {name}"
        params = {"rate_bytes_per_s": int(SOAK_SHARE * rate)}
        return {"overrides": tuple(Override(step, params, source) for step in churn)}
    return {}


def page_read_rate(plan: Plan, measurements: Sequence[Measurement]) -> tuple[float, str] | None:
    """Bytes per second that the dut gave at its model's own page size and the most reads under way, and the step."""
    values = {
        measurement.step_id: metric.value
        for measurement in measurements
        if (metric := measurement.metrics.get("read_bandwidth_bytes_per_s")) and not measurement.error
    }
    dut = next(arm.name for arm in plan.target.arms if arm.role == "dut")
    rates = [
        (step.params.get("concurrency", 1), value, step.id)
        for step in plan.steps
        if (step.kind, step.arm) == ("page-read", dut) and step.cell.partition("-")[0] == "model"
        if (value := values.get(step.id))
    ]
    return max(rates)[1:] if rates else None
