"""What the judge makes of a run. Every case is a healthy run with one thing changed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from builders import DUT, ENGINE, LOCAL, RECOMPUTE, TARGET, load_gate, make_measurement, make_plan, make_run, make_wave

from kvbench.journal import to_json
from kvbench.judge.verdict import judge
from kvbench.model import Check, Engine, Metric, Outcome, Plan, Stamp, Step, Storage, Target
from kvbench.probes.metrics import SCALING_METRICS

PASS, INCONCLUSIVE, FAIL = Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.FAIL
PLAN = make_plan()
DUT_WAVE, LOCAL_WAVE = "wave-r02-c8-dut", "wave-r02-c8-local"
AGAINST_RECOMPUTE = Target("disk against recompute", (DUT, RECOMPUTE))


def judge_with(step_id, plan=PLAN, **changes):
    """The verdict on a healthy run in which one wave has other figures."""
    run = make_run(plan)
    step = next(step for step in plan.steps if step.id == step_id)
    return judge(plan, list((run | {step_id: make_wave(step, **changes)}).values()))


def findings(verdict, check, cell=None):
    return [f for f in verdict.findings if f.check == check and cell in (None, f.cell)]


def outcome_of(verdict, check, cell="c8"):
    return {finding.outcome for finding in findings(verdict, check, cell)}


def plan_of(check: Check, plan: Plan = PLAN) -> Plan:
    """A plan whose gate has this one check."""
    return replace(plan, gate=replace(plan.gate, checks=(check,)))


def check_of(**changes) -> Check:
    return replace(
        Check(id="c", kind="evidence", step="wave", metric="ledger_ratio", rule="each", why="W.", op="<=", limit=1.0),
        **changes,
    )


# ---------------------------------------------------------------- a healthy run


def test_healthy_run_passes_and_names_its_closest_figure():
    verdict = judge(PLAN, list(make_run(PLAN).values()))
    assert (verdict.outcome, verdict.basis, verdict.headline) == (PASS, (), "PASS")
    assert verdict.why == (
        "TTFT p50 fell by 40.1 % (95 % interval 39.2 to 41.0 %, 3 rounds) at 8 sessions, "
        "where a fall of at least 25 % is asked, the closest of the 4 deciding figures."
    )


def test_findings_stand_in_the_order_of_the_gate_then_of_concurrency():
    plan = make_plan(cells=(32, 8, 16))
    verdict = judge(plan, list(make_run(plan).values()))
    order = [check.id for check in plan.gate.checks]
    places = [(order.index(f.check), int(f.cell[1:] or 0)) for f in verdict.findings]
    assert places == sorted(places)


def test_verdict_is_the_same_whatever_the_order_attempts_and_times():
    run = list(make_run(PLAN).values())
    again = [replace(m, attempt=7, start=Stamp("2027-02-03T04:05:06+00:00", 1), boot_id="other") for m in run]
    random.Random(1).shuffle(again)
    assert to_json(judge(PLAN, again)) == to_json(judge(PLAN, run))


def test_findings_lead_back_to_the_evidence_that_they_used():
    (finding,) = findings(judge(PLAN, list(make_run(PLAN).values())), "baseline-not-held-back")
    waves = tuple(f"raw/wave-r0{number}-c16-local/requests" for number in (1, 2, 3))
    assert set(finding.evidence) == {*waves, "raw/ceiling-local/fio.json"}
    assert len(finding.evidence) == 4


# ---------------------------------------------------------------- what breaks, and what that means

BREACHES = [
    # check, figures of one wave of the dut in c8, outcome of the check, of TTFT in that cell, of the gate
    ("failed-requests", {"requests_failed": 1}, FAIL, PASS, FAIL),
    ("preemptions", {"preemptions": 1}, FAIL, PASS, FAIL),
    ("cold-hits", {"hit_shortfall_requests": 1}, INCONCLUSIVE, INCONCLUSIVE, INCONCLUSIVE),
    ("engine-hits", {"external_hit_ratio": 0.99}, INCONCLUSIVE, INCONCLUSIVE, INCONCLUSIVE),
    ("byte-ledger", {"ledger_ratio": 0.98}, INCONCLUSIVE, INCONCLUSIVE, INCONCLUSIVE),
    ("byte-ledger", {"ledger_ratio": 1.06}, INCONCLUSIVE, INCONCLUSIVE, INCONCLUSIVE),
    ("idle-before", {"idle_read_share": 0.006}, INCONCLUSIVE, INCONCLUSIVE, INCONCLUSIVE),
    ("residency-before", {"residency_before_share": 0.9}, INCONCLUSIVE, INCONCLUSIVE, INCONCLUSIVE),
    ("residency-after", {"residency_after_share": 0.9}, INCONCLUSIVE, INCONCLUSIVE, INCONCLUSIVE),
    ("stored-bytes", {"stored_ratio": 0.5}, INCONCLUSIVE, INCONCLUSIVE, INCONCLUSIVE),
    ("host-tier", {"host_tier_hits": 1}, INCONCLUSIVE, INCONCLUSIVE, INCONCLUSIVE),
    ("host-allocation", {"allocation_failures": 1}, INCONCLUSIVE, INCONCLUSIVE, INCONCLUSIVE),
    ("below-link", {"link_use_share": 1.1}, INCONCLUSIVE, INCONCLUSIVE, INCONCLUSIVE),
    ("client-error", {"client_error_share": 0.02}, INCONCLUSIVE, INCONCLUSIVE, INCONCLUSIVE),
    ("equal-tokens", {"completion_tokens_deviation": 1}, INCONCLUSIVE, INCONCLUSIVE, INCONCLUSIVE),
    ("cpu-pressure", {"cpu_pressure_share": 0.3}, INCONCLUSIVE, INCONCLUSIVE, INCONCLUSIVE),
]


NOT_ASKED = {"", "external_hit_tokens", "content_mismatches"}  # of two real engines with KV on storage


@pytest.mark.parametrize(("check", "figures", "own", "ttft", "whole"), BREACHES)
def test_one_bad_wave(check, figures, own, ttft, whole):
    verdict = judge_with(DUT_WAVE, **figures)
    assert outcome_of(verdict, check) == {own}
    assert outcome_of(verdict, "ttft-reduction") == {ttft}
    assert outcome_of(verdict, "ttft-reduction", "c16") == {PASS}
    assert verdict.outcome is whole
    assert "arm dut, 8 sessions, round 2" in findings(verdict, check, "c8")[0].reason


@pytest.mark.parametrize(
    "metric", sorted({check.metric for check in PLAN.gate.checks if check.step == "wave"} - NOT_ASKED)
)
@pytest.mark.parametrize("absence", ["left out", "None", "nan", "infinite"])
def test_a_missing_figure_never_passes(metric, absence):
    changes = {"left out": {"without": [metric]}, "None": {metric: None}}
    changes |= {"nan": {metric: float("nan")}, "infinite": {metric: float("inf")}}
    cell = "c16" if metric == "wave_bandwidth_bytes_per_s" else "c8"
    for arm in ("dut", "local"):
        if metric != "wave_bandwidth_bytes_per_s" or arm == "local":
            verdict = judge_with(f"wave-r02-{cell}-{arm}", **changes[absence])
            assert verdict.outcome is INCONCLUSIVE
            assert any(f"arm {arm}" in f.reason and "round 2 has no figure for" in f.reason for f in verdict.findings)


def test_absence_gives_the_probe_s_own_reason():
    verdict = judge_with(DUT_WAVE, ledger_ratio=None, note="no counter moves for this file system")
    assert verdict.why == (
        "No performance figure counts at 8 sessions, because arm dut, 8 sessions, round 2 has no figure for the byte "
        "ledger (no counter moves for this file system): what the device read must be what the hits account for; less "
        "came from a cache and was not cold, more is somebody else's."
    )


@pytest.mark.parametrize("step_id", [DUT_WAVE, LOCAL_WAVE, "ceiling-local"])
@pytest.mark.parametrize("trouble", ["no measurement", "an error"])
def test_a_step_that_was_not_measured_never_passes(step_id, trouble):
    run = make_run(PLAN)
    measurement = run.pop(step_id)
    if trouble == "an error":
        run[step_id] = replace(measurement, metrics={}, error="the engine did not answer.")
    verdict = judge(PLAN, list(run.values()))
    said = {"no measurement": "was not measured", "an error": "could not be measured (the engine did not answer)"}
    assert verdict.outcome is INCONCLUSIVE
    assert said[trouble] in verdict.why


def test_nothing_measured_at_all_is_inconclusive():
    assert judge(PLAN, []).outcome is INCONCLUSIVE


def test_failed_request_fails_even_where_its_wave_has_an_error_and_another_is_missing():
    run = make_run(PLAN, requests_failed=1)
    run[DUT_WAVE] = replace(run[DUT_WAVE], error="stopped early")
    del run[LOCAL_WAVE]
    verdict = judge(PLAN, list(run.values()))
    assert verdict.outcome is FAIL
    assert verdict.why.startswith("The number of failed requests is 1 (arm dut, 8 sessions, round 1) where 0 is asked")


def test_a_warm_page_cache_is_said_to_be_not_cold():
    verdict = judge(PLAN, list(make_run(PLAN, residency_before_share=1.0, ledger_ratio=0.0).values()))
    assert (verdict.outcome, "was not cold" in verdict.why) == (INCONCLUSIVE, True)


def test_a_slow_dut_without_evidence_is_no_fail():
    slow = {f"wave-r0{number}-c8-dut": {"ttft_p50_s": 9.0, "ttft_max_s": 9.0} for number in (1, 2, 3)}
    run = make_run(PLAN)
    for step in PLAN.steps:
        if step.id in slow:
            run[step.id] = make_wave(step, **slow[step.id], ledger_ratio=0.5)
    verdict = judge(PLAN, list(run.values()))
    assert verdict.outcome is INCONCLUSIVE
    (finding,) = findings(verdict, "ttft-reduction", "c8")
    assert finding.observed == pytest.approx(4.5, rel=0.02)
    assert "evidence is missing or contradicts (byte-ledger)" in finding.reason


def test_evidence_of_no_cell_is_about_all_cells():
    other = replace(LOCAL, engine=replace(ENGINE, env={"PYTHONHASHSEED": "1"}))
    plan = make_plan(target=replace(TARGET, arms=(DUT, other)))
    verdict = judge(plan, list(make_run(plan).values()))
    assert {f.outcome for f in verdict.findings if f.kind == "performance"} == {INCONCLUSIVE}
    assert "arms dut and local differ in engine.env" in verdict.why


# ---------------------------------------------------------------- intervals


def run_with_ratios(plan, ratios):
    """A run in which the dut's TTFT is `ratios[round]` × the baseline's, which never changes."""
    waves = []
    for step in plan.steps:
        if step.kind == "wave":
            ttft_s = ratios[step.round - 1] if step.arm == "dut" else 1.0
            waves.append(make_wave(step, ttft_p50_s=ttft_s, ttft_max_s=ttft_s))
    return list((make_run(plan) | {wave.step_id: wave for wave in waves}).values())


@pytest.mark.parametrize(
    ("ratios", "outcome", "said"),
    [
        ([0.60, 0.61, 0.60], PASS, "where a fall of at least 25 % is asked"),
        ([0.80, 0.81, 0.80], FAIL, "TTFT p50 fell by 19.7 % (95 % interval"),
        ([0.70, 0.74, 0.72], INCONCLUSIVE, "about 5 rounds of this spread would decide"),
        ([1.00, 1.01, 1.00], FAIL, "TTFT p50 rose by 0.3 % (95 % interval −1.1 to 1.8 %, 3 rounds)"),
        ([0.50], INCONCLUSIVE, "one round has no interval"),
    ],
)
def test_interval_against_the_threshold(ratios, outcome, said):
    plan = make_plan(cells=(8,), rounds=len(ratios))
    (finding,) = findings(judge(plan, run_with_ratios(plan, ratios)), "ttft-reduction")
    assert finding.outcome is outcome
    assert said in finding.reason
    assert finding.n == len(ratios)


def test_the_same_storage_against_itself_never_passes():
    for seed in range(20):
        rng = random.Random(seed)
        plan = make_plan(rounds=3)
        verdict = judge(plan, run_with_ratios(plan, [rng.gauss(1, 0.03) for _ in range(3)]))
        assert verdict.outcome is FAIL


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_figure_without_a_logarithm_is_inconclusive(value):
    verdict = judge_with(DUT_WAVE, output_tokens_per_s=value)
    assert outcome_of(verdict, "throughput-gain") == {INCONCLUSIVE}


def test_rounds_that_do_not_pair_up_are_inconclusive():
    plan = replace(PLAN, steps=tuple(step for step in PLAN.steps if step.id != LOCAL_WAVE))
    assert outcome_of(judge(plan, list(make_run(plan).values())), "ttft-reduction") == {INCONCLUSIVE}


def test_scattered_rounds_are_inconclusive_and_no_fail():
    plan = make_plan(cells=(8,), rounds=10)
    verdict = judge(plan, run_with_ratios(plan, [0.3, 0.5] * 5))
    assert {f.arm: f.outcome for f in findings(verdict, "repeatability")} == {"dut": INCONCLUSIVE, "local": PASS}
    assert verdict.outcome is INCONCLUSIVE


def test_one_round_says_nothing_of_repeatability():
    plan = make_plan(rounds=1)
    assert outcome_of(judge(plan, list(make_run(plan).values())), "repeatability") == {INCONCLUSIVE}


def test_too_good_a_pass_carries_the_note_of_its_check():
    verdict = judge(PLAN, list(make_run(PLAN).values()))
    assert any("at 8 sessions" in text and "look at the baseline" in text for text in verdict.warnings)


# ---------------------------------------------------------------- single rules


def one_cell(check, values, plan=None):
    """The only finding of one check, on the dut's waves of one cell with these figures."""
    plan = plan or make_plan(cells=(8,), rounds=len(values))
    plan = plan_of(replace(check, arms="dut"), plan)
    waves = [step for step in plan.steps if step.kind == "wave" and step.arm == "dut"]
    run = [make_wave(step, **{check.metric: value}) for step, value in zip(waves, values, strict=True)]
    (finding,) = judge(plan, run).findings
    return finding


