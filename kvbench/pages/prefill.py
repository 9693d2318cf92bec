"""An engine in a sentence: it computes prompts one after the other, each for a given time. Pure."""

from __future__ import annotations


class Prefill:
    """`free_ns`: when it has computed all that it was given."""

    def __init__(self) -> None:
        self.free_ns = 0
        self._given_ns = 0

    def add(self, now_ns: int, time_ns: int) -> int:
        """A prompt is ready to be computed; when it will have been."""
        self.free_ns = max(self.free_ns, now_ns) + time_ns
        self._given_ns += time_ns
        return self.free_ns

    def computed_ns(self, now_ns: int) -> int:
        """For how long it has computed until now, or until a moment that no prompt came after."""
        return self._given_ns - max(0, self.free_ns - now_ns)
