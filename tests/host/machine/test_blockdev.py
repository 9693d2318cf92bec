"""From a directory down to the devices that hold its bytes, in a small /sys and /proc laid out as the kernel does."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_system import STAT, FakeSystem

from kvbench.errors import StepError
from kvbench.host.machine.blockdev import medium_of, parse_stat, read_counters

KV = Path("/mnt/kv/pages")


@pytest.fixture
def system(tmp_path: Path) -> FakeSystem:
    fake = FakeSystem(tmp_path / "root")
    fake.mount("0:1", "/", "tmpfs")
    return fake


def names(system: FakeSystem) -> list[str]:
    return [device.name for device in medium_of(KV, system.root).devices]


def test_a_file_system_on_a_disk(system: FakeSystem) -> None:
    system.nvme(1, "259:1")
    system.mount("259:1", "/mnt/kv")
    medium = medium_of(KV, system.root)
    (device,) = medium.devices
    assert (device.name, device.major_minor, device.model, device.serial) == ("nvme1n1", "259:1", "PM9A3", "S1")
    assert (device.rotational, device.logical_block_bytes, device.transport) == (False, 4096, "nvme-pcie")
    assert not device.virtual
    assert medium.proven


def test_a_partition_leads_to_its_disk(system: FakeSystem) -> None:
    system.nvme(1, "259:1")
    system.device("pci0000:00/0000:01:00.0/nvme/nvme1/nvme1n1/nvme1n1p1", "259:2", partition="1")
    system.mount("259:2", "/mnt/kv")
    assert names(system) == ["nvme1n1"]


def test_md_leads_to_all_its_members(system: FakeSystem) -> None:
    system.nvme(1, "259:1")
    system.nvme(2, "259:3")
    system.device("pci0000:00/0000:02:00.0/nvme/nvme2/nvme2n1/nvme2n1p1", "259:4", partition="1")
    system.device("virtual/block/md0", "9:0", slaves=("nvme1n1", "nvme2n1p1"))
    system.mount("9:0", "/mnt/kv")
    assert names(system) == ["nvme1n1", "nvme2n1"]
    assert medium_of(KV, system.root).proven


def test_lvm_on_multipath_leads_to_every_path_once(system: FakeSystem) -> None:
    for disk, number in (("sda", "8:0"), ("sdb", "8:16")):
        system.device(
            f"pci0000:00/0000:05:00.0/host{number[0]}/rport-1:0-1/target/{disk}/block/{disk}",
            number,
            device__vendor="PURE",
            device__model="FlashArray",
        )
    system.device("virtual/block/dm-0", "253:0", slaves=("sda", "sdb"))
    system.device("virtual/block/dm-1", "253:1", slaves=("dm-0",))
    system.device("virtual/block/dm-2", "253:2", slaves=("dm-0", "dm-1"))
    system.mount("253:2", "/mnt/kv")
    devices = medium_of(KV, system.root).devices
    assert [(device.name, device.transport, device.model) for device in devices] == [
        ("sda", "fc", "PURE FlashArray"),
        ("sdb", "fc", "PURE FlashArray"),
    ]


@pytest.mark.parametrize(
    ("stat", "leaves"),
    [
        (STAT.format(in_flight=0), ["nvme0n1"]),
        ("0 0 0 0 0 0 0 0 0 0 0", ["nvme0c0n1", "nvme0c1n1"]),  # before Linux 6.3 only the paths count
    ],
)
def test_an_nvme_multipath_namespace_is_counted_once(system: FakeSystem, stat: str, leaves: list[str]) -> None:
    system.device(
        "virtual/nvme-subsystem/nvme-subsys0/nvme0n1",
        "259:0",
        stat=stat,
        device__model="FX100",
        device__nvme0__transport="rdma",
        device__nvme1__transport="rdma",
    )
    for path, number in (("nvme0/nvme0c0n1", "259:8"), ("nvme1/nvme0c1n1", "259:9"), ("nvme1/nvme0c1n2", "259:10")):
        system.device(f"virtual/nvme-fabrics/ctl/{path}", number, device__model="FX100", device__transport="rdma")
    system.mount("259:0", "/mnt/kv")
    medium = medium_of(KV, system.root)
    assert [device.name for device in medium.devices] == leaves
    assert {(device.model, device.transport) for device in medium.devices} == {("FX100", "nvme-rdma")}
    assert {device.node for device in medium.devices} == {"/dev/nvme0n1"}
    assert medium.proven


def test_a_loop_device_leads_to_what_its_file_lives_on(system: FakeSystem) -> None:
    system.nvme(1, "259:1")
    system.mount("259:1", "/images")
    system.device("virtual/block/loop0", "7:0", loop__backing_file="/images/disk.img")
    system.mount("7:0", "/mnt/kv")
    assert names(system) == ["nvme1n1"]
    assert medium_of(KV, system.root).proven


def test_a_loop_device_over_tmpfs_proves_nothing(system: FakeSystem) -> None:
    system.device("virtual/block/loop0", "7:0", loop__backing_file="/dev/shm/disk.img (deleted)")
    system.mount("7:0", "/mnt/kv")
    medium = medium_of(KV, system.root)
    assert medium.devices == ()
    assert medium.why_unproven == "loop0 is a loop device: tmpfs is memory, not a storage medium"


@pytest.mark.parametrize(
    ("path", "model", "words"),
    [
        ("pci0000:00/virtio1/block/vda", "", "virtio"),
        ("vbd-51712/block/xvda", "", "Xen"),
        ("virtual/block/zram0", "", "memory"),
        ("virtual/block/ram0", "", "RAM disk"),
        ("virtual/block/loop3", "", "without a backing file"),
        ("virtual/block/nbd0", "", "another host"),
        ("virtual/block/dm-7", "", "without a device"),
        ("virtual/block/zd0", "", "ARC"),
        ("pci0000:00/nvme/nvme0/nvme0n1", "QEMU NVMe Ctrl", "QEMU NVMe Ctrl"),
        ("pci0000:00/nvme/nvme0/nvme0n1", "Amazon Elastic Block Store", "Amazon Elastic Block Store"),
        ("pci0000:00/host2/sda", "VMware Virtual disk", "VMware"),
    ],
)
def test_a_virtual_disk_leaves_the_medium_unproven(system: FakeSystem, path: str, model: str, words: str) -> None:
    system.device(path, "254:0", device__model=model)
    system.mount("254:0", "/mnt/kv")
    medium = medium_of(KV, system.root)
    assert words in medium.why_unproven
    assert medium.devices[0].virtual


@pytest.mark.parametrize(
    ("fs_type", "words"),
    [
        ("tmpfs", "memory"),
        ("overlay", "upper layer"),
        ("zfs", "ARC"),
        ("btrfs", "btrfs"),
        ("nfs4", "server"),
        ("fuse.juicefs", "daemon"),
        ("virtiofs", "host"),
        ("proc", "no block device"),
    ],
)
def test_a_file_system_without_a_device_says_why(system: FakeSystem, fs_type: str, words: str) -> None:
    system.mount("0:44", "/mnt/kv", fs_type)
    medium = medium_of(KV, system.root)
    assert medium.devices == ()
    assert words in medium.why_unproven


def test_one_unproven_member_leaves_the_array_unproven(system: FakeSystem) -> None:
    system.nvme(1, "259:1")
    system.device("virtual/block/ram0", "1:0")
    system.device("virtual/block/md0", "9:0", slaves=("nvme1n1", "ram0"))
    system.mount("9:0", "/mnt/kv")
    assert medium_of(KV, system.root).why_unproven == "ram0 is a RAM disk, not a storage medium"


def test_counters_are_in_bytes_of_512_whatever_the_block_size(system: FakeSystem) -> None:
    system.nvme(1, "259:1")  # logical blocks of 4096 bytes
    system.mount("259:1", "/mnt/kv")
    counters = read_counters(medium_of(KV, system.root).devices, system.root)["nvme1n1"]
    assert (counters.read_bytes, counters.written_bytes) == (80 * 512, 160 * 512)
    assert (counters.read_ios, counters.write_ios, counters.in_flight, counters.io_ms) == (10, 20, 0, 33)


def test_a_device_that_has_gone_is_named(system: FakeSystem) -> None:
    system.nvme(1, "259:1")
    system.mount("259:1", "/mnt/kv")
    devices = medium_of(KV, system.root).devices
    (system.root / "sys/class/block/nvme1n1").unlink()
    with pytest.raises(StepError, match="nvme1n1/stat cannot be read: the device has gone"):
        read_counters(devices, system.root)


@pytest.mark.parametrize("text", ["", "1 2 3", "a b c d e f g h i j k"])
def test_a_broken_stat_file_is_no_zero(text: str) -> None:
    with pytest.raises(ValueError, match=r"11 numbers|invalid literal"):
        parse_stat(text)


def test_this_machine_has_a_mount_for_every_path(tmp_path: Path) -> None:
    medium = medium_of(tmp_path)
    assert medium.mount is not None
    assert set(read_counters(medium.devices)) == {device.name for device in medium.devices}
    assert medium.devices or medium.why_unproven
