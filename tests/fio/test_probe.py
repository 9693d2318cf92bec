"""The probe drives a real fio, and ends in a StepError with fio's own words when that does not go well."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import make_context

from kvbench import clock, process
from kvbench.errors import KvbenchError, StepError
from kvbench.fio.parse import parse
from kvbench.fio.probe import measure, metrics
from kvbench.fio.runner import require_fio
from kvbench.model import Arm, Engine, Step, Storage
from kvbench.probes.context import Context, Measured
from kvbench.probes.metrics import FIO_METRICS

FIXTURES = Path(__file__).parents[1] / "fixtures" / "fio"
needs_fio = pytest.mark.skipif(process.find_tool("fio") is None, reason="fio is not installed")
READ = {"rw": "randread", "bs": "{page_bytes}", "ioengine": "psync", "time_based": 1}
SIZE_BYTES = 4 << 20


def step(options: dict[str, Any] = READ, runtime_s: float = 1.0, seed: int = 1, **params: Any) -> Step:
    given = {"profile": "small", "options": options, "size_bytes": SIZE_BYTES, "page_bytes": 65536, **params}
    return Step("ceiling-dut", "ceiling", "fio.profile", "dut", "", 0, {**given, "runtime_s": runtime_s}, seed, "none")


def context(
    run_dir: Path, nodes: int = 2, limit_s: float = 60.0, progress: Callable[..., None] | None = None
) -> Context:
    data_dirs = tuple(run_dir / f"node{number}" for number in range(nodes))
    arm = Arm("dut", "dut", Engine(), storage=Storage(tuple(map(str, data_dirs))) if nodes else None)
    deadline_ns = clock.monotonic_ns() + int(limit_s * 1e9)
    telling = {"progress": progress} if progress else {}
    return make_context(run_dir, "ceiling-dut", arm, data_dirs, deadline_ns=deadline_ns, **telling)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Measured]:
    run_dir = tmp_path_factory.mktemp("run")
    return run_dir, measure(step(), context(run_dir))


@needs_fio
def test_all_nodes_are_driven_and_every_figure_leads_to_its_file(measured: tuple[Path, Measured]) -> None:
    run_dir, result = measured
    assert dict.fromkeys(result.metrics) == dict.fromkeys(FIO_METRICS)
    assert {name: metric.unit for name, metric in result.metrics.items()} == FIO_METRICS
    report = json.loads((run_dir / result.metrics["read_bytes"].source).read_text())
    assert [job["jobname"] for job in report["jobs"]] == ["small.0", "small.1"]
    assert result.metrics["read_bytes"].value == sum(job["read"]["io_bytes"] for job in report["jobs"])
    assert result.metrics["read_latency_p99_s"].n == sum(job["read"]["total_ios"] for job in report["jobs"])
    assert (result.metrics["write_iops"].value, result.metrics["write_iops"].note) == (
        None,
        "fio reported no writes",
    )
    assert {file.name for file in (run_dir / "raw/ceiling-dut").iterdir()} >= {
        "layout.fio",
        "layout.json",
        "profile.fio",
        "profile.json",
    }


@needs_fio
def test_files_are_written_in_full_before_with_bytes_that_neither_repeat_nor_compress(
    measured: tuple[Path, Measured],
) -> None:
    run_dir, _ = measured
    contents = [(run_dir / f"node{number}" / "fio.data").read_bytes() for number in range(2)]
    blocks = [content[at : at + 4096] for content in contents for at in range(0, len(content), 4096)]
    assert sum(len(content) for content in contents) == SIZE_BYTES
    assert len(set(blocks)) == len(blocks)
    assert len(zlib.compress(contents[0], 1)) > 0.99 * len(contents[0])


@needs_fio
def test_another_seed_writes_other_bytes(measured: tuple[Path, Measured], tmp_path: Path) -> None:
    run_dir, _ = measured
    measure(step(seed=2, runtime_s=0.1), context(tmp_path))
    first, second = (folder / "node0" / "fio.data" for folder in (run_dir, tmp_path))
    blocks = [
        {content[at : at + 4096] for at in range(0, len(content), 4096)}
        for content in map(Path.read_bytes, (first, second))
    ]
    assert not blocks[0] & blocks[1]


@needs_fio
def test_fios_own_words_come_with_the_error(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"exit code 1.*nosuchengine"):
        measure(step({**READ, "ioengine": "nosuchengine"}), context(tmp_path))


@needs_fio
def test_an_interrupt_leaves_no_process(tmp_path: Path) -> None:
    def interrupt(text: str, share: float | None) -> None:
        if share and here.survivors.alive():  # its mark is on it once it has been executed
            raise KeyboardInterrupt

    here = context(tmp_path, progress=interrupt)
    with pytest.raises(KeyboardInterrupt):
        measure(step(runtime_s=60.0), here)
    assert here.survivors.alive() == []


def fake_fio(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str, version: str = "fio-3.33") -> None:
    """A fio that answers with a version, and for a job file does what `body` says; $output is where it may write."""
    script = folder / "bin" / "fio"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo {version} && exit\noutput=${{2#--output=}}\n{body}\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")


def test_fio_that_hangs_is_ended_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_fio(tmp_path, monkeypatch, "exec sleep 600")
    here = context(tmp_path, limit_s=0.5)
    with pytest.raises(StepError, match="fio did not end within"):
        measure(step(), here)
    assert here.survivors.alive() == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('head -c 60 %s > "$output"; kill -KILL $$', "fio was killed by signal 9"),
        ('head -c 60 %s > "$output"', "its last JSON document is cut off"),
        ('cat %s > "$output"; echo "fio: oh no" >&2; exit 1', r"fio ended with exit code 1 \(fio: oh no\)"),
        ("exit 0", "the output is empty"),
        ('echo "fio: bad option" >&2; exit 1', "fio ended with exit code 1; fio: bad option"),
    ],
)
def test_fio_that_does_not_end_well_fails_the_step_with_its_reason(
    body: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_fio(tmp_path, monkeypatch, body.replace("%s", str(FIXTURES / "F24-longer-than-asked.json")))
    with pytest.raises(StepError, match=reason):
        measure(step({**READ, "rw": "randwrite"}, lay_out=False), context(tmp_path))


@pytest.mark.parametrize(
    ("version", "message"),
    [("fio-2.17", "is fio-2.17, which is too old"), ("fio-3.0", "too old"), ("hello", "does not answer as fio does")],
)
def test_an_old_or_strange_fio_is_named(
    version: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_fio(tmp_path, monkeypatch, "exit 1", version)
    with pytest.raises(KvbenchError, match=message):
        require_fio()


def test_a_missing_fio_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "find_tool", lambda name: None)
    with pytest.raises(KvbenchError, match="fio is not installed") as missing:
        measure(step(), context(tmp_path))
    assert "apt-get install fio" in missing.value.hint


def test_an_arm_without_storage_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StepError, match="the arm has no storage"):
        measure(step(), context(tmp_path, nodes=0))


def test_reads_that_may_be_cached_are_no_figure() -> None:
    jobs = parse((FIXTURES / "F28-cache-not-dropped.txt").read_bytes()).jobs
    metric = metrics(jobs, "raw/x/profile.json")["read_bandwidth_bytes_per_s"]
    assert (metric.value, metric.note) == (None, "reads may have come from the page cache")
