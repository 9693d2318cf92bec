"""The page I/Os of one slice, and what their times say: rates, latencies, stalls, and what a fault did. Pure.

An I/O counts as service when it succeeded: errors that come back at once are not.
"""

from __future__ import annotations

import statistics
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from kvbench.lasting import UNAVAILABLE_ABOVE_S
from kvbench.stats import percentile

Kind = Literal["read", "write", "delete", "failed", "held"]

BIN_S = 10  # of the rollup that is kept of a slice
_KINDS: tuple[Kind, ...] = ("read", "write", "delete", "failed", "held")
_SERVED = 3  # kinds below it are I/Os that succeeded
_BACK_SHARE = 0.9  # of the bandwidth before a fault, held for _BACK_FOR_S: the storage has recovered
_BACK_FOR_S = 10


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What followed a moment: the longest time without a page served, and the time until bandwidth was back.

    `outage_s` is measured from the last page served before it. `recovery_s` counts from the moment itself; None when
    the slice ended before, or had too little before it to compare with.
    """

    outage_s: float
    recovery_s: float | None


class Timeline:
    """Every I/O of a slice, in the order in which they ended; 17 bytes each.

    `failed` is an I/O of any kind that did not succeed; `held` is no I/O, but a stretch in which the stated rate alone
    held the next one back.
    """

    def __init__(self, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self._kinds = bytearray()
        self._began_ns, self._ended_ns = array("q"), array("q")

    def add(self, kind: Kind, began_ns: int, ended_ns: int) -> None:
        self._kinds.append(_KINDS.index(kind))
        self._began_ns.append(began_ns)
        self._ended_ns.append(ended_ns)

    def count(self, kind: Kind) -> int:
        return self._kinds.count(_KINDS.index(kind))

    def bandwidth(self, kind: Kind, from_ns: int, to_ns: int) -> float:
        """Bytes per second of pages that ended within a stretch."""
        ended = sum(from_ns < end <= to_ns for _, end in self._of(kind))
        return ended * self.page_bytes * 1e9 / (to_ns - from_ns)

    def latencies_s(self, kind: Kind) -> list[float]:
        return [(end - began) / 1e9 for began, end in self._of(kind)]

    def busy_ns(self) -> int:
        """Time with at least one I/O under way, or held back by the stated rate: the union of their intervals."""
        busy_ns, reached_ns = 0, 0
        for began, ended in sorted(zip(self._began_ns, self._ended_ns, strict=True)):
            busy_ns += max(0, ended - max(began, reached_ns))
            reached_ns = max(reached_ns, ended)
        return busy_ns

    def stalls_s(self, from_ns: int, to_ns: int) -> list[float]:
        """The stretches without an I/O that ends well, edges included."""
        ends = [end for end in self._served_ns() if from_ns < end < to_ns]
        return [(after - before) / 1e9 for before, after in pairwise([from_ns, *ends, to_ns])]

    def unavailable_s(self, from_ns: int, to_ns: int) -> float:
        """The stalls that count as unavailability, added up."""
        return sum(stall for stall in self.stalls_s(from_ns, to_ns) if stall > UNAVAILABLE_ABOVE_S)

    def disturbance(self, at_ns: int, from_ns: int, to_ns: int) -> Disturbance:
        """What followed the moment `at_ns` of a stretch that was in full swing since `from_ns` and ended at `to_ns`."""
        ends = [end for end in self._served_ns() if from_ns < end <= to_ns]
        before = max((end for end in ends if end <= at_ns), default=at_ns)
        outage = max(
            (after - at for at, after in pairwise([before, *(e for e in ends if e > before), to_ns])), default=0
        )
        usual = self._per_second(from_ns, at_ns)
        if len(usual) < _BACK_FOR_S:
            return Disturbance(outage / 1e9, None)
        enough, since = _BACK_SHARE * statistics.median(usual), self._per_second(at_ns, to_ns)
        back_s = next((float(s) for s in range(len(since)) if _is_back(since[s : s + _BACK_FOR_S], enough)), None)
        return Disturbance(outage / 1e9, back_s)

    def rollup(self, from_ns: int) -> list[dict[str, Any]]:
        """One row a stretch of BIN_S since `from_ns` in which an I/O ended: pages by kind, and read latencies."""
        rows: dict[int, dict[str, Any]] = {}
        latencies: dict[int, list[float]] = {}
        for kind, began, ended in zip(self._kinds, self._began_ns, self._ended_ns, strict=True):
            if _KINDS[kind] == "held":
                continue
            at_s = (ended - from_ns) // (BIN_S * 10**9) * BIN_S
            row = rows.setdefault(at_s, {"at_s": at_s, "page_bytes": self.page_bytes} | dict.fromkeys(_COLUMNS, 0))
            row[_COLUMNS[kind]] += 1
            if _KINDS[kind] == "read":
                latencies.setdefault(at_s, []).append((ended - began) / 1e9)
        for at_s, row in rows.items():
            seen = latencies.get(at_s)
            row["read_latency_p50_s"] = percentile(seen, 50) if seen else None
            row["read_latency_max_s"] = max(seen) if seen else None
        return [rows[at_s] for at_s in sorted(rows)]

    def _served_ns(self) -> list[int]:
        """When the I/Os that succeeded ended, in order."""
        return sorted(end for kind, end in zip(self._kinds, self._ended_ns, strict=True) if kind < _SERVED)

    def _of(self, kind: Kind) -> Iterator[tuple[int, int]]:
        code = _KINDS.index(kind)
        columns = zip(self._kinds, self._began_ns, self._ended_ns, strict=True)
        return ((began, ended) for found, began, ended in columns if found == code)

    def _per_second(self, from_ns: int, to_ns: int) -> Sequence[int]:
        """Pages read or written in every whole second of a stretch."""
        counts = [0] * ((to_ns - from_ns) // 10**9)
        for kind in ("read", "write"):
            for _, ended in self._of(kind):
                second = (ended - from_ns) // 10**9
                if 0 <= second < len(counts):
                    counts[second] += 1
        return counts


def _is_back(pages_per_s: Sequence[int], enough: float) -> bool:
    """Whether the first second has enough pages, and so has the whole stretch on average."""
    return len(pages_per_s) == _BACK_FOR_S and pages_per_s[0] >= enough and sum(pages_per_s) >= enough * _BACK_FOR_S


_COLUMNS = ("reads", "writes", "deletes", "failed")  # of the rollup, by code of kind
