"""From a directory to the block devices that its bytes really live on, and what those have counted.

The way down goes through partitions, md, dm, multipath and loop to the leaves, by /sys alone. An NVMe multipath
namespace is its own leaf, since the hidden paths below it (nvme0c1n1) carry the same I/O once more; only before
Linux 6.3, where it counts nothing itself, they are the leaves.
`root` stands for `/` and is another folder in tests only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kvbench.errors import StepError
from kvbench.host.machine.mounts import Mount, mount_of, parse_mountinfo
from kvbench.host.machine.sysfs import content

_SLASH = Path("/")
_SECTOR_BYTES = 512  # of the stat file, whatever the device's own block size (Documentation/block/stat.rst)

_HIDDEN_PATH = re.compile(r"\A(nvme\d+)c\d+(n\d+)\Z")
_VIRTUAL_NAMES = {
    "loop": "a loop device without a backing file",
    "zram": "compressed memory (zram), not a storage medium",
    "ram": "a RAM disk, not a storage medium",
    "pmem": "persistent memory, or memory that stands for it",
    "nullb": "the null block driver stores nothing",
    "vd": "a virtio disk: what lies under it is the hypervisor's secret",
    "xvd": "a Xen disk: what lies under it is the hypervisor's secret",
    "nbd": "a network block device: its medium is on another host",
    "rbd": "a Ceph volume: its medium is on other hosts",
    "drbd": "a replicated device: reads may be answered by another host",
    "zd": "a ZFS volume: reads may be answered by the ARC",
    "dm-": "a device-mapper target without a device under it",
    "md": "an md array without a device under it",
}
_VIRTUAL_MODELS = (
    "QEMU", "VMware", "VBOX", "Virtual", "Amazon Elastic Block Store", "nvme_card-pd", "PersistentDisk", "MSFT NVMe",
)  # fmt: skip
_FILE_SYSTEMS = {
    "tmpfs": "tmpfs is memory, not a storage medium",
    "ramfs": "ramfs is memory, not a storage medium",
    "overlay": "an overlay file system does not say which device holds its upper layer; use a volume of its own",
    "zfs": "ZFS answers reads from its own cache (ARC), which cannot be looked into or dropped like the page cache",
    "btrfs": "btrfs chooses among its devices itself and does not name them in the mount table",
    "bcachefs": "bcachefs chooses among its devices itself and does not name them in the mount table",
    "9p": "a folder of the hypervisor's host: its medium is not visible from here",
    "virtiofs": "a folder of the hypervisor's host: its medium is not visible from here",
}
_NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "wekafs", "fuse")


@dataclass(frozen=True, slots=True)
class BlockDevice:
    """A leaf device. `why_unproven` is "" for a physical medium, else why it may be none.

    `transport`: `nvme-pcie`, `nvme-rdma`, `nvme-tcp`, `sata`, `sas`, `fc`, `iscsi`, `usb`, `virtio` or "" (unknown).
    `rotational` and `logical_block_bytes` are None where the kernel does not tell.
    """

    name: str
    major_minor: str
    model: str
    serial: str
    rotational: bool | None
    virtual: bool
    why_unproven: str
    transport: str
    logical_block_bytes: int | None

    @property
    def node(self) -> str:
        """Its path in /dev. A hidden path of NVMe multipath has none; that of its namespace leads to it."""
        return "/dev/" + _HIDDEN_PATH.sub(r"\1\2", self.name)


@dataclass(frozen=True, slots=True)
class Medium:
    """What a directory's bytes live on. `why_unproven` is "" only when every leaf is a physical medium."""

    mount: Mount | None
    devices: tuple[BlockDevice, ...]
    why_unproven: str

    @property
    def proven(self) -> bool:
        return not self.why_unproven


@dataclass(frozen=True, slots=True)
class Media:
    """What several directories live on together."""

    each: tuple[Medium, ...]

    @property
    def devices(self) -> tuple[BlockDevice, ...]:
        """Every leaf once."""
        return tuple({device.name: device for medium in self.each for device in medium.devices}.values())

    @property
    def proven(self) -> bool:
        return all(medium.proven for medium in self.each)

    def facts(self) -> dict[str, list[str]]:
        return {
            "devices": [device.name for device in self.devices],
            "medium_unproven": sorted({medium.why_unproven for medium in self.each} - {""}),
        }


@dataclass(frozen=True, slots=True)
class Counters:
    """What a device has counted since boot. `io_ms` is the time during which it had at least one I/O in flight."""

    read_bytes: int
    written_bytes: int
    read_ios: int
    write_ios: int
    in_flight: int
    io_ms: int


def media_of(paths: Iterable[Path]) -> Media:
    return Media(tuple(medium_of(path) for path in paths))


def medium_of(path: Path, root: Path = _SLASH) -> Medium:
    """The mount and leaf devices of a directory, and why they prove no physical medium, if they do not.

    Of a block device its own leaves, and no mount.
    """
    if path.is_block_device():
        return _medium(None, root / "sys/dev/block" / device_number(path), root)
    mount = mount_of(path.resolve(), parse_mountinfo((root / "proc/self/mountinfo").read_text(errors="replace")))
    if mount is None:
        return Medium(None, (), f"no mount covers {path}: a container or chroot whose root is not a mount of its own")
    folder = root / "sys/dev/block" / mount.device
    return _medium(mount, folder, root) if folder.exists() else Medium(mount, (), _why_no_device(mount.fs_type))


def device_number(path: Path) -> str:
    """`major:minor` of a block device."""
    number = path.stat().st_rdev
    return f"{os.major(number)}:{os.minor(number)}"


