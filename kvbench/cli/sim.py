"""`kvbench sim`: the strategies on modelled storage, and the published figures predicted. All of it is simulated."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvbench.cli.options import Json, writable
from kvbench.errors import UsageError

if TYPE_CHECKING:
    from kvbench.sim.simulate import Source, Task
    from kvbench.sim.site import Site

_MOST_NODES = 1000

app = typer.Typer(
    no_args_is_help=True,
    help="Simulate strategies on modelled storage, in virtual time.\n\nExample:  kvbench sim compare ring prefix+ring",
)


Seeds = Annotated[
    int, typer.Option(metavar="N", min=1, help="How many seeds: each is a run with other arrivals and other luck.")
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="The first seed; the same one gives the same figures.")]
Processes = Annotated[int | None, typer.Option(metavar="N", min=1, help="Default: one for each processor.")]
Workload = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Of workloads/inference: conversations, shared-prefixes, long-tail, retrieval; or a file."
    ),
]
Trace = Annotated[Path | None, typer.Option(metavar="FILE", help="A trace in Mooncake's format, instead.")]
Requests = Annotated[int | None, typer.Option(metavar="N", min=1, help="Only so many of them, from the first on.")]
OnSite = Annotated[str, typer.Option("--site", metavar="NAME", help="Engines and nodes: of workloads/sim, or a file.")]
Html = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", callback=writable, help="Charts and all figures, as a page."),
]
Nodes = Annotated[int | None, typer.Option(metavar="N", min=1, max=1000, help="Another number of storage nodes.")]


@app.command()
def run(
    strategy: Annotated[
        str, typer.Argument(metavar="STRATEGY", help="A placement and layers, like prefix+ring+merge.")
    ],
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
    lfu, s3-fifo, prefetch, move, paced, guarded, session, device, apart, lazy; docs/simulation.md says what each does.

    Example:  kvbench sim run prefix+ring --workload conversations
    """
    from kvbench.sim import site as sites

    source = _source(workload, trace, requests)
    tasks = {strategy: _tasks(sites.load(site, nodes), source, strategy, range(seed, seed + 1))}
    _compare(tasks, 1, json)


@app.command()
def compare(
    strategies: Annotated[list[str], typer.Argument(metavar="STRATEGY", help="The first is the reference.")],
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

    The names are in kvbench sim run --help; docs/simulation.md says what each does, and what each figure is.

    Example:  kvbench sim compare modulo ring prefix+ring prefix+bounded
    """
    from kvbench.sim import site as sites

    source, place = _source(workload, trace, requests), sites.load(site, nodes)
    tasks = {name: _tasks(place, source, name, range(seed, seed + seeds)) for name in strategies}
    _compare(tasks, processes or _processors(), json, html)


@app.command()
def scale(
    strategy: Annotated[
        str, typer.Argument(metavar="STRATEGY", help="A placement and layers, like prefix+ring+merge.")
    ],
    counts: Annotated[
        str, typer.Option("--nodes", metavar="N,N...", help="Numbers of storage nodes.")
    ] = "4,8,16,32,64",
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
    report: Annotated[str, typer.Argument(metavar="REPORT", help="R2, R3 or X1, as in reports/published.yaml.")],
    seeds: Seeds = 6,
    seed: Seed = 0,
    processes: Processes = None,
    json: Json = None,
) -> None:
    """Predict a published report's cells from the printed bandwidths and an engine that is fitted on one cell.

    Example:  kvbench sim reproduce R2
    """
    from kvbench import content
    from kvbench.cli import show, show_sim
    from kvbench.sim import published, published_gate
    from kvbench.sim import reproduce as core

    known = published.load()
    result = core.reproduce(known, report, range(seed, seed + seeds), processes or _processors())
    findings = published_gate.judge(result.report, content.load_gate("G3").gate)
    show_sim.say_reproduction(known, result)
    show_sim.say_findings(findings)
    show.write_json(show_sim.reproduction_document(known, result, findings), json)


@app.command()
def calibrate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder of gate G3, or of any with its waves.")],
    json: Json = None,
) -> None:
    """Fit device and engine models to a measured run, and predict each cell from the others.

    Example:  kvbench sim calibrate kvbench-runs/2026-11-30T16-25-00-G3
    """
    from kvbench import journal
    from kvbench.cli import show, show_sim
    from kvbench.sim import calibrate as core

    folder = journal.RunFolder.open(run)
    result = core.calibrate(folder.plan, folder.measurements())
    show_sim.say_calibration(result)
    show.write_json(show_sim.calibration_document(result), json)


def _processors() -> int:
    import os

    return os.cpu_count() or 1


def _source(workload: str, trace: Path | None, requests: int | None) -> "Source":
    from kvbench.sim.simulate import Source

    return Source("" if trace else workload, str(trace) if trace else "", requests)


def _tasks(site: "Site", source: "Source", strategy: str, seeds: range) -> "list[Task]":
    from kvbench.sim.simulate import Task

    site.refuse(strategy)
    return [Task(site, source, strategy, seed) for seed in seeds]


def _counts(text: str) -> list[int]:
    counts = [int(part) if part.strip().isdecimal() else 0 for part in text.split(",")]
    if not all(1 <= count <= _MOST_NODES for count in counts):
        raise UsageError(f"--nodes {text}: not numbers from 1 to {_MOST_NODES}", "like 4,16,64")
    return counts


def _compare(tasks: "Mapping[str, Sequence[Task]]", processes: int, json: str | None, html: Path | None = None) -> None:
    from kvbench.cli import show, show_sim
    from kvbench.sim import compare as core
    from kvbench.sim.simulate import FIGURES

    of_one = next(iter(tasks.values()))
    first, seeds = of_one[0], [task.seed for task in of_one]
    columns = core.compare(tasks, processes)
    show_sim.say_columns(columns, FIGURES)
    source = first.source.trace or first.source.workload
    spread = f"mean over {len(seeds)} seeds ± half of its 95 % interval" if len(seeds) > 1 else f"seed {seeds[0]} alone"
    ratio = "; × is the ratio to the first column" if len(columns) > 1 else ""
    show.say(f"simulated: {source} on site {first.site.id}; {spread}{ratio}")
    show.write_json(show_sim.columns_document(columns, first), json)
    if html:
        from kvbench.sim.page import page

        html.write_text(page(columns, first), encoding="utf-8")
