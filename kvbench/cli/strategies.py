"""`kvbench run strategies`: the strategies of `kvbench sim compare`, on real nodes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvbench.cli.course import new_path
from kvbench.cli.options import Json, Out, TargetFile
from kvbench.errors import Exit, UsageError

if TYPE_CHECKING:
    from kvbench.pages.trial import Place

_DEFAULT = ("ring", "modulo", "prefix+ring", "ring+merge")
_DEMO_NODES, _DEMO_RATE = 4, 50 * 10**6
_ROUNDS, _QUICK_ROUNDS = 10, 3


def run_strategies(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[STRATEGY]...", help="Like prefix+ring; the first is the reference.")
    ] = None,
    target: TargetFile = None,
    quick: Annotated[bool, typer.Option("--quick", help=f"{_QUICK_ROUNDS} rounds instead of {_ROUNDS}.")] = False,
    out: Out = None,
    json: Json = None,
) -> None:
    """Set strategies side by side on the nodes of a target's dut; without one, on four slowed directories.
    Exit code: 1 if a page was lost or wrong.

    Names are those of kvbench sim compare. Some 50 MB are written for each strategy and round, and removed; where one
    has `separate` or `apart`, all are read beside checkpoint writes, some 500 MB.

    Example:  kvbench run strategies ring prefix+ring --target fx100.yaml --quick
    """
    from json import dumps

    from kvbench.cli import show
    from kvbench.cli.show_sim import say_columns
    from kvbench.pages import trial
    from kvbench.sim import compare, strategies

    chosen = names or list(_DEFAULT)
    for name in chosen:
        if strategies.parse(name).layers & {"heat", "prefetch", "device", "lazy"}:
            raise UsageError(
                f"strategy {name!r}: it takes tiers, devices that are known or an engine, and here are none",
                "leave heat, prefetch, device and lazy out",
            )
    path = out or new_path("strategies")
    if path.exists():
        raise UsageError(f"{path} exists", "choose another --out")
    place = _place(target, path.resolve())
    basis = "measured" if target else f"demonstration: {_DEMO_NODES} directories, {_DEMO_RATE / 1e6:.0f} MB/s each"
    path.mkdir(parents=True)
    for node in place.nodes if target is None else ():
        node.mkdir()
    load, rounds = trial.load_for(chosen), _QUICK_ROUNDS if quick else _ROUNDS
    with (path / "requests.jsonl").open("w") as rows:
        found = trial.run(
            chosen, place, load, rounds, run_id=path.name, tell=lambda row: print(dumps(row), file=rows, flush=True)
        )
    kept = trial.document(place, load, basis, found)
    show.write_json(kept, str(path / "strategies.json"))
    say_columns(compare.columns(found, trial.FIGURES), trial.FIGURES)
    show.say(f"{basis}; mean ± half of its 95 % interval, over {rounds} rounds; × is the ratio to the first column")
    if not place.direct:
        show.note("without direct I/O, reads may have come from the page cache")
    if place.rate_limit_bytes_per_s and target:
        show.note(f"each node was limited to {place.rate_limit_bytes_per_s / 1e6:g} MB/s by the target file")
    show.say(f"run folder: {path}")
    show.write_json(kept, json)
    if any(figures["failed_reads"] for rounds_of in found.values() for figures in rounds_of):
        show.say("pages could not be read back, or were wrong: requests.jsonl names the requests")
        raise typer.Exit(Exit.FAIL)


def _place(target: Path | None, folder: Path) -> "Place":
    """The dut's nodes; without a target, directories of the run folder."""
    from kvbench import content
    from kvbench.pages.trial import Place

    if target is None:
        return Place(tuple(folder / f"node{node}" for node in range(_DEMO_NODES)), True, _DEMO_RATE)
    dut = next(arm for arm in content.load_target(target).arms if arm.role == "dut")
    if not dut.storage or not all(Path(node).is_dir() for node in dut.storage.nodes):
        raise UsageError(f"{target}: arm {dut.name} has a node that is no directory", "mount it, and name directories")
    return Place(tuple(map(Path, dut.storage.nodes)), dut.storage.direct, dut.storage.rate_limit_bytes_per_s)
