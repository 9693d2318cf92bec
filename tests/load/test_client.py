"""The client against a server that fails in every known way, and against its own clock."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from random import Random
from socket import SHUT_RDWR, socket
from threading import Event

import pytest
from load.server import Reply, answer_well, serving

from kvbench import clock, process
from kvbench.errors import UsageError
from kvbench.load import client, exchange, prompts, schedule
from kvbench.load.client import Limits, LoadResult, Progress, Request, RequestRow, run

PATIENT = Limits(connect_s=30, first_token_s=30, stall_s=30, total_s=60)
HASTY_FIRST = Limits(connect_s=30, first_token_s=0.2, stall_s=30, total_s=60)
HASTY_STALL = Limits(connect_s=30, first_token_s=30, stall_s=0.2, total_s=60)
HASTY_TOTAL = Limits(connect_s=30, first_token_s=30, stall_s=30, total_s=0.3)
CHAT = "/v1/chat/completions"


def requests(count: int, tokens: int | None = 4) -> list[Request]:
    texts = [prompts.session_text(1, "test", i, 5) for i in range(count)]
    bodies = [prompts.chat_body("m", text, 4) for text in texts]
    return [Request(f"r{i}", body, CHAT, expected_completion_tokens=tokens) for i, body in enumerate(bodies)]


def one(script, limits: Limits = PATIENT, tokens: int | None = None) -> RequestRow:
    with serving(script) as served:
        return run([served.url], requests(1, tokens), schedule.wave(1), limits).rows[0]


# ---------------------------------------------------------------- replies, one kind each


async def role_early(reply: Reply) -> None:
    reply.start()
    reply.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]})
    await reply.writer.drain()
    await asyncio.sleep(0.1)
    reply.token(finish="stop")
    reply.end()


async def reasoning(reply: Reply) -> None:
    reply.start()
    reply.token(" hm", key="reasoning_content")
    await asyncio.sleep(0.05)
    reply.token(finish="stop")
    reply.end()


async def four_tokens_a_chunk(reply: Reply) -> None:
    reply.start()
    reply.token(" a b c d")
    reply.token(" e f g h", "length")
    reply.usage(8)
    reply.done()
    reply.end()


async def usage_only(reply: Reply) -> None:
    reply.start()
    reply.usage(3)
    reply.done()
    reply.end()


async def cut(reply: Reply) -> None:
    reply.start()
    reply.token()
    reply.cut()


async def cut_before_anything(reply: Reply) -> None:
    reply.cut()


async def words_after_the_end(reply: Reply) -> None:
    reply.start()
    reply.token()
    reply.raw(b"0\r\n\r\nand more")
    await reply.client_leaves()


async def reset(reply: Reply) -> None:
    reply.start()
    reply.token()
    await reply.reset()


async def too_many_requests(reply: Reply) -> None:
    reply.whole("429 Too Many Requests", b'{"error":{"message":"rate limited"}}', "Retry-After: 7\r\n")


async def server_error(reply: Reply) -> None:
    reply.whole("500 Internal Server Error", b'{"error":{"message":"boom"}}')


async def hang(reply: Reply) -> None:
    await reply.client_leaves()


async def hang_after_role(reply: Reply) -> None:
    reply.start()
    reply.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
    await reply.client_leaves()


async def stall(reply: Reply) -> None:
    reply.start()
    reply.token()
    await reply.client_leaves()


async def keep_alive_without_end(reply: Reply) -> None:
    reply.start()
    reply.token()
    while not reply.reader.at_eof():
        reply.chunk(b": ping\n\n")
        await asyncio.sleep(0.02)


async def tokens_without_end(reply: Reply) -> None:
    reply.start()
    while not reply.reader.at_eof():
        reply.token()
        await asyncio.sleep(0.02)


async def error_event(reply: Reply) -> None:
    reply.start()
    reply.token()
    reply.event({"error": {"message": "the engine died", "code": 500}})
    reply.done()
    reply.end()


async def error_event_left_open(reply: Reply) -> None:
    reply.start()
    reply.token()
    reply.event({"error": {"message": "the engine died", "code": 500}})
    await reply.client_leaves()


async def empty(reply: Reply) -> None:
    reply.start()
    reply.done()
    reply.end()


async def no_done(reply: Reply) -> None:
    reply.start()
    reply.token(finish="length")
    reply.end()


async def no_done_no_finish(reply: Reply) -> None:
    reply.start()
    reply.token()
    reply.end()


async def done_left_open(reply: Reply) -> None:
    reply.start()
    reply.token(finish="length")
    reply.done()
    await reply.client_leaves()


async def broken_json(reply: Reply) -> None:
    reply.start()
    reply.token()
    reply.chunk(b'data: {"choices":[{"ind\n\n')
    reply.token(finish="stop")
    reply.done()
    reply.end()


async def not_http(reply: Reply) -> None:
    reply.raw(b"220 mail.example ESMTP\r\n\r\n")
    await reply.client_leaves()


async def a_page(reply: Reply) -> None:
    page = b"<html>Sign in</html>"
    reply.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (len(page), page))


async def not_a_stream(reply: Reply) -> None:
    reply.whole("200 OK", b'{"choices":[{"text":"all at once"}]}')


async def error_in_plain_json(reply: Reply) -> None:
    reply.whole("200 OK", b'{"error":{"message":"no such model"}}')


async def split_writes(reply: Reply) -> None:
    reply.start()
    for text, finish in (("缓存", None), ("命中", "stop")):
        event = json.dumps({"choices": [{"delta": {"content": text}, "finish_reason": finish}]}, ensure_ascii=False)
        for byte in f"data: {event}\n\n".encode():
            reply.chunk(bytes([byte]))
            await reply.writer.drain()
    reply.end()


async def comments(reply: Reply) -> None:
    reply.start()
    reply.chunk(b": ping\n\n:\n\n")
    await reply.writer.drain()
    await asyncio.sleep(0.05)
    reply.token(finish="stop")
    reply.end()


async def until_closed(reply: Reply) -> None:
    reply.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    reply.raw(b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n')
    reply.cut()


async def early_hints(reply: Reply) -> None:
    reply.raw(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\n")
    await answer_well(reply)


async def error_nested_without_end(reply: Reply) -> None:
    reply.whole("500 Internal Server Error", b"[" * 50_000)


async def too_few_tokens(reply: Reply) -> None:
    await answer_well(reply, tokens=3)


@pytest.mark.parametrize(
    ("script", "limits", "error_class", "text"),
    [
        (answer_well, PATIENT, "", ""),
        (role_early, PATIENT, "", ""),
        (reasoning, PATIENT, "", ""),
        (no_done, PATIENT, "", ""),
        (done_left_open, HASTY_STALL, "", ""),
        (split_writes, PATIENT, "", ""),
        (comments, PATIENT, "", ""),
        (until_closed, PATIENT, "", ""),
        (early_hints, PATIENT, "", ""),
        (four_tokens_a_chunk, PATIENT, "wrong_token_count", "8 completion tokens instead of 4"),
        (too_few_tokens, PATIENT, "wrong_token_count", "3 completion tokens instead of 4"),
        (usage_only, PATIENT, "empty", "without any text"),
        (empty, PATIENT, "empty", "without any text"),
        (cut, PATIENT, "truncated", "closed the connection; ended after 1 chunks"),
        (cut_before_anything, PATIENT, "truncated", "ended after 0 chunks"),
        (words_after_the_end, PATIENT, "truncated", "ended after 1 chunks without [DONE]"),
        (reset, PATIENT, "truncated", "reset by peer"),
        (no_done_no_finish, PATIENT, "truncated", "without [DONE] or finish_reason"),
        (too_many_requests, PATIENT, "http_status", "HTTP 429: rate limited (Retry-After: 7)"),
        (server_error, PATIENT, "http_status", "HTTP 500: boom"),
        (error_nested_without_end, PATIENT, "http_status", "HTTP 500: [[["),
        (hang, HASTY_FIRST, "timeout_first_token", "no token within 0.2 s"),
        (hang_after_role, HASTY_FIRST, "timeout_first_token", "no token within 0.2 s"),
        (stall, HASTY_STALL, "stall", "no event for 0.2 s"),
        (keep_alive_without_end, HASTY_STALL, "stall", "no event for 0.2 s"),
        (tokens_without_end, HASTY_TOTAL, "timeout_total", "not done within 0.3 s"),
        (error_event, PATIENT, "error_event", "the engine died"),
        (error_event_left_open, HASTY_STALL, "error_event", "the engine died"),
        (error_in_plain_json, PATIENT, "error_event", "no such model"),
        (broken_json, PATIENT, "malformed", '{"choices":[{"ind'),
        (not_http, PATIENT, "malformed", "not HTTP"),
        (not_a_stream, PATIENT, "malformed", "not a stream of events"),
        (a_page, PATIENT, "malformed", "not a stream of events: <html>Sign in</html>"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_each_way_to_answer_has_its_class_and_keeps_its_text(script, limits, error_class, text):
    row = one(script, limits, tokens=4)
    assert row.error_class == error_class, row.error_text
    assert text in row.error_text
    assert bool(row.error_text) == bool(error_class)


@pytest.mark.parametrize(("script", "pause_s"), [(role_early, 0.1), (comments, 0.05)])
def test_neither_a_role_nor_a_comment_is_the_first_token(script, pause_s):
    row = one(script)
    assert row.first_token_ns - row.sent_ns >= pause_s * 0.98e9


def test_reasoning_is_the_first_token():
    row = one(reasoning)
    assert row.last_token_ns - row.first_token_ns >= 0.05 * 0.98e9


def test_a_reply_that_ends_sooner_than_asked_is_not_waited_for_when_several_tokens_are_read_at_once(monkeypatch):
    monkeypatch.setattr(client, "_STREAMS_A_TOKEN", 1)

    async def ends_early(reply: Reply) -> None:
        reply.start()
        reply.token()
        await reply.writer.drain()
        await asyncio.sleep(0.05)
        reply.token(finish="stop")
        reply.usage(2)
        reply.done()
        reply.end()

    with serving(ends_early) as served:
        began_ns = clock.monotonic_ns()
        rows = run([served.url], requests(8, tokens=400), schedule.wave(8), PATIENT).rows
    assert {row.error_class for row in rows} == {"wrong_token_count"}
    assert clock.monotonic_ns() - began_ns < PATIENT.stall_s * 1e9


def test_large_tokens_that_have_come_are_no_stall_when_several_tokens_are_read_at_once(monkeypatch):
    monkeypatch.setattr(client, "_STREAMS_A_TOKEN", 1)

    async def large(reply: Reply) -> None:
        reply.start()
        reply.token("x" * 60_000)
        await reply.writer.drain()
        await asyncio.sleep(0.05)
        reply.token("x" * 2_000_000, "stop")
        reply.usage(2)
        reply.done()
        reply.end()

    limits = Limits(connect_s=30, first_token_s=30, stall_s=1, total_s=60)
    with serving(large) as served:
        rows = run([served.url], requests(2, tokens=400), limits=limits, concurrency=64).rows
    assert [row.error_class for row in rows] == ["wrong_token_count"] * 2


async def end_after_a_pause(reply: Reply) -> int:
    """What comes after the first of two tokens; gives when that was sent."""
    await reply.writer.drain()
    await asyncio.sleep(0.05)
    sent_ns = clock.monotonic_ns()
    reply.token(finish="length")
    reply.usage(2)
    reply.done()
    reply.end()
    return sent_ns


def test_a_refusal_shorter_than_the_heads_before_it_is_read_when_several_tokens_are_read_at_once(monkeypatch):
    monkeypatch.setattr(client, "_STREAMS_A_TOKEN", 0.5)  # of one stream, two tokens are read at once

    async def refuses_the_third(reply: Reply) -> None:
        if reply.request_id != "r2":
            await answer_well(reply)
        else:
            reply.raw(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")

    with serving(refuses_the_third) as served:
        began_ns = clock.monotonic_ns()
        rows = run([served.url], requests(3), limits=PATIENT, concurrency=2).rows
    assert [row.error_class for row in rows] == ["", "", "http_status"]
    assert clock.monotonic_ns() - began_ns < PATIENT.first_token_s * 1e9


def test_a_first_token_is_not_awaited_with_the_second_after_a_refusal_with_a_long_head(monkeypatch):
    monkeypatch.setattr(client, "_STREAMS_A_TOKEN", 1)
    second_sent_ns = 0

    async def refuses_the_first_two(reply: Reply) -> None:
        nonlocal second_sent_ns
        if reply.request_id != "r2":
            reply.whole("503 Busy", b"{}", f"X-Why: {'x' * 4000}\r\n")
            return
        reply.start()
        reply.token()
        second_sent_ns = await end_after_a_pause(reply)

    with serving(refuses_the_first_two) as served:
        rows = run([served.url], requests(3, tokens=2), limits=PATIENT, concurrency=2).rows
    assert [row.error_class for row in rows] == ["http_status", "http_status", ""]
    assert rows[2].first_token_ns < second_sent_ns


def test_refusals_without_a_body_are_read_as_they_come_when_several_tokens_are_read_at_once(monkeypatch):
    monkeypatch.setattr(client, "_STREAMS_A_TOKEN", 1)
    monkeypatch.setattr(exchange, "_UNREAD_NS", PATIENT.total_s * 1e9)
    limits = Limits(connect_s=30, first_token_s=5, stall_s=30, total_s=60)

    async def refuses(reply: Reply) -> None:
        reply.raw(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")

    with serving(refuses) as served:
        rows = run([served.url], requests(6), limits=limits, concurrency=2).rows
    assert [row.error_class for row in rows] == ["http_status"] * 6
    assert rows[-1].due_ns - rows[0].due_ns < limits.first_token_s * 1e9


def test_after_a_reply_that_ended_early_the_next_is_read_as_it_comes(monkeypatch):
    monkeypatch.setattr(client, "_STREAMS_A_TOKEN", 0.5)
    monkeypatch.setattr(exchange, "_UNREAD_NS", PATIENT.total_s * 1e9)
    limits = Limits(connect_s=30, first_token_s=30, stall_s=2, total_s=60)

    async def ends_early(reply: Reply) -> None:
        reply.start()
        reply.token()
        await reply.writer.drain()
        await asyncio.sleep(0.05)
        reply.token(finish="stop")
        reply.done()
        reply.end()

    with serving(ends_early) as served:
        rows = run([served.url], requests(4, tokens=400), limits=limits, concurrency=1).rows
    assert [row.error_class for row in rows] == [""] * 4
    assert rows[3].due_ns - rows[1].due_ns < limits.stall_s * 1e9


def test_a_first_token_after_a_shorter_head_than_the_last_is_not_awaited_with_the_second(monkeypatch):
    monkeypatch.setattr(client, "_STREAMS_A_TOKEN", 0.5)
    second_sent_ns = {}

    async def every_second_head_is_long(reply: Reply) -> None:
        long = reply.request_id in ("r1", "r3")
        padding = b"X-Padding: " + b"x" * 900 * long
        reply.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + padding + b"\r\n\r\n")
        reply.token()
        second_sent_ns[reply.request_id] = await end_after_a_pause(reply)

    with serving(every_second_head_is_long) as served:
        rows = run([served.url], requests(5, tokens=2), limits=PATIENT, concurrency=1).rows
    assert [row.error_class for row in rows] == [""] * 5
    assert all(row.first_token_ns < second_sent_ns[row.request_id] for row in rows)


def test_a_first_token_that_a_shorter_head_hid_until_the_second_came_is_said_to_have_lain_there(monkeypatch):
    monkeypatch.setattr(client, "_STREAMS_A_TOKEN", 0.5)

    async def only_the_first_head_is_long(reply: Reply) -> None:
        padding = b"X-Padding: " + b"x" * 900 * (reply.request_id == "r0")
        reply.raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + padding + b"\r\n\r\n")
        reply.token()
        await end_after_a_pause(reply)

    with serving(only_the_first_head_is_long) as served:
        rows = run([served.url], requests(2, tokens=2), limits=PATIENT, concurrency=1).rows
    assert [(row.error_class, row.tainted) for row in rows] == [("", False), ("", True)]
    assert rows[1].read_delay_ns >= 0.05 * 0.98e9


def test_the_last_token_is_stamped_as_it_comes_when_most_of_it_came_before_the_rest(monkeypatch):
    monkeypatch.setattr(client, "_STREAMS_A_TOKEN", 1)
    usage_sent_ns = 0

    async def last_in_two_parts(reply: Reply) -> None:
        nonlocal usage_sent_ns
        reply.start()
        reply.token("a")
        await reply.writer.drain()
        await asyncio.sleep(0.05)
        last = b'data: {"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"length"}]}\n\n'
        for part in (last[:-4], last[-4:]):
            reply.chunk(part)
            await reply.writer.drain()
            await asyncio.sleep(0.05)
        usage_sent_ns = clock.monotonic_ns()
        reply.usage(2)
        reply.done()
        reply.end()

    with serving(last_in_two_parts) as served:
        rows = run([served.url], requests(2, tokens=2), limits=PATIENT, concurrency=2).rows[-1:]
    assert rows[0].error_class == ""
    assert rows[0].last_token_ns < usage_sent_ns


def test_a_first_token_of_which_half_came_with_the_head_is_not_awaited_with_the_second(monkeypatch):
    monkeypatch.setattr(client, "_STREAMS_A_TOKEN", 1)
    second_sent_ns = 0

    async def in_halves(reply: Reply) -> None:
        nonlocal second_sent_ns
        first = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}\n\n'
        chunk = b"%x\r\n%b\r\n" % (len(first), first)
        reply.start()
        reply.raw(chunk[:9])
        await reply.writer.drain()
        await asyncio.sleep(0.05)
        reply.raw(chunk[9:])
        second_sent_ns = await end_after_a_pause(reply)

    with serving(in_halves) as served:
        rows = run([served.url], requests(3, tokens=2), limits=PATIENT, concurrency=2).rows
    assert [row.error_class for row in rows] == [""] * 3
    assert rows[-1].sent_ns < rows[-1].first_token_ns < second_sent_ns


def test_how_long_to_wait_has_a_column_and_nothing_is_sent_again():
    with serving(too_many_requests) as served:
        rows = run([served.url], requests(3), schedule.wave(3), PATIENT).rows
    assert [(row.status, row.retry_after) for row in rows] == [(429, "7")] * 3
    assert sorted(served.request_ids) == ["r0", "r1", "r2"]


def test_a_first_token_that_came_with_others_may_have_come_long_before():
    """The reader is held up while two tokens come: the kernel's stamp is of the second, and the client must say so."""

    async def two_tokens_apart(reply: Reply) -> None:
        reply.start()
        await reply.writer.drain()
        started.wait()
        reply.token()
        await reply.writer.drain()
        await asyncio.sleep(0.1)
        reply.token(finish="stop")
        reply.end()
        await reply.writer.drain()
        written.set()

    def hold_up(progress: Progress) -> None:
        started.set()
        while not written.is_set():  # awake, as one is who computes or waits for a processor
            pass

    started, written = Event(), Event()
    with serving(two_tokens_apart) as served:
        row = run([served.url], requests(1, None), schedule.wave(1), PATIENT, hold_up).rows[0]
    assert row.tainted
    assert row.read_delay_ns is None or row.read_delay_ns >= 0.1e9


