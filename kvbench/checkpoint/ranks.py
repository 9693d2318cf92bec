"""Ranks that do their part at the same time, each in a thread: they begin together, and stop when one fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Barrier, BrokenBarrierError, Event, Thread
from typing import Generic, TypeVar

from kvbench import clock
from kvbench.errors import StepError

T = TypeVar("T")

_STOP_S = 10.0  # no I/O that still ends takes longer


class _Rank(Generic[T]):
    def __init__(self, number: int, task: Callable[[Event], T], together: Barrier, stop: Event) -> None:
        self.number, self._task, self._together, self._stop = number, task, together, stop
        self.result: T | None = None
        self.why_failed = ""
        self.thread = Thread(target=self._run, name=f"rank {number}", daemon=True)

    def _run(self) -> None:
        try:
            self._together.wait()
            self.result = self._task(self._stop)
        except BrokenBarrierError:
            self.why_failed = "another rank did not begin"
        except (OSError, ValueError) as error:
            self.why_failed = (error.strerror if isinstance(error, OSError) else None) or str(error)
            self._stop.set()


def together(tasks: Sequence[Callable[[Event], T]], timeout_s: float) -> list[T]:
    """What every task returns. Each is given an event, and goes no further once that is set.

    Raises StepError when one fails with OSError or ValueError, or does not end in time. Whatever leaves this, the ranks
    have ended, but for one whose I/O hangs.
    """
    stop, barrier = Event(), Barrier(len(tasks))
    ranks = [_Rank(number, task, barrier, stop) for number, task in enumerate(tasks)]
    try:
        for rank in ranks:
            rank.thread.start()
        _join(ranks, timeout_s)
    finally:
        stop.set()
        barrier.abort()
        _join(ranks, _STOP_S)
    failed = [rank for rank in ranks if rank.why_failed or rank.result is None]
    if failed:
        raise StepError(f"rank {failed[0].number}: {failed[0].why_failed or 'did not end in time'}")
    return [rank.result for rank in ranks if rank.result is not None]


def _join(ranks: Sequence[_Rank[T]], timeout_s: float) -> None:
    until_ns = clock.monotonic_ns() + int(timeout_s * 1e9)
    for rank in ranks:
        if rank.thread.ident:  # it has been started
            rank.thread.join(max(0.0, (until_ns - clock.monotonic_ns()) / 1e9))
