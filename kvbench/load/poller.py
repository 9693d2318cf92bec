"""Which sockets can be read or written now: an epoll of our own, inside the loop's.

uvloop forgets a reader whose socket has been reset, and wakes Python once a socket; this tells of every condition,
and wakes Python once for all sockets that are ready.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable

from kvbench import clock


class Poller:
    """Calls the handler of each socket that is ready, with epoll's events.

    `looked_before_ns` is when it looked the time before: what a handler finds now had not been there then.
    """

    def __init__(self) -> None:
        self.looked_before_ns = self._looked_ns = clock.monotonic_ns()
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._epoll.fileno(), self._on_ready)

    def add(self, fd: int, handler: Callable[[int], None]) -> None:
        """Tell `handler` when the socket can be read, or has failed."""
        self._handlers[fd] = handler
        self._epoll.register(fd, select.EPOLLIN)

    def also_writable(self, fd: int, wanted: bool) -> None:
        """Tell it also, or no longer, when the socket can be written."""
        self._epoll.modify(fd, select.EPOLLIN | select.EPOLLOUT if wanted else select.EPOLLIN)

    def remove(self, fd: int) -> None:
        """Call before the socket is closed."""
        del self._handlers[fd]
        self._epoll.unregister(fd)

    def close(self) -> None:
        """Stop. Sockets are left as they are."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _on_ready(self) -> None:
        handlers = self._handlers
        self.looked_before_ns, self._looked_ns = self._looked_ns, clock.monotonic_ns()
        for fd, events in self._epoll.poll(0, max(1, len(handlers))):
            if (handler := handlers.get(fd)) is not None:  # else closed by a handler before it
                handler(events)
