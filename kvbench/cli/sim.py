"""`kvbench sim`: the strategies on modelled storage, and the published figures predicted. All of it is simulated."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvbench.cli.gate import Json
from kvbench.errors import UsageError

if TYPE_CHECKING:
    from kvbench.sim.calibrate import Calibration
    from kvbench.sim.compare import Column
    from kvbench.sim.published import Published
    from kvbench.sim.published_gate import PublishedFinding
    from kvbench.sim.reproduce import Accuracy, Prediction, Reproduction
    from kvbench.sim.simulate import Source, Task
    from kvbench.sim.site import Site

_MOST_NODES = 1000

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Strategies on modelled storage, in virtual time; figures are simulated.\n\n"
    "Example:  kvbench sim compare ring prefix+ring",
)


def _writable(file: Path | None) -> Path | None:
    """Found out before anything is simulated."""
    if file and (file.is_dir() or not file.parent.is_dir()):
        raise UsageError(f"--html {file}: no file can be written there", "name a file in a folder that exists")
    return file


Seeds = Annotated[int, typer.Option(min=1, help="How many seeds: each is a run with other arrivals and other luck.")]
Seed = Annotated[int, typer.Option(min=0, help="The first seed; the same one gives the same figures.")]
Processes = Annotated[int | None, typer.Option(min=1, help="Default: one for each processor.")]
Workload = Annotated[
    str, typer.Option(help="Of workloads/inference: conversations, shared-prefixes, long-tail, retrieval; or a file.")
]
Trace = Annotated[Path | None, typer.Option(metavar="FILE", help="A trace in Mooncake's format, instead.")]
Requests = Annotated[int | None, typer.Option(min=1, help="Only so many of them, from the first on.")]
OnSite = Annotated[str, typer.Option("--site", help="Engines and nodes: of workloads/sim, or a file.")]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", callback=_writable, help="Charts and all figures, as a page."),
]
Nodes = Annotated[int | None, typer.Option(min=1, max=1000, help="Another number of storage nodes.")]


@app.command()
def run(
    strategy: Annotated[str, typer.Argument(help="A placement and layers, like prefix+ring+merge.")],
    workload: Workload = "shared-prefixes",
    trace: Trace = None,
    requests: Requests = None,
    site: OnSite = "narrow",
    nodes: Nodes = None,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """Simulate one strategy once.

    Placements: modulo, ring, bounded, rendezvous, two-choices. Layers: prefix, weights, hot, merge, separate, heat,
    prefetch, move, paced, session; docs/simulation.md says what each does.

    Example:  kvbench sim run prefix+ring --workload conversations
    """
    from kvbench.sim import site as sites

    source = _source(workload, trace, requests)
    tasks = {strategy: _tasks(sites.load(site, nodes), source, strategy, range(seed, seed + 1))}
    _compare(tasks, 1, json)


@app.command()
def compare(
    strategies: Annotated[list[str], typer.Argument(metavar="STRATEGY...", help="The first is the reference.")],
    workload: Workload = "shared-prefixes",
    trace: Trace = None,
    requests: Requests = None,
    site: OnSite = "narrow",
    nodes: Nodes = None,
    seeds: Seeds = 5,
    seed: Seed = 0,
    processes: Processes = None,
    html: Html = None,
    json: Json = None,
) -> None:
    """Set strategies side by side on the same arrivals and the same luck, with intervals over seeds.

    Example:  kvbench sim compare modulo ring prefix+ring prefix+bounded
    """
    from kvbench.sim import site as sites

    source, place = _source(workload, trace, requests), sites.load(site, nodes)
    tasks = {name: _tasks(place, source, name, range(seed, seed + seeds)) for name in strategies}
    _compare(tasks, processes or _processors(), json, html)


@app.command()
def scale(
    strategy: Annotated[str, typer.Argument(help="A placement and layers, like prefix+ring+merge.")],
    counts: Annotated[str, typer.Option("--nodes", help="Numbers of storage nodes.")] = "4,8,16,32,64",
    workload: Workload = "shared-prefixes",
    trace: Trace = None,
    requests: Requests = None,
    site: OnSite = "narrow",
    seeds: Seeds = 5,
    seed: Seed = 0,
    processes: Processes = None,
    html: Html = None,
    json: Json = None,
) -> None:
    """Simulate one strategy on more and more nodes; the load stays as it is.

    Example:  kvbench sim scale ring --nodes 4,16,64 --workload long-tail
    """
    from kvbench.sim import site as sites

    source = _source(workload, trace, requests)
    tasks = {
        f"{count} nodes": _tasks(sites.load(site, count), source, strategy, range(seed, seed + seeds))
        for count in _counts(counts)
    }
    _compare(tasks, processes or _processors(), json, html)


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


@app.command()
def calibrate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder of gate G3, or of any with its waves.")],
    json: Json = None,
) -> None:
    """Fit device and engine models to a measured run, and predict each cell from the others.

    Example:  kvbench sim calibrate kvbench-runs/2026-11-30T16-25-00-G3
    """
    from dataclasses import asdict

    from kvbench import journal
    from kvbench.cli import show
    from kvbench.sim import calibrate as core

    folder = journal.RunFolder.open(run)
    result = core.calibrate(folder.plan, folder.measurements())
    _say_calibration(result)
    cells = [
        {
            "arm": held.cell.arm.name, "cell": held.cell.step.cell, "rounds": held.cell.rounds,
            "measured": {"ttft_p50_s": held.cell.ttft_p50_s, "output_tokens_per_s": held.cell.tokens_per_s},
            "simulated": {"ttft_p50_s": held.ttft_p50_s, "output_tokens_per_s": held.tokens_per_s},
            "errors": held.errors,
        }
        for held in result.held
    ]  # fmt: skip
    show.write_json({"version": 1, "basis": "simulated", "fit": asdict(result.fit), "cells": cells}, json)


def _source(workload: str, trace: Path | None, requests: int | None) -> "Source":
    from kvbench.sim.simulate import Source

    return Source("" if trace else workload, str(trace) if trace else "", requests)


def _tasks(site: "Site", source: "Source", strategy: str, seeds: range) -> "list[Task]":
    from kvbench.sim import strategies
    from kvbench.sim.simulate import Task

    strategies.parse(strategy)
    return [Task(site, source, strategy, seed) for seed in seeds]


def _counts(text: str) -> list[int]:
    counts = [int(part) if part.strip().isdigit() else 0 for part in text.split(",")]
    if not all(1 <= count <= _MOST_NODES for count in counts):
        raise UsageError(f"--nodes {text}: not numbers from 1 to {_MOST_NODES}", "like 4,16,64")
    return counts


def _compare(tasks: "Mapping[str, Sequence[Task]]", processes: int, json: str | None, html: Path | None = None) -> None:
    from kvbench.cli import show
    from kvbench.sim import compare as core
    from kvbench.sim.simulate import FIGURES

    first = next(iter(tasks.values()))[0]
    columns = core.compare(tasks, processes)
    say_columns(columns, FIGURES)
    source = first.source.trace or first.source.workload
    show.say(
        f"simulated: {source} on site {first.site.id}; mean ± half of its 95 % interval, over seeds; × is the ratio"
    )
    show.say("to the first column")
    show.write_json(_columns_document(columns, first), json)
    if html:
        from kvbench.sim.page import page

        html.write_text(page(columns, first), encoding="utf-8")


# ---------------------------------------------------------------- comparisons, for people and for machines


def say_columns(columns: "Sequence[Column]", figures: "Mapping[str, str]") -> None:
    """One table: a row for each of `figures` (name → unit) that any column has."""
    from rich.table import Table

    from kvbench.cli import show

    table = Table("figure", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.label, justify="right", no_wrap=True)
    for name, unit in figures.items():
        if any(column.figures[name].mean for column in columns):
            table.add_row(name, *(_estimate(column, name, unit, column is columns[0]) for column in columns))
    show.print_table(table)


def _estimate(column: "Column", name: str, unit: str, is_reference: bool) -> str:
    from kvbench.units import format_value

    shown = "ratio" if unit == "count" and name != "requests" else unit
    figure, ratio = column.figures[name], column.ratios[name]
    spread = f" ± {format_value(figure.half_width, shown)}" if figure.half_width else ""
    change = f"  ×{ratio.ratio:.3g}" if ratio and not is_reference else ""
    return f"{format_value(figure.mean, shown)}{spread}{change}"


def _columns_document(columns: "Sequence[Column]", first: "Task") -> dict[str, Any]:
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


# ---------------------------------------------------------------- calibrate, for people


def _say_calibration(result: "Calibration") -> None:
    from statistics import median

    from rich.table import Table

    from kvbench.cli import show
    from kvbench.units import format_rate, format_seconds

    table = Table("cell", "rounds", box=None, pad_edge=False)
    for heading in ("TTFT p50", "simulated", "tok/s", "simulated"):
        table.add_column(heading, justify="right", no_wrap=True)
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


# ---------------------------------------------------------------- reproduce, for people


def _say_reproduction(known: "Published", result: "Reproduction") -> None:
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


def _cells(known: "Published", each: "Prediction") -> list[str]:
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


def _accuracy(accuracy: "Accuracy") -> str:
    return f"error {accuracy.median:.1%} in the median, {accuracy.worst:.1%} at worst, of {accuracy.n} figures"


def _say_findings(findings: "list[PublishedFinding]") -> None:
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


def _reproduction_document(
    known: "Published", result: "Reproduction", findings: "list[PublishedFinding]"
) -> dict[str, Any]:
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
