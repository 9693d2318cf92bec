"""What an operator did during a run, and when: a line each in RUN/marks.jsonl, written while the run goes on.

A fault that no hook can cause (a cable pulled, a controller failed over by hand) is marked at the moment it happens.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from kvbench.errors import KvbenchError
from kvbench.model import Stamp

_NAME = "marks.jsonl"


@dataclass(frozen=True, slots=True)
class Mark:
    text: str
    at: Stamp
    boot_id: str


def append(run_dir: Path, mark: Mark) -> None:
    """Note a mark durably. Raises KvbenchError when it cannot be written."""
    line = json.dumps(asdict(mark), ensure_ascii=False).encode() + b"\n"
    try:
        with (run_dir / _NAME).open("ab", buffering=0) as file:
            file.write(line)
            os.fsync(file.fileno())
    except OSError as error:
        raise KvbenchError(f"{run_dir / _NAME}: {error.strerror}; the mark was not noted", "mark it again") from None


def read(run_dir: Path) -> list[Mark]:
    """The marks of a run, in the order in which they were made. A torn line is left out."""
    file = run_dir / _NAME
    return [mark for line in file.read_bytes().splitlines() if (mark := _parse(line))] if file.exists() else []


def _parse(line: bytes) -> Mark | None:
    try:
        noted = json.loads(line)
        return Mark(str(noted["text"]), Stamp(**noted["at"]), str(noted["boot_id"]))
    except (ValueError, KeyError, TypeError):
        return None
