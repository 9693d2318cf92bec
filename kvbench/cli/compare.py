"""`kvbench compare`: runs side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvbench.cli.options import Json
from kvbench.errors import UsageError

if TYPE_CHECKING:
    from kvbench.compare import Comparison, Figure, Run


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders; the first is the reference.")],
    json: Json = None,
) -> None:
    """Set runs side by side, set-up and figures.

    What differs in their set-up comes first, then every judged figure with n and its 95 % interval.

    Example:  kvbench compare kvbench-runs/2026-11-30T16-25-00-G3 kvbench-runs/2026-12-01T09-00-00-G3
    """
    from dataclasses import asdict

    from kvbench import compare as core
    from kvbench.cli import show

    if len(runs) < 2:
        raise UsageError("one run has nothing to be compared with", "kvbench compare RUN RUN")
    comparison = core.compare([_run(path) for path in runs])
    for number, name in enumerate(comparison.runs, start=1):
        show.say(f"run {number}: {name}")
    _say_differences(comparison)
    _say_figures(comparison)
    show.write_json(asdict(comparison), json)


def _run(path: Path) -> "Run":
    from kvbench import content, journal
    from kvbench.compare import Run

    folder = journal.RunFolder.open(path)
    files = {str(file.relative_to(path / "content")): file for file in sorted((path / "content").rglob("*.yaml"))}
    digests = {name: content.digest({name: file.read_bytes()}) for name, file in files.items()}
    return Run(str(path), folder.plan, folder.measurements(), digests)


def _say_differences(comparison: "Comparison") -> None:
    from kvbench.cli import show

    if not comparison.differences:
        show.say("nothing differs in the set-up")
        return
    table = show.columns("differs in the set-up", *_headings(comparison))
    for difference in comparison.differences:
        table.add_row(difference.what, *(value or "–" for value in difference.values))
    show.print_table(table)


def _say_figures(comparison: "Comparison") -> None:
    from kvbench.cli import show

    table = show.columns("step", "cell", "arm", "figure", *_headings(comparison))
    judged = [row for row in comparison.rows if row.judged]
    for row in judged:
        cells = [_cell(figure, row.unit, number) for number, figure in enumerate(row.figures)]
        table.add_row(row.kind, row.cell, row.arm, row.metric, *cells)
    show.print_table(table)
    show.say("mean ± half of its 95 % interval, over n rounds; × is the ratio to run 1")
    if rest := len(comparison.rows) - len(judged):
        show.say(f"{rest} figures that no check looks at are in --json FILE")


def _headings(comparison: "Comparison") -> list[str]:
    return [f"run {number}" for number, _ in enumerate(comparison.runs, start=1)]


def _cell(figure: "Figure | None", unit: str, number: int) -> str:
    from kvbench.cli import show

    if figure is None:
        return "–"
    half_width = None if figure.high is None else figure.high - figure.mean
    shown = show.estimate(figure.mean, half_width, figure.ratio if number else None, unit)
    return f"{shown}  n={figure.n}"
