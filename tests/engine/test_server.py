"""The engine over HTTP on loopback, with real page files of one 4 KiB block."""

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kvbench import clock
from kvbench.engine import server
from kvbench.engine.cost import Accelerator, CostModel
from kvbench.engine.driver import StorageOptions, driver
from kvbench.engine.protocol import EngineConfig
from kvbench.errors import KvbenchError
from kvbench.kv import ModelShape
from kvbench.load import engine_metrics
from kvbench.store.keys import PageKey

SHAPE = ModelShape("tiny", 1, 2, 2, 8, parameters=1, parameters_active=1000, weight_bytes_per_parameter=2, source="")
PAGE_TOKENS = 16
PROMPT = list(range(100, 140))  # two full pages and a half


@dataclass
class Client:
    """Talks to one engine, one connection a request."""

    port: int

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request(method, path, json.dumps(body) if isinstance(body, dict) else body)  # type: ignore[arg-type]
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text

    def complete(self, **body: object) -> dict[str, Any]:
        request = {"model": "tiny", "prompt": PROMPT, "max_tokens": 5, **body}
        status, text = self.ask("POST", "/v1/completions", request)
        assert status == 200, text
        return json.loads(text)  # type: ignore[no-any-return]

    def stream(self, path: str, **body: object) -> list[dict[str, Any]]:
        status, text = self.ask("POST", path, {"model": "tiny", "max_tokens": 5, "stream": True, **body})
        assert status == 200, text
        events = text.removesuffix("\n\n").split("\n\n")
        assert events.pop() == "data: [DONE]"
        return [json.loads(event.removeprefix("data: ")) for event in events]

    def meanings(self) -> dict[str, float | None]:
        return engine_metrics.read(self.ask("GET", "/metrics")[1])

    def metric(self, name: str) -> float:
        lines = [line for line in self.ask("GET", "/metrics")[1].splitlines() if line.startswith(f"{name}{{")]
        return float(lines[0].split()[-1])

    def until(self, name: str, value: float) -> None:
        deadline_ns = clock.monotonic_ns() + 10 * 10**9
        while self.metric(name) != value:
            assert clock.monotonic_ns() < deadline_ns, f"{name} does not become {value}"


def _config(token_ns: int = 1000, **options: Any) -> EngineConfig:
    accelerator = Accelerator("unit", 2 * SHAPE.parameters_active * 1e9 / token_ns, 10**7, 10**15, 1, 1, "", "", "")
    return EngineConfig(CostModel(SHAPE, accelerator, 1), PAGE_TOKENS, **options)


