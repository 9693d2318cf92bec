"""Turns of a workload or a trace → requests to send, and when. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvbench.errors import UsageError
from kvbench.load import prompts
from kvbench.load.result import Request
from kvbench.load.workload import Turn


@dataclass(frozen=True, slots=True)
class Replay:
    """Requests in the order of the turns; `due_offsets_ns` is None for one that follows another."""

    requests: tuple[Request, ...]
    due_offsets_ns: tuple[int | None, ...]


def replay(turns: Sequence[Turn], seed: int, model: str, vocabulary: int) -> Replay:
    """Bodies for /v1/completions with the exact token counts of the turns; what turns share, their prompts share.

    `seed` salts every block, so that nothing is warm from an earlier load. Raises UsageError for a turn that follows
    one that is not there.
    """
    ids = {turn.id for turn in turns}
    if lost := next((turn for turn in turns if turn.after and turn.after not in ids), None):
        raise UsageError(f"turn {lost.id} follows {lost.after}, which is not among the requests")
    return Replay(
        requests=tuple(_request(turn, seed, model, vocabulary) for turn in turns),
        due_offsets_ns=tuple(None if turn.due_s is None else round(turn.due_s * 1e9) for turn in turns),
    )


def _request(turn: Turn, seed: int, model: str, vocabulary: int) -> Request:
    tokens = [
        token for block in turn.prompt for token in prompts.block_tokens(seed, block.id, block.tokens, vocabulary)
    ]
    return Request(
        id=turn.id,
        body=prompts.completion_body(model, tokens, turn.output_tokens),
        expected_prompt_tokens=len(tokens),
        expected_completion_tokens=turn.output_tokens,
        after=turn.after,
        think_ns=round(turn.think_s * 1e9),
    )
