"""What storage a directory stands on, told so that it is known again after a reboot: not by names in /dev.

A run goes on only on the storage that it began on. What one kernel, file system or user does not tell is not compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kvbench.host.machine.blockdev import BlockDevice, medium_of
from kvbench.host.machine.mounts import Mount
from kvbench.host.machine.sysfs import content

_SLASH = Path("/")


@dataclass(frozen=True, slots=True)
class Footing:
    """Where the file system of a directory is mounted, and what it is.

    `devices` are the WWIDs, or else serial numbers, of all drives below it; empty where one tells neither.
    `file_system` maps what can be told of it, `uuid`, `fsid` or `source`, to that.
    """

    point: str
    devices: tuple[str, ...] = ()
    file_system: Mapping[str, str] = field(default_factory=dict)


def difference(first: Footing, now: Footing) -> tuple[str, str]:
    """What a directory stood on and stands on now, where the two are not the same storage; else "", "". Pure."""
    if first.point != now.point:
        return f"the file system mounted at {first.point}", now.point
    if first.devices and now.devices and set(first.devices).isdisjoint(now.devices):  # one of a RAID may be replaced
        return f"the drive {', '.join(first.devices)}", ", ".join(now.devices)
    for name in first.file_system.keys() & now.file_system.keys():
        if first.file_system[name] != now.file_system[name]:
            return f"the file system with {name} {first.file_system[name]}", now.file_system[name]
    return "", ""


def footing_of(folder: Path, root: Path = _SLASH) -> Footing | None:
    """What a directory stands on, or None where no mount covers it. `root` stands for `/`, and is another in tests."""
    medium = medium_of(folder, root)
    if medium.mount is None:
        return None
    named = [_name(device, root) for device in medium.devices]
    devices = tuple(sorted(set(named))) if all(named) else ()
    return Footing(medium.mount.point, devices, dict(_file_system(folder, medium.mount, root)))


def _name(device: BlockDevice, root: Path) -> str:
    """The WWID is a namespace's or logical unit's own, where all those of an array may share a serial number."""
    folder = root / "sys/class/block" / device.name
    return content(folder / "wwid") or content(folder / "device/wwid") or device.serial


def _file_system(folder: Path, mount: Mount, root: Path) -> Iterator[tuple[str, str]]:
    block = root / "sys/dev/block" / mount.device
    if not block.exists() and not mount.source.startswith("/dev/"):  # as btrfs has it, which is told by its fsid
        yield "source", f"{mount.fs_type} {mount.source}"
        return
    for link in (root / "dev/disk/by-uuid").glob("*"):
        if link.resolve().name == block.resolve().name:
            yield "uuid", link.name
    fsid, number = os.statvfs(folder).f_fsid, folder.stat().st_dev
    if fsid not in (0, number):  # XFS has the device's number for it, which the next boot may change
        yield "fsid", f"{fsid:x}"
