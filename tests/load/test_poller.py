"""When the poller looks, and when it looks away."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from socket import socket, socketpair

import pytest

from kvbench import clock
from kvbench.load.poller import _WORK_NS, Poller


@dataclass
class Loop:
    """An event loop whose readers and timers are called by hand."""

    readers: dict[int, Callable[[], None]] = field(default_factory=dict)
    timers: list[Callable[[], None]] = field(default_factory=list)

    def add_reader(self, fd: int, callback: Callable[[], None]) -> None:
        self.readers[fd] = callback

    def remove_reader(self, fd: int) -> None:
        self.readers.pop(fd, None)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> object:
        self.timers.append(callback)
        return callback

    def call_soon(self, callback: Callable[[], None]) -> object:
        return self.call_later(0, callback)

    def wake(self) -> None:
        (reader,) = self.readers.values()
        reader()

    def end_pause(self) -> None:
        (timer,) = self.timers
        self.timers.clear()
        timer()


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    return loop


@pytest.fixture
def ours() -> Iterator[socket]:
    ours, theirs = socketpair()
    with ours, theirs:
        theirs.send(b"token")
        yield ours


def test_what_is_there_is_told_and_then_it_looks_away_until_nothing_is_there(loop: Loop, ours: socket) -> None:
    poller, told = Poller(), []
    poller.add(ours.fileno(), told.append)
    loop.wake()
    assert (told, poller.paused, loop.readers) == ([select.EPOLLIN], False, {})
    loop.end_pause()
    assert (told, poller.paused, loop.readers) == ([select.EPOLLIN] * 2, True, {})
    ours.recv(5)
    loop.end_pause()
    assert (len(told), len(loop.readers), loop.timers) == (2, 1, [])


def test_it_does_not_look_away_from_a_socket_that_has_a_prompt_to_send(loop: Loop, ours: socket) -> None:
    poller, told = Poller(), []
    poller.add(ours.fileno(), told.append)
    poller.also_writable(ours.fileno(), True)
    loop.wake()
    assert (told, len(loop.readers), loop.timers) == ([select.EPOLLIN | select.EPOLLOUT], 1, [])
    poller.also_writable(ours.fileno(), False)
    loop.wake()
    assert len(loop.timers) == 1


def test_work_waits_until_every_socket_is_read_and_the_rest_of_it_until_they_are_read_again(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    poller, did, now_ns = Poller(), [], 0
    monkeypatch.setattr(clock, "monotonic_ns", lambda: now_ns)

    def work() -> None:
        nonlocal now_ns
        did.append("work")
        now_ns += 2 * _WORK_NS

    def read(events: int) -> None:
        did.append("read")
        poller.do_later(work)

    pairs = [socketpair() for _ in range(2)]
    for ours, theirs in pairs:
        theirs.send(b"token")
        poller.add(ours.fileno(), read)
    loop.wake()
    assert did == ["read", "read", "work"]
    loop.end_pause()
    assert did[3:] == ["read", "read", "work"]
    for sockets in pairs:
        for one in sockets:
            one.close()


def test_a_socket_that_a_handler_has_closed_is_told_of_no_more(loop: Loop) -> None:
    pairs = [socketpair() for _ in range(2)]
    poller, told = Poller(), []

    def close_the_other(mine: int, other: int) -> Callable[[int], None]:
        def handler(events: int) -> None:
            told.append(mine)
            poller.remove(pairs[other][0].fileno())

        return handler

    for mine, (ours, theirs) in enumerate(pairs):
        theirs.send(b"token")
        poller.add(ours.fileno(), close_the_other(mine, 1 - mine))
    loop.wake()
    assert len(told) == 1
    for sockets in pairs:
        for one in sockets:
            one.close()
