"""Which layers a load is worth: the articles' rule by statistics, and a choice that simulations of all sets decide."""

from dataclasses import replace

import pytest
from modelled_run import FAST, SLOW, run_of

from kvbench.errors import UsageError
from kvbench.load.workload import Block, Turn
from kvbench.sim import advise, measured
from kvbench.sim import site as sites
from kvbench.sim.advise import Limit, Statistics, Worth
from kvbench.sim.compare import columns
from kvbench.sim.simulate import Source

TIERS = sites.load("tiers")
NONE, PREFIX, WEIGHTS = frozenset(), frozenset({"prefix"}), frozenset({"weights"})
BOTH = PREFIX | WEIGHTS
PLAIN = Statistics(100, 4096, 4096, 4096, 0.1, 0.0, 0.1, 0.5, in_flight=8, in_flight_cv=0.2)
LONG = {"prompt_tokens_most": 200_000, "long_context_share": 0.1}


# ---------------------------------------------------------------- the rule


@pytest.mark.parametrize(
    ("changed", "layers"),
    [
        ({}, {"prefix"}),
        ({"in_flight_cv": 0.9}, set()),
        ({"prompt_tokens_cv": 1.4}, {"prefix", "weights"}),
        ({"prompt_tokens_cv": 1.4, "in_flight_cv": 0.9}, {"prefix", "weights"}),
        (LONG, {"prefix"}),
        ({**LONG, "hot_uses_share": 0.7}, {"prefix", "tiers"}),
        ({"hot_uses_share": 0.7}, {"prefix"}),
    ],
)
def test_the_articles_rule(changed, layers):
    assert advise.by_rule(replace(PLAIN, **changed)) == layers


def test_statistics_of_a_load():
    turns = [turn("hot", 1024)] * 18 + [turn("cold", 256 * 1024), turn("other", 1024)]
    found = advise.statistics_of(turns, 512, [{"in_flight": 2.0, "in_flight_cv": 0.1}] * 2)
    assert (found.requests, found.prompt_tokens_p50, found.prompt_tokens_most) == (20, 1024, 262_144)
    assert found.long_context_share == 0.05
    assert found.is_long_tailed
    assert found.hot_uses_share == pytest.approx((2 * 18 + 50) / (2 * 18 + 512 + 2), abs=0.01)
    assert found.in_flight == 2.0


# ---------------------------------------------------------------- the choice


def chosen(ttft_s, limit_s):
    """What is advised for TTFTs of sets of layers, seed by seed."""
    figures = {advise.name_of(layers): [{"ttft_p99_s": value} for value in of] for layers, of in ttft_s.items()}
    measured = advise.Ttft(ttft_s)
    found = [
        advise.Combination(layers, column, measured.to_limit(layers, limit_s))
        for layers, column in zip(ttft_s, columns(figures, ["ttft_p99_s"]), strict=True)
    ]
    return advise.choose(found, measured)


STEADY = {NONE: [4.0, 4.1, 4.2], PREFIX: [2.0, 2.1, 2.2], WEIGHTS: [4.1, 4.0, 4.2], BOTH: [1.0, 1.1, 1.2]}


@pytest.mark.parametrize(
    ("limit_s", "layers", "limit"),
    [
        (5.0, NONE, Limit.MET),  # everything meets it, so nothing is worth its trouble
        (3.0, PREFIX, Limit.MET),
        (1.5, BOTH, Limit.MET),
        (1.1, BOTH, Limit.UNDECIDED),
        (0.5, BOTH, Limit.MISSED),
    ],
)
def test_the_fewest_layers_that_meet_the_limit_are_advised_else_the_fastest(limit_s, layers, limit):
    advised = chosen(STEADY, limit_s)
    assert (advised.layers, advised.limit) == (layers, limit)


def test_no_layer_is_advised_for_a_gain_that_is_not_certain():
    assert chosen({NONE: [4.0, 2.0, 3.0], PREFIX: [2.0, 3.0, 2.5]}, 1.0).layers == NONE


