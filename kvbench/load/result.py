"""What is sent and what came back: the types of a load. Stamps are CLOCK_MONOTONIC in nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass

FAILURE_CLASSES = (
    "refused",  # no connection
    "timeout_first_token",
    "timeout_total",
    "stall",  # no event for too long after the first token
    "truncated",  # ended without [DONE] or finish_reason
    "error_event",  # an error object inside a reply of status 200
    "empty",  # ended properly, without any text
    "malformed",  # not HTTP, not a stream of events, or not JSON
    "http_status",
    "wrong_token_count",
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long anything may take. Every wait ends. From sending: `first_token_s` and `total_s`."""

    connect_s: float = 10.0
    first_token_s: float = 600.0
    stall_s: float = 120.0
    total_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Request:
    """One request, its body ready to be sent. What is None in `expected_…` is not expected, and not checked.

    `url_index` names the instance it goes to; None: the instances take turns. With `after`, the id of another
    request, it is due `think_ns` after that one is done, however that ended.
    """

    id: str
    body: bytes
    path: str = "/v1/completions"
    expected_prompt_tokens: int | None = None
    expected_completion_tokens: int | None = None
    expected_cached_tokens: int | None = None
    url_index: int | None = None
    after: str = ""
    think_ns: int = 0


@dataclass(frozen=True, slots=True)
class RequestRow:
    """What became of one request; a column each in the Parquet file.

    `sent_ns`: when its first byte was handed to the kernel. `connect_ns`: how long its connection took to open, TLS
    included, whenever that was. `done_ns`: [DONE], else the end of the reply, or when it was given up.
    `read_delay_ns`: how long the first token lay in the kernel before it was read; None where the kernel gave no stamp.
    `tainted`: other tokens came in the same read as the first, so its stamp may be late; then `read_delay_ns` is the
    longest that it may have been.
    `tokens_estimated`: the server sent no usage, and chunks with text were counted.
    `expected_…`: as the request had them. `output_digest`: BLAKE2b of the text; `output_head`: how it begins.
    `error_class` is "" or one of FAILURE_CLASSES. `retry_after`: what the server said of it; nothing is sent again.
    """

    request_id: str
    url: str
    due_ns: int
    sent_ns: int | None
    connect_ns: int | None
    first_token_ns: int | None
    last_token_ns: int | None
    done_ns: int
    read_delay_ns: int | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    expected_prompt_tokens: int | None
    expected_completion_tokens: int | None
    expected_cached_tokens: int | None
    tokens_estimated: bool
    tainted: bool
    status: int | None
    error_class: str
    error_text: str
    output_digest: str
    finish_reason: str
    output_head: str = ""
    retry_after: str = ""

    @property
    def ok(self) -> bool:
        return self.error_class == ""


@dataclass(frozen=True, slots=True)
class ClientSelf:
    """What the client says of itself.

    `tainted_tokens`: those that came in the same read as the token before. `in_flight_asked`: the concurrency, or how
    many were due at once. `cpu_s`: of this process, from the first request to the last reply.
    """

    cpu_s: float
    tokens: int
    tainted_tokens: int
    in_flight_reached: int
    in_flight_asked: int
    connections: int

    @property
    def tainted_share(self) -> float:
        return self.tainted_tokens / max(1, self.tokens)


@dataclass(frozen=True, slots=True)
class LoadResult:
    """One row a request, in the order of the requests; `start_ns` is what due offsets count from."""

    rows: tuple[RequestRow, ...]
    client: ClientSelf
    start_ns: int
