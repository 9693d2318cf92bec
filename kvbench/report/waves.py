"""Sections of a wave step: one per cell, and one of how the arms scale over concurrency. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from kvbench.model import GateStep, Step
from kvbench.report.document import Chart, Entry, Line, Run, Section, Table, Taken
from kvbench.report.figures import figure, interval_text, number, plural, text
from kvbench.report.tables import metrics_by_step
from kvbench.stats import RatioInterval, paired_log_ratio

_NAMED_ROUNDS = 4  # more lines than these cannot be told apart, and are drawn alike

_TABLES: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Requests of every round",
        "Failed requests count against the verdict; they never vanish from it.",
        (
            ("TTFT p50", "ttft_p50_s"),
            ("TTFT p90", "ttft_p90_s"),
            ("TTFT p99", "ttft_p99_s"),
            ("TTFT max", "ttft_max_s"),
            ("TPOT p50", "tpot_p50_s"),
            ("Throughput", "output_tokens_per_s"),
            ("OK", "requests_ok"),
            ("Failed", "requests_failed"),
        ),
    ),
    (
        "Byte ledger of every round",
        "What the device read, by its own counters, against what the hits account for.",
        (
            ("Device read", "device_read_bytes"),
            ("Expected", "expected_read_bytes"),
            ("Ratio", "ledger_ratio"),
            ("Stored ÷ due", "stored_ratio"),
            ("Idle reads", "idle_read_share"),
            ("Resident before", "residency_before_share"),
            ("Resident after", "residency_after_share"),
            ("Wave bandwidth", "wave_bandwidth_bytes_per_s"),
            ("Peak, 1 s", "peak_bandwidth_bytes_per_s"),
        ),
    ),
    (
        "Engine and client in every round",
        "Whether the requests hit what they should have, and whether the client or the machine was in the way.",
        (
            ("Hits short", "hit_shortfall_requests"),
            ("Hit ratio", "external_hit_ratio"),
            ("Wrong pages", "content_mismatches"),
            ("Host-tier hits", "host_tier_hits"),
            ("Allocation failures", "allocation_failures"),
            ("Preemptions", "preemptions"),
            ("Dispatch delay", "dispatch_delay_max_s"),
            ("Client error", "client_error_share"),
            ("CPU pressure", "cpu_pressure_share"),
        ),
    ),
)


def sections(gate_step: GateStep, run: Run) -> list[Section]:
    """A section for every cell of the step, then the scaling over concurrency where there are several."""
    taken = run.steps(gate_step.id)
    built = [_cell(gate_step, cell, of_cell, run) for cell, of_cell in run.cells(gate_step.id).items()]
    if len({_concurrency(step) for step, _ in taken}) > 1:
        built.append(_scaling(gate_step, taken, run))
    return built


def _cell(gate_step: GateStep, cell: str, taken: Taken, run: Run) -> Section:
    ttft = _ttft_chart(taken, run)
    took_part = {step.arm for step, _ in taken}
    reads = {
        arm.name: _bandwidth_chart(arm.name, taken, run)
        for arm in run.plan.target.arms
        if arm.kv == "storage" and arm.name in took_part
    }
    absent = [] if ttft else ["TTFT of single requests: series not available."]
    absent += [f"Bandwidth over time of {arm}: series not available." for arm, chart in reads.items() if not chart]
    return Section(
        title=_title(gate_step, cell, taken, run),
        intro=gate_step.why,
        charts=tuple(filter(None, (ttft, *reads.values()))),
        tables=tuple(filter(None, (metrics_by_step(*one, taken) for one in _TABLES))),
        notes=tuple(absent),
    )


def _title(gate_step: GateStep, cell: str, taken: Taken, run: Run) -> str:
    if not cell:
        return gate_step.id
    alike = [step for step in run.plan.gate.steps if step.probe == gate_step.probe]
    of_step = f" of {gate_step.id}" if len(alike) > 1 else ""
    return f"Cell {cell}{of_step}: {plural(_concurrency(taken[0][0]), 'session')} at once"


# ---------------------------------------------------------------- charts of a cell


def _ttft_chart(taken: Taken, run: Run) -> Chart | None:
    """Every request's TTFT as a point, the arms side by side in each round, with a bar at the round's median."""
    lines: list[Line] = []
    counted = 0
    arms = _arms(run)
    for style, arm in enumerate(arms):
        middle = 0.3 * (style - (len(arms) - 1) / 2)
        x: list[float] = []
        y: list[float] = []
        medians: list[tuple[float, float]] = []
        for step, _ in (pair for pair in taken if pair[0].arm == arm):
            values = ttfts_s(run.series.requests.get(step.id, ()))
            x += [step.round + middle + 0.03 * (index % 5 - 2) for index in range(len(values))]
            y += values
            medians += [(step.round + middle, statistics.median_low(values))] if values else []
        if y:
            counted += len(y)
            lines.append(Line(arm, style, tuple(x), tuple(y), "points"))
            lines.append(Line("", style, tuple(at for at, _ in medians), tuple(m for _, m in medians), "medians"))
    if not lines:
        return None
    return Chart(
        title="TTFT by arm and round",
        alt=f"Time to first token of every request, by arm and round; {plural(counted, 'request')}.",
        x_label="round",
        y_label="TTFT (s)",
        lines=tuple(lines),
        note=f"Every point is a request, every bar a round's median; n = {counted} requests.",
        x_ticks=tuple(sorted({float(step.round) for step, _ in taken})),
    )


def ttfts_s(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """TTFT in seconds of the requests that have a first token."""
    stamps = ((row.get("due_ns"), row.get("first_token_ns")) for row in rows)
    return [(first - due) / 1e9 for due, first in stamps if due is not None and first is not None]


def _bandwidth_chart(arm: str, taken: Taken, run: Run) -> Chart | None:
    """Bytes per second that the arm's devices read, every round a line from its own first due moment on."""
    lines: list[Line] = []
    wave_ends: list[float] = []
    for step, _ in (pair for pair in taken if pair[0].arm == arm):
        wave = _wave_ns(run.series.requests.get(step.id, ()))
        samples = _read_rates(run.series.devices.get(step.id, ()))
        if wave is None or not samples:
            continue
        wave_s = (wave[1] - wave[0]) / 1e9
        around_s = max(2.0, 0.5 * wave_s)
        points = [((at - wave[0]) / 1e9, rate / 1e9) for at, rate in samples.items()]
        points = [(at, rate) for at, rate in points if -around_s <= at <= wave_s + around_s]
        wave_ends.append(wave_s)
        lines.append(Line(f"round {step.round}", len(lines), *_columns(points), draw="steps"))
    if not lines:
        return None
    if len(lines) > _NAMED_ROUNDS:
        lines = [replace(line, style=0, label="" if place else "one round") for place, line in enumerate(lines)]
    return Chart(
        title=f"Device reads, {arm}",
        alt=f"Bytes read per second by the devices of arm {arm} around the wave, {plural(len(lines), 'round')}.",
        x_label="time since the first request was due (s)",
        y_label="device reads (GB/s)",
        lines=tuple(lines),
        note=f"Shaded: the wave, up to the last first token of the slowest round; n = {plural(len(lines), 'round')}.",
        band=(0.0, max(wave_ends)),
        band_label="wave",
    )


