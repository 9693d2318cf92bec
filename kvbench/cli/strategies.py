"""`kvbench run strategies`: the strategies of `kvbench sim compare`, on real nodes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvbench.cli.course import new_path
from kvbench.cli.options import Json, Out, TargetFile
from kvbench.errors import Exit, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvbench.pages.round import Place
    from kvbench.pages.site import Site

_DEFAULT = ("ring", "modulo", "prefix+ring", "ring+merge")
_QUICK_ROUNDS = 3


def run_strategies(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="STRATEGY", help="Like prefix+ring; the first is the reference.")
    ] = None,
    target: TargetFile = None,
    site: Annotated[
        str,
        typer.Option(metavar="NAME", help="Load, tiers and changes of nodes: of workloads/strategies, or a file."),
    ] = "plain",
    quick: Annotated[
        bool, typer.Option("--quick", help=f"{_QUICK_ROUNDS} rounds, not as many as the site has.")
    ] = False,
    out: Out = None,
    json: Json = None,
) -> None:
    """Set strategies side by side on the nodes of a target's dut; without one, on slowed directories of this disk.
    Exit code: 1 if a page was lost or wrong.

    Names are those of kvbench sim compare; docs/simulation.md says what each does, and what sites there are. For each
    strategy and round some 50 to 200 MB are written, and removed.

    Example:  kvbench run strategies ring ring+move ring+paced --site grows
    """
    from json import dumps

    from kvbench.cli import show
    from kvbench.cli.show_sim import say_columns
    from kvbench.pages import site as sites
    from kvbench.pages import trial
    from kvbench.pages.round import FIGURES
    from kvbench.sim import compare

    chosen, there = list(dict.fromkeys(names or _DEFAULT)), sites.load(site)
    for name in chosen:
        there.refuse(name)
    path = out or new_path("strategies")
    if path.exists():
        raise UsageError(f"{path} exists", "choose another --out")
    there, place = _place(there, target, path.resolve())
    basis = "measured" if target else f"demonstration: {len(place.nodes)} directories of one disk"
    path.mkdir(parents=True)
    for node in place.nodes if target is None else ():
        node.mkdir()
    rounds = _QUICK_ROUNDS if quick else there.rounds
    with (path / "requests.jsonl").open("w") as rows:
        found = trial.run(
            chosen, place, there, rounds, run_id=path.name, tell=lambda row: print(dumps(row), file=rows, flush=True)
        )
    kept = trial.document(place, there, basis, found)
    show.write_json(kept, str(path / "strategies.json"))
    say_columns(compare.columns(found, FIGURES), FIGURES)
    show.say(
        f"{basis}, site {there.id}; mean ± half of its 95 % interval, over {rounds} rounds; "
        "× is the ratio to the first column"
    )
    if not place.direct:
        show.note("without direct I/O, reads may have come from the page cache")
    for line in _emulated(there, place):
        show.note(line)
    show.say(f"run folder: {path}")
    show.write_json(kept, json)
    if any(figures["failed_reads"] for rounds_of in found.values() for figures in rounds_of):
        show.say("pages could not be read back, or were wrong: requests.jsonl names the requests")
        raise typer.Exit(Exit.FAIL)


def _place(site: "Site", target: Path | None, folder: Path) -> "tuple[Site, Place]":
    """The dut's nodes, and the site on as many; without a target, directories of the run folder."""
    from kvbench import content
    from kvbench.pages import site as sites
    from kvbench.pages.round import Place

    if target is None:
        nodes = tuple(folder / f"node{node}" for node in range(site.directories))
        return site, Place(nodes, True, tuple(site.rates(site.rate)))
    duts = [arm for arm in content.load_target(target).arms if arm.role == "dut"]
    if len(duts) != 1:
        raise UsageError(f"{target}: exactly one arm must have the role dut")
    dut = duts[0]
    if not dut.storage or not all(Path(node).is_dir() for node in dut.storage.nodes):
        raise UsageError(f"{target}: arm {dut.name} has a node that is no directory", "mount it, and name directories")
    nodes, rate = tuple(map(Path, dut.storage.nodes)), dut.storage.rate_limit_bytes_per_s
    site = sites.on(site, nodes, rate)
    return site, Place(nodes, dut.storage.direct, tuple(site.rates(rate)))


def _emulated(site: "Site", place: "Place") -> "Iterator[str]":
    """What is no property of the storage."""
    from kvbench.units import format_rate, format_seconds

    if any(place.rates):
        rates = ", ".join(format_rate(rate) if rate else "none" for rate in place.rates)
        yield f"each node was limited, to stand for a slower medium: {rates}"
    load = site.load
    if load.compute or load.compute_page:
        yield (
            f"computing was emulated: {format_seconds(load.compute)} a prompt, {format_seconds(load.compute_page)} "
            "more for each page that was lacking"
        )
