"""Whether a model answers the same from KV that was read back as from KV that it computed: the rule `outputs_equal`.

A wave at temperature 0 gives each session's answer twice: while its KV was computed and stored (`computed`), and from
the KV that was read back (`read`). The same session is computed on another arm as well, and where the two computations
part is what an engine's batching does to rounding; only answers that part sooner than that come from wrong KV. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any

from kvbench import stats, wording
from kvbench.judge.cells import NOWHERE, Row, Run, arms_of, breach, finding, missing_finding, see
from kvbench.model import Check, Finding, Outcome
from kvbench.units import format_value

_UNFINISHED = "\ufffd"  # what a decoder gives for the bytes of a character that the next token completes


def agreement(one: str, other: str) -> float:
    """How much of the shorter answer both begin with: 1.0 for the same text, as far as it goes.

    No answer at all agrees only with none.
    """
    one, other = one.rstrip(_UNFINISHED), other.rstrip(_UNFINISHED)
    shorter = min(len(one), len(other))
    if not shorter:
        return float(one == other)
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return sum(1 for _ in alike) / shorter


def agreements(computed: Mapping[str, str], read: Mapping[str, str]) -> list[float]:
    """Over the sessions that both have."""
    return [agreement(computed[session], read[session]) for session in sorted(computed.keys() & read.keys())]


def differing(shares: Iterable[float]) -> int:
    """How many answers are not the same."""
    return sum(share < 1.0 for share in shares)


def outputs_equal(check: Check, run: Run) -> list[Finding]:
    """A finding for each arm whose KV is on storage, over all its waves."""
    arms = arms_of(check, run.plan.target)
    rows = [row for row in run.rows if row.step.kind == check.step]
    stored = sorted({row.step.arm for row in rows} & arms)
    return [_of_arm(check, arm, rows, run) for arm in stored]


def _of_arm(check: Check, arm: str, rows: list[Row], run: Run) -> Finding:
    waves = [row for row in rows if row.step.arm == arm]
    seen = see(check, waves, run)
    if any(figure.missing for figure in seen):
        return missing_finding(check, NOWHERE, seen, arm=arm)
    read = [share for row in waves for share in _compare(row, row, "read")]
    if not read:
        reason = f"no session of arm {arm} was answered both from computed and from stored KV"
        return finding(check, NOWHERE, Outcome.INCONCLUSIVE, reason, seen, arm=arm)
    twice = [
        share
        for row in waves
        for other in rows
        if other.step.arm != arm and (other.step.cell, other.step.round) == (row.step.cell, row.step.round)
        for share in _compare(row, other, "computed")
    ]
    p = stats.lower_probability(read, twice)
    if not isinstance(check.limit, float) or p < check.limit:
        outcome = breach(check)
    elif differing(read) and not differing(twice):
        outcome = Outcome.INCONCLUSIVE
    else:
        outcome = Outcome.PASS
    reason = (
        f"{differing(read)} of {len(read)} answers of arm {arm} from stored KV part from those from computed KV, and "
        f"{differing(twice)} of {len(twice)} when it was computed twice; by chance they would part so soon with a "
        f"probability of {format_value(p, 'share')}, where {wording.asked(check.op, check.limit, check.unit)} is asked"
    )
    return finding(check, NOWHERE, outcome, reason, seen, arm=arm, observed=p, n=len(read))


def _compare(row: Row, other: Row, how: str) -> list[float]:
    """What an arm computed, against what it read or another arm computed; nothing where the prompts differ."""
    if row.measurement is None or other.measurement is None:
        return []
    ours, theirs = row.measurement.facts.get("answers", {}), other.measurement.facts.get("answers", {})
    if ours.get("prompts") != theirs.get("prompts"):
        return []
    return agreements(_answers(ours, "computed"), _answers(theirs, how))


def _answers(answers: Mapping[str, Any], how: str) -> Mapping[str, str]:
    found: Mapping[str, str] = answers.get(how, {})
    return found
