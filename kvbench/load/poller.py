"""Which sockets can be read or written now: an epoll of our own, inside the loop's.

uvloop forgets a reader whose socket has been reset, and wakes Python once a socket; this tells of every condition,
and wakes Python once for all sockets that are ready. It looks a thousand times a second at most: the kernel has
stamped what comes meanwhile, and being woken for each token would cost more than reading it. What has been read is
worked off when all sockets have been read, since what lies unread loses its own stamp to what comes after it.
"""

from __future__ import annotations

import asyncio
import select
from collections import deque
from collections.abc import Callable

from kvbench import clock

_PAUSE_S = 0.001  # no server sends the tokens of one stream so close together
_WORK_NS = 2_000_000  # so long may sockets lie unread because of what was read before


class Poller:
    """Calls the handler of each socket that is ready, with epoll's events.

    `looked_before_ns` is when it looked the time before: what a handler finds now had not been there then.
    `paused` says that it has looked away since; else it was waiting.
    """

    def __init__(self) -> None:
        self.looked_before_ns = self._looked_ns = clock.monotonic_ns()
        self.paused = False
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._writing: set[int] = set()  # sockets of which it tells when they can be written: no pause delays a prompt
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.Handle | None = None
        self._work: deque[Callable[[], None]] = deque()
        self._wait()

    def add(self, fd: int, handler: Callable[[int], None]) -> None:
        """Tell `handler` when the socket can be read, or has failed."""
        self._handlers[fd] = handler
        self._epoll.register(fd, select.EPOLLIN)

    def also_writable(self, fd: int, wanted: bool) -> None:
        """Tell it also, or no longer, when the socket can be written."""
        self._epoll.modify(fd, select.EPOLLIN | select.EPOLLOUT if wanted else select.EPOLLIN)
        (self._writing.add if wanted else self._writing.discard)(fd)

    def remove(self, fd: int) -> None:
        """Call before the socket is closed."""
        del self._handlers[fd]
        self._writing.discard(fd)
        self._epoll.unregister(fd)

    def do_later(self, work: Callable[[], None]) -> None:
        """Have something done when all that is ready has been read."""
        self._work.append(work)

    def close(self) -> None:
        """Stop. Sockets are left as they are."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _wait(self) -> None:
        self._pause = None
        self._loop.add_reader(self._epoll.fileno(), self._look)

    def _look(self) -> None:
        handlers = self._handlers
        self.looked_before_ns, self._looked_ns = self._looked_ns, clock.monotonic_ns()
        self.paused = self._pause is not None
        ready = self._epoll.poll(0, max(1, len(handlers)))
        for fd, events in ready:
            if (handler := handlers.get(fd)) is not None:  # else closed by a handler before it
                handler(events)
        self._work_off()
        if self._work:
            self._look_again(self._loop.call_soon(self._look))
        elif ready and not self._writing:
            self._look_again(self._loop.call_later(_PAUSE_S, self._look))
        elif self.paused:
            self._wait()

    def _look_again(self, when: asyncio.Handle) -> None:
        """Look without being woken."""
        if not self.paused:
            self._loop.remove_reader(self._epoll.fileno())
        self._pause = when

    def _work_off(self) -> None:
        until_ns = clock.monotonic_ns() + _WORK_NS
        while self._work and clock.monotonic_ns() < until_ns:
            self._work.popleft()()
