"""Workloads: who asks what, when, and what it shares with what was asked before. Pure.

A prompt is a row of blocks; equal blocks are equal tokens, so what two prompts share is visible without any token.
The same turns drive a real endpoint (`prompts.block_tokens` makes the ids) and a simulation of a thousand nodes.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from typing import Literal

from kvbench.units import Seconds

_STRICT = {"extra": "forbid"}


@dataclass(frozen=True, slots=True)
class Block:
    """Tokens that belong together: a system prompt, a document, a question, an answer."""

    id: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Turn:
    """One request. The first turn of a session is due at `due_s` after the start; a later one `think_s` after the
    turn before it is done, and then `due_s` is None and `after` is that turn's id."""

    id: str
    session: str
    prompt: tuple[Block, ...]
    output_tokens: int
    due_s: float | None = None
    after: str = ""
    think_s: float = 0.0

    @property
    def prompt_tokens(self) -> int:
        return sum(block.tokens for block in self.prompt)


# ---------------------------------------------------------------- the kinds, and their parameters


@dataclass(frozen=True, slots=True)
class Lengths:
    """Token counts: log-normal by median and spread (σ of the logarithm), cut off at both ends."""

    median: int
    sigma: float = 0.0
    least: int = 1
    most: int = 1_000_000

    __pydantic_config__ = _STRICT

    def draw(self, rng: Random) -> int:
        return min(self.most, max(self.least, round(self.median * math.exp(rng.gauss(0.0, self.sigma)))))


@dataclass(frozen=True, slots=True)
class Conversations:
    """Sessions of several turns: each prompt is the whole conversation so far, and a person thinks in between."""

    kind: Literal["conversations"]
    sessions: int
    turns: Lengths
    system_tokens: int
    user_tokens: Lengths
    output_tokens: Lengths
    think_s: Seconds
    sessions_per_s: float

    __pydantic_config__ = _STRICT

    def make(self, rng: Random) -> list[Turn]:
        turns = []
        for number, due_s in enumerate(_arrivals(self.sessions, self.sessions_per_s, rng)):
            session = f"s{number}"
            prompt: tuple[Block, ...] = (Block("system", self.system_tokens),)
            last = ""
            for position in range(self.turns.draw(rng)):
                prompt = (*prompt, Block(f"{session}-user{position}", self.user_tokens.draw(rng)))
                output = self.output_tokens.draw(rng)
                turn = Turn(
                    id=f"{session}-{position}",
                    session=session,
                    prompt=prompt,
                    output_tokens=output,
                    due_s=None if last else due_s,
                    after=last,
                    think_s=rng.expovariate(1 / self.think_s) if last and self.think_s else 0.0,
                )
                turns.append(turn)
                prompt, last = (*prompt, Block(f"{session}-answer{position}", output)), turn.id
        return turns


@dataclass(frozen=True, slots=True)
class SharedPrefixes:
    """A tree of shared prefixes, as RadixAttention meets it (arXiv:2312.07104): `fan_out[i]` children on level i of
    `level_tokens[i]` tokens each. Every request takes one way down (Zipf by `skew`) and adds tokens of its own."""

    kind: Literal["shared_prefixes"]
    requests: int
    fan_out: tuple[int, ...]
    level_tokens: tuple[int, ...]
    own_tokens: Lengths
    output_tokens: Lengths
    requests_per_s: float
    skew: float = 0.0

    __pydantic_config__ = _STRICT

    def make(self, rng: Random) -> list[Turn]:
        children = [_Zipf(count, self.skew) for count in self.fan_out]
        turns = []
        for number, due_s in enumerate(_arrivals(self.requests, self.requests_per_s, rng)):
            way, prompt = "root", []
            for level, tokens in zip(children, self.level_tokens, strict=True):
                way = f"{way}/{level.draw(rng)}"
                prompt.append(Block(way, tokens))
            prompt.append(Block(f"own{number}", self.own_tokens.draw(rng)))
            turns.append(Turn(f"r{number}", way, tuple(prompt), self.output_tokens.draw(rng), due_s))
        return turns


