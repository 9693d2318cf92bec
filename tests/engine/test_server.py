"""The engine over HTTP on loopback, with real page files of one 4 KiB block."""

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
from kvbench.kv import ModelShape
from kvbench.load import engine_metrics

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


@contextmanager
def engine(*directories: Path, fault_log: Path | None = None, token_ns: int = 1000, **options: Any) -> Iterator[Client]:
    """An engine that takes `token_ns` for a token, serving from a thread."""
    accelerator = Accelerator("unit", 2 * SHAPE.parameters_active * 1e9 / token_ns, 10**7, 10**15, 1, 1, "", "", "")
    config = EngineConfig(CostModel(SHAPE, accelerator, 1), PAGE_TOKENS, **options)
    storage = StorageOptions(directories, direct=False, fault_log=fault_log)
    with server.listen("127.0.0.1", 0) as listening, driver(config, storage) as running:
        web = server.web_server(running)
        thread = threading.Thread(target=web.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield Client(listening.getsockname()[1])
        finally:
            web.should_exit = True
            thread.join()


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
    files = sorted(pages.iterdir())
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


def test_one_corrupted_page_cuts_the_prefix_there(tmp_path: Path) -> None:
    with engine(tmp_path) as client:
        client.complete(prompt=PROMPT[:16])
        client.until("kvbench:stores_pending", 0)
        (first,) = tmp_path.iterdir()
        client.complete()
        client.until("kvbench:stores_pending", 0)
        (second,) = set(tmp_path.iterdir()) - {first}
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


def test_every_meaning_that_the_evidence_needs_is_exported(recomputing: Client) -> None:
    assert [meaning for meaning, value in recomputing.meanings().items() if value is None] == []