def space_of(path: Path) -> tuple[int, int]:
    """Bytes of the file system that a path is on, and those of them that are free; of a block device all, twice."""
    if path.is_block_device():
        with path.open("rb", buffering=0) as device:
            size_bytes = device.seek(0, os.SEEK_END)
        return size_bytes, size_bytes
    usage = os.statvfs(path)
    return usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize


def _medium(mount: Mount | None, folder: Path, root: Path) -> Medium:
    leaves, reasons = _descend(folder.resolve(), root)
    devices = tuple({leaf.name: leaf for leaf in leaves}.values())
    reasons += [f"{leaf.name} is {leaf.why_unproven}" for leaf in devices if leaf.why_unproven]
    return Medium(mount, devices, "; ".join(dict.fromkeys(reasons)))


def is_network_file_system(fs_type: str) -> bool:
    """Whether its medium is reached through a server, or a daemon that may stand for one."""
    return fs_type.startswith(_NETWORK_FILE_SYSTEMS)


def _why_no_device(fs_type: str) -> str:
    if is_network_file_system(fs_type):
        return f"{fs_type} reaches its medium through a server or a daemon: this host counts no device bytes"
    return _FILE_SYSTEMS.get(fs_type, f"{fs_type} has no block device")


def _descend(folder: Path, root: Path) -> tuple[list[BlockDevice], list[str]]:
    """Leaves under one device's folder in /sys, and what else on the way there keeps the medium unproven."""
    if (folder / "partition").exists():
        return _descend(folder.parent, root)
    if backing := content(folder / "loop/backing_file"):
        under = medium_of(Path(backing), root)
        return list(under.devices), [] if under.devices else [f"{folder.name} is a loop device: {under.why_unproven}"]
    slaves = sorted((folder / "slaves").iterdir()) if (folder / "slaves").is_dir() else []
    if not slaves:
        return [_describe(leaf) for leaf in _counting_paths(folder, root) or [folder]], []
    parts = [_descend(slave.resolve(), root) for slave in slaves]
    return [leaf for leaves, _ in parts for leaf in leaves], [reason for _, reasons in parts for reason in reasons]


def _counting_paths(folder: Path, root: Path) -> list[Path]:
    """The hidden paths of an NVMe multipath namespace that has a file system and yet has counted no I/O."""
    subsystem, namespace, number = folder.name.rpartition("n")
    paths = sorted((root / "sys/class/block").glob(f"{subsystem}c[0-9]*{namespace}{number}"))
    if not paths or parse_stat(content(folder / "stat")).read_ios:
        return []
    return [path.resolve() for path in paths]


def _describe(folder: Path) -> BlockDevice:
    vendor, model = content(folder / "device/vendor"), content(folder / "device/model")
    if not vendor.startswith("0x"):  # of SCSI; a PCI function has a number there
        model = f"{vendor} {model}".strip()
    why = _why_virtual(folder.name, model)
    block, rotational = content(folder / "queue/logical_block_size"), content(folder / "queue/rotational")
    return BlockDevice(
        name=folder.name,
        major_minor=content(folder / "dev"),
        model=model,
        serial=content(folder / "device/serial") or content(folder / "serial") or _scsi_serial(folder),
        rotational=rotational == "1" if rotational else None,
        virtual=bool(why),
        why_unproven=why,
        transport=_transport(folder),
        logical_block_bytes=int(block) if block.isdigit() else None,
    )


def _why_virtual(name: str, model: str) -> str:
    for prefix, why in _VIRTUAL_NAMES.items():
        if name.startswith(prefix):
            return why
    if any(mark in model for mark in _VIRTUAL_MODELS):
        return f"a virtual disk ({model}): what lies under it is the hypervisor's secret"
    return ""


def _transport(folder: Path) -> str:
    if folder.name.startswith("nvme"):
        controllers = (folder / "device").glob("nvme*/transport")  # below a multipath namespace
        paths = {content(file) for file in (folder / "device/transport", *controllers)} - {""}
        return "-".join(["nvme", *sorted(paths)])
    marks = {"virtio": "virtio", "usb": "usb", "rport-": "fc", "session": "iscsi", "end_device-": "sas", "ata": "sata"}
    parts = folder.parts
    return next((name for mark, name in marks.items() if any(part.startswith(mark) for part in parts)), "")


def _scsi_serial(folder: Path) -> str:
    """Vital product data page 0x80: four bytes of header, then the serial number (SPC-4, 7.8.18)."""
    try:
        return (folder / "device/vpd_pg80").read_bytes()[4:].decode("ascii", "replace").strip("\0 ")
    except OSError:
        return ""


def read_counters(devices: Iterable[BlockDevice], root: Path = _SLASH) -> dict[str, Counters]:
    """What each device has counted, by its name. Raises StepError when one has gone."""
    return {device.name: _read_stat(root / "sys/class/block" / device.name / "stat") for device in devices}


def _read_stat(file: Path) -> Counters:
    try:
        return parse_stat(file.read_text())
    except (OSError, ValueError):
        raise StepError(f"{file} cannot be read: the device has gone", "see dmesg for why it went away") from None


def parse_stat(text: str) -> Counters:
    """The stat file of a block device (Documentation/block/stat.rst). Raises ValueError."""
    fields = [int(field) for field in text.split()]
    if len(fields) < 11:
        raise ValueError(f"a block device's stat file has at least 11 numbers, this one {len(fields)}")
    return Counters(
        read_bytes=fields[2] * _SECTOR_BYTES,
        written_bytes=fields[6] * _SECTOR_BYTES,
        read_ios=fields[0],
        write_ios=fields[4],
        in_flight=fields[8],
        io_ms=fields[9],
    )
