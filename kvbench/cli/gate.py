"""`kvbench run gate`, `resume`, `plan gate`, `judge`: a gate from its plan to its verdict."""

from pathlib import Path
from typing import Annotated

import typer

from kvbench.cli import course
from kvbench.cli.options import (
    RUNS,
    DestroyData,
    Duration,
    Gate,
    InCampaign,
    Json,
    Out,
    Party,
    Quick,
    Rounds,
    Run,
    Seed,
    Slice,
    TargetFile,
    Ungated,
    Yes,
)
from kvbench.cli.strategies import run_strategies

run_app = typer.Typer(no_args_is_help=True, help="Run a gate, or strategies.\n\nExample:  kvbench run gate G3")
plan_app = typer.Typer(no_args_is_help=True, help="Say what would run.\n\nExample:  kvbench plan gate G3")
run_app.command("strategies")(run_strategies)


@run_app.command("gate")
def run_gate(
    gate: Gate,
    target: TargetFile = None,
    quick: Quick = False,
    rounds: Rounds = None,
    duration: Duration = None,
    slice: Slice = None,
    seed: Seed = 1,
    out: Out = None,
    keep_data: Annotated[
        bool, typer.Option("--keep-data", help="Leave the KV pages on the target afterwards.")
    ] = False,
    campaign: InCampaign = None,
    party: Party = "",
    ungated: Ungated = "",
    destroy_data: DestroyData = None,
    yes: Yes = False,
    json: Json = None,
) -> None:
    """Run a gate to its verdict and report. Exit code: 0 PASS, 1 FAIL, 3 INCONCLUSIVE.

    Example:  kvbench run gate G3 --target fx100.yaml
    """
    from kvbench.plan import Options

    options = Options(seed, quick, rounds, keep_data, duration, slice, destroy_data=tuple(destroy_data or ()))
    entry = course.enter(gate, campaign, party, ungated)
    raise typer.Exit(course.carry_on(course.new_run(gate, options, target, out, entry, yes), json))


def resume(run: Run, json: Json = None) -> None:
    """Go on with a run after a crash, a kill or a reboot. What is measured is not measured again.

    Example:  kvbench resume kvbench-runs/2026-11-30T16-25-00-G3
    """
    from kvbench import journal
    from kvbench.cli import show

    folder = journal.RunFolder.open(run)
    if folder.reopen() == "stopped":
        show.note("the run had been stopped; it goes on")
    raise typer.Exit(course.carry_on(folder, json))


@plan_app.command("gate")
def plan_gate(
    gate: Gate,
    target: TargetFile = None,
    quick: Quick = False,
    rounds: Rounds = None,
    duration: Duration = None,
    slice: Slice = None,
    seed: Seed = 1,
    destroy_data: DestroyData = None,
    json: Json = None,
) -> None:
    """Say what would run, on what, for how long, and the smallest effect it could decide. Touches nothing.

    Example:  kvbench plan gate G3 --target fx100.yaml
    """
    from kvbench import journal, safety
    from kvbench.cli import show
    from kvbench.plan import Options

    options = Options(seed, quick, rounds, False, duration, slice, destroy_data=tuple(destroy_data or ()))
    _, plan = course.fixed(gate, target, RUNS / "RUN", options)
    course.show_plan(plan, steps=True)
    for trouble in safety.unusable(plan) if target else ():  # a demonstration makes its own folders
        show.note(f"{trouble.message}; before the run, {trouble.hint}")
    show.write_json(journal.as_plain(plan), json)


def judge(
    run: Run,
    gate: Annotated[
        Path | None, typer.Option("--gate", metavar="FILE", help="Judge with this gate file; marked as re-judged.")
    ] = None,
    json: Json = None,
) -> None:
    """Give the verdict again from what was measured. Nothing is measured anew.

    Example:  kvbench judge kvbench-runs/2026-11-30T16-25-00-G3 --gate stricter.yaml
    """
    from kvbench import journal

    raise typer.Exit(course.finish(journal.RunFolder.open(run), json, gate))
