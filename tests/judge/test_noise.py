"""An arm against itself: what G2 makes of it, and the spread of rounds that G3 plans with."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from builders import DUT, ENGINE, RECOMPUTE, load_gate, make_measurement

from kvbench import content, plan
from kvbench.judge.noise import round_noise
from kvbench.judge.verdict import judge
from kvbench.model import Check, Finding, Measurement, Metric, Outcome, Plan, Storage, Target
from kvbench.report.figures import requirement

PASS, INCONCLUSIVE, FAIL = Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.FAIL
TARGET = Target("array", (replace(DUT, engine=ENGINE, storage=Storage(("/mnt/array",))), RECOMPUTE))
G2 = plan.make_plan(content.load_gate("G2"), TARGET, content.model_shapes(), plan.Options(quick=True))
GATES = {name: load_gate(name) for name in ("g2", "g3")}
TTFT, THROUGHPUT = "aa-ttft", "aa-throughput"


def plan_of(*check_ids: str, gate: str = "g2", cells: Sequence[str] = ("c8",)) -> Plan:
    """G2's A/A steps alone, with these checks; of G3 the checks are made to hold the dut against itself too."""
    checks = [check for check in GATES[gate].checks if check.id in check_ids]
    checks = [replace(check, step="aa", against="again") for check in checks]
    steps = [step for step in G2.steps if step.kind == "aa"]
    steps = [replace(step, id=f"{step.id}-{cell}", cell=cell) for cell in cells for step in steps]
    return replace(G2, steps=tuple(steps), gate=replace(G2.gate, checks=tuple(checks)))


def run_of(plan: Plan, ratios: Mapping[str, Sequence[float]]) -> list[Measurement]:
    """Waves whose TTFT on the dut is `ratios[cell][round]` times that of the dut again, throughput its inverse."""
    waves = []
    for step in plan.steps:
        ttft_s = 2.0 * (ratios[step.cell][step.round - 1] if step.arm == "dut" else 1.0)
        figures = {"ttft_p50_s": Metric(ttft_s, "s", 8), "output_tokens_per_s": Metric(512 / ttft_s, "tok/s", 8)}
        waves.append(make_measurement(step, figures))
    return waves


def finding_of(check: str, ratios: Sequence[float]) -> Finding:
    chosen = plan_of(check)
    (finding,) = judge(chosen, run_of(chosen, {"c8": ratios})).findings
    return finding


@pytest.mark.parametrize(
    ("ratios", "ttft", "throughput"),
    [
        pytest.param([1.00, 1.01, 0.99], PASS, PASS, id="no difference"),
        pytest.param([0.95, 0.96, 0.94], PASS, PASS, id="a difference far from the limits"),
        pytest.param([0.60, 0.61, 0.59], FAIL, FAIL, id="both gains between a storage and itself"),
        pytest.param([1.66, 1.64, 1.69], FAIL, FAIL, id="the same with the other called the better one"),
        pytest.param([0.763, 0.760, 0.766], PASS, FAIL, id="beyond one limit only"),
        pytest.param([0.75, 0.75, 0.75], FAIL, FAIL, id="exactly the limit"),
        pytest.param([0.40, 0.70, 0.95], PASS, PASS, id="so scattered that nothing would pass"),
    ],
)
def test_what_g3_would_pass_fails_here_either_way_round(
    ratios: list[float], ttft: Outcome, throughput: Outcome
) -> None:
    assert (finding_of(TTFT, ratios).outcome, finding_of(THROUGHPUT, ratios).outcome) == (ttft, throughput)


def test_finding_shows_ratio_interval_and_noise() -> None:
    finding = finding_of(TTFT, [0.98, 1.00, 1.02])
    low, high = finding.interval or (0.0, 0.0)
    assert low < (finding.observed or 0.0) < high
    assert (finding.n, finding.op, finding.limit) == (3, "not <=", 0.75)
    assert finding.reason == (
        "TTFT p50 fell by 0.0 % (95 % interval −5.1 to 4.9 %, 3 rounds) at 8 sessions between an arm and itself, "
        "where a fall of at least 25 % must not be found; spread of rounds 1.4 %"
    )


def test_what_another_step_lacks_in_a_cell_of_the_same_name_takes_nothing_away() -> None:
    chosen = plan_of(TTFT)
    engine = tuple(step for step in G2.steps if step.kind == "engine")
    checks = (check("engine-ledger"), *chosen.gate.checks)
    both = replace(chosen, steps=(*engine, *chosen.steps), gate=replace(chosen.gate, checks=checks))
    found = judge(both, run_of(chosen, {"c8": [1.0, 1.01, 0.99]})).findings
    assert [(finding.check, finding.cell, finding.outcome) for finding in found] == [
        ("engine-ledger", "c8", INCONCLUSIVE),
        (TTFT, "c8", PASS),
    ]


