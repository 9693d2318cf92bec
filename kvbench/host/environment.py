"""The probe `host.environment`: what the machine and the arms' media are, before anything is measured on them.

Environment variables are never read: they hold keys and passwords.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import kvbench
from kvbench import clock
from kvbench.host.activity.pressure import RESOURCES, pressure_share, read_pressure
from kvbench.host.machine import system
from kvbench.host.machine.blockdev import medium_of, space_of
from kvbench.model import Metric, Step, Target
from kvbench.probes.context import Context, Measured
from kvbench.probes.table import PROBES

_PRESSURE_S = 1.0  # over which the pressure before the run is taken
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def measure(step: Step, context: Context) -> Measured:
    """Observe the machine once and keep it as environment.json. Raises StepError when /proc does not answer."""
    context.progress("looking at the machine", None)
    host = system.observe()
    facts: dict[str, Any] = {
        "machine": asdict(host),
        "pressure": _pressure(),
        "arms": _media(context.target),
        "tools": {name: asdict(tool) if tool else None for name, tool in system.find_tools().items()},
        "versions": {"kvbench": kvbench.__version__, "python": platform.python_version(), **_packages()},
    }
    source = context.keep("environment.json", facts)
    values = {"processors": host.processors, "memory_bytes": host.memory_bytes}
    units = PROBES[step.probe].metrics
    return Measured(
        metrics={name: Metric(value, units[name], 1, source) for name, value in values.items()},
        facts=facts,
        warnings=tuple(
            f"arm {arm}, {node['path']}: medium unproven: {node['why_unproven']}"
            for arm, nodes in facts["arms"].items()
            for node in nodes
            if node["why_unproven"]
        ),
    )


def _pressure() -> dict[str, float | None]:
    """Share of a second during which tasks waited for each resource."""
    before = read_pressure()
    clock.sleep_s(_PRESSURE_S)
    after = read_pressure()
    return {f"{name}_share": pressure_share(before, after, name) for name in RESOURCES}


def _media(target: Target) -> dict[str, list[dict[str, Any]]]:
    """Per arm with storage, what each of its nodes lives on."""
    return {arm.name: [_node(Path(node)) for node in arm.storage.nodes] for arm in target.arms if arm.storage}


def _node(path: Path) -> dict[str, Any]:
    medium = medium_of(path)
    existing = next(folder for folder in (path.resolve(), *path.resolve().parents) if folder.exists())
    size_bytes, free_bytes = space_of(existing)
    return {
        "path": str(path),
        "mount": asdict(medium.mount) if medium.mount else None,
        "devices": [asdict(device) for device in medium.devices],
        "why_unproven": medium.why_unproven,
        "size_bytes": size_bytes,
        "free_bytes": free_bytes,
    }


def _packages() -> Mapping[str, str]:
    """Versions of the packages that kvbench needs, as installed."""
    try:
        needed = metadata.requires("kvbench") or []
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        return {}
    names = [match[0] for line in needed if "extra ==" not in line and (match := _NAME.match(line))]
    return {name: metadata.version(name) for name in names}
