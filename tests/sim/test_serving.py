"""Requests in virtual time: what the fluid engine leaves out of the scheduler does not show, and chance is shared."""

from dataclasses import replace
from functools import partial

import pytest

from kvbench.errors import UsageError
from kvbench.load.workload import Block, Turn
from kvbench.sim import site as sites
from kvbench.sim import strategies
from kvbench.sim.compare import compare
from kvbench.sim.simulate import FIGURES, Source, Task, serve, simulate
from kvbench.sim.site import Capacity, Change, SlowNodes
from kvbench.store.cluster import ClusterView
from kvbench.store.weights import WeightRule

NARROW = sites.load("narrow")
ONE = replace(NARROW, instances=1)
SAVING = sites.load("checkpoints")
PAGE_BYTES = 512 * 327_680
SMALL_FLASH = replace(
    ONE, nodes=1, capacity=Capacity(1, NARROW.node, flash=100 * PAGE_BYTES, capacity=1000 * PAGE_BYTES)
)


def sources():
    return {name: Source(name, requests=48) for name in ("shared-prefixes", "conversations", "retrieval")}


@pytest.mark.parametrize("name", sources())
def test_the_fluid_engine_gives_what_the_scheduler_gives(name):
    turns = sources()[name].turns(1)
    fluid = serve(replace(ONE, engine="fluid"), turns, "ring", 1)
    exact = serve(replace(ONE, engine="scheduler"), turns, "ring", 1)
    assert fluid["output_tokens_per_s"] == pytest.approx(exact["output_tokens_per_s"], rel=0.03)
    assert fluid["ttft_p50_s"] == pytest.approx(exact["ttft_p50_s"], rel=0.15)
    assert fluid["hits"] == pytest.approx(exact["hits"], abs=0.03)


def test_a_run_is_deterministic_under_its_seed():
    task = Task(NARROW, Source("shared-prefixes", requests=100), "prefix+ring+weights+hot+merge", 4)
    assert simulate(task) == simulate(task)
    assert simulate(task) != simulate(replace(task, seed=5))


def test_processes_change_nothing():
    tasks = {"ring": [Task(NARROW, Source("retrieval", requests=20), "ring", seed) for seed in range(2)]}
    assert compare(tasks, processes=2) == compare(tasks, processes=1)


def test_every_figure_is_there():
    assert list(serve(NARROW, [turn("a", 2048)], "ring", 0)) == list(FIGURES)


def test_a_prompt_that_was_seen_is_read_and_its_last_token_computed():
    turns = [turn("a", 4 * 512), turn("a", 4 * 512, due_s=100.0)]
    figures = serve(NARROW, turns, "prefix+ring", 0)
    assert figures["hits"] == 3 / 8, "of four whole pages three can be hits: the last token is always computed"
    assert figures["nodes_per_request"] == 1
    assert figures["ios_per_request"] == 3
    assert figures["read_bytes"] == 3 * 512 * 327_680


def test_merging_reads_neighbours_in_one_io():
    turns = [turn("a", 5 * 512), turn("a", 5 * 512, due_s=100.0)]
    assert serve(NARROW, turns, "prefix+ring+merge", 0)["ios_per_request"] == 1


def test_host_memory_answers_before_storage():
    site = replace(ONE, host_memory=100 * 2**30)
    figures = serve(site, [turn("a", 2048), turn("a", 2048, due_s=100.0)], "ring", 0)
    assert (figures["host_hits"], figures["flash_hits"]) == (3 / 8, 0)


def test_the_capacity_tier_keeps_what_flash_has_no_room_for():
    figures = simulate(Task(sites.load("tiers"), Source("long-tail", requests=150), "ring", 0))
    assert figures["capacity_hits"] > 0.01
    assert figures["moved_bytes"] > 0


@pytest.mark.parametrize("layer", ["heat", "lfu", "s3-fifo"])
def test_what_is_used_often_stays_on_flash_where_age_alone_does_not_decide(layer):
    often, once = (
        [turn("often", 1024, 10.0 * t) for t in range(4)],
        [turn(f"{t}", 1024, 10.0 * t) for t in range(4, 64)],
    )
    turns = [*often, *once, turn("often", 1024, 640.0)]
    by_age, by_use = (serve(SMALL_FLASH, turns, name, 0)["capacity_hits"] for name in ("ring", f"ring+{layer}"))
    assert by_age > 0
    assert by_use == 0


def test_what_goes_down_in_runs_comes_up_before_it_is_asked_for():
    """A conversation is held twice, with others in between: the second time its pages are below."""
    figures = {name: serve(SMALL_FLASH, replayed(), name, 0) for name in ("prefix+ring", "prefix+ring+prefetch")}
    reads = {name: of["capacity_hits"] for name, of in figures.items()}
    assert reads["prefix+ring+prefetch"] < reads["prefix+ring"] / 2


def test_what_goes_down_in_runs_is_merged_when_it_is_read_there():
    figures = {name: serve(SMALL_FLASH, replayed(whole=True), name, 0) for name in ("prefix+ring", "prefix+ring+merge")}
    assert figures["prefix+ring"]["capacity_hits"] > 0
    assert figures["prefix+ring+merge"]["ios_per_request"] < figures["prefix+ring"]["ios_per_request"] / 2


