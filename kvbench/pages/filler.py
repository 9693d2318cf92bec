"""Data that stands on a run's nodes only to be read, so that an array's cache afterwards holds nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kvbench import safety
from kvbench.errors import StepError
from kvbench.host.activity.arraycache import ArrayCache
from kvbench.pages.loop import ClosedLoop
from kvbench.probes.context import Context
from kvbench.store.keys import PageKey
from kvbench.store.protocol import Io, Read, Write
from kvbench.store.real import FaultReport, RealNodes

FOLDER = "filler"
PAGE_BYTES = 16 * 2**20
_WORKERS = 8  # a node
_DONE = "written"


def read_through(cache: ArrayCache, context: Context) -> int:
    """Read as much other data as the cache needs; returns the bytes that were read, 0 where there is no cache.

    The data is written once for all steps on these nodes, and goes with the run. Raises StepError when it cannot be
    written, or read back as it was written.
    """
    folders = [folder / FOLDER for folder in context.lasting_dirs]
    if not cache.filler_bytes or not folders:
        return 0
    pages = [PageKey.named(f"{FOLDER}/{number}") for number in range(-(-cache.filler_bytes // PAGE_BYTES))]
    if not all((folder / _DONE).exists() for folder in folders):
        context.progress("writing what the array's cache is emptied with", None)
        for folder in folders:
            safety.remove_tree(folder)
        _carry_out(context, folders, (Write(io, io % len(folders), page) for io, page in enumerate(pages)))
        for folder in folders:
            (folder / _DONE).touch()
    context.progress("emptying the array's cache", None)
    _carry_out(context, folders, (Read(io, io % len(folders), page) for io, page in enumerate(pages)))
    return len(pages) * PAGE_BYTES


def _carry_out(context: Context, folders: list[Path], commands: Iterator[Io]) -> None:
    """As fast as the nodes give, whatever rate they are held to otherwise: nothing here is measured."""
    faults: list[FaultReport] = []
    loop = ClosedLoop(commands, _WORKERS * len(folders))
    with RealNodes(
        folders,
        PAGE_BYTES,
        on_done=loop.on_done,
        on_fault=faults.append,
        on_io=loop.on_io,
        direct=context.storage.direct,
        workers_per_node=_WORKERS,
        salt=context.run_dir.name.encode(),
    ) as nodes:
        loop.start(nodes)
        loop.wait(context.left_s)
    if faults:
        raise StepError(f"emptying the array's cache: {faults[0].path}: {faults[0].detail}")