def test_a_closed_port_is_refused_and_was_never_sent_to():
    with socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        rows = run([url], requests(3), schedule.wave(3), PATIENT).rows
    assert {row.error_class for row in rows} == {"refused"}
    assert {(row.sent_ns, row.connect_ns, row.status) for row in rows} == {(None, None, None)}


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000",
        "ftp://host/",
        "http://",
        "http://host:eighty",
        "http://[::1",
        "nonsense",
        "http://a..b:1",
        "http://h/a\r\nX: y",
    ],
)
def test_what_is_no_address_is_said_before_anything_is_sent(url):
    with pytest.raises(UsageError, match="not the address of an endpoint"):
        run([url], requests(1), schedule.wave(1))


# ---------------------------------------------------------------- tokens


def test_the_servers_usage_counts_whatever_the_chunks_are():
    row = one(four_tokens_a_chunk)
    assert (row.completion_tokens, row.prompt_tokens, row.tokens_estimated) == (8, 5, False)


def test_without_usage_chunks_are_counted_and_called_an_estimate():
    row = one(no_done)
    assert (row.completion_tokens, row.tokens_estimated) == (1, True)


def test_stream_options_that_are_refused_are_left_out_once_and_then_from_the_start():
    async def old_server(reply: Reply) -> None:
        if "stream_options" in reply.request:
            reply.whole("400 Bad Request", b'{"error":{"message":"Unknown parameter: stream_options"}}')
        else:
            await no_done(reply)

    with serving(old_server) as served:
        rows = run([served.url], requests(3, None), limits=PATIENT, concurrency=1).rows
    assert [row.error_class for row in rows] == ["", "", ""]
    assert all(row.tokens_estimated for row in rows)
    assert served.request_ids == ["r0", "r0", "r1", "r2"]


