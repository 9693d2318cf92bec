"""Pressure stall information: how long tasks waited for a processor, memory or I/O (Documentation/accounting/psi.rst).

The averages of these files lag behind by ten seconds and more; what counts here are their totals, at two moments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from kvbench import clock

_TOTAL = re.compile(r"^some .*\btotal=(\d+)", re.MULTILINE)
_FOLDER = Path("/proc/pressure")

Resource = Literal["cpu", "memory", "io"]
RESOURCES: tuple[Resource, ...] = get_args(Resource)


@dataclass(frozen=True, slots=True)
class Pressure:
    """Microseconds since boot during which at least one task waited; None where the kernel does not count them."""

    at_ns: int
    stall_us: Mapping[Resource, int | None]


def parse_stall_us(text: str) -> int | None:
    """The total of the `some` line of one pressure file, in microseconds."""
    match = _TOTAL.search(text)
    return int(match[1]) if match else None


def read_pressure(folder: Path = _FOLDER) -> Pressure:
    """The totals of now."""
    return Pressure(clock.monotonic_ns(), {name: _read(folder / name) for name in RESOURCES})


def _read(file: Path) -> int | None:
    try:
        return parse_stall_us(file.read_text())
    except OSError:  # no such file, or pressure is switched off at boot (psi=0)
        return None


def pressure_share(before: Pressure, after: Pressure, resource: Resource = "cpu") -> float | None:
    """Share of the time between two readings during which at least one task waited for the resource, 0 to 1."""
    then, now = before.stall_us[resource], after.stall_us[resource]
    elapsed_us = (after.at_ns - before.at_ns) / 1000
    if then is None or now is None or elapsed_us <= 0:
        return None
    return min(1.0, (now - then) / elapsed_us)
