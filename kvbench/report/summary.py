"""The summary of a campaign: every gate's verdict and the one figure that decided it, on one self-contained page.

`build_summary` is pure and decides every word; `render` reads the campaign and writes summary.html and summary.pdf.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvbench import content
from kvbench.campaign.folder import CampaignFolder
from kvbench.campaign.ladder import LADDER, Attempt, Campaign, Frozen, Rung, shortfall, standing
from kvbench.errors import KvbenchError
from kvbench.journal import write_atomically
from kvbench.model import Outcome
from kvbench.report import html, pdf
from kvbench.report.document import Decider, Entry, Table
from kvbench.report.figures import ABSENT, code, plural, text
from kvbench.report.view import decider


@dataclass(frozen=True, slots=True)
class Card:
    """One gate of one lane. `outcome` is None while no run that counts has been judged; texts are "" where absent.

    `remark` stands beneath the outcome: what makes it a demonstration, or where a gate without one stands.
    """

    lane: str
    outcome: Outcome | None
    remark: str
    why: str
    decider: Decider | None
    ungated: str
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Gate:
    name: str
    title: str
    cards: tuple[Card, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """The whole page. `bases` says what makes the campaign a demonstration; "" when it is none."""

    name: str
    target: str
    outcome: Outcome
    conclusion: str
    bases: str
    gates: tuple[Gate, ...]
    facts: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    runs: Table
    frozen: Table


def build_summary(
    campaign: Campaign, rungs: Sequence[Rung], titles: Mapping[str, str], target: str, frozen: Frozen | None
) -> Summary:
    """The page as plain data. `titles` are the gates' own."""
    outcome, conclusion = _conclusion(rungs)
    return Summary(
        name=campaign.name,
        target=target,
        outcome=outcome,
        conclusion=conclusion,
        bases=_bases(rungs),
        gates=tuple(
            Gate(gate, titles[gate], tuple(_card(rung, campaign) for rung in rungs if rung.gate == gate))
            for gate in LADDER
        ),
        facts=_facts(campaign, target, frozen),
        warnings=tuple(_warnings(rungs)),
        runs=_runs(rungs),
        frozen=_frozen(frozen),
    )


def _conclusion(rungs: Sequence[Rung]) -> tuple[Outcome, str]:
    """FAIL when a gate failed, PASS when all passed, else INCONCLUSIVE: a gate that was not run proves nothing."""
    failed = [rung for rung in rungs if _outcome(rung) is Outcome.FAIL]
    still_open = [rung for rung in rungs if _outcome(rung) not in (Outcome.PASS, Outcome.FAIL)]
    said = [f"{len(rungs) - len(failed) - len(still_open)} of {len(rungs)} gates have passed"]
    for told, some in (("failed", failed), ("not decided", still_open)):
        said += [f"{told}: {_gates(some, rungs)}"] if some else []
    outcome = Outcome.FAIL if failed else Outcome.INCONCLUSIVE if still_open else Outcome.PASS
    return outcome, "; ".join(said) + "."


def _gates(some: Sequence[Rung], rungs: Sequence[Rung]) -> str:
    """`G1 of vendor, G2`: whose is said where it is not everybody's."""
    lanes = {gate: [rung.lane for rung in some if rung.gate == gate] for gate in LADDER}
    everybody = len({rung.lane for rung in rungs})
    named = [
        gate if len(whose) == everybody else f"{gate} of {' and '.join(whose)}"
        for gate, whose in lanes.items()
        if whose
    ]
    return ", ".join(named)


def _outcome(rung: Rung) -> Outcome | None:
    return rung.decisive.verdict.outcome if rung.decisive and rung.decisive.verdict else None


def _named(rung: Rung) -> str:
    return f"{rung.gate} of {rung.lane}" if rung.lane else rung.gate


def _bases(rungs: Sequence[Rung]) -> str:
    if not any(rung.demonstration for rung in rungs):
        return ""
    decisive = [rung.decisive.verdict for rung in rungs if rung.decisive and rung.decisive.verdict]
    return ", ".join(dict.fromkeys(basis for verdict in decisive for basis in verdict.basis)) or "by its target"


def _card(rung: Rung, campaign: Campaign) -> Card:
    shown = rung.decisive or rung.latest
    verdict = rung.decisive.verdict if rung.decisive else None
    return Card(
        lane=rung.lane,
        outcome=_outcome(rung),
        remark=standing(rung)
        if verdict is None
        else f"demonstration: {', '.join(verdict.basis)}" * bool(verdict.basis),
        why=verdict.why if verdict else "",
        decider=decider(verdict, rung.decisive.plan) if rung.decisive and verdict else None,
        ungated=shown.plan.ungated if shown else "",
        facts=tuple(_about(rung, shown, campaign)),
    )


