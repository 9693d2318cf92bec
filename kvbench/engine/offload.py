"""The tiers below GPU memory: host memory, then storage. What is found there, and what is on its way. Pure.

Contains the page store and routes its events. A page in transfer takes room in host memory, where there is any; it
can be hit there once it has arrived whole. A page that reads back bad is no hit, and neither is any after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from kvbench.engine.protocol import Counters, EngineConfig
from kvbench.engine.tiers import Tier, leading
from kvbench.store.core import PageStore
from kvbench.store.keys import PageKey, prefix_of
from kvbench.store.protocol import Arrive, Command, Event, Finish


@dataclass(frozen=True, slots=True)
class Loaded:
    """The first `hits` pages that a request asked for are in GPU memory; `host_hits` of them came from host memory."""

    request: int
    hits: int
    host_hits: int


@dataclass(frozen=True, slots=True)
class _Transfer:
    """Pages on their way from or to storage; of those, `staged` hold room in host memory.

    `wanted` are the pages of a read's request in order, those that were in host memory already among them.
    """

    pages: tuple[bytes, ...]
    staged: tuple[bytes, ...]
    request: int | None = None  # of a read
    wanted: tuple[bytes, ...] = ()


class Offload:
    """Host memory over `pages`, both holding a page of all ranks as a whole."""

    def __init__(self, pages: PageStore, config: EngineConfig, host: Tier, counters: Counters) -> None:
        self.host = host
        self._pages = pages
        self._ranks, self._prefix_depth = config.ranks, config.prefix_depth
        self._counters = counters
        self._transfers: dict[int, _Transfer] = {}
        self._storing: set[bytes] = set()
        self._next_transfer = 0

    @property
    def stores_pending(self) -> int:
        """Pages, each of all ranks, that are on their way to storage."""
        return len(self._storing)

    @property
    def moved_pages(self) -> int:
        """Pages of single ranks that have changed their node."""
        return self._pages.moved_pages

    @property
    def is_moving(self) -> bool:
        return self._pages.is_moving

    def load(self, now_ns: int, request: int, digests: Sequence[bytes]) -> list[Loaded | Command]:
        """Bring what is held of these pages, from the first on without a gap; `Loaded` says when, and how many."""
        wanted = leading(digests, lambda digest: digest in self.host or self._stored(digest))
        reading = tuple(digest for digest in wanted if not self.host.touch(digest))
        return self._begin(now_ns, "read", reading, request=request, wanted=wanted)

    def store(self, now_ns: int, digests: Sequence[bytes]) -> list[Loaded | Command]:
        """Send pages to storage, as far as they are neither there nor on their way."""
        new = tuple(digest for digest in digests if digest not in self._storing and not self._stored(digest))
        if not new:
            return []
        self._storing.update(new)
        return self._begin(now_ns, "write", new, prefix=prefix_of(digests, self._prefix_depth))

    def step(self, now_ns: int, event: Event) -> list[Loaded | Command]:
        """Hand an event to the page store; what it has finished ends here, and the rest is for the driver."""
        commands: list[Loaded | Command] = []
        for command in self._pages.step(now_ns, event):
            commands += self._end(command) if isinstance(command, Finish) else [command]
        return commands

    def _stored(self, digest: bytes) -> bool:
        return all(map(self._pages.holds, self._keys((digest,))))

    def _keys(self, digests: Iterable[bytes]) -> tuple[PageKey, ...]:
        return tuple(PageKey(digest, rank) for digest in digests for rank in range(self._ranks))

    def _begin(
        self,
        now_ns: int,
        kind: Literal["read", "write"],
        pages: tuple[bytes, ...],
        *,
        request: int | None = None,
        wanted: tuple[bytes, ...] = (),
        prefix: bytes = b"",
    ) -> list[Loaded | Command]:
        number = self._next_transfer
        self._next_transfer += 1
        self._transfers[number] = _Transfer(pages, self._stage(number, pages), request, wanted)
        return self.step(now_ns, Arrive(number, kind, self._keys(pages), prefix))

    def _stage(self, number: int, pages: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Take room for pages in transfer; where there is none they pass host memory by, which is counted."""
        if not self.host.capacity_pages:
            return ()
        staged = tuple(page for page in pages if self.host.acquire((number, page)))
        self._counters.allocation_failures += len(pages) - len(staged)
        return staged

    def _end(self, finish: Finish) -> list[Loaded | Command]:
        transfer = self._transfers.pop(finish.op)
        bad = {key.digest for key in finish.bad}
        for page in reversed(transfer.staged):  # a prefix is worth nothing without its beginning: that goes last
            self.host.settle((finish.op, page), None if page in bad else page)
        good_keys = len(transfer.pages) * self._ranks - len(finish.bad)
        if transfer.request is None:
            self._storing.difference_update(transfer.pages)
            self._counters.stored_pages += good_keys
            return []
        self._counters.read_pages += good_keys
        self._counters.unreachable_pages += len(finish.away)
        self._counters.content_mismatches += len(finish.bad) - len(finish.away)
        hits = leading(transfer.wanted, lambda page: page not in bad)
        return [Loaded(transfer.request, len(hits), sum(page not in transfer.pages for page in hits))]
