"""`kvbench sim`: the strategies on modelled storage, and the published figures predicted. All of it is simulated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvbench.cli.gate import Json

if TYPE_CHECKING:
    from kvbench.sim.published import Published
    from kvbench.sim.published_gate import PublishedFinding
    from kvbench.sim.reproduce import Accuracy, Prediction, Reproduction

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Strategies on modelled storage, in virtual time; figures are simulated.\n\n"
    "Example:  kvbench sim compare shared-prefixes ring prefix+ring",
)

Seeds = Annotated[int, typer.Option(min=1, help="How many seeds: each is a run with other arrivals and other luck.")]
Seed = Annotated[int, typer.Option(min=0, help="The first seed; the same one gives the same figures.")]
Processes = Annotated[int | None, typer.Option(min=1, help="Default: one for each processor.")]


@app.command()
def reproduce(
    report: Annotated[str, typer.Argument(help="R2, R3 or X1, as in reports/published.yaml.")],
    seeds: Seeds = 6,
    seed: Seed = 0,
    processes: Processes = None,
    json: Json = None,
) -> None:
    """Predict a published report's cells from the printed bandwidths and an engine that is fitted on one cell.

    Example:  kvbench sim reproduce R2
    """
    from kvbench import content
    from kvbench.cli import show
    from kvbench.sim import published, published_gate
    from kvbench.sim import reproduce as core

    known = published.load()
    result = core.reproduce(known, report, range(seed, seed + seeds), processes or _processors())
    findings = published_gate.judge(result.report, content.load_gate("G3").gate)
    _say_reproduction(known, result)
    _say_findings(findings)
    show.write_json(_reproduction_document(known, result, findings), json)


def _processors() -> int:
    import os

    return os.cpu_count() or 1


# ---------------------------------------------------------------- reproduce, for people


def _say_reproduction(known: Published, result: Reproduction) -> None:
    from rich.table import Table

    from kvbench.cli import show

    report = result.report
    show.say(f"{report.id}, {report.about}: printed, simulated (error), constant bandwidth (error)")
    table = Table("cell", box=None, pad_edge=False)
    for heading in ("TTFT p50", "simulated", "constant", "tok/s", "simulated", "constant", "busy", "read", "notes"):
        table.add_column(heading, justify="left" if heading == "notes" else "right", no_wrap=True)
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


def _say_findings(findings: list[PublishedFinding]) -> None:
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


def _reproduction_document(known: Published, result: Reproduction, findings: list[PublishedFinding]) -> dict[str, Any]:
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
