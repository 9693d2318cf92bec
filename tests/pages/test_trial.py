"""Strategies on real directories: every figure from what was seen of each request, and nothing left behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvbench.errors import KvbenchError
from kvbench.pages import trial
from kvbench.pages.trial import FIGURES, Load, Place

LOAD = Load(sessions=6, pages=4, page_bytes=8192, reads=20, at_once=4)
NAMES = ("ring", "prefix+ring", "modulo+merge", "ring+hot+weights")


def tried(nodes: list[Path], rows: list[dict[str, Any]]) -> dict[str, list[dict[str, float]]]:
    place = Place(tuple(nodes), False, None)
    return trial.run(NAMES, place, LOAD, 2, run_id="trial", tell=rows.append)


@pytest.fixture
def nodes(tmp_path: Path) -> list[Path]:
    nodes = [tmp_path / name for name in "abc"]
    for node in nodes:
        node.mkdir()
    return nodes


def test_each_round_of_each_strategy_reads_all_pages_back_and_leaves_nothing(nodes: list[Path]) -> None:
    rows: list[dict[str, Any]] = []
    found = tried(nodes, rows)
    assert {name: len(rounds) for name, rounds in found.items()} == dict.fromkeys(NAMES, 2)
    assert all(set(figures) == set(FIGURES) for rounds in found.values() for figures in rounds)
    assert len(rows) == len(NAMES) * 2 * LOAD.reads
    assert {row["status"] for row in rows} == {"ok"}
    assert [list(node.iterdir()) for node in nodes] == [[], [], []]


def test_what_a_strategy_is_for_shows(nodes: list[Path]) -> None:
    found = tried(nodes, [])
    of = {name: rounds[0] for name, rounds in found.items()}
    assert of["prefix+ring"]["nodes_per_request"] == 1 < of["ring"]["nodes_per_request"]
    assert of["modulo+merge"]["ios_per_request"] < of["ring"]["ios_per_request"]


def test_reads_meet_checkpoint_writes_where_a_strategy_is_about_those(nodes: list[Path]) -> None:
    names = ("ring", "ring+separate", "ring+apart")
    assert trial.load_for(names).checkpoint_pages > 0 == trial.load_for(NAMES).checkpoint_pages
    rows: list[dict[str, Any]] = []
    load = replace(LOAD, checkpoint_pages=3)
    place = Place(tuple(nodes), False, 10**6)  # slow enough for several pages of a checkpoint
    found = trial.run(names, place, load, 1, run_id="trial", tell=rows.append)
    assert all(rounds[0]["checkpoint_bytes_per_s"] > 0 for rounds in found.values())
    assert {row["status"] for row in rows} == {"ok"}
    assert {node for row in rows if row["strategy"] == "ring+apart" for node in row["nodes"]} == {0, 1}
    assert [list(node.iterdir()) for node in nodes] == [[], [], []]


def test_sessions_are_drawn_alike_for_all_strategies_and_the_first_most(nodes: list[Path]) -> None:
    rows: list[dict[str, Any]] = []
    tried(nodes, rows)
    drawn = Load(reads=2000).draw(trial.Random(1))
    assert max(range(24), key=drawn.count) == 0


def test_a_node_that_is_no_directory_is_named(nodes: list[Path]) -> None:
    with pytest.raises(KvbenchError, match="missing is not a directory"):
        tried([*nodes, nodes[0] / "missing"], [])
    assert [list(node.iterdir()) for node in nodes] == [[], [], []]
