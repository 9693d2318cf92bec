"""kvbench in a virtual machine with three NVMe drives, two of which hold file systems."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from vm.machine import Completed, Drive, Guest

MODEL = "QEMU NVMe Ctrl"
SLOW = Drive("KV-SLOW-1", 4 * 2**30, 20_000_000)
FAST = Drive("KV-FAST-2", 4 * 2**30, 60_000_000)
EMPTY = Drive("KV-EMPTY-3", 2 * 2**30, 60_000_000)
MAKE_FS = "mke2fs -q -t ext4 -T largefile -E lazy_itable_init=0,lazy_journal_init=0"  # nothing written later on its own
RUN_LIMIT_S = 3600


def device(drive: Drive) -> str:
    return f"/dev/disk/by-id/nvme-{MODEL.replace(' ', '_')}_{drive.serial}"


def folder(drive: Drive) -> str:
    return f"/mnt/{drive.serial}"


@dataclass(frozen=True)
class Lab:
    """kvbench in the guest: targets and gates are handed in, and run folders out, through the shared folder."""

    guest: Guest

    def write(self, name: str, document: Any) -> str:
        """Put a YAML file into the share; returns its path in the guest."""
        YAML().dump(document, self.guest.share / name)
        return f"/share/{name}"

    def kvbench(self, *words: str) -> Completed:
        return self.guest.run(f"cd /tmp && python3 -m kvbench {' '.join(words)}", RUN_LIMIT_S)

    def run_gate(self, name: str, gate: str, target: Any, *words: str) -> Run:
        """Run a gate into /share/NAME. It must come to a verdict, whatever that is."""
        target_file = self.write(f"{name}.yaml", target)
        done = self.kvbench("run gate", gate, "--target", target_file, "--out", f"/share/{name}", "--yes", *words)
        assert done.returncode in (0, 1, 3), done.stderr
        return Run(self.guest.share / name)


@dataclass(frozen=True)
class Run:
    """A run folder that the guest left."""

    path: Path

    @property
    def verdict(self) -> dict[str, Any]:
        return dict(json.loads((self.path / "verdict.json").read_text()))

    @property
    def measurements(self) -> list[dict[str, Any]]:
        entries = map(json.loads, (self.path / "journal.jsonl").read_text().splitlines())
        return [entry["measurement"] for entry in entries if "measurement" in entry]

    def findings(self, check: str) -> list[dict[str, Any]]:
        return [finding for finding in self.verdict["findings"] if finding["check"] == check]

    def not_passed(self) -> dict[str, str]:
        """The checks that did not pass, and why; for the message of a failed assertion."""
        return {f["check"]: f["reason"] for f in self.verdict["findings"] if f["outcome"] != "PASS"}


def arm(name: str, role: str, storage: dict[str, Any] | None) -> dict[str, Any]:
    """An arm on the embedded engine; without a storage it recomputes."""
    engine = {"kind": "emulated", "model": "llama-3.1-8b", "accelerator": "L4", "tensor_parallel": 4}
    return {"name": name, "role": role, "engine": engine} | (
        {"kv": "storage", "storage": storage} if storage else {"kv": "recompute"}
    )


def acceptance(storage: dict[str, Any]) -> dict[str, Any]:
    """A target for G1: one storage, and a baseline that has none."""
    arms = [arm("dut", "dut", storage), arm("recompute", "baseline", None)]
    return {"version": 1, "name": "emulated NVMe drive", "arms": arms}
