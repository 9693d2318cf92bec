"""A modelled storage node and the link that it shares: when an I/O that is given to it will have ended. Pure.

A node serves so many I/Os at once as it has channels. Their bytes pass its medium one after the other, at the rate of
reads or of writes, and then the link of its group; base latency is added beside that, drawn for each I/O. Reads are
slowed while writes are under way; writes fall to a lower rate when they have filled the fast part of the medium.
All results are simulated: the model is as good as the figures that it is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapreplace

from kvbench.sim import luck
from kvbench.units import RateBytes, Seconds, SizeBytes


@dataclass(frozen=True, slots=True)
class NodeModel:
    """`latency` is the median, log-normal with spread `latency_sigma`. `write_slowdown` is added to the time of a read
    as a share of it, while writes are under way. After `burst` bytes, which drain at `cliff_rate`, writes pass at that
    rate; 0: no cliff. `fault_share` of I/Os fail."""

    read_rate: RateBytes
    write_rate: RateBytes
    channels: int = 32
    latency: Seconds = 100e-6
    latency_sigma: float = 0.3
    write_slowdown: float = 0.0
    burst: SizeBytes = 0
    cliff_rate: RateBytes = 0
    fault_share: float = 0.0

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    def __post_init__(self) -> None:
        if not (self.read_rate and self.write_rate and self.channels):
            raise ValueError("a node needs a read_rate, a write_rate and channels above 0")
        if self.burst and not self.cliff_rate:
            raise ValueError("a burst needs the cliff_rate that follows it")

    @classmethod
    def of_rate(cls, bytes_per_s: int) -> NodeModel:
        """A device of which its rate alone is known: with channels for all readers, so never idle while one waits."""
        return cls(read_rate=bytes_per_s, write_rate=bytes_per_s, channels=256)


class Link:
    """A network port that several nodes share: bytes pass one after the other."""

    def __init__(self, bytes_per_s: int) -> None:
        self._ns_per_byte = 1e9 / bytes_per_s
        self._free_ns = 0

    def passes_ns(self, from_ns: int, size_bytes: int) -> int:
        """When bytes that can begin to pass at a moment have passed."""
        self._free_ns = max(self._free_ns, from_ns) + round(size_bytes * self._ns_per_byte)
        return self._free_ns


class Node:
    """The state of one node. I/Os have to be given to it in the order of time."""

    def __init__(self, model: NodeModel, number: int, seed: int, link: Link | None = None) -> None:
        self.model = model
        self.bytes_read = self.bytes_written = 0
        self._number, self._seed, self._link = number, seed, link
        self._latencies = luck.lognormal(model.latency_sigma)
        self._channels_free_ns = [0] * model.channels
        self._medium_free_ns = self._writes_end_ns = 0
        self._burst_bytes = 0.0  # in the fast part of the medium
        self._burst_at_ns = 0

    def read(self, now_ns: int, size_bytes: int, operation: int) -> tuple[int, int]:
        """When a read begins and when it has ended. `operation` is what its luck is keyed by."""
        begin_ns = max(now_ns, self._channels_free_ns[0])
        model = self.model
        took_ns = size_bytes * 1e9 / model.read_rate
        if begin_ns < self._writes_end_ns:
            took_ns *= 1 + model.write_slowdown
        self.bytes_read += size_bytes
        return begin_ns, self._pass(begin_ns, size_bytes, took_ns, operation)

    def write(self, now_ns: int, size_bytes: int, operation: int) -> tuple[int, int]:
        """The same for a write."""
        begin_ns = max(now_ns, self._channels_free_ns[0])
        self.bytes_written += size_bytes
        end_ns = self._pass(begin_ns, size_bytes, self._write_ns(begin_ns, size_bytes), operation)
        self._writes_end_ns = max(self._writes_end_ns, end_ns)
        return begin_ns, end_ns

    def touch(self, now_ns: int, operation: int) -> tuple[int, int]:
        """The same for what moves no bytes: a deletion."""
        begin_ns = max(now_ns, self._channels_free_ns[0])
        return begin_ns, self._pass(begin_ns, 0, 0.0, operation)

    def sync(self, now_ns: int, operation: int) -> tuple[int, int]:
        """The same for making writes durable: it ends after those that were given before."""
        return now_ns, max(now_ns, self._writes_end_ns) + self._latency_ns(operation)

    def fails(self, operation: int) -> bool:
        """Whether the I/O ends badly; a draw of its own."""
        share = self.model.fault_share
        return bool(share) and luck.uniform_bits(~self._seed, self._number, operation) < share * 2**64

    def _pass(self, begin_ns: int, size_bytes: int, took_ns: float, operation: int) -> int:
        """Latency comes after the bytes, so that an unlucky I/O holds up its channel and not the medium."""
        medium_ns = max(begin_ns, self._medium_free_ns)
        self._medium_free_ns = medium_ns + round(took_ns)
        end_ns = self._medium_free_ns
        if self._link and size_bytes:
            end_ns = max(end_ns, self._link.passes_ns(medium_ns, size_bytes))
        end_ns += self._latency_ns(operation)
        heapreplace(self._channels_free_ns, end_ns)
        return end_ns

    def _latency_ns(self, operation: int) -> int:
        bits = luck.uniform_bits(self._seed, self._number, operation)
        return round(1e9 * self.model.latency * luck.pick(self._latencies, bits))

    def _write_ns(self, begin_ns: int, size_bytes: int) -> float:
        model = self.model
        if not model.burst:
            return size_bytes * 1e9 / model.write_rate
        drained = (begin_ns - self._burst_at_ns) * model.cliff_rate / 1e9
        held = max(0.0, self._burst_bytes - drained)
        fast = min(float(size_bytes), max(0.0, model.burst - held))
        self._burst_bytes, self._burst_at_ns = held + fast, begin_ns
        return fast * 1e9 / model.write_rate + (size_bytes - fast) * 1e9 / model.cliff_rate
