"""Pages that come and go: each is written, read once when it has become the oldest, deleted, and replaced. Pure.

A page comes back only after a whole working set of others has been written, so a cache smaller than the working set
cannot answer for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from kvbench.store.keys import PageKey
from kvbench.store.protocol import Delete, Done, Read, Status, Write

PageIo = Read | Write | Delete

_CATCH_UP_NS = 10**9  # of a pace that was missed; what an outage cost is not made up for


class Turnover:
    """Keeps `pages` pages on `nodes` nodes, with at most `at_once` commands under way.

    `interval_ns` is the time from one read to the next, 0 for as fast as they go. The first read follows when all
    pages have been written.
    """

    def __init__(self, nodes: int, pages: int, at_once: int, seed: int, interval_ns: int = 0) -> None:
        self._nodes, self._pages, self._at_once, self._seed = nodes, pages, at_once, seed
        self._interval_ns = interval_ns
        self._to_write, self._written, self._next_io = pages, 0, 0
        self._stored: deque[int] = deque()  # page numbers, the oldest first
        self._read: deque[int] = deque()  # to be deleted
        self._under_way: dict[int, tuple[PageIo, int]] = {}
        self._due_ns: int | None = None
        self._stopped = False

    @property
    def is_full(self) -> bool:
        """Whether the working set has been written, and the turnover itself has begun."""
        return self._due_ns is not None

    @property
    def is_over(self) -> bool:
        """Whether it was stopped, and all has ended."""
        return self._stopped and not self._under_way

    def stop(self) -> None:
        """Bring no more; what is under way still ends."""
        self._stopped = True

    def wait_ns(self, now_ns: int) -> int | None:
        """How long the pace alone holds the next command back; None when it does not."""
        waits = self._stopped or self._read or self._to_write or not self._stored
        return None if waits or self._due_ns is None or self._due_ns <= now_ns else self._due_ns - now_ns

    def ready(self, now_ns: int) -> list[PageIo]:
        """The commands that can begin now; they count as under way from here on."""
        return list(self._bring(now_ns))

    def done(self, now_ns: int, done: Done) -> PageIo:
        """Take the end of a command in; returns the command. In place of a page that was not written comes another."""
        command, number = self._under_way.pop(done.io)
        match command:
            case Write() if done.status is Status.OK:
                self._stored.append(number)
                if not self.is_full and len(self._stored) == self._pages:
                    self._due_ns = now_ns
            case Read():
                self._read.append(number)
            case _:
                self._to_write += 1
        return command

    def _bring(self, now_ns: int) -> Iterator[PageIo]:
        while not self._stopped and len(self._under_way) < self._at_once:
            if self._read:
                yield self._begin(Delete, self._read.popleft())
            elif self._to_write:
                self._to_write -= 1
                self._written += 1
                yield self._begin(Write, self._written - 1)
            elif self._stored and self._due_ns is not None and self._due_ns <= now_ns:
                self._due_ns = max(self._due_ns + self._interval_ns, now_ns - _CATCH_UP_NS)
                yield self._begin(Read, self._stored.popleft())
            else:
                return

    def _begin(self, kind: type[PageIo], number: int) -> PageIo:
        command = kind(self._next_io, number % self._nodes, PageKey.named(f"{self._seed}/{number}"))
        self._under_way[command.io] = command, number
        self._next_io += 1
        return command
