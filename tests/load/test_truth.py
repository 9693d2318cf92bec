"""Against a server that stamps what it sends: the client reports when tokens came, not when it got round to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from statistics import median

import pytest
from load.mockllm import Mock, mock_server

from kvbench.load import client, prompts, schedule
from kvbench.load.client import Limits, LoadResult, Progress, Request, RequestRow, run

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
PATIENT = Limits(connect_s=30, first_token_s=30, stall_s=30, total_s=60)
HASTY = Limits(connect_s=30, first_token_s=0.5, stall_s=0.5, total_s=60)
TTFT_MS, ITL_MS, TOKENS = 60, 4, 12  # a connection that ends stamps what lay unread an interval late
PLAIN = {
    "mode": "normal", "every": 1, "at": 4, "n": TOKENS, "ttft_us": TTFT_MS * 1000, "itl_us": ITL_MS * 1000, "tpc": 1,
    "jitter_us": 0, "role": 2, "role_style": 0, "reasoning": 0, "reason_key": 0, "usage": 1, "finish_sep": 0,
    "split": 0, "comment": 0, "retry_after": 1, "honor_max": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def mock(tmp_path_factory) -> Iterator[Mock]:
    with mock_server(tmp_path_factory.mktemp("mockllm")) as server:
        yield server


def requests(prefix: str, count: int, tokens: int | None = TOKENS) -> list[Request]:
    body = prompts.chat_body("mock", "hello", TOKENS)
    return [Request(f"{prefix}{i}", body, CHAT, expected_completion_tokens=tokens) for i in range(count)]


def beyond_its_word_ms(row: RequestRow, told: dict[str, str]) -> float:
    """How much further a row is from the server's own TTFT than it says itself; a reasoning token is a first one."""
    error_ns = abs(row.first_token_ns - row.sent_ns - (int(told["t_first"]) - int(told["t_arr"])))
    return (error_ns - (row.read_delay_ns if row.tainted else 0)) / 1e6


MODES = [
    ({}, PATIENT, ""),
    ({"role": 0}, PATIENT, ""),
    ({"role": 1}, PATIENT, ""),
    ({"role": 1, "role_style": 1}, PATIENT, ""),
    ({"role": 1, "role_style": 2}, PATIENT, ""),
    ({"reasoning": 3}, PATIENT, ""),
    ({"reasoning": 3, "reason_key": 1}, PATIENT, ""),
    ({"usage": 0}, PATIENT, ""),
    ({"usage": 2}, PATIENT, ""),
    ({"finish_sep": 1}, PATIENT, ""),
    ({"split": 1}, PATIENT, ""),
    ({"comment": 1}, PATIENT, ""),
    ({"jitter_us": 20_000}, PATIENT, ""),
    ({"tpc": 4}, PATIENT, "wrong_token_count"),
    ({"mode": "nodone"}, PATIENT, ""),
    ({"mode": "nodone", "finish_sep": 1}, PATIENT, ""),
    ({"mode": "badjson"}, PATIENT, "malformed"),
    ({"mode": "disc_fin"}, PATIENT, "truncated"),
    ({"mode": "disc_rst"}, PATIENT, "truncated"),
    ({"mode": "errchunk"}, PATIENT, "error_event"),
    ({"mode": "empty", "usage": 2}, PATIENT, "empty"),
    ({"mode": "http429"}, PATIENT, "http_status"),
    ({"mode": "http500"}, PATIENT, "http_status"),
    ({"mode": "http503"}, PATIENT, "http_status"),
    ({"mode": "hang"}, HASTY, "timeout_first_token"),
    ({"mode": "stall"}, HASTY, "stall"),
]


def beyond_the_last_ms(row: RequestRow, told: dict[str, str]) -> float:
    """How far the last token's time since the first is from the server's own."""
    return abs(row.last_token_ns - row.first_token_ns - (int(told["t_last"]) - int(told["t_first"]))) / 1e6


@pytest.fixture(params=[False, True], ids=["as they come", "several a read"])
def tokens_read(request, monkeypatch) -> None:
    """Tokens between the first and the last are read as they come, or as where many are open."""
    if request.param:
        monkeypatch.setattr(client, "_STREAMS_A_TOKEN", 2)


