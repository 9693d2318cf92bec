"""Where kvbench may write: inside folders of its own making, told by a marker file, and over drives that were named."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from pathlib import Path

from kvbench import process
from kvbench.errors import KvbenchError, StepError, UsageError
from kvbench.host.machine import rawdevice
from kvbench.host.machine.blockdev import space_of
from kvbench.host.machine.footing import Footing, difference, footing_of
from kvbench.model import Arm, Plan, Step
from kvbench.probes.table import PROBES

_MARKER = ".made-by-kvbench"
_TRIES = 5
_WRITE_HINT = "check its mount options and owner"


def refuse(plan: Plan) -> None:
    """Raise KvbenchError when a node is a block device that may not be written over, or that a step cannot drive."""
    arms = {arm.name: arm for arm in plan.target.arms}
    devices = {name: rawdevice.devices(map(Path, arm.storage.every_node)) for name, arm in arms.items() if arm.storage}
    for step in plan.steps:
        if devices.get(step.arm) and (why := _why_no_device(step, arms[step.arm])):
            raise KvbenchError(
                f"{devices[step.arm][0]} is a block device, and {why}",
                "make a file system on it, mount it, and name a directory of it in the target",
            )
    if plan.destroy_data and not any(devices.values()):
        raise UsageError(f"--destroy-data {plan.destroy_data[0]}: no node of the target is a block device")
    rawdevice.refuse((device for found in devices.values() for device in found), plan.destroy_data)


def _why_no_device(step: Step, arm: Arm) -> str:
    """Why a step cannot drive an arm's block devices; "" when it can."""
    probe, storage = PROBES[step.probe], arm.storage
    if not probe.on_devices:
        return f"step {step.id} keeps its pages in files"
    if not probe.keeps_pages or storage is None:
        return ""
    if step.engine != "none" and arm.engine.kind != "emulated":
        return f"the engine of step {step.id} keeps its pages in files"
    if not storage.direct:
        return f"step {step.id} reads it with direct I/O alone, where the target has direct: false"
    return f"step {step.id} empties the array's cache by files" if storage.array_cache_bytes else ""


def unusable(plan: Plan) -> list[KvbenchError]:
    """What keeps nodes of the target from being claimed, and hooks from being run, as far as looking tells.

    Touches nothing.
    """
    nodes = dict.fromkeys(node for arm in plan.target.arms if arm.storage for node in arm.storage.every_node)
    return [
        *(trouble for node in nodes if (trouble := _trouble(Path(node)) or _held(Path(node)))),
        *(
            KvbenchError(f"hook {name}: there is no program {argv[0]}", "correct `hooks` in the target")
            for name, argv in plan.target.hooks.items()
            if argv and process.find_tool(argv[0]) is None
        ),
    ]


def _trouble(node: Path) -> KvbenchError | None:
    if node.is_block_device():
        return None
    if not node.is_dir():
        return KvbenchError(f"{node} is not a directory", "mount the storage there, or correct `nodes` in the target")
    return None if os.access(node, os.W_OK | os.X_OK) else KvbenchError(f"{node} cannot be written", _WRITE_HINT)


def claim(node: Path, run_id: str) -> Path:
    """Make this run's folder on a storage node, or take it up again; everything we write there lies inside it.

    A node that is a block device is its own claim: all of it is ours while it is taken (`rawdevice.taken`).
    Raises KvbenchError when the node is no directory, cannot be written, or holds a folder of that name not of ours.
    """
    if trouble := _trouble(node):
        raise trouble
    if node.is_block_device():
        return node
    folder = node / f"kvbench-{run_id}"
    try:
        folder.mkdir(exist_ok=True)
        if not folder.is_symlink() and not any(folder.iterdir()):  # new, or left by a kill before it was marked
            (folder / _MARKER).touch()
    except OSError as error:
        raise KvbenchError(f"{node} cannot be written: {error.strerror}", _WRITE_HINT) from None
    if not _ours(folder):
        raise KvbenchError(f"{folder} exists and was not made by kvbench", "move it away; kvbench will not touch it")
    return folder


