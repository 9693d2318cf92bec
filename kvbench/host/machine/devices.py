"""A leaf device as /sys describes it: identity, PCIe link, NUMA node, scheduler, NVMe paths.

Attributes: the kernel's Documentation/ABI/testing/sysfs-bus-pci, stable/sysfs-block, and drivers/nvme/host/sysfs.c.
`root` stands for `/` and is another folder in tests only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kvbench.host.machine.blockdev import BlockDevice
from kvbench.host.machine.identity import Identity
from kvbench.host.machine.loose import number, whole
from kvbench.host.machine.sysfs import attribute

_SLASH = Path("/")
_SECTOR_BYTES = 512  # of the size file, whatever the device's own block size


@dataclass(frozen=True, slots=True)
class Link:
    """A PCIe link as it runs, and the most that both of its ends can do."""

    function: str
    speed_gt_s: float
    width: int
    max_speed_gt_s: float
    max_width: int

    @property
    def degraded(self) -> bool:
        return self.speed_gt_s < self.max_speed_gt_s or self.width < self.max_width


@dataclass(frozen=True, slots=True)
class NvmePath:
    """One way to a namespace, through one controller. `ana_state` is "" where the subsystem knows no ANA."""

    controller: str
    transport: str
    address: str
    state: str
    ana_state: str


@dataclass(frozen=True, slots=True)
class Device:
    """A leaf device. `links` are its controllers' own (none for a fabric target); paths are of NVMe only."""

    name: str
    identity: Identity
    transport: str
    scheduler: str
    numa_node: int | None
    links: tuple[Link, ...]
    paths: tuple[NvmePath, ...]
    multipath_policy: str
    why_unproven: str
    mounted_at: tuple[str, ...] = ()
    contradictions: tuple[str, ...] = ()


def observe(leaf: BlockDevice, root: Path = _SLASH) -> Device:
    """What /sys tells of a leaf device."""
    folder = (root / "sys/class/block" / leaf.name).resolve()
    controllers = _controllers(folder)
    sectors = whole(attribute(folder / "size"))
    firmware = next(
        (rev for path in controllers if (rev := attribute(path / "firmware_rev"))), attribute(folder / "device/rev")
    )
    scheduler = re.search(r"\[(\S+)\]", attribute(folder / "queue/scheduler"))
    return Device(
        name=leaf.name,
        identity=Identity(
            model=leaf.model,
            serial=leaf.serial,
            firmware=firmware,
            capacity_bytes=sectors * _SECTOR_BYTES if sectors else None,
            logical_block_bytes=leaf.logical_block_bytes,
        ),
        transport=leaf.transport,
        scheduler=scheduler[1] if scheduler else "",
        numa_node=next((node for path in controllers or [folder] if (node := numa_node(path)) is not None), None),
        links=tuple(link for path in controllers or [folder] if (link := pcie_link(path))),
        paths=tuple(_path(controller, folder.name) for controller in controllers),
        multipath_policy=attribute(folder / "device/iopolicy"),
        why_unproven=leaf.why_unproven,
    )


def _controllers(folder: Path) -> list[Path]:
    """The NVMe controllers of a namespace: its device, or, below a multipath head, those of the subsystem."""
    device = folder / "device"
    found = [device] if (device / "transport").exists() else sorted(device.glob("nvme[0-9]*"))
    return [path.resolve() for path in found if (path / "transport").exists()]


def _path(controller: Path, namespace: str) -> NvmePath:
    head = re.fullmatch(r"(nvme\d+)(?:c\d+)?(n\d+)", namespace)  # or one of its hidden paths
    states = sorted(controller.glob(f"{head[1]}c*{head[2]}/ana_state")) if head else []
    return NvmePath(
        controller=controller.name,
        transport=attribute(controller / "transport"),
        address=attribute(controller / "address"),
        state=attribute(controller / "state"),
        ana_state=attribute(states[0]) if states else "",
    )


def pcie_link(folder: Path) -> Link | None:
    """The link of the nearest PCI function at or above a device; None where there is none, or it does not say."""
    for above in _upwards(folder):
        if not (above / "max_link_speed").exists():
            continue
        # "16.0 GT/s PCIe"
        speeds = [number(attribute(above / name)) for name in ("current_link_speed", "max_link_speed")]
        widths = [whole(attribute(above / name)) for name in ("current_link_width", "max_link_width")]
        if speeds[0] is None or speeds[1] is None or not widths[0] or not widths[1]:
            return None
        return Link(above.name, speeds[0], widths[0], speeds[1], widths[1])
    return None


def numa_node(folder: Path) -> int | None:
    """The NUMA node that a device hangs on; None on a machine with one node, which says −1."""
    told = (number(attribute(above / "numa_node")) for above in _upwards(folder))
    return next((int(node) for node in told if node is not None and node >= 0), None)


def _upwards(folder: Path) -> Iterator[Path]:
    """The folder and those above it, as far as they are devices."""
    for above in (folder, *folder.parents):
        if above.name in ("devices", "sys"):
            return
        yield above