@contextmanager
def engine(*directories: Path, fault_log: Path | None = None, token_ns: int = 1000, **options: Any) -> Iterator[Client]:
    """An engine that takes `token_ns` for a token, serving from a thread."""
    storage = StorageOptions(directories, direct=False, fault_log=fault_log)
    with server.listen("127.0.0.1", 0) as listening, driver(_config(token_ns, **options), storage) as running:
        web = server.web_server(running)
        thread = threading.Thread(target=web.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield Client(listening.getsockname()[1])
        finally:
            web.should_exit = True
            thread.join()


def pages_in(node: Path) -> list[Path]:
    return [file for file in node.iterdir() if PageKey.from_file_name(file.name)]


@pytest.fixture(scope="module")
def recomputing() -> Iterator[Client]:
    with engine() as client:
        yield client


# ---------------------------------------------------------------- the API


def test_a_completion_has_its_text_and_usage(recomputing: Client) -> None:
    reply = recomputing.complete()
    assert reply["object"] == "text_completion"
    assert len(reply["choices"][0]["text"].split()) == 5
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["usage"] == {
        "prompt_tokens": 40,
        "completion_tokens": 5,
        "total_tokens": 45,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_a_stream_carries_one_token_a_chunk_and_the_same_text(recomputing: Client) -> None:
    chunks = recomputing.stream("/v1/completions", prompt=PROMPT, stream_options={"include_usage": True})
    *tokens, last, usage = chunks
    assert [chunk["choices"][0]["finish_reason"] for chunk in tokens] == [None] * 4
    assert last["choices"][0]["finish_reason"] == "length"
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 5)
    text = "".join(chunk["choices"][0]["text"] for chunk in [*tokens, last])
    assert text == recomputing.complete()["choices"][0]["text"]


def test_usage_is_streamed_only_where_it_is_asked_for(recomputing: Client) -> None:
    assert len(recomputing.stream("/v1/completions", prompt="text")) == 5


def test_a_chat_stream_begins_with_a_role_that_is_no_token(recomputing: Client) -> None:
    messages = [{"role": "user", "content": "how fast is the storage?"}]
    first, *rest = recomputing.stream("/v1/chat/completions", messages=messages)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    status, text = recomputing.ask(
        "POST", "/v1/chat/completions", {"model": "tiny", "max_tokens": 5, "messages": messages}
    )
    streamed = "".join(chunk["choices"][0]["delta"]["content"] for chunk in rest)
    assert (status, json.loads(text)["choices"][0]["message"]["content"]) == (200, streamed)


def test_another_prompt_gets_another_text(recomputing: Client) -> None:
    changed_early = recomputing.complete(prompt=[7, *PROMPT[1:]])
    changed_late = recomputing.complete(prompt=[*PROMPT[:-1], 7])
    texts = {reply["choices"][0]["text"] for reply in (recomputing.complete(), changed_early, changed_late)}
    assert len(texts) == 3


def test_text_counts_a_token_for_every_four_bytes(recomputing: Client) -> None:
    assert recomputing.complete(prompt="nine byte")["usage"]["prompt_tokens"] == 3


def test_models_and_health_answer(recomputing: Client) -> None:
    status, text = recomputing.ask("GET", "/v1/models")
    assert (status, json.loads(text)["data"][0]["id"]) == (200, "tiny")
    assert recomputing.ask("GET", "/health")[0] == 200


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("{not json", 400, "Invalid JSON"),
        ({"model": "tiny"}, 400, "prompt: Field required"),
        ({"model": "tiny", "prompt": []}, 400, "at least 1"),
        ({"model": "tiny", "prompt": [-1]}, 400, "greater than or equal to 0"),
        ({"model": "tiny", "prompt": "x", "max_tokens": 0}, 400, "max_tokens: Input should be greater"),
        ({"model": "tiny", "prompt": "x", "n": 2}, 400, "n: Input should be 1"),
        ({"model": "tiny", "prompt": "x", "max_tokens": 10**9}, 400, "do not fit; there is room for"),
        ({"model": "large", "prompt": "x"}, 404, "'large' is not served here"),
    ],
)
def test_a_bad_request_gets_an_error_object(recomputing: Client, body: object, status: int, message: str) -> None:
    got, text = recomputing.ask("POST", "/v1/completions", body)
    assert got == status
    assert message in json.loads(text)["error"]["message"]


def test_a_client_that_leaves_within_its_body_is_no_error_of_the_engine() -> None:
    sent: list[Any] = []
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    with driver(_config(), StorageOptions()) as running:
        asyncio.run(server.app(running)(scope, receive, send))
    assert sent[0]["status"] == 400


def test_many_streams_at_once_all_get_their_own_text(recomputing: Client) -> None:
    prompts = [[session, *PROMPT] for session in range(32)]
    with ThreadPoolExecutor(32) as pool:
        streams = list(pool.map(lambda prompt: recomputing.stream("/v1/completions", prompt=prompt), prompts))
    texts = {"".join(chunk["choices"][0]["text"] for chunk in chunks) for chunks in streams}
    assert ({len(chunks) for chunks in streams}, len(texts)) == ({5}, 32)


def test_a_client_that_goes_away_frees_its_place() -> None:
    with engine(token_ns=10**6) as client:
        connection = http.client.HTTPConnection("127.0.0.1", client.port)
        body = {"model": "tiny", "prompt": PROMPT, "max_tokens": 100_000, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body))
        assert connection.getresponse().readline().startswith(b"data: ")
        client.until("vllm:num_requests_running", 1)
        connection.close()
        client.until("vllm:num_requests_running", 0)
        assert client.metric("kvbench:gpu_tier_bytes") == 0


# ---------------------------------------------------------------- KV on storage


def test_pages_are_hits_after_a_restart_and_the_text_is_that_of_a_recompute(
    tmp_path: Path, recomputing: Client
) -> None:
    nodes = (tmp_path / "a", tmp_path / "b")
    with engine(*nodes) as client:
        assert client.complete(max_tokens=1)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        client.until("kvbench:stores_pending", 0)
    with engine(*nodes) as client:
        restored = client.complete()
        counted = client.meanings()
        assert client.metric("kvbench:read_pages_total") == 2
    assert restored["usage"]["prompt_tokens_details"]["cached_tokens"] == 32
    assert (counted["external_hit_tokens"], counted["external_query_tokens"]) == (32, 40)
    assert restored["choices"][0]["text"] == recomputing.complete()["choices"][0]["text"]


