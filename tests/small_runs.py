"""Gate G3 made small: its own checks and thresholds on sessions of one page, for real runs within seconds."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from kvbench import content, run, safety
from kvbench.host.machine.blockdev import medium_of
from kvbench.journal import RunFolder
from kvbench.model import Measurement, Step

G3 = Path(__file__).parents[1] / "gates" / "g3.yaml"
MEMORY = Path("/dev/shm")
WAVE = {
    "workload": "cold-recovery",
    "session_tokens": 257,
    "reference_tokens": 4,
    "output_tokens": 4,
    "settle_dwell_s": 0.1,
}
CEILING = {"profile": "page-read", "size_bytes": 64 * 2**20, "runtime_s": 1}


class Nobody:
    """An observer that watches nothing."""

    def began(self, step: Step, attempt: int, done: int, total: int) -> None: ...
    def progress(self, text: str, share: float | None) -> None: ...
    def measured(self, step: Step, measurement: Measurement) -> None: ...
    def note(self, text: str) -> None: ...


def execute(folder: RunFolder) -> None:
    run.execute(folder, content.model_shapes(), Nobody())


def small_gate(path: Path, concurrency: int, rounds: int, scaling: Mapping[str, Any] | None = None) -> Path:
    """Write G3 with other sizes and nothing else changed; without scaling, unless params of it are given."""
    gate = YAML(typ="safe").load(G3)
    gate["rounds"] = rounds
    if scaling is None:
        gate["steps"] = [step for step in gate["steps"] if step["id"] != "scaling"]
        gate["checks"] = [check for check in gate["checks"] if check["step"] != "scaling"]
    sizes: Mapping[str, Mapping[str, Any]] = {
        "ceiling": {"params": CEILING},
        "wave": {"params": WAVE, "concurrency": [concurrency]},
        "scaling": {"params": WAVE | dict(scaling or {}), "concurrency": [concurrency]},
    }
    for step in gate["steps"]:
        step.update(sizes.get(step["id"], {}))
        step.pop("quick", None)
    YAML().dump(gate, path)
    return path


@contextmanager
def folder_in_memory(otherwise: Path) -> Iterator[Path]:
    """A folder in memory, or in that one where memory has no file system with room for a run."""
    roomy = MEMORY.is_dir() and safety.free_bytes(MEMORY) > 2 * run.RESERVE_BYTES
    with tempfile.TemporaryDirectory(dir=MEMORY if roomy else otherwise) as folder:
        yield Path(folder)


@contextmanager
def folder_on_disk(preferred: Path) -> Iterator[Path]:
    """A folder whose bytes a block device counts: there, else beside the tests. Skips the test where neither is."""
    for parent in (preferred, Path(__file__).parent):
        if medium_of(parent).devices:
            with tempfile.TemporaryDirectory(prefix=".disk-", dir=parent) as folder:
                yield Path(folder)
            return
    pytest.skip(f"neither {preferred} nor the checkout lies on a block device whose reads are counted")
