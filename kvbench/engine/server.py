"""The emulated engine over HTTP, as OpenAI's API has it and vLLM serves it: completions, chat, models, metrics.

What a request computes is time alone; its words follow from its prompt (`text.py`), and it never ends before
`max_tokens`. Its KV pages are real: bytes read from and written to the engine's directories.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import json
import logging
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import uvicorn
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from kvbench import clock
from kvbench.engine import text
from kvbench.engine.driver import Driver
from kvbench.engine.metrics import exposition
from kvbench.engine.protocol import Emit, FinishRequest, Flush
from kvbench.errors import KvbenchError
from kvbench.store.keys import chain
from kvbench.store.protocol import MovePace

T = TypeVar("T", bound=BaseModel)

_BACKLOG = 2048
_MOST_BYTES_PER_S = 10**15  # no pace: leave it out for none
_GRACE_S = 1  # for streams that are open when the server is told to stop


class _StreamOptions(BaseModel):
    include_usage: bool = False


class _Generate(BaseModel):
    """What both kinds of completion take. Sampling parameters are accepted and do nothing, since the words follow from
    the prompt; `ignore_eos` likewise, since the emulated model never ends of itself."""

    model: str
    max_tokens: int = Field(default=16, ge=1)
    n: Literal[1] = 1
    stream: bool = False
    stream_options: _StreamOptions | None = None


class _Completion(_Generate):
    prompt: str | list[Annotated[int, Field(ge=0, lt=2**32)]] = Field(min_length=1)

    def token_ids(self) -> list[int]:
        return text.tokenise(self.prompt) if isinstance(self.prompt, str) else self.prompt


class _Message(BaseModel):
    role: str
    content: str


class _Chat(_Generate):
    messages: list[_Message] = Field(min_length=1)

    def token_ids(self) -> list[int]:
        return text.tokenise("".join(f"{message.role}\n{message.content}\n" for message in self.messages))


class _Change(BaseModel):
    """A change of the storage nodes: one comes, by its directory, or one fails, by its number from 0. And the pace at
    which pages move then, if there is to be one: bytes a second, and a TTFT near which they wait."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    add: str | None = None
    fail: int | None = Field(default=None, ge=0)
    bytes_per_s: int | None = Field(default=None, gt=0, le=_MOST_BYTES_PER_S)
    ttft_limit_s: float | None = Field(default=None, gt=0, le=3600)

    @property
    def pace(self) -> MovePace:
        return MovePace(self.bytes_per_s, max(1, round(1e9 * self.ttft_limit_s)) if self.ttft_limit_s else None)


@dataclass(frozen=True, slots=True)
class _Reply:
    """The objects that a reply is made of. `seed` is the prompt's digest, from which its words follow."""

    id: str
    model: str
    created: int
    chat: bool
    seed: bytes
    prompt_tokens: int
    max_tokens: int

    def role(self) -> dict[str, Any]:
        """A chat stream's first chunk, which carries no text."""
        return self._object([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])

    def chunk(self, position: int) -> dict[str, Any]:
        word = text.word(self.seed, position)
        choice = {"delta": {"content": word}} if self.chat else {"text": word}
        last = position == self.max_tokens - 1
        return self._object([{"index": 0, **choice, "logprobs": None, "finish_reason": "length" if last else None}])

    def whole(self, cached_tokens: int) -> dict[str, Any]:
        words = "".join(text.word(self.seed, position) for position in range(self.max_tokens))
        choice = {"message": {"role": "assistant", "content": words}} if self.chat else {"text": words}
        choices = [{"index": 0, **choice, "logprobs": None, "finish_reason": "length"}]
        return self._object(choices, whole=True) | {"usage": self._usage(cached_tokens)}

    def usage_chunk(self, cached_tokens: int) -> dict[str, Any]:
        return self._object([]) | {"usage": self._usage(cached_tokens)}

    def _object(self, choices: list[dict[str, Any]], whole: bool = False) -> dict[str, Any]:
        name = ("chat.completion" if whole else "chat.completion.chunk") if self.chat else "text_completion"
        return {"id": self.id, "object": name, "created": self.created, "model": self.model, "choices": choices}

    def _usage(self, cached_tokens: int) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.max_tokens,
            "total_tokens": self.prompt_tokens + self.max_tokens,
            "prompt_tokens_details": {"cached_tokens": cached_tokens},
        }