def _about(rung: Rung, shown: Attempt | None, campaign: Campaign) -> list[tuple[str, str]]:
    due = campaign.due.get(rung.gate)
    facts = [("Due", due.isoformat())] if due else []
    if shown:
        facts += [("Run", " to ".join(dict.fromkeys(shown.days or ())) or "nothing measured")]
        facts += [("Run folder", shown.path.name)]
    if rung.latest is not rung.decisive and rung.decisive:
        facts += [("Since then", standing(rung).partition("; ")[2])]
    return facts


def _facts(campaign: Campaign, target: str, frozen: Frozen | None) -> tuple[tuple[str, str], ...]:
    told = {
        "collaborative": "collaborative: the parties ran each gate together",
        "independent": "independent: every party ran every gate itself",
    }
    contacts = [(f"Party {party.name}", party.contact or "no contact named") for party in campaign.parties]
    settled = f"{frozen.at[:10]}, when {frozen.gate} began" if frozen else "not yet: no gate has begun"
    return (("Target", target), ("Mode", told[campaign.mode]), *contacts, ("Settings frozen", settled))


def _warnings(rungs: Sequence[Rung]) -> list[str]:
    """What stands between the ladder as it was meant and as it was climbed."""
    ungated = [
        f"{_named(rung)} was run although the gate below had not passed: {one.plan.ungated.rstrip('.')}."
        for rung in rungs
        for one in rung.attempts
        if one.plan.ungated
    ]
    judged = [one for rung in rungs for one in rung.attempts if one.verdict]
    quick = [f"Quick runs, with fewer rounds than the gates ask for: {_listed(judged)}."]
    versions = sorted({one.plan.kvbench_version for one in judged})
    mixed = [f"The gates were run with different versions of kvbench: {', '.join(versions)}."]
    return [*dict.fromkeys(ungated), *quick * any(one.plan.quick for one in judged), *mixed * (len(versions) > 1)]


def _listed(attempts: Sequence[Attempt]) -> str:
    return ", ".join(dict.fromkeys(one.plan.gate.id for one in attempts if one.plan.quick))


def _runs(rungs: Sequence[Rung]) -> Table:
    """Every run of every gate: nobody drops the one that came out badly."""
    independent = any(rung.lane for rung in rungs)
    rows = tuple(
        (
            text(_named(rung)),
            code(one.path.name),
            text(" to ".join(dict.fromkeys(one.days or ())) or ABSENT),
            Entry(f"{len(one.plan.steps) - one.steps_left} of {len(one.plan.steps)}", numeric=True),
            Entry(str(one.verdict.outcome), outcome=one.verdict.outcome) if one.verdict else text("not judged"),
            text(_weight(one, rung)),
            text(one.plan.kvbench_version),
            code(one.plan.content_digest[:16]),
        )
        for rung in rungs
        for one in rung.attempts
    )
    columns = ("Gate", "Run folder", "Days (UTC)", "Steps", "Verdict", "Counts", "kvbench", "Content digest")
    where = "runs/PARTY/" if independent else "runs/"
    return Table(
        "Every run, oldest first", columns, rows, f"Each folder, below {where}, holds its report and evidence."
    )


def _weight(attempt: Attempt, rung: Rung) -> str:
    if attempt is rung.decisive:
        return "decides"
    lacking = "" if rung.demonstration else shortfall(attempt)
    return f"no: {lacking}" if lacking else "no: not judged" if attempt.verdict is None else "replaced by a later run"


def _frozen(frozen: Frozen | None) -> Table:
    rows = tuple((text(name), code(digest)) for name, digest in frozen.digests.items()) if frozen else ()
    told = f"{plural(len(rows), 'setting')}; a gate refuses to start when one of them is not what it was."
    return Table("Settings that were frozen", ("What", "SHA-256 over name, length and bytes"), rows, told)


# ---------------------------------------------------------------- the files


def page(summary: Summary) -> str:
    """The page as text."""
    return html.filled("summary.html.j2", view=summary)


def render(folder: CampaignFolder) -> tuple[list[Path], tuple[str, ...]]:
    """Write summary.html and summary.pdf into the campaign's folder; returns them, and sentences about what is lacking.

    A PDF that cannot be made is a message. Raises KvbenchError when a file cannot be written.
    """
    rungs = folder.rungs()
    target = content.load_target(folder.target_file).name if folder.target_file else "this machine"
    titles = {gate: content.load_gate(gate).gate.title for gate in LADDER}
    text_of_page = page(build_summary(folder.campaign, rungs, titles, target, folder.frozen))
    contents = {"summary.html": text_of_page.encode()}
    try:
        contents["summary.pdf"] = pdf.pdf(text_of_page)
        messages = tuple(filter(None, (pdf.font_warning(text_of_page),)))
    except KvbenchError as error:
        messages = (str(error),)
    try:
        return [write_atomically(folder.path / name, data) for name, data in contents.items()], messages
    except OSError as error:
        raise KvbenchError(f"{folder.path}: the summary cannot be written: {error.strerror}", "make room") from None
