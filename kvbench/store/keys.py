"""How a page is named: digests chained over the tokens before it. Pure.

A page's KV depends on every token up to its end, so its digest does too: digest(i) = BLAKE2b-128(digest(i − 1) ‖ the
page's token ids as little-endian u32). Two prompts share a digest exactly as far as they share a prefix. The root is
made of what else decides the bytes: model, tokens of a page, ranks. Nothing in it differs between processes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

_DIGEST_BYTES = 16

_FILE_NAME = re.compile(r"([0-9a-f]{32})\.r(0|[1-9][0-9]{0,8})\Z")


class PageKey(NamedTuple):
    """One page of one tensor-parallel rank: what is stored, moved and hit as a whole.

    A tuple, because it is looked up a dozen times on its way through the store, and tuples are hashed fastest.
    """

    digest: bytes
    rank: int

    @property
    def file_name(self) -> str:
        return f"{self.digest.hex()}.r{self.rank}"

    @classmethod
    def named(cls, name: str) -> PageKey:
        """Of a page that stands for no tokens: one of its own for every name."""
        return cls(_digest(name.encode()), 0)

    @classmethod
    def from_file_name(cls, name: str) -> PageKey | None:
        """The key of a page's file, or None for a file that is not a page."""
        match = _FILE_NAME.match(name)
        return cls(bytes.fromhex(match[1]), int(match[2])) if match else None


def chain(model_id: str, page_tokens: int, tensor_parallel: int, token_ids: Sequence[int]) -> tuple[bytes, ...]:
    """The prefix digest of every full page of a prompt, first page first; the rest of less than a page has none."""
    digest = _digest(f"{model_id}\0{page_tokens}\0{tensor_parallel}".encode())
    digests = []
    for end in range(page_tokens, len(token_ids) + 1, page_tokens):
        digest = _digest(digest + struct.pack(f"<{page_tokens}I", *token_ids[end - page_tokens : end]))
        digests.append(digest)
    return tuple(digests)


def prefix_of(digests: Sequence[bytes], depth: int) -> bytes:
    """The digest of the first `depth` pages of a prompt, or of all where it has fewer; empty for a prompt without any.

    It names the group of prompts that begin alike, and travels beside the keys: a page's key says nothing about what
    comes after it, while the first pages of a prompt belong to the group too.
    """
    return digests[min(depth, len(digests)) - 1] if digests else b""


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()