@pytest.mark.parametrize(
    ("op", "limit", "values", "worst", "outcome"),
    [
        ("<=", 1.0, [0.5, 1.0, 0.2], 1.0, PASS),
        ("<=", 1.0, [0.5, 1.1, 2.0], 2.0, INCONCLUSIVE),
        (">=", 1.0, [1.5, 1.0, 1.2], 1.0, PASS),
        (">=", 1.0, [1.5, 0.9, 0.8], 0.8, INCONCLUSIVE),
        ("==", 1.0, [1.0, 1.0], 1.0, PASS),
        ("==", 1.0, [1.0, 1.2, 0.7], 0.7, INCONCLUSIVE),
        ("in", (0.9, 1.1), [0.9, 1.0, 1.1], 0.9, PASS),
        ("in", (0.9, 1.1), [1.0, 1.2, 0.5], 0.5, INCONCLUSIVE),
    ],
)
def test_each_shows_the_worst_value(op, limit, values, worst, outcome):
    finding = one_cell(check_of(op=op, limit=limit), values)
    assert (finding.observed, finding.outcome, finding.n) == (worst, outcome, len(values))


@pytest.mark.parametrize(
    ("values", "outcome"),
    [
        ([1.0, 1.001, 1.0, 1.002, 1.001, 1.0], PASS),
        ([1.0, 1.1, 1.2, 1.3, 1.4, 1.5], FAIL),
        ([1.5, 1.4, 1.3, 1.2, 1.1, 1.0], FAIL),
        ([1.0, 1.08, 0.95, 1.1, 1.0, 1.09], INCONCLUSIVE),
        ([1.0, 1.0], INCONCLUSIVE),
        ([1.0, 1.0, None], INCONCLUSIVE),
    ],
)
def test_drift_up_or_down(values, outcome):
    check = check_of(kind="performance", metric="ttft_p50_s", rule="drift", limit=0.05, unit="share")
    assert one_cell(check, values).outcome is outcome


