"""Which file system a path is on: /proc/self/mountinfo, read and walked as the kernel walks it. Pure.

Format: proc_pid_mountinfo(5).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo. `device` is `major:minor`; `root` is the part of the file system that is mounted."""

    id: int
    parent: int
    device: str
    root: str
    point: str
    fs_type: str
    source: str
    options: str  # of this mount
    fs_options: str  # of the file system, shared by all its mounts


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """Every mount, in the kernel's order. A line that is cut off is left out."""
    return tuple(mount for line in text.splitlines() if (mount := _parse_line(line)))


def _parse_line(line: str) -> Mount | None:
    fields = line.split(" ")
    try:
        dash = fields.index("-", 6)  # optional fields, any number of them, end at a lone dash
        fs_type, source, fs_options = fields[dash + 1 : dash + 4]
        mount_id, parent = int(fields[0]), int(fields[1])
    except ValueError:
        return None
    device, root, point, options = fields[2:6]
    return Mount(
        mount_id, parent, device, _unescape(root), _unescape(point), fs_type, _unescape(source), options, fs_options
    )


def _unescape(text: str) -> str:
    """Blank, tab, newline and backslash are written as three octal digits, bytes of a UTF-8 name as they are."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def mount_of(path: PurePath, mounts: Sequence[Mount]) -> Mount | None:
    """The mount that an absolute path without symbolic links is on, or None when no mount covers it.

    Walks down from the root: of the mounts on one parent, the shortest covering point is crossed first and hides
    longer ones; a mount on an occupied point has the one that it hides as its parent.
    """
    ids = {mount.id for mount in mounts}
    covering = [mount for mount in mounts if path.is_relative_to(mount.point)]
    level = [mount for mount in covering if mount.parent not in ids or mount.parent == mount.id]
    found = None
    while level:
        found = min(reversed(level), key=lambda mount: len(PurePath(mount.point).parts))
        level = [mount for mount in covering if mount.parent == found.id and mount.id != found.id]
    return found
