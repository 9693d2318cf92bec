"""A comparison as one HTML page in the style of the reports: charts, all figures, and what was simulated."""

from __future__ import annotations

from collections.abc import Sequence

from kvbench.report import charts, html
from kvbench.report.document import Chart, Entry, Line, Table
from kvbench.sim.compare import Column, Estimate
from kvbench.sim.simulate import FIGURES, Task
from kvbench.units import format_bytes, format_rate, format_value

_CHARTS = (
    ("TTFT", "s", {"p50": "ttft_p50_s", "p90": "ttft_p90_s", "p99": "ttft_p99_s"}),
    ("Hits, of all whole pages", "share", {"all": "hits", "host": "host_hits", "flash": "flash_hits"}),
    ("Nodes and I/Os of a request", "count", {"nodes": "nodes_per_request", "I/Os": "ios_per_request"}),
    ("Load of the busiest node ÷ mean", "ratio", {"": "imbalance"}),
    ("Output throughput", "tok/s", {"": "output_tokens_per_s"}),
)


def page(columns: Sequence[Column], first: Task) -> str:
    """`first` is a task of the first column: its site and workload stand for all."""
    from markupsafe import Markup

    return html.filled(
        "simulation.html.j2",
        workload=first.source.trace or first.source.workload,
        site=first.site,
        charts=[_chart(columns, *chart) for chart in _CHARTS],
        draw=lambda chart: Markup(charts.svg(chart)),
        figures=_table(columns),
        facts=_facts(columns, first),
    )


def _chart(columns: Sequence[Column], title: str, unit: str, names: dict[str, str]) -> Chart:
    """Points with error bars, not joined: columns are no axis."""
    lines = tuple(
        _point(label * (place == 1), style, place, column.figures[name])
        for style, (label, name) in enumerate(names.items())
        for place, column in enumerate(columns, start=1)
    )
    labels = "; ".join(f"{place}: {column.label}" for place, column in enumerate(columns, start=1))
    seeds = columns[0].figures["requests"].n
    note = f"{labels}. Mean and 95 % interval over {seeds} seeds."
    ticks = tuple(float(place) for place in range(1, len(columns) + 1))
    return Chart(title, f"{title} of {labels}", "column of the table", f"{title}, {unit}", lines, note, x_ticks=ticks)


def _point(label: str, style: int, place: int, estimate: Estimate) -> Line:
    mean, half = estimate.mean, estimate.half_width or 0.0
    return Line(label, style, (float(place),), (mean,), "line", (mean - half,), (mean + half,))


def _table(columns: Sequence[Column]) -> Table:
    rows = [
        (Entry(name, code=True), *(_entry(column, name, unit, column is columns[0]) for column in columns))
        for name, unit in FIGURES.items()
        if any(column.figures[name].mean for column in columns)
    ]
    headings = tuple(f"{number}: {column.label}" for number, column in enumerate(columns, start=1))
    note = "Mean ± half of its 95 % interval over seeds. × is the ratio to the first column, seed by seed."
    return Table("All figures, simulated", ("figure", *headings), tuple(rows), note)


def _entry(column: Column, name: str, unit: str, is_reference: bool) -> Entry:
    shown = "ratio" if unit == "count" and name != "requests" else unit
    figure, ratio = column.figures[name], column.ratios[name]
    spread = f" ± {format_value(figure.half_width, shown)}" if figure.half_width else ""
    change = f"× {ratio.ratio:.3g}" if ratio and not is_reference else ""
    return Entry(format_value(figure.mean, shown) + spread, n=figure.n, note=change, numeric=True)


def _facts(columns: Sequence[Column], first: Task) -> list[tuple[str, str]]:
    site, node = first.site, first.site.node
    page_bytes = site.cost().shape.kv_bytes_per_token * site.page_tokens
    return [
        ("Engines", f"{site.instances} × {site.model} on {site.tensor_parallel} × {site.accelerator}, {site.engine}"),
        ("Page", f"{site.page_tokens} tokens, {format_bytes(page_bytes)} over all ranks"),
        ("Node", f"reads {format_rate(node.read_rate)}, writes {format_rate(node.write_rate)}"),
        ("Requests", f"{columns[0].figures['requests'].mean:,.0f}"),
        ("Seeds", f"{columns[0].figures['requests'].n}, from {first.seed} on"),
    ]