@pytest.mark.parametrize(
    ("values", "outcome", "observed"),
    [([2.0], PASS, 2.0), ([0.0, 5.0, 3.0], PASS, 3.0), ([0.0, None], INCONCLUSIVE, None)],
)
def test_present(values, outcome, observed):
    found = one_cell(check_of(rule="present", op="", limit=None), values)
    assert (found.outcome, found.observed) == (outcome, observed)


@pytest.mark.parametrize(
    "changes",
    [
        {"rule": "median"},
        {"op": "~"},
        {"op": "in"},
        {"op": "<=", "limit": None},
        {"op": "<=", "limit": (0.0, 1.0)},
        {"rule": "paired_log_ratio", "op": "==", "limit": 1.0},
        {"rule": "cv", "op": ">="},
        {"step": "soak"},
        {"divide_by": "ceiling.nothing_of_the_kind"},
        {"divide_by": "soak.read_bandwidth_bytes_per_s"},
        {"rule": "paired_log_ratio", "against": "reference"},
    ],
)
@pytest.mark.parametrize("kind", ["integrity", "performance", "evidence"])
def test_a_check_that_cannot_be_judged_never_passes(changes, kind):
    verdict = judge(plan_of(check_of(kind=kind, **changes)), list(make_run(PLAN, ledger_ratio=0.5).values()))
    assert verdict.outcome is INCONCLUSIVE


