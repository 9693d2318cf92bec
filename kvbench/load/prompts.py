"""Prompts made of token ids, and request bodies made of prompts. Pure, and the same for the same seed and salt.

Token ids give the exact prompt length on every engine, with no tokenizer between: text that is decoded and encoded
again comes out a few tokens longer or shorter.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

_FIRST_ID = 10  # below are the ids that models reserve (padding, begin, end)
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_WORDS = ("cache", "page", "token", "prefix", "block", "engine", "storage", "memory", "session", "wave", "node")


def session_prompts(seed: int, salt: str, count: int, tokens: int, vocabulary: int) -> list[list[int]]:
    """`count` prompts of `tokens` ids each, drawn evenly from [10, `vocabulary`).

    Each session has a random stream of its own, so no two share a page. `salt` tells run, cell, round and attempt
    apart, so that nothing is warm by accident.
    """
    return [session_prompt(seed, salt, session, tokens, vocabulary) for session in range(count)]


def session_prompt(seed: int, salt: str, session: int, tokens: int, vocabulary: int) -> list[int]:
    """The prompt of one session."""
    return _stream(seed, salt, session).choices(range(_FIRST_ID, vocabulary), k=tokens)


def block_tokens(seed: int, block: str, tokens: int, vocabulary: int) -> list[int]:
    """The ids of a block of a workload: the same for the same seed and name, and a shorter one is a longer one's
    beginning."""
    return Random(f"{seed}/{block}").choices(range(_FIRST_ID, vocabulary), k=tokens)


def session_text(seed: int, salt: str, session: int, words: int) -> str:
    """A prompt of `words` words, for endpoints that take text only: its length in tokens is not exact."""
    return " ".join(_stream(seed, salt, session).choices(_WORDS, k=words))


def _stream(seed: int, salt: str, session: int) -> Random:
    return Random(f"{seed}/{salt}/{session}")


def completion_body(model: str, prompt: Sequence[int], output_tokens: int) -> bytes:
    """A body for /v1/completions that asks for exactly `output_tokens` tokens of the likeliest continuation."""
    return _body({"model": model, "prompt": prompt, "max_tokens": output_tokens})


def chat_body(model: str, text: str, output_tokens: int) -> bytes:
    """A body for /v1/chat/completions with one message of the user."""
    messages = [{"role": "user", "content": text}]
    return _body({"model": model, "messages": messages, "max_tokens": output_tokens})


def without_stream_options(body: bytes) -> bytes:
    """The same request for a server that does not know `stream_options`, and so sends no usage."""
    return _encode({key: value for key, value in json.loads(body).items() if key != "stream_options"})


def _body(request: dict[str, Any]) -> bytes:
    how = {"temperature": 0, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
    return _encode(request | how)


def _encode(document: dict[str, Any]) -> bytes:
    return _JSON.encode(document).encode()
