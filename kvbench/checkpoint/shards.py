"""Files as models and checkpoints are kept in: a safetensors header, then tensors; every byte can be checked.

Format (safetensors 0.4, "Format"): eight bytes of header length, little-endian; JSON that maps a tensor's name to its
`dtype`, `shape` and `data_offsets`; the data. The header is padded with spaces, as the format permits, to whole blocks,
so that direct I/O can read what follows. A tensor is one chunk, filled as pages are (`store/content.py`).
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Literal

import numpy as np

from kvbench import clock
from kvbench.store import pagefile
from kvbench.store.content import BLOCK_BYTES, PageContent
from kvbench.store.keys import PageKey

CHUNK_BYTES = 16 * 2**20
_BUFFERS = 2  # one is filled or checked while the other is in its I/O
_LENGTH = struct.Struct("<Q")

Io = Literal["direct", "buffered", "mmap"]


@dataclass(frozen=True, slots=True)
class Shard:
    """One file of a model or checkpoint, and how it is written or read.

    `salt` names the run and attempt. `io`: `mmap` reads through a mapping, and writes as `buffered` does.
    """

    path: Path
    chunks: int
    salt: bytes
    io: Io

    @property
    def bytes(self) -> int:
        return len(header(self.chunks)) + self.chunks * CHUNK_BYTES

    @property
    def direct(self) -> bool:
        return self.io == "direct"

    def content(self) -> PageContent:
        """One a thread."""
        return PageContent(CHUNK_BYTES - BLOCK_BYTES, self.salt)

    def key(self, number: int) -> PageKey:
        return PageKey.named(f"{self.path.name}/{number}")


@dataclass(frozen=True, slots=True)
class Moved:
    """A file that was written or read: from before it was opened until after it was closed (monotonic).

    `starved_ns` of that time nothing was read or written, since chunks were being filled or checked.
    """

    bytes: int
    began_ns: int
    ended_ns: int
    starved_ns: int
    wrong_chunks: int = 0

    @property
    def seconds(self) -> float:
        return (self.ended_ns - self.began_ns) / 1e9


def header(chunks: int) -> bytes:
    """The head of a file of so many tensors, in whole blocks."""
    tensors = {
        f"model.layers.{number}.weight": {
            "dtype": "BF16",
            "shape": [CHUNK_BYTES // 8192, 4096],
            "data_offsets": [number * CHUNK_BYTES, (number + 1) * CHUNK_BYTES],
        }
        for number in range(chunks)
    }
    text = json.dumps(tensors, separators=(",", ":")).encode()
    padded = -(-(_LENGTH.size + len(text)) // BLOCK_BYTES) * BLOCK_BYTES - _LENGTH.size
    return _LENGTH.pack(padded) + text.ljust(padded)


def parse_header(head: bytes) -> tuple[int, list[tuple[int, int]]]:
    """Where the data begins, and of every tensor where it begins and ends behind that. Raises ValueError."""
    if len(head) < _LENGTH.size:
        raise ValueError("the file ends within its header")
    (length,) = _LENGTH.unpack_from(head)
    if len(head) < _LENGTH.size + length:
        raise ValueError("the file ends within its header")
    tensors = json.loads(head[_LENGTH.size : _LENGTH.size + length])
    return _LENGTH.size + length, [tuple(tensor["data_offsets"]) for tensor in tensors.values()]


def write(shard: Shard, stop: Event) -> Moved:
    """Write a file as checkpoints are saved: under another name, fsync, rename, and fsync of the directory.

    Raises OSError. Once `stop` is set it goes no further.
    """
    unfinished = shard.path.with_name(shard.path.name + pagefile.UNFINISHED)
    content, head = shard.content(), _aligned(header(shard.chunks))
    began_ns = clock.monotonic_ns()
    with pagefile.opened(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, shard.direct) as fd:
        pagefile.write_all(fd, head, 0)
        starved_ns = _pipeline(
            shard,
            stop,
            before=lambda buffer, number: content.fill(buffer, shard.key(number)),
            move=lambda buffer, number: pagefile.write_all(fd, buffer, len(head) + number * CHUNK_BYTES),
        )
        os.fsync(fd)
    unfinished.rename(shard.path)
    pagefile.sync_directory(shard.path.parent)
    return Moved(shard.bytes, began_ns, clock.monotonic_ns(), starved_ns)


def read(shard: Shard, stop: Event) -> Moved:
    """Read a file as models are loaded: its header, then tensor by tensor, into memory. Every byte is checked.

    Raises OSError, and ValueError when its header is none.
    """
    wrong: list[int] = []
    content = shard.content()
    began_ns = clock.monotonic_ns()
    with pagefile.opened(shard.path, os.O_RDONLY, shard.direct) as fd:
        data_at, tensors = parse_header(_read_head(fd))
        mapped = _mapped(fd) if shard.io == "mmap" else None

        def move(buffer: memoryview, number: int) -> None:
            content.spoil(buffer)
            at = data_at + tensors[number][0]
            if mapped is None:
                pagefile.read_all(fd, buffer, at)
            else:
                np.copyto(np.frombuffer(buffer, np.uint8), mapped[at : at + len(buffer)])

        def check(buffer: memoryview, number: int) -> None:
            if content.verify(buffer, shard.key(number)):
                wrong.append(number)

        starved_ns = _pipeline(shard, stop, after=check, move=move)
    return Moved(shard.bytes, began_ns, clock.monotonic_ns(), starved_ns, len(wrong))


def _pipeline(
    shard: Shard,
    stop: Event,
    *,
    move: Callable[[memoryview, int], None],
    before: Callable[[memoryview, int], None] | None = None,
    after: Callable[[memoryview, int], None] | None = None,
) -> int:
    """Move all chunks one after the other, while another thread does what belongs before or after; returns how long
    the moving waited for it, in nanoseconds."""
    buffers = [pagefile.aligned_buffer(CHUNK_BYTES) for _ in range(_BUFFERS)]
    starved_ns = 0
    pending: list[Future[None]] = []
    with ThreadPoolExecutor(1) as beside:
        if before:
            pending = [beside.submit(before, buffers[n], n) for n in range(min(_BUFFERS, shard.chunks))]
        for number in range(shard.chunks):
            if stop.is_set():
                break
            buffer = buffers[number % _BUFFERS]
            if before or number >= _BUFFERS:
                waits_ns = clock.monotonic_ns()
                pending.pop(0).result()
                starved_ns += clock.monotonic_ns() - waits_ns
            move(buffer, number)
            if after:
                pending.append(beside.submit(after, buffer, number))
            elif before and number + _BUFFERS < shard.chunks:
                pending.append(beside.submit(before, buffer, number + _BUFFERS))
        for future in pending:
            future.result()
    return starved_ns


def _aligned(content: bytes) -> memoryview:
    buffer = pagefile.aligned_buffer(len(content))
    buffer[:] = content
    return buffer


def _read_head(fd: int) -> bytes:
    block = pagefile.aligned_buffer(BLOCK_BYTES)
    pagefile.read_all(fd, block, 0)
    (length,) = _LENGTH.unpack_from(block)
    size = -(-min(_LENGTH.size + length, os.fstat(fd).st_size) // BLOCK_BYTES) * BLOCK_BYTES
    head = pagefile.aligned_buffer(size)
    pagefile.read_all(fd, head, 0)
    return bytes(head)


def _mapped(fd: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(mmap.mmap(fd, 0, access=mmap.ACCESS_READ), np.uint8)
