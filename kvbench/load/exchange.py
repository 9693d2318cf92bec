"""One request and its reply, from due to done, and the row that is left of it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from kvbench.load.connection import Connection
from kvbench.load.endpoint import Endpoint
from kvbench.load.prompts import without_stream_options
from kvbench.load.reply import Reply, document_of, error_text
from kvbench.load.result import Limits, Request, RequestRow
from kvbench.load.sse import EventParser

_BODY_BYTES = 64 * 1024  # kept of a reply that is no stream
_NO_STREAMS = ("application/json", "text/html")  # a page comes from what stands between
_PART = 0.5  # of the last token: texts differ in length, and what ends the reply comes with it
_UNREAD_NS = 300_000_000  # tokens do not lie longer than that until more have come
_LAST_TOKENS = 8  # read by themselves: what is parsed when a reply ends keeps the next request waiting


class Exchange:
    """Receives the reply to one request. `finished` is called once, with this.

    Where the number of tokens to come is known, `tokens_a_read` are read at once between the first and the last,
    whose stamps alone make TTFT and TPOT: both are read as they come, the first with the head of the reply, the last
    with a few that came before it. The kernel stamps a read with the arrival of what came last in it.
    """

    def __init__(
        self,
        request: Request,
        endpoint: Endpoint,
        due_ns: int,
        finished: Callable[[Exchange], None],
        tokens_a_read: int = 1,
    ) -> None:
        self.request, self.endpoint, self.due_ns = request, endpoint, due_ns
        self._tokens_a_read = tokens_a_read
        self._finished = finished
        self.connection: Connection | None = None
        self.connect_ns: int | None = None
        self.sent_ns: int | None = None
        self.reply = Reply()
        self.failure = ("", "")
        self._body = request.body
        self._read_ns: int | None = None  # when the first token was read
        self._unread_ns: int | None = None  # how long it can have lain there, when others came with it
        self._done_ns = 0
        self._start_over()

    def _start_over(self) -> None:
        self._status: int | None = None
        self._headers: dict[str, str] = {}
        self._unseen = False  # a head shorter than the one awaited: the first token may have come without a word of it
        self._events = EventParser()
        self._whole: bytearray | None = None  # the body of a reply that is no stream
        self._last_event_ns = 0
        self._event_bytes = inf  # of events with text, in the mean of the read with the shortest
        self._alike_bytes = self._alike_tokens = 0  # of all that came as whole chunks, each with one text
        self._gathers = self._tokens_a_read > 1 and self._chunks_asked() > 0 and not self.endpoint.ends_early

    def send(self, connection: Connection) -> None:
        """Send the request; without `stream_options` where the server has refused them before."""
        self.connection, self.connect_ns = connection, connection.connect_ns
        if not self.endpoint.knows_stream_options and self._body is self.request.body:
            self._body = without_stream_options(self._body)
        head = self.endpoint.head(self.request.path, self.request.id, len(self._body))
        awaited_bytes = (self.endpoint.head_bytes or 0) + 1 if self._gathers else 1
        sent_ns = connection.send(head + self._body, self, awaited_bytes)
        if self.sent_ns is None:
            self.sent_ns = sent_ns

    def fail(self, error_class: str, text: str, now_ns: int) -> None:
        """Give up, for a reason that is not in the reply."""
        self.failure = (error_class, text)
        self._finish(now_ns)

    def expire(self, now_ns: int, limits: Limits) -> None:
        """Give up when a limit has passed, unless what has come by then is a whole reply that was left open."""
        assert self.connection is not None
        silent_ns = now_ns - max(self._last_event_ns, self.sent_ns or 0)
        if self._overdue(now_ns, limits) or (self.connection.awaits_more and silent_ns > _UNREAD_NS):
            self.connection.catch_up()
        overdue = self._overdue(now_ns, limits)  # what has come by now may say otherwise
        if overdue is None or self._done_ns:
            return
        if self.reply.done_ns is not None or self.reply.error:
            self.on_end(now_ns, "")
        else:
            self.fail(*overdue, now_ns)

    def _overdue(self, now_ns: int, limits: Limits) -> tuple[str, str] | None:
        if self.sent_ns is None:
            return None
        waited_s = (now_ns - self.sent_ns) / 1e9
        waiting_for_first = self.reply.first_token_ns is None
        if waiting_for_first and waited_s > limits.first_token_s:
            return "timeout_first_token", f"no token within {limits.first_token_s:g} s"
        if not waiting_for_first and (now_ns - self._last_event_ns) / 1e9 > limits.stall_s:
            return "stall", f"no event for {limits.stall_s:g} s after the first token"
        if waited_s > limits.total_s:
            return "timeout_total", f"not done within {limits.total_s:g} s"
        return None

    # what the connection calls

    def on_status(self, status: int, headers: dict[str, str], head_bytes: int) -> None:
        self._status, self._headers = status, headers
        if self.connection is not None:
            self.connection.await_bytes(1)
        if status != 200 or headers.get("content-type", "").startswith(_NO_STREAMS):
            self._whole, head_bytes = bytearray(), 0  # it may have no body, so that nothing comes after its head
        known = self.endpoint.head_bytes
        self._unseen = self._gathers and known is not None and head_bytes < known
        self.endpoint.head_bytes = head_bytes if known is None else min(known, head_bytes)

    def on_body(self, piece: bytes, stamp_ns: int, read_ns: int | None) -> None:
        if self._whole is not None:
            self._whole += piece[: _BODY_BYTES - len(self._whole)]
            return
        if payloads := self._events.feed(piece):
            self.reply.add(payloads, stamp_ns)
            self._events_came(stamp_ns, read_ns, min(self._event_bytes, len(piece) / len(payloads)))
        if not self._events.between_events and self.connection is not None:
            self.connection.await_bytes(1)  # the rest of an event may be less than what is awaited

    def take_chunks(self, received: bytes, stamp_ns: int, read_ns: int | None) -> int:
        if self._whole is not None or not self._events.between_events:
            return 0
        before = self.reply.token_events
        if taken_bytes := self.reply.add_repeats(received, stamp_ns):
            tokens = self.reply.token_events - before
            self._alike_bytes += taken_bytes
            self._alike_tokens += tokens
            self._event_bytes = min(self._event_bytes, taken_bytes / tokens)
            self._events_came(stamp_ns, read_ns, self._event_bytes)
        return taken_bytes

    def _events_came(self, stamp_ns: int, read_ns: int | None, event_bytes: float) -> None:
        self._last_event_ns = stamp_ns
        if self.reply.first_token_ns == stamp_ns and self.connection is not None:
            self._read_ns = read_ns
            if self.reply.first_shared and self._unread_ns is None:
                since_sent_ns = (read_ns or stamp_ns) - (self.sent_ns or 0)
                self._unread_ns = since_sent_ns if self._unseen else self.connection.unread_ns()
        if self._gathers and self.reply.token_events:
            self._gather(event_bytes)

    def _gather(self, event_bytes: float) -> None:
        """Await several tokens at once, of the last ones what stands before the last, and a part of that."""
        assert self.connection is not None
        before_last = self._chunks_asked() - self.reply.token_events - 1
        if self.endpoint.chunk_bytes is not None:
            event_bytes = min(self.endpoint.chunk_bytes, event_bytes)
        elif self.reply.token_events == 1:
            before_last //= 2  # the first may be larger than what follows
        most = before_last - _LAST_TOKENS if before_last > 2 * _LAST_TOKENS else before_last + _PART
        self.connection.await_bytes(max(1, int(min(self._tokens_a_read, most) * event_bytes)))

    def _chunks_asked(self) -> int:
        """In how many chunks what was asked for comes, by the replies of the endpoint; 0 where that is not known."""
        return int((self.request.expected_completion_tokens or 0) / self.endpoint.tokens_a_chunk)

    def on_end(self, stamp_ns: int, problem: str) -> None:
        if self._whole is not None:
            if self._refuses_stream_options() and self._resend():
                return
            self.failure = self._failure_of_whole()
        else:
            self.failure = self.reply.failure(self.request.expected_completion_tokens)
        error_class, text = self.failure
        if problem and error_class == "truncated":
            not_http = problem.startswith("not HTTP")
            self.failure = ("malformed" if not_http else "truncated", f"{problem}; {text}")
        self._finish(stamp_ns)

    # the rest

    def _refuses_stream_options(self) -> bool:
        return self._status in (400, 422) and b"stream_options" in (self._whole or b"")

    def _resend(self) -> bool:
        """Ask once more, without `stream_options`; False when that has been done or the connection is gone."""
        if self._body is not self.request.body or self.connection is None or not self.connection.open:
            return False
        self.endpoint.knows_stream_options = False
        self._start_over()
        self.send(self.connection)
        return True

    def _failure_of_whole(self) -> tuple[str, str]:
        whole = bytes(self._whole or b"")
        document = document_of(whole) or whole.decode("utf-8", "replace")
        text = error_text(document)
        if self._status != 200:
            wait = self._headers.get("retry-after")
            return "http_status", f"HTTP {self._status}: {text}" + (f" (Retry-After: {wait})" if wait else "")
        if isinstance(document, dict) and "error" in document:
            return "error_event", text
        return "malformed", f"not a stream of events: {text}"

    def _finish(self, now_ns: int) -> None:
        self._done_ns = self.reply.done_ns or now_ns
        if tokens := self.reply.completion_tokens:
            self.endpoint.tokens_a_chunk = max(self.endpoint.tokens_a_chunk, tokens / max(1, self.reply.token_events))
        self.endpoint.ends_early = self.reply.token_events < self._chunks_asked()
        if self._alike_tokens:
            mean_bytes, shortest_bytes = self._alike_bytes / self._alike_tokens, self.endpoint.chunk_bytes
            self.endpoint.chunk_bytes = mean_bytes if shortest_bytes is None else min(mean_bytes, shortest_bytes)
        self.failure = (self.failure[0], self.endpoint.key.hide(self.failure[1]))
        self._finished(self)

    def row(self) -> RequestRow:
        """What is left of the request when it is finished."""
        reply, estimated = self.reply, self.reply.completion_tokens is None
        return RequestRow(
            request_id=self.request.id,
            url=self.endpoint.url,
            due_ns=self.due_ns,
            sent_ns=self.sent_ns,
            connect_ns=self.connect_ns,
            first_token_ns=reply.first_token_ns,
            last_token_ns=reply.last_token_ns,
            done_ns=self._done_ns,
            read_delay_ns=self._read_delay_ns(),
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=(reply.token_events or None) if estimated else reply.completion_tokens,
            cached_tokens=reply.cached_tokens,
            expected_prompt_tokens=self.request.expected_prompt_tokens,
            expected_completion_tokens=self.request.expected_completion_tokens,
            expected_cached_tokens=self.request.expected_cached_tokens,
            tokens_estimated=estimated and reply.token_events > 0,
            tainted=reply.first_shared,
            status=self._status,
            error_class=self.failure[0],
            error_text=self.failure[1],
            output_digest=reply.output_digest,
            finish_reason=reply.finish_reason,
            output_head=reply.output_head,
            retry_after=self._headers.get("retry-after", ""),
        )

    def _read_delay_ns(self) -> int | None:
        """How long the first token lay unread; at most, when the kernel's stamp is of another in the same read."""
        if self._read_ns is None or self.reply.first_token_ns is None:
            return None
        return self._read_ns - self.reply.first_token_ns if self._unread_ns is None else self._unread_ns
