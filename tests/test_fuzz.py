"""200,000 damaged documents of fio, nvme, smartctl, lsblk and the others: each becomes a value or a KvbenchError.

A document is one of the fixtures, damaged by up to four changes of its bytes or of its JSON values. It is made from its
number alone, so that what fails can be made again.
"""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kvbench.errors import KvbenchError
from kvbench.fio.importer import import_files
from kvbench.fio.parse import parse
from kvbench.fio.total import totals
from kvbench.host.machine.gpu import (
    parse_amd_smi,
    parse_lspci,
    parse_npu_smi,
    parse_nvidia_smi,
    parse_rocm_smi,
    parse_topology,
)
from kvbench.host.machine.lsblk import parse_lsblk
from kvbench.host.machine.mounts import parse_mountinfo
from kvbench.host.machine.numa import parse_numactl
from kvbench.host.machine.nvme import parse_list, parse_smart_log
from kvbench.host.machine.ports import parse_route
from kvbench.host.machine.rdma import parse_ibstat
from kvbench.host.machine.smart import parse_smartctl
from kvbench.load.engine_metrics import read as read_metrics

pytestmark = pytest.mark.slow

DOCUMENTS = 200_000
LONGEST_S = 5  # for one document; what takes longer hangs
LARGEST_BYTES = 20_000
FIXTURES = Path(__file__).parent / "fixtures"
CAPTURED = Path(__file__).parents[2] / "shared" / "cases" / "files"  # real output, where it is there


def fio(text: str) -> None:
    result = parse(text, text[::7], len(text) % 3)
    json.dumps([(one.bytes, one.bandwidth_bytes_per_s, dict(one.latency_ns)) for one in totals(result.jobs)])
    assert result.ok or result.reason


PARSERS: dict[str, list[Callable[[str], Any]]] = {
    "fio": [fio],
    "host": [
        parse_list, parse_smart_log, parse_smartctl, parse_lsblk, parse_ibstat, parse_nvidia_smi, parse_topology,
        parse_rocm_smi, parse_amd_smi, parse_npu_smi, parse_lspci, parse_numactl, parse_route, parse_mountinfo,
        read_metrics,
    ],
}  # fmt: skip
STRANGE: list[Any] = [
    None, True, 0, -1, 2**64 - 1, 2**63, 10**40, -0.0, 1e308, float("nan"), float("inf"),
    "", " ", "0", "-1", "1e999", "nan", "0x10", "12 °C", "٣", "\ud800", "\x00", "x" * 5000,
    [], {}, [[]], [{}], {"": {}}, {"value": {"value": []}}, [None] * 3,
]  # fmt: skip
PIECES = [
    "{",
    "}",
    "[",
    "]",
    '"',
    ":",
    ",",
    "\n",
    "\\",
    "\x00",
    "-",
    "e",
    "1" * 400,
    "null",
    "NaN",
    "\ufeff",
    "é",
    "<vm> ",
    "fio: ",
]


def damage_values(document: Any, rng: random.Random) -> Any:
    """The same JSON with one value, somewhere, another, gone, or there under another name."""
    places = list(walk(document))
    if not places:
        return rng.choice(STRANGE)
    holder, key = rng.choice(places)
    match rng.randrange(3):
        case 0:
            holder[key] = rng.choice(STRANGE)
        case 1:
            del holder[key]
        case _ if isinstance(holder, dict):
            holder[rng.choice(["", "value", "x" * 99, str(rng.randrange(10**9))])] = holder.pop(key)
        case _:
            holder.insert(0, holder[key])
    return document


def walk(node: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
        yield node, key
        yield from walk(node[key])


def damage_text(text: str, rng: random.Random) -> str:
    at, other = sorted(rng.randrange(len(text) + 1) for _ in range(2))
    match rng.randrange(5):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + text[other:]
        case 2:
            return text[:other] + text[at:]
        case 3:
            return text[:at] + rng.choice(PIECES) + text[at:]
        case _:
            return text[:at] + chr(rng.randrange(0x250)) + text[at + 1 :]


def damaged(text: str, value: Any, rng: random.Random) -> str:
    for _ in range(rng.randrange(1, 5)):
        if value is not None and rng.random() < 0.6:
            value = damage_values(json.loads(json.dumps(value)), rng)
            text = json.dumps(value)
        else:
            text = damage_text(text, rng)
    return text


@contextmanager
def named(what: str) -> Iterator[None]:
    try:
        yield
    except (KvbenchError, AssertionError):
        raise
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


@contextmanager
def watched(what: str) -> Iterator[None]:
    def too_long(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"{what} hangs")

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LONGEST_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", PARSERS)
def test_a_damaged_document_becomes_a_value_or_a_kvbench_error(kind: str) -> None:
    captured = sorted(
        path for path in CAPTURED.rglob("*") if path.is_file() and ("fio" in path.parent.name) == (kind == "fio")
    )
    files = [path for path in (*sorted((FIXTURES / kind).iterdir()), *captured) if path.stat().st_size < LARGEST_BYTES]
    documents = [(path.name, path.read_text(errors="replace")) for path in files]
    values: dict[str, Any] = {}
    for name, text in documents:
        with suppress(ValueError):
            values[name] = json.loads(text)
    for number in range(DOCUMENTS // 2):
        rng = random.Random(f"{kind}/{number}")
        name, text = rng.choice(documents)
        text = damaged(text, values.get(name), rng)
        with watched(f"document {kind}/{number}, from {name},"):
            for parser in PARSERS[kind]:
                with suppress(KvbenchError), named(f"{parser.__name__} of document {kind}/{number}, from {name}"):
                    parser(text)


def test_files_that_are_no_text_are_imported_with_their_reason(tmp_path: Path) -> None:
    rng = random.Random(1)
    for number in range(200):
        (tmp_path / "f").write_bytes(rng.randbytes(rng.randrange(400)))
        (entry,) = import_files([tmp_path / "f"])
        assert not entry["ok"] and entry["reason"], number