def test_the_requirement_reads_as_what_may_not_be() -> None:
    assert requirement(finding_of(THROUGHPUT, [1.0, 1.01, 0.99])) == "not ≥ 1.29"


def test_one_round_has_no_interval_and_shows_nothing() -> None:
    chosen = plan_of(TTFT)
    chosen = replace(chosen, steps=tuple(step for step in chosen.steps if step.round == 1))
    (finding,) = judge(chosen, run_of(chosen, {"c8": [1.0]})).findings
    assert (finding.outcome, "one round has no interval" in finding.reason) == (INCONCLUSIVE, True)


def test_a_missing_round_is_inconclusive_and_has_no_noise() -> None:
    chosen = plan_of(TTFT)
    waves = run_of(chosen, {"c8": [1.0, 1.0, 1.0]})[1:]
    assert [finding.outcome for finding in judge(chosen, waves).findings] == [INCONCLUSIVE]
    assert round_noise(chosen, waves) is None


@pytest.mark.parametrize("seed", range(20))
def test_equal_arms_never_pass_the_rule_of_g3_and_never_fail_that_of_g2(seed: int) -> None:
    rng = random.Random(seed)
    ratios = {"c8": [math.exp(rng.gauss(0, 0.03) - rng.gauss(0, 0.03)) for _ in range(3)]}
    g3, g2 = plan_of("ttft-reduction", "throughput-gain", gate="g3"), plan_of(TTFT, THROUGHPUT)
    assert len(g3.gate.checks) == 2
    assert PASS not in {finding.outcome for finding in judge(g3, run_of(g3, ratios)).findings}
    assert {finding.outcome for finding in judge(g2, run_of(g2, ratios)).findings} == {PASS}


# ---------------------------------------------------------------- the noise for the plan of G3


def test_noise_is_the_log_ratios_spread_pooled_over_cells_and_halved_in_variance() -> None:
    chosen = plan_of(TTFT, cells=("c8", "c16"))
    ratios = {"c8": [math.exp(x) for x in (-0.02, 0.0, 0.02)], "c16": [math.exp(x) for x in (0.16, 0.10, 0.04)]}
    variance = (2 * 0.02**2 + 2 * 0.06**2) / 4
    assert round_noise(chosen, run_of(chosen, ratios)) == (pytest.approx(math.sqrt(math.expm1(variance / 2))), 6)


def test_the_noisiest_check_counts() -> None:
    chosen = plan_of(TTFT, THROUGHPUT)
    waves = [
        replace(wave, metrics=wave.metrics | {"output_tokens_per_s": Metric(100.0, "tok/s", 8)})
        for wave in run_of(chosen, {"c8": [0.98, 1.0, 1.02]})
    ]
    assert round_noise(chosen, waves) == round_noise(plan_of(TTFT), run_of(plan_of(TTFT), {"c8": [0.98, 1.0, 1.02]}))


def test_noise_of_many_rounds_is_that_of_one_arm() -> None:
    rng, cells = random.Random(1), [f"c{number}" for number in range(300)]
    chosen = plan_of(TTFT, cells=cells)
    ratios = {cell: [math.exp(rng.gauss(0, 0.03) - rng.gauss(0, 0.03)) for _ in range(3)] for cell in cells}
    spread, n = round_noise(chosen, run_of(chosen, ratios)) or (0.0, 0)
    assert (spread, n) == (pytest.approx(0.03, rel=0.1), 900)


def test_a_gate_without_an_arm_against_itself_has_no_noise() -> None:
    chosen = plan_of("ttft-reduction", gate="g3")
    assert round_noise(chosen, run_of(chosen, {"c8": [1.0, 1.0, 1.0]})) is None


# ---------------------------------------------------------------- the gate


def check(check_id: str) -> Check:
    return next(check for check in G2.gate.checks if check.id == check_id)


def test_an_arm_is_held_against_itself_at_the_limits_of_g3() -> None:
    limits = {c.metric: (c.op, c.limit) for c in GATES["g3"].checks if c.rule == "paired_log_ratio"}
    for own in (check(TTFT), check(THROUGHPUT)):
        assert (own.op, own.limit) == limits[own.metric]


def test_noise_that_is_allowed_lets_ten_rounds_decide() -> None:
    from kvbench.stats import pass_probability

    limit = check("aa-noise").limit
    assert isinstance(limit, float)
    assert pass_probability(0.70, limit, G2.gate.rounds, 0.75) > 0.78


def test_every_step_and_check_says_why() -> None:
    assert all(one.why for one in (*G2.gate.steps, *G2.gate.checks))
