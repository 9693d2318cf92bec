"""What strategies meet on real directories: files of workloads/strategies/, and what of them a target can do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from kvbench import content
from kvbench.errors import UsageError
from kvbench.pages import site as sites
from kvbench.pages.prefill import Prefill
from kvbench.pages.site import Below, Change, Load, Site
from kvbench.sim.site import SlowNodes
from kvbench.store.cluster import Role

FILES = sorted((content.content_root() / "workloads" / "strategies").glob("*.yaml"))
TIERED = Site("tiered", "a test", nodes=2, rate=100, below=Below(flash=2**20, nodes=2, rate=10, capacity=2**30))


@pytest.mark.parametrize("name", [path.stem for path in FILES])
def test_a_site_of_ours_loads_under_its_own_name(name: str) -> None:
    assert sites.load(name).id == name


def test_a_site_that_is_not_there_is_named() -> None:
    with pytest.raises(UsageError, match=r"no workloads/strategies/nowhere\.yaml"):
        sites.load("nowhere")


@pytest.mark.parametrize(
    "wrong", ["rounds: 1", "counted: 1.0", "changes: [{at: 2, what: new}]", "slow: {count: 9, share: 1}"]
)
def test_what_cannot_be_is_refused_with_its_file(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(f"version: 1\nid: site\nwhy: a test\n{wrong}\n")
    with pytest.raises(UsageError, match=r"site\.yaml"):
        sites.load(str(path))


def test_the_tier_below_follows_the_nodes_and_those_that_come_are_last() -> None:
    site = replace(TIERED, changes=(Change(0.5, "new"),), slow=SlowNodes(1, 0.5))
    assert site.rates(site.rate) == [50, 100, 10, 10, 100]
    assert site.cluster(apart=False).roles == [Role.KV, Role.KV, Role.CAPACITY, Role.CAPACITY]
    assert site.cluster(apart=False).room(Role.KV) == 2**20 // site.load.page_bytes


def test_a_target_has_the_nodes_that_a_site_leaves_it() -> None:
    assert sites.on(TIERED, [Path("x")] * 5, None).nodes == 3
    with pytest.raises(UsageError, match="needs 3 nodes, and the target has 2"):
        sites.on(TIERED, [Path("x")] * 2, None)
    with pytest.raises(UsageError, match="the target no rate"):
        sites.on(Site("uneven", "a test", slow=SlowNodes(1, 0.5)), [Path("x")] * 4, None)


@pytest.mark.parametrize(
    "layer", ["heat", "lfu", "s3-fifo", "prefetch", "separate", "apart", "device", "guarded", "lazy"]
)
def test_a_layer_that_would_show_nothing_is_refused_with_a_site_where_it_does(layer: str) -> None:
    with pytest.raises(UsageError) as refused:
        Site("plain", "a test").refuse(f"ring+{layer}")
    fitting = refused.value.hint.split()[-1]
    sites.load(fitting).refuse(f"ring+{layer}")


def test_the_same_seed_gives_the_same_sessions_in_the_same_order() -> None:
    load = Load(sessions=50, reads=2000, spread=1.0)
    assert load.draw(Random(1)) == load.draw(Random(1))
    drawn = load.draw(Random(1))
    assert max(range(load.sessions), key=drawn.count) == 0
    assert sorted(load.order(1)) == list(range(50)) != load.order(1)
    assert load.session(3, 1) == load.session(3, 1) != load.session(3, 2)
    assert len({len(load.session(number)) for number in range(50)}) > 5
    assert len(Load().session(0)) == Load().pages


def test_prompts_are_computed_one_after_the_other() -> None:
    engine = Prefill()
    assert [engine.add(0, 10), engine.add(5, 10), engine.add(40, 10)] == [10, 20, 50]
    assert [engine.computed_ns(at) for at in (40, 45, 60)] == [20, 25, 30]
