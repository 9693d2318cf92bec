"""Where kvbench may write: inside folders of its own making, told by a marker file, and nowhere else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from kvbench.errors import KvbenchError

_MARKER = ".made-by-kvbench"
_TRIES = 5


def claim(node: Path, run_id: str) -> Path:
    """Make this run's folder on a storage node, or take it up again; everything we write there lies inside it.

    Raises KvbenchError when the node is no directory, cannot be written, or holds a folder of that name not of ours.
    """
    folder = node / f"kvbench-{run_id}"
    if not node.is_dir():
        raise KvbenchError(f"{node} is not a directory", "mount the storage there, or correct `nodes` in the target")
    try:
        folder.mkdir(exist_ok=True)
        if not folder.is_symlink() and not any(folder.iterdir()):  # new, or left by a kill before it was marked
            (folder / _MARKER).touch()
    except OSError as error:
        raise KvbenchError(f"{node} cannot be written: {error.strerror}", "check its mount options and owner") from None
    if not _ours(folder):
        raise KvbenchError(f"{folder} exists and was not made by kvbench", "move it away; kvbench will not touch it")
    return folder


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


def free_bytes(path: Path) -> int:
    """Bytes that we may still write on the file system of `path`. Raises KvbenchError when it has gone."""
    try:
        usage = os.statvfs(path)
    except OSError as error:
        raise KvbenchError(f"{path} has gone: {error.strerror}", "mount it again, then resume the run") from None
    return usage.f_bavail * usage.f_frsize


def _ours(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink() and (folder / _MARKER).is_file()