def test_gate_without_checks_is_inconclusive():
    plan = replace(PLAN, gate=replace(PLAN.gate, checks=()))
    verdict = judge(plan, list(make_run(plan).values()))
    assert (verdict.outcome, verdict.findings) == (INCONCLUSIVE, ())


@pytest.mark.parametrize(
    ("bandwidth", "outcome"), [(0.86, PASS), (0.84, INCONCLUSIVE)], ids=["close to its ceiling", "held back"]
)
def test_baseline_is_held_against_its_ceiling_at_the_highest_concurrency_only(bandwidth, outcome):
    verdict = judge(PLAN, list(make_run(PLAN, wave_bandwidth_bytes_per_s=bandwidth * 2e9).values()))
    (finding,) = findings(verdict, "baseline-not-held-back")
    assert (finding.cell, finding.arm, finding.outcome) == ("c16", "local", outcome)
    assert finding.observed == pytest.approx(bandwidth)
    assert outcome_of(verdict, "ttft-reduction", "c8") == {PASS}


# ---------------------------------------------------------------- what the arms have in common


@pytest.mark.parametrize(
    ("engine", "facts", "outcome"),
    [
        (ENGINE, ({}, {}), PASS),
        (ENGINE, ({"engine": {"version": "1"}}, {"engine": {"version": "1"}}), PASS),
        (ENGINE, ({"engine": {"version": "1"}}, {"engine": {"version": "2"}}), INCONCLUSIVE),
        (ENGINE, ({"engine": {"version": "1"}}, {}), INCONCLUSIVE),
        (Engine(kind="openai", urls=("http://a",)), ({}, {}), INCONCLUSIVE),
        (Engine(kind="openai", urls=("http://a",)), ({"engine": {"v": "1"}}, {"engine": {"v": "1"}}), PASS),
    ],
)
def test_engines_must_be_alike_as_configured_and_as_they_tell(engine, facts, outcome):
    arms = (replace(DUT, engine=engine), replace(LOCAL, engine=replace(engine, urls=engine.urls and ("http://b",))))
    plan = make_plan(target=replace(TARGET, arms=arms))
    told = dict(zip(("dut", "local"), facts, strict=True))
    waves = [replace(make_wave(step), facts=told[step.arm]) for step in plan.steps if step.kind == "wave"]
    run = make_run(plan) | {wave.step_id: wave for wave in waves}
    assert outcome_of(judge(plan, list(run.values())), "equal-arms", "") == {outcome}


