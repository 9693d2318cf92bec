"""`kvbench run gate`, `resume`, `plan gate`, `judge`: a gate from its plan to its verdict."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvbench.errors import Exit, UsageError
from kvbench.units import parse_seconds

if TYPE_CHECKING:
    from kvbench.campaign.folder import Entry
    from kvbench.journal import RunFolder
    from kvbench.model import Outcome, Plan, Verdict
    from kvbench.plan import Options

RUNS = Path("kvbench-runs")

Gate = Annotated[str, typer.Argument(metavar="GATE", help="G1, G2, G3, G4, or the path of a gate file.")]
TargetFile = Annotated[
    Path | None,
    typer.Option("--target", help="Target file (kvbench init writes one). None: a demonstration on this disk."),
]
Quick = Annotated[bool, typer.Option("--quick", help="Fewer rounds and cells: minutes. The verdict says so.")]
Rounds = Annotated[int | None, typer.Option("--rounds", min=1, help="Rounds per cell, instead of the gate's own.")]
Duration = Annotated[
    float | None,
    typer.Option("--duration", parser=parse_seconds, metavar="TIME", help="How long a gate that lasts runs, as 72h."),
]
Slice = Annotated[
    float | None,
    typer.Option("--slice", parser=parse_seconds, metavar="TIME", help="How long each slice of it is, as 10m."),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of prompts, data and the order of arms.")]


def _writable(file: str | None) -> str | None:
    """Found out before anything runs, and not when its result would be lost."""
    if file not in (None, "-"):
        path = Path(file)
        if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
            raise UsageError(f"--json {file}: no file can be written there", "name a file in a folder that exists")
    return file


Json = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", callback=_writable, help="The result for machines; - is stdout."),
]
Out = Annotated[Path | None, typer.Option("--out", help="Run folder to make (default: kvbench-runs/DATE-GATE).")]
InCampaign = Annotated[
    Path | None, typer.Option("--campaign", help="Run it in this campaign: its target, its ladder, its folder.")
]
Party = Annotated[str, typer.Option("--party", help="Whose run it is, in an independent campaign.")]
Ungated = Annotated[
    str, typer.Option("--ungated", metavar="REASON", help="Run although the gate below has not passed.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before a run on a target.")]
DestroyData = Annotated[
    list[str] | None,
    typer.Option(
        "--destroy-data", metavar="SERIAL", help="Write over the drive of this serial number: a node that is a device."
    ),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]


def register(app: typer.Typer) -> None:
    """Add this module's commands to the application."""
    from kvbench.cli.strategies import run_strategies

    run_app = typer.Typer(no_args_is_help=True, help="Run a gate, or strategies.\n\nExample:  kvbench run gate G3")
    run_app.command("gate")(run_gate)
    run_app.command("strategies")(run_strategies)
    plan_app = typer.Typer(no_args_is_help=True, help="Say what would run.\n\nExample:  kvbench plan gate G3")
    plan_app.command("gate")(plan_gate)
    app.add_typer(run_app, name="run")
    app.command("resume")(resume)
    app.add_typer(plan_app, name="plan")
    app.command("judge")(judge)


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
    folder = new_run(gate, options, target, out, enter(gate, campaign, party, ungated), yes)
    raise typer.Exit(carry_on(folder, json))


def resume(run: Run, json: Json = None) -> None:
    """Go on with a run after a crash, a kill or a reboot. What is measured is not measured again.

    Example:  kvbench resume kvbench-runs/2026-11-30T16-25-00-G3
    """
    from kvbench import journal
    from kvbench.cli import show

    folder = journal.RunFolder.open(run)
    if folder.reopen() == "stopped":
        show.say("note: the run had been stopped; it goes on")
    raise typer.Exit(carry_on(folder, json))


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
    from kvbench import content, journal, plan, safety
    from kvbench.cli import show
    from kvbench.engine.launch import with_recipes

    loaded = content.load_gate(gate)
    chosen = content.load_target(target) if target else content.demo_target(RUNS / "RUN")
    loaded = with_recipes(loaded, chosen)
    options = plan.Options(seed, quick, rounds, False, duration, slice, destroy_data=tuple(destroy_data or ()))
    fixed = plan.make_plan(loaded, chosen, content.model_shapes(), options)
    safety.refuse(fixed)
    _show_plan(fixed, steps=True)
    show.write_json(journal.as_plain(fixed), json)


def judge(
    run: Run,
    gate: Annotated[Path | None, typer.Option("--gate", help="Judge with this gate file; marked as re-judged.")] = None,
    json: Json = None,
) -> None:
    """Give the verdict again from what was measured. Nothing is measured anew.

    Example:  kvbench judge kvbench-runs/2026-11-30T16-25-00-G3 --gate stricter.yaml
    """
    from kvbench import journal

    raise typer.Exit(finish(journal.RunFolder.open(run), json, gate))