def test_another_bad_request_is_not_sent_again():
    async def refuse(reply: Reply) -> None:
        reply.whole("400 Bad Request", b'{"error":{"message":"prompt too long"}}')

    with serving(refuse) as served:
        row = run([served.url], requests(1), schedule.wave(1), PATIENT).rows[0]
    assert (row.error_class, row.status, served.request_ids) == ("http_status", 400, ["r0"])


# ---------------------------------------------------------------- time


def test_stamps_of_a_request_are_in_order_and_arrive_before_they_are_read():
    row = one(answer_well)
    assert row.due_ns <= row.sent_ns <= row.first_token_ns <= row.last_token_ns <= row.done_ns
    assert row.connect_ns > 0
    assert row.read_delay_ns is None or row.read_delay_ns >= 0


def test_an_open_loop_reports_the_queue_from_the_moment_each_request_was_due():
    service_s, gap_s, count = 0.05, 0.01, 8
    slot = asyncio.Semaphore(1)

    async def one_slot(reply: Reply) -> None:
        async with slot:
            await asyncio.sleep(service_s)
        await answer_well(reply)

    with serving(one_slot) as served:
        result = run([served.url], requests(count), schedule.constant(1 / gap_s, count), PATIENT)
    waited_s = [(row.first_token_ns - row.due_ns) / 1e9 for row in result.rows]
    queueing_s = [service_s * (i + 1) - gap_s * i for i in range(count)]
    assert sum(waited_s) / count >= 0.98 * sum(queueing_s) / count > 3 * service_s


