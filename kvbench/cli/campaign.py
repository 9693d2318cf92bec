"""`kvbench campaign new`, `status`, `report`: the four gates of a joint test, tied together."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvbench.cli.options import Json, TargetFile
from kvbench.errors import UsageError

if TYPE_CHECKING:
    from kvbench.campaign.folder import CampaignFolder
    from kvbench.campaign.ladder import Rung

MODES = ("collaborative", "independent")
Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The campaign's folder.")]

app = typer.Typer(
    no_args_is_help=True,
    help="Tie the gates of a joint test to a target, parties and dates.\n\n"
    "Example:  kvbench campaign status joint-test",
)


@app.command("new")
def new(
    folder: Folder,
    target: TargetFile = None,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="What reports call it (default: the folder's name).")
    ] = "",
    party: Annotated[
        list[str] | None,
        typer.Option("--party", metavar="TEXT", help='Who takes part, as "NAME: CONTACT"; once for each.'),
    ] = None,
    mode: Annotated[
        str,
        typer.Option(
            "--mode", metavar="MODE", help="collaborative: run each gate once, together. independent: each party does."
        ),
    ] = "collaborative",
) -> None:
    """Make a campaign folder: who takes part, what is tested, until when.

    Example:  kvbench campaign new joint-test --target fx100.yaml --party "vendor: Ada <a@b.c>" --party "centre: Bo"
    """
    from kvbench import clock
    from kvbench.campaign.folder import CampaignFolder
    from kvbench.campaign.ladder import Campaign, party_of, planned_days
    from kvbench.cli import show

    if mode not in MODES:
        raise UsageError(f"--mode {mode}: no such mode", f"one of {', '.join(MODES)}")
    campaign = Campaign(
        name=name or folder.resolve().name,
        mode="independent" if mode == "independent" else "collaborative",
        parties=tuple(party_of(text) for text in party or ()),
        due=planned_days(clock.wall().date()),
    )
    made = CampaignFolder.create(folder, campaign, target)
    show.say(f"{folder / 'campaign.yaml'}: edit parties and dates")
    if made.target_file is None:
        show.say("no --target: a demonstration on this machine's disk, which accepts nothing")
    elif made.demonstration:
        show.say(
            "the target makes every verdict a demonstration (emulated engine, recomputing baseline or throttled node); "
            "its gates open each other all the same"
        )
    _say_next(made, made.rungs())


@app.command("status")
def status(folder: Folder, json: Json = None) -> None:
    """Show where the gates stand, and what is next with its command.

    Example:  kvbench campaign status joint-test
    """
    from kvbench.campaign.folder import CampaignFolder
    from kvbench.cli import show

    campaign = CampaignFolder.open(folder)
    rungs = campaign.rungs()
    rows = [_row(rung, campaign) for rung in rungs]
    for line in [*_about(campaign), *(line for row in rows for line in _lines(row))]:
        show.say(line)
    _say_next(campaign, rungs)
    show.write_json(rows, json)


@app.command("report")
def report(folder: Folder) -> None:
    """Write one summary over the gates: each verdict, and the figure that decided it.

    Example:  kvbench campaign report joint-test
    """
    from kvbench.campaign.folder import CampaignFolder
    from kvbench.cli import show
    from kvbench.report.summary import render

    files, messages = render(CampaignFolder.open(folder))
    for path in files:
        show.say(str(path))
    for message in messages:
        show.note(message)


def _about(campaign: "CampaignFolder") -> list[str]:
    from kvbench import content

    facts, target, frozen = campaign.campaign, campaign.target_file, campaign.frozen
    parties = ", ".join(f"{party.name} ({party.contact})" if party.contact else party.name for party in facts.parties)
    lines = [
        f"{facts.name}: {facts.mode}; {parties or 'no parties named'}",
        f"target: {content.load_target(target).name if target else 'the demonstration on this disk'}"
        + (" (DEMONSTRATION: its verdicts accept nothing)" if campaign.demonstration else ""),
        f"settings: frozen since {frozen.at[:10]} by {frozen.gate}"
        if frozen
        else "settings: frozen when a gate begins",
    ]
    return [*lines, *(f"  changed since: {change}; no gate will start" for change in campaign.changed())]


def _row(rung: "Rung", campaign: "CampaignFolder") -> dict[str, Any]:
    from kvbench.campaign.ladder import standing

    shown, due = rung.decisive or rung.latest, campaign.campaign.due.get(rung.gate)
    return {
        "gate": rung.gate,
        "party": rung.lane,
        "standing": standing(rung),
        "due": due.isoformat() if due else "",
        "days": list(shown.days or ()) if shown else [],
        "runs": [str(attempt.path) for attempt in rung.attempts],
        "ungated": shown.plan.ungated if shown else "",
    }


def _lines(row: dict[str, Any]) -> list[str]:
    """A gate on one line, its runs and an ungated start below it."""
    days, whose = " to ".join(dict.fromkeys(row["days"])), f" of {row['party']}" if row["party"] else ""
    when = ", ".join(filter(None, (days, row["due"] and f"due {row['due']}")))
    lines = ["", f"{row['gate']}{whose}  {row['standing']}{f'  ({when})' if when else ''}"]
    lines += [f"    ungated: {row['ungated']}"] if row["ungated"] else []
    return [*lines, *(f"    {run}" for run in row["runs"])]


def _say_next(campaign: "CampaignFolder", rungs: "list[Rung]") -> None:
    from kvbench.campaign.ladder import advice
    from kvbench.cli import show

    for lane in campaign.campaign.lanes:
        text, command = advice(rungs, lane, campaign.path)
        show.say("")
        show.say(f"next{f' for {lane}' if lane else ''}: {text}\n  {command}")
