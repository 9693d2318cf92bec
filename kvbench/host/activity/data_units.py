"""The drives' own count of the bytes that they read, beside the kernel's: NVMe SMART data units of local drives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvbench.host.health import smart_counters
from kvbench.host.machine.blockdev import BlockDevice, Counters
from kvbench.host.machine.smart import DATA_UNIT_BYTES


@dataclass(frozen=True, slots=True)
class Reading:
    """Bytes that a drive read between two moments, by its own count and by the kernel's.

    `smart_bytes` is None where the drive, or the tools on this machine, do not tell.
    """

    device: str
    smart_bytes: int | None
    block_bytes: int

    @property
    def disagreement(self) -> str:
        """A sentence where the counts differ by more than a data unit can hide, else "".

        The drive counts whole units, rounded up, so a difference of two readings is off by less than one of them.
        """
        if self.smart_bytes is None or abs(self.smart_bytes - self.block_bytes) <= DATA_UNIT_BYTES:
            return ""
        return (
            f"{self.device} counts {self.smart_bytes:,} B read by its SMART data units, and the kernel "
            f"{self.block_bytes:,} B: the drive counts late, or somebody else reads from it"
        )


def read_bytes(devices: Sequence[BlockDevice], raw_dir: Path) -> dict[str, int | None]:
    """Bytes that each local NVMe drive has read since it was made; the tools' answers are kept in `raw_dir`."""
    local = [device for device in devices if device.transport == "nvme-pcie"]
    if local:
        raw_dir.mkdir()
    return {name: smart.read_bytes for name, smart in smart_counters(local, raw_dir).items()}


def between(
    smart: tuple[Mapping[str, int | None], Mapping[str, int | None]],
    block: tuple[Mapping[str, Counters], Mapping[str, Counters]],
) -> tuple[Reading, ...]:
    """Both counts of what each local drive read; `smart` and `block` are readings before and after. Pure."""
    return tuple(
        Reading(
            name,
            None if then is None or now is None else now - then,
            block[1][name].read_bytes - block[0][name].read_bytes,
        )
        for name, then in smart[0].items()
        for now in (smart[1].get(name),)
    )
