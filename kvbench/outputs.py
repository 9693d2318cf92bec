"""Whether a model answers the same from KV that was read back as from KV that it computed: the rule `outputs_equal`.

A wave at temperature 0 gives each session's answer twice: while its KV was computed and stored (`computed`), and from
the KV that was read back (`read`). The same session is computed on another arm as well, and what differs between the
two computations is what an engine's batching does to rounding; only what differs more often than that is wrong KV.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kvbench import stats, wording
from kvbench.cells import NOWHERE, Row, Run, arms_of, breach, finding, missing_finding, see
from kvbench.model import Check, Finding, Outcome
from kvbench.units import format_value

_UNFINISHED = "\ufffd"  # what a decoder gives for the bytes of a character that the next token completes


class Count(NamedTuple):
    """Of so many pairs of answers, how many differ."""

    differ: int
    n: int

    def __str__(self) -> str:
        return f"{self.differ} of {self.n}"


def same(one: str, other: str) -> bool:
    """Whether two answers are one text, as far as the shorter goes."""
    one, other = one.rstrip(_UNFINISHED), other.rstrip(_UNFINISHED)
    return one.startswith(other) or other.startswith(one)


def differing(computed: Mapping[str, str], read: Mapping[str, str]) -> Count:
    """Over the sessions that both have."""
    both = computed.keys() & read.keys()
    return Count(sum(not same(computed[session], read[session]) for session in both), len(both))


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
    read = _sum(_compare(row, row, "read") for row in waves)
    twice = _sum(
        _compare(row, other, "computed")
        for row in waves
        for other in rows
        if other.step.arm != arm and (other.step.cell, other.step.round) == (row.step.cell, row.step.round)
    )
    if not read.n:
        reason = f"no session of arm {arm} was answered both from computed and from stored KV"
        return finding(check, NOWHERE, Outcome.INCONCLUSIVE, reason, seen, arm=arm)
    p = stats.excess_probability(*read, *twice)
    if not isinstance(check.limit, float) or p < check.limit:
        outcome = breach(check)
    elif read.differ and not twice.differ:
        outcome = Outcome.INCONCLUSIVE
    else:
        outcome = Outcome.PASS
    reason = (
        f"{read} answers of arm {arm} from stored KV differ from those from computed KV, and {twice} when it was "
        f"computed twice; by chance as many would differ with a probability of {format_value(p, 'share')}, "
        f"where {wording.asked(check.op, check.limit, check.unit)} is asked"
    )
    return finding(check, NOWHERE, outcome, reason, seen, arm=arm, observed=p, n=read.n)


def _compare(row: Row, other: Row, how: str) -> Count:
    """What an arm computed, against what it read or another arm computed; nothing where the prompts differ."""
    if row.measurement is None or other.measurement is None:
        return Count(0, 0)
    ours, theirs = row.measurement.facts.get("answers", {}), other.measurement.facts.get("answers", {})
    if ours.get("prompts") != theirs.get("prompts"):
        return Count(0, 0)
    return differing(_answers(row.measurement.facts, "computed"), _answers(other.measurement.facts, how))


def _answers(facts: Mapping[str, Any], how: str) -> Mapping[str, str]:
    answers: Mapping[str, str] = facts.get("answers", {}).get(how, {})
    return answers


def _sum(counts: Iterator[Count]) -> Count:
    every = list(counts)
    return Count(sum(count.differ for count in every), sum(count.n for count in every))