def test_arms_must_be_sent_the_same_prompts():
    steps = tuple(replace(step, seed=99) if step.id == DUT_WAVE else step for step in PLAN.steps)
    verdict = judge(replace(PLAN, steps=steps), list(make_run(PLAN).values()))
    assert outcome_of(verdict, "equal-arms", "") == {INCONCLUSIVE}


# ---------------------------------------------------------------- targets


def test_checks_about_arms_that_the_target_lacks_do_not_apply():
    plan = make_plan(target=AGAINST_RECOMPUTE)
    verdict = judge(plan, list(make_run(plan).values()))
    assert verdict.outcome is PASS
    assert findings(verdict, "baseline-not-held-back") == []
    assert {f.arm for f in findings(verdict, "byte-ledger")} == {"dut"}
    assert findings(judge(PLAN, list(make_run(PLAN).values())), "no-hits-in-recompute") == []


def test_hits_in_a_recompute_baseline_are_inconclusive():
    plan = make_plan(target=AGAINST_RECOMPUTE)
    verdict = judge_with("wave-r02-c8-recompute", plan, external_hit_tokens=256)
    assert outcome_of(verdict, "no-hits-in-recompute") == {INCONCLUSIVE}


def target_with(engine=ENGINE, limited=False, recompute=False):
    storage = Storage(("/mnt/nvme",), rate_limit_bytes_per_s=10**8 if limited else None)
    baseline = RECOMPUTE if recompute else replace(LOCAL, storage=storage)
    return Target("t", (replace(DUT, engine=engine), replace(baseline, engine=engine)))


