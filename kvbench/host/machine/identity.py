"""What a device says it is, from one source or another, and where two sources contradict each other. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Identity:
    """A device as one source describes it; "" and None are what that source does not tell."""

    model: str = ""
    serial: str = ""
    firmware: str = ""
    capacity_bytes: int | None = None
    logical_block_bytes: int | None = None


_COMPARED = ("serial", "firmware", "capacity_bytes", "logical_block_bytes")  # a model is written in many ways


def merge(told: Mapping[str, Identity]) -> tuple[Identity, list[str]]:
    """One identity from several sources, the first that tells a thing being believed, and what contradicts it.

    `told` maps the name of a source to what it says, the best source first.
    """
    values: dict[str, str | int] = {}
    origin: dict[str, str] = {}
    contradictions = []
    for source, identity in told.items():
        for name in (field.name for field in fields(Identity)):
            value = getattr(identity, name)
            if value in ("", None):
                continue
            if name not in values:
                values[name], origin[name] = value, source
            elif name in _COMPARED and not _alike(values[name], value):
                contradictions.append(f"{name}: {origin[name]} says {values[name]}, {source} says {value}")
    return Identity(**values), contradictions  # type: ignore[arg-type]


def _alike(one: str | int, other: str | int) -> bool:
    """SCSI has room for the beginning of a firmware's name or of a serial number only."""
    if isinstance(one, str) and isinstance(other, str):
        return one.startswith(other) or other.startswith(one)
    return one == other
