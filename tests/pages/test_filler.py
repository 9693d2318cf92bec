"""What an array's cache is emptied with: written once, read whole each time, gone with the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_context

from kvbench import content, plan
from kvbench.errors import StepError
from kvbench.host.activity.arraycache import ArrayCache
from kvbench.model import Arm, Engine, Storage, Target
from kvbench.pages import filler
from kvbench.probes.context import Context
from kvbench.store import pagefile

CACHE = ArrayCache("nvme-tcp", 3 * filler.PAGE_BYTES)


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    nodes = tuple(tmp_path / f"node{number}" for number in range(2))
    for node in nodes:
        node.mkdir()
    arm = Arm("dut", "dut", Engine(), storage=Storage(tuple(map(str, nodes)), direct=False))
    yield make_context(tmp_path, "filler", arm, lasting_dirs=nodes)


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Whole pages that were read and written."""
    counts = {"read": 0, "write": 0}
    for name in counts:
        monkeypatch.setattr(pagefile, name, counting(getattr(pagefile, name), counts, name))
    return counts


def counting(act, counts: dict[str, int], name: str):
    def counted(*arguments):
        counts[name] += any(len(one) > filler.PAGE_BYTES for one in arguments if isinstance(one, memoryview))
        return act(*arguments)

    return counted


def test_twice_the_declared_cache_is_written_once_and_read_before_every_cold_read(
    context: Context, moved: dict[str, int]
) -> None:
    assert filler.read_through(CACHE, context) == 6 * filler.PAGE_BYTES
    assert moved == {"read": 6, "write": 6}
    assert filler.read_through(CACHE, replace(context, attempt=2)) == 6 * filler.PAGE_BYTES
    assert moved == {"read": 12, "write": 6}
    assert all(list((node / filler.FOLDER).glob("*.r0")) for node in context.lasting_dirs)


def test_what_a_killed_step_had_begun_to_write_is_written_anew(context: Context, moved: dict[str, int]) -> None:
    filler.read_through(CACHE, context)
    (context.lasting_dirs[1] / filler.FOLDER / "written").unlink()
    filler.read_through(CACHE, context)
    assert moved["write"] == 12


@pytest.mark.parametrize("cache", [ArrayCache("", None), ArrayCache("nvme-tcp", None), ArrayCache("fc", 0)])
def test_without_a_declared_cache_nothing_is_written(context: Context, cache: ArrayCache) -> None:
    assert filler.read_through(cache, context) == 0
    assert [list(node.iterdir()) for node in context.lasting_dirs] == [[], []]


def test_a_page_that_cannot_be_read_back_ends_the_step(context: Context) -> None:
    filler.read_through(CACHE, context)
    next((context.lasting_dirs[0] / filler.FOLDER).glob("*.r0")).unlink()
    with pytest.raises(StepError, match=r"emptying the array's cache: .*filler.*No such file"):
        filler.read_through(CACHE, context)


def test_the_plan_counts_it_once_for_all_steps_on_the_same_nodes() -> None:
    engine = Engine(model="llama-3.1-8b")
    arms = [
        Arm("dut", "dut", engine, storage=Storage(("/mnt/a",), array_cache_bytes=cache_bytes))
        for cache_bytes in (None, 10**12)
    ]
    local = Arm("local", "baseline", engine, storage=Storage(("/mnt/b",)))
    shapes = content.model_shapes()
    without, declared = (
        plan.total_cost(fixed, fixed.steps, shapes)
        for arm in arms
        for fixed in [plan.make_plan(content.load_gate("G3"), Target("t", (arm, local)), shapes, plan.Options())]
    )
    assert declared.kept_bytes == 2 * 10**12
    assert declared.written_bytes - without.written_bytes == 2 * 10**12
    assert declared.space_bytes - without.space_bytes == 2 * 10**12
    assert (declared.read_bytes - without.read_bytes) / 2e12 == 10 * 3 + 3 * 2  # waves, and changes of nodes
