"""What GPUs and NPUs there are, from the output of their vendors' tools. Pure; nothing that is read raises."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvbench.host.machine.loose import mapping, mappings, number, text, whole
from kvbench.tolerant_json import documents

NVIDIA_COLUMNS = ("index", "name", "pci.bus_id", "memory.total", "driver_version")
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator as its vendor's tool tells of it; "" and None are what that does not say."""

    index: str
    name: str
    bus_id: str = ""
    memory_bytes: int | None = None
    driver: str = ""
    health: str = ""


def parse_nvidia_smi(output: str) -> tuple[Gpu, ...]:
    """`nvidia-smi --query-gpu=…  --format=csv,noheader,nounits` with NVIDIA_COLUMNS; memory is in MiB."""
    rows = (row for row in csv.reader(output.splitlines()) if len(row) == len(NVIDIA_COLUMNS))
    return tuple(
        Gpu(index, text(name), text(bus), _times(memory, _MIB), text(driver))
        for index, name, bus, memory, driver in ([cell.strip() for cell in row] for row in rows)
        if index.isdecimal()
    )


def parse_topology(output: str) -> dict[str, dict[str, str]]:
    """The matrix of `nvidia-smi topo` as link by row and column: `{"GPU0": {"GPU1": "NV18", "NIC0": "PIX"}}`."""
    columns: list[str] = []
    links: dict[str, dict[str, str]] = {}
    for line in re.sub(r"\x1b\[[0-9;]*m", "", output).splitlines():
        words = line.split()
        named = [word for word in words if re.fullmatch(r"(?:GPU|NIC|mlx)[\w.]*", word)]
        if not columns and len(named) > 1 and words[: len(named)] == named:
            columns = named
        elif columns and len(named) == 1 and words[0] in columns and len(words) > len(columns):
            links[words[0]] = dict(zip(columns, words[1:], strict=False))
    return links


def parse_rocm_smi(output: str) -> tuple[Gpu, ...]:
    """`rocm-smi -a --json`: a card a key, units in the keys, every value text, and `N/A` where there is none."""
    document = mapping(next((value for value in documents(output)[0] if isinstance(value, dict)), {}))
    driver = text(mapping(document.get("system")).get("Driver version"))
    cards = [(name, mapping(card)) for name, card in document.items() if re.fullmatch(r"card\d+", name)]
    return tuple(
        Gpu(
            index=name.removeprefix("card"),
            name=_name(card),
            bus_id=_lower(card, "pci bus"),
            memory_bytes=whole(_lower(card, "vram total memory (b)")),
            driver=driver,
        )
        for name, card in cards
    )


def _name(card: Mapping[str, Any]) -> str:
    """Without its table of names the tool prints PCI numbers, and of those only the GPU's own tells it apart."""
    names = (_lower(card, "card series"), _lower(card, "card model"))
    return next((name for name in names if name and not name.startswith("0x")), _lower(card, "gpu id"))


def _lower(card: Mapping[str, Any], wanted: str) -> str:
    """A value whose key changed its capitals between versions."""
    return next((text(value) for key, value in card.items() if key.lower() == wanted), "")


def parse_amd_smi(output: str) -> tuple[Gpu, ...]:
    """`amd-smi static --json`: a list, or an object with `gpu_data`, perhaps behind a warning about permissions."""
    return tuple(
        Gpu(
            index=text(row.get("gpu")),
            name=text(mapping(row.get("asic")).get("market_name")),
            bus_id=text(mapping(row.get("bus")).get("bdf")),
            memory_bytes=_times(mapping(row.get("vram")).get("size"), _MIB),
            driver=text(mapping(row.get("driver")).get("version")),
        )
        for value in documents(output)[0]
        for row in mappings(value if isinstance(value, list) else mapping(value).get("gpu_data"))
        if whole(row.get("gpu")) is not None
    )


def parse_npu_smi(output: str) -> tuple[Gpu, ...]:
    """The table of `npu-smi info`: two lines a chip. Lines of a shell before it, and its process table, are passed."""
    version = re.search(r"npu-smi\s+(\d\S*)", output)
    return tuple(
        Gpu(index, name, bus_id, _last(usages), version[1] if version else "", health)
        for index, name, health, bus_id, usages in _chips(output)
    )


def _chips(output: str) -> Iterator[tuple[str, str, str, str, str]]:
    above: list[str] = []
    for line in output.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 3:
            above = []
        elif re.fullmatch(r"[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]", cells[1]) and above:
            yield (*above[0].split(maxsplit=1), above[1], cells[1], cells[2])  # type: ignore[misc]
            above = []
        else:
            above = cells if re.fullmatch(r"\d+\s+\S.*", cells[0]) else []


def _last(usages: str) -> int | None:
    """`2681 / 15137      1    / 32768` (used / size, of memory and of HBM, in MB) → the size of the last."""
    return _times(usages.rpartition("/")[2], _MIB)


def _times(count: object, size_bytes: int) -> int | None:
    found = number(mapping(count).get("value") if isinstance(count, dict) else count)
    return int(found * size_bytes) if found is not None and 0 < found < 2**40 else None


def parse_lspci(output: str) -> tuple[str, ...]:
    """The display and compute controllers of `lspci -nn`, a line each, for machines without their vendor's tool."""
    wanted = re.compile(r"^\S+ .*\[(?:0302|0380|1200|0b40)\]: .+$")
    return tuple(text(line) for line in output.splitlines() if wanted.match(line))
