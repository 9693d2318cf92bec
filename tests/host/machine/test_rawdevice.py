"""When a block device may be written over: never, as long as there is one reason against it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvbench.errors import KvbenchError
from kvbench.host.machine.rawdevice import RawDevice, devices, refusals, refuse, taken

EMPTY = RawDevice("/dev/nvme1n1", serials=("S1",))


def test_an_empty_device_that_is_named_may_be_written_over() -> None:
    assert refusals(EMPTY, {"S1"}) == ()


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        ({"mounted_at": ("/mnt/a", "/mnt/b")}, "is mounted at /mnt/a, /mnt/b"),
        ({"partitions": ("nvme1n1p1",)}, "is partitioned: nvme1n1p1"),
        ({"is_partition": True}, "is a partition, and only whole devices are taken"),
        ({"signatures": ("ext4",)}, "holds the signature of ext4"),
        ({"signatures": ("zfs_member",)}, "holds the signature of zfs_member"),
        ({"signatures": ("linux_raid_member",)}, "holds the signature of linux_raid_member"),
        ({"signatures": ("gpt", "PMBR")}, "holds the signature of gpt, PMBR"),
        (
            {"signatures": None, "why_unknown": "wipefs is not installed (package util-linux)"},
            "may hold a file system: wipefs is not installed (package util-linux)",
        ),
        ({"holders": ("md0",)}, "is in use by md0"),
        ({"holders": ("dm-0",)}, "is in use by dm-0"),
        ({"busy": True}, "is in use: the kernel does not give it to us alone"),
        ({"read_only": True}, "is read-only"),
        ({"serials": ()}, "does not tell its serial number, so it cannot be named"),
        ({"serials": ("S1", "")}, "does not tell its serial number, so it cannot be named"),
        ({"serials": ("S1", "S2")}, "has the serial number S2, and --destroy-data names S1"),
    ],
)
def test_one_reason_is_enough_to_refuse(seen: dict[str, Any], reason: str) -> None:
    assert refusals(replace(EMPTY, **seen), {"S1"}) == (f"/dev/nvme1n1 {reason}",)


@pytest.mark.parametrize(
    ("named", "reason"),
    [
        ((), "has the serial number S1, and no --destroy-data names it"),
        (("S2",), "has the serial number S1, and --destroy-data names S2"),
        (("s1",), "has the serial number S1, and --destroy-data names s1"),
        (("S", "S11"), "has the serial number S1, and --destroy-data names S, S11"),
    ],
)
def test_only_the_whole_serial_number_names_a_device(named: tuple[str, ...], reason: str) -> None:
    assert refusals(EMPTY, named) == (f"/dev/nvme1n1 {reason}",)


def test_every_reason_is_told_and_a_mount_is_not_told_twice() -> None:
    seen = replace(EMPTY, mounted_at=("/mnt",), signatures=("xfs",), busy=True)
    assert refusals(seen, ()) == (
        "/dev/nvme1n1 is mounted at /mnt",
        "/dev/nvme1n1 holds the signature of xfs",
        "/dev/nvme1n1 has the serial number S1, and no --destroy-data names it",
    )


def test_folders_are_no_devices_and_are_left_to_the_marker(tmp_path: Path) -> None:
    assert devices((tmp_path, tmp_path / "missing")) == ()
    refuse((tmp_path,), ())
    with taken((tmp_path,)):
        pass


def test_the_disk_of_this_machine_is_refused() -> None:
    mounted = [node for node in Path("/dev").glob("[vs]d[a-z]") if node.is_block_device()]
    if not mounted:
        pytest.skip("no disk of this machine can be seen")
    with pytest.raises(KvbenchError, match=str(mounted[0])):
        refuse(mounted, ("S1",))
