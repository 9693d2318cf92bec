"""Sections of the storage by itself: pages by size and queue depth, and rounds until they are steady. Pure."""

from __future__ import annotations

from kvbench.model import GateStep, Measurement, Step
from kvbench.report.document import Chart, Entry, Line, Run, Section, Table, Taken
from kvbench.report.figures import figure, plural, text
from kvbench.report.tables import Columns, has_figure, notes_on, source_of
from kvbench.units import format_bytes

_TICKS = 10  # of rounds; more than these are not all marked
_PAGE_COLUMNS = (
    ("Read", "read_bandwidth_bytes_per_s"),
    ("Read p50", "read_latency_p50_s"),
    ("Read p99", "read_latency_p99_s"),
    ("Write", "write_bandwidth_bytes_per_s"),
    ("Write p50", "write_latency_p50_s"),
    ("Write p99", "write_latency_p99_s"),
    ("Drain", "drain_s"),
    ("p99 ÷ alone", "p99_inflation"),
    ("Bandwidth lost", "bandwidth_loss_share"),
    ("Serial", "serial_bandwidth_bytes_per_s"),
    ("Parallel", "parallel_bandwidth_bytes_per_s"),
    ("Merged", "merged_bandwidth_bytes_per_s"),
    ("Ledger", "ledger_ratio"),
    ("Wrong pages", "content_mismatches"),
)
_STEADY_COLUMNS = (
    ("Steady bandwidth", "steady_bandwidth_bytes_per_s"),
    ("Rounds", "rounds_run"),
    ("Range", "range_share"),
    ("Slope", "slope_share"),
    ("Written before", "preconditioned_bytes"),
)
_OVER_DEPTH = (
    ("Read bandwidth", "read_bandwidth_bytes_per_s", "read bandwidth (GB/s)", 1e9),
    ("Read latency p99", "read_latency_p99_s", "latency of a page, p99 (ms)", 1e-3),
)


def pages(gate_step: GateStep, run: Run) -> list[Section]:
    """Figures of every page size and queue depth, and how bandwidth and tail latency move with the depth."""
    taken = run.steps(gate_step.id)
    several_depths = len({step.params["concurrency"] for step, _ in taken}) > 1
    charts = [_over_depth(*one, taken) for one in _OVER_DEPTH] if several_depths else []
    return [
        Section(
            f"Pages: {gate_step.id}",
            gate_step.why,
            charts=tuple(chart for chart in charts if chart.lines),
            tables=(_table("Every page size and queue depth", _PAGE_COLUMNS, taken),) if taken else (),
            notes=notes_on(taken),
        )
    ]


def _over_depth(title: str, metric: str, y_label: str, scale: float, taken: Taken) -> Chart:
    arms = list(dict.fromkeys(step.arm for step, _ in taken))
    sizes = sorted({_page_bytes(step) for step, _ in taken})
    lines = []
    for style, (size, arm) in enumerate((size, arm) for size in sizes for arm in arms):
        points = sorted(
            (float(step.params["concurrency"]), found.value / scale)
            for step, measured in taken
            if step.arm == arm
            and _page_bytes(step) == size
            and (found := measured.metrics.get(metric)) is not None
            and found.value is not None
        )
        if points:
            label = _label(size, taken) if len(arms) == 1 else f"{_label(size, taken)}, {arm}"
            lines.append(Line(label, style, tuple(x for x, _ in points), tuple(y for _, y in points)))
    return Chart(
        title=title,
        alt=f"{title} over queue depth, a line for every page size.",
        x_label="queue depth (pages under way at once)",
        y_label=y_label,
        lines=tuple(lines),
        note="Cold, every page read once; a point is one measurement, its pages are counted in the table.",
        x_ticks=tuple(sorted({x for line in lines for x in line.x})),
    )


def steady(gate_step: GateStep, run: Run) -> list[Section]:
    """Rounds of a profile with the window in which they were steady."""
    taken = run.steps(gate_step.id)
    charts = [_rounds(step, measured, run) for step, measured in taken]
    about = [f"{step.arm}: {measured.facts['purge']}." for step, measured in taken if "purge" in measured.facts]
    return [
        Section(
            f"Steady state: {gate_step.params.get('profile', gate_step.id)}",
            gate_step.why,
            charts=tuple(chart for chart in charts if chart is not None),
            tables=(_table("Preconditioned, then driven round by round", _STEADY_COLUMNS, taken),) if taken else (),
            notes=(*dict.fromkeys(about), *notes_on(taken)),
        )
    ]


def _rounds(step: Step, measured: Measurement, run: Run) -> Chart | None:
    rows = [row for row in run.series.rounds.get(step.id, ()) if row["bandwidth_bytes_per_s"] is not None]
    if not rows:
        return None
    every = 1 if len(rows) <= _TICKS else 5
    window, reached = measured.facts.get("window"), measured.facts.get("reached")
    return Chart(
        title=f"Bandwidth by round, {step.arm}",
        alt=f"Bandwidth of {plural(len(rows), 'round')} on arm {step.arm}.",
        x_label="round",
        y_label="bandwidth (GB/s)",
        lines=(
            Line(
                "", 0, tuple(float(row["round"]) for row in rows),
                tuple(row["bandwidth_bytes_per_s"] / 1e9 for row in rows),
            ),
        ),
        note="Steady: a range of at most 20 % of the mean and a slope of at most 10 %, over five rounds (SNIA). "
        + ("Shaded: the window that was." if reached else "No window was; shaded: the last one looked at."),
        x_ticks=tuple(map(float, range(every, len(rows) + 1, every))),
        band=(float(window[0]), float(window[1])) if window else None,
        band_label="steady window" if reached else "not steady",
    )  # fmt: skip


def _table(title: str, columns: Columns, taken: Taken) -> Table:
    """A row a step; a metric that no step has a figure for has no column."""
    kept = [(heading, name) for heading, name in columns if any(has_figure(measured, name) for _, measured in taken)]
    in_cells = any(step.cell for step, _ in taken)
    rows = []
    for step, measured in taken:
        figures = [figure(measured.metrics.get(name), name) for _, name in kept]
        cell = (_count(_page_bytes(step)), _count(step.params["concurrency"])) if in_cells else ()
        rows.append((text(step.arm), *cell, *figures, source_of(measured, figures)))
    headings = ("Arm", *(("Page bytes", "Depth") if in_cells else ()), *(heading for heading, _ in kept), "Source")
    return Table(title, headings, tuple(rows), "")


def _count(number: int) -> Entry:
    return Entry(f"{number:,}", numeric=True)


def _label(page_bytes: int, taken: Taken) -> str:
    """A page size as the cells name it; that of the model with its bytes."""
    name = next(step.cell.partition("-")[0] for step, _ in taken if _page_bytes(step) == page_bytes)
    return f"model, {format_bytes(page_bytes)}" if name == "model" else name


def _page_bytes(step: Step) -> int:
    return int(step.params.get("page_bytes", 0))