def test_due_times_are_kept_to_the_schedule_and_nothing_is_sent_early():
    offsets = schedule.poisson(200.0, 20, Random(3))
    with serving(answer_well) as served:
        result = run([served.url], requests(20), offsets, PATIENT)
    assert [row.due_ns - result.start_ns for row in result.rows] == offsets
    assert all(row.sent_ns >= row.due_ns for row in result.rows)


# ---------------------------------------------------------------- many


def test_a_closed_loop_holds_the_concurrency_on_warm_connections():
    async def all_at_once(reply: Reply) -> None:
        arrived.append(reply.request_id)
        if len(arrived) == 8:
            everybody.set()
        await everybody.wait()
        await answer_well(reply)

    arrived: list[str] = []
    everybody = asyncio.Event()
    with serving(all_at_once) as served:
        result = run([served.url], requests(40), limits=PATIENT, concurrency=8)
    assert (result.client.in_flight_reached, result.client.in_flight_asked) == (8, 8)
    assert served.connections == result.client.connections == 8
    assert sorted(served.request_ids) == sorted(row.request_id for row in result.rows)


def test_instances_take_turns_unless_a_request_names_its_own():
    with serving(answer_well) as one_instance, serving(answer_well) as other:
        load = [*requests(4), Request("own", requests(1)[0].body, CHAT, url_index=1)]
        rows = run([one_instance.url, other.url], load, schedule.wave(5), PATIENT).rows
    assert [row.url for row in rows] == [one_instance.url, other.url, one_instance.url, other.url, other.url]


