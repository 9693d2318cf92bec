"""A campaign: the gates of one joint test as a ladder. Who takes part, what has passed, what is next. Pure.

In a collaborative campaign the parties run each gate once, together. In an independent one every party climbs a ladder
of its own, and nobody's run opens a gate for somebody else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Literal

from kvbench.errors import UsageError
from kvbench.model import Measurement, Outcome, Plan, Verdict
from kvbench.plan import remaining

LADDER = ("G1", "G2", "G3", "G4")
DUE_AFTER_WEEKS = {"G1": 2, "G2": 4, "G3": 8, "G4": 9}  # docs/joint-test.md; the tenth week is for the report

_STRICT: dict[str, Any] = {"extra": "forbid"}

Mode = Literal["collaborative", "independent"]
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,40}\Z")  # a party's name becomes a folder name


@dataclass(frozen=True, slots=True)
class Party:
    name: str
    contact: str = ""

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Campaign:
    """campaign.yaml. `due` maps a gate to the day on which it should be decided."""

    name: str
    mode: Mode = "collaborative"
    parties: tuple[Party, ...] = ()
    due: Mapping[str, date] = field(default_factory=dict)

    __pydantic_config__ = _STRICT

    @property
    def lanes(self) -> tuple[str, ...]:
        """Who climbs a ladder: each independent party, or all together (`""`)."""
        return tuple(party.name for party in self.parties) if self.mode == "independent" else ("",)


@dataclass(frozen=True, slots=True)
class Frozen:
    """What may not change any more: SHA-256 by name, since `at` (ISO 8601, UTC), when `gate` began."""

    version: int
    at: str
    gate: str
    digests: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a gate. `verdict` is None while it has not been judged."""

    path: Path
    plan: Plan
    measurements: tuple[Measurement, ...]
    verdict: Verdict | None

    @property
    def steps_left(self) -> int:
        return len(remaining(self.plan, self.measurements))

    @property
    def days(self) -> tuple[str, str] | None:
        """First and last day (UTC) on which something was measured."""
        starts, ends = [m.start.wall[:10] for m in self.measurements], [m.end.wall[:10] for m in self.measurements]
        return (min(starts), max(ends)) if starts else None


