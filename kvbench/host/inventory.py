"""The probe `host.inventory`: what an arm's nodes really live on, held against what was ordered.

First what every Linux has (/sys, /proc, lsblk, lspci), then nvme-cli and smartctl where they are installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kvbench.host.machine import devices, expectations, gpu, lsblk, nvme, ports, rdma
from kvbench.host.machine.blockdev import BlockDevice, Medium, medium_of, space_of
from kvbench.host.machine.devices import Device
from kvbench.host.machine.expectations import Found, Node
from kvbench.host.machine.identity import Identity, merge
from kvbench.host.machine.numa import parse_numactl
from kvbench.host.machine.smart import parse_smartctl
from kvbench.host.machine.tools import Answer, ask
from kvbench.model import Metric, Step
from kvbench.probes.context import Context, Measured
from kvbench.probes.metrics import INVENTORY_METRICS

_GPU_TOOLS: tuple[tuple[tuple[str, ...], Callable[[str], tuple[gpu.Gpu, ...]]], ...] = (
    (
        ("nvidia-smi", f"--query-gpu={','.join(gpu.NVIDIA_COLUMNS)}", "--format=csv,noheader,nounits"),
        gpu.parse_nvidia_smi,
    ),
    (("amd-smi", "static", "--json"), gpu.parse_amd_smi),
    (("rocm-smi", "-a", "--json"), gpu.parse_rocm_smi),
    (("npu-smi", "info"), gpu.parse_npu_smi),
)


@dataclass(slots=True)
class _Tools:
    """The tools asked in one step, and why some did not answer."""

    raw_dir: Path
    why_none: dict[str, str] = field(default_factory=dict)

    def ask(self, *argv: str) -> Answer:
        answer = ask(argv, self.raw_dir)
        if answer.why_none:
            self.why_none[argv[0]] = answer.why_none
        return answer


def measure(step: Step, context: Context) -> Measured:
    """Observe everything once; an absent tool is named. Raises StepError when the arm has no storage."""
    storage = context.storage
    context.progress("looking at devices, links and paths", None)
    tools = _Tools(context.raw_dir)
    media = {node: medium_of(Path(node)) for node in storage.nodes}
    found, warnings = _find(media, tools)
    held = expectations.hold(storage.expect, found)
    facts: dict[str, Any] = {
        "inventory": {**asdict(found), **_machine(tools)},
        "expectations": [asdict(one) for one in held],
        "not_available": tools.why_none,
    }
    return Measured(
        metrics=metrics(found, len(held), context.keep("inventory.json", facts)),
        facts=facts,
        warnings=(
            *warnings,
            *(f"arm {step.arm}: {tools.why_none[name]}" for name in _WANTED if name in tools.why_none),
        ),
    )


_WANTED = ("lsblk", "lspci", "nvme", "smartctl")  # whose absence leaves the storage less well known


def metrics(found: Found, ordered: int, source: str) -> dict[str, Metric]:
    """How much was ordered, how many devices there are, how many links run below their maximum, and if all is real."""
    links = expectations.links(found)
    degraded = sum(link.degraded for link in links) if links else None
    proven = all(not node.why_unproven for node in found.nodes)
    values: Mapping[str, tuple[float | None, int, str]] = {
        "expectations": (ordered or None, ordered, "" if ordered else "the target has no storage.expect"),
        "devices": (len(found.devices), len(found.nodes), ""),
        "pcie_degraded_devices": (degraded, len(links), "" if links else "no PCIe link is known to carry this arm"),
        "medium_proven": (int(proven), len(found.nodes), ""),
    }
    return {name: Metric(value, INVENTORY_METRICS[name], n, source, note) for name, (value, n, note) in values.items()}


# ---------------------------------------------------------------- the storage


def _find(media: Mapping[str, Medium], tools: _Tools) -> tuple[Found, list[str]]:
    """Nodes, devices and ports, and the sentences about what is odd."""
    leaves = {leaf.name: leaf for medium in media.values() for leaf in medium.devices}
    disks = lsblk.parse_lsblk(tools.ask("lsblk", "--json", "--bytes", "--output", lsblk.COLUMNS).stdout)
    listed = nvme.parse_list(tools.ask("nvme", "list", "--output-format=json").stdout)
    known = [_device(leaf, disks, listed, tools) for leaf in leaves.values()]
    warnings = [f"{device.name}: {contradiction}" for device in known for contradiction in device.contradictions]
    namespaces = [leaf for leaf in leaves.values() if leaf.transport.startswith("nvme")]
    if namespaces and not listed and "nvme" not in tools.why_none:
        warnings.append(
            f"nvme list names no namespace, and the kernel has {', '.join(leaf.name for leaf in namespaces)}"
        )
    return Found(
        nodes=tuple(_node(path, medium) for path, medium in media.items()),
        devices=tuple(known),
        ports=_ports(known, tools),
    ), warnings


def _node(path: str, medium: Medium) -> Node:
    mount, (size_bytes, free_bytes) = medium.mount, space_of(Path(path))
    options = f"{mount.options},{mount.fs_options}".split(",") if mount else []
    return Node(
        path=path,
        fs_type=mount.fs_type if mount else "",
        source=mount.source if mount else path,
        mount_options=tuple(dict.fromkeys(options)),
        size_bytes=size_bytes,
        free_bytes=free_bytes,
        devices=tuple(device.name for device in medium.devices),
        why_unproven=medium.why_unproven,
    )


def _device(
    leaf: BlockDevice, disks: Mapping[str, lsblk.Disk], listed: Mapping[str, Identity], tools: _Tools
) -> Device:
    """A leaf by all that is told of it: the kernel first."""
    seen, name = devices.observe(leaf), Path(leaf.node).name
    disk = disks.get(name)
    smart, _ = parse_smartctl(tools.ask("smartctl", "-j", "-x", leaf.node).stdout)
    told = {
        "the kernel": seen.identity,
        "lsblk": disk.identity if disk else Identity(),
        "nvme list": listed.get(name, Identity()),
        "smartctl": smart,
    }
    identity, contradictions = merge(told)
    return replace(
        seen,
        identity=identity,
        mounted_at=disk.mounted_at if disk else (),
        contradictions=tuple(contradictions),
    )


def _ports(known: Sequence[Device], tools: _Tools) -> tuple[ports.Port, ...]:
    """The ports on the way to fabric targets: by the interface that the path names, else by the route to it."""
    ends = ports.far_ends(known)
    if not ends:
        return ()
    on_rdma = rdma.rdma_ports() or rdma.parse_ibstat(tools.ask("ibstat").stdout)
    tools.ask("rdma", "link")
    interfaces = [end.get("host_iface") or _route(end.get("traddr", ""), tools) for end in ends]
    return tuple(ports.observe(name, on_rdma) for name in dict.fromkeys(filter(None, interfaces)))


def _route(address: str, tools: _Tools) -> str:
    return ports.parse_route(tools.ask("ip", "-json", "route", "get", address).stdout) if address else ""


# ---------------------------------------------------------------- the machine around it


def _machine(tools: _Tools) -> dict[str, Any]:
    """NUMA nodes, and the GPUs as their own tools tell; lspci names those that have no tool here."""
    found = [accelerator for argv, parse in _GPU_TOOLS for accelerator in parse(tools.ask(*argv).stdout)]
    topology = gpu.parse_topology(tools.ask("nvidia-smi", "topo", "-m").stdout) if found else {}
    return {
        "numa": [asdict(node) for node in parse_numactl(tools.ask("numactl", "--hardware").stdout)],
        "gpus": [asdict(one) for one in found],
        "gpu_topology": topology,
        "gpu_controllers": gpu.parse_lspci(tools.ask("lspci", "-nn").stdout),
    }
