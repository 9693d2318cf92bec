"""Waves in which a node comes or goes, with the embedded engine in this process and pages of one block."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from builders import make_context

from kvbench.api_key import NO_KEY
from kvbench.engine import endpoint, lifecycle, server
from kvbench.engine.cost import Accelerator, CostModel
from kvbench.engine.driver import StorageOptions, driver
from kvbench.engine.protocol import EngineConfig
from kvbench.errors import StepError
from kvbench.host.activity import cold
from kvbench.host.machine.blockdev import Media
from kvbench.kv import ModelShape
from kvbench.load import cold_sessions, scaling
from kvbench.load.moves import Reading, rebalance_s, table
from kvbench.model import Arm, Engine, Step, Storage, Target
from kvbench.probes.context import Context, Measured
from kvbench.probes.metrics import SCALING_METRICS
from kvbench.store import real
from kvbench.store.keys import PageKey

SHAPE = ModelShape("tiny", 1, 2, 2, 8, parameters=1, parameters_active=1000, weight_bytes_per_parameter=2, source="")
ARM = Arm("dut", "dut", Engine(model="tiny"), storage=Storage(("/mnt/a", "/mnt/b")))
PAGE_TOKENS, PAGES, SESSIONS = 16, 12, 4
PARAMS = {
    "workload": "x", "concurrency": SESSIONS, "session_tokens": PAGE_TOKENS * PAGES + 1, "output_tokens": 2,
    "reference_tokens": 1, "chunk_tokens": PAGE_TOKENS, "settle_dwell_s": 0.01,
}  # fmt: skip
NODE_RATE = 200_000  # bytes/s, so that a wave lasts as long as the client needs to look at the clock


class SlowWhenRead(real.RateLimit):
    """Holds up the waves, and not what is stored for them before."""

    holds = False

    def pass_at_ns(self, now_ns: int, size_bytes: int) -> int:
        return super().pass_at_ns(now_ns, size_bytes) if self.holds else now_ns


class InProcess:
    """A running engine; it is never restarted, since it keeps nothing above its storage."""

    model, basis, epoch, pids, about, chunk_tokens, key = "tiny", "emulated", 1, (), None, PAGE_TOKENS, NO_KEY

    def __init__(self, port: int) -> None:
        self.urls = (f"http://127.0.0.1:{port}",)

    def restart(self) -> None:
        SlowWhenRead.holds = True

    def metrics_text(self) -> str:
        return endpoint.get(f"{self.urls[0]}/metrics")


@contextmanager
def in_process(arm: Arm, data_dirs: tuple[Path, ...], log_dir: Path, survivors: Any) -> Iterator[InProcess]:
    accelerator = Accelerator("unit", 2e9, 10**7, 10**15, 1, 1, "", "", "")
    config = EngineConfig(CostModel(SHAPE, accelerator, 1), PAGE_TOKENS)
    storage = StorageOptions(data_dirs, direct=False, rate_limit_bytes_per_s=NODE_RATE)
    with server.listen("127.0.0.1", 0) as listening, driver(config, storage) as running:
        web = server.web_server(running)
        thread = threading.Thread(target=web.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield InProcess(listening.getsockname()[1])
        finally:
            web.should_exit = True
            thread.join()


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine in this process, on a medium whose bytes nobody counts."""
    monkeypatch.setattr(lifecycle, "running", in_process)
    monkeypatch.setattr(real, "RateLimit", SlowWhenRead)
    monkeypatch.setattr(SlowWhenRead, "holds", False)
    monkeypatch.setattr(cold_sessions.content, "model_shapes", lambda: {"tiny": SHAPE})
    monkeypatch.setattr(cold_sessions, "media_of", lambda folders: Media(()))
    monkeypatch.setattr(cold, "QUIET_S", 0.01)


def pages_in(node: Path) -> list[Path]:
    return [file for file in node.iterdir() if PageKey.from_file_name(file.name)]


def context_of(tmp_path: Path, **hooks: tuple[str, ...]) -> Context:
    return make_context(tmp_path, "s", ARM, (tmp_path / "a", tmp_path / "b"), target=Target("t", (ARM,), hooks))


def measured(context: Context, change: str, **params: Any) -> Measured:
    step = Step(
        "s", "scaling", "load.scaling", "dut", f"{change}-c4", 1, {**PARAMS, "scaling": change, **params}, 7, "none"
    )
    return scaling.measure(step, context)