@pytest.mark.parametrize(
    ("target", "measured", "medium", "basis"),
    [
        (target_with(), "measured", 1.0, ()),
        (target_with(Engine()), "measured", 1.0, ("emulated engine",)),
        (target_with(), "emulated", 1.0, ("emulated engine",)),
        (target_with(), "simulated", 0.0, ("simulated",)),
        (target_with(recompute=True), "measured", 1.0, ("recompute baseline",)),
        (target_with(), "measured", 0.0, ("medium unproven",)),
        (target_with(), "measured", None, ("medium unproven",)),
        (target_with(limited=True), "measured", 1.0, ("rate-limited node",)),
        (
            target_with(Engine(), recompute=True),
            "emulated",
            0.0,
            ("emulated engine", "recompute baseline", "medium unproven"),
        ),
    ],
)
def test_basis_names_what_makes_a_demonstration(target, measured, medium, basis):
    plan = make_plan(target=target)
    run = [replace(m, basis=measured) for m in make_run(plan, medium_proven=medium).values()]
    verdict = judge(plan, run)
    assert verdict.basis == basis
    assert verdict.headline == (f"PASS (demonstration: {', '.join(basis)})" if basis else "PASS")


def test_a_demonstration_only_warns_of_a_busy_processor():
    plan = make_plan(target=target_with(Engine()))
    verdict = judge_with(DUT_WAVE, plan, cpu_pressure_share=0.3)
    assert verdict.outcome is PASS
    assert {f.cell for f in findings(verdict, "cpu-pressure")} == {"c16"}
    assert any("CPU pressure is 30 % (arm dut, 8 sessions, round 2)" in warning for warning in verdict.warnings)


def test_a_demonstration_still_needs_the_figure_that_it_would_only_warn_of():
    plan = make_plan(target=target_with(Engine()))
    assert judge_with(DUT_WAVE, plan, cpu_pressure_share=None).outcome is INCONCLUSIVE


def test_a_warning_of_one_wave_does_not_hide_what_is_missing_in_another():
    plan = make_plan(target=target_with(Engine()))
    run = make_run(plan, cpu_pressure_share=0.3)
    run[DUT_WAVE] = make_wave(next(s for s in plan.steps if s.id == DUT_WAVE), cpu_pressure_share=None)
    assert judge(plan, list(run.values())).outcome is INCONCLUSIVE


def test_a_check_that_a_demonstration_skips_is_named_there_and_needed_everywhere_else():
    demonstration = judge_with(DUT_WAVE, make_plan(target=target_with(Engine())), link_use_share=None)
    assert demonstration.outcome is PASS
    assert "Not judged in a demonstration: below-link." in demonstration.warnings
    assert judge_with(DUT_WAVE, make_plan(), link_use_share=None).outcome is INCONCLUSIVE


