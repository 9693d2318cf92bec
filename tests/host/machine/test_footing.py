"""Whether a directory stands on the storage that it stood on: known again under other names, and told from another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_system import FakeSystem

from kvbench.host.machine.footing import Footing, difference, footing_of

FIRST = Footing("/mnt/kv", ("eui.01",), {"uuid": "a-b", "fsid": "77"})


@pytest.mark.parametrize(
    ("now", "was", "stands_on"),
    [
        (FIRST, "", ""),
        (replace(FIRST, point="/"), "the file system mounted at /mnt/kv", "/"),
        (replace(FIRST, devices=("eui.02",)), "the drive eui.01", "eui.02"),
        (replace(FIRST, file_system={"uuid": "c-d", "fsid": "77"}), "the file system with uuid a-b", "c-d"),
        (replace(FIRST, file_system={"fsid": "78"}), "the file system with fsid 77", "78"),
        (replace(FIRST, devices=("eui.01", "eui.02")), "", ""),  # a RAID whose other half was replaced
        (Footing("/mnt/kv"), "", ""),  # nothing else is told now
        (Footing("/mnt/kv", (), {"source": "nfs4 other:/kv"}), "", ""),
    ],
)  # fmt: skip
def test_what_tells_one_storage_from_another(now: Footing, was: str, stands_on: str) -> None:
    assert difference(FIRST, now) == (was, stands_on)


def system(where: Path, folder: Path) -> FakeSystem:
    fake = FakeSystem(where)
    fake.mount("0:1", "/", "tmpfs")
    fake.mount("259:1", str(folder), "xfs")
    return fake


def footing(fake: FakeSystem, folder: Path) -> Footing:
    found = footing_of(folder, fake.root)
    assert found is not None
    return found


def test_a_drive_is_known_again_under_another_name(tmp_path: Path) -> None:
    before, after = system(tmp_path / "before", tmp_path), system(tmp_path / "after", tmp_path)
    before.device("pci/nvme/nvme0/nvme0n1", "259:1", wwid="eui.01")
    after.device("pci/nvme/nvme3/nvme3n1", "259:1", wwid="eui.01")
    assert footing(before, tmp_path) == footing(after, tmp_path)


def test_a_wwid_goes_before_a_serial_number_that_all_namespaces_share(tmp_path: Path) -> None:
    fake = system(tmp_path / "root", tmp_path)
    fake.device("pci/nvme/nvme0/nvme0n1", "259:1", wwid="eui.01", device__serial="ARRAY")
    assert footing(fake, tmp_path).devices == ("eui.01",)


def test_a_serial_number_serves_where_there_is_no_wwid(tmp_path: Path) -> None:
    fake = system(tmp_path / "root", tmp_path)
    fake.device("pci/nvme/nvme0/nvme0n1", "259:1", device__serial="S1")
    assert footing(fake, tmp_path).devices == ("S1",)


def test_one_drive_that_tells_nothing_leaves_the_drives_untold(tmp_path: Path) -> None:
    fake = system(tmp_path / "root", tmp_path)
    fake.nvme(1, "259:5")
    fake.device("virtio/vda", "254:0")
    fake.device("virtual/md0", "259:1", slaves=("nvme1n1", "vda"))
    assert footing(fake, tmp_path).devices == ()


def test_the_uuid_is_that_of_the_link_to_the_device_of_the_mount(tmp_path: Path) -> None:
    fake = system(tmp_path / "root", tmp_path)
    fake.nvme(1, "259:1")
    links = fake.root / "dev/disk/by-uuid"
    links.mkdir(parents=True)
    (links / "a-b").symlink_to("../../nvme1n1")
    (links / "c-d").symlink_to("../../nvme2n1")
    assert footing(fake, tmp_path).file_system["uuid"] == "a-b"


def test_a_file_system_without_a_device_is_told_by_its_source(tmp_path: Path) -> None:
    fake = FakeSystem(tmp_path / "root")
    fake.mount("0:1", "/", "tmpfs")
    fake.mount("0:45", str(tmp_path), "nfs4", "filer:/kv")
    assert footing(fake, tmp_path) == Footing(str(tmp_path), (), {"source": "nfs4 filer:/kv"})


def test_without_a_mount_nothing_is_told(tmp_path: Path) -> None:
    fake = FakeSystem(tmp_path / "root")
    (fake.root / "proc/self/mountinfo").write_text("")
    assert footing_of(tmp_path, fake.root) is None
