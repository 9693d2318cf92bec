"""Page I/Os on an arm's nodes, phase by phase, through the store's own workers: what every access is made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from kvbench import safety
from kvbench.errors import StepError
from kvbench.pages.figures import Transfer
from kvbench.pages.loop import ClosedLoop
from kvbench.probes.context import Context
from kvbench.store.keys import PageKey
from kvbench.store.protocol import Delete, Io, Read, Status, Write
from kvbench.store.real import FaultReport, RealNodes

_MOST_FAULTS = 20  # that are named; all are counted
_SPARE_WORKERS = 2  # a node: they fill and check pages while others are in their I/O


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of one phase: where they lie, and how large and how many they are."""

    folder: str
    count: int
    page_bytes: int

    def key(self, number: int) -> PageKey:
        return PageKey.named(f"{self.folder}/{number}")


@dataclass(frozen=True, slots=True)
class Carrier:
    """Carries I/Os out, and keeps what came of them: `transfers` by phase, `faults` of all."""

    context: Context
    salt: bytes
    compressible_share: float
    faults: list[FaultReport] = field(default_factory=list)
    transfers: dict[str, Transfer] = field(default_factory=dict)

    def write(self, phase: str, pages: Pages, depth: int) -> Transfer:
        """Write all pages. Raises StepError when one of them could not be."""
        nodes = len(self.context.data_dirs)
        commands = (Write(number, number % nodes, pages.key(number)) for number in range(pages.count))
        return self._whole(phase, self._carry_out(phase, pages, depth, commands))

    def read(self, phase: str, pages: Pages, numbers: Sequence[int], depth: int) -> Transfer:
        nodes = len(self.context.data_dirs)
        commands = (Read(number, number % nodes, pages.key(number)) for number in numbers)
        return self._carry_out(phase, pages, depth, commands)

    @contextmanager
    def writing(self, phase: str, pages: Pages, depth: int, pool: Sequence[Path]) -> Iterator[None]:
        """Meanwhile write without end, and delete the pages from `count` writes ago. Raises StepError as `write`."""
        with self._nodes(pages, depth, _ring(pages, len(pool)), pool) as loop:
            yield
            loop.stop()
            loop.wait(self.context.left_s)
        self._whole(phase, self._take(phase, pages, loop))

    def rows(self) -> list[dict[str, Any]]:
        """Every I/O."""
        return [
            {
                "phase": phase,
                "node": io.command.node,
                "page_bytes": transfer.page_bytes,
                "began_ns": io.began_ns,
                "ended_ns": io.ended_ns,
                "status": str(io.status),
            }
            for phase, transfer in self.transfers.items()
            for io in transfer.ended
        ]

    def facts(self) -> dict[str, Any]:
        return {
            "compressible_share": self.compressible_share,
            "pages": {phase: len(transfer.ended) for phase, transfer in self.transfers.items()},
            "faults": [str(fault) for fault in self.faults[:_MOST_FAULTS]],
        }

    def _carry_out(self, phase: str, pages: Pages, depth: int, commands: Iterator[Io]) -> Transfer:
        with self.context.phase(phase), self._nodes(pages, depth, commands, self.context.data_dirs) as loop:
            loop.wait(self.context.left_s)
        return self._take(phase, pages, loop)

    @contextmanager
    def _nodes(self, pages: Pages, depth: int, commands: Iterator[Io], pool: Sequence[Path]) -> Iterator[ClosedLoop]:
        """The nodes with `depth` I/Os under way, and the loop that keeps them so."""
        storage, folders = self.context.storage, [safety.data_file(place, pages.folder) for place in pool]
        each = workers(depth, len(folders))
        loop = ClosedLoop(commands, each * len(folders))
        with RealNodes(
            folders,
            pages.page_bytes,
            on_done=loop.on_done,
            on_fault=self.faults.append,
            on_io=loop.on_io,
            direct=storage.direct,
            rate_limit_bytes_per_s=storage.rate_limit_bytes_per_s,
            workers_per_node=each,
            queue_depth=depth,
            salt=self.salt,
            compressible_share=self.compressible_share,
        ) as nodes:
            loop.start(nodes)
            yield loop

    def _take(self, phase: str, pages: Pages, loop: ClosedLoop) -> Transfer:
        ended = tuple(io for io in loop.ended if not isinstance(io.command, Delete))
        self.transfers[phase] = Transfer(pages.page_bytes, ended)
        return self.transfers[phase]

    def _whole(self, phase: str, writes: Transfer) -> Transfer:
        failed = [io.command for io in writes.ended if io.status is not Status.OK]
        if bad := {command.page for command in failed if isinstance(command, Write)}:
            why = next(fault for fault in self.faults if fault.key in bad or fault.key is None)
            raise StepError(
                f"{phase}: {len(bad)} of {len(writes.ended)} pages could not be written: {why.path.name}: {why.detail}"
            )
        return writes


def workers(depth: int, nodes: int) -> int:
    """Of a node, for so many I/Os under way on all."""
    return -(-depth // nodes) + _SPARE_WORKERS


def _ring(pages: Pages, nodes: int) -> Iterator[Io]:
    """Writes without end, each a new page; the pages from `count` writes ago are deleted."""
    for io in count():
        number, is_delete = divmod(io, 2)
        if not is_delete:
            yield Write(io, number % nodes, pages.key(number))
        elif number >= pages.count:
            yield Delete(io, (number - pages.count) % nodes, pages.key(number - pages.count))