class _Api:
    """The routes over one driver."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._config = driver.core.config
        self._model = driver.core.config.cost.shape.id
        self._numbers = itertools.count()
        self._created = _unix_s()

    async def completions(self, request: Request) -> Response:
        return await self._generate(await _parse(request, _Completion))

    async def chat(self, request: Request) -> Response:
        return await self._generate(await _parse(request, _Chat))

    async def models(self, request: Request) -> Response:
        about = {
            "id": self._model,
            "object": "model",
            "created": self._created,
            "owned_by": "kvbench",
            "max_model_len": self._driver.core.gpu.capacity_pages * self._config.page_tokens,
        }
        return JSONResponse({"object": "list", "data": [about]})

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        return Response(exposition(self._driver.core), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def reset_prefix_cache(self, request: Request) -> Response:
        self._driver.feed(Flush())
        return JSONResponse({"success": True})

    async def change_nodes(self, request: Request) -> Response:
        """Answers when the change is in force; the pages that follow from it move afterwards."""
        if request.client is None or not ipaddress.ip_address(request.client.host).is_loopback:
            raise HTTPException(403, "nodes are changed from this machine only")
        change, pool = await _parse(request, _Change), self._driver.pool
        if pool is None:
            raise HTTPException(400, "this engine keeps no pages: it has no nodes")
        if (change.add is None) == (change.fail is None):
            raise HTTPException(400, 'give either {"add": DIRECTORY} or {"fail": NODE}')
        try:
            if change.add is not None:
                return JSONResponse({"node": await pool.add(Path(change.add), change.pace)})
            assert change.fail is not None
            pool.fail(change.fail, change.pace)
        except KvbenchError as error:
            raise HTTPException(400, f"{error.message}: {error.hint}" if error.hint else error.message) from None
        return JSONResponse({"node": change.fail})

    async def _generate(self, body: _Completion | _Chat) -> Response:
        if body.model != self._model:
            raise HTTPException(404, f"the model {body.model!r} is not served here; this is {self._model!r}")
        token_ids = body.token_ids()
        if not self._driver.core.fits(len(token_ids), body.max_tokens):
            room = self._driver.core.gpu.capacity_pages * self._config.page_tokens
            raise HTTPException(
                400,
                f"{len(token_ids)} prompt tokens and {body.max_tokens} new ones do not fit; there is room for {room}",
            )
        digests = chain(self._model, self._config.page_tokens, self._config.ranks, token_ids)
        seed = text.prompt_digest(digests, token_ids[len(digests) * self._config.page_tokens :])
        is_chat = isinstance(body, _Chat)
        reply = _Reply(
            id=f"{'chatcmpl' if is_chat else 'cmpl'}-{next(self._numbers)}",
            model=self._model,
            created=_unix_s(),
            chat=is_chat,
            seed=seed,
            prompt_tokens=len(token_ids),
            max_tokens=body.max_tokens,
        )
        items = self._driver.generate(digests, len(token_ids), body.max_tokens)
        if body.stream:
            with_usage = body.stream_options is not None and body.stream_options.include_usage
            return StreamingResponse(_events(reply, items, with_usage), media_type="text/event-stream")
        *_, last = [item async for item in items]
        assert isinstance(last, FinishRequest)
        return JSONResponse(reply.whole(last.cached_tokens))


def app(driver: Driver) -> Starlette:
    """The engine as an ASGI application."""
    api = _Api(driver)
    return Starlette(
        routes=[
            Route("/v1/completions", api.completions, methods=["POST"]),
            Route("/v1/chat/completions", api.chat, methods=["POST"]),
            Route("/v1/models", api.models),
            Route("/health", api.health),
            Route("/metrics", api.metrics),
            Route("/reset_prefix_cache", api.reset_prefix_cache, methods=["POST"]),
            Route("/kvbench/nodes", api.change_nodes, methods=["POST"]),
        ],
        exception_handlers={HTTPException: _error},
    )


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes any free one. Raises KvbenchError when the address is taken or is not ours."""
    try:
        return socket.create_server((host, port), backlog=_BACKLOG)
    except OSError as error:
        raise KvbenchError(
            f"cannot listen on {host}:{port}: {error.strerror}", "choose another --port, or 0 for any that is free"
        ) from None


def web_server(driver: Driver) -> uvicorn.Server:
    """The engine behind uvicorn; it answers on a listening socket until SIGTERM or SIGINT."""
    config = uvicorn.Config(
        app(driver),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=_GRACE_S,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_no_stop)
    return uvicorn.Server(config)


def _is_no_stop(record: logging.LogRecord) -> bool:
    """Not a stream that the server's own stop has cancelled; that there are such is said once, without a traceback."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


async def _events(
    reply: _Reply, items: AsyncGenerator[Emit | FinishRequest, None], with_usage: bool
) -> AsyncIterator[bytes]:
    """A reply as server-sent events, one token each."""
    async with aclosing(items):
        async for item in items:
            if isinstance(item, Emit):
                if reply.chat and item.position == 0:
                    yield _event(reply.role())
                yield _event(reply.chunk(item.position))
            elif with_usage:
                yield _event(reply.usage_chunk(item.cached_tokens))
    yield b"data: [DONE]\n\n"


def _event(document: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


async def _parse(request: Request, kind: type[T]) -> T:
    try:
        return kind.model_validate_json(await request.body())
    except ClientDisconnect:
        raise HTTPException(400, "the request ended before its body did") from None  # for nobody: no word in the log
    except ValidationError as error:
        problem = max(error.errors(include_url=False), key=lambda problem: len(problem["loc"]))  # the most specific
        where = ".".join(str(part) for part in problem["loc"])
        raise HTTPException(400, f"{where}: {problem['msg']}" if where else problem["msg"]) from None


async def _error(request: Request, error: Exception) -> Response:
    """An OpenAI error object."""
    assert isinstance(error, HTTPException)
    kind = "NotFoundError" if error.status_code == 404 else "invalid_request_error"
    body = {"message": error.detail, "type": kind, "param": None, "code": error.status_code}
    return JSONResponse({"error": body}, error.status_code)


def _unix_s() -> int:
    return int(clock.wall().timestamp())
