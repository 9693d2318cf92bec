"""Workloads and traces, sent to a real endpoint: what follows what, and what prompts share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from load.server import answer_well, serving
from typer.testing import CliRunner

from kvbench import content
from kvbench.cli.main import app
from kvbench.errors import UsageError
from kvbench.load import client, rows
from kvbench.load.replay import replay
from kvbench.load.workload import Block, IdealHits, Turn, ideal_hits

SYSTEM = Block("system", 300)
TURNS = [
    Turn("a-0", "a", (SYSTEM, Block("a-user", 50)), 4, due_s=0.0),
    Turn("a-1", "a", (SYSTEM, Block("a-user", 50), Block("a-answer", 4)), 4, after="a-0", think_s=0.05),
    Turn("b-0", "b", (SYSTEM, Block("b-user", 60)), 4, due_s=0.01),
]


def ids(request: client.Request) -> list[int]:
    prompt: list[int] = json.loads(request.body)["prompt"]
    return prompt


def test_what_turns_share_their_prompts_share_and_another_seed_shares_nothing() -> None:
    made, other = (replay(TURNS, seed, "m", 1000) for seed in (1, 2))
    first, second, third = map(ids, made.requests)
    assert second[: len(first)] == first
    assert third[:300] == first[:300]
    assert third[300:350] != first[300:350]
    assert ids(other.requests[0])[:256] != first[:256]
    assert [request.expected_prompt_tokens for request in made.requests] == [350, 354, 360]
    assert ideal_hits(TURNS, 256) == IdealHits(pages=3, hits=2)


def test_a_turn_is_due_when_the_one_before_it_is_done_and_its_sender_has_thought() -> None:
    made = replay(TURNS, 1, "m", 1000)
    with serving(answer_well) as served:
        result = client.run([served.url], made.requests, made.due_offsets_ns)
    by_id = {row.request_id: row for row in result.rows}
    assert by_id.keys() == {"a-0", "a-1", "b-0"}
    assert by_id["a-1"].due_ns == by_id["a-0"].done_ns + 50_000_000
    assert (by_id["a-1"].sent_ns or 0) >= by_id["a-1"].due_ns
    assert by_id["b-0"].due_ns == result.start_ns + 10_000_000


def test_a_turn_whose_leader_failed_is_sent_all_the_same_and_every_one_has_a_row() -> None:
    turns = [
        Turn(f"t{i}", "s", (SYSTEM,), 4, due_s=0.0 if i == 0 else None, after=f"t{i - 1}" if i else "")
        for i in range(5)
    ]
    made = replay(turns, 1, "m", 1000)
    result = client.run(["http://127.0.0.1:9"], made.requests, made.due_offsets_ns)
    assert [(row.request_id, row.error_class) for row in result.rows] == [(f"t{i}", "refused") for i in range(5)]


def test_a_turn_that_follows_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="follows a-0, which is not among"):
        replay(TURNS[1:], 1, "m", 1000)


@pytest.mark.parametrize("name", ["conversations", "shared-prefixes", "long-tail", "retrieval"])
def test_every_workload_that_ships_makes_requests(name: str) -> None:
    from random import Random

    assert len(content.request_workload(name).make(Random(1))) > 100


def test_a_workload_that_makes_no_requests_is_named() -> None:
    with pytest.raises(UsageError, match=r"cold-recovery\.yaml:\d+: key kind: 'cold_recovery' makes no requests"):
        content.request_workload("cold-recovery")


def load(*arguments: str):
    return CliRunner().invoke(app, ["load", "--model", "m", *arguments])


def test_a_trace_is_sent_and_its_ideal_hits_are_told(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        "".join(
            json.dumps({"timestamp": 0, "input_length": 600, "output_length": 4, "hash_ids": [1, i]}) + "\n"
            for i in range(4)
        )
    )
    with serving(answer_well) as served:
        result = load(
            "--url", served.url, "--trace", str(trace), "--rows", str(tmp_path / "r"), "--json", str(tmp_path / "j")
        )
    document = json.loads((tmp_path / "j").read_text())
    assert document["requests"]["sent"] == len(rows.read(tmp_path / "r")) == 4
    assert document["prefix_hits"]["ideal_share"] == pytest.approx(6 / 8)
    assert "a cache without end: 75 %" in result.output


def test_a_bad_trace_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "t").write_text('{"timestamp": 0.2, "input_length": 20, "output_length": 8, "hash_ids": [0, 1]}\n')
    result = load("--url", "http://127.0.0.1:9", "--trace", str(tmp_path / "t"))
    assert isinstance(result.exception, UsageError)
    assert "t:1: input_length 20 makes 1 blocks" in str(result.exception)


def test_a_workload_goes_with_no_rate(tmp_path: Path) -> None:
    result = load("--url", "http://127.0.0.1:9", "--workload", "retrieval", "--rate", "3")
    assert isinstance(result.exception, UsageError)
