"""The network ports on the way to a fabric target: MTU, rate, PCIe link, RDMA counters. `root` is `/` but in tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvbench.host.machine.devices import Device, Link, NvmePath, pcie_link
from kvbench.host.machine.loose import number, text, whole
from kvbench.host.machine.rdma import RdmaPort
from kvbench.host.machine.sysfs import attribute
from kvbench.tolerant_json import documents

_SLASH = Path("/")


@dataclass(frozen=True, slots=True)
class Port:
    """One network interface. `rate_gbit_s` is the RDMA port's where it is one, else the interface's own speed."""

    interface: str
    mtu: int | None
    rate_gbit_s: float | None
    link: Link | None
    rdma: RdmaPort | None


def observe(interface: str, rdma: Sequence[RdmaPort], root: Path = _SLASH) -> Port:
    """One interface as /sys describes it."""
    folder = root / "sys/class/net" / interface
    on_it = next((port for port in rdma if port.interface == interface), None)
    megabits = number(attribute(folder / "speed"))  # −1 when it is down, and for virtual ones
    return Port(
        interface=interface,
        mtu=whole(attribute(folder / "mtu")),
        rate_gbit_s=on_it.rate_gbit_s if on_it else megabits / 1000 if megabits and megabits > 0 else None,
        link=pcie_link(folder.resolve()),
        rdma=on_it,
    )


def far_ends(devices: Iterable[Device]) -> list[dict[str, str]]:
    """The addresses of every fabric path, as the kernel writes them: `traddr=10.0.0.1,trsvcid=4420,…`."""
    paths = (path for device in devices for path in device.paths)
    return [_address(path) for path in paths if path.transport in ("tcp", "rdma")]


def _address(path: NvmePath) -> dict[str, str]:
    return {key: value for part in path.address.split(",") for key, _, value in [part.partition("=")]}


def parse_route(output: str) -> str:
    """The interface in the output of `ip -json route get ADDRESS`, or ""."""
    return next((text(row.get("dev")) for value in documents(output)[0] for row in value if isinstance(row, dict)), "")
