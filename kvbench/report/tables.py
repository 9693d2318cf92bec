"""Tables over measurements: one row a step, or one row a metric. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kvbench.model import Measurement
from kvbench.report.document import Entry, Table, Taken
from kvbench.report.figures import ABSENT, code, figure, text

Columns = Sequence[tuple[str, str]]  # heading, metric
NOT_MEASURED = ("No step of this kind was measured.",)


def notes_on(taken: Taken) -> tuple[str, ...]:
    """What the steps of storage wrote; or that none was measured."""
    measurements = [measured for _, measured in taken]
    if not measurements:
        return NOT_MEASURED
    shares = dict.fromkeys(m.facts["compressible_share"] for m in measurements if "compressible_share" in m.facts)
    return tuple(
        f"Written data: {f'{100 * share:.0f} %' if share else 'nothing'} of a block compresses away, and none repeats."
        for share in shares
    )


def told_by(taken: Taken) -> tuple[str, ...]:
    """The raw files of steps whose tables name none in their rows, as a note."""
    sources = dict.fromkeys(metric.source for _, measured in taken for metric in measured.metrics.values())
    return (f"From {', '.join(filter(None, sources))}.",) if any(sources) else ()


def metrics_by_step(title: str, note: str, columns: Columns, taken: Taken) -> Table | None:
    """A row a step, a column a metric, and where the row's figures come from; None when there is no figure at all.

    A metric without any figure has no column. A step that was not measured keeps its row, with the reason in place of
    its figures. Where every row has one n, it has a column; else it stands with each figure.
    """
    kept = [(heading, name) for heading, name in columns if any(has_figure(measured, name) for _, measured in taken)]
    if not kept:
        return None
    figures = [[figure(measured.metrics.get(name), name) for _, name in kept] for _, measured in taken]
    counts = [{entry.n for entry in row if entry.n is not None} for row in figures]
    share_n = all(len(found) <= 1 for found in counts)
    rows = [
        (
            text(step.round or ABSENT),
            text(step.arm or ABSENT),
            *([Entry(str(max(found, default=ABSENT)), numeric=True)] if share_n else []),
            *([replace(entry, n=None) for entry in row] if share_n else row),
            source_of(measured, row),
        )
        for (step, measured), row, found in zip(taken, figures, counts, strict=True)
    ]
    headings = ("Round", "Arm", *(["n"] if share_n else []), *(heading for heading, _ in kept), "Source")
    return Table(title, headings, tuple(rows), note)


def has_figure(measured: Measurement, name: str) -> bool:
    return name in measured.metrics and measured.metrics[name].value is not None


def source_of(measured: Measurement, row: Iterable[Entry]) -> Entry:
    """Where the figures of a step's row come from, or why it has none."""
    if measured.error:
        return Entry("not measured", note=measured.error)
    return code("\n".join(dict.fromkeys(entry.source for entry in row if entry.source)) or ABSENT)


def all_metrics(title: str, taken: Taken) -> Table:
    """Every metric of every step, a row each: for steps that have no tables of their own."""
    rows = [
        (code(step.id), text(name), figure(metric, name), code(metric.source or ABSENT))
        for step, measured in taken
        for name, metric in measured.metrics.items()
    ]
    return Table(title, ("Step", "Metric", "Value", "Source"), tuple(rows))
