from dataclasses import replace
from typing import Any

import pytest

from kvbench import content, demonstration, plan
from kvbench.model import Arm, Engine, Storage, Target

ENGINE = Engine("openai", urls=("http://127.0.0.1:8000",))
DUT = Arm("dut", "dut", ENGINE, storage=Storage(("/mnt/a",)))
LOCAL = Arm("local", "baseline", ENGINE, storage=Storage(("/mnt/b",)))
RECOMPUTE = Arm("recompute", "baseline", ENGINE, kv="recompute")
THROTTLED = replace(DUT, storage=Storage(("/mnt/a",), rate_limit_bytes_per_s=10**9))
EMULATED = replace(LOCAL, engine=Engine())


@pytest.mark.parametrize(
    ("arms", "gate", "reasons"),
    [
        ((DUT, LOCAL), {}, set()),
        ((DUT, RECOMPUTE), {}, {"recompute baseline"}),
        ((DUT, RECOMPUTE), {"compares": False}, set()),
        ((DUT, EMULATED), {}, {"emulated engine"}),
        ((DUT, EMULATED), {"uses_engine": False}, set()),
        ((THROTTLED, LOCAL), {"uses_engine": False, "compares": False}, {"rate-limited node"}),
        ((THROTTLED, EMULATED, RECOMPUTE), {}, {"emulated engine", "recompute baseline", "rate-limited node"}),
    ],
)
def test_a_target_decides_whether_its_verdict_is_a_demonstration(
    arms: tuple[Arm, ...], gate: dict[str, Any], reasons: set[str]
) -> None:
    assert demonstration.of_target(Target("fx100", arms), **gate) == reasons


@pytest.mark.parametrize(
    ("gate", "reasons"), [("G1", set()), ("G2", {"emulated engine"}), ("S1", {"emulated engine"}), ("R1", set())]
)
def test_an_emulated_engine_counts_in_gates_whose_steps_serve_requests(gate: str, reasons: set[str]) -> None:
    target = Target("fx100", (replace(DUT, engine=Engine()), LOCAL))
    made = plan.make_plan(content.load_gate(gate), target, content.model_shapes(), plan.Options())
    assert demonstration.of_plan(made) == reasons