@dataclass(frozen=True, slots=True)
class Rung:
    """A gate on the ladder of a lane, with its runs, oldest first. The last judged run that counts decides it.

    In a demonstration every run counts; else only whole runs that are none.
    """

    gate: str
    lane: str
    demonstration: bool
    attempts: tuple[Attempt, ...]

    @property
    def passed(self) -> bool:
        verdict = self.decisive.verdict if self.decisive else None
        return verdict is not None and verdict.outcome is Outcome.PASS

    @property
    def decisive(self) -> Attempt | None:
        counting = [one for one in self.attempts if one.verdict and (self.demonstration or not shortfall(one))]
        return counting[-1] if counting else None

    @property
    def latest(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None


# ---------------------------------------------------------------- the ladder: pure


def shortfall(attempt: Attempt) -> str:
    """What makes a run less than its gate asks for, or "": such a run decides nothing but a demonstration."""
    plan, rounds = attempt.plan, max((step.round for step in attempt.plan.steps), default=0)
    if plan.quick:
        return "quick run"
    asked = int(plan.gate.duration_s / plan.slice_s) if plan.slice_s else plan.gate.rounds
    if 0 < rounds < asked:
        return f"{rounds} of {asked} {'slices' if plan.slice_s else 'rounds'}"
    return "demonstration" if attempt.verdict and attempt.verdict.basis else ""


def climb(campaign: Campaign, demonstration: bool, attempts: Mapping[str, Sequence[Attempt]]) -> list[Rung]:
    """The ladder of every lane, from the runs of each lane, oldest first."""
    return [
        Rung(gate, lane, demonstration, tuple(one for one in attempts.get(lane, ()) if one.plan.gate.id == gate))
        for lane in campaign.lanes
        for gate in LADDER
    ]


def hindrance(rungs: Iterable[Rung], gate: str, lane: str) -> str:
    """Why a gate may not be run yet, or "" when the one below it has passed."""
    place = LADDER.index(gate)
    if place == 0:
        return ""
    below = next(rung for rung in rungs if (rung.gate, rung.lane) == (LADDER[place - 1], lane))
    return "" if below.passed else f"{below.gate} has not passed: {standing(below)}"


def standing(rung: Rung) -> str:
    """Where a gate stands: the verdict that decides it, and a later run that does not."""
    latest, decisive = rung.latest, rung.decisive
    if latest is None:
        return "not run yet"
    clauses = [_short(decisive.verdict)] if decisive and decisive.verdict else []
    if latest.verdict is None:
        total = len(latest.plan.steps)
        clauses.append(f"under way, {total - latest.steps_left} of {total} steps measured")
    elif latest is not decisive:
        clauses.append(f"{latest.verdict.outcome} does not count: {shortfall(latest)}")
    return "; ".join(clauses)


def _short(verdict: Verdict) -> str:
    return f"{verdict.outcome}{' (demonstration)' if verdict.basis else ''}"


def advice(rungs: Iterable[Rung], lane: str, folder: Path) -> tuple[str, str]:
    """What a lane does next, and the exact command."""
    rung = next((rung for rung in rungs if rung.lane == lane and not rung.passed), None)
    if rung is None:
        return "all gates have passed", f"kvbench campaign report {folder}"
    latest = rung.latest
    if latest and (latest.verdict is None or _lacks(latest)):
        verb = "soak start" if latest.plan.slice_s else "resume"
        return f"{rung.gate} {standing(rung)}: go on with it", f"kvbench {verb} {latest.path}"
    verb = "soak start" if rung.gate == "G4" and not rung.demonstration else f"run gate {rung.gate}"
    command = f"kvbench {verb} --campaign {folder}"
    command += f"{f' --party {lane}' if lane else ''}{' --quick' if rung.demonstration else ''}"
    if latest is None or latest.verdict is None:
        return f"run {rung.gate}", command
    return f"{rung.gate} {_REMEDIES[latest.verdict.outcome]}", command


_REMEDIES = {
    Outcome.FAIL: "failed: mend what its report names, then run it again",
    Outcome.INCONCLUSIVE: "is inconclusive: its report says why, docs/joint-test.md what to do; then run it again",
    Outcome.PASS: "passed in a run that does not count: run it whole",
}


def _lacks(attempt: Attempt) -> bool:
    """Judged inconclusive while steps are not measured: a resume measures those, and nothing else."""
    inconclusive = attempt.verdict is not None and attempt.verdict.outcome is Outcome.INCONCLUSIVE
    return inconclusive and attempt.steps_left > 0


def changes(frozen: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Sentences about settings that are not what was frozen."""
    differing = [f"{name} was changed" for name in frozen if name in now and frozen[name] != now[name]]
    gone = [f"{name} is gone" for name in frozen if name not in now]
    return [*differing, *gone, *(f"{name} was added" for name in now if name not in frozen)]


def party_of(text: str) -> Party:
    """`vendor: Ada Chen <ada@example.com>` as a party. Raises UsageError for a name that cannot be a folder's."""
    name, _, contact = (part.strip() for part in text.partition(":"))
    if not _NAME.match(name):
        raise UsageError(f"party name {name!r}: letters, digits, - and _ only, at most 41", "vendor: Ada Chen <a@b.c>")
    return Party(name, contact)


def commented_yaml(campaign: Campaign) -> str:
    """campaign.yaml as it is first written: every key with what it means. Strings are JSON's, which YAML reads."""

    def said(text: str) -> str:
        return json.dumps(text, ensure_ascii=False)

    parties = [f"  - {{name: {party.name}, contact: {said(party.contact)}}}" for party in campaign.parties]
    return "\n".join(
        (
            "# A joint test: four gates on one target, each after the one below has passed.",
            "# kvbench campaign status shows where it stands and what is next.",
            "version: 1",
            f"name: {said(campaign.name)}",
            "",
            "# collaborative: the parties run each gate once, together.",
            "# independent: every party runs every gate itself (--party NAME), and the summary sets them side by side.",
            "# Frozen, with target.yaml and the gates, when the first gate begins.",
            f"mode: {campaign.mode}",
            "",
            "# Who takes part and who answers. A name has letters, digits, - and _; contacts may change at any time.",
            *(["parties:", *parties] if parties else ["parties: []"]),
            "",
            "# The day on which each gate should be decided; docs/joint-test.md has the weeks.",
            "due:",
            *(f"  {gate}: {day.isoformat()}" for gate, day in campaign.due.items()),
            "",
        )
    )


def planned_days(begins: date) -> dict[str, date]:
    """When each gate should be decided in a test of ten weeks that begins on a day."""
    return {gate: begins + timedelta(weeks=weeks) for gate, weeks in DUE_AFTER_WEEKS.items()}
