"""Samples of devices and processors, and what they say."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kvbench.errors import StepError
from kvbench.host.activity import telemetry
from kvbench.host.activity.pressure import Pressure
from kvbench.host.activity.telemetry import (
    Sample,
    Sampler,
    bytes_read_between,
    parse_cpu_s,
    peak_bandwidth,
    process_cpu_s,
    wait_idle,
)
from kvbench.host.machine.blockdev import BlockDevice, Counters, medium_of

ZERO = Counters(0, 0, 0, 0, 0, 0)
DISK = BlockDevice("sda", "8:0", "", "", None, False, "", "", 512)


def samples(*rows: tuple[float, int]) -> list[Sample]:
    """Samples from (seconds, bytes read since boot)."""
    pressure = Pressure(0, {"cpu": 0, "memory": 0, "io": 0})
    return [
        Sample(round(at_s * 1e9), {"sda": replace(ZERO, read_bytes=read)}, pressure, 0, 0, 0, 0, 0)
        for at_s, read in rows
    ]


@pytest.mark.parametrize(
    ("rows", "bytes_per_s"),
    [
        (((0, 0), (1, 100), (2, 300), (3, 350)), 200),
        (((0, 0), (1, 100), (1.01, 200)), 200 / 1.01),  # a last sample hard on the one before makes no peak
        (((0, 0), (0.95, 95), (2, 200)), 100),
        (((0, 0), (0.25, 0), (0.5, 80), (0.75, 90), (1, 100), (1.25, 180)), 180),  # 0.25 to 1.25 s
        (((0, 0), (0.5, 100)), None),
        ((), None),
    ],
)
def test_the_peak_is_of_a_second(rows: Sequence[tuple[float, int]], bytes_per_s: float | None) -> None:
    assert peak_bandwidth(samples(*rows)) == (bytes_per_s and pytest.approx(bytes_per_s))


def test_bytes_are_summed_over_the_devices_of_the_first_reading() -> None:
    before = {"sda": replace(ZERO, read_bytes=5), "sdb": replace(ZERO, read_bytes=7)}
    after = {"sda": replace(ZERO, read_bytes=15), "sdb": replace(ZERO, read_bytes=27), "sdc": ZERO}
    assert bytes_read_between(before, after) == 30


def test_guests_are_not_counted_twice_and_iowait_is_idle() -> None:
    hertz = os.sysconf("SC_CLK_TCK")
    text = "cpu  100 10 20 1000 50 1 2 3 90 9\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
    assert parse_cpu_s(text) == pytest.approx((136 / hertz, 1186 / hertz))


def test_a_process_that_has_gone_counts_nothing() -> None:
    assert process_cpu_s(os.getpid()) > 0
    assert process_cpu_s(2**22 + 1) == 0.0  # above the highest process id


def test_the_sampler_samples_from_entering_to_leaving(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    devices = medium_of(tmp_path).devices
    with Sampler(devices, [os.getpid()], interval_s=0.02) as sampler:
        (tmp_path / "work").write_bytes(bytes(100_000))
    sampler.stop()
    stamps = [sample.at_ns for sample in sampler.samples]
    assert len(stamps) >= 2
    assert stamps == sorted(set(stamps))
    sampler.write_devices(tmp_path / "devices.parquet")
    sampler.write_host(tmp_path / "host.parquet")
    assert pq.read_table(tmp_path / "devices.parquet").num_rows == len(stamps) * len(devices)
    host = pq.read_table(tmp_path / "host.parquet").to_pydict()
    assert host["at_ns"] == stamps
    assert set(host) >= {"cpu_busy_s", "own_cpu_s", "watched_cpu_s", "load_1min", "pressure_cpu_us"}


def test_a_device_that_goes_ends_the_sampling_and_is_raised_on_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = [{"sda": ZERO}]
    monkeypatch.setattr(telemetry, "read_counters", fake_readings(readings, StepError("sda has gone")))
    with pytest.raises(StepError, match="sda has gone"), Sampler([DISK], interval_s=0.01):
        pass


def fake_readings(readings: Sequence[dict[str, Counters]], end: Exception | None = None):
    """A `read_counters` that answers from a list; at its end it raises, or repeats the last reading."""

    def answers() -> Iterator[dict[str, Counters]]:
        yield from readings
        while end is None:
            yield readings[-1]
        raise end

    iterator = answers()
    return lambda devices: next(iterator)


class FakeClock:
    """Time passes only by sleeping."""

    now_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def sleep_s(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


@pytest.mark.parametrize(
    ("read_mb", "in_flight", "waited_s"),
    [
        ([0], [0], 0.5),  # idle from the start
        ([0, 9, 18, 27], [0], 0.8),  # three busy polls, then half a second of silence
        ([0] + [0.01 * poll for poll in range(50)], [0], 0.5),  # a journal's trickle is idle
        ([0], [1] * 8 + [0], 0.8),  # a request that does not come back is not idle
    ],
)
def test_waiting_until_idle(
    monkeypatch: pytest.MonkeyPatch, read_mb: list[float], in_flight: list[int], waited_s: float
) -> None:
    length = max(len(read_mb), len(in_flight))
    padded = zip(*([*row, *[row[-1]] * (length - len(row))] for row in (read_mb, in_flight)), strict=True)
    readings = [{"sda": replace(ZERO, read_bytes=round(mb * 1e6), in_flight=flying)} for mb, flying in padded]
    monkeypatch.setattr(telemetry, "clock", FakeClock())
    monkeypatch.setattr(telemetry, "read_counters", fake_readings(readings))
    assert wait_idle([DISK], quiet_s=0.5, timeout_s=60) == pytest.approx(waited_s)


def test_a_device_that_never_rests_is_an_error_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = [{"sda": replace(ZERO, written_bytes=step * 10_000_000)} for step in range(1000)]
    monkeypatch.setattr(telemetry, "clock", FakeClock())
    monkeypatch.setattr(telemetry, "read_counters", fake_readings(busy))
    with pytest.raises(StepError, match="sda did not become idle within 5 s"):
        wait_idle([DISK], quiet_s=0.5, timeout_s=5)


def test_without_a_device_there_is_nothing_to_wait_for() -> None:
    assert wait_idle([], quiet_s=60, timeout_s=1) == 0.0
