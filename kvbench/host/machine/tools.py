"""Ask a tool, and keep every word of its answer as evidence. A tool that is absent is named with its package."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvbench import process
from kvbench.errors import StepError

_FOUND_IN: Mapping[str, str] = {
    "lsblk": "package util-linux",
    "wipefs": "package util-linux",
    "lspci": "package pciutils",
    "nvme": "package nvme-cli",
    "smartctl": "package smartmontools",
    "ip": "package iproute2",
    "rdma": "package iproute2",
    "ibstat": "package infiniband-diags",
    "numactl": "package numactl",
    "nvidia-smi": "comes with the NVIDIA driver",
    "rocm-smi": "package rocm-smi-lib",
    "amd-smi": "package amd-smi-lib",
    "npu-smi": "comes with the Ascend driver",
}  # as Debian and Ubuntu, and the vendors, call them


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool printed. `why_none` is "" when it ran, whatever its exit status, else why there is no answer."""

    stdout: str = ""
    stderr: str = ""
    status: int | None = None
    why_none: str = ""

    @property
    def complaint(self) -> str:
        """Why an answer holds nothing: the tool's own last words, or why it has none."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return self.why_none or (lines[-1].strip()[:200] if lines else f"exit status {self.status}, and no word")


def ask(argv: Sequence[str], raw_dir: Path | None, timeout_s: float = 20.0) -> Answer:
    """Run a tool to its end. With a `raw_dir` the answer is kept there, under the name of the command."""
    tool = argv[0]
    if process.find_tool(tool) is None:
        return Answer(why_none=f"{tool} is not installed ({_FOUND_IN[tool]})")
    try:
        said = process.run(argv, timeout_s)
    except StepError as error:
        return Answer(why_none=error.message)
    if raw_dir is not None:
        name = "-".join(argv).replace("/", "_")[:120]
        head = f"# {' '.join(argv)}\n# exit status {said.returncode}\n"
        (raw_dir / f"{name}.txt").write_text(f"{head}{said.stdout}\n# stderr\n{said.stderr}")
    return Answer(said.stdout, said.stderr, said.returncode)
