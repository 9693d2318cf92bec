"""The course of a run, which `run`, `resume`, `judge` and `soak` share: planned, measured, judged, reported."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kvbench.cli.options import RUNS
from kvbench.errors import Exit, KvbenchError, UsageError

if TYPE_CHECKING:
    from kvbench.campaign.folder import Entry
    from kvbench.content import Loaded
    from kvbench.journal import RunFolder
    from kvbench.model import Plan, Verdict
    from kvbench.plan import Options


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

    from kvbench import clock, journal, safety
    from kvbench.cli import show

    if entry and (out or target):
        raise UsageError("--campaign brings its own target and folder", "leave --target and --out out")
    path = entry.run_path if entry else out or new_path(Path(gate).stem)
    target = entry.target_file if entry else target
    if path.exists():
        goes_on = f"kvbench resume {path} goes on with it; or " if (path / "plan.json").exists() else ""
        raise UsageError(f"{path} exists", f"{goes_on}choose another --out")
    loaded, plan = fixed(gate, target, path.resolve(), replace(options, **entry.options) if entry else options)
    show_plan(plan)
    if target and (troubles := safety.unusable(plan)):  # a demonstration makes its own
        hints = dict.fromkeys(trouble.hint for trouble in troubles)
        raise KvbenchError("\n".join(trouble.message for trouble in troubles), "; ".join(hints))
    if target and not yes and sys.stdin.isatty() and not typer.confirm("Go on?", err=True):
        raise typer.Exit(Exit.INTERRUPTED)
    if entry:
        entry.campaign.freeze(gate, clock.wall())
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = journal.RunFolder.create(path, plan, loaded.files, loaded.source.resolve())
    show.say(f"run folder: {path}")
    return folder


def new_path(name: str) -> Path:
    """Where a run goes that begins now."""
    from kvbench import clock

    return RUNS / f"{clock.wall():%Y-%m-%dT%H-%M-%S}-{name}"


def fixed(gate: str, target: Path | None, run_path: Path, options: "Options") -> "tuple[Loaded, Plan]":
    """A gate's plan on a target, or on the demonstration's; refused where it would harm what is not ours."""
    from kvbench import content, plan, safety
    from kvbench.engine.launch import with_recipes

    loaded = content.load_gate(gate)
    chosen = content.load_target(target) if target else content.demo_target(run_path)
    loaded = with_recipes(loaded, chosen)
    made = plan.make_plan(loaded, chosen, content.model_shapes(), options)
    safety.refuse(made)
    return loaded, made


def show_plan(plan: "Plan", steps: bool = False) -> None:
    """What would run, and with `steps` every step of it."""
    from kvbench import content
    from kvbench.cli import show
    from kvbench.plan_summary import summary

    for line in summary(plan, content.model_shapes(), steps):
        show.say(line)


def carry_on(folder: "RunFolder", json: str | None) -> Exit:
    """Measure what is left, judge, report. The run is then over, unless it was stopped before its end."""
    from kvbench import content, plan, run
    from kvbench.cli import show
    from kvbench.outlook import Outlook
    from kvbench.soak import life

    try:
        if edited := folder.edited_source():
            show.note(
                f"{edited} was edited after this run began; the run keeps its copy in {folder.path / 'content'}. "
                f"To judge with the edited file: kvbench judge {folder.path} --gate {edited}"
            )
        shapes = content.model_shapes()
        expected_s = {step.id: plan.cost(step, folder.plan, shapes).seconds for step in folder.plan.steps}
        outlook = Outlook(folder.plan.steps, expected_s)
        measured = [one for one in folder.measurements() if not one.error]  # the others are measured again
        for measurement in measured:
            outlook.measured(measurement)
        if len(measured) == len(folder.plan.steps):
            show.note("every step has been measured before; only verdict and report are made again")
        with show.Watch(outlook).live() as watch:
            run.execute(folder, shapes, life.Recording(watch, folder) if folder.plan.slice_s else watch)
        code = finish(folder, json)
        if not folder.ended():
            folder.end("finished")
    except BaseException as end:
        end.add_note(f"kvbench resume {show.short(folder.path)}")  # which `main` prints when it was interrupted
        raise
    return code


def finish(folder: "RunFolder", json: str | None, gate: Path | None = None) -> Exit:
    """Judge, save, print, report; returns the verdict's exit code."""
    from kvbench import journal
    from kvbench.cli import show

    verdict = _judged(folder, gate)
    files = {"verdict": folder.save_verdict(verdict)}
    show.verdict(verdict)
    if not verdict.rejudged:
        show.say("the report is being written: of a large run, its PDF takes a minute")
        files |= _report(folder, verdict)
    for name, path in files.items():
        show.say(f"{name}: {show.short(path)}")
    result: dict[str, Any] = {"run": str(folder.path), "verdict": journal.as_plain(verdict)}
    show.write_json({**result, "files": {name: str(path) for name, path in files.items()}}, json)
    return Exit[verdict.outcome.value]


def _judged(folder: "RunFolder", gate: Path | None) -> "Verdict":
    from dataclasses import replace

    from kvbench import content
    from kvbench.judge.verdict import judge

    if gate is None:
        return judge(folder.plan, folder.measurements())
    other = replace(folder.plan, gate=content.load_gate(str(gate)).gate)
    return judge(other, folder.measurements(), rejudged=str(gate))


def _report(folder: "RunFolder", verdict: "Verdict") -> dict[str, Path]:
    from kvbench.cli import show
    from kvbench.load.collected import collect_requests
    from kvbench.report.render import render

    measurements = folder.measurements()
    requests = collect_requests(folder.path, folder.plan, measurements)
    rendered = render(folder.path, folder.plan, measurements, verdict, ("html", "pdf"))
    for message in rendered.messages:
        show.note(message)
    return {**({"requests": requests} if requests else {}), **rendered.files}
