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
