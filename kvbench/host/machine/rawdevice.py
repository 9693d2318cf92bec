"""Whether a block device may be written over: what is seen of it, and why it may not.

Nothing that anybody could miss is ever written over: a device is taken only when it is empty by every sign that the
kernel and libblkid know, and when its serial number was named.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kvbench.errors import KvbenchError
from kvbench.host.machine.blockdev import device_number, medium_of
from kvbench.host.machine.loose import first_object, mappings, text
from kvbench.host.machine.mounts import parse_mountinfo
from kvbench.host.machine.tools import ask

_SLASH = Path("/")
_HINT = "nothing was written. Empty the device yourself if its data may go, then name it: --destroy-data SERIAL"


@dataclass(frozen=True, slots=True)
class RawDevice:
    """What is seen of a block device. `serials` are those of all drives below it, "" where one does not tell.

    `holders` are the md, dm and bcache devices on top of it. `signatures` are the marks of file systems, RAID members
    and partition tables on it, None with the reason in `why_unknown` where they cannot be told.
    `busy`: the kernel refuses to open it exclusively.
    """

    path: str
    serials: tuple[str, ...] = ()
    is_partition: bool = False
    partitions: tuple[str, ...] = ()
    mounted_at: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    signatures: tuple[str, ...] | None = ()
    why_unknown: str = ""
    read_only: bool = False
    busy: bool = False


def refusals(device: RawDevice, named: Collection[str]) -> tuple[str, ...]:
    """Every reason why a device is not to be written over, each a sentence; none when it may be. Pure."""
    return tuple(f"{device.path} {reason}" for reason in _reasons(device, named))


def _reasons(device: RawDevice, named: Collection[str]) -> Iterator[str]:
    if device.mounted_at:
        yield f"is mounted at {', '.join(device.mounted_at)}"
    if device.holders:
        yield f"is in use by {', '.join(device.holders)}"
    if device.partitions:
        yield f"is partitioned: {', '.join(device.partitions)}"
    if device.is_partition:
        yield "is a partition, and only whole devices are taken"
    if device.signatures:
        yield f"holds the signature of {', '.join(device.signatures)}"
    if device.signatures is None:
        yield f"may hold a file system: {device.why_unknown}"
    if device.busy and not (device.mounted_at or device.holders):
        yield "is in use: the kernel does not give it to us alone"
    if device.read_only:
        yield "is read-only"
    if not device.serials or not all(device.serials):
        yield "does not tell its serial number, so it cannot be named"
    elif unnamed := [serial for serial in device.serials if serial not in named]:
        given = f"--destroy-data names {', '.join(sorted(named))}" if named else "no --destroy-data names it"
        yield f"has the serial number {', '.join(unnamed)}, and {given}"


def observe(path: Path, root: Path = _SLASH) -> RawDevice:
    """Look at a block device; nothing is written. `root` stands for `/` and is another folder in tests only."""
    number = device_number(path)
    folder = (root / "sys/dev/block" / number).resolve()
    mounts = parse_mountinfo((root / "proc/self/mountinfo").read_text(errors="replace"))
    answer = ask(("wipefs", "--no-act", "--json", str(path)), None)
    found = [text(one.get("type")) for one in mappings(first_object(answer.stdout).get("signatures"))]
    return RawDevice(
        path=str(path),
        serials=tuple(dict.fromkeys(leaf.serial for leaf in medium_of(path, root).devices)),
        is_partition=(folder / "partition").exists(),
        partitions=tuple(sorted(file.parent.name for file in folder.glob("*/partition"))),
        mounted_at=tuple(mount.point for mount in mounts if mount.device == number),
        holders=tuple(sorted(file.name for file in folder.glob("holders/*"))),
        signatures=tuple(dict.fromkeys(found)) if answer.status == 0 else None,
        why_unknown="" if answer.status == 0 else answer.complaint,
        read_only=(folder / "ro").read_text().strip() == "1",
        busy=_busy(path),
    )


def _busy(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL))
    except OSError:
        return True
    return False


def refuse(nodes: Iterable[Path], named: Collection[str]) -> None:
    """Raise KvbenchError with every reason against every block device among the nodes. Writes nothing."""
    reasons = [reason for device in devices(nodes) for reason in refusals(observe(device), named)]
    if reasons:
        raise KvbenchError("\n".join(reasons), _HINT)


@contextmanager
def taken(nodes: Iterable[Path]) -> Iterator[None]:
    """Hold the block devices among the nodes for ourselves, so that nobody mounts or formats one meanwhile.

    Raises KvbenchError when somebody else has one of them.
    """
    with ExitStack() as stack:
        for device in devices(nodes):
            try:
                descriptor = os.open(device, os.O_RDONLY | os.O_EXCL)
            except OSError as error:
                raise KvbenchError(f"{device} cannot be taken: {error.strerror}", _HINT) from None
            stack.callback(os.close, descriptor)
        yield


def devices(nodes: Iterable[Path]) -> tuple[Path, ...]:
    """The block devices among an arm's nodes, each once."""
    return tuple(node for node in dict.fromkeys(nodes) if node.is_block_device())
