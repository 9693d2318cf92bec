"""Before cold reads: what was written is out of memory, the device is silent, and both can be shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvbench import clock, process
from kvbench.errors import StepError
from kvbench.host.activity.pagecache import Eviction, Residency, evict, residency
from kvbench.host.activity.telemetry import bytes_read_between, wait_idle
from kvbench.host.machine.blockdev import BlockDevice, read_counters
from kvbench.model import Target

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
    idle_read_bytes = fall_silent(devices, dwell_s)
    return Settled(eviction, residency(folders), idle_read_bytes)


def fall_silent(devices: Sequence[BlockDevice], dwell_s: float) -> int | None:
    """Wait until the devices are idle, and look on for `dwell_s`: what they read then, as `Settled.idle_read_bytes`."""
    wait_idle(devices, QUIET_S, DRAIN_TIMEOUT_S)
    before = read_counters(devices)
    clock.sleep_s(dwell_s)
    return bytes_read_between(before, read_counters(devices)) if devices else None


def run_hook(target: Target) -> None:
    """What the target does itself before reads that are to be cold. Raises StepError when it fails or hangs."""
    if hook := target.hooks.get("before_wave"):
        done = process.run(hook, timeout_s=DRAIN_TIMEOUT_S)
        if done.returncode:
            raise StepError(
                f"the hook before_wave ended with exit code {done.returncode}: {done.stderr.strip()[-200:]}"
            )
