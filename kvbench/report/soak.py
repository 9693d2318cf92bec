"""Sections of the slices of a soak: its hours, where the time went, what faults did, how the drives fared. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median

from kvbench import lasting
from kvbench.model import GateStep, Measurement
from kvbench.report.document import Chart, Entry, Line, Run, Section, Table, Taken
from kvbench.report.figures import ABSENT, figure, number, plural, text
from kvbench.report.tables import metrics_by_step, notes_on
from kvbench.units import format_seconds, format_value

_SLICE_COLUMNS = (
    ("Read", "read_bandwidth_bytes_per_s"),
    ("Write", "write_bandwidth_bytes_per_s"),
    ("Page p50", "read_latency_p50_s"),
    ("Page p99", "read_latency_p99_s"),
    ("Longest stall", "longest_stall_s"),
    ("Duty", "duty_share"),
    ("Wrong pages", "content_mismatches"),
    ("I/O errors", "io_errors"),
    ("Byte ledger", "ledger_ratio"),
    ("Hottest", "temperature_max_c"),
)
_WORST: Mapping[str, Callable[[Sequence[float]], float]] = {
    "longest_stall_s": max, "duty_share": min, "content_mismatches": sum, "io_errors": sum, "temperature_max_c": max,
}  # fmt: skip
_DRIVES = (
    ("Media errors", "media_errors_total"),
    ("Wear", "wear_share"),
    ("Bytes written in its life", "lifetime_written_bytes"),
)


def sections(gate_step: GateStep, run: Run) -> list[Section]:
    """One section for the slices of a gate step; none for slices with faults where the target has no hook for them."""
    taken = run.steps(gate_step.id)
    if not taken:
        return [] if gate_step.hook else [Section(gate_step.id, gate_step.why, notes=("No slice was measured.",))]
    spans = lasting.spans(run.measurements.values())
    hourly = lasting.is_hourly(spans.values())
    at_s = {step.id: spans[step.id].start_s for step, _ in taken}
    slices = _by_hour(taken, at_s) if hourly else metrics_by_step("Slices", "", _SLICE_COLUMNS, taken)
    tables = (_faults(taken), None if gate_step.hook else _account(run), slices, _drives(taken))
    charts = [_chart(plotted, taken, at_s, hourly) for plotted in _PLOTTED if not gate_step.hook]
    title = f"Slices of {format_seconds(run.plan.slice_s)}: {gate_step.id}"
    return [
        Section(
            title,
            gate_step.why,
            charts=tuple(chart for chart in charts if chart.lines),
            tables=tuple(filter(None, tables)),
            notes=notes_on(taken),
        )
    ]


# ---------------------------------------------------------------- the course


@dataclass(frozen=True, slots=True)
class _Plotted:
    """A chart of a few metrics, as label and name; values are divided by `scale` for the y axis."""

    title: str
    y_label: str
    scale: float
    metrics: tuple[tuple[str, str], ...]


_PLOTTED = (
    _Plotted(
        "Bandwidth over the run", "bandwidth (GB/s)", 1e9,
        (("read", "read_bandwidth_bytes_per_s"), ("write", "write_bandwidth_bytes_per_s")),
    ),
    _Plotted(
        "Latency of a page over the run", "read latency (ms)", 1e-3,
        (("p50", "read_latency_p50_s"), ("p99", "read_latency_p99_s")),
    ),
)  # fmt: skip


def _chart(plotted: _Plotted, taken: Taken, at_s: dict[str, float], hourly: bool) -> Chart:
    """Every slice as a point where they are few, hourly medians where they are many."""
    unit, unit_s = ("hours", 3600.0) if hourly else ("minutes", 60.0)
    lines = []
    for style, (label, name) in enumerate(plotted.metrics):
        known = [(at_s[step.id], value) for step, measured in taken if (value := _value(measured, name)) is not None]
        times_s, values = [at for at, _ in known], [value for _, value in known]
        points = lasting.hourly_medians(times_s, values) if hourly else known
        x, y = tuple(at / unit_s for at, _ in points), tuple(value / plotted.scale for _, value in points)
        lines += [Line(label, style, x, y)] if points else []
    what = "hourly medians" if hourly else "single slices"
    return Chart(
        title=plotted.title,
        alt=f"{plotted.title}: {what} of {plural(len(taken), 'slice')}.",
        x_label=f"time of the run ({unit})",
        y_label=plotted.y_label,
        lines=tuple(lines),
        note=f"{what[0].upper()}{what[1:]}; n = {plural(len(taken), 'slice')}.",
    )


def _by_hour(taken: Taken, at_s: dict[str, float]) -> Table:
    """A row an hour: medians, but sums of what is counted, and the worst of what is limited."""
    hours = sorted({int(at // 3600) for at in at_s.values()})
    rows = []
    for hour in hours:
        mine = [measured for step, measured in taken if int(at_s[step.id] // 3600) == hour]
        rows.append(
            (text(hour + 1), Entry(str(len(mine)), numeric=True), *(_of_hour(mine, n) for _, n in _SLICE_COLUMNS))
        )
    headings = ("Hour", "n", *(heading for heading, _ in _SLICE_COLUMNS))
    note = "Medians of the hour's slices; of stalls, duty and temperature the worst, of pages and errors the sum."
    return Table("Hour by hour", headings, tuple(rows), note)


def _of_hour(mine: Sequence[Measurement], name: str) -> Entry:
    values = [value for measured in mine if (value := _value(measured, name)) is not None]
    if not values:
        return figure(None)
    fold = _WORST.get(name, median)
    unit = next(measured.metrics[name].unit for measured in mine if name in measured.metrics)
    return Entry(number(fold(values), unit), numeric=True)


def _account(run: Run) -> Table:
    """Where the run's time went; the rows add up to its span."""
    kinds = {step.id: step.kind for step in run.plan.steps}
    account = lasting.account(list(run.measurements.values()), kinds)
    short_s = sum(gap.length_s for gap in account.gaps if not gap.is_outage)
    parts = [*account.by_kind_s.items(), ("gaps up to a minute", short_s)]
    parts += [(f"without service, after {gap.after}", gap.length_s) for gap in account.outages]
    rows = [
        (text(name), *_time(seconds, account.span_s)) for name, seconds in (*parts, ("the whole run", account.span_s))
    ]
    return Table(
        "Where the time went", ("What", "Time", "Share"), tuple(rows), "Gaps above 60 s count as unavailability."
    )