def enter(gate: str, campaign: Path | None, party: str, ungated: str) -> "Entry | None":
    """The place of a run in a campaign, or None outside of one. Raises KvbenchError where the ladder refuses."""
    from kvbench import clock
    from kvbench.campaign.folder import CampaignFolder

    if campaign is None:
        if party or ungated:
            raise UsageError("--party and --ungated are said of a gate of a campaign", "add --campaign DIR")
        return None
    return CampaignFolder.open(campaign).enter(gate, party, ungated, clock.wall())


def new_run(
    gate: str, options: "Options", target: Path | None, out: Path | None, entry: "Entry | None", yes: bool
) -> "RunFolder":
    """Show the plan, ask, and make the run folder. Nothing is measured yet."""
    from dataclasses import replace

    from kvbench import clock, content, journal, plan, safety
    from kvbench.cli import show
    from kvbench.engine.launch import with_recipes

    if entry and (out or target):
        raise UsageError("--campaign brings its own target and folder", "leave --target and --out out")
    path = entry.run_path if entry else out or _new_run_path(gate)
    target = entry.target_file if entry else target
    if path.exists():
        raise UsageError(f"{path} exists", f"kvbench resume {path} goes on with it; or choose another --out")
    loaded = content.load_gate(gate)
    chosen = content.load_target(target) if target else content.demo_target(path.resolve())
    loaded = with_recipes(loaded, chosen)
    options = replace(options, **entry.options) if entry else options
    fixed = plan.make_plan(loaded, chosen, content.model_shapes(), options)
    safety.refuse(fixed)
    _show_plan(fixed)
    if target and not yes and sys.stdin.isatty() and not typer.confirm("Go on?"):
        raise typer.Exit(Exit.INTERRUPTED)
    if entry:
        entry.campaign.freeze(gate, clock.wall())
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = journal.RunFolder.create(path, fixed, loaded.files, loaded.source.resolve())
    show.say(f"run folder: {path}")
    return folder


def carry_on(folder: "RunFolder", json: str | None) -> Exit:
    """Measure what is left, judge, report. The run is then over, unless it was stopped before its end."""
    from kvbench import clock, content, plan, run
    from kvbench.cli import show
    from kvbench.soak import life

    if edited := folder.edited_source():
        show.say(
            f"note: {edited} was edited after this run began; the run keeps its copy in {folder.path / 'content'}. "
            f"To judge with the edited file: kvbench judge {folder.path} --gate {edited}"
        )
    shapes = content.model_shapes()
    todo = plan.remaining(folder.plan, folder.measurements())
    expected_s = {step.id: plan.cost(step, folder.plan, shapes).seconds for step in todo}
    with show.Watch(expected_s, clock.monotonic_ns).live() as watch:
        run.execute(folder, shapes, life.Recording(watch, folder) if folder.plan.slice_s else watch)
    code = finish(folder, json)
    if not folder.ended():
        folder.end("finished")
    return code


def finish(folder: "RunFolder", json: str | None, gate: Path | None = None) -> Exit:
    """Judge, save, report, print; returns the verdict's exit code."""
    from kvbench import journal
    from kvbench.cli import show

    verdict = _judged(folder, gate)
    files = {"verdict": folder.save_verdict(verdict)}
    if not verdict.rejudged:
        files |= _report(folder, verdict)
    show.verdict(verdict)
    for name, path in files.items():
        show.say(f"{name}: {show.short(path)}")
    result: dict[str, Any] = {"run": str(folder.path), "verdict": journal.as_plain(verdict)}
    show.write_json({**result, "files": {name: str(path) for name, path in files.items()}}, json)
    return exit_code(verdict.outcome)


def _judged(folder: "RunFolder", gate: Path | None) -> "Verdict":
    from dataclasses import replace

    from kvbench import content
    from kvbench.judge.verdict import judge as give_verdict

    if gate is None:
        return give_verdict(folder.plan, folder.measurements())
    other = replace(folder.plan, gate=content.load_gate(str(gate)).gate)
    return give_verdict(other, folder.measurements(), rejudged=str(gate))


def _report(folder: "RunFolder", verdict: "Verdict") -> dict[str, Path]:
    from kvbench.cli import show
    from kvbench.load.collected import collect_requests
    from kvbench.report.render import render

    measurements = folder.measurements()
    requests = collect_requests(folder.path, folder.plan, measurements)
    rendered = render(folder.path, folder.plan, measurements, verdict, ("html", "pdf"))
    for message in rendered.messages:
        show.say(f"note: {message}")
    return {**({"requests": requests} if requests else {}), **rendered.files}


def _show_plan(plan: "Plan", steps: bool = False) -> None:
    from kvbench import content
    from kvbench.cli import show
    from kvbench.plan import summary

    for line in summary(plan, content.model_shapes(), steps):
        show.say(line)


def _new_run_path(gate: str) -> Path:
    from kvbench import clock

    name = Path(gate).stem if "/" in gate or gate.endswith(".yaml") else gate
    return RUNS / f"{clock.wall():%Y-%m-%dT%H-%M-%S}-{name}"


def exit_code(outcome: "Outcome") -> Exit:
    """The exit code of a verdict."""
    return {"PASS": Exit.PASS, "FAIL": Exit.FAIL, "INCONCLUSIVE": Exit.INCONCLUSIVE}[outcome.value]
