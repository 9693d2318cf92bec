"""The only place that reads a clock.

Durations come from the monotonic clock; wall time only stamps. Monotonic stamps die at a reboot,
so the boot id stands beside them.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kvbench.model import Stamp

TEST_WALL_OFFSET = "KVBENCH_TEST_WALL_OFFSET_S"


def monotonic_ns() -> int:
    """CLOCK_MONOTONIC in nanoseconds: what durations are made of."""
    return time.monotonic_ns()


def wall() -> datetime:
    """Now, in UTC: a stamp for people, never part of a duration.

    For tests alone, the environment variable KVBENCH_TEST_WALL_OFFSET_S sets this clock off by so many seconds, as a
    machine's clock is that somebody sets: so a test needs no right to set the system's. The variable reaches processes
    that cron starts. It can lengthen or shorten nothing that is measured, since durations are monotonic.
    """
    return datetime.now(UTC) + timedelta(seconds=float(os.environ.get(TEST_WALL_OFFSET, "0")))


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


def awake_ns() -> int:
    """How long this thread has run or waited for a processor, in nanoseconds; all its time where the kernel does not
    count that (/proc/thread-self/schedstat)."""
    try:
        ran_ns, waited_ns, _ = Path("/proc/thread-self/schedstat").read_text().split()
    except OSError:
        return monotonic_ns()
    return int(ran_ns) + int(waited_ns)