def test_a_connection_that_the_server_closes_between_requests_is_replaced():
    async def close_after_each(reply: Reply) -> None:
        await answer_well(reply)
        await reply.writer.drain()
        reply.cut()

    with serving(close_after_each) as served:
        rows = run([served.url], requests(5), schedule.constant(20, 5), PATIENT).rows
    assert [row.error_class for row in rows] == [""] * 5


def test_a_body_larger_than_the_sockets_buffer_arrives_whole():
    async def echo_length(reply: Reply) -> None:
        reply.start()
        reply.token(str(len(reply.request["prompt"])), "stop")
        reply.usage(1, prompt_tokens=len(reply.request["prompt"]))
        reply.end()

    ids = prompts.session_prompts(1, "large", 1, 1_000_000, 30_000)[0]
    with serving(echo_length) as served:
        rows = run([served.url], [Request("r", prompts.completion_body("m", ids, 1))], schedule.wave(1), PATIENT).rows
    assert rows[0].prompt_tokens == 1_000_000


def test_after_a_reply_that_came_before_the_whole_body_was_sent_another_connection_is_used():
    refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"
    heads = []

    def refuse_unread(listening: socket) -> None:
        with ExitStack() as held:  # nothing more is read from a connection, and none is closed
            for _ in range(2):
                connection = held.enter_context(listening.accept()[0])
                heads.append(connection.recv(5))
                connection.sendall(refusal)
            done.wait()

    done = Event()
    load = [Request(name, bytes(32_000_000)) for name in ("r0", "r1")]
    with socket() as listening, ThreadPoolExecutor() as server:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        server.submit(refuse_unread, listening)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        limits = Limits(connect_s=30, first_token_s=2, stall_s=30, total_s=60)
        try:
            rows = run([url], load, concurrency=1, limits=limits).rows
        finally:
            done.set()
            listening.shutdown(SHUT_RDWR)
    assert [(row.error_class, row.status) for row in rows] == [("http_status", 413)] * 2
    assert heads == [b"POST "] * 2


