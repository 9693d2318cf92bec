"""The output of `numactl --hardware`. Pure; nothing that is read raises."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One node: its processors, its memory, and its distance to every node in their order (10: itself)."""

    node: int
    processors: tuple[int, ...]
    memory_bytes: int | None
    distances: tuple[int, ...]


def parse_numactl(output: str) -> tuple[NumaNode, ...]:
    """Every node. One that has memory only, such as a CXL expander, has no processors."""
    processors = re.findall(r"^node (\d{1,5}) cpus:((?: \d{1,6})*)\s*$", output, re.MULTILINE)
    sizes = dict(re.findall(r"^node (\d{1,5}) size: (\d{1,12}) MB", output, re.MULTILINE))
    distances = dict(re.findall(r"^ *(\d{1,5}):((?: +\d{1,6})+)\s*$", output, re.MULTILINE))
    return tuple(
        NumaNode(
            node=int(node),
            processors=tuple(map(int, cpus.split())),
            memory_bytes=int(sizes[node]) * 2**20 if node in sizes else None,
            distances=tuple(map(int, distances.get(node, "").split())),
        )
        for node, cpus in processors
    )
