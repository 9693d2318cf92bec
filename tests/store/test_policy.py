"""Which page goes: small cases by hand, and hit counts on a published trace that another simulator counted too."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.store.policy import Belady, Heat, LeavesFirst, Lfu, Lru, S3Fifo, hits

TRACE = Path(__file__).parents[3] / "shared/traces/mooncake_conversation.jsonl"
USES = st.lists(st.integers(0, 12), max_size=120)


def tree(page: str) -> str | None:
    """A page is named by the path to it: "ab" comes after "a"."""
    return page[:-1] or None


POLICIES = {
    "LRU": lambda capacity: Lru(),
    "LFU": lambda capacity: Lfu(),
    "S3-FIFO": S3Fifo,
    "heat": lambda capacity: Heat(half_life_uses=10),
    "leaves first": lambda capacity: LeavesFirst(lambda page: None),
}


def evicted(policy, *uses) -> list:
    """What goes, in order, after these uses without an eviction."""
    for page in uses:
        (policy.hit if page in policy else policy.insert)(page)
    return [policy.evict() for _ in range(len(policy))]


@pytest.mark.parametrize(
    ("policy", "uses", "order"),
    [
        (Lru(), "abcab", "cab"),
        (Lfu(), "abcaab", "cba"),
        (Lfu(), "abcab", "cab"),  # a and b were used twice: a first
        (Heat(half_life_uses=2), "aaaabbcc", "abc"),
        (Heat(half_life_uses=1000), "aaaabbcc", "bca"),
        (S3Fifo(20), "abcbb", "acb"),  # two fit into the small queue: c is in the main one at once, and b joins it
        (LeavesFirst(tree), ["a", "ab", "abc", "x"], ["abc", "ab", "a", "x"]),
    ],
)
def test_pages_go_in_the_order_of_the_policy(policy, uses, order):
    assert evicted(policy, *uses) == list(order)


def test_no_page_goes_before_those_that_continue_it():
    policy = LeavesFirst(tree)
    for page in ("a", "ab", "ac", "acd"):
        policy.insert(page)
    policy.hit("ab")
    assert evicted(policy) == ["acd", "ac", "ab", "a"]


def test_a_page_in_use_does_not_go_and_takes_up_its_place_again():
    policy = Lfu()
    for page in "aaab":
        (policy.hit if page in policy else policy.insert)(page)
    policy.remove("a")
    assert len(policy) == 1
    policy.insert("a")
    assert evicted(policy) == ["b", "a"]


def test_a_newcomer_that_comes_back_soon_after_it_has_gone_is_kept_by_s3_fifo():
    uses = [*range(10), 10, 11, *range(20, 40), 11]
    assert hits(S3Fifo(10), 10, uses) == 0
    policy = S3Fifo(10)
    hits(policy, 10, [*range(10), 10, 11, 10])
    assert 10 in policy
    hits(policy, 10, range(20, 27))
    assert 10 in policy  # newcomers go before it


@pytest.mark.parametrize("name", POLICIES)
@given(USES, st.integers(1, 8))
def test_no_policy_beats_the_oracle_and_all_are_alike_when_everything_fits(name, uses, capacity):
    make = POLICIES[name]
    best = hits(Belady(uses), capacity, uses)
    assert hits(make(capacity), capacity, uses) <= best
    assert hits(make(13), 13, uses) == len(uses) - len(set(uses))


@given(USES, st.integers(1, 8))
def test_the_oracle_is_the_best_there_is(uses, capacity):
    """Against every choice, for short sequences: the most hits over all states that can be reached."""
    uses = uses[:14]
    states = {frozenset(): 0}
    for page in uses:
        reached: dict[frozenset, int] = {}
        for held, count in states.items():
            after = [held] if page in held else [held | {page}]
            if page not in held and len(held) == capacity:
                after = [held - {victim} | {page} for victim in held]
            for state in after:
                reached[state] = max(reached.get(state, 0), count + (page in held))
        states = reached
    assert hits(Belady(uses), capacity, uses) == max(states.values())


@pytest.mark.parametrize("name", POLICIES)
@given(st.lists(st.tuples(st.sampled_from(["use", "take", "give", "evict"]), st.integers(0, 6)), max_size=60))
def test_what_may_go_is_what_came_and_is_neither_in_use_nor_gone(name, steps):
    policy, may_go, in_use = POLICIES[name](5), set(), set()
    for step, page in steps:
        if step == "use" and page not in in_use:
            (policy.hit if page in may_go else policy.insert)(page)
            may_go.add(page)
        elif step == "take" and page in may_go:
            policy.remove(page)
            may_go.discard(page)
            in_use.add(page)
        elif step == "give" and page in in_use:
            policy.insert(page)
            in_use.discard(page)
            may_go.add(page)
        elif step == "evict" and may_go:
            victim = policy.evict()
            assert victim in may_go
            may_go.discard(victim)
        assert len(policy) == len(may_go)
        assert {page for page in range(7) if page in policy} == may_go


# ---------------------------------------------------------------- against another simulator


@pytest.fixture(scope="module")
def references() -> list[int]:
    """The blocks of every request in order, each a page of size one."""
    if not TRACE.exists():
        pytest.skip("the Mooncake trace is not here")
    return [block for line in TRACE.open() for block in json.loads(line)["hash_ids"]]


def test_the_trace_has_the_prefix_hits_that_are_known_of_it(references):
    assert len(references) == 288_500
    assert round(100 * (1 - len(set(references)) / len(references)), 2) == 36.64


# hits of libcachesim 0.3.5, by size in pages
COUNTED = {
    "LRU": {1000: 12831, 3000: 18761, 10_000: 60921, 30_000: 93967, 100_000: 104924},
    "Belady": {1000: 54994, 3000: 84944, 10_000: 105710, 30_000: 105710, 100_000: 105710},
    "LFU": {1000: 13871, 3000: 21540, 10_000: 38013, 30_000: 79595, 100_000: 104755},
    "S3-FIFO": {1000: 15676, 3000: 26844, 10_000: 55525, 30_000: 73541, 100_000: 98108},
}


@pytest.mark.parametrize("policy", COUNTED)
def test_hits_on_the_trace_are_those_that_libcachesim_counts(references, policy):
    """LRU and Belady exactly, LFU and S3-FIFO within 0.5 points.

    Counted in an environment of its own (`pip install libcachesim==0.3.5`) by

        refs = [b for line in open(trace) for b in json.loads(line)["hash_ids"]]
        # oracleGeneral records: struct.pack("<IQIq", number, block + 1, 1, number of the next use or -1)
        reader = libcachesim.TraceReader(path, libcachesim.TraceType.ORACLE_GENERAL_TRACE)
        misses, _ = libcachesim.LRU(cache_size=size).process_trace(reader)  # and Belady, LFU, S3FIFO
        hits = round(len(refs) * (1 - misses))
    """
    tolerance = 0 if policy in ("LRU", "Belady") else 0.005 * len(references)
    for size, counted in COUNTED[policy].items():
        make = Belady(references) if policy == "Belady" else POLICIES[policy](size)
        assert hits(make, size, references) == pytest.approx(counted, abs=tolerance)