def test_a_corrupted_page_is_computed_again_counted_and_logged(tmp_path: Path, recomputing: Client) -> None:
    log = tmp_path / "faults.jsonl"
    pages = tmp_path / "pages"
    with engine(pages) as client:
        client.complete()
        client.until("kvbench:stores_pending", 0)
        assert client.complete()["usage"]["prompt_tokens_details"]["cached_tokens"] == 32
    files = sorted(pages_in(pages))
    assert len(files) == 2
    for page in files:
        content = bytearray(page.read_bytes())
        content[-1] ^= 1
        page.write_bytes(content)
    with engine(pages, fault_log=log) as client:
        reply = client.complete()
        client.until("kvbench:stores_pending", 0)
        assert client.meanings()["content_mismatches"] == 2
        assert client.complete()["usage"]["prompt_tokens_details"]["cached_tokens"] == 32
    assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert reply["choices"][0]["text"] == recomputing.complete()["choices"][0]["text"]
    faults = [json.loads(line) for line in log.read_text().splitlines()]
    assert {fault["page"] for fault in faults} == {page.name for page in files}
    assert {fault["kind"] for fault in faults} == {"corrupted"}


def test_a_fault_that_cannot_be_logged_is_counted_and_holds_nobody_up(tmp_path: Path) -> None:
    with engine(tmp_path) as client:
        client.complete()
        client.until("kvbench:stores_pending", 0)
    for page in pages_in(tmp_path):
        page.write_bytes(page.read_bytes()[:-1] + b"\0")
    with engine(tmp_path, fault_log=Path("/dev/full")) as client:
        assert client.complete()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert client.meanings()["content_mismatches"] == 2


def test_one_corrupted_page_cuts_the_prefix_there(tmp_path: Path) -> None:
    with engine(tmp_path) as client:
        client.complete(prompt=PROMPT[:16])
        client.until("kvbench:stores_pending", 0)
        (first,) = pages_in(tmp_path)
        client.complete()
        client.until("kvbench:stores_pending", 0)
        (second,) = set(pages_in(tmp_path)) - {first}
        second.write_bytes(second.read_bytes()[:-1] + b"\0")
        assert client.complete()["usage"]["prompt_tokens_details"]["cached_tokens"] == 16
        assert client.meanings()["content_mismatches"] == 1


def test_host_memory_is_emptied_on_request(tmp_path: Path) -> None:
    with engine(tmp_path, host_memory_bytes=10**6) as client:
        client.complete()
        client.until("kvbench:stores_pending", 0)
        client.complete()
        assert client.meanings()["host_tier_hit_tokens"] == 32
        assert client.ask("POST", "/reset_prefix_cache")[0] == 200
        assert client.metric("kvbench:host_tier_bytes") == 0
        client.complete()
        assert client.meanings()["host_tier_hit_tokens"] == 32


def test_streams_that_are_open_when_the_server_stops_are_ended_in_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    with engine(token_ns=10**9) as client, ThreadPoolExecutor(1) as left:
        reply = left.submit(client.complete, max_tokens=100)
        client.until("vllm:num_requests_running", 1)
    assert reply.exception()
    written = capfd.readouterr().err
    assert "1 running task" in written
    assert "Traceback" not in written


# ---------------------------------------------------------------- nodes that come and go

LONG = list(range(16 * 40))  # so many pages that some lie on each node


def cached(reply: dict[str, Any]) -> int:
    return int(reply["usage"]["prompt_tokens_details"]["cached_tokens"])


def test_pages_move_to_a_node_that_comes_and_all_of_them_stay_hits(tmp_path: Path) -> None:
    with engine(tmp_path / "a") as client:
        client.complete(prompt=[*LONG, 1])
        client.until("kvbench:stores_pending", 0)
        status, text = client.ask("POST", "/kvbench/nodes", {"add": str(tmp_path / "b"), "bytes_per_s": 10**6})
        assert (status, json.loads(text)) == (200, {"node": 1})
        assert client.metric("kvbench:pages_moving") == 1
        assert cached(client.complete(prompt=[*LONG, 1])) == len(LONG)
        client.until("kvbench:pages_moving", 0)
        assert cached(client.complete(prompt=[*LONG, 1])) == len(LONG)
        moved = client.metric("kvbench:moved_pages_total")
        assert 0 < moved == len(pages_in(tmp_path / "b")) < 40
        assert client.meanings()["content_mismatches"] == 0


