"""The output of `lsblk --json --bytes`. Pure; nothing that is read raises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvbench.host.machine.identity import Identity
from kvbench.host.machine.loose import first_object, mappings, text, whole

COLUMNS = "NAME,TYPE,SIZE,MODEL,SERIAL,REV,LOG-SEC,MOUNTPOINT"  # by name: what is printed without -o changes


@dataclass(frozen=True, slots=True)
class Disk:
    """A whole disk, and where it, its partitions and the volumes on it are mounted."""

    identity: Identity
    mounted_at: tuple[str, ...]


def parse_lsblk(output: str) -> dict[str, Disk]:
    """Whole disks by kernel name. A size that is not in plain bytes is no size."""
    rows = (row for row in mappings(first_object(output).get("blockdevices")) if row.get("type") == "disk")
    return {
        text(row.get("name")).removeprefix("/dev/"): Disk(
            _identity(row), tuple(dict.fromkeys(point for part in _and_below(row) for point in _points(part)))
        )
        for row in rows
    }


def _identity(row: Mapping[str, Any]) -> Identity:
    return Identity(
        model=text(row.get("model")),
        serial=text(row.get("serial")),
        firmware=text(row.get("rev")),
        capacity_bytes=(whole(row["size"]) or None) if isinstance(row.get("size"), int) else None,
        logical_block_bytes=whole(row.get("log-sec")) or None,
    )


def _and_below(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    waiting = [row]
    while waiting:
        part = waiting.pop(0)
        yield part
        waiting += mappings(part.get("children"))


def _points(row: Mapping[str, Any]) -> Iterator[str]:
    """`mountpoint` became the list `mountpoints` in 2.37, and either may be null."""
    several = row.get("mountpoints")
    points = several if isinstance(several, list) else [row.get("mountpoint")]
    yield from (point for point in points if isinstance(point, str) and point)
