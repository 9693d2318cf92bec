"""A small /sys and /proc laid out as the kernel does, for tests of what walks them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

STAT = "10 0 80 5 20 0 160 9 {in_flight} 33 44 0 0 0 0 0 0\n"


class FakeSystem:
    """Folders under `root` that stand for /sys and /proc. Devices are named and numbered as a kernel would."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("proc/self", "sys/dev/block", "sys/class/block"):
            (root / folder).mkdir(parents=True)
        self._mounts: list[str] = []

    def mount(self, device: str, point: str, fs_type: str = "xfs", source: str = "/dev/x") -> None:
        number = len(self._mounts) + 20
        parent = 20 if self._mounts else 1
        self._mounts.append(f"{number} {parent} {device} / {point} rw,noatime shared:1 - {fs_type} {source} rw")
        (self.root / "proc/self/mountinfo").write_text("\n".join(self._mounts) + "\n")

    def device(self, path: str, number: str, slaves: tuple[str, ...] = (), in_flight: int = 0, **files: str) -> None:
        """A block device at `path` below /sys/devices; `files` are attributes, `__` in their names stands for `/`."""
        folder = self.root / "sys/devices" / path
        attributes: Mapping[str, str] = {"dev": number, "stat": STAT.format(in_flight=in_flight), **files}
        for name, text in attributes.items():
            file = folder / name.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")
        (folder / "slaves").mkdir()
        for slave in slaves:
            (folder / "slaves" / slave).symlink_to(self.root / "sys/class/block" / slave)
        (self.root / "sys/dev/block" / number).symlink_to(folder)
        (self.root / "sys/class/block" / folder.name).symlink_to(folder)

    def nvme(self, index: int, number: str, model: str = "PM9A3") -> None:
        self.device(
            f"pci0000:00/0000:0{index}:00.0/nvme/nvme{index}/nvme{index}n1",
            number,
            device__model=model,
            device__serial=f"S{index}",
            device__transport="pcie",
            queue__rotational="0",
            queue__logical_block_size="4096",
        )
