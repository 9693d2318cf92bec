"""The cache that an array keeps in front of its media: whether there is one, and what must be read to fill it. Pure.

No counter of this host sees into it. So a cold read from an array is one after other data, at least twice as large as
the cache, have been read: by then, a cache that keeps what was used last holds nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kvbench.host.machine.blockdev import Medium, is_network_file_system
from kvbench.model import Metric

TIMES_ITS_SIZE = 2

_LOCAL = ("nvme-pcie", "sata", "sas", "usb", "virtio", "")
_ELSEWHERE = ("nbd", "rbd", "drbd")  # devices of this name are reached over a network


@dataclass(frozen=True, slots=True)
class ArrayCache:
    """What stands between this host and an arm's media.

    `reached_over` names the fabric (`nvme-tcp`, `fc`, `nfs` …), "" for local drives. `declared_bytes` is the cache
    that the target declares; None: it declares none, 0: it declares that there is none.
    """

    reached_over: str
    declared_bytes: int | None

    @property
    def exists(self) -> bool:
        """Whether a read may be answered from it: where one is declared, and on a fabric also where nothing is."""
        return bool(self.declared_bytes) or (bool(self.reached_over) and self.declared_bytes is None)

    @property
    def filler_bytes(self) -> int:
        """What must be read to be sure of it, as far as that is known."""
        return filler_bytes(self.declared_bytes)

    def facts(self) -> dict[str, Any]:
        """For a measurement: `has_array_cache` is what checks go by."""
        return {
            "has_array_cache": self.exists,
            "array_cache_bytes": self.declared_bytes,
            "reached_over": self.reached_over or "local drives",
        }

    def metric(self, read_bytes: int, source: str) -> Metric:
        """Bytes of other data that were read ÷ the declared size."""
        if self.declared_bytes:
            return Metric(read_bytes / self.declared_bytes, "ratio", 1, source)
        if not self.exists:
            why = "no array stands before local drives" if not self.reached_over else "it is declared to have no cache"
            return Metric(None, "ratio", 0, source, f"not applicable: {why}")
        why = f"reached over {self.reached_over}, and the array's own cache is not declared (storage.array_cache_bytes)"
        return Metric(None, "ratio", 0, source, why)


def array_cache(media: Iterable[Medium], declared_bytes: int | None) -> ArrayCache:
    """What is to be known of an arm's array before its pages are read cold."""
    fabrics = [fabric for medium in media for fabric in _fabrics(medium)]
    return ArrayCache(fabrics[0] if fabrics else "", declared_bytes)


def filler_bytes(declared_bytes: int | None) -> int:
    return TIMES_ITS_SIZE * (declared_bytes or 0)


def _fabrics(medium: Medium) -> list[str]:
    if not medium.devices:
        return [medium.mount.fs_type] if medium.mount and is_network_file_system(medium.mount.fs_type) else []
    names = [device.name.rstrip("0123456789") for device in medium.devices if device.name.startswith(_ELSEWHERE)]
    return names + [device.transport for device in medium.devices if device.transport not in _LOCAL]
