"""What moves between the storage nodes of an engine, by its own counters, as long as waves run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

from kvbench import clock
from kvbench.errors import StepError

_INTERVAL_S = 0.2  # a reading costs the engine about a millisecond


@dataclass(frozen=True, slots=True)
class Reading:
    """`pages`: how many have changed their node since the engine started. `moving`: more do, or wait for the pace."""

    at_ns: int
    pages: int
    moving: bool


class Moves:
    """Readings in a thread of its own, five a second; none of an engine that does not count moves.

    A reading that could not be had is left out: a busy engine may be slow to answer, and that spoils no wave.
    """

    def __init__(self, counters: Callable[[], Mapping[str, float | None]]) -> None:
        self.readings: list[Reading] = []
        self._counters = counters
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="moves", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def have_ended(self, since_ns: int) -> bool:
        """Whether no page moves any more that had to since then; so where nobody counts them, too."""
        now = self._read()
        return now is None or (now.at_ns > since_ns and not now.moving)

    def _run(self) -> None:
        while not self._stopping.wait(_INTERVAL_S):
            try:
                reading = self._read()
            except StepError:
                continue
            if reading is None:
                return
            self.readings.append(reading)

    def _read(self) -> Reading | None:
        at_ns, counted = clock.monotonic_ns(), self._counters()
        pages, moving = counted["moved_pages"], counted["pages_moving"]
        return None if pages is None or moving is None else Reading(at_ns, int(pages), bool(moving))


def rebalance_s(readings: list[Reading], changed_ns: int) -> float | None:
    """From the change to the reading that found the last page moved; 0 when none did, None without readings."""
    after = [reading for reading in readings if reading.at_ns > changed_ns]
    if not after:
        return None
    ends = [later.at_ns for sooner, later in pairwise(after) if later.pages > sooner.pages or sooner.moving]
    return (max(ends) - changed_ns) / 1e9 if ends else 0.0


def table(readings: list[Reading], page_bytes: int) -> list[dict[str, Any]]:
    """A row a reading: `at_ns` (monotonic), `moved_bytes` since the first, `moving`."""
    return [
        {"at_ns": one.at_ns, "moved_bytes": (one.pages - readings[0].pages) * page_bytes, "moving": one.moving}
        for one in readings
    ]
