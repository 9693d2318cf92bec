"""Several processes that drive one load: who sends what, and how their samples become one result."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from multiprocessing import Pipe

import pytest
from load.server import answer_well, serving
from load.test_figures import row as made
from typer.testing import CliRunner

from kvbench.api_key import NO_KEY
from kvbench.cli.main import app
from kvbench.errors import KvbenchError, UsageError
from kvbench.load import standalone, workers
from kvbench.load.client import Progress
from kvbench.load.result import ClientSelf, LoadResult
from kvbench.load.workload import Block, Turn

LOAD = standalone.Load(("",), "/v1/completions", "m", 8, 4, 1, None, None, None, None)


def sent_by(load: standalone.Load, processes: int, turns=None) -> tuple[LoadResult, list[str], list[Progress]]:
    seen: list[Progress] = []
    with serving(answer_well) as served:
        asked = replace(load, urls=(served.url,))
        result = workers.drive(asked, turns, NO_KEY, processes, seen.append)
    return result, served.request_ids, seen


@pytest.mark.parametrize(
    "load",
    [replace(LOAD, requests=13, concurrency=4), replace(LOAD, requests=13, rate_per_s=200.0)],
    ids=["closed", "open"],
)
def test_every_request_is_sent_by_one_of_them_and_has_its_row(load):
    result, request_ids, seen = sent_by(load, 3)
    assert sorted(request_ids) == sorted(f"1-{place}" for place in range(13))
    assert sorted(row.request_id for row in result.rows) == sorted(request_ids)
    assert all(row.ok for row in result.rows)
    assert [row.due_ns for row in result.rows] == sorted(row.due_ns for row in result.rows)
    assert seen[-1] == Progress(13, 13, 0, 0)
    assert result.client.tokens == 13 * 4


def test_a_session_stays_with_one_of_them():
    block = (Block("b", 8),)
    turns = [
        Turn(f"s{session}-{n}", f"s{session}", block, 4, None if n else 0.0, f"s{session}-{n - 1}" if n else "")
        for n in range(2)
        for session in range(5)
    ]
    result, request_ids, _ = sent_by(LOAD, 2, turns)
    assert sorted(request_ids) == sorted(turn.id for turn in turns)
    done_ns = {row.request_id: row.done_ns for row in result.rows}
    due_ns = {row.request_id: row.due_ns for row in result.rows}
    assert all(due_ns[f"s{session}-1"] == done_ns[f"s{session}-0"] for session in range(5))


def test_samples_are_merged_and_what_the_clients_say_is_added_up():
    one, other = (
        LoadResult(
            tuple(made(due_ns=due, sent_ns=due, done_ns=due + 30) for due in range(start, start + 40, 20)),
            ClientSelf(0.5, tokens=tokens, tainted_tokens=10, in_flight_reached=2, in_flight_asked=2, connections=2),
            start,
        )
        for start, tokens in ((100, 10), (110, 90))
    )
    merged = workers.merge([other, one])
    assert [row.due_ns for row in merged.rows] == [100, 110, 120, 130]
    assert merged.start_ns == 100
    assert merged.client == ClientSelf(1.0, 100, 20, in_flight_reached=3, in_flight_asked=4, connections=4)
    assert merged.client.tainted_share == 0.2


def test_the_figures_of_several_are_those_of_all_their_samples(tmp_path):
    arguments = ["load", "--model", "m", "--output-tokens", "4", "--concurrency", "4", "--requests", "12"]
    with serving(answer_well) as served:
        path = str(tmp_path / "j")
        result = CliRunner().invoke(app, [*arguments, "--url", served.url, "--processes", "2", "--json", path])
    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / "j").read_text())
    assert document["requests"]["ok"] == document["ttft_s"]["n"] == 12
    assert document["client"]["in_flight_asked"] == 4


def test_more_processes_than_requests_in_flight_are_refused():
    arguments = ["load", "--url", "http://127.0.0.1:9", "--model", "m", "--requests", "9", "--concurrency", "2"]
    result = CliRunner().invoke(app, [*arguments, "--processes", "3"])
    assert isinstance(result.exception, UsageError)
    assert "3 processes cannot share 2" in result.exception.message


def test_what_is_wrong_in_one_of_them_is_raised_by_the_one_who_asked():
    load = replace(LOAD, urls=("nonsense",), requests=2, concurrency=2)
    with pytest.raises(UsageError, match="not the address of an endpoint"):
        workers.drive(load, None, NO_KEY, 2, lambda progress: None)


def test_one_that_ends_before_its_part_is_done_ends_the_load(monkeypatch):
    monkeypatch.setattr(workers, "_drive_part", chain)  # takes anything, does nothing
    with pytest.raises(KvbenchError, match="ended before its part was done"):
        workers.drive(replace(LOAD, urls=("http://127.0.0.1:9",)), None, NO_KEY, 2, lambda progress: None)


def test_one_that_ends_when_it_is_ready_ends_the_load(monkeypatch):
    @contextmanager
    def in_parallel(function, arguments):
        pipes = []
        for _ in arguments:
            ours, theirs = Pipe()
            theirs.send(None)
            theirs.close()
            pipes.append(ours)
        yield pipes

    monkeypatch.setattr(workers.process, "in_parallel", in_parallel)
    with pytest.raises(KvbenchError, match="ended before its part was done"):
        workers.drive(replace(LOAD, urls=("http://127.0.0.1:9",)), None, NO_KEY, 2, lambda progress: None)
