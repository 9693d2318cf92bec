"""Gate G3 on a real engine: vLLM with LMCache on CPUs, its KV on this machine's disk. `make test-vllm`; an hour.

One run that passes, and two that must not: a connector that is healthy and stores nothing, and KV that is noise.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import vllm_on_cpu

pytestmark = pytest.mark.slow

OVERWRITE = """
import os, pathlib, sys
for file in pathlib.Path(sys.argv[1]).rglob("*.data"):
    with file.open("r+b") as page:
        page.write(os.urandom(file.stat().st_size))
        os.fsync(page.fileno())
        os.posix_fadvise(page.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
"""


@pytest.fixture(scope="module")
def engine() -> Path:
    if "KVBENCH_VLLM" not in os.environ:
        pytest.skip("KVBENCH_VLLM names no folder for vLLM, LMCache and a model (3 GB); make test-vllm does")
    folder = Path(os.environ["KVBENCH_VLLM"])
    vllm_on_cpu.prepare(folder)
    return folder


@pytest.fixture
def disk(engine: Path) -> Iterator[Path]:
    """A folder on the disk of the engine, which must be left empty."""
    folder = engine / "disk"
    folder.mkdir(exist_ok=True)
    yield folder
    assert not list(folder.iterdir())
    assert not list(Path("/dev/shm").glob("lmcache_l1_pool_kvbench_*"))


def findings(out: Path, check: str) -> list[dict[str, Any]]:
    verdict = json.loads((out / "verdict.json").read_text())
    return [finding for finding in verdict["findings"] if finding["check"] == check]


def test_kv_read_back_from_disk_beats_recomputing_it(engine: Path, disk: Path, tmp_path: Path) -> None:
    gate = vllm_on_cpu.write_gate(tmp_path / "g3.yaml")
    target = vllm_on_cpu.write_target(tmp_path / "target.yaml", engine, disk)
    assert vllm_on_cpu.run_gate(gate, target, tmp_path / "run") == 0
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text())
    assert (verdict["outcome"], verdict["basis"][0]) == ("PASS", "recompute baseline")
    for check in ("cold-hits", "engine-hits", "byte-ledger", "residency-before", "residency-after", "same-answers"):
        assert {finding["outcome"] for finding in findings(tmp_path / "run", check)} == {"PASS"}


def test_a_connector_that_stores_nothing_does_not_pass(engine: Path, disk: Path, tmp_path: Path) -> None:
    gate = vllm_on_cpu.write_gate(tmp_path / "g3.yaml", rounds=1, waves=(2,))
    target = vllm_on_cpu.write_target(tmp_path / "target.yaml", engine, disk, recipe="vllm-lmcache-inprocess")
    assert vllm_on_cpu.run_gate(gate, target, tmp_path / "run") == 3
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text())
    assert any("Nothing was read from storage (arm dut, 2 sessions" in warning for warning in verdict["warnings"])
    assert {finding["outcome"] for finding in findings(tmp_path / "run", "failed-requests")} == {"PASS"}
    assert {finding["outcome"] for finding in findings(tmp_path / "run", "cold-hits")} == {"INCONCLUSIVE"}


def test_kv_that_is_noise_fails_by_its_answers(engine: Path, disk: Path, tmp_path: Path) -> None:
    gate = vllm_on_cpu.write_gate(tmp_path / "g3.yaml", rounds=2, waves=(4,))
    spoil = (sys.executable, "-c", OVERWRITE, str(disk))
    target = vllm_on_cpu.write_target(tmp_path / "target.yaml", engine, disk, before_wave=spoil)
    assert vllm_on_cpu.run_gate(gate, target, tmp_path / "run") == 1
    (answers,) = findings(tmp_path / "run", "same-answers")
    assert answers["outcome"] == "FAIL"
    # every counter calls it a hit
    for check in ("cold-hits", "engine-hits", "failed-requests"):
        assert {finding["outcome"] for finding in findings(tmp_path / "run", check)} == {"PASS"}
