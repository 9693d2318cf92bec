"""`kvbench load`: what it sends, what it says, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from socket import socket

import pytest
from load.server import Reply, answer_well, serving
from typer.testing import CliRunner

from kvbench.cli.main import app
from kvbench.errors import KvbenchError, UsageError
from kvbench.load import rows, standalone

PATIENCE_S = 60.0


def load(*arguments: str):
    return CliRunner().invoke(app, ["load", "--model", "m", "--output-tokens", "4", *arguments])


@pytest.mark.parametrize(
    ("address", "base", "path"),
    [
        ("http://h:1", "http://h:1", "/v1/completions"),
        ("http://h:1/", "http://h:1", "/v1/completions"),
        ("http://h:1/v1", "http://h:1", "/v1/completions"),
        ("http://h:1/v1/completions", "http://h:1", "/v1/completions"),
        ("http://h:1/v1/chat/completions", "http://h:1", "/v1/chat/completions"),
        ("https://h/llm/v1/chat/completions/", "https://h/llm", "/v1/chat/completions"),
    ],
)
def test_an_address_is_taken_as_people_give_it(address, base, path):
    assert standalone.locate([address]) == ((base,), path)


def test_instances_must_speak_the_same_api():
    with pytest.raises(UsageError, match="different paths"):
        standalone.locate(["http://h:1", "http://h:2/v1/chat/completions"])


def test_objectives_are_read_with_their_units():
    assert standalone.parse_objectives("ttft=2s,tpot=100ms") == {"ttft": 2.0, "tpot": 0.1}


@pytest.mark.parametrize("text", ["ttft", "ttft=", "ttft=2", "e2e=3s", "ttft=-1s"])
def test_a_wrong_objective_is_a_wrong_command_line(text):
    with pytest.raises(UsageError, match="--slo"):
        standalone.parse_objectives(text)


def test_a_good_load_ends_with_0_and_its_figures_as_json_and_rows(tmp_path):
    with serving(answer_well) as served:
        arguments = ("--url", served.url, "--concurrency", "3", "--requests", "12", "--slo", "ttft=60s")
        result = load(*arguments, "--json", str(tmp_path / "r.json"), "--rows", str(tmp_path / "r.parquet"))
    assert result.exit_code == 0, result.output
    assert "12 ok" in result.output
    document = json.loads((tmp_path / "r.json").read_text())
    assert document["requests"] == {"sent": 12, "ok": 12, "failed": {}, "first_texts": {}}
    for figure in ("ttft_s", "tpot_s"):
        assert {"p50", "p90", "p99", "mean", "n"} <= document[figure].keys()
        assert document[figure]["n"] == 12
    client = document["client"]
    assert client["in_flight_reached"] == 3
    assert bool(client["bottleneck"]) == (client["error_share"] > 0.05)  # on a busy machine, it may be
    assert document["goodput"]["requests"] == 12
    assert "goodput: 12 of 12 requests within the objectives" in result.output
    assert len(rows.read(tmp_path / "r.parquet")) == 12


@pytest.mark.parametrize(("requests", "names_the_max"), [(99, True), (100, False)])
def test_the_table_calls_a_p99_of_fewer_than_100_their_maximum(requests, names_the_max):
    with serving(answer_well) as served:
        result = load("--url", served.url, "--concurrency", "16", "--requests", str(requests))
    (ttft,) = (line for line in result.output.splitlines() if line.startswith("TTFT"))
    assert (f"max of {requests}" in ttft) is names_the_max


def test_a_workload_leaves_no_room_for_another_pace():
    result = load("--url", "http://127.0.0.1:9", "--workload", "conversations", "--duration", "5s")
    assert isinstance(result.exception, UsageError)
    assert result.exception.hint == "leave --concurrency, --rate and --duration out"


def test_token_ids_are_sent_unless_the_address_names_chat():
    bodies = []

    async def remember(reply: Reply) -> None:
        bodies.append(reply.request)
        await answer_well(reply)

    with serving(remember) as served:
        load("--url", served.url, "--concurrency", "1", "--requests", "1", "--prompt-tokens", "7")
        load("--url", f"{served.url}/v1/chat/completions", "--concurrency", "1", "--requests", "1")
    assert len(bodies[0]["prompt"]) == 7
    assert bodies[1]["messages"][0]["role"] == "user"


def test_no_two_loads_send_the_same_prompts_unless_the_seed_says_so():
    prompts = []

    async def remember(reply: Reply) -> None:
        prompts.append(tuple(reply.request["prompt"]))
        await answer_well(reply)

    with serving(remember) as served:
        for seed in ((), (), ("--seed", "5"), ("--seed", "5")):
            load("--url", served.url, "--concurrency", "1", "--requests", "1", *seed)
    assert len(set(prompts)) == 3
    assert prompts[2] == prompts[3]


def test_a_closed_loop_ends_with_its_time(tmp_path):
    with serving(answer_well) as served:
        path = str(tmp_path / "r.json")
        result = load("--url", served.url, "--concurrency", "2", "--duration", "300ms", "--json", path)
    document = json.loads((tmp_path / "r.json").read_text())
    assert result.exit_code == 0, result.output
    assert document["requests"]["ok"] == document["requests"]["sent"] == len(served.request_ids) > 2


def test_an_open_loop_sends_as_many_as_its_rate_and_time_make():
    with serving(answer_well) as served:
        result = load("--url", served.url, "--rate", "100", "--duration", "0.2s")
    assert result.exit_code == 0, result.output
    assert len(served.request_ids) == 20


def test_a_failed_request_ends_with_1_and_its_class_and_text():
    async def refuse_one(reply: Reply) -> None:
        if reply.request_id.endswith("-2"):
            reply.whole("500 Internal Server Error", b'{"error":{"message":"boom"}}')
        else:
            await answer_well(reply)

    with serving(refuse_one) as served:
        result = load("--url", served.url, "--concurrency", "1", "--requests", "4")
    assert result.exit_code == 1
    assert "3 ok, 1 http_status" in result.output
    assert "HTTP 500: boom" in result.output


def test_an_endpoint_that_refuses_everything_is_an_error_of_the_environment():
    with socket() as taken:
        taken.bind(("127.0.0.1", 0))
        result = load("--url", f"http://127.0.0.1:{taken.getsockname()[1]}", "--concurrency", "2", "--requests", "3")
    assert isinstance(result.exception, KvbenchError)
    assert result.exception.exit_code == 4
    assert "Connect call failed" in result.exception.message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--requests", "1"), "--concurrency or --rate"),
        (("--requests", "1", "--rate", "1", "--concurrency", "1"), "--concurrency or --rate"),
        (("--concurrency", "1"), "--requests or --duration"),
        (("--concurrency", "1", "--requests", "1", "--duration", "1s"), "--requests or --duration"),
        (("--concurrency", "1", "--duration", "0s"), "--duration"),
        (("--rate", "inf", "--requests", "1"), "--rate"),
        (("--rate", "1e9", "--duration", "1e6s"), "5,000,000 requests"),
        (("--concurrency", "1", "--requests", "9" * 20), "5,000,000 requests"),
        (("--concurrency", "9" * 20, "--requests", "1"), "--concurrency"),
        (("--concurrency", "1", "--requests", "1", "--prompt-tokens", "9" * 20), "--prompt-tokens"),
        (("--concurrency", "1", "--requests", "1", "--output-tokens", "9" * 20), "--output-tokens"),
        (("--concurrency", "1", "--requests", "1", "--spread"), "--spread"),
    ],
)
def test_options_that_contradict_each_other_are_refused_before_anything_is_sent(arguments, message):
    result = load("--url", "http://127.0.0.1:9", *arguments)
    assert isinstance(result.exception, UsageError)
    assert message in result.exception.message


def test_token_ids_are_those_of_a_model_whose_folder_says_how_many_there_are(tmp_path: Path) -> None:
    config = {
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "hidden_size": 64,
        "torch_dtype": "bfloat16",
        "vocab_size": 4096,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert standalone.vocabulary(str(tmp_path)) == 4096
    assert standalone.vocabulary(str(tmp_path / "elsewhere")) == standalone.vocabulary("somebody/model") == 30_000


def test_an_interrupted_load_promises_nothing_that_could_go_on():
    asked = threading.Event()

    async def never_answers(reply: Reply) -> None:
        asked.set()
        await reply.client_leaves()

    with serving(never_answers) as served:
        argv = [sys.executable, "-m", "kvbench", "load", "--url", served.url, "--model", "m"]
        with subprocess.Popen(
            [*argv, "--concurrency", "1", "--requests", "1"], stderr=subprocess.PIPE, text=True
        ) as child:
            assert asked.wait(PATIENCE_S)
            child.send_signal(signal.SIGINT)
            _, said = child.communicate(timeout=PATIENCE_S)
    assert (child.returncode, said.splitlines()[-1]) == (130, "kvbench: interrupted")
