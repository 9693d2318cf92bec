"""`kvbench soak`: a gate that lasts, in the background, revived by cron, watched from another terminal."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from kvbench.cli.options import Duration, InCampaign, Json, Out, Party, Quick, Run, Slice, TargetFile, Ungated, Yes
from kvbench.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from kvbench.journal import RunFolder
    from kvbench.soak.status import Follower, Status

GATE = "G4"
_REFRESH_S = 1.0

app = typer.Typer(
    no_args_is_help=True,
    help="Run gate G4 for days: in the background, revived by cron.\n\n"
    "Example:  kvbench soak start --target fx100.yaml",
)


@app.command()
def start(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="A run to take up again; none: a new one.")] = None,
    target: TargetFile = None,
    quick: Quick = False,
    duration: Duration = None,
    slice: Slice = None,
    out: Out = None,
    campaign: InCampaign = None,
    party: Party = "",
    ungated: Ungated = "",
    textfile: Annotated[
        Path | None, typer.Option("--textfile", metavar="DIR", help="Copy kvbench.prom there too, for node_exporter.")
    ] = None,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay here until the run ends.")] = False,
    yes: Yes = False,
) -> None:
    """Start a soak in the background, or take up one that died or was stopped. Started twice, it is one run.

    Example:  kvbench soak start --target fx100.yaml --duration 72h --slice 10m
    """
    from kvbench.cli import course, show
    from kvbench.plan import Options
    from kvbench.soak import life

    if run is None:
        options = Options(quick=quick, duration_s=duration, slice_s=slice)
        folder = course.new_run(GATE, options, target, out, course.enter(GATE, campaign, party, ungated), yes)
    else:
        folder = _open(run)
    name = show.short(folder.path)
    if holder := folder.holder():
        show.say(f"{name} runs already, as process {holder.pid}; a second start changes nothing")
        return
    if folder.ended() == "finished":
        show.say(f"{name} is finished; its report: kvbench report {name}")
        return
    if textfile:
        life.export_to(folder, textfile)
    if folder.reopen():
        show.say("the run had been stopped; it goes on")
    if foreground:
        _carry_on(folder)
    show.say(f"{name} {life.start_detached(folder)}")
    show.say(f"watch it:             kvbench soak status {name} --watch")
    show.say(f"have cron revive it:  kvbench soak install {name}")


@app.command()
def revive(run: Run) -> None:
    """Go on with a soak that died; what cron calls. Does nothing for one that runs, or was stopped, or is finished.

    Example:  kvbench soak revive kvbench-runs/2026-11-30T16-25-00-G4
    """
    if (run / "ended").exists():  # before anything is imported: cron asks every minute
        return
    _carry_on(_open(run))


@app.command()
def status(
    run: Run,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until the run ends, or Ctrl-C.")] = False,
    json: Json = None,
) -> None:
    """Say how a soak stands, from any terminal, at any time.

    Example:  kvbench soak status kvbench-runs/2026-11-30T16-25-00-G4 --watch
    """
    from dataclasses import asdict

    from kvbench.cli import show
    from kvbench.soak.status import Follower

    follower = Follower(_open(run))
    if watch:
        _watch(follower)
    elif json != "-":
        show.console.print(_table(follower.status()))
    show.write_json(asdict(follower.status()), json)


@app.command()
def stop(
    run: Run, now: Annotated[bool, typer.Option("--now", help="Do not wait for the step in flight.")] = False
) -> None:
    """End a soak before its time: after the step in flight, with a report of what it has shown so far.

    Example:  kvbench soak stop kvbench-runs/2026-11-30T16-25-00-G4
    """
    from kvbench.cli import course, show
    from kvbench.soak import life

    folder = _open(run)
    if (how := folder.ended()) and not folder.holder():
        show.say(f"{run} is {how} already")
        return
    waiting = "waiting for it to end" if now else "it ends with the step in flight; waiting for that"
    reports_itself = life.stop(folder, now, lambda: show.say(waiting))
    if now or not reports_itself:
        course.finish(folder, None)
    show.say(f"{run} is stopped; to go on: kvbench soak start {run}")


@app.command()
def mark(run: Run, text: Annotated[str, typer.Argument(metavar="TEXT", help="What is being done.")]) -> None:
    """Note what you do to the storage, at the moment you do it: a cable pulled, a controller failed over.

    Example:  kvbench soak mark kvbench-runs/2026-11-30T16-25-00-G4 "path A pulled"
    """
    from kvbench import clock, marks
    from kvbench.cli import show

    folder = _open(run)
    made = marks.Mark(text, clock.stamp(), clock.boot_id())
    marks.append(folder.path, made)
    show.say(f"marked at {made.at.wall}: {text}")


@app.command()
def install(run: Run) -> None:
    """Have cron revive the soak every minute, until it is finished or stopped: one line in your crontab.

    Example:  kvbench soak install kvbench-runs/2026-11-30T16-25-00-G4
    """
    from kvbench.cli import show
    from kvbench.soak import crontab, life

    folder = _open(run)
    cron_runs = crontab.install(folder.path, folder.path / life.LOG)
    show.say(
        f"installed in your crontab: {run} is looked after every minute; to take it out: kvbench soak remove {run}"
    )
    if not cron_runs:
        show.note("no cron runs on this machine; start it, for example: service cron start")


@app.command()
def remove(run: Run) -> None:
    """Take the soak's line out of your crontab, and nothing else.

    Example:  kvbench soak remove kvbench-runs/2026-11-30T16-25-00-G4
    """
    from kvbench.cli import show
    from kvbench.soak import crontab

    removed = crontab.remove(run.resolve())
    show.say(f"{run} {'was taken out of' if removed else 'is not in'} your crontab")


def _open(run: Path) -> "RunFolder":
    from kvbench import journal

    folder = journal.RunFolder.open(run)
    if not folder.plan.slice_s:
        raise UsageError(
            f"{run} is a run of gate {folder.plan.gate.id}, which does not last", f"kvbench runs show {run}"
        )
    return folder


def _carry_on(folder: "RunFolder") -> NoReturn:
    """Run it here. That somebody else runs it is no failure: it runs."""
    from kvbench import journal
    from kvbench.cli import course, show

    try:
        raise typer.Exit(course.carry_on(folder, None))
    except journal.RunHeld as held:
        show.say(held.message)
        raise typer.Exit from None


def _watch(follower: "Follower") -> None:
    from rich.live import Live

    from kvbench import clock
    from kvbench.cli import show

    found = follower.status()
    with Live(_table(found), console=show.console, auto_refresh=False) as live:
        while found.state not in ("finished", "stopped"):
            clock.sleep_s(_REFRESH_S)
            found = follower.status()
            live.update(_table(found), refresh=True)


def _table(found: "Status") -> "Table":
    from rich.table import Table
    from rich.text import Text

    from kvbench.soak.status import describe

    table = Table.grid(padding=(0, 2))
    for subject, text in describe(found):
        table.add_row(Text(subject, style="bold"), Text(text))
    return table
