"""Checkpoints and models on real files: every rank's part is timed, every byte checked, and a rank that fails named."""

from __future__ import annotations

import errno
import json
import os
import struct
from pathlib import Path
from threading import Event
from threading import enumerate as threads
from typing import Any

import pytest
from builders import make_context

from kvbench.checkpoint import figures as checkpoint_figures
from kvbench.checkpoint import probe as checkpoint
from kvbench.checkpoint import shards
from kvbench.checkpoint.figures import Seen, effective_utilisation
from kvbench.checkpoint.ranks import together
from kvbench.checkpoint.shards import CHUNK_BYTES, Moved, Shard, header, parse_header
from kvbench.errors import StepError
from kvbench.model import Arm, Engine, Step, Storage
from kvbench.probes.context import Context, Measured
from kvbench.probes.metrics import CHECKPOINT_METRICS
from kvbench.probes.params import CheckpointParams
from kvbench.store import pagefile

EVIDENCE = {"moved_bytes", "starved_share", "medium_proven"}
MEASURED = {
    "save": {"save_s", "save_bandwidth_bytes_per_s", "rank_bandwidth_min_bytes_per_s"},
    "load": {"load_s", "load_bandwidth_bytes_per_s", "rank_bandwidth_min_bytes_per_s", "residency_before_share"},
    "switch": {"switch_s", "effective_utilisation_share", "rank_bandwidth_min_bytes_per_s", "residency_before_share"},
}


def step(access: str, **params: Any) -> Step:
    given = {
        "pages": "p",
        "access": access,
        "total_bytes": 4 * CHUNK_BYTES,
        "ranks": 2,
        "settle_dwell_s": 0.0,
        **params,
    }
    return Step("save-dut", "save", "store.checkpoint", "dut", "", 0, given, 1, "none")


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    """Two nodes; waiting for a silent device is left out, since others use this one too."""
    monkeypatch.setattr(checkpoint, "wait_idle", lambda *_: 0.0)
    monkeypatch.setattr("kvbench.host.activity.cold.wait_idle", lambda *_: 0.0)
    nodes = tuple(tmp_path / f"node{number}" for number in range(2))
    arm = Arm("dut", "dut", Engine(), storage=Storage(tuple(map(str, nodes))))
    return make_context(tmp_path, "save-dut", arm, nodes, lasting_dirs=nodes)


def values(measured: Measured) -> dict[str, float | None]:
    return {name: metric.value for name, metric in measured.metrics.items()}


@pytest.mark.parametrize("access", MEASURED)
def test_every_figure_of_an_access_is_there_and_every_other_says_why_not(access: str, context: Context) -> None:
    measured = checkpoint.measure(step(access), context)
    assert {name: metric.unit for name, metric in measured.metrics.items()} == dict(CHECKPOINT_METRICS)
    found = {name for name, value in values(measured).items() if value is not None}
    assert found >= MEASURED[access] | EVIDENCE
    assert not found & (set.union(*MEASURED.values()) - MEASURED[access])
    assert all(metric.note for metric in measured.metrics.values() if metric.value is None)
    assert values(measured)["wrong_chunks"] == (None if access == "save" else 0)
    assert sorted(path.name for node in context.data_dirs for path in node.iterdir()) == [
        "00001-of-00002.safetensors",
        "00002-of-00002.safetensors",
    ]


@pytest.mark.parametrize("io", ["direct", "buffered", "mmap"])
def test_a_file_is_read_back_as_it_was_written_and_a_wrong_byte_is_found(io: shards.Io, tmp_path: Path) -> None:
    shard = Shard(tmp_path / "model", 3, b"run", io)
    assert shards.write(shard, Event()).bytes == shard.bytes == shard.path.stat().st_size
    assert shards.read(shard, Event()).wrong_chunks == 0
    with shard.path.open("r+b") as file:
        file.seek(shard.bytes - 1)
        file.write(b"?")
    assert shards.read(shard, Event()).wrong_chunks == 1
    with pytest.raises(ValueError, match="ends within its header"):
        shards.read(Shard(_with(tmp_path / "short", struct.pack("<Q", 9000)), 3, b"run", "buffered"), Event())


