"""Pressure from the totals at two moments."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvbench.host.activity.pressure import RESOURCES, Pressure, parse_stall_us, pressure_share, read_pressure

SOME = "some avg10=5.43 avg60=1.88 avg300=0.75 total=13747097\n"
FULL = "full avg10=0.00 avg60=0.00 avg300=0.00 total=99\n"


@pytest.mark.parametrize(
    ("text", "stall_us"),
    [(SOME + FULL, 13747097), (SOME, 13747097), (FULL, None), ("", None), ("some avg10=5.43 avg60=1.8", None)],
)
def test_the_total_is_of_some_tasks_stalled_not_of_all(text: str, stall_us: int | None) -> None:
    assert parse_stall_us(text) == stall_us


@pytest.mark.parametrize(
    ("then_us", "now_us", "elapsed_s", "share"),
    [
        (1_000_000, 1_500_000, 2.0, 0.25),
        (1_000_000, 1_000_000, 2.0, 0.0),
        (0, 2_000_400, 2.0, 1.0),  # the kernel's clock and ours differ by a hair
        (None, 1_000_000, 2.0, None),
        (1_000_000, None, 2.0, None),
        (0, 0, 0.0, None),
    ],
)
def test_the_share_is_stalled_time_of_elapsed_time(
    then_us: int | None, now_us: int | None, elapsed_s: float, share: float | None
) -> None:
    before = Pressure(7, {"cpu": then_us, "memory": 0, "io": 0})
    after = Pressure(7 + round(elapsed_s * 1e9), {"cpu": now_us, "memory": 0, "io": 0})
    assert pressure_share(before, after) == share


def test_a_kernel_without_pressure_files_gives_none_and_not_zero(tmp_path: Path) -> None:
    (tmp_path / "io").write_text(SOME + FULL)
    assert read_pressure(tmp_path).stall_us == {"cpu": None, "memory": None, "io": 13747097}
    assert tuple(read_pressure().stall_us) == RESOURCES
