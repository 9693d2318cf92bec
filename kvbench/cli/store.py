"""`kvbench store bench`: whether the page driver is as fast as fio on a disk, so that page steps measure the disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvbench.cli.options import DestroyData, Json, quantity
from kvbench.errors import Exit
from kvbench.units import parse_bytes

if TYPE_CHECKING:
    from kvbench.pages.bench import Summary

app = typer.Typer(
    no_args_is_help=True, help="Set the page store's driver beside fio.\n\nExample:  kvbench store bench /mnt/array"
)


@app.command()
def bench(
    place: Annotated[
        Path, typer.Argument(metavar="DIR", help="A directory of the storage, or a device; everything is removed.")
    ],
    pairs: Annotated[int, typer.Option(metavar="N", min=1, help="Pairs of runs per page size and queue depth.")] = 20,
    size: Annotated[
        int, typer.Option("--bytes", parser=quantity(parse_bytes), metavar="SIZE", help="Bytes that each run reads.")
    ] = 2**30,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the order of runs.")] = 1,
    destroy_data: DestroyData = None,
    json: Json = None,
) -> None:
    """Read pages with the store's driver and with fio (io_uring), in turn. Exit code: 1 where ours is clearly slower.

    A block device is written over, and so must be named by its serial number with --destroy-data.

    Example:  kvbench store bench /mnt/array --pairs 20
    """
    from kvbench.cli import show
    from kvbench.pages import bench as of_store

    named = tuple(destroy_data or ())
    summary = of_store.summarise(of_store.run(place, pairs, size, seed, destroy_data=named, say=show.say))
    _print(summary)
    show.write_json(of_store.as_plain(summary), json)
    raise typer.Exit(Exit.FAIL if summary.shortfalls else Exit.PASS)


def _print(summary: Summary) -> None:
    from kvbench.cli import show
    from kvbench.units import format_rate

    for cell in summary.cells:
        show.say(
            f"{cell.page_bytes >> 20:3} MiB, queue depth {cell.depth:2}: ours {format_rate(cell.ours_bytes_per_s)}, "
            f"fio {format_rate(cell.fio_bytes_per_s)}, ratio {_interval(cell.ratio, cell.low, cell.high)}; "
            f"fio ÷ fio {_interval(cell.noise, cell.noise_low, cell.noise_high)}; "
            f"processor {cell.ours_cpu_s_per_gb:.3f} and {cell.fio_cpu_s_per_gb:.3f} s/GB; n = {cell.pairs}"
        )
    show.say(f"all pairs: bandwidth {summary.ratio:.3f} of fio's, processor time {summary.cpu_ratio:.2f} of fio's")
    for shortfall in summary.shortfalls:
        show.note(shortfall)


def _interval(ratio: float, low: float | None, high: float | None) -> str:
    return f"{ratio:.3f}" if low is None or high is None else f"{ratio:.3f} [{low:.3f}, {high:.3f}]"
