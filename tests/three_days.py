"""Three days of gate G4, made of arithmetic: every step measured, one after the other, as it should be."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime

from builders import DUT, LOCAL, healthy_values

from kvbench import content, plan
from kvbench.model import Measurement, Metric, Plan, Stamp, Step, Target
from kvbench.probes.metrics import CHURN_METRICS, COLD_RECOVERY_METRICS

SLICE_NOISE = 0.03  # spread of slices and waves, as of real ones
BEGAN_S = 1_790_000_000

Values = dict[str, float | None]


def plan_of(hooks: Iterable[str] = (), **options: object) -> Plan:
    target = Target("array against local NVMe", (DUT, LOCAL), dict.fromkeys(hooks, ("true",)))
    return plan.make_plan(content.load_gate("G4"), target, content.model_shapes(), plan.Options(**options))  # type: ignore[arg-type]


PLAN = plan_of()
LAST = PLAN.steps[-1].round


def values_of(step: Step, rng: random.Random) -> Values:
    noise = 1 + rng.gauss(0, SLICE_NOISE)
    if step.kind == "wave":
        return healthy_values(step, (1.2 if step.arm == DUT.name else 2.0) * noise)
    figures: Values = dict.fromkeys(CHURN_METRICS, 0.0)
    fault = {"fault_outage_s": None, "fault_recovery_s": None}
    return figures | fault | {
        "read_bandwidth_bytes_per_s": 5e9 * noise,
        "duty_share": 0.99,
        "ledger_ratio": 1.0,
        "medium_proven": 1.0,
        "media_errors_total": 3.0,
    }  # fmt: skip


def run_of(
    made: Plan = PLAN,
    seed: int = 1,
    change: Callable[[Step, Values], Mapping[str, float | None]] = lambda step, values: {},
    gaps_s: Mapping[str, float] | None = None,
) -> dict[str, Measurement]:
    """Every step measured, one after the other: slices of ten minutes, waves of a minute, half a second between.

    `change` gives figures of a step that are to be others; `gaps_s` the seconds after a step before the next begins.
    """
    rng, at_s, run = random.Random(seed), 0.0, {}
    for step in made.steps:
        length_s = made.slice_s if step.probe == "kv.churn" else 60.0
        values = values_of(step, rng) if step.kind != "environment" else {}
        units = CHURN_METRICS if step.probe == "kv.churn" else COLD_RECOVERY_METRICS
        metrics = {
            name: Metric(value, units[name], 10, f"raw/{step.id}/x")
            for name, value in (values | change(step, values)).items()
        }
        run[step.id] = Measurement(step.id, 1, "measured", stamp(at_s), stamp(at_s + length_s), "boot", metrics)
        at_s += length_s + (gaps_s or {}).get(step.id, 0.5)
    return run


def stamp(at_s: float) -> Stamp:
    return Stamp(datetime.fromtimestamp(BEGAN_S + at_s, UTC).isoformat(), round(at_s * 1e9))


def drift_of(metric: str, share: float) -> Callable[[Step, Values], Mapping[str, float | None]]:
    """A metric of the dut that moves by `share` in a straight line over the run."""

    def change(step: Step, values: Values) -> Mapping[str, float | None]:
        value = values.get(metric)
        moved = step.arm == DUT.name and value is not None
        return {metric: value * (1 + share * (step.round / LAST - 0.5))} if moved and value is not None else {}

    return change


def once(kind: str, round_number: int, **figures: float | None) -> Callable[[Step, Values], Mapping[str, float | None]]:
    return lambda step, values: figures if (step.kind, step.round, step.arm) == (kind, round_number, DUT.name) else {}
