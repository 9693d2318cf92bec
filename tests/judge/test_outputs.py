"""Answers from stored KV against answers from computed KV."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import DUT, RECOMPUTE, load_gate, make_answers, make_plan, make_run

from kvbench.judge.outputs import agreement, agreements
from kvbench.judge.verdict import judge
from kvbench.model import Engine, Finding, Outcome, Target

PASS, INCONCLUSIVE, FAIL = Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.FAIL
PLAN = make_plan(cells=(2, 4), rounds=3, target=Target("disk against recompute", (DUT, RECOMPUTE)))


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        ("w1w2", "w1w2w3w4", 1.0),  # eight tokens against sixty-four
        ("w1w2", "w1w3", 0.75),
        ("w1w2", "w3w4", 0.25),
        ("caf\ufffd", "café au lait", 1.0),  # the next token completes the character
        ("", "", 1.0),
        ("", "anything", 0.0),  # tokens without a text are another answer
    ],
)
def test_answers_are_compared_as_far_as_the_shorter_goes(one: str, other: str, share: float) -> None:
    assert agreement(one, other) == agreement(other, one) == share


def test_only_sessions_that_both_have_are_compared() -> None:
    assert agreements({"0": "a", "1": "b", "2": "c"}, {"1": "b", "2": "x", "3": "d"}) == [1.0, 0.0]


def verdict_on(
    wrong_reads: int = 0, wrong_twice: int = 0, prompts: str = "", how: str = "another"
) -> tuple[Finding, Outcome]:
    """The finding and the gate's outcome, with so many of 18 sessions answered otherwise from storage (by the text
    `how`), or on the other arm; `prompts`: that arm was sent others."""
    run = make_run(PLAN)
    for step in PLAN.steps:
        if step.kind != "wave":
            continue
        answers = make_answers(step)
        for session in answers["computed"]:
            if step.arm == DUT.name and wrong_reads:
                answers["read"][session] = how
                wrong_reads -= 1
            elif step.arm != DUT.name and wrong_twice:
                answers["computed"][session] = "the other"
                wrong_twice -= 1
        if prompts and step.arm != DUT.name:
            answers["prompts"] = prompts
        run[step.id] = replace(run[step.id], facts={"answers": answers})
    verdict = judge(PLAN, list(run.values()))
    (finding,) = [finding for finding in verdict.findings if finding.check == "same-answers"]
    return finding, verdict.outcome


@pytest.mark.parametrize(
    ("wrong_reads", "wrong_twice", "outcome"),
    [
        (0, 0, PASS),
        (4, 4, PASS),
        (6, 4, PASS),  # an engine that differs from itself in four of eighteen may well differ in six
        (0, 4, PASS),
        (18, 4, FAIL),
        (18, 0, FAIL),
        (18, 18, FAIL),  # a restless engine; but these part at once, and its own answers later
        (1, 0, INCONCLUSIVE),  # an engine that never differs from itself did
    ],
)
def test_stored_kv_may_change_answers_as_often_as_computing_twice_does(
    wrong_reads: int, wrong_twice: int, outcome: Outcome
) -> None:
    finding, whole = verdict_on(wrong_reads, wrong_twice)
    assert (finding.outcome, whole) == (outcome, outcome)
    assert f"{wrong_reads} of 18 answers of arm dut from stored KV part" in finding.reason
    assert f"{wrong_twice} of 18 when it was computed twice" in finding.reason


def test_arms_that_were_sent_other_prompts_are_no_control() -> None:
    finding, _ = verdict_on(wrong_reads=1, prompts="others")
    assert (finding.outcome, "0 of 0 when it was computed twice" in finding.reason) == (INCONCLUSIVE, True)


def test_a_wave_without_answers_is_named() -> None:
    run = make_run(PLAN, output_divergence_share=None)
    verdict = judge(PLAN, list(run.values()))
    (finding,) = [finding for finding in verdict.findings if finding.check == "same-answers"]
    assert finding.outcome is INCONCLUSIVE
    assert "has no figure for" in finding.reason


def test_pages_of_our_own_store_are_judged_by_their_bytes_as_well() -> None:
    engine = Engine(kind="emulated")
    target = Target("emulated", tuple(replace(arm, engine=engine) for arm in (DUT, RECOMPUTE)))
    plan = make_plan(cells=(2,), target=target, gate=load_gate())
    assert judge(plan, list(make_run(plan, content_mismatches=1).values())).outcome is FAIL
    ours = [check for check in plan.gate.checks if check.id == "content"]
    assert [check.arms for check in ours] == ["own_store"]