def figures_of(found: Measured) -> dict[str, float | None]:
    assert set(found.metrics) == set(SCALING_METRICS)
    assert {name: metric.unit for name, metric in found.metrics.items()} == dict(SCALING_METRICS)
    return {name: metric.value for name, metric in found.metrics.items()}


def test_every_page_stays_a_hit_while_a_node_is_added_and_pages_move_to_it(tmp_path: Path) -> None:
    found = measured(context_of(tmp_path), "add", move_share=1.0)
    figures = figures_of(found)
    assert (figures["requests_failed"], figures["content_mismatches"], figures["unexplained_misses"]) == (0, 0, 0)
    assert (figures["missed_tokens"], figures["hit_shortfall_requests"]) == (0, 0)
    assert figures["changed_pages"] == len(pages_in(tmp_path / "b" / "node-3")) > 0
    assert figures["change_at_share"] == pytest.approx(0.5, abs=0.4)
    rows = pq.ParquetFile(tmp_path / found.series["requests"]).read().to_pylist()
    assert [row["request_id"] for row in rows] == [
        f"{w}-00{n}" for w in ("before", "during", "after") for n in range(4)
    ]
    moves = pq.ParquetFile(tmp_path / found.series["moves"]).read().to_pylist()
    assert (moves[0]["moved_bytes"], moves[-1]["moved_bytes"]) == (0, figures["moved_bytes"])
    assert found.facts["own_pool"] and found.facts["pace"]["bytes_per_s"] > 0
    assert "kvbench's own pool" in found.warnings[0]


def test_what_a_failed_node_held_is_computed_again_and_is_no_wrong_page(tmp_path: Path) -> None:
    figures = figures_of(measured(context_of(tmp_path), "fail"))
    assert (figures["requests_failed"], figures["content_mismatches"], figures["unexplained_misses"]) == (0, 0, 0)
    assert figures["missed_tokens"] >= PAGE_TOKENS
    assert figures["changed_pages"] == len(pages_in(tmp_path / "b" / "node-3")) > 0
    assert figures["moved_bytes"] == 0


def test_a_page_that_is_missing_elsewhere_is_not_explained_by_the_node_that_failed(tmp_path: Path) -> None:
    context = context_of(tmp_path)
    settle = scaling.settle

    def and_lose_a_page(setup: cold_sessions.Setup) -> cold_sessions.Settled:
        settled = settle(setup)
        for page in pages_in(tmp_path / "a" / "node-0"):
            page.unlink()
        return settled

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scaling, "settle", and_lose_a_page)
        figures = figures_of(measured(context, "fail"))
    assert figures["unexplained_misses"] > 0
    assert figures["content_mismatches"] > 0


def test_with_hooks_the_storage_changes_its_own_nodes(tmp_path: Path) -> None:
    said = tmp_path / "said"
    context = context_of(tmp_path, node_add=("touch", str(said)), node_remove=("false",))
    found = measured(context, "add")
    assert said.exists()
    assert (found.facts["changed_by"], found.facts["own_pool"], found.warnings) == ("the hook node_add", False, ())
    assert figures_of(found)["unexplained_misses"] == 0
    assert not list(tmp_path.glob("*/node-*"))


def test_a_hook_that_fails_is_no_measurement(tmp_path: Path) -> None:
    context = context_of(tmp_path, node_add=("true",), node_remove=("false",))
    with pytest.raises(StepError, match="s: the nodes could not be changed: exit code 1: no message"):
        measured(context, "fail")


@pytest.mark.parametrize(
    ("readings", "seconds"),
    [
        ([], None),
        ([(1, 0, False), (3, 0, False)], 0.0),
        ([(1, 0, False), (3, 2, True), (4, 5, True), (6, 5, False), (8, 5, False)], 4.0),
        ([(1, 0, False), (3, 2, False), (5, 9, False), (8, 9, False)], 3.0),
    ],
)
def test_a_rebalance_lasts_to_the_reading_that_found_its_last_page(
    readings: list[tuple[int, int, bool]], seconds: float | None
) -> None:
    read = [Reading(at_s * 10**9, pages, moving) for at_s, pages, moving in readings]
    assert rebalance_s(read, 2 * 10**9) == seconds


def test_moves_are_told_in_bytes_since_the_first_reading() -> None:
    assert table([Reading(5, 3, False), Reading(9, 5, True)], page_bytes=100) == [
        {"at_ns": 5, "moved_bytes": 0, "moving": False},
        {"at_ns": 9, "moved_bytes": 200, "moving": True},
    ]
