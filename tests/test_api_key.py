"""An API key is sent to the endpoint, and found nowhere else."""

from __future__ import annotations

import json
import re
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from command_line import kvbench
from load.server import Reply, answer_well, serving
from small_runs import small_gate
from typer.testing import CliRunner

from kvbench import api_key
from kvbench.api_key import ApiKey
from kvbench.cli.main import app
from kvbench.engine.lifecycle import running
from kvbench.errors import StepError, UsageError
from kvbench.host.activity import cold
from kvbench.load import client, prompts
from kvbench.model import Arm, Engine
from kvbench.process import Survivors

SECRET = "sk-nobody-may-see-this"


def holds(folder: Path, secret: str) -> list[str]:
    return [str(file) for file in folder.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]


async def echo_the_key(reply: Reply) -> None:
    """As some servers do that refuse one."""
    body = json.dumps({"error": {"message": f"wrong API key: {reply.headers['authorization']}"}})
    reply.whole("401 Unauthorized", body.encode())


@pytest.mark.parametrize(("processes", "script"), [("1", answer_well), ("2", answer_well), ("1", echo_the_key)])
def test_a_load_sends_the_key_and_writes_it_nowhere(tmp_path, monkeypatch, processes, script):
    seen = []

    async def remember(reply: Reply) -> None:
        seen.append(reply.headers.get("authorization"))
        await script(reply)

    monkeypatch.setenv("KVBENCH_API_KEY", SECRET)
    arguments = ["load", "--model", "m", "--output-tokens", "4", "--concurrency", "2", "--requests", "6"]
    files = ["--json", str(tmp_path / "j.json"), "--rows", str(tmp_path / "r.parquet")]
    with serving(remember) as served:
        result = CliRunner().invoke(app, [*arguments, "--url", served.url, "--processes", processes, *files])
    assert seen == [f"Bearer {SECRET}"] * 6
    assert len(list(tmp_path.iterdir())) == 2
    assert holds(tmp_path, SECRET) == []
    assert SECRET not in result.output
    assert ("HTTP 401: wrong API key: Bearer (the API key)" in result.output) == (script is echo_the_key)


def test_an_openai_engine_takes_the_key_from_the_variable_it_names(tmp_path, monkeypatch):
    seen = []

    async def models(reply: Reply) -> None:
        seen.append((reply.path, reply.headers.get("authorization")))
        reply.whole("200 OK", b'{"data":[{"id":"m"}]}')

    monkeypatch.setenv("STORE_KEY", SECRET)
    with serving(models) as served:
        arm = Arm("dut", "dut", Engine("openai", "m", urls=(served.url,), api_key_env="STORE_KEY"), "recompute")
        with running(arm, (), tmp_path, Survivors(tmp_path / "survivors")) as engine:
            engine.metrics_text()
            body = prompts.completion_body("m", [1], 1)
            client.run(engine.urls, [client.Request("r", body)], [0], key=engine.key)
    assert [path for path, _ in seen] == ["/v1/models", "/metrics", "/v1/completions"]
    assert {key for _, key in seen} == {f"Bearer {SECRET}"}
    assert SECRET not in json.dumps(asdict(arm)) + repr(engine.key)
    assert holds(tmp_path, SECRET) == []


GATE_TARGET = """version: 1
name: keyed
session_tokens: 513
arms:
  - name: dut
    role: dut
    storage: {{nodes: [node]}}
    engine: {{kind: openai, urls: ['{url}'], model: llama-3.1-8b, api_key_env: STORE_KEY}}
  - name: recompute
    role: baseline
    kv: recompute
    engine: {{kind: openai, urls: ['{url}'], model: llama-3.1-8b, api_key_env: STORE_KEY}}
"""


def every_text(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """What lies in a folder: the bytes of every file, and what is packed in them."""
    for file in folder.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            yield file, content
            if file.suffix == ".parquet":
                yield file, repr(pq.read_table(file).to_pylist()).encode()
            for packed in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", content, re.DOTALL):
                with suppress(zlib.error):
                    yield file, zlib.decompress(packed)


def test_a_whole_gate_leaves_the_key_in_no_file_and_no_argv(tmp_path, monkeypatch):
    seen, waved, argvs = [], count(), []

    async def engine(reply: Reply) -> None:
        seen.append(reply.headers.get("authorization"))
        if reply.path == "/v1/models":
            reply.whole("200 OK", b'{"data":[{"id":"llama-3.1-8b"}]}')
        elif reply.path != "/v1/completions":
            reply.whole("200 OK", f"# asked with {seen[-1]}\nvllm:num_requests_running 0\n".encode())
        elif next(waved) % 5 == 4:
            await echo_the_key(reply)
        else:
            reply.start()
            for _ in range(reply.request["max_tokens"]):
                reply.token(key="text")
            reply.usage(reply.request["max_tokens"], len(reply.request["prompt"]))
            reply.done()
            reply.end()

    class Watched(subprocess.Popen):
        def __init__(self, args, *more, **options):
            argvs.append(args)
            super().__init__(args, *more, **options)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "Popen", Watched)
    monkeypatch.setattr(cold, "QUIET_S", 0.05)
    monkeypatch.setenv("STORE_KEY", SECRET)
    small_gate(Path("gate.yaml"), concurrency=2, rounds=1)
    Path("node").mkdir()
    with serving(engine) as served:
        Path("target.yaml").write_text(GATE_TARGET.format(url=served.url))
        said = [kvbench("run", "gate", "gate.yaml", "--target", "target.yaml", "--out", "run", "--yes")]
    said.append(kvbench("report", "run", "--format", "md,csv,json"))
    texts = list(every_text(tmp_path))
    assert set(seen) == {f"Bearer {SECRET}"}
    assert {".html", ".pdf", ".parquet", ".jsonl"} <= {file.suffix for file, _ in texts}
    assert any(b"wrong API key: Bearer (the API key)" in text for _, text in texts)
    assert [str(file) for file, text in texts if SECRET.encode() in text] == []
    assert SECRET not in repr(said)
    assert argvs
    assert SECRET not in repr(argvs)


def test_what_an_endpoint_says_of_a_wrong_key_does_not_hold_it(tmp_path, monkeypatch):
    async def refuse(reply: Reply) -> None:
        reply.whole("200 OK", json.dumps({"wrong": reply.headers["authorization"]}).encode())

    monkeypatch.setenv("KVBENCH_API_KEY", SECRET)
    with serving(refuse) as served, pytest.raises(StepError) as raised:
        given = Arm("dut", "dut", Engine("openai", urls=(served.url,)))
        running(given, (), tmp_path, Survivors(tmp_path / "s")).__enter__()
    assert "(the API key)" in str(raised.value)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("STORE_KEY", "", "the environment has no STORE_KEY"),
        ("STORE_KEY", "sk-1\r\nX-Other: 1", "the key in STORE_KEY has characters that no HTTP header can carry"),
        ("", "sk-ключ", "the key in KVBENCH_API_KEY has characters"),
    ],
)
def test_a_key_that_cannot_be_used_is_refused_without_being_shown(monkeypatch, variable, value, message):
    monkeypatch.setenv(variable or "KVBENCH_API_KEY", value)
    with pytest.raises(UsageError, match=message) as raised:
        api_key.from_environment(variable)
    assert not value or value not in str(raised.value)


def test_without_a_variable_there_is_no_key(monkeypatch):
    monkeypatch.delenv("KVBENCH_API_KEY", raising=False)
    assert api_key.from_environment() == ApiKey("")
    assert api_key.from_environment().headers == {}
