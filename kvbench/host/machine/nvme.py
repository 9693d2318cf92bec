"""The output of nvme-cli, of every version. Pure; nothing that is read raises."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kvbench.host.machine.identity import Identity
from kvbench.host.machine.loose import first_object, mappings, number, text, whole
from kvbench.host.machine.smart import Smart, of_nvme

_PATH_NODE = re.compile(r"nvme\d+c\d+n\d+\Z")  # a hidden path of a multipath namespace, not a disk of its own
_ZERO_CELSIUS_K = 273


def parse_list(output: str) -> dict[str, Identity]:
    """`nvme list -o json` → identities by kernel name (`nvme0n1`), each namespace once.

    Before 2.11 the list is flat, with a DevicePath each; since then namespaces stand below their controller, or, with
    multipath, below their subsystem.
    """
    document = first_object(output)
    return {
        name: identity
        for device in mappings(document.get("Devices"))
        for name, identity in (_nested(device) if "Subsystems" in device else _flat(device))
        if name and not _PATH_NODE.match(name)
    }


def _flat(device: Mapping[str, Any]) -> Iterator[tuple[str, Identity]]:
    yield _name(device), _identity(device, device)


def _nested(host: Mapping[str, Any]) -> Iterator[tuple[str, Identity]]:
    for subsystem in mappings(host.get("Subsystems")):
        controllers = list(mappings(subsystem.get("Controllers")))
        for controller in controllers:
            for namespace in mappings(controller.get("Namespaces")):
                yield _name(namespace), _identity(controller, namespace)
        for namespace in mappings(subsystem.get("Namespaces")):
            yield _name(namespace), _identity(controllers[0] if controllers else {}, namespace)


def _name(namespace: Mapping[str, Any]) -> str:
    """The kernel's name: in one layout NameSpace is the name, in the other a number beside DevicePath."""
    path = text(namespace.get("DevicePath"))
    if path:
        return path.removeprefix("/dev/")
    return text(namespace["NameSpace"]) if isinstance(namespace.get("NameSpace"), str) else ""


def _identity(controller: Mapping[str, Any], namespace: Mapping[str, Any]) -> Identity:
    sector_bytes = whole(namespace.get("SectorSize"))
    return Identity(
        model=text(controller.get("ModelNumber")),
        serial=text(controller.get("SerialNumber")),
        firmware=text(controller.get("Firmware")),
        capacity_bytes=whole(namespace.get("PhysicalSize")) or None,
        logical_block_bytes=sector_bytes if sector_bytes and sector_bytes > 1 else None,
    )


def parse_smart_log(output: str) -> Smart:
    """`nvme smart-log -o json`. Numbers come as integers, floats or text, and in 2.11 the warning as an object."""
    log = first_object(output)
    if whole(log.get("critical_warning")) is None:
        return Smart(why_absent="nvme smart-log gave no health log")
    return Smart(**of_nvme(log, _celsius(log.get("temperature"))))


def _celsius(kelvin: object) -> float | None:
    """The composite temperature is in kelvin; what no drive survives is no reading."""
    found = number(kelvin)
    celsius = None if found is None else found - _ZERO_CELSIUS_K
    return celsius if celsius is not None and -40 <= celsius <= 120 else None
