"""The only place that reads a clock.

Durations come from the monotonic clock; wall time only stamps. Monotonic stamps die at a reboot,
so the boot id stands beside them.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from kvbench.model import Stamp


def monotonic_ns() -> int:
    """CLOCK_MONOTONIC in nanoseconds: what durations are made of."""
    return time.monotonic_ns()


def wall() -> datetime:
    """Now, in UTC: a stamp for people, never part of a duration."""
    return datetime.now(UTC)


def boot_id() -> str:
    """The kernel's id of this boot, or "" where the kernel does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def stamp() -> Stamp:
    """This moment on both clocks."""
    return Stamp(wall=wall().isoformat(timespec="milliseconds"), monotonic_ns=monotonic_ns())


def sleep_s(seconds: float) -> None:
    """Wait. For pacing a poll or holding a stated dwell, never in place of a condition."""
    time.sleep(max(0.0, seconds))


def realtime_offset_ns() -> int:
    """CLOCK_REALTIME − CLOCK_MONOTONIC, which places the kernel's receive stamps on the monotonic clock.

    The closest of three readings: each pair of clocks is read between two readings of the monotonic one.
    """

    def reading() -> tuple[int, int]:
        before, real, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        return after - before, real - (before + after) // 2

    return min(reading() for _ in range(3))[1]


def cpu_ns() -> int:
    """Processor time of this process, user and system, in nanoseconds."""
    return time.process_time_ns()