@pytest.mark.parametrize(
    ("ttft_s", "error", "limit"),
    [(2.0, 0.4, Limit.MET), (2.0, 0.6, Limit.UNDECIDED), (5.0, 0.6, Limit.MISSED), (5.0, 0.7, Limit.UNDECIDED)],
)
def test_a_limit_within_what_the_models_miss_is_undecided(ttft_s, error, limit):
    measured = advise.Ttft({NONE: [ttft_s] * 3})
    [column] = columns({"none": [{"ttft_p99_s": ttft_s}] * 3}, ["ttft_p99_s"])
    assert advise.Combination(NONE, column, measured.to_limit(NONE, 3.0), error).limit is limit


# ---------------------------------------------------------------- all of it


@pytest.fixture(scope="module")
def advice():
    return advise.advise(Source("long-tail", requests=12), TIERS, 1e-6, range(2))


def test_every_set_of_layers_is_simulated_and_every_layer_judged(advice):
    assert len({each.layers for each in advice.combinations}) == 8
    assert [gain.layer for gain in advice.gains] == ["prefix", "weights", "tiers"]
    assert all(gain.ratio for gain in advice.gains)
    assert {each.limit for each in advice.combinations} == {Limit.MISSED}


def test_a_limit_that_is_met_anyway_makes_no_layer_worth_it():
    advice = advise.advise(Source("retrieval", requests=20), replace(TIERS, capacity=None), 1e6, range(2))
    assert advice.advised.layers == NONE
    assert [gain.worth for gain in advice.gains[:2]] != [Worth.FASTER] * 2
    assert {gain.worth for gain in advice.gains[:2]} <= {Worth.MET_WITHOUT, Worth.SLOWER}
    assert advice.gains[2].worth is Worth.NO_TIER


def test_what_comes_before_loading_counts():
    load, site = Source("retrieval", requests=5), replace(TIERS, capacity=None, nodes=1)
    plain, later = (advise.advise(load, site, 1.0, range(2), before_s=before_s) for before_s in (0.0, 3.0))
    means = [each.advised.column.figures["ttft_p99_s"].mean for each in (plain, later)]
    assert means[1] - means[0] == pytest.approx(3.0)
    assert [gain.worth for gain in plain.gains] == [Worth.NO_CHOICE, Worth.NO_CHOICE, Worth.NO_TIER]


def test_flash_alone_gets_what_the_tier_below_would_have_cost():
    alone = advise.without_tiers(TIERS).capacity
    assert (alone.nodes, alone.flash, alone.capacity) == (0, 100 * 10**9 + 2 * 10**12 // 5, 0)


# ---------------------------------------------------------------- a measured run


def test_a_run_gives_its_fitted_site_and_its_largest_wave():
    found = measured.of_run("a run", *run_of([FAST, SLOW], [2, 4, 8]), nodes=4)
    assert found.site.node.read_rate * 4 == pytest.approx(2e9, rel=0.05)
    assert (found.site.nodes, found.site.model) == (4, "llama-3.1-8b")
    assert (found.wave.sessions, found.wave.prompt_tokens) == (8, 2049)
    assert found.before_s == pytest.approx(0.3, abs=0.1)


def test_its_sessions_are_stored_first_and_only_their_return_is_counted():
    wave = measured.Wave(sessions=4, prompt_tokens=2049, output_tokens=8, settle_s=1.0)
    advice = advise.advise(wave, replace(TIERS, capacity=None, nodes=1, instances=1), 10.0, range(2))
    figures = advice.advised.column.figures
    assert figures["requests"].mean == 4
    assert figures["hits"].mean == 1, "every whole page of every prompt"
    assert advice.statistics.in_flight == 4
    assert advice.statistics.is_stable


def test_a_run_without_a_dut_is_refused():
    with pytest.raises(UsageError, match="no measured wave of a dut"):
        measured.of_run("a run", *run_of([SLOW], [2, 4]))


def turn(prompt, tokens):
    return Turn(prompt, prompt, (Block(prompt, tokens),), 8, 0.0)