@contextmanager
def alone_on(nodes: Iterable[Path], doing: str = "is measuring on") -> Iterator[None]:
    """Hold storage nodes against everybody on this machine who does the same; what is killed holds nothing any more.

    By their names, in sockets that nobody can reach: an open file would keep a hook from unmounting them.
    Raises KvbenchError when another process has one of them.
    """
    with ExitStack() as held:
        for node in sorted({os.path.realpath(node) for node in nodes}):  # `claim` refuses a loop of links
            name = held.enter_context(socket.socket(socket.AF_UNIX))
            try:
                name.bind(f"\0kvbench-{blake2b(f'{doing} '.encode() + os.fsencode(node), digest_size=16).hexdigest()}")
            except OSError:
                raise KvbenchError(f"another kvbench {doing} {node}", "wait for it, or stop it") from None
        yield


def _held(node: Path) -> KvbenchError | None:
    try:
        with alone_on((node,)):
            return None
    except KvbenchError as error:
        return error


def check_there(claims: Iterable[Path]) -> None:
    """Raise KvbenchError when a claimed folder has gone, or one that we did not make stands in its place."""
    for claim in claims:
        if not claim.is_block_device() and not _ours(claim):
            raise KvbenchError(f"{claim} has gone", "mount it again, then resume the run")


def release(folder: Path) -> None:
    """Remove a claimed folder and all that is in it. A folder without our marker is left alone."""
    if _ours(folder):
        empty(folder)
        (folder / _MARKER).unlink()
        folder.rmdir()


def empty(folder: Path) -> None:
    """Remove what lies in a claimed folder. Never follows a link out of it."""
    if not _ours(folder):
        raise KvbenchError(f"{folder} was not made by kvbench, so nothing in it is removed")
    for entry in folder.iterdir():
        if entry.name != _MARKER:
            remove_tree(entry)


def remove_tree(path: Path) -> None:
    """Remove a folder with all that is in it, or a file, or nothing. Only for what lies in a claimed folder.

    An I/O that hung and was left to itself may yet add or take a file meanwhile, hence more than one try.
    Raises KvbenchError when something stays.
    """
    for _ in range(_TRIES):
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
            return
        shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        raise KvbenchError(f"{path} cannot be removed", "look at its file system and at who uses it, then remove it")


def footings(nodes: Iterable[Path]) -> dict[str, Footing]:
    """What the nodes stand on; those that are not there or are block devices are left out."""
    found = {str(node): footing_of(node) for node in nodes if node.is_dir()}
    return {node: footing for node, footing in found.items() if footing}


def check_footings(now: Mapping[str, Footing], first: Mapping[str, Footing]) -> None:
    """Raise KvbenchError when a node stands on another storage than when the run began.

    Its mount is lacking, and pages would go to the disk below; or another disk is mounted in its place, and the run's
    rounds would be of two storages.
    """
    for node, footing in first.items():
        was, stands_on = difference(footing, now.get(node, footing))
        if was:
            raise KvbenchError(
                f"{node} was on {was} when the run began, and is on {stands_on} now",
                "mount it again, then resume the run; what is there now takes a new run",
            )


@contextmanager
def staying(folders: Iterable[Path]) -> Iterator[None]:
    """Raise StepError when a folder was unmounted or removed meanwhile, whatever else came of that."""
    held = {folder: _identity(folder) for folder in folders}
    try:
        yield
    except (KvbenchError, OSError):
        _check_stayed(held)
        raise
    _check_stayed(held)


def _check_stayed(held: Mapping[Path, tuple[int, int]]) -> None:
    for folder, was in held.items():
        if _identity(folder) != was:
            raise StepError(f"{folder} went away while the step ran", "mount it again, then resume the run")


def _identity(folder: Path) -> tuple[int, int]:
    """Device and number of what a path leads to; no file has these of a path that leads nowhere."""
    try:
        found = folder.stat()
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def data_file(place: Path, name: str) -> Path:
    """The file of that name in a folder of ours; a block device is its own file."""
    return place if place.is_block_device() else place / name


def free_bytes(path: Path) -> int:
    """Bytes that we may still write on the file system of `path`, or over a block device.

    Raises KvbenchError when it has gone.
    """
    try:
        return space_of(path)[1]
    except OSError as error:
        raise KvbenchError(f"{path} has gone: {error.strerror}", "mount it again, then resume the run") from None


def _ours(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink() and (folder / _MARKER).is_file()
