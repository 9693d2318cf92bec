"""Which blocks of a device are free. Pure."""

from __future__ import annotations

from bisect import bisect_left


class Space:
    """The free stretches between `first` and `end`, in the order in which they lie; neighbours are joined."""

    def __init__(self, first: int, end: int) -> None:
        self._begins, self._ends = ([first], [end]) if first < end else ([], [])

    @property
    def free_blocks(self) -> int:
        return sum(self._ends) - sum(self._begins)

    def take(self, blocks: int) -> int | None:
        """The first block of the first stretch that has so many, or None where none has."""
        for at, (begin, end) in enumerate(zip(self._begins, self._ends, strict=True)):
            if end - begin >= blocks:
                self._cut(at, begin, begin + blocks)
                return begin
        return None

    def take_at(self, begin: int, blocks: int) -> bool:
        """Take these blocks; whether all of them were free."""
        at = bisect_left(self._begins, begin + 1) - 1
        if at < 0 or begin + blocks > self._ends[at]:
            return False
        self._cut(at, begin, begin + blocks)
        return True

    def give(self, begin: int, blocks: int) -> None:
        """Blocks that were taken are free again."""
        end, at = begin + blocks, bisect_left(self._begins, begin)
        if at and self._ends[at - 1] == begin:
            at -= 1
            begin = self._begins.pop(at)
            self._ends.pop(at)
        if at < len(self._begins) and self._begins[at] == end:
            self._begins.pop(at)
            end = self._ends.pop(at)
        self._begins.insert(at, begin)
        self._ends.insert(at, end)

    def _cut(self, at: int, begin: int, end: int) -> None:
        """Take a part out of a stretch."""
        rests = [(a, b) for a, b in ((self._begins[at], begin), (end, self._ends[at])) if a < b]
        self._begins[at : at + 1] = [a for a, _ in rests]
        self._ends[at : at + 1] = [b for _, b in rests]
