"""What a drive counts beside what the kernel counts."""

from __future__ import annotations

import pytest

from kvbench.host.activity.data_units import Reading, between
from kvbench.host.machine.blockdev import Counters
from kvbench.host.machine.smart import DATA_UNIT_BYTES


def read(read_bytes: int) -> Counters:
    return Counters(read_bytes, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("off_by", [0, DATA_UNIT_BYTES - 512, DATA_UNIT_BYTES, -DATA_UNIT_BYTES])
def test_a_difference_that_a_unit_can_hide_is_none(off_by: int) -> None:
    assert Reading("nvme1n1", 10**9 + off_by, 10**9).disagreement == ""


@pytest.mark.parametrize("off_by", [DATA_UNIT_BYTES + 512, -2 * DATA_UNIT_BYTES, -(10**9)])
def test_a_larger_one_is_told_with_both_counts(off_by: int) -> None:
    told = Reading("nvme1n1", 10**9 + off_by, 10**9).disagreement
    assert told.startswith(f"nvme1n1 counts {10**9 + off_by:,} B read by its SMART data units, and the kernel 1,000,00")


def test_a_drive_that_does_not_tell_disagrees_with_nobody() -> None:
    assert Reading("nvme1n1", None, 10**9).disagreement == ""


def test_only_drives_that_were_asked_are_compared() -> None:
    block = ({"nvme1n1": read(100), "sda": read(7)}, {"nvme1n1": read(1100), "sda": read(9)})
    assert between(({"nvme1n1": 512_000}, {"nvme1n1": 1_024_000}), block) == (Reading("nvme1n1", 512_000, 1000),)
    assert between(({"nvme1n1": 512_000}, {"nvme1n1": None}), block) == (Reading("nvme1n1", None, 1000),)
