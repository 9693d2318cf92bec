"""What the terminal shows: a run as it goes, a plan, a verdict. Plain lines where there is no terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.measure import Measurement as Width
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from kvbench.model import Measurement, Outcome, Step, Verdict
from kvbench.outlook import Outlook
from kvbench.units import format_value

console = Console(highlight=False)

_FIGURES = {
    "ttft_p50_s": "TTFT p50",
    "output_tokens_per_s": "output",
    "ledger_ratio": "byte ledger",
    "read_bandwidth_bytes_per_s": "reads",
    "write_bandwidth_bytes_per_s": "writes",
    "steady_bandwidth_bytes_per_s": "steady",
    "merged_bandwidth_bytes_per_s": "reads, merged",
    "requests_failed": "failed requests",
}
_MOST_FINDINGS = 6
_STYLES = {Outcome.PASS: "bold green", Outcome.INCONCLUSIVE: "bold yellow", Outcome.FAIL: "bold red"}


@contextmanager
def aside() -> Iterator[None]:
    """What is for people goes to standard error, where standard output is for machines."""
    console.stderr = True
    try:
        yield
    finally:
        console.stderr = False


def say(text: str) -> None:
    """One line for people, never wrapped and never read as markup."""
    console.print(text, markup=False, soft_wrap=True)


def note(text: str) -> None:
    """A line about something that the reader should know."""
    say(f"note: {text}")


def columns(*left: str, right: Iterable[str] = ()) -> Table:
    """A table without lines: words to the left, which may wrap, and figures to the right, which do not."""
    table = Table(*left, box=None, pad_edge=False)
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def figure(value: float | None, unit: str) -> str:
    """A value in its unit, or – where there is none."""
    return "–" if value is None else format_value(value, unit)


def estimate(mean: float, half_width: float | None, ratio: float | None, unit: str) -> str:
    """A mean ± half of its interval, and × the ratio to the reference, where there are such."""
    spread = f" ± {format_value(half_width, unit)}" if half_width is not None else ""
    return f"{format_value(mean, unit)}{spread}" + (f"  ×{ratio:.3g}" if ratio is not None else "")


def print_table(table: Table) -> None:
    """To a terminal in columns that wrap; to a file or pipe at its natural width, so that a line stays whole."""
    natural = Width.get(console, console.options.update(max_width=10_000), table).maximum
    console.print()
    wide = Console(highlight=False, width=natural, stderr=console.stderr)
    (console if console.is_terminal else wide).print(table, markup=False)


def write_json(document: Any, file: str | None) -> None:
    """`--json FILE`: the same result for machines; `-` is standard output, which then holds nothing else."""
    if file is None:
        return
    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    if file == "-":
        sys.stdout.write(text)
    else:
        Path(file).write_text(text)


class Watch:
    """Shows a run: a live line on a terminal, plain lines elsewhere. A `run.Observer`."""

    def __init__(self, outlook: Outlook) -> None:
        self._outlook = outlook
        self._progress: Progress | None = None
        self._step = ""

    @contextmanager
    def live(self) -> Iterator[Watch]:
        """Keep the live line on screen for as long as the block lasts."""
        if not console.is_terminal:
            yield self
            return
        columns = (
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(),
            TimeElapsedColumn(), TextColumn("{task.fields[remaining]}"),
        )  # fmt: skip
        with Progress(*columns, console=console, transient=True) as self._progress:
            self._task = self._progress.add_task("", total=None, remaining="")
            yield self
        self._progress = None

    def began(self, step: Step, attempt: int, done: int, total: int) -> None:
        self._step = step.id if attempt == 1 else f"{step.id} (attempt {attempt})"
        if self._progress:
            self._progress.update(
                self._task, description=self._step, completed=done, total=total, remaining=str(self._outlook)
            )
        else:
            say(f"[{done + 1}/{total}] {self._step}  {self._outlook}")

    def progress(self, text: str, share: float | None) -> None:
        if self._progress:
            percent = "" if share is None else f" {100 * share:.0f} %"
            self._progress.update(self._task, description=f"{self._step}: {text}{percent}")

    def measured(self, step: Step, measurement: Measurement) -> None:
        self._outlook.measured(measurement)
        if measurement.error:
            say(f"  {step.id}: not measured: {measurement.error}")
            return
        figures = [
            f"{label} {format_value(metric.value, metric.unit)}"
            for name, label in _FIGURES.items()
            if (metric := measurement.metrics.get(name)) and metric.value is not None
        ]
        if figures:
            say(f"  {step.id}: {', '.join(figures)}")

    def note(self, text: str) -> None:
        note(text)


def short(path: Path) -> Path:
    """The path from here where it lies below here: what a person can read and copy."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def verdict(result: Verdict) -> None:
    """The verdict, its one sentence, and the first of the findings that made it."""
    say("")
    console.print(result.headline, style=_STYLES[result.outcome], markup=False)
    say(result.why)
    decisive = [finding for finding in result.findings if finding.outcome is result.outcome is not Outcome.PASS]
    order = ("evidence", "integrity", "performance")  # without its evidence, no performance figure says anything
    decisive.sort(key=lambda finding: order.index(finding.kind))
    for finding in decisive[:_MOST_FINDINGS]:
        say(f"  {finding.outcome}  {finding.check}: {finding.reason}")
    if len(decisive) > _MOST_FINDINGS:
        say(f"  … and {len(decisive) - _MOST_FINDINGS} more, all in the report")
    for warning in result.warnings:
        note(warning)
