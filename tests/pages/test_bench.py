"""The driver against fio: what pairs of runs say, and a small bench on real files."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvbench import process
from kvbench.pages import bench
from kvbench.pages.bench import Pair, Run, summarise

MIB = 2**20
needs_fio = pytest.mark.skipif(process.find_tool("fio") is None, reason="fio is not installed")


def run(bandwidth: float, cpu_s_per_gb: float = 0.1) -> Run:
    return Run(10**9, 1e9 / bandwidth, cpu_s_per_gb)


def pairs(*ratios: float, depth: int = 8, cpu: float = 1.0) -> list[Pair]:
    return [Pair(2 * MIB, depth, run(ratio * 1e9, 0.1 * cpu), run(1e9), run(1.01e9)) for ratio in ratios]


@pytest.mark.parametrize(
    ("found", "ratio", "shortfalls"),
    [
        pytest.param(pairs(0.99, 1.01, 1.0), 1.0, [], id="as fast"),
        pytest.param(pairs(0.97, 0.97, 0.97), 0.97, [], id="just fast enough"),
        pytest.param(pairs(0.95, 0.96, 0.97), 0.96, ["bandwidth is 0.960 of fio's"], id="slower on the whole"),
        pytest.param(
            [*pairs(1.1, 1.1, 1.1), *pairs(0.90, 0.91, 0.90, depth=1)],
            0.9968,
            ["2 MiB at queue depth 1: the interval ends at 0.9"],
            id="one cell surely slower",
        ),
        pytest.param(pairs(1.0, 1.0, cpu=1.3), 1.0, ["processor time is 1.30 of fio's"], id="burns more"),
    ],
)
def test_limits_of_speed_and_of_processor_time(found: list[Pair], ratio: float, shortfalls: list[str]) -> None:
    summary = summarise(found)
    assert summary.ratio == pytest.approx(ratio, abs=1e-3)
    assert len(summary.shortfalls) == len(shortfalls)
    assert all(said.startswith(begin) for said, begin in zip(summary.shortfalls, shortfalls, strict=True))


def test_a_cell_has_fio_s_own_noise_beside_it() -> None:
    (cell,) = summarise(pairs(0.9, 1.0, 1.1)).cells
    assert (cell.pairs, cell.noise) == (3, pytest.approx(1.01))
    assert cell.low is not None and cell.high is not None and cell.low < cell.ratio < cell.high


@needs_fio
def test_a_bench_reads_the_same_bytes_both_ways_and_leaves_nothing(tmp_path: Path) -> None:
    (pair,) = bench.run(tmp_path, 1, 8 * MIB, 1, cells=[(MIB, 2)])
    assert pair.ours.bytes == pair.fio.bytes == pair.again.bytes == 8 * (MIB + 4096)
    assert min(one.cpu_s for one in (pair.ours, pair.fio)) > 0
    assert list(tmp_path.iterdir()) == []
