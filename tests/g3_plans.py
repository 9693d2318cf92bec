"""Plans of the real G3 on the embedded engine, for tests of plans and of what is said of them."""

from __future__ import annotations

from kvbench import content, plan
from kvbench.model import Arm, Engine, Storage, Target

SHAPES = content.model_shapes()
DUT = Arm("dut", "dut", Engine(), storage=Storage(("/mnt/a",)))
BASE = Arm("base", "baseline", Engine(), kv="recompute")
TARGET = Target("t", (DUT, BASE))


def make(target: Target = TARGET, **options: object) -> plan.Plan:
    return plan.make_plan(content.load_gate("G3"), target, SHAPES, plan.Options(**options))  # type: ignore[arg-type]