def _with(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("chunks", [1, 100])
def test_a_header_is_whole_blocks_of_the_safetensors_format(chunks: int) -> None:
    head = header(chunks)
    assert len(head) % 4096 == 0
    data_at, tensors = parse_header(head)
    assert (data_at, len(tensors)) == (len(head), chunks)
    assert tensors[-1] == ((chunks - 1) * CHUNK_BYTES, chunks * CHUNK_BYTES)
    for tensor in json.loads(head[8:]).values():
        begin, end = tensor["data_offsets"]
        assert (tensor["dtype"], 2 * tensor["shape"][0] * tensor["shape"][1]) == ("BF16", end - begin)


# ---------------------------------------------------------------- figures


def moved(*spans_s: tuple[float, float], size: int = 10**9, starved_s: float = 0.0) -> tuple[Moved, ...]:
    return tuple(Moved(size, int(a * 1e9), int(b * 1e9), int(starved_s * 1e9)) for a, b in spans_s)


def figures(access: str, parts: tuple[Moved, ...], **params: Any) -> dict[str, float | None]:
    seen = Seen(parts, None, None, None, None, True)
    given = CheckpointParams(pages="p", access=access, total_bytes=10**9, **params)  # type: ignore[arg-type]
    return {name: metric.value for name, metric in checkpoint_figures.metrics(given, seen, "raw").items()}


def test_time_is_the_slowest_rank_s_and_throughput_the_smallest() -> None:
    found = figures("save", moved((0.0, 2.0), (0.5, 4.0), starved_s=1.0))
    assert found["save_s"] == 4.0
    assert found["save_bandwidth_bytes_per_s"] == 2e9 / 4
    assert found["rank_bandwidth_min_bytes_per_s"] == pytest.approx(1e9 / 3.5)
    assert found["starved_share"] == 0.5


def test_models_one_after_the_other_leave_so_much_of_an_hour() -> None:
    found = figures("switch", moved((0, 1), (5, 8)), scale=0.1)
    assert found["switch_s"] == 2.0
    assert found["effective_utilisation_share"] == pytest.approx(1 - 20 * 20 / 3600)


@pytest.mark.parametrize(("switch_s", "share"), [(95.94, 0.467), (66.96, 0.628), (0, 1.0), (200, 0.0)])
def test_the_published_utilisations_are_those_of_20_switches_an_hour(switch_s: float, share: float) -> None:
    assert effective_utilisation(switch_s, 20) == pytest.approx(share, abs=1e-4)


# ---------------------------------------------------------------- what goes wrong


def test_a_rank_that_cannot_write_is_named_and_the_others_stop(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, write_all = set(threads()), pagefile.write_all

    def full(fd: int, buffer: memoryview, offset: int) -> None:
        if offset > CHUNK_BYTES and "00002-of" in str(Path(f"/proc/self/fd/{fd}").readlink()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_all(fd, buffer, offset)

    monkeypatch.setattr(pagefile, "write_all", full)
    with pytest.raises(StepError, match="rank 1: No space left on device"):
        checkpoint.measure(step("save"), context)
    assert set(threads()) <= before


def test_ranks_stop_when_one_fails() -> None:
    stopped = Event()

    def waits(stop: Event) -> bool:
        assert stop.wait(30)
        stopped.set()
        return True

    def fails(stop: Event) -> bool:
        raise OSError(errno.EIO, "the disk is gone")

    with pytest.raises(StepError, match="rank 1: the disk is gone"):
        together([waits, fails], 30)
    assert stopped.is_set()


def test_where_torch_is_not_installed_that_is_said(context: Context) -> None:
    measured = checkpoint.measure(step("save", writer="torch", python="/bin/false"), context)
    assert set(values(measured).values()) == {None}
    assert measured.metrics["save_s"].note == "not available here: torch is not installed for /bin/false"