@pytest.mark.usefixtures("tokens_read")
@pytest.mark.parametrize(
    ("options", "limits", "error_class"), MODES, ids=["-".join(f"{k}={v}" for k, v in o.items()) for o, _, _ in MODES]
)
def test_every_mode_has_its_class_and_the_servers_own_time_to_first_token(mock, options, limits, error_class):
    mock.set(**PLAIN | options)
    mock.forget()
    rows = run([mock.url], requests("m", 8), schedule.wave(8), limits).rows
    truth = mock.truth()
    assert [row.error_class for row in rows] == [error_class] * 8, rows[0].error_text
    assert truth.keys() == {row.request_id for row in rows}
    spoke = error_class not in ("http_status", "timeout_first_token", "empty")
    assert [row.first_token_ns is not None for row in rows] == [spoke] * 8
    if spoke:
        assert median(beyond_its_word_ms(row, truth[row.request_id]) for row in rows) < TTFT_MS / 10
        assert median(beyond_the_last_ms(row, truth[row.request_id]) for row in rows) < TTFT_MS / 10
    if not error_class:
        assert {row.completion_tokens for row in rows} == {TOKENS}
        assert {row.tokens_estimated for row in rows} == {options.get("usage") == 0}


@pytest.mark.parametrize("options", [{"role": 0}, {"role": 1}, {"role": 2}, {"role": 0, "split": 1}], ids=str)
def test_a_request_that_follows_another_has_the_servers_own_time_to_first_token(mock, options, monkeypatch):
    monkeypatch.setattr(client, "_STREAMS_A_TOKEN", 1)  # the head is read with the first token
    mock.set(**PLAIN | options)
    mock.forget()
    rows = run([mock.url], requests("f", 32), limits=PATIENT, concurrency=4).rows
    truth = mock.truth()
    assert [row.error_class for row in rows] == [""] * 32
    assert median(beyond_its_word_ms(row, truth[row.request_id]) for row in rows[4:]) < ITL_MS / 2
    assert median(beyond_the_last_ms(row, truth[row.request_id]) for row in rows[4:]) < ITL_MS / 2


# ---------------------------------------------------------------- faults at random

FAULTS = (
    "nodone", "badjson", "disc_fin", "disc_rst", "errchunk", "empty", "http429", "http500", "http503", "hang", "stall",
)  # fmt: skip
BY_STATUS = {
    "200": "", "-1": "truncated", "-3": "error_event", "-4": "empty", "-5": "malformed", "429": "http_status",
    "500": "http_status", "503": "http_status",
}  # fmt: skip
SILENT = {"hang": "timeout_first_token", "stall": "stall"}  # both of status -2


def expected_class(told: dict[str, str]) -> str:
    """What the server did in the end: a fault that was to come later may have been called off before."""
    return SILENT[told["mode"]] if told["status"] == "-2" else BY_STATUS[told["status"]]


class FaultsAtRandom:
    """Gives the server another fault, for one request in a few, ten times a second."""

    def __init__(self, mock: Mock, seed: int) -> None:
        self._mock, self._rng = mock, Random(seed)

    def __call__(self, progress: Progress) -> None:
        self._mock.set(mode=self._rng.choice(FAULTS), every=self._rng.randint(3, 9), at=self._rng.randint(1, 6))


def accounted_for(result: LoadResult, mock: Mock, count: int) -> Counter[str]:
    """Hold every row against the server's record of the same request; gives the classes that there were."""
    truth = mock.truth()
    ids = [row.request_id for row in result.rows]
    assert len(ids) == len(set(ids)) == count
    assert truth.keys() == set(ids)
    wrong = [
        (truth[row.request_id], row.error_class, row.error_text)
        for row in result.rows
        if row.error_class != expected_class(truth[row.request_id])
    ]
    assert wrong == []
    return Counter(row.error_class for row in result.rows)


@pytest.mark.slow
def test_of_24000_requests_with_faults_at_random_each_is_accounted_for_exactly_once(mock):
    count = 24_000
    mock.set(**PLAIN | {"ttft_us": 5000, "itl_us": 1000, "mode": "normal"})
    mock.forget()
    limits = Limits(connect_s=30, first_token_s=3.0, stall_s=3.0, total_s=120)
    result = run([mock.url], requests("f", count), limits=limits, on_progress=FaultsAtRandom(mock, 7), concurrency=256)
    assert set(accounted_for(result, mock, count)) == {*BY_STATUS.values(), *SILENT.values()}
