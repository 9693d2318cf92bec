"""Gate G3 on a real engine that runs on CPUs: vLLM with LMCache, its KV on this machine's disk. `make gate-vllm`.

The checks and thresholds are those of gates/g3.yaml; the waves are small, since two processors compute them. The
baseline recomputes, so page one says DEMONSTRATION.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

HERE = Path(__file__).parent
G3 = HERE.parent / "gates" / "g3.yaml"
WAVES = (2, 4)
ROUNDS = 3
PAGE_TOKENS = 512
SESSION_TOKENS = 6 * PAGE_TOKENS + 8  # full pages, and some tokens that are always computed
STEP_TOKENS = SESSION_TOKENS + 12  # one prompt a step, so that which of two came first changes nothing
OUTPUT_TOKENS = 480  # no further page fills
CEILING = {"profile": "page-read", "size_bytes": "512 MiB", "runtime_s": 4}


def prepare(folder: Path) -> None:
    """Make the environment and the model, as far as they are not there."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([HERE / "vllm-environment.sh", folder / "env"], check=True)
    if not (folder / "model" / "config.json").exists():
        subprocess.run([folder / "env/bin/python", HERE / "tiny_model.py", folder / "model"], check=True)


def write_gate(path: Path, rounds: int = ROUNDS, waves: Sequence[int] = WAVES) -> Path:
    """G3 with other sizes and nothing else changed."""
    gate = YAML(typ="safe").load(G3)
    gate["rounds"] = rounds
    for step in gate["steps"]:
        step.pop("quick", None)
        if step["id"] == "ceiling":
            step["params"] = CEILING
        elif step["id"] == "wave":
            step["concurrency"] = list(waves)
            step["params"] = {"workload": "cold-recovery", "output_tokens": OUTPUT_TOKENS, "settle_dwell_s": 10}
    YAML().dump(gate, path)
    return path


def write_target(
    path: Path, folder: Path, disk: Path, recipe: str = "vllm-lmcache-mp", before_wave: Sequence[str] = ()
) -> Path:
    """The engine of `folder` with its KV under `disk`, against the same engine that recomputes.

    It computes in one thread and in float32, so that waves are long: how fast a shared processor is differs by a tenth
    from one second to the next, and by a third of that from one minute to the next.
    """
    engine = {
        "kind": "launch",
        "recipe": recipe,
        "model": str(folder / "model"),
        "parameters": {
            "python": str(folder / "env/bin/python"),
            "dtype": "float32",
            "chunk_tokens": str(PAGE_TOKENS),
        },
        "extra_args": [
            "--max-model-len=4096",
            f"--max-num-batched-tokens={STEP_TOKENS}",
            "--max-num-seqs=8",
            "--enforce-eager",
        ],
        "env": {"VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"},  # GiB
        "host_memory_bytes": "2 GiB",
        "start_timeout_s": 600,
    }
    target: dict[str, Any] = {
        "version": 1,
        "name": "vLLM on this machine's processors and disk",
        "session_tokens": SESSION_TOKENS,
        "arms": [
            {"name": "dut", "role": "dut", "kv": "storage", "storage": {"nodes": [str(disk)]}, "engine": engine},
            {"name": "recompute", "role": "baseline", "kv": "recompute", "engine": engine},
        ],
        "hooks": {"before_wave": list(before_wave)} if before_wave else {},
    }
    YAML().dump(target, path)
    return path


def run_gate(gate: Path, target: Path, out: Path) -> int:
    """Run kvbench into `out`; returns its exit code."""
    command = [sys.executable, "-m", "kvbench", "run", "gate", gate, "--target", target, "--out", out, "--yes"]
    return subprocess.run(command, check=False).returncode


def main(folder: Path, out: Path) -> int:
    """Prepare, and run the gate on the disk of `folder`."""
    prepare(folder)
    disk = folder / "disk"
    disk.mkdir(exist_ok=True)
    return run_gate(write_gate(folder / "g3.yaml"), write_target(folder / "target.yaml", folder, disk), out)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute(), Path(sys.argv[2]).absolute()))