def replayed(whole=False):
    """32 pages in 8 turns; 240 pages of others, more than flash holds; then the 8 turns again, or the last of them."""
    blocks = [Block(f"said{number}", 4 * 512) for number in range(8)]
    said = [tuple(blocks[: number + 1]) for number in range(8)]
    first = [Turn(f"a{number}", "a", prompt, 1, 10.0 * number) for number, prompt in enumerate(said)]
    others = [turn(f"b{number}", 8 * 512, 100.0 + 10 * number) for number in range(30)]
    again = [Turn(f"c{number}", "c", prompt, 1, 500.0 + 10.0 * number) for number, prompt in enumerate(said)]
    return [*first, *others, *(again[-1:] if whole else again)]


def test_weights_move_no_more_than_a_third_of_what_is_read():
    task = Task(NARROW, Source("shared-prefixes"), "prefix+ring+weights+hot", 0)
    figures = simulate(task)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strategies, "WeightRule", partial(WeightRule, price=0.0))
        unpriced = simulate(task)
    assert figures["moved_bytes"] < figures["read_bytes"] / 3
    assert figures["moved_bytes"] < unpriced["moved_bytes"] / 2


def test_weights_by_device_give_slow_nodes_less():
    site = replace(NARROW, slow=SlowNodes(2, 0.25))
    plain, weighed = (simulate(Task(site, Source("retrieval"), name, 0)) for name in ("ring", "ring+device"))
    assert weighed["imbalance"] > plain["imbalance"], "in bytes, for the fast nodes have more of them"
    assert weighed["ttft_p90_s"] < plain["ttft_p90_s"]


def test_a_lazy_engine_reads_while_nobody_computes():
    turns = Source("long-tail", requests=60).turns(0)
    eager, lazy = (serve(NARROW, turns, name, 0) for name in ("ring", "ring+lazy"))
    assert lazy["hidden_reads"] == 0
    assert eager["hidden_reads"] > 0.1
    assert eager["ttft_p90_s"] < lazy["ttft_p90_s"]


def test_checkpoints_are_saved_beside_the_requests_and_apart_from_them_where_that_is_wanted():
    turns = [turn("a", 2048), turn("a", 2048, due_s=50.0)]
    shared, apart, none = (
        serve(site, turns, name, 0) for site, name in ((SAVING, "ring"), (SAVING, "ring+apart"), (NARROW, "ring"))
    )
    assert none["checkpoint_save_s"] == 0
    seconds = SAVING.checkpoints.size / SAVING.node.write_rate
    assert shared["checkpoint_save_s"] > seconds / 8, "eight nodes write no faster than that"
    assert apart["checkpoint_save_s"] > seconds / 2, "nor do the two that are set aside"


def test_reads_wait_behind_fewer_writes_when_those_are_kept_apart():
    turns = Source("shared-prefixes").turns(0)
    shared, separate, apart = (serve(SAVING, turns, f"ring{layer}", 0) for layer in ("", "+separate", "+apart"))
    assert separate["ttft_p99_s"] < shared["ttft_p99_s"]
    assert apart["ttft_p99_s"] < shared["ttft_p99_s"]


@pytest.mark.parametrize("strategy", ["modulo+move", "ring+move", "ring+paced", "ring+guarded"])
def test_nodes_come_go_and_fail_in_mid_run(strategy):
    changes = (Change(10, "new"), Change(20, "down", 1), Change(30, "leave", 2), Change(40, "up", 1))
    figures = simulate(Task(replace(NARROW, changes=changes), Source("shared-prefixes"), strategy, 0))
    assert figures["moved_bytes"] > 0
    assert figures["hits"] > 0.7


def test_a_ring_moves_less_than_modulo_when_a_node_comes():
    site = replace(NARROW, changes=(Change(60, "new"),))
    moved = {
        name: simulate(Task(site, Source("shared-prefixes"), name, 0))["moved_bytes"]
        for name in ("ring+move", "modulo+move")
    }
    assert moved["ring+move"] < moved["modulo+move"] / 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rnig", "there is no 'rnig'"),
        ("prefix+merge", "one placement is needed"),
        ("ring+modulo", "one placement is needed"),
        ("ring+lfu+heat", "heat and lfu exclude each other"),
    ],
)
def test_a_strategy_that_is_none_is_named(name, message):
    with pytest.raises(UsageError, match=message):
        strategies.build(name, ClusterView(2), 1, 0)


def test_a_site_that_is_none_is_named():
    with pytest.raises(UsageError, match="narrow"):
        sites.load("nowhere")


def turn(prompt, tokens, due_s=0.0):
    return Turn(f"{prompt}{due_s}", prompt, (Block(prompt, tokens),), 8, due_s)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"engine": "scheduler"}, "one instance"),
        ({"nodes": 0}, "at least 1"),
        ({"slow": SlowNodes(9, 0.5)}, "of 8 nodes"),
        ({"changes": (Change(1, "down", 8),)}, "beyond the 8"),
    ],
)
def test_a_site_that_does_not_hold_together_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        replace(NARROW, **fields)


def test_a_trace_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "trace").write_bytes(b"\xff\xfe")
    for path in (tmp_path, tmp_path / "trace", tmp_path / "none"):
        with pytest.raises(UsageError, match="cannot be read"):
            Source(trace=str(path)).turns(0)
