"""What was ordered, held against what was found. Pure."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from kvbench.host.machine.devices import Device, Link
from kvbench.host.machine.ports import Port
from kvbench.model import Expect


@dataclass(frozen=True, slots=True)
class Node:
    """One directory of an arm: the file system under it, and the names of the devices that hold it."""

    path: str
    fs_type: str
    source: str
    mount_options: tuple[str, ...]
    size_bytes: int
    free_bytes: int
    devices: tuple[str, ...]
    why_unproven: str


@dataclass(frozen=True, slots=True)
class Found:
    """What an arm lives on."""

    nodes: tuple[Node, ...]
    devices: tuple[Device, ...]
    ports: tuple[Port, ...]


@dataclass(frozen=True, slots=True)
class Expectation:
    """One key of `Expect` and what was found: one value, or a tuple where things differ; None where nothing is known.

    `ok` is None when what is known does not decide. `source` says where it was looked for.
    """

    key: str
    expected: Any
    found: Any
    ok: bool | None
    source: str


class _Rule(NamedTuple):
    """`of` gives one value for each thing that has to meet what was ordered; "" and None are not known."""

    of: Callable[[Found], Iterable[Any]]
    meets: Callable[[Any, Any], bool]
    source: str


def hold(expect: Expect, found: Found) -> tuple[Expectation, ...]:
    """Every expectation that is given, in the order of `Expect`."""
    given = ((field.name, getattr(expect, field.name)) for field in fields(Expect))
    return tuple(_held(key, expected, found) for key, expected in given if expected is not None)


def _held(key: str, expected: Any, found: Found) -> Expectation:
    rule = _RULES[key]
    values = list(rule.of(found))
    known = [value for value in values if value not in ("", None, ())]
    fails = not all(rule.meets(value, expected) for value in known)
    ok = False if fails else True if known and len(known) == len(values) else None
    distinct = tuple(dict.fromkeys(known))
    return Expectation(key, expected, distinct[0] if len(distinct) == 1 else distinct or None, ok, rule.source)


def _same_text(value: str, expected: str) -> bool:
    """Tools and data sheets put blanks in a model's name as they like."""
    return value.split() == expected.split()


def _same_set(value: tuple[str, ...], expected: tuple[str, ...]) -> bool:
    return set(value) == set(expected)


def _holds_all(value: tuple[str, ...], expected: tuple[str, ...]) -> bool:
    return set(expected) <= set(value)


def _each(value: Callable[[Device], Any]) -> Callable[[Found], Iterable[Any]]:
    return lambda found: map(value, found.devices)


def _serials(found: Found) -> list[tuple[str, ...]]:
    serials = [device.identity.serial for device in found.devices]
    return [tuple(sorted(serials)) if all(serials) else ()]


def _capacity(found: Found) -> list[int | None]:
    sizes = [device.identity.capacity_bytes for device in found.devices]
    return [sum(filter(None, sizes)) if sizes and all(sizes) else None]


def _live_paths(device: Device) -> int | None:
    return sum(path.state == "live" for path in device.paths) if device.paths else None


def links(found: Found) -> list[Link]:
    """The PCIe links that the arm's bytes cross: of its devices, or of the ports on the way to a fabric target."""
    own = [link for device in found.devices for link in device.links]
    return own or [port.link for port in found.ports if port.link]


_BLOCK, _NVME, _NET, _MOUNTS = "/sys/class/block", "/sys/class/nvme-subsystem", "/sys/class/net", "/proc/self/mountinfo"
_PCI = "/sys/bus/pci/devices"
_RULES: Mapping[str, _Rule] = {
    "device_count": _Rule(lambda found: [len(found.devices)], operator.eq, _BLOCK),
    "model": _Rule(_each(lambda device: device.identity.model), _same_text, _BLOCK),
    "serials": _Rule(_serials, _same_set, _BLOCK),
    "firmware": _Rule(_each(lambda device: device.identity.firmware), operator.eq, _BLOCK),
    "capacity_bytes": _Rule(_capacity, operator.ge, _BLOCK),
    "logical_block_bytes": _Rule(_each(lambda device: device.identity.logical_block_bytes), operator.eq, _BLOCK),
    "transport": _Rule(_each(lambda device: device.transport), operator.eq, _BLOCK),
    "pcie_speed_gt_s": _Rule(lambda found: [link.speed_gt_s for link in links(found)], operator.ge, _PCI),
    "pcie_width": _Rule(lambda found: [link.width for link in links(found)], operator.ge, _PCI),
    "paths": _Rule(_each(_live_paths), operator.ge, _NVME),
    "ana_state": _Rule(lambda found: [p.ana_state for d in found.devices for p in d.paths], operator.eq, _NVME),
    "multipath_policy": _Rule(_each(lambda device: device.multipath_policy), operator.eq, _NVME),
    "numa_node": _Rule(_each(lambda device: device.numa_node), operator.eq, _BLOCK),
    "scheduler": _Rule(_each(lambda device: device.scheduler), operator.eq, _BLOCK),
    "fs_type": _Rule(lambda found: [node.fs_type for node in found.nodes], operator.eq, _MOUNTS),
    "mount_options": _Rule(lambda found: [node.mount_options for node in found.nodes], _holds_all, _MOUNTS),
    "mtu": _Rule(lambda found: [port.mtu for port in found.ports], operator.eq, _NET),
    "port_rate_gbit_s": _Rule(lambda found: [port.rate_gbit_s for port in found.ports], operator.ge, _NET),
}
