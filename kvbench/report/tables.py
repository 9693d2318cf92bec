"""Tables over measurements: one row a step, or one row a metric. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvbench.model import Measurement, Step
from kvbench.report.document import Entry, Table
from kvbench.report.figures import ABSENT, code, figure, text

Columns = Sequence[tuple[str, str]]  # heading, metric


def metrics_by_step(title: str, note: str, columns: Columns, taken: Iterable[tuple[Step, Measurement]]) -> Table:
    """A row a step, a column a metric, and where the row's figures come from. Columns without any figure are left out.

    A step that was not measured keeps its row, with the reason in place of its figures.
    """
    taken = list(taken)
    kept = [(heading, name) for heading, name in columns if any(_has(measured, name) for _, measured in taken)]
    rows = tuple((*_who(step), *_figures(measured, kept)) for step, measured in taken)
    return Table(title, ("Round", "Arm", *(heading for heading, _ in kept), "Source"), rows, note)


def _has(measured: Measurement, name: str) -> bool:
    return name in measured.metrics and measured.metrics[name].value is not None


def _who(step: Step) -> tuple[Entry, Entry]:
    return text(step.round or ABSENT), text(step.arm or ABSENT)


def _figures(measured: Measurement, kept: Columns) -> list[Entry]:
    entries = [figure(measured.metrics.get(name), name) for _, name in kept]
    sources = list(dict.fromkeys(entry.source for entry in entries if entry.source))
    if measured.error:
        return [*entries, Entry("not measured", note=measured.error)]
    return [*entries, code("\n".join(sources) or ABSENT)]


def all_metrics(title: str, taken: Iterable[tuple[Step, Measurement]]) -> Table:
    """Every metric of every step, a row each: for steps that have no tables of their own."""
    rows = [
        (code(step.id), text(name), figure(metric, name), code(metric.source or ABSENT))
        for step, measured in taken
        for name, metric in measured.metrics.items()
    ]
    return Table(title, ("Step", "Metric", "Value", "Source"), tuple(rows))
