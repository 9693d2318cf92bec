"""What gate G4 makes of three days: a synthetic run of all its steps, with one thing planted in it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from three_days import PLAN, drift_of, once, plan_of, run_of

from kvbench import content, plan
from kvbench.judge.verdict import judge
from kvbench.model import Measurement, Outcome, Plan, Verdict

PASS, INCONCLUSIVE, FAIL = Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.FAIL


def only(check: str, made: Plan = PLAN) -> Plan:
    """The plan with this one check."""
    return replace(made, gate=replace(made.gate, checks=tuple(c for c in made.gate.checks if c.id == check)))


def outcome_of(verdict: Verdict, check: str) -> Outcome:
    (finding,) = [finding for finding in verdict.findings if finding.check == check]
    return finding.outcome


def test_three_healthy_days_pass() -> None:
    verdict = judge(PLAN, [*run_of().values()])
    assert (verdict.outcome, verdict.basis) == (PASS, ())
    assert verdict.why.startswith("TTFT p50 is 0.6")  # the worst hour, of 0.6 in the middle and 3 % around it
    assert verdict.why.endswith("the worst of 72 hours, where at most 0.75 is asked of every one.")
    availability = next(finding for finding in verdict.findings if finding.check == "availability")
    assert availability.reason == (
        "no stretch above 60 s without service in 74 h 29 min "
        "(environment 1 min 0 s + churn 72 h 0 min + wave 2 h 24 min + gaps 4 min 48 s), where at most 0 s is asked"
    )


PLANTED = [
    # what, figures that change, seconds after a step, deciding check, its outcome
    ("a wrong page", once("churn", 200, content_mismatches=1), {}, "content", FAIL),
    ("a failed request", once("wave", 204, requests_failed=1), {}, "failed-requests", FAIL),
    ("an I/O error", once("churn", 200, io_errors=1), {}, "io-errors", FAIL),
    ("a media error", once("churn", 200, media_errors=1), {}, "media-errors", FAIL),
    ("a stall of 70 s within a slice", once("churn", 200, unavailable_s=70), {}, "availability", FAIL),
    ("an outage of 70 s", None, {"churn-r200-dut": 70}, "availability", FAIL),
    ("an outage of 50 s", None, {"churn-r200-dut": 50}, "availability", PASS),
    ("a slice that paused", once("churn", 200, duty_share=0.94), {}, "duty", INCONCLUSIVE),
    ("warm reads", once("churn", 200, residency_share=0.5), {}, "cold", INCONCLUSIVE),
    ("a slice without a figure", once("churn", 200, content_mismatches=None), {}, "content", INCONCLUSIVE),
    ("one hour without the gain of G3", once("wave", 204, ttft_p50_s=1.6), {}, "ttft-every-hour", FAIL),
]


@pytest.mark.parametrize(
    ("change", "gaps_s", "check", "outcome"), [p[1:] for p in PLANTED], ids=[p[0] for p in PLANTED]
)
def test_one_event_in_three_days(change, gaps_s, check: str, outcome: Outcome) -> None:
    verdict = judge(PLAN, [*run_of(change=change or (lambda step, values: {}), gaps_s=gaps_s).values()])
    assert outcome_of(verdict, check) is outcome
    assert verdict.outcome is outcome


def test_a_media_error_between_two_slices_counts() -> None:
    grown = run_of(
        change=lambda step, values: {"media_errors_total": 4.0} if step.round > 200 and step.kind == "churn" else {}
    )
    assert outcome_of(judge(only("media-errors-over-run"), [*grown.values()]), "media-errors-over-run") is FAIL


TRENDS = [
    # of three days; six slices an hour tell more than one wave does
    ("read_bandwidth_bytes_per_s", "bandwidth-trend", 0.06, FAIL),
    ("read_bandwidth_bytes_per_s", "bandwidth-trend", -0.06, FAIL),
    ("read_bandwidth_bytes_per_s", "bandwidth-trend", 0.04, PASS),
    ("read_bandwidth_bytes_per_s", "bandwidth-trend", -0.04, PASS),
    ("ttft_p50_s", "ttft-trend", 0.09, FAIL),
    ("ttft_p50_s", "ttft-trend", 0.02, PASS),
]


@pytest.mark.parametrize(("metric", "check", "share", "outcome"), TRENDS)
def test_a_trend_is_found_in_the_noise_of_slices(metric: str, check: str, share: float, outcome: Outcome) -> None:
    series = [run_of(seed=seed, change=drift_of(metric, share)) for seed in range(5)]
    judged = [outcome_of(judge(only(check), [*run.values()]), check) for run in series]
    assert judged.count(outcome) >= 4


def test_a_trend_names_its_hourly_medians_and_its_interval() -> None:
    verdict = judge(only("bandwidth-trend"), [*run_of(change=drift_of("read_bandwidth_bytes_per_s", 0.2)).values()])
    (finding,) = [finding for finding in verdict.findings if finding.check == "bandwidth-trend"]
    assert (finding.outcome, finding.n) == (FAIL, 75)
    assert "75 hourly medians" in finding.reason
    assert finding.interval is not None
    assert finding.interval[0] < 0.19 < finding.interval[1]


def test_a_short_run_needs_its_whole_interval_below_the_limit() -> None:
    short = plan_of(duration_s=600.0, slice_s=60.0)
    verdict = judge(short, [*run_of(short).values()])
    (finding,) = [finding for finding in verdict.findings if finding.check == "bandwidth-trend"]
    assert (finding.outcome, finding.n) == (INCONCLUSIVE, 10)
    assert "10 measurements" in finding.reason


def test_two_outages_add_up_and_the_longest_is_named_first() -> None:
    verdict = judge(PLAN, [*run_of(gaps_s={"churn-r003-dut": 61, "churn-r200-dut": 400}).values()])
    (finding,) = [finding for finding in verdict.findings if finding.check == "availability"]
    assert finding.observed == pytest.approx(461)
    assert (
        "no service for 7 min 41 s (6 min 40 s after churn-r200-dut, 1 min 1 s after churn-r003-dut)" in finding.reason
    )


def test_an_agreed_budget_of_unavailability_is_the_limit() -> None:
    checks = tuple(replace(c, limit=100) if c.id == "availability" else c for c in PLAN.gate.checks)
    agreed = replace(PLAN, gate=replace(PLAN.gate, checks=checks))
    assert judge(agreed, [*run_of(gaps_s={"churn-r200-dut": 90}).values()]).outcome is PASS


def test_half_a_run_is_inconclusive_and_one_with_an_outage_fails_already() -> None:
    def first_half(run: dict[str, Measurement]) -> list[Measurement]:
        return [*run.values()][: len(run) // 2]

    assert judge(PLAN, first_half(run_of())).outcome is INCONCLUSIVE
    assert judge(PLAN, first_half(run_of(gaps_s={"churn-r100-dut": 70}))).outcome is FAIL


def test_faults_are_run_in_turn_and_their_absence_is_said() -> None:
    faulty = plan_of(hooks=("fault_path_pull", "fault_failover", "before_wave"))
    told = [step.params["hook"] for step in faulty.steps if step.kind == "fault"]
    assert told == ["fault_failover", "fault_path_pull"] * 6
    assert not [step for step in PLAN.steps if step.kind == "fault"]
    absence = "No fault was part of this run: no hook fault_… of the target was run, and nobody marked one."
    assert absence in judge(PLAN, [*run_of().values()]).warnings
    marked = run_of()
    slice_ = marked["churn-r200-dut"]
    marked["churn-r200-dut"] = replace(slice_, facts={"faults": [{"name": "cable pulled", "kind": "mark"}]})
    assert absence not in judge(PLAN, [*marked.values()]).warnings


def test_a_wrong_page_in_a_fault_slice_fails() -> None:
    faulty = plan_of(hooks=("fault_failover",))
    verdict = judge(faulty, [*run_of(faulty, change=once("fault", 36, content_mismatches=1, io_errors=9)).values()])
    assert outcome_of(verdict, "content-under-faults") is FAIL
    assert outcome_of(verdict, "io-errors") is PASS


def test_three_days_leave_less_than_200_mb_of_evidence() -> None:
    cost = plan.total_cost(PLAN, PLAN.steps, content.model_shapes())
    assert 0 < cost.evidence_bytes < 200e6