@dataclass(frozen=True, slots=True)
class LongTail:
    """Long contexts of very different lengths, each asked about again and again: Zipf by `skew` over sessions."""

    kind: Literal["long_tail"]
    sessions: int
    requests: int
    context_tokens: Lengths
    question_tokens: Lengths
    output_tokens: Lengths
    requests_per_s: float
    skew: float = 1.0

    __pydantic_config__ = _STRICT

    def make(self, rng: Random) -> list[Turn]:
        contexts = [Block(f"context{number}", self.context_tokens.draw(rng)) for number in range(self.sessions)]
        chooser = _Zipf(self.sessions, self.skew)
        turns = []
        for number, due_s in enumerate(_arrivals(self.requests, self.requests_per_s, rng)):
            chosen = chooser.draw(rng)
            prompt = (contexts[chosen], Block(f"question{number}", self.question_tokens.draw(rng)))
            turns.append(Turn(f"r{number}", f"s{chosen}", prompt, self.output_tokens.draw(rng), due_s))
        return turns


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Prompts put together from documents of a corpus, in any order: much is shared, little of it as a prefix."""

    kind: Literal["retrieval"]
    requests: int
    documents: int
    documents_per_request: int
    document_tokens: Lengths
    system_tokens: int
    question_tokens: Lengths
    output_tokens: Lengths
    requests_per_s: float
    skew: float = 1.0

    __pydantic_config__ = _STRICT

    def make(self, rng: Random) -> list[Turn]:
        corpus = [Block(f"document{number}", self.document_tokens.draw(rng)) for number in range(self.documents)]
        chooser = _Zipf(self.documents, self.skew)
        turns = []
        for number, due_s in enumerate(_arrivals(self.requests, self.requests_per_s, rng)):
            chosen: dict[int, None] = {}
            while len(chosen) < min(self.documents_per_request, self.documents):
                chosen[chooser.draw(rng)] = None
            documents = tuple(corpus[index] for index in chosen)
            question = Block(f"question{number}", self.question_tokens.draw(rng))
            prompt = (Block("system", self.system_tokens), *documents, question)
            turns.append(Turn(f"r{number}", f"r{number}", prompt, self.output_tokens.draw(rng), due_s))
        return turns


Kind = Conversations | SharedPrefixes | LongTail | Retrieval


def _arrivals(count: int, per_s: float, rng: Random) -> list[float]:
    """Poisson arrivals, in seconds from the start; the first is at 0."""
    return list(accumulate([0.0, *(rng.expovariate(per_s) for _ in range(count - 1))]))[:count]


class _Zipf:
    """Numbers 0 … n−1, the i-th with weight (i + 1)^−skew."""

    def __init__(self, n: int, skew: float) -> None:
        self._sums = list(accumulate((i + 1) ** -skew for i in range(n)))

    def draw(self, rng: Random) -> int:
        return bisect(self._sums, rng.random() * self._sums[-1])


# ---------------------------------------------------------------- pages, and what an endless cache would hit


@dataclass(slots=True)
class PageChain:
    """Prompts → chained page digests, 16 bytes each: equal digests mean equal tokens up to the page's end.

    A page is told by the pieces of blocks in it, so no token is ever made.
    """

    page_tokens: int
    _known: dict[tuple[bytes, tuple[tuple[str, int, int], ...]], bytes] = field(default_factory=dict)

    def digests(self, prompt: Iterable[Block], whole_pages_only: bool = True) -> list[bytes]:
        """One digest a page. The last page, if it is not full, counts unless `whole_pages_only`."""
        digests: list[bytes] = []
        last, pieces, room = b"", [], self.page_tokens
        for block in prompt:
            begin = 0
            while begin < block.tokens:
                end = min(block.tokens, begin + room)
                pieces.append((block.id, begin, end))
                room -= end - begin
                begin = end
                if room == 0:
                    last = self._digest(last, pieces)
                    digests.append(last)
                    pieces, room = [], self.page_tokens
        if pieces and not whole_pages_only:
            digests.append(self._digest(last, pieces))
        return digests

    def _digest(self, before: bytes, pieces: Sequence[tuple[str, int, int]]) -> bytes:
        key = (before, tuple(pieces))
        if key not in self._known:
            text = "\0".join(f"{name}:{begin}:{end}" for name, begin, end in pieces)
            self._known[key] = hashlib.blake2b(before + text.encode(), digest_size=16).digest()
        return self._known[key]


@dataclass(frozen=True, slots=True)
class IdealHits:
    """What a cache without end would hit, of all pages that were asked for."""

    pages: int
    hits: int

    @property
    def share(self) -> float:
        return self.hits / self.pages if self.pages else 0.0


def ideal_hits(turns: Iterable[Turn], page_tokens: int, whole_pages_only: bool = True) -> IdealHits:
    """Pages whose whole prefix an earlier prompt of the workload had, in the order of the turns."""
    chain, seen = PageChain(page_tokens), set[bytes]()
    pages = hits = 0
    for turn in turns:
        digests = chain.digests(turn.prompt, whole_pages_only)
        pages += len(digests)
        hits += sum(digest in seen for digest in digests)
        seen.update(digests)
    return IdealHits(pages, hits)
