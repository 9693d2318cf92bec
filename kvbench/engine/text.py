"""The words that the emulated model reads and writes. Pure.

Text is tokenised as its UTF-8 bytes, four to a token. An output word follows from the prompt's digest, chained over
the same page digests that name the KV, and from its position: equal KV gives equal text, computed or restored, and
the KV of another prompt gives another text.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b

_BYTES_PER_TOKEN = 4
_ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "st")
_VOWELS = "aeiou"
_SYLLABLES = 3


def tokenise(text: str) -> list[int]:
    """Token ids of a text: each four bytes of UTF-8 as one little-endian number, the last ones filled up with zeros."""
    data = text.encode("utf-8", "surrogatepass")
    padded = data + bytes(-len(data) % _BYTES_PER_TOKEN)
    return list(struct.unpack(f"<{len(padded) // _BYTES_PER_TOKEN}I", padded))


def prompt_digest(page_digests: Sequence[bytes], rest: Sequence[int]) -> bytes:
    """Digest of a whole prompt: the chained one of its full pages, and the token ids after them."""
    last = page_digests[-1] if page_digests else b""
    return blake2b(last + struct.pack(f"<{len(rest)}I", *rest), digest_size=16).digest()


def word(digest: bytes, position: int) -> str:
    """Output token number `position` of a prompt: a pronounceable word with a space before it."""
    drawn = blake2b(digest + position.to_bytes(8, "little"), digest_size=2 * _SYLLABLES).digest()
    pairs = zip(drawn[::2], drawn[1::2], strict=True)
    return " " + "".join(_ONSETS[onset % len(_ONSETS)] + _VOWELS[vowel % len(_VOWELS)] for onset, vowel in pairs)