# ---------------------------------------------------------------- while nodes come and go


def scaled_run(add_ttft_s: float, **values: float | None):
    """A healthy run in which the dut's nodes changed in round 3 of three, and what was measured then."""
    waves = make_plan(target=replace(TARGET, hooks={"node_add": ("add",), "node_remove": ("remove",)}), rounds=3)
    steps = [
        Step(f"scaling-r0{number}-add-c8-dut", "scaling", "load.scaling", "dut", "add-c8", number,
             {"scaling": "add", "concurrency": 8}, 1, "none")
        for number in (1, 2, 3)
    ]  # fmt: skip
    healthy = dict.fromkeys(SCALING_METRICS, 0.0) | {
        "ttft_p50_s": add_ttft_s, "ttft_max_s": add_ttft_s, "tpot_p50_s": 0.05, "change_at_share": 0.5,
        "output_tokens_per_s": 8 * 64 / add_ttft_s, "changed_pages": 9.0,
        "array_cache_evicted_ratio": 2.0, "medium_proven": 1.0,
    }  # fmt: skip
    plan = replace(waves, steps=(*waves.steps, *steps))
    run = make_run(waves)
    for step in steps:
        figures = {name: value * (1 + 0.001 * step.round) for name, value in healthy.items()} | values
        metrics = {name: Metric(value, SCALING_METRICS[name], 8, f"raw/{step.id}/x") for name, value in figures.items()}
        run[step.id] = make_measurement(step, metrics)
    return judge(plan, list(run.values()))


def test_waves_with_a_change_of_nodes_are_held_against_the_baselines_waves_of_their_load_and_rounds():
    verdict = scaled_run(add_ttft_s=1.2)
    assert verdict.outcome is PASS, verdict.why
    (finding,) = findings(verdict, "scaling-ttft-reduction")
    assert (finding.cell, finding.arm, finding.n) == ("add-c8", "dut", 3)
    assert finding.observed == pytest.approx(1.2 / 2.0, rel=0.01)
    assert "at 8 sessions while a node is added" in finding.reason
    assert {"raw/scaling-r03-add-c8-dut/x", "raw/wave-r03-c8-local/requests"} <= set(finding.evidence)
    assert not any("wave-r03-c16" in source for source in finding.evidence)
    assert not any("Scaling was not" in warning for warning in verdict.warnings)


@pytest.mark.parametrize(
    ("figures", "outcome", "check"),
    [
        ({"requests_failed": 1.0}, FAIL, "scaling-failed-requests"),
        ({"change_at_share": 0.95}, INCONCLUSIVE, "scaling-in-wave"),
        ({"changed_pages": 0.0}, INCONCLUSIVE, "scaling-took-effect"),
        ({"unexplained_misses": None}, INCONCLUSIVE, "scaling-hits"),
    ],
)
def test_what_takes_the_worth_from_a_change_of_nodes(figures, outcome, check):
    verdict = scaled_run(add_ttft_s=1.2, **figures)
    assert verdict.outcome is outcome
    assert outcome_of(verdict, check, "add-c8") == {outcome}
    assert outcome_of(verdict, "ttft-reduction") == {PASS}


def test_a_change_of_nodes_that_slows_the_wave_too_much_fails():
    verdict = scaled_run(add_ttft_s=1.9)
    assert (verdict.outcome, outcome_of(verdict, "scaling-ttft-reduction", "add-c8")) == (FAIL, {FAIL})


# ---------------------------------------------------------------- warnings, and judging again


