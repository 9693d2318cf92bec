"""A server on the loopback that plays scripted replies, so that each way to fail can be met on purpose."""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from socket import SO_LINGER, SOL_SOCKET, socket
from typing import Any


@dataclass
class Reply:
    """One request, and the means to answer it badly."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    path: str
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def request_id(self) -> str:
        return self.headers.get("x-request-id", "")

    @property
    def request(self) -> dict[str, Any]:
        return json.loads(self.body)

    def raw(self, data: bytes) -> None:
        self.writer.write(data)

    def start(self, content_type: str = "text/event-stream") -> None:
        self.raw(f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())

    def chunk(self, data: bytes) -> None:
        self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    def event(self, document: object) -> None:
        self.chunk(b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n")

    def token(self, text: str = " tok", finish: str | None = None, key: str = "content") -> None:
        self.event({"choices": [{"index": 0, "delta": {key: text}, "finish_reason": finish}]})

    def usage(self, completion_tokens: int, prompt_tokens: int = 5) -> None:
        counts = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
        self.event({"choices": [], "usage": counts})

    def done(self) -> None:
        self.chunk(b"data: [DONE]\n\n")

    def end(self) -> None:
        self.raw(b"0\r\n\r\n")

    def whole(self, status: str, body: bytes, headers: str = "") -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
        self.raw(head.encode() + body)

    def cut(self) -> None:
        self.writer.close()

    async def reset(self) -> None:
        await self.writer.drain()
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.close()

    async def client_leaves(self) -> None:
        """Say nothing more until the client closes the connection."""
        with suppress(ConnectionError):
            await self.reader.read()


Script = Callable[[Reply], Awaitable[None]]


@dataclass
class Served:
    """What the server saw: request ids in the order in which they came, and how often it was connected to."""

    url: str
    request_ids: list[str] = field(default_factory=list)
    connections: int = 0


@contextmanager
def serving(script: Script, tls: ssl.SSLContext | None = None) -> Iterator[Served]:
    """Answer every request by `script` for as long as the block lasts."""
    loop = asyncio.new_event_loop()
    listening = socket()
    listening.bind(("127.0.0.1", 0))
    host = "localhost" if tls else "127.0.0.1"
    served = Served(f"{'https' if tls else 'http'}://{host}:{listening.getsockname()[1]}")

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while not writer.is_closing():
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                first, *lines = head.strip().split("\r\n")
                fields = (line.split(": ", 1) for line in lines)
                headers = {name.lower(): value for name, value in fields}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                reply = Reply(reader, writer, first.split()[1], headers, body)
                served.request_ids.append(reply.request_id)
                await script(reply)
                if not writer.is_closing():
                    await writer.drain()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(converse, sock=listening, backlog=1024, ssl=tls)

    server = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield served
    finally:
        asyncio.run_coroutine_threadsafe(_stop(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _stop(server: asyncio.Server) -> None:
    server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def answer_well(reply: Reply, tokens: int = 4) -> None:
    """A role chunk, tokens, usage and [DONE], as vLLM sends them."""
    reply.start()
    reply.event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
    for i in range(tokens):
        reply.token(finish="length" if i == tokens - 1 else None)
    reply.usage(tokens)
    reply.done()
    reply.end()