def test_tls_is_spoken_and_its_certificate_checked(tmp_path, monkeypatch):
    if process.find_tool("openssl") is None:
        pytest.skip("openssl is not installed")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    made = process.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", str(key), "-out", str(certificate), *subject]
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with serving(answer_well, context) as served:
        distrusted = run([served.url], requests(2), schedule.wave(2), PATIENT)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        trusted = run([served.url], requests(20), limits=PATIENT, concurrency=4)
    assert [row.error_class for row in distrusted.rows] == ["refused"] * 2
    assert "certificate" in distrusted.rows[0].error_text.lower()
    assert [row.error_class for row in trusted.rows] == [""] * 20


FAULTS = {
    answer_well: "",
    no_done: "",
    cut: "truncated",
    reset: "truncated",
    too_many_requests: "http_status",
    error_event: "error_event",
    empty: "empty",
    broken_json: "malformed",
    too_few_tokens: "wrong_token_count",
    hang: "timeout_first_token",
}


def load_with_faults(count: int) -> tuple[LoadResult, dict[str, str], list[Progress]]:
    rng, expected, seen = Random(11), {}, []
    scripts, weights = list(FAULTS), [40, 10, 8, 8, 8, 8, 8, 8, 8, 2]

    async def any_fault(reply: Reply) -> None:
        script = rng.choices(scripts, weights)[0]
        expected[reply.request_id] = FAULTS[script]
        await script(reply)

    limits = Limits(connect_s=30, first_token_s=2.0, stall_s=30, total_s=60)
    with serving(any_fault) as served:
        result = run([served.url], requests(count), limits=limits, concurrency=32, on_progress=seen.append)
    assert sorted(served.request_ids) == sorted(expected)
    return result, expected, seen


def test_under_random_faults_every_request_is_accounted_for_exactly_once():
    count = 500
    result, expected, seen = load_with_faults(count)
    assert [row.request_id for row in result.rows] == [f"r{i}" for i in range(count)]
    assert {row.request_id: row.error_class for row in result.rows} == expected
    assert len(Counter(expected.values())) == len(set(FAULTS.values()))
    failed = sum(not row.ok for row in result.rows)
    assert seen[-1] == Progress(total=count, done=count, failed=failed, in_flight=0)


def test_what_goes_wrong_in_the_client_itself_is_raised_and_not_waited_for():
    class OwnMistake(BaseException):
        pass

    def on_progress(progress: Progress) -> None:
        raise OwnMistake

    with serving(hang) as served, pytest.raises(OwnMistake):
        run([served.url], requests(1), schedule.wave(1), PATIENT, on_progress)
