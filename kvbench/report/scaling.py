"""Sections of waves in which a storage node comes or goes: one for each way of it. Pure."""

from __future__ import annotations

from kvbench.model import GateStep, Measurement
from kvbench.report.document import Chart, Line, Run, Section, Taken
from kvbench.report.figures import plural
from kvbench.report.tables import metrics_by_step
from kvbench.report.waves import ttfts_s
from kvbench.units import format_rate, format_seconds

_TITLES = {"add": "a node is added", "fail": "a node fails"}
_WAVES = ("before", "during", "after")
_FIGURES = (
    ("TTFT p50 before", "ttft_before_p50_s"),
    ("during", "ttft_p50_s"),
    ("after", "ttft_after_p50_s"),
    ("TTFT max during", "ttft_max_s"),
    ("Throughput during", "output_tokens_per_s"),
    ("TPOT p50 during", "tpot_p50_s"),
    ("Failed", "requests_failed"),
)
_CHANGE = (
    ("Change at", "change_at_share"),
    ("Pages on it", "changed_pages"),
    ("Moved", "moved_bytes"),
    ("Last page after", "rebalance_s"),
    ("Computed again, tokens", "missed_tokens"),
    ("Misses unexplained", "unexplained_misses"),
    ("Wrong pages", "content_mismatches"),
    ("CPU pressure", "cpu_pressure_share"),
)


def sections(gate_step: GateStep, run: Run) -> list[Section]:
    """One for every cell of the step."""
    return [_cell(gate_step, taken, run) for taken in run.cells(gate_step.id).values()]


def _cell(gate_step: GateStep, taken: Taken, run: Run) -> Section:
    step = taken[0][0]
    tables = (
        metrics_by_step("TTFT before, during and after", "Each wave has sessions of its own.", _FIGURES, taken),
        metrics_by_step("The change", "A page of a node that has gone is a miss, computed again.", _CHANGE, taken),
    )
    charts = (_ttft_chart(taken, run), _moves_chart(taken, run))
    return Section(
        title=f"{gate_step.id.capitalize()}, {step.cell}: {_TITLES[step.params['scaling']]} in mid-wave, "
        f"{plural(int(step.params['concurrency']), 'session')} at once",
        intro=gate_step.why,
        charts=tuple(chart for chart in charts if chart.lines),
        tables=tuple(table for table in tables if table),
        notes=tuple(dict.fromkeys(_note(measured) for _, measured in taken if "changed_by" in measured.facts)),
    )


def _note(measured: Measurement) -> str:
    """By whom the nodes were changed, and the pace of what moved."""
    pace = measured.facts["pace"]
    paced = (
        f" Pages moved at {format_rate(pace['bytes_per_s'])} at most, and waited while the TTFT was near "
        f"{format_seconds(pace['ttft_limit_s'])}."
        if pace
        else ""
    )
    return f"Step {measured.step_id}: the nodes were changed by {measured.facts['changed_by']}.{paced}"


def _ttft_chart(taken: Taken, run: Run) -> Chart:
    """Every request's TTFT at the moment of its first token, counted from the change of its round."""
    points: dict[str, list[tuple[float, float]]] = {name: [] for name in _WAVES}
    ends_s = [0.0]
    for step, measured in taken:
        changed_ns = measured.facts.get("changed_ns", 0)
        for row in run.series.requests.get(step.id, ()):
            wave = str(row["request_id"]).partition("-")[0]
            for ttft_s in ttfts_s([row]):
                points[wave].append(((row["first_token_ns"] - changed_ns) / 1e9, ttft_s))
        rebalance = measured.metrics.get("rebalance_s")
        ends_s.append(rebalance.value or 0.0 if rebalance else 0.0)
    counted = sum(map(len, points.values()))
    return Chart(
        title="TTFT around the change",
        alt=f"Time to first token of every request, by the time since the nodes changed; {plural(counted, 'request')}.",
        x_label="first token, since the change (s)",
        y_label="TTFT (s)",
        lines=tuple(
            Line(name, style, tuple(x for x, _ in points[name]), tuple(y for _, y in points[name]), "points")
            for style, name in enumerate(_WAVES)
            if points[name]
        ),
        note=f"Every point is a request, n = {counted}, of {plural(len(taken), 'round')}; shaded: pages move. "
        f"From {', '.join(_sources(taken, 'requests'))}.",
        band=(0.0, max(ends_s)) if max(ends_s) else None,
        band_label="pages move",
    )


def _moves_chart(taken: Taken, run: Run) -> Chart:
    lines: list[Line] = []
    for step, measured in taken:
        changed_ns = measured.facts.get("changed_ns", 0)
        rows = [row for row in run.series.moves.get(step.id, ()) if row["moved_bytes"] or row["at_ns"] >= changed_ns]
        x = tuple((row["at_ns"] - changed_ns) / 1e9 for row in rows)
        if any(row["moved_bytes"] for row in rows):
            y = tuple(row["moved_bytes"] / 1e9 for row in rows)
            lines.append(Line(f"round {step.round}", len(lines), x, y, "steps"))
    return Chart(
        title="Bytes moved",
        alt=f"Bytes that have changed their node, by the time since the change, {plural(len(lines), 'round')}.",
        x_label="time since the change (s)",
        y_label="moved (GB)",
        lines=tuple(lines),
        note=f"By the engine's own counter, n = {plural(len(lines), 'round')}. "
        f"From {', '.join(_sources(taken, 'moves'))}.",
    )


def _sources(taken: Taken, name: str) -> list[str]:
    return [measured.series[name] for _, measured in taken if name in measured.series]
