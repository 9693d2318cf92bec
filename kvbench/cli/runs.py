"""`kvbench report`, `runs`, `init`: what is done with run folders and targets beside running them."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvbench.cli.options import RUNS, Json, Run, Yes
from kvbench.errors import Exit, KvbenchError, UsageError

if TYPE_CHECKING:
    from kvbench.journal import RunFolder

FORMATS = ("html", "pdf", "md", "json", "csv")
Folder = Annotated[Path, typer.Option("--in", metavar="DIR", help="The folder that holds the runs.")]


app = typer.Typer(no_args_is_help=True, help="List, show and remove runs.\n\nExample:  kvbench runs list")


def report(
    run: Run,
    format: Annotated[
        str, typer.Option("--format", metavar="LIST", help=f"Any of {','.join(FORMATS)}, separated by commas.")
    ] = "html,pdf",
) -> None:
    """Write a run's report again from its folder.

    Example:  kvbench report kvbench-runs/2026-11-30T16-25-00-G3 --format html,csv
    """
    from kvbench import journal
    from kvbench.cli import show
    from kvbench.judge.verdict import judge
    from kvbench.report.render import render

    formats = tuple(part.strip() for part in format.split(","))
    if unknown := [name for name in formats if name not in FORMATS]:
        raise UsageError(f"--format {unknown[0]}: no such format", f"any of {','.join(FORMATS)}")
    folder = journal.RunFolder.open(run)
    measurements = folder.measurements()
    verdict = folder.load_verdict() or judge(folder.plan, measurements)
    rendered = render(folder.path, folder.plan, measurements, verdict, formats)
    for path in rendered.files.values():
        show.say(str(show.short(path)))
    for message in rendered.messages:
        show.note(message)


@app.command("list")
def list_runs(folder: Folder = RUNS, json: Json = None) -> None:
    """List the runs of a folder, newest last.

    Example:  kvbench runs list --in kvbench-runs
    """
    from kvbench import journal
    from kvbench.cli import show

    if not folder.is_dir() and folder != RUNS:
        raise UsageError(f"{folder} is not a directory", "name the folder that holds the runs")
    rows = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if (path / "plan.json").is_file():
            try:
                rows.append(_row(journal.RunFolder.open(path)))
            except KvbenchError as error:
                rows.append({"run": str(path), "gate": "", "target": "", "steps": "", "verdict": error.message})
    table = show.columns("run", "gate", "target", "steps", "verdict")
    for row in rows:
        table.add_row(str(show.short(Path(row["run"]))), *list(row.values())[1:])
    if rows:
        show.print_table(table)
    else:
        show.say(f"no runs in {folder}")
    show.write_json(rows, json)


@app.command("show")
def show_run(run: Run, json: Json = None) -> None:
    """Show how far a run is and what its verdict says.

    Example:  kvbench runs show kvbench-runs/2026-11-30T16-25-00-G3
    """
    from kvbench import journal
    from kvbench.cli import show

    folder = journal.RunFolder.open(run)
    row = _row(folder)
    for key, value in row.items():
        show.say(f"{key}: {value}")
    for measurement in folder.measurements():
        if measurement.error:
            show.say(f"not measured: {measurement.step_id}: {measurement.error}")
    if verdict := folder.load_verdict():
        show.verdict(verdict)
    show.write_json(row, json)


@app.command("rm")
def remove_run(run: Run, yes: Yes = False) -> None:
    """Remove a run folder, and what it left on its target.

    Example:  kvbench runs rm kvbench-runs/2026-11-30T16-25-00-G3
    """
    from kvbench import journal, safety

    folder = journal.RunFolder.open(run)
    if not yes and not typer.confirm(f"Remove {run} with all its evidence?"):
        raise typer.Exit(Exit.INTERRUPTED)
    with folder.locked():
        for arm in folder.plan.target.arms:
            for node in arm.storage.every_node if arm.storage else ():
                safety.release(Path(node) / f"kvbench-{folder.path.name}")
        shutil.rmtree(folder.path)


def init(folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write it.")] = Path()) -> None:
    """Write a commented target.yaml to edit.

    Example:  kvbench init .
    """
    from kvbench.cli import show
    from kvbench.content import content_root

    path = folder / "target.yaml"
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a directory", "name the one to write target.yaml to")
    if path.exists():
        raise UsageError(f"{path} exists", "move it away first; kvbench does not overwrite it")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text((content_root() / "workloads" / "target-example.yaml").read_text())
    show.say(f"{path}: edit it, then: kvbench plan gate G3 --target {path}")


def _row(folder: "RunFolder") -> dict[str, str]:
    plan, measured = folder.plan, [m for m in folder.measurements() if not m.error]
    verdict = folder.load_verdict()
    return {
        "run": str(folder.path),
        "gate": plan.gate.id,
        "target": plan.target.name,
        "steps": f"{len(measured)}/{len(plan.steps)}",
        "verdict": verdict.headline if verdict else "not judged yet",
    }
