"""Strategies on real directories: every figure from what was seen of each request, and nothing left behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvbench.errors import KvbenchError
from kvbench.pages import trial
from kvbench.pages.round import FIGURES, Place
from kvbench.pages.site import Below, Change, Load, Site
from kvbench.sim.site import SlowNodes
from kvbench.sim.strategies import Background

LOAD = Load(sessions=6, pages=4, page_bytes=8192, reads=20, at_once=4)
PLAIN = Site("plain", "a test", nodes=3, load=LOAD)
PAGE = LOAD.page_bytes
NAMES = ("ring", "prefix+ring", "modulo+merge", "ring+hot+weights")
Rounds = dict[str, list[dict[str, float]]]


class Nodes:
    """Directories, as many as a site asks for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: list[dict[str, Any]] = []

    def tried(self, site: Site, *names: str, rounds: int = 1) -> Rounds:
        paths = [self.folder / f"node{number}" for number in range(site.directories)]
        for path in paths:
            path.mkdir(exist_ok=True)
        place = Place(tuple(paths), False, tuple(site.rates(site.rate)))
        found = trial.run(names, place, site, rounds, run_id="trial", tell=self.rows.append)
        assert [list(path.iterdir()) for path in paths] == [[]] * len(paths), "nothing is left behind"
        assert all(figures["failed_reads"] == 0 for of in found.values() for figures in of)
        return found


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path)


def test_each_round_of_each_strategy_reads_all_pages_back(nodes: Nodes) -> None:
    found = nodes.tried(PLAIN, *NAMES, rounds=2)
    assert {name: len(rounds) for name, rounds in found.items()} == dict.fromkeys(NAMES, 2)
    assert all(set(figures) == set(FIGURES) for rounds in found.values() for figures in rounds)
    assert len(nodes.rows) == len(NAMES) * 2 * LOAD.reads
    assert {(row["status"], row["hits"]) for row in nodes.rows} == {("ok", LOAD.pages)}


def test_what_a_strategy_is_for_shows(nodes: Nodes) -> None:
    of = {name: rounds[0] for name, rounds in nodes.tried(PLAIN, *NAMES).items()}
    assert of["prefix+ring"]["nodes_per_request"] == 1 < of["ring"]["nodes_per_request"]
    assert of["modulo+merge"]["ios_per_request"] < of["ring"]["ios_per_request"]


def test_reads_meet_checkpoint_writes(nodes: Nodes) -> None:
    site = replace(PLAIN, load=replace(LOAD, checkpoint_pages=3), rate=10**6)  # slow enough for several pages
    found = nodes.tried(site, "ring", "ring+separate", "ring+apart")
    assert all(rounds[0]["checkpoint_bytes_per_s"] > 0 for rounds in found.values())
    assert {node for row in nodes.rows if row["strategy"] == "ring+apart" for node in row["nodes"]} == {0, 1}


@pytest.mark.parametrize("what", ["new", "leave"])
def test_pages_follow_a_change_in_mid_round_where_the_strategy_moves_them(nodes: Nodes, what: Any) -> None:
    change = Change(0.5, what, -1 if what == "new" else 0)
    site = replace(PLAIN, changes=(change,), counted=0.5, background=Background(paced=PAGE * 100))
    found = nodes.tried(site, "ring", "ring+move", "ring+paced", "modulo+move")
    moved = {name: rounds[0]["moved_bytes"] for name, rounds in found.items()}
    assert moved["ring"] == 0 < moved["ring+move"] == moved["ring+paced"] < moved["modulo+move"]
    assert found["ring+paced"][0]["moving_s"] > found["ring+move"][0]["moving_s"]
    assert found["ring"][0]["requests"] == LOAD.reads / 2, "those after the change count"


def test_moves_wait_where_a_guard_finds_the_requests_near_their_limit(nodes: Nodes) -> None:
    site = replace(PLAIN, changes=(Change(0.5, "new"),), background=Background(ttft_limit=1e-6))
    found = nodes.tried(site, "ring+move", "ring+guarded")
    held, free = found["ring+guarded"][0], found["ring+move"][0]
    assert held["moved_bytes"] == free["moved_bytes"] > 0
    assert held["moving_s"] > 1, "moves begin a second after the last request"


def test_what_a_failed_node_held_is_computed_and_written_again(nodes: Nodes) -> None:
    changes = (Change(0.3, "down", 1), Change(0.8, "up", 1))
    found = nodes.tried(replace(PLAIN, changes=changes, load=replace(LOAD, reads=60), counted=0.3), "ring")
    ended_before = nodes.rows[: 18 - LOAD.at_once]  # rows come as reads end; others were under way when the node failed
    assert {row["hits"] for row in ended_before} == {LOAD.pages}
    assert found["ring"][0]["hits"] < 1
    assert {row["hits"] for row in nodes.rows if row["request"] >= 50} == {LOAD.pages}, "each session was written again"


def test_what_the_flash_tier_has_no_room_for_is_read_from_below_or_lost(nodes: Nodes) -> None:
    load = replace(LOAD, reads=40, skew=0.5, compute_page=1e-4)
    tiers = replace(PLAIN, load=load, below=Below(flash=12 * PAGE, nodes=1, rate=10**8, capacity=100 * PAGE))
    found = nodes.tried(tiers, "ring", "ring+heat")
    for rounds in found.values():
        assert rounds[0]["hits"] == 1 == rounds[0]["flash_hits"] + rounds[0]["capacity_hits"]
        assert 0 < rounds[0]["flash_hits"] < 1
    alone = nodes.tried(replace(tiers, below=Below(flash=12 * PAGE)), "ring")["ring"][0]
    assert alone["hits"] == alone["flash_hits"] < 1
    assert alone["ttft_p99_s"] >= load.compute_page * LOAD.pages, "a session that is lost is computed"


def test_an_engine_that_reads_ahead_hides_reads_behind_computing(nodes: Nodes) -> None:
    site = replace(PLAIN, load=replace(LOAD, compute=2e-3), rate=2 * 10**6)
    found = nodes.tried(site, "ring+lazy", "ring")
    lazy, ahead = (found[name][0] for name in ("ring+lazy", "ring"))
    assert lazy["hidden_reads"] == 0 < ahead["hidden_reads"]
    assert ahead["requests_per_s"] > lazy["requests_per_s"]


def test_weights_by_device_send_less_to_a_slow_node(nodes: Nodes) -> None:
    site = replace(PLAIN, slow=SlowNodes(1, 0.2), rate=10**8, load=replace(LOAD, sessions=60))
    nodes.tried(site, "ring", "ring+device")
    slow = {
        name: sum(0 in row["nodes"] for row in nodes.rows if row["strategy"] == name)
        for name in ("ring", "ring+device")
    }
    assert slow["ring+device"] < slow["ring"]


def test_a_node_that_is_no_directory_is_named(nodes: Nodes) -> None:
    place = Place((nodes.folder / "missing",), False, (None,))
    with pytest.raises(KvbenchError, match="missing is not a directory"):
        trial.run(NAMES, place, PLAIN, 1, run_id="trial", tell=nodes.rows.append)
