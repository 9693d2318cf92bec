"""RDMA ports: rate, state and error counters from /sys, else what `ibstat` prints. The parser is pure.

Which counters matter, and that they differ by driver: the kernel's Documentation/ABI/stable/sysfs-class-infiniband.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kvbench.host.machine.loose import number, text, whole
from kvbench.host.machine.sysfs import attribute

_SLASH = Path("/")
_ERRORS = re.compile(
    r"err|discard|downed|out_of_(?:sequence|buffer)|timeout|overrun|retry|cnp|ecn|pause|xmit_wait|integrity"
)


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """One port. `interface` is the network interface on it; `counters` are those that tell of errors and congestion."""

    device: str
    port: int
    state: str
    rate_gbit_s: float | None
    link_layer: str
    firmware: str = ""
    interface: str = ""
    counters: Mapping[str, int] = field(default_factory=dict)


def rdma_ports(root: Path = _SLASH) -> tuple[RdmaPort, ...]:
    """Every port that the kernel knows."""
    folders = sorted((root / "sys/class/infiniband").glob("*/ports/[0-9]*"))
    return tuple(_observe(folder) for folder in folders)


def _observe(folder: Path) -> RdmaPort:
    device = folder.parents[1]
    interfaces = sorted(path.name for path in (device / "device/net").glob("*"))
    return RdmaPort(
        device=device.name,
        port=int(folder.name),
        state=attribute(folder / "state").partition(":")[2].strip().title(),  # "4: ACTIVE"
        rate_gbit_s=number(attribute(folder / "rate")),  # "100 Gb/sec (4X EDR)"
        link_layer=attribute(folder / "link_layer"),
        firmware=attribute(device / "fw_ver"),
        interface=interfaces[0] if interfaces else "",
        counters={
            file.name: value
            for group in ("counters", "hw_counters")
            for file in sorted((folder / group).glob("*"))
            if _ERRORS.search(file.name) and (value := whole(attribute(file))) is not None
        },
    )


def parse_ibstat(output: str) -> tuple[RdmaPort, ...]:
    """The ports of `ibstat`, indented `key: value` lines below `CA '…'` and `Port N:`."""
    ports: list[dict[str, str]] = []
    adapter: dict[str, str] = {}
    for line in output.splitlines():
        if begin := re.match(r"CA '([^']*)'", line):
            adapter = {"CA": begin[1]}
        elif begin := re.match(r"\s+Port (\d{1,4}):\s*\Z", line):
            ports.append({**adapter, "port": begin[1]})
        elif pair := re.match(r"(\s+)([^:]+): *(.*)", line):
            (ports[-1] if len(pair[1]) > 1 and ports else adapter)[pair[2]] = pair[3]
    return tuple(
        RdmaPort(
            device=text(port.get("CA")),
            port=int(port["port"]),
            state=text(port.get("State")),
            rate_gbit_s=number(port.get("Rate")),
            link_layer=text(port.get("Link layer")),
            firmware=text(port.get("Firmware version")),
        )
        for port in ports
    )
