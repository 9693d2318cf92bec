"""How fast work may go on that nobody waits for: a byte budget, and a guard over who does wait. Pure."""

from __future__ import annotations

from kvbench.store.decay import DecayedHistogram

_NEAR = 0.9  # of the limit of a TTFT
_HALF_LIFE_NS = 5 * 10**9


class TokenBucket:
    """At most `burst_bytes` + `bytes_per_s` × t in any time t.

    What is larger than the burst passes when the bucket is full, and is paid for before anything else passes: the
    bound is then that one's size + `bytes_per_s` × t.
    Source: the generic cell rate algorithm, ITU-T I.371, in whole nanoseconds rounded up.
    """

    def __init__(self, bytes_per_s: int, burst_bytes: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._burst_ns = self._cost_ns(burst_bytes)
        self._paid_until_ns = 0

    def ready_at_ns(self, size_bytes: int) -> int:
        """When so many bytes may pass at the earliest."""
        return self._paid_until_ns - max(0, self._burst_ns - self._cost_ns(size_bytes))

    def take(self, now_ns: int, size_bytes: int) -> bool:
        """Let bytes pass now, if they may."""
        if now_ns < self.ready_at_ns(size_bytes):
            return False
        self._paid_until_ns = max(self._paid_until_ns, now_ns) + self._cost_ns(size_bytes)
        return True

    def _cost_ns(self, size_bytes: int) -> int:
        return -(-size_bytes * 10**9 // self._bytes_per_s)


class TtftGuard:
    """Holds background work back while the TTFT is near its limit.

    Near: the median of the recent TTFTs, which lose half their weight every 5 s, is at 0.9 × the limit or above.
    Work goes on `hold_ns` after the last TTFT at which that was so; without requests nobody is disturbed.
    """

    def __init__(self, limit_ns: int, *, hold_ns: int = 10**9) -> None:
        self._near_ns, self._hold_ns = _NEAR * limit_ns, hold_ns
        self._recent = DecayedHistogram(_HALF_LIFE_NS)
        self.free_at_ns = 0

    def first_token(self, now_ns: int, ttft_ns: int) -> None:
        self._recent.add(now_ns, ttft_ns)
        if self._recent.quantile(0.5) >= self._near_ns:
            self.free_at_ns = now_ns + self._hold_ns
