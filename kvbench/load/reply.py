"""What a streamed OpenAI completion says, folded from its events in the order they came. Pure.

Chat and text completions alike. A chunk is not a token: it may carry several, or none (a role, a usage block).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, cast

from pydantic_core import from_json

from kvbench.load import repeats

HEAD_CHARACTERS = 64  # kept of every text, to compare the beginnings of texts of different lengths
_DONE = b"[DONE]"
_SHOWN_CHARACTERS = 200  # of a text that is quoted in an error
_MOST_TOKENS = 10**15  # no reply has more, and every column of a table takes it


class Reply:
    """One reply so far. Stamps are those of the reads that the events came in.

    A token event is one with text: content, reasoning, or a tool call. `shared_reads` counts those that came in the
    same read as the token event before them and so have no stamp of their own; `first_shared` says that the first
    token is one of such a group. Token counts are the server's, from `usage`; None where it sent none.
    """

    __slots__ = (
        "_after",
        "_before",
        "_text",
        "cached_tokens",
        "completion_tokens",
        "done_ns",
        "error",
        "finish_reason",
        "first_shared",
        "first_token_ns",
        "last_token_ns",
        "malformed",
        "prompt_tokens",
        "shared_reads",
        "token_events",
    )

    def __init__(self) -> None:
        self.first_token_ns: int | None = None
        self.last_token_ns: int | None = None
        self.done_ns: int | None = None  # [DONE]
        self.finish_reason = ""
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.token_events = 0
        self.shared_reads = 0
        self.first_shared = False
        self.error = ""
        self.malformed = ""
        self._before = self._after = b""  # what stood around the text of an event that said nothing else
        self._text = bytearray()

    @property
    def ended(self) -> bool:
        """Whether the server said that this was all."""
        return self.done_ns is not None or self.finish_reason != ""

    @property
    def output_digest(self) -> str:
        """BLAKE2b of the joined text in UTF-8, as hexadecimal; "" for no text."""
        return blake2b(self._text, digest_size=16).hexdigest() if self._text else ""

    @property
    def output_head(self) -> str:
        """How the text begins."""
        return self._text[: 4 * HEAD_CHARACTERS].decode("utf-8", "replace")[:HEAD_CHARACTERS]

    def add(self, payloads: Sequence[bytes], stamp_ns: int) -> None:
        """Take the data of the events of one read."""
        for payload in payloads:
            self._add_event(payload, stamp_ns)

    def add_repeats(self, received: bytes, stamp_ns: int) -> int:
        """Take the events that a read begins with, as far as they differ from one before in their texts alone.

        Returns how many bytes of whole chunks that were.
        """
        texts, taken_bytes = repeats.texts(received, self._before, self._after) if self._before else ([], 0)
        if texts:
            self._add_texts("".join(texts).encode(), len(texts), stamp_ns)
        return taken_bytes

    def _add_event(self, payload: bytes, stamp_ns: int) -> None:
        if payload.strip() == _DONE:
            self.done_ns = stamp_ns
        elif type(chunk := document_of(payload)) is dict:
            try:
                self._add_chunk(chunk, payload, stamp_ns)
            except (AttributeError, TypeError, ValueError, OverflowError):  # a field that is not of the API's type
                self.malformed = self.malformed or f"not a completion chunk: {_quote(payload)}"
        elif payload.strip():
            self.malformed = self.malformed or f"not a JSON object: {_quote(payload)}"

    def _add_chunk(self, chunk: dict[str, Any], payload: bytes, stamp_ns: int) -> None:
        if chunk.get("error"):
            self.error = self.error or error_text(chunk)
            return
        if usage := chunk.get("usage"):
            self._add_usage(usage)
        choices = chunk.get("choices") or ()
        for choice in choices:
            if reason := choice.get("finish_reason"):
                self.finish_reason = shown(str(reason))
            if text := _text(choice).encode("utf-8", "surrogatepass"):
                self._add_texts(text, 1, stamp_ns)
                if len(choices) == 1 and not (usage or reason):  # a repeat says nothing but its text
                    self._remember(payload, text)

    def _remember(self, payload: bytes, text: bytes) -> None:
        """Keep what stands around the text, if it is sure where that is."""
        before, quote, after = payload.partition(b'"%b"' % text)
        if quote and quote not in after and b"\\" not in payload and b"\n" not in payload:
            self._before, self._after = before + b'"', b'"' + after

    def _add_texts(self, joined: bytes, count: int, stamp_ns: int) -> None:
        if self.first_token_ns is None:
            self.first_token_ns = stamp_ns
        shared = count if stamp_ns == self.last_token_ns else count - 1
        if shared:
            self.shared_reads += shared
            self.first_shared |= stamp_ns == self.first_token_ns
        self.last_token_ns = stamp_ns
        self.token_events += count
        self._text += joined

    def _add_usage(self, usage: Mapping[str, Any]) -> None:
        if (count := usage.get("prompt_tokens")) is not None:
            self.prompt_tokens = _tokens(count)
        if (count := usage.get("completion_tokens")) is not None:
            self.completion_tokens = _tokens(count)
        if (count := (usage.get("prompt_tokens_details") or {}).get("cached_tokens")) is not None:
            self.cached_tokens = _tokens(count)

    def failure(self, expected_completion_tokens: int | None) -> tuple[str, str]:
        """Class and text of what is wrong with a reply that has come to its end; `("", "")` when nothing is."""
        if self.error:
            return "error_event", self.error
        if self.malformed:
            return "malformed", self.malformed
        if not self.ended:
            return "truncated", f"ended after {self.token_events} chunks without [DONE] or finish_reason"
        if self.first_token_ns is None:
            return "empty", "ended without any text"
        if None not in (expected_completion_tokens, self.completion_tokens):
            wrong = self.completion_tokens != expected_completion_tokens
            text = f"{self.completion_tokens} completion tokens instead of {expected_completion_tokens}"
            return ("wrong_token_count", text) if wrong else ("", "")
        return "", ""


def error_text(document: object) -> str:
    """The message of an OpenAI error object, or of whatever stands in its place."""
    error = document.get("error") if isinstance(document, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return shown(str(message or error or document))


def shown(text: str) -> str:
    """A server's words on one line, so long as they are quoted, with nothing in them that a terminal obeys."""
    line = " ".join(text[: 2 * _SHOWN_CHARACTERS].split())[:_SHOWN_CHARACTERS]
    return "".join(character if character.isprintable() else "\ufffd" for character in line)


def document_of(text: bytes) -> object:
    """A text as JSON, or None."""
    try:
        return from_json(text)
    except ValueError:
        pass
    try:
        return json.loads(text)  # takes half a surrogate pair, too
    except (ValueError, RecursionError):
        return None


def _text(choice: Mapping[str, Any]) -> str:
    """The text that a choice of a chunk adds, whatever kind it is."""
    delta = choice.get("delta")
    if delta is None:
        return choice.get("text") or ""
    if said := delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning"):
        return cast(str, said)
    functions = [call.get("function") or {} for call in delta.get("tool_calls") or ()]
    return "".join((function.get("name") or "") + (function.get("arguments") or "") for function in functions)


def _tokens(count: Any) -> int:
    """A count of `usage`. Raises ValueError, or what int() does, for what is none."""
    if not 0 <= (tokens := int(count)) <= _MOST_TOKENS:
        raise ValueError
    return tokens


def _quote(payload: bytes) -> str:
    return shown(payload.decode("utf-8", "replace"))
