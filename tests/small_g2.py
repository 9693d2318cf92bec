"""Part of gate G2 made small: fio's ceiling and pages read cold, with G2's own checks, on a file system of our own."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from kvbench import content, plan, process, run
from kvbench.journal import RunFolder
from kvbench.model import Arm, Engine, Measurement, Step, Storage, Target

GATES = Path(__file__).parents[1] / "gates"
PAGE_BYTES = (256 * 1024, 512 * 1024)  # a step each
PAGES = 16
DISK_BYTES = 512 * 2**20  # beyond what a step wants to be free; the image is sparse
CEILING = {"profile": "page-read", "size_bytes": 64 * 2**20, "runtime_s": 0.3}  # two pages of the model


class Trouble:
    """An observer that does something once, when a step says that it does this."""

    def __init__(self, doing: str, act: Callable[[], object]) -> None:
        self._doing, self._act = doing, act
        self.step = ""  # the one that it was done to

    def began(self, step: Step, attempt: int, done: int, total: int) -> None:
        self._under_way = step.id

    def progress(self, text: str, share: float | None) -> None:
        if not self.step and text.startswith(self._doing):
            self.step = self._under_way
            self._act()

    def measured(self, step: Step, measurement: Measurement) -> None: ...
    def note(self, text: str) -> None: ...


def new_run(
    where: Path, node: Path, *, direct: bool = True, steps: tuple[str, ...] = ("ceiling", "page-read")
) -> RunFolder:
    """A run of these steps on a node that is there."""
    ceiling = next(step for step in _load("g3")["steps"] if step["id"] == "ceiling")
    gate = _load("g2")
    (page_read,) = (step for step in gate["steps"] if step["id"] == "page-read")
    ceiling["params"] = CEILING
    page_read |= {"page_bytes": list(PAGE_BYTES), "concurrency": [4]}
    page_read["params"] |= {"total_bytes": PAGES * PAGE_BYTES[0], "settle_dwell_s": 0}
    gate["steps"] = [step for step in (ceiling, page_read) if step["id"] in steps]
    for step in gate["steps"]:
        step.pop("quick", None)
    gate["checks"] = [check for check in gate["checks"] if check["step"] == "page-read"]
    gate["rounds"] = 1
    YAML().dump(gate, where / "small.yaml")
    loaded = content.load_gate(str(where / "small.yaml"))
    arms = (
        Arm("dut", "dut", Engine(), storage=Storage((str(node),))),
        Arm("base", "baseline", Engine(), kv="recompute"),
    )
    made = plan.make_plan(loaded, Target("small", arms), content.model_shapes(), plan.Options())
    return RunFolder.create(where / "run", made, loaded.files, loaded.source)


def _load(name: str) -> Any:
    return YAML(typ="safe").load(GATES / f"{name}.yaml")


def execute(folder: RunFolder, observer: run.Observer) -> None:
    run.execute(folder, content.model_shapes(), observer)


def measured(folder: RunFolder) -> Counter[str]:
    """How often each step was measured."""
    return Counter(line["step"] for line in folder._lines() if line["event"] == "measured")


@contextmanager
def disk(where: Path) -> Iterator[Path]:
    """An ext4 file system of its own, in a file beside. Skips the test where it cannot be mounted."""
    if os.geteuid():
        pytest.skip("only root can mount a file system")
    image, mount = where / "disk.img", where / "disk"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    subprocess.run([process.require_tool("mkfs.ext4", "e2fsprogs"), "-q", "-m0", image], check=True)
    with mounted(image, mount):
        yield mount


@contextmanager
def mounted(image: Path, mount: Path) -> Iterator[None]:
    """The file system of an image, as long as nobody unmounts it."""
    done = subprocess.run(["mount", "-o", "loop", image, mount], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no image can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", mount], check=False, capture_output=True)
