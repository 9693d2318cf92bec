from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from kvbench.load.workload import (
    Block,
    Conversations,
    Kind,
    Lengths,
    LongTail,
    PageChain,
    Retrieval,
    SharedPrefixes,
    Turn,
    ideal_hits,
)

FIXED = Lengths(100)
CONVERSATIONS = Conversations("conversations", 10, Lengths(4), 512, FIXED, FIXED, 5.0, 1.0)
TREE = SharedPrefixes("shared_prefixes", 200, (2, 3), (256, 512), FIXED, FIXED, 1.0)
TAIL = LongTail("long_tail", 20, 200, Lengths(1000, 1.0), FIXED, FIXED, 1.0)
DOCUMENTS = Retrieval("retrieval", 50, 30, 4, Lengths(300, 0.5), 64, FIXED, FIXED, 1.0)
ALL: list[Kind] = [CONVERSATIONS, TREE, TAIL, DOCUMENTS]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.kind)
def test_the_same_seed_gives_the_same_turns_and_another_one_others(kind: Kind) -> None:
    assert kind.make(Random(1)) == kind.make(Random(1))
    assert kind.make(Random(1)) != kind.make(Random(2))


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.kind)
def test_every_turn_is_due_at_a_time_or_after_another_one(kind: Kind) -> None:
    turns = kind.make(Random(1))
    ids = [turn.id for turn in turns]
    assert len(set(ids)) == len(ids)
    for turn in turns:
        assert (turn.due_s is None) == bool(turn.after)
        assert not turn.after or ids.index(turn.after) < ids.index(turn.id)


def test_a_turn_sends_the_whole_conversation_with_the_answers() -> None:
    turns = [turn for turn in CONVERSATIONS.make(Random(1)) if turn.session == "s3"]
    assert len(turns) == 4
    for before, after in pairwise(turns):
        assert after.prompt[: len(before.prompt)] == before.prompt
        assert after.prompt[len(before.prompt)] == Block(f"s3-answer{turns.index(before)}", before.output_tokens)
        assert after.think_s > 0


def test_a_tree_of_prefixes_has_the_fan_out_that_was_asked_for() -> None:
    turns = TREE.make(Random(1))
    assert len({turn.prompt[0] for turn in turns}) == 2
    assert len({turn.prompt[:2] for turn in turns}) == 6
    assert len({turn.prompt for turn in turns}) == 200


def test_skew_makes_some_sessions_hot() -> None:
    def hottest(skew: float) -> int:
        sessions = [turn.session for turn in replace(TAIL, skew=skew).make(Random(1))]
        return max(sessions.count(session) for session in set(sessions))

    assert hottest(1.5) > 2 * hottest(0.0)


def test_retrieval_repeats_no_document_in_a_prompt() -> None:
    for turn in DOCUMENTS.make(Random(1)):
        assert len({block.id for block in turn.prompt}) == 6


def test_page_digests_do_not_depend_on_how_a_prompt_is_cut_into_other_pages_of_it() -> None:
    chain = PageChain(256)
    prompt = (Block("a", 300), Block("b", 400))
    digests = chain.digests(prompt)
    assert len(digests) == 700 // 256
    assert PageChain(256).digests(prompt) == digests
    assert chain.digests((*prompt, Block("c", 68)))[:2] == digests
    assert len(chain.digests(prompt, whole_pages_only=False)) == 3


def test_a_page_after_another_prefix_is_another_page() -> None:
    chain = PageChain(100)
    one, two = chain.digests((Block("a", 100), Block("x", 100))), chain.digests((Block("b", 100), Block("x", 100)))
    assert not set(one) & set(two)


def test_an_endless_cache_hits_what_an_earlier_prompt_had_as_its_prefix() -> None:
    def turn(name: str, *blocks: str) -> Turn:
        return Turn(name, name, tuple(Block(block, 100) for block in blocks), 1, 0.0)

    turns = [turn("1", "a", "b"), turn("2", "a", "b", "c"), turn("3", "b"), turn("4", "a", "c")]
    ideal = ideal_hits(turns, page_tokens=100)
    assert (ideal.hits, ideal.pages) == (3, 8)
