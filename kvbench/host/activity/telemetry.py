"""What the machine does while something else is measured: one sample a second of devices, processors and pressure.

Exact amounts come from two snapshots around a wave (`blockdev.read_counters`); the samples show its course.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kvbench import clock
from kvbench.errors import StepError
from kvbench.host.activity.pressure import RESOURCES, Pressure, read_pressure
from kvbench.host.machine.blockdev import BlockDevice, Counters, read_counters
from kvbench.process import stat_fields

IDLE_BYTES_PER_S = 1_000_000  # what a device may move and still count as idle: journals and logs of the system
_POLL_S = 0.1
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading. CPU times are seconds since boot or since the process began, summed over processors."""

    at_ns: int
    counters: Mapping[str, Counters]
    pressure: Pressure
    cpu_busy_s: float
    cpu_total_s: float
    load_1min: float
    own_cpu_s: float
    watched_cpu_s: float  # of the processes that were named, as far as they live


class Sampler:
    """Takes samples in a thread of its own, at fixed deadlines, for as long as the `with` block lasts.

    The first is taken on entering and the last on leaving. A deadline that was missed is left out, not made up for.
    An error in the thread ends the sampling and is raised on leaving.
    """

    def __init__(self, devices: Sequence[BlockDevice], pids: Sequence[int] = (), interval_s: float = 1.0) -> None:
        self.devices = tuple(devices)
        self.pids = tuple(pids)
        self.interval_ns = round(interval_s * 1e9)
        self.samples: list[Sample] = []
        self._error: StepError | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def __enter__(self) -> Self:
        self.samples.append(take_sample(self.devices, self.pids))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._error and error is None:
            raise self._error

    def stop(self) -> None:
        """Take the last sample and end the thread. Stopping twice does nothing."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        due_ns = self.samples[0].at_ns
        try:
            while not self._stopping.is_set():
                missed = (clock.monotonic_ns() - due_ns) // self.interval_ns
                due_ns += (max(0, missed) + 1) * self.interval_ns
                self._stopping.wait((due_ns - clock.monotonic_ns()) / 1e9)
                self.samples.append(take_sample(self.devices, self.pids))
        except StepError as error:
            self._error = error

    def table(self) -> dict[str, list[Any]]:
        """Columns, one row a sample and device: `at_ns` (monotonic), `device`, then its counters since boot."""
        names = [field.name for field in fields(Counters)]
        rows = [
            {"at_ns": sample.at_ns, "device": device, **asdict(counters)}
            for sample in self.samples
            for device, counters in sample.counters.items()
        ]
        return {name: [row[name] for row in rows] for name in ("at_ns", "device", *names)}

    def host_table(self) -> dict[str, list[Any]]:
        """Columns, one row a sample: processors, load and pressure totals, as in `Sample`."""
        names = [field.name for field in fields(Sample) if field.name not in ("counters", "pressure")]
        columns: dict[str, list[Any]] = {name: [getattr(sample, name) for sample in self.samples] for name in names}
        for name in RESOURCES:
            columns[f"pressure_{name}_us"] = [sample.pressure.stall_us[name] for sample in self.samples]
        return columns

    def write_devices(self, path: Path) -> None:
        """`table` as Parquet."""
        _write_parquet(self.table(), path)

    def write_host(self, path: Path) -> None:
        """`host_table` as Parquet."""
        _write_parquet(self.host_table(), path)


def _write_parquet(columns: Mapping[str, list[Any]], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(dict(columns)), path)


def take_sample(devices: Sequence[BlockDevice], pids: Sequence[int]) -> Sample:
    """One reading of everything. Raises StepError when a device has gone; a process that has gone counts nothing."""
    busy_s, total_s = parse_cpu_s(Path("/proc/stat").read_text())
    counters = read_counters(devices)
    return Sample(
        at_ns=clock.monotonic_ns(),
        counters=counters,
        pressure=read_pressure(),
        cpu_busy_s=busy_s,
        cpu_total_s=total_s,
        load_1min=os.getloadavg()[0],
        own_cpu_s=process_cpu_s(os.getpid()),
        watched_cpu_s=sum(process_cpu_s(pid) for pid in pids),
    )


def parse_cpu_s(text: str) -> tuple[float, float]:
    """Busy and total seconds of all processors since boot, from /proc/stat (proc_stat(5)).

    Guests are in user time already; time that the hypervisor took away (steal) is busy.
    """
    user, nice, system, idle, iowait, *rest = (int(field) for field in text.split("\n", 1)[0].split()[1:9])
    total = user + nice + system + idle + iowait + sum(rest)
    return (total - idle - iowait) * _TICK_S, total * _TICK_S


def process_cpu_s(pid: int) -> float:
    """User and system time of a process, all threads, without its children; 0 when it has gone."""
    fields = stat_fields(pid)
    return (int(fields[11]) + int(fields[12])) * _TICK_S if fields else 0.0


# ---------------------------------------------------------------- what samples say, pure


def bytes_read_between(before: Mapping[str, Counters], after: Mapping[str, Counters]) -> int:
    """Bytes that all devices together read between two readings of their counters."""
    return sum(after[name].read_bytes - then.read_bytes for name, then in before.items())


def bytes_written_between(before: Mapping[str, Counters], after: Mapping[str, Counters]) -> int:
    return sum(after[name].written_bytes - then.written_bytes for name, then in before.items())


def peak_bandwidth(samples: Sequence[Sample], window_s: float = 1.0) -> float | None:
    """Highest read bandwidth, in bytes/s, over a window of about `window_s`; None when the samples span less.

    A window shorter than nine tenths of it is never looked at: a last sample that follows hard on the one before
    would turn a single read into a peak.
    """
    peak = None
    first = 0
    for last, after in enumerate(samples):
        while first + 1 < last and after.at_ns - samples[first + 1].at_ns >= 0.9e9 * window_s:
            first += 1
        elapsed_s = (after.at_ns - samples[first].at_ns) / 1e9
        if elapsed_s >= 0.9 * window_s:
            peak = max(peak or 0.0, bytes_read_between(samples[first].counters, after.counters) / elapsed_s)
    return peak


# ---------------------------------------------------------------- waiting for silence


def wait_idle(devices: Sequence[BlockDevice], quiet_s: float, timeout_s: float) -> float:
    """Wait until the devices have been idle for `quiet_s`; returns the seconds waited, 0 when there is no device.

    Idle: together they moved no more than IDLE_BYTES_PER_S over that time, and have nothing in flight at its end.
    Raises StepError when that is not reached within `timeout_s`.
    """
    begun_ns = quiet_since_ns = clock.monotonic_ns()
    at_first = read_counters(devices)
    while devices:
        clock.sleep_s(min(_POLL_S, quiet_s))
        now_ns, now = clock.monotonic_ns(), read_counters(devices)
        if _moved_bytes(at_first, now) > IDLE_BYTES_PER_S * quiet_s:
            quiet_since_ns, at_first = now_ns, now
        elif now_ns - quiet_since_ns >= quiet_s * 1e9 and not any(one.in_flight for one in now.values()):
            break
        if now_ns - begun_ns > timeout_s * 1e9:
            names = ", ".join(now)
            raise StepError(
                f"{names} did not become idle within {timeout_s:g} s", "see what writes there: iotop, or pidstat -d"
            )
    return (clock.monotonic_ns() - begun_ns) / 1e9 if devices else 0.0


def _moved_bytes(before: Mapping[str, Counters], after: Mapping[str, Counters]) -> int:
    return sum(
        after[name].read_bytes - then.read_bytes + after[name].written_bytes - then.written_bytes
        for name, then in before.items()
    )