@pytest.mark.parametrize(
    ("plan", "warning"),
    [
        (make_plan(rounds=3, quick=True), "Quick run: 3 rounds, where the gate asks for 10."),
        (make_plan(rounds=2), "2 rounds, where the gate asks for 10."),
        (
            make_plan(target=replace(TARGET, session_tokens=2049)),
            "Sessions were shortened to 2,049 tokens for this target.",
        ),
        (make_plan(), "Scaling was not part of this run: the target has no hooks node_add and node_remove."),
        (
            make_plan(target=replace(TARGET, hooks={"node_add": ("add",), "node_remove": ("remove",)})),
            "Scaling was not part of this run: no step adds or removes a node.",
        ),
        (
            make_plan(target=replace(TARGET, hooks={"node_add": ("add",), "node_remove": ("remove",)}), quick=True),
            "Scaling was not part of this run: a quick run leaves it out.",
        ),
    ],
)
def test_what_the_run_was_not(plan, warning):
    assert warning in judge(plan, list(make_run(plan).values())).warnings


def test_full_rounds_are_not_warned_of():
    plan = make_plan(cells=(8,), rounds=10)
    assert not any("where the gate asks for 10" in warning for warning in judge(plan, []).warnings)


def test_warnings_of_measurements_are_told_once():
    run = [replace(m, warnings=("caches could not be dropped",)) for m in make_run(PLAN).values()]
    assert judge(PLAN, run).warnings.count("caches could not be dropped") == 1


def test_the_last_measurement_of_a_step_counts():
    run = list(make_run(PLAN).values())
    step = next(step for step in PLAN.steps if step.id == DUT_WAVE)
    assert judge(PLAN, [make_wave(step, requests_failed=1), *run]).outcome is PASS
    assert judge(PLAN, [*run, make_wave(step, requests_failed=1)]).outcome is FAIL


def test_judging_again_with_another_gate():
    gate = load_gate()
    stricter = tuple(replace(c, limit=0.5) if c.id == "ttft-reduction" else c for c in gate.checks)
    plan = replace(PLAN, gate=replace(gate, checks=stricter))
    verdict = judge(plan, list(make_run(plan).values()), rejudged="stricter.yaml")
    assert (verdict.outcome, verdict.rejudged) == (FAIL, "stricter.yaml")
    assert verdict.why == (
        "TTFT p50 fell by 40.1 % (95 % interval 39.2 to 41.0 %, 3 rounds) at 8 sessions, "
        "where a fall of at least 50 % is asked."
    )


def test_a_gate_without_deciding_figures_says_that_its_findings_hold():
    plan = plan_of(check_of(kind="integrity", step="environment", metric="processors", op=">=", limit=1.0))
    step = plan.steps[0]
    verdict = judge(plan, [make_measurement(step, {"processors": Metric(2.0, "count", 1)})])
    assert (verdict.outcome, verdict.why) == (PASS, "All checks hold (1 finding).")


# ---------------------------------------------------------------- what not every arm has


def with_fact(states: dict[str, bool | None], ratio: float | None = None) -> list:
    """A healthy run whose waves state of their arm whether an array's cache stands before it, or do not state it."""
    run = make_run(PLAN, **({} if ratio is None else {"array_cache_evicted_ratio": ratio}))
    return [
        replace(measured, facts=measured.facts | {"has_array_cache": stated})
        if (stated := states.get(next(step.arm for step in PLAN.steps if step.id == step_id))) is not None
        else measured
        for step_id, measured in run.items()
    ]


def test_an_array_s_cache_is_asked_about_only_where_there_is_one():
    verdict = judge(PLAN, with_fact({"dut": True, "local": False}))
    assert {finding.arm for finding in findings(verdict, "array-cache")} == {"dut"}
    assert verdict.outcome is PASS


def test_a_cache_that_was_not_emptied_takes_the_figures_worth_away():
    verdict = judge(PLAN, with_fact({"dut": True, "local": False}, ratio=1.9))
    assert outcome_of(verdict, "array-cache") == {INCONCLUSIVE}
    assert outcome_of(verdict, "ttft-reduction") == {INCONCLUSIVE}


def test_nothing_is_asked_where_no_arm_has_one_and_silence_is_no_no():
    assert findings(judge(PLAN, with_fact({"dut": False, "local": False}, ratio=0.0)), "array-cache") == []
    assert outcome_of(judge(PLAN, with_fact({}, ratio=0.0)), "array-cache") == {INCONCLUSIVE}