def _wave_ns(rows: Sequence[Mapping[str, Any]]) -> tuple[int, int] | None:
    """First due moment and last first token of a wave."""
    due = [row["due_ns"] for row in rows if row.get("due_ns") is not None]
    first = [row["first_token_ns"] for row in rows if row.get("first_token_ns") is not None]
    return (min(due), max(first)) if due and first else None


def _read_rates(rows: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Read bytes per second of all devices together over the time since the sample before, by time of sample."""
    totals: dict[int, int] = {}
    for row in rows:
        if row.get("at_ns") is not None and row.get("read_bytes") is not None:
            totals[row["at_ns"]] = totals.get(row["at_ns"], 0) + row["read_bytes"]
    samples = sorted(totals.items())
    return {at: (read - before) * 1e9 / (at - since) for (since, before), (at, read) in pairwise(samples)}


# ---------------------------------------------------------------- scaling over concurrency


@dataclass(frozen=True, slots=True)
class _Scaled:
    title: str
    metric: str
    unit: str
    y_label: str
    scale: float = 1.0


_SCALED = (
    _Scaled("TTFT p50", "ttft_p50_s", "s", "TTFT p50 (s)"),
    _Scaled("Output throughput", "output_tokens_per_s", "tok/s", "output throughput (tok/s)"),
    _Scaled("Wave bandwidth", "wave_bandwidth_bytes_per_s", "B/s", "wave bandwidth (GB/s)", 1e9),
)


def _scaling(gate_step: GateStep, taken: Taken, run: Run) -> Section:
    charts = [_scaling_chart(scaled, taken, run) for scaled in _SCALED]
    return Section(
        title="Scaling over concurrency",
        intro="How the figures move as more sessions return at once. Geometric mean of the rounds, with Student's t at "
        "95 % on the logarithms.",
        charts=tuple(chart for chart in charts if chart.lines),
        tables=(_scaling_table(taken, run),),
    )


def _scaling_chart(scaled: _Scaled, taken: Taken, run: Run) -> Chart:
    lines = []
    rounds: set[int] = set()
    for style, arm in enumerate(_arms(run)):
        by_concurrency = _by_concurrency(arm, scaled.metric, taken)
        if not by_concurrency:
            continue
        means = [_mean([value / scaled.scale for value in values]) for values in by_concurrency.values()]
        rounds |= {mean.n for mean in means}
        ends = tuple(mean.low or mean.ratio for mean in means), tuple(mean.high or mean.ratio for mean in means)
        x = tuple(map(float, by_concurrency))
        lines.append(Line(arm, style, x, tuple(mean.ratio for mean in means), "line", *ends))
    counted = "–".join(str(count) for count in sorted({min(rounds), max(rounds)})) if rounds else "0"
    return Chart(
        title=scaled.title,
        alt=f"{scaled.title} of every arm over concurrency.",
        x_label="concurrency (sessions at once)",
        y_label=scaled.y_label,
        lines=tuple(lines),
        note=f"Mean of the rounds with its 95 % interval; n = {counted} rounds a point.",
        x_ticks=tuple(sorted({x for line in lines for x in line.x})),
    )


def _scaling_table(taken: Taken, run: Run) -> Table:
    rows = []
    for concurrency in sorted({_concurrency(step) for step, _ in taken}):
        for arm in _arms(run):
            found = [(_by_concurrency(arm, one.metric, taken).get(concurrency, []), one.unit) for one in _SCALED]
            rows.append((text(concurrency), text(arm), *(_mean_entry(values, unit) for values, unit in found)))
    return Table(
        "Mean of the rounds",
        ("Concurrency", "Arm", *(one.title for one in _SCALED)),
        tuple(rows),
        "The 95 % interval stands beneath; n counts rounds. Sources: the tables of the cells above.",
    )


def _mean_entry(values: list[float], unit: str) -> Entry:
    if not values:
        return figure(None)
    mean = _mean(values)
    interval = interval_text((mean.low, mean.high), unit) if mean.low and mean.high else "one round: no interval"
    return Entry(number(mean.ratio, unit), mean.n, note=interval, numeric=True)


def _mean(values: list[float]) -> RatioInterval:
    """Geometric mean of the rounds, as their ratio to 1."""
    return paired_log_ratio(values, [1.0] * len(values))


def _by_concurrency(arm: str, name: str, taken: Taken) -> dict[int, list[float]]:
    """The metric in every round that has it, by concurrency in rising order."""
    found: dict[int, list[float]] = {}
    for step, measurement in taken:
        metric = measurement.metrics.get(name)
        if step.arm == arm and metric is not None and metric.value:
            found.setdefault(_concurrency(step), []).append(metric.value)
    return dict(sorted(found.items()))


# ---------------------------------------------------------------- small things


def _arms(run: Run) -> list[str]:
    return [arm.name for arm in run.plan.target.arms]


def _concurrency(step: Step) -> int:
    return int(step.params.get("concurrency", 0))


def _columns(points: list[tuple[float, float]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(x for x, _ in points), tuple(y for _, y in points)
