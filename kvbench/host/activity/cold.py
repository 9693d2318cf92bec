"""Before cold reads: what was written is out of memory, the device is silent, and both can be shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvbench import clock
from kvbench.host.activity.pagecache import Eviction, Residency, evict, residency
from kvbench.host.activity.telemetry import bytes_read_between, wait_idle
from kvbench.host.machine.blockdev import BlockDevice, read_counters

QUIET_S = 1.0
DRAIN_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Settled:
    """`idle_read_bytes` is what the devices read during the dwell, when nothing should; None without a device."""

    eviction: Eviction
    residency: Residency
    idle_read_bytes: int | None


def settle(folders: Sequence[Path], devices: Sequence[BlockDevice], dwell_s: float) -> Settled:
    """Drop the folders' files from the page cache, wait until the devices are idle, and look on for `dwell_s`.

    Raises StepError when they do not become idle.
    """
    eviction = evict(folders)
    wait_idle(devices, QUIET_S, DRAIN_TIMEOUT_S)
    before = read_counters(devices)
    clock.sleep_s(dwell_s)
    idle_read_bytes = bytes_read_between(before, read_counters(devices)) if devices else None
    return Settled(eviction, residency(folders), idle_read_bytes)