def test_what_a_failed_node_held_is_missed_and_stored_again_on_the_others(tmp_path: Path) -> None:
    with engine(tmp_path / "a", tmp_path / "b") as client:
        client.complete(prompt=[*LONG, 1])
        client.until("kvbench:stores_pending", 0)
        assert client.ask("POST", "/kvbench/nodes", {"fail": 1}) == (200, '{"node":1}')
        assert cached(client.complete(prompt=[*LONG, 1])) < len(LONG)
        client.until("kvbench:stores_pending", 0)
        assert cached(client.complete(prompt=[*LONG, 1])) == len(LONG)
        assert client.meanings()["content_mismatches"] == 0


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, 'give either {"add": DIRECTORY} or {"fail": NODE}'),
        ({"add": "/x", "fail": 0}, 'give either {"add": DIRECTORY} or {"fail": NODE}'),
        ({"fail": 7}, "there is no node 7 that is up: up are 0"),
        ({"fail": "0"}, "fail: Input should be a valid integer"),
        ({"fail": -1}, "fail: Input should be greater than or equal to 0"),
        ({"fail": 0, "bytes_per_s": 0}, "bytes_per_s: Input should be greater than 0"),
        ({"fail": 0, "bytes_per_s": 10**30}, "bytes_per_s: Input should be less than or equal to 1000000000000000"),
        ({"fail": 0, "bytes_per_s": 1e30}, "bytes_per_s: Input should be a valid integer"),
        ({"fail": 0, "ttft_limit_s": -1.0}, "ttft_limit_s: Input should be greater than 0"),
        ({"remove": 0}, "remove: Extra inputs are not permitted"),
        ({"add": "relative"}, "'relative' is not an absolute path"),
        ({"add": "/dev/null"}, "cannot keep pages in /dev/null: Not a directory"),
        ({"add": "/proc"}, "/proc is not empty: a node that comes brings no pages"),
        ("{", "Invalid JSON: EOF while parsing an object at line 1 column 1"),
    ],
)
def test_a_change_of_nodes_that_cannot_be_is_refused_in_one_sentence(
    tmp_path: Path, body: object, message: str
) -> None:
    with engine(tmp_path) as client:
        status, text = client.ask("POST", "/kvbench/nodes", body)
        assert (status, json.loads(text)["error"]["message"]) == (400, message)
        assert cached(client.complete()) == 0


def test_a_directory_becomes_one_node_by_whatever_path_and_however_often_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "b")
    names = ["b", "link"] * 4
    with engine(tmp_path / "a") as client, ThreadPoolExecutor(len(names)) as at_once:
        replies = [
            at_once.submit(client.ask, "POST", "/kvbench/nodes", {"add": str(tmp_path / name)})
            for name in ("b", *names)
        ]
        assert sorted(reply.result()[0] for reply in replies) == [200] + [400] * len(names)
        status, text = client.ask("POST", "/kvbench/nodes", {"add": str(tmp_path / "b")})
        assert (status, json.loads(text)["error"]["message"]) == (400, f"{tmp_path / 'b'} is a node already")


def test_a_directory_is_one_engines_at_a_time(tmp_path: Path) -> None:
    started, came = tmp_path / "a", tmp_path / "b"
    with engine(started) as client:
        assert client.ask("POST", "/kvbench/nodes", {"add": str(came)})[0] == 200
        for place in (started, came):
            with pytest.raises(KvbenchError, match=f"another kvbench keeps pages in {place}"), engine(place):
                pass
    with engine(started), engine(came):
        pass


def test_an_engine_that_recomputes_has_no_nodes(recomputing: Client) -> None:
    status, text = recomputing.ask("POST", "/kvbench/nodes", {"fail": 0})
    assert (status, json.loads(text)["error"]["message"]) == (400, "this engine keeps no pages: it has no nodes")


def test_nodes_are_changed_from_this_machine_only() -> None:
    sent: list[Any] = []
    scope = {"type": "http", "method": "POST", "path": "/kvbench/nodes", "headers": [], "client": ("192.0.2.1", 5000)}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b'{"fail": 0}'}

    async def send(message: Any) -> None:
        sent.append(message)

    with driver(_config(), StorageOptions()) as running:
        asyncio.run(server.app(running)(scope, receive, send))
    assert [message.get("status") for message in sent] == [403, None]
    assert b"from this machine only" in sent[1]["body"]


def test_every_meaning_that_the_evidence_needs_is_exported(recomputing: Client) -> None:
    assert [meaning for meaning, value in recomputing.meanings().items() if value is None] == []
