"""A tier of memory that keeps KV pages: a budget in pages, references, a policy over what nobody refers to. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import takewhile

from kvbench.store.policy import Lru, Policy


class Tier:
    """Pages that fit a budget. A page with references stays; of the others the policy says which goes for room.

    A page that is still being filled has a private name, under which nobody looks for it; `settle` gives it its own.
    """

    def __init__(self, capacity_pages: int, policy: Policy | None = None) -> None:
        self.capacity_pages = max(0, capacity_pages)
        self._references: dict[Hashable, int] = {}
        self._idle = policy if policy is not None else Lru()  # the pages without references

    def __len__(self) -> int:
        return len(self._references)

    def __contains__(self, page: Hashable) -> bool:
        return page in self._references

    def room(self) -> int:
        """How many pages could be brought in: what is free, and what would go."""
        return self.capacity_pages - len(self._references) + len(self._idle)

    def acquire(self, page: Hashable) -> bool:
        """Refer to a page, and bring it in if it is not here; False when there is no room for it."""
        if page not in self._references:
            if not self.room():
                return False
            if len(self._references) == self.capacity_pages:
                del self._references[self._idle.evict()]
        self._references[page] = self._references.get(page, 0) + 1
        if page in self._idle:
            self._idle.remove(page)
        return True

    def release(self, page: Hashable) -> None:
        """Give one reference back; the page stays until its room is needed."""
        self._references[page] -= 1
        if not self._references[page]:
            self._idle.insert(page)

    def touch(self, page: Hashable) -> bool:
        """Whether the page is here; if so, it has just been used."""
        if page in self._idle:
            self._idle.hit(page)
        return page in self._references

    def publish(self, private: Hashable, page: Hashable) -> bool:
        """Let a private page be found as `page`; False when another one is found under that name already."""
        if page in self._references:
            return False
        self._references[page] = self._references.pop(private)
        return True

    def settle(self, private: Hashable, page: Hashable | None) -> None:
        """Give up a private page: it stays under the name `page`, or goes when that is None or taken."""
        if page is not None and self.publish(private, page):
            self.release(page)
        else:
            del self._references[private]

    def clear(self) -> None:
        """Drop every page without references."""
        while len(self._idle):
            del self._references[self._idle.evict()]


def leading(pages: Sequence[bytes], held: Callable[[bytes], bool]) -> tuple[bytes, ...]:
    """The pages that are held, from the first on, without a gap."""
    return tuple(takewhile(held, pages))
