"""What `kvbench sim` prints and writes: comparisons, calibrations and reproductions, for people and for machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvbench.sim.calibrate import Calibration
    from kvbench.sim.compare import Column
    from kvbench.sim.published import Published
    from kvbench.sim.published_gate import PublishedFinding
    from kvbench.sim.reproduce import Accuracy, Prediction, Reproduction
    from kvbench.sim.simulate import Task


# ---------------------------------------------------------------- comparisons


def say_columns(columns: Sequence[Column], figures: Mapping[str, str]) -> None:
    """One table: a row for each of `figures` (name → unit) that any column has."""
    from kvbench.cli import show

    table = show.columns("figure", right=(column.label for column in columns))
    for name, unit in figures.items():
        if any(column.figures[name].mean for column in columns):
            table.add_row(name, *(_estimate(column, name, unit, column is columns[0]) for column in columns))
    show.print_table(table)


def _estimate(column: Column, name: str, unit: str, is_reference: bool) -> str:
    from kvbench.cli import show

    found, ratio = column.figures[name], column.ratios[name]
    shown = "ratio" if unit == "count" and name != "requests" else unit
    change = ratio.ratio if ratio and not is_reference else None
    return show.estimate(found.mean, found.half_width or None, change, shown)


def columns_document(columns: Sequence[Column], first: Task) -> dict[str, Any]:
    from dataclasses import asdict

    from kvbench.sim.simulate import FIGURES

    return {
        "version": 1,
        "basis": "simulated",
        "site": asdict(first.site),
        "source": asdict(first.source),
        "first_seed": first.seed,
        "units": dict(FIGURES),
        "columns": [asdict(column) for column in columns],
    }


# ---------------------------------------------------------------- calibrate


def say_calibration(result: Calibration) -> None:
    from statistics import median

    from kvbench.cli import show
    from kvbench.units import format_rate, format_seconds

    table = show.columns("cell", "rounds", right=("TTFT p50", "simulated", "tok/s", "simulated"))
    for held in result.held:
        cell, errors = held.cell, held.errors
        ttft = rate = "device not known without it"
        if errors and held.ttft_p50_s is not None:
            ttft = f"{format_seconds(held.ttft_p50_s)} ({errors[0]:+.1%})"
            rate = f"{held.tokens_per_s:.1f} ({errors[1]:+.1%})"
        measured = (format_seconds(cell.ttft_p50_s), f"{cell.tokens_per_s:.1f}")
        table.add_row(cell.name, str(cell.rounds), measured[0], ttft, measured[1], rate)
    show.print_table(table)
    show.say("simulated: each cell by models that were fitted to all the others")
    if result.errors:
        count = len(result.errors)
        show.say(
            f"error {median(result.errors):.1%} in the median, {max(result.errors):.1%} at worst, of {count} figures"
        )
    fit = result.fit
    rates = "".join(f", {arm} {format_rate(rate)}" for arm, rate in fit.rates_bytes_per_s.items())
    constants = f"{format_seconds(fit.before_s)} before loading, {format_seconds(fit.after_s)} after the tokens"
    show.say(f"fitted to all cells: computing takes {fit.slowdown:.3g} × the roofline, {constants}{rates}")


def calibration_document(result: Calibration) -> dict[str, Any]:
    from dataclasses import asdict

    cells = [
        {
            "arm": held.cell.arm.name, "cell": held.cell.step.cell, "rounds": held.cell.rounds,
            "measured": {"ttft_p50_s": held.cell.ttft_p50_s, "output_tokens_per_s": held.cell.tokens_per_s},
            "simulated": {"ttft_p50_s": held.ttft_p50_s, "output_tokens_per_s": held.tokens_per_s},
            "errors": held.errors,
        }
        for held in result.held
    ]  # fmt: skip
    return {"version": 1, "basis": "simulated", "fit": asdict(result.fit), "cells": cells}


# ---------------------------------------------------------------- reproduce


def say_reproduction(known: Published, result: Reproduction) -> None:
    from kvbench.cli import show

    report = result.report
    show.say(f"{report.id}, {report.about}: printed, simulated (error), constant bandwidth (error)")
    figures = ("TTFT p50, s", "simulated", "constant", "tok/s", "simulated", "constant", "busy", "read")
    table = show.columns("cell", right=figures)
    table.add_column("notes", no_wrap=True)
    for each in result.predictions:
        table.add_row(each.cell.id + " (fitted)" * (each.cell is result.fitted), *_cells(known, each))
    show.print_table(table)
    show.say("busy: printed bandwidth in 1e9 B/s (the source prints 1.024e9 B/s as 1 GB/s); read: sessions, simulated")
    show.say(f"simulated, storage cells:  {_accuracy(result.storage)}")
    show.say(f"constant bandwidth:        {_accuracy(result.naive)}")
    if result.recompute:
        show.say(f"simulated, recompute:      {_accuracy(result.recompute)}")
    before_s, after_s = result.constants.before_s, result.constants.after_s
    fitted = f"{known.fitted_on.report} {known.fitted_on.cell}"
    show.say(f"fitted on {fitted} alone: {before_s:.2f} s before loading, {after_s:.2f} s after the tokens")
    for note in sorted({note for cell in report.cells for note in cell.notes}):
        show.say(f"{note}: {known.notes[note]}")


def _cells(known: Published, each: Prediction) -> list[str]:
    cell, (ttft, rate) = each.cell, each.errors
    naive = each.naive_errors
    plain = [
        "–" if value is None or naive is None else f"{value:.{digits}f} ({error:+.1%})"
        for value, error, digits in zip(
            (each.naive_ttft_p50_s, each.naive_tokens_per_s), naive or (0.0, 0.0), (2, 1), strict=True
        )
    ]
    busy = "–" if cell.busy is None else f"{cell.busy * known.printed_rate_bytes_per_s / 1e9:.2f}"
    read = "–" if each.sessions_read is None else f"{each.sessions_read:.2f}"
    return [
        f"{cell.ttft_p50_s:.2f}", f"{each.ttft_p50_s:.2f} ({ttft:+.1%})", plain[0],
        f"{cell.tokens_per_s:.1f}", f"{each.tokens_per_s:.1f} ({rate:+.1%})", plain[1],
        busy, read, " ".join(cell.notes),
    ]  # fmt: skip


def _accuracy(accuracy: Accuracy) -> str:
    return f"error {accuracy.median:.1%} in the median, {accuracy.worst:.1%} at worst, of {accuracy.n} figures"


def say_findings(findings: list[PublishedFinding]) -> None:
    from kvbench import wording
    from kvbench.cli import show

    show.say("")
    show.say(f"G3's rule on these cells: INCONCLUSIVE, all {len(findings)} of them; one round has no interval")
    for finding in findings:
        if finding.misses:
            check = finding.check
            asked = wording.asked_change(check.op, check.limit if isinstance(check.limit, float) else 1.0)
            change = f"{100 * (finding.ratio - 1):+.2f} %"
            show.say(f"  {finding.dut} against {finding.baseline}: {check.metric} {change}, where {asked} is asked")


def reproduction_document(known: Published, result: Reproduction, findings: list[PublishedFinding]) -> dict[str, Any]:
    from dataclasses import asdict

    cells = [
        asdict(each) | {"errors": each.errors, "naive_errors": each.naive_errors, "printed": asdict(each.cell)}
        for each in result.predictions
    ]
    for cell in cells:
        del cell["cell"]
    return {
        "version": 1,
        "basis": "simulated",
        "report": result.report.id,
        "source": known.source,
        "fitted_on": asdict(known.fitted_on),
        "constants": asdict(result.constants),
        "cells": cells,
        "accuracy": {
            "storage": asdict(result.storage),
            "constant_bandwidth": asdict(result.naive),
            "recompute": result.recompute and asdict(result.recompute),
        },
        "gate": [
            {
                "check": finding.check.id, "dut": finding.dut, "baseline": finding.baseline,
                "ratio": finding.ratio, "limit": finding.check.limit, "n": finding.n,
                "outcome": finding.outcome, "misses": finding.misses,
            }
            for finding in findings
        ],
    }  # fmt: skip
