import json
from collections import Counter
from pathlib import Path

import pytest

from kvbench.errors import UsageError
from kvbench.load import trace
from kvbench.load.workload import Block, ideal_hits

MOONCAKE = Path(__file__).parents[3] / "shared" / "traces" / "mooncake_conversation.jsonl"


def row(timestamp: float = 0, tokens: int = 1000, ids: tuple[int, ...] = (1, 2), **other: object) -> str:
    return json.dumps({"timestamp": timestamp, "input_length": tokens, "output_length": 5, "hash_ids": ids} | other)


def test_ids_are_blocks_and_the_last_one_may_be_short() -> None:
    (turn,) = trace.read([row()], "t")
    assert turn.prompt == (Block("h1", 512), Block("h2", 488))
    assert (turn.prompt_tokens, turn.output_tokens, turn.due_s) == (1000, 5, 0.0)


def test_equal_times_keep_the_order_of_the_file() -> None:
    turns = trace.read([row(3000), row(0), row(3000), row(0)], "t")
    assert [turn.id for turn in turns] == ["t2", "t4", "t1", "t3"]


def test_requests_of_one_instant_can_be_spread_up_to_the_next() -> None:
    turns = trace.read([row(0), row(0), row(0), row(3000), row(3000)], "t")
    assert [turn.due_s for turn in trace.spread(turns)] == [0.0, 1.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (row(tokens=20, ids=(0, 1)), "input_length 20 makes 1 blocks of 512 tokens, but hash_ids has 2"),
        (row(tokens=2000), "makes 4 blocks"),
        (row(timestamp=-1), "timestamp is -1, not a number from 0 up"),
        (row(output_length="x"), "output_length is 'x'"),
        (row(ids=("a", "b")), "hash_ids is not a list of integers"),  # type: ignore[arg-type]
        ('{"timestamp": 0}', "key 'input_length' is missing"),
        ("nonsense", "not a JSON object"),
        ("[1]", "not a JSON object"),
        ("[" * 100_000, "not a JSON object"),
    ],
)
def test_a_line_that_does_not_hold_together_is_named_and_not_mended(line: str, message: str) -> None:
    with pytest.raises(UsageError, match="file:2: ") as caught:
        trace.read([row(), line, row()], "file")
    assert message in caught.value.message


def test_many_bad_lines_are_counted_and_the_first_are_shown() -> None:
    with pytest.raises(UsageError) as caught:
        trace.read(["x"] * 100, "t")
    assert caught.value.message.count("not a JSON object") == 5
    assert "and 95 more lines" in caught.value.message


def test_an_empty_trace_is_refused() -> None:
    with pytest.raises(UsageError, match="an empty trace"):
        trace.read(["", "\n"], "t")


@pytest.mark.skipif(not MOONCAKE.exists(), reason="the Mooncake conversation trace is not here")
def test_an_endless_cache_hits_what_it_should_on_the_mooncake_trace() -> None:
    with MOONCAKE.open() as lines:
        turns = trace.read(lines, MOONCAKE.name)
    ideal = ideal_hits(turns, trace.BLOCK_TOKENS, whole_pages_only=False)
    assert (len(turns), ideal.pages) == (12_031, 288_500)
    assert ideal.share == pytest.approx(0.3664, abs=5e-5)
    assert max(Counter(turn.due_s for turn in turns).values()) == 28
