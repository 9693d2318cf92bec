"""The judge judged: how often it passes synthetic runs whose true effect is known.

The requests of a wave share the queue and finish together, so that every one of the 8 to 32 has the wave's own TTFT:
p50 and worst are one figure, and the round is the only independent unit. Rounds scatter log-normally by 3 % on either
arm. Evidence is whole in every run, so that one check of it stands for all.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace

import pytest
from builders import DUT, load_gate, make_measurement, make_plan

from kvbench.judge.verdict import judge
from kvbench.model import Measurement, Metric, Outcome, Plan, Step
from kvbench.stats import pass_probability

CELLS, ROUNDS, ROUND_CV, RUNS = (8, 16, 32), 10, 0.03, 4000
SIGMA = math.sqrt(math.log1p(ROUND_CV**2))
FEWER = 1000  # where what is expected lies many standard deviations inside the bound
FAR_INSIDE = 0.5  # of the baseline's TTFT
LEDGER = "byte-ledger"


def synthetic_plan() -> Plan:
    gate = load_gate()
    judged = [check for check in gate.checks if check.rule != "outputs_equal"]
    checks = tuple(check for check in judged if check.kind != "evidence" or check.id == LEDGER)
    return make_plan(cells=CELLS, rounds=ROUNDS, gate=replace(gate, checks=checks))


PLAN = synthetic_plan()
WAVES = {cell: [step for step in PLAN.steps if step.cell == cell] for cell in ("c8", "c16", "c32")}
HEALTHY = {
    "requests_failed": Metric(0, "count", 1),
    "content_mismatches": Metric(0, "count", 1),
    "preemptions": Metric(0, "count", 1),
    "tpot_p50_s": Metric(0.05, "s", 1),
    "ledger_ratio": Metric(1.0, "ratio", 1),
}


def wave(step: Step, ttft_s: float, tokens_per_s: float) -> Measurement:
    ttft, throughput = Metric(ttft_s, "s", 1), Metric(tokens_per_s, "tok/s", 1)
    return make_measurement(
        step, {**HEALTHY, "ttft_p50_s": ttft, "ttft_max_s": ttft, "output_tokens_per_s": throughput}
    )


def cell_of_waves(cell: str, ratio: float, rng: random.Random, throughput: float | None = None) -> list[Measurement]:
    """Rounds of both arms. Throughput is that of the wave's own TTFT, or has the true ratio `throughput`."""
    waves = []
    for step in WAVES[cell]:
        scatter = math.exp(rng.gauss(0, SIGMA))
        ttft_s = scatter * (ratio if step.arm == DUT.name else 1.0)
        gain = (throughput if step.arm == DUT.name else 1.0) if throughput else 1.0
        waves.append(wave(step, ttft_s, gain / scatter if throughput else 1.0 / ttft_s))
    return waves


def passes(plan: Plan, run: list[Measurement]) -> bool:
    return judge(plan, run).outcome is Outcome.PASS


def alone(cell: str) -> Plan:
    """The plan of this cell and no other."""
    return replace(PLAN, steps=tuple(WAVES[cell]))


def test_a_run_passes_when_each_of_its_cells_passes_alone():
    """So that the cell under test may be judged alone below, beside cells that are far inside."""
    rng, seen = random.Random(20), Counter()
    for _ in range(100):
        cells = {cell: cell_of_waves(cell, rng.choice((FAR_INSIDE, 0.74)), rng) for cell in WAVES}
        each = [passes(alone(cell), waves) for cell, waves in cells.items()]
        assert passes(PLAN, [wave for waves in cells.values() for wave in waves]) == all(each)
        seen.update(each)
    assert seen[True] and seen[False]


def test_a_cell_far_inside_always_passes():
    rng = random.Random(21)
    assert all(passes(alone("c8"), cell_of_waves("c8", FAR_INSIDE, rng)) for _ in range(100))


@pytest.mark.parametrize(
    ("true_ratio", "runs", "least_passes", "most_passes"),
    [
        pytest.param(0.75, RUNS, 0.015 * RUNS, 0.035 * RUNS, id="exactly the threshold passes in one run of forty"),
        pytest.param(0.68, FEWER, 0.95 * FEWER, FEWER, id="a true reduction of 32 % is found"),
        pytest.param(0.80, RUNS, 0, 1, id="a true reduction of 20 % does not pass"),
    ],
)
def test_passes_as_often_as_the_method_promises(true_ratio, runs, least_passes, most_passes):
    rng, plan = random.Random(2), alone("c16")
    passed = sum(passes(plan, cell_of_waves("c16", true_ratio, rng, throughput=1 / FAR_INSIDE)) for _ in range(runs))
    print(f"true ratio {true_ratio}: {passed} of {runs:,} pass, expected {expected(true_ratio) * runs:.1f}")
    assert least_passes <= passed <= most_passes


def expected(ratio: float) -> float:
    return pass_probability(ratio, ROUND_CV, ROUNDS, 0.75)


@pytest.mark.parametrize("true_ratio", [0.72, 0.70, 0.68])
def test_whole_gate_passes_with_the_product_of_its_cells(true_ratio):
    """All cells at one effect. With throughput tied to TTFT, TTFT binds: 1 ÷ 1.29 = 0.775 is met before 0.75 is."""
    runs, rng, power = 250, random.Random(3), expected(true_ratio) ** len(CELLS)
    passed = sum(passes(PLAN, [w for cell in WAVES for w in cell_of_waves(cell, true_ratio, rng)]) for _ in range(runs))
    print(
        f"whole gate at a true ratio of {true_ratio} in {len(CELLS)} cells: "
        f"{expected(true_ratio):.4f}^{len(CELLS)} = {power:.4f}; {passed} of {runs} pass"
    )
    assert abs(passed - runs * power) <= 4 * math.sqrt(runs * power * (1 - power)) + 1