def _time(seconds: float, span_s: float) -> tuple[Entry, Entry]:
    share = format_value(seconds / span_s, "share") if span_s else ABSENT
    return Entry(format_seconds(seconds), numeric=True), Entry(share, numeric=True)


# ---------------------------------------------------------------- faults and drives


def _faults(taken: Taken) -> Table | None:
    rows = []
    for step, measured in taken:
        for fault in measured.facts.get("faults", ()):
            back_s = fault["recovery_s"]
            rows.append(
                (
                    text(fault["name"]),
                    text({"hook": "hook of the target", "mark": "marked by the operator"}[fault["kind"]]),
                    Entry(f"{step.id}, {format_seconds(fault['at_s'])}", code=True),
                    Entry(format_seconds(fault["outage_s"]), numeric=True),
                    Entry(ABSENT if back_s is None else format_seconds(back_s), numeric=True),
                    figure(measured.metrics.get("content_mismatches")),
                    figure(measured.metrics.get("io_errors")),
                )
            )
    headings = ("Fault", "Caused by", "At", "Outage", "Recovery", "Wrong pages", "I/O errors")
    note = (
        "Outage: the longest time without a page served from then on. Recovery: until bandwidth was back within 10 % "
        "of its median before; a dash where that was not within the slice."
    )
    return Table("Faults", headings, tuple(rows), note) if rows else None


def _drives(taken: Taken) -> Table | None:
    """What the drives told of themselves at the end of the first slice and of the last."""
    ends = (taken[0][1], taken[-1][1])
    rows = [(text(label), *(figure(one.metrics.get(name)) for one in ends)) for label, name in _DRIVES]
    told = any(entry.text != ABSENT for entry in chain.from_iterable(row[1:] for row in rows))
    return Table("Drives", ("What", "After the first slice", "After the last"), tuple(rows)) if told else None


def _value(measured: Measurement, name: str) -> float | None:
    metric = measured.metrics.get(name)
    return metric.value if metric else None
