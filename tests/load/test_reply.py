"""What a reply says, whatever shape its chunks have."""

from __future__ import annotations

import json
from hashlib import blake2b
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.load.reply import HEAD_CHARACTERS, Reply, error_text

SHAPES = list(product((True, False), ("content", "reasoning", "role"), ({}, {"finish_reason": "stop"})))


def text_chunk(text: str, **more: object) -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": {"content": text}, **more}]}).encode()


def take(reply: Reply, payloads: list[bytes], stamp_ns: int) -> None:
    """As an exchange takes a read of chunks that are one event each."""
    events = [b"data: %b\n\n" % payload for payload in payloads]
    chunks = [b"%x\r\n%b\r\n" % (len(event), event) for event in events]
    taken_bytes = reply.add_repeats(b"".join(chunks), stamp_ns)
    while taken_bytes > 0:
        taken_bytes -= len(chunks.pop(0))
        payloads = payloads[1:]
    assert taken_bytes == 0
    reply.add(payloads, stamp_ns)


def test_events_of_one_read_share_its_stamp_and_are_counted():
    reply = Reply()
    reply.add([text_chunk("a"), text_chunk("b")], 10)
    reply.add([text_chunk("c")], 20)
    assert (reply.first_token_ns, reply.last_token_ns) == (10, 20)
    assert (reply.token_events, reply.shared_reads, reply.first_shared) == (3, 1, True)


def test_a_later_shared_read_does_not_taint_the_first_token():
    reply = Reply()
    reply.add([text_chunk("a")], 10)
    reply.add([text_chunk("b"), text_chunk("c")], 20)
    assert (reply.shared_reads, reply.first_shared) == (1, False)


def test_the_digest_depends_on_the_text_and_not_on_how_it_is_cut():
    one, other, different = Reply(), Reply(), Reply()
    one.add([text_chunk("缓存"), text_chunk("命中")], 1)
    other.add([text_chunk("缓存命中")], 1)
    different.add([text_chunk("缓存命")], 1)
    assert one.output_digest == other.output_digest != different.output_digest
    assert Reply().output_digest == ""


def test_half_a_surrogate_pair_in_each_of_two_chunks_is_text():
    reply = Reply()
    reply.add([b'{"choices":[{"delta":{"content":"\\ud83d"}}]}', b'{"choices":[{"delta":{"content":"\\ude00"}}]}'], 1)
    assert (reply.token_events, reply.malformed) == (2, "")


@given(st.lists(st.tuples(st.sampled_from(['"', "\\", "a", "缓", "\n", "null", "[DONE]"]), st.sampled_from(SHAPES))))
def test_what_a_chunk_shares_with_the_one_before_never_hides_what_it_says(chunks):
    reply, texts, finish = Reply(), [], ""
    for stamp, (text, shape) in enumerate(chunks):
        ascii_only, key, more = shape
        choice = {"index": 0, "delta": {"model": "a", key: text}, **more}
        take(reply, [json.dumps({"model": "a", "choices": [choice]}, ensure_ascii=ascii_only).encode()], stamp)
        texts.append(text if key != "role" else "")
        finish = more.get("finish_reason") or finish
    said = "".join(texts)
    assert reply.output_digest == (blake2b(said.encode(), digest_size=16).hexdigest() if said else "")
    assert reply.output_head == said[:HEAD_CHARACTERS]
    assert reply.token_events == sum(map(bool, texts))
    assert (reply.finish_reason, reply.malformed) == (finish, "")


def test_an_event_of_several_lines_is_no_model_for_one_that_is_not():
    reply = Reply()
    payload = b'{"model":"m",\n"choices":[{"text":"a"}]}'
    reply.add([payload], 1)
    chunk = b"data: %b\n\n" % payload  # its second line is no field
    assert reply.add_repeats(b"%x\r\n%b\r\n" % (len(chunk), chunk), 2) == 0


def test_what_an_event_says_beside_its_text_is_said_again():
    reply, usage = Reply(), {"usage": {"completion_tokens": 1}}
    for payload in (text_chunk("a", finish_reason="stop"), text_chunk("", finish_reason="length")):
        take(reply, [payload], 1)
    take(reply, [text_chunk("b", finish_reason="stop")], 1)
    assert reply.finish_reason == "stop"
    take(reply, [json.dumps({"choices": [{"text": "c"}], **usage}).encode()], 2)
    take(reply, [json.dumps({"choices": [], "usage": {"completion_tokens": 9}}).encode()], 2)
    take(reply, [json.dumps({"choices": [{"text": "d"}], **usage}).encode()], 2)
    assert reply.completion_tokens == 1


@pytest.mark.parametrize(
    "payload",
    [
        b"{", b"[1]", b"1,2", b'"text"', b'{"choices":3}', b'{"choices":["x"]}',
        b'{"choices":[{"text":5}]}', b'{"choices":[{"delta":{"content":5}}]}',
        *(b'{"usage":{"completion_tokens":%b}}' % count for count in (b'"x"', b"-1", b"NaN", b"1e999", b"9" * 99)),
        b'{"usage":{"prompt_tokens_details":{"cached_tokens":9223372036854775808}}}',
    ],
)  # fmt: skip
def test_what_is_no_completion_chunk_is_malformed_and_quoted(payload):
    reply = Reply()
    reply.add([text_chunk("a"), payload, text_chunk("b", finish_reason="stop")], 1)
    error_class, text = reply.failure(None)
    assert error_class == "malformed"
    assert payload.decode() in text
    assert reply.token_events == 2


def test_json_nested_without_end_is_malformed():
    reply = Reply()
    reply.add([b"[" * 100_000], 1)
    assert reply.failure(None)[0] == "malformed"


def test_a_servers_words_are_quoted_on_one_line_as_text_that_every_file_and_terminal_takes():
    reply = Reply()
    reply.add(
        [b'{"choices":[{"text":"a","finish_reason":"\\ud800"}]}', b'{"error":{"message":"\\u001b[2J\\r\\n\\ud800 x"}}'],
        1,
    )
    assert reply.finish_reason == "\ufffd"
    assert reply.failure(None) == ("error_event", "\ufffd[2J \ufffd x")


@pytest.mark.parametrize(
    ("completion_tokens", "expected", "error_class"),
    [(64, 64, ""), (40, 64, "wrong_token_count"), (40, None, ""), (None, 64, "")],
)
def test_the_servers_count_is_held_against_what_was_asked(completion_tokens, expected, error_class):
    reply = Reply()
    usage = json.dumps({"choices": [], "usage": {"completion_tokens": completion_tokens}}).encode()
    reply.add([text_chunk("a", finish_reason="length"), usage, b"[DONE]"], 1)
    assert reply.failure(expected)[0] == error_class


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"error": {"message": "boom", "code": 500}}, "boom"),
        ({"error": "not found"}, "not found"),
        ({"error": {"code": 500}}, "{'code': 500}"),
        ({"detail": "no such route"}, "{'detail': 'no such route'}"),
        ("busy", "busy"),
    ],
)
def test_an_errors_text_is_found_where_servers_put_it(document, text):
    assert error_text(document) == text
