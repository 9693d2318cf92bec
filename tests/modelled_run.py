"""A measured run that the simulation itself has made, with a known device and engine."""

from builders import load_gate, make_measurement, make_step

from kvbench import content
from kvbench.engine import catalog
from kvbench.engine.cost import CostModel
from kvbench.engine.protocol import EngineConfig
from kvbench.model import Arm, Engine, Metric, Plan, Storage, Target
from kvbench.sim.device import NodeModel
from kvbench.sim.waves import Rig, Sessions

ENGINE = Engine(kind="emulated", model="llama-3.1-8b", accelerator="L4")
FAST = Arm("fast", "dut", ENGINE, storage=Storage(("/a",)))
SLOW = Arm("slow", "baseline", ENGINE, storage=Storage(("/b",)))
COMPUTED = Arm("computed", "reference", ENGINE, kv="recompute")
RATES = {"fast": 2 * 10**9, "slow": 5 * 10**8, "computed": None}
BEFORE_S, AFTER_S = 0.3, 0.2


def measured(arm, concurrency):
    """A round of a cell: TTFT p50 in seconds, and tokens a second."""
    accelerators = catalog.accelerators(content.content_root() / "workloads" / "accelerators.yaml")
    cost = CostModel(content.model_shapes()[ENGINE.model], accelerators[ENGINE.accelerator], 1)
    rate = RATES[arm.name]
    device = NodeModel(rate, rate, 256) if rate else None
    rig = Rig(EngineConfig(cost), device, Sessions(8, 2049, 16), instances=1, most=concurrency, seed=1)
    wave = rig.wave(concurrency)
    ttft_s = wave.ttft_s[0][(concurrency - 1) // 2] + BEFORE_S
    return ttft_s, concurrency * 16 / (wave.wall_s + BEFORE_S + AFTER_S)


def run_of(arms, cells):
    steps, measurements = [], []
    for arm in arms:
        for concurrency in cells:
            step = make_step("wave", arm=arm.name, concurrency=concurrency, round_number=1)
            step.params.update(workload="cold-recovery", session_tokens=2049, output_tokens=16)
            figures = zip(
                ("ttft_p50_s", "output_tokens_per_s"), measured(arm, concurrency), ("s", "tok/s"), strict=True
            )
            metrics = {name: Metric(value, unit, concurrency) for name, value, unit in figures}
            steps.append(step)
            measurements.append(make_measurement(step, metrics))
    plan = Plan(1, "0.1.0", load_gate(), Target("t", tuple(arms)), tuple(steps), 1, False, "0" * 16)
    return plan, measurements
