"""Request traces in the format of Mooncake (kvcache-ai/Mooncake, FAST '25): JSON lines with `timestamp` (ms),
`input_length`, `output_length` and `hash_ids`, one id for every started block of 512 tokens.

Equal ids stand for equal prefixes, so an id is a block. Equal timestamps keep the order of the file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from kvbench.errors import UsageError
from kvbench.load.workload import Block, Turn

BLOCK_TOKENS = 512
_MOST_ERRORS = 5  # named in one message


def load(path: Path) -> list[Turn]:
    """The turns of a trace's file. Raises UsageError where it cannot be read or does not hold together."""
    try:
        with path.open(encoding="utf-8") as lines:
            return read(lines, str(path))
    except OSError as error:
        raise UsageError(f"--trace {path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--trace {path}: cannot be read: not UTF-8") from None


def read(lines: Iterable[str], name: str, block_tokens: int = BLOCK_TOKENS) -> list[Turn]:
    """Lines of a trace → turns. Raises UsageError that names the lines that do not hold together."""
    turns: list[Turn] = []
    errors: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            turns.append(_turn(line, number, block_tokens))
        except ValueError as error:
            errors.append(f"{name}:{number}: {error}")
    if errors:
        more = f"\n… and {len(errors) - _MOST_ERRORS} more lines" if len(errors) > _MOST_ERRORS else ""
        raise UsageError("\n".join(errors[:_MOST_ERRORS]) + more, "nothing is padded or left out silently")
    if not turns:
        raise UsageError(f"{name}: an empty trace")
    return sorted(turns, key=lambda turn: turn.due_s or 0.0)  # stable: the file's order for equal times


def spread(turns: Sequence[Turn]) -> list[Turn]:
    """The same requests with those of one instant spread evenly up to the next one, in their order."""
    instants = sorted({turn.due_s for turn in turns if turn.due_s is not None})
    following = dict(zip(instants, [*instants[1:], None], strict=True))
    counts, positions = Counter(turn.due_s for turn in turns), Counter[float | None]()
    moved = []
    for turn in turns:
        due_s = turn.due_s or 0.0
        next_s = following.get(due_s)
        step_s = (next_s - due_s) / counts[turn.due_s] if next_s is not None else 0.0
        moved.append(replace(turn, due_s=due_s + positions[turn.due_s] * step_s))
        positions[turn.due_s] += 1
    return moved


def _turn(line: str, number: int, block_tokens: int) -> Turn:
    try:
        row = json.loads(line)
        timestamp, length, output = row["timestamp"], row["input_length"], row["output_length"]
        ids = row["hash_ids"]
    except KeyError as error:
        raise ValueError(f"key {error} is missing") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"not a JSON object: {error}") from None
    for key, value in (("timestamp", timestamp), ("input_length", length), ("output_length", output)):
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
            raise ValueError(f"{key} is {value!r}, not a number from 0 up")
    if not isinstance(ids, list) or not all(isinstance(i, int) for i in ids):
        raise ValueError("hash_ids is not a list of integers")
    length, output = int(length), int(output)
    blocks = -(-length // block_tokens)
    if blocks != len(ids):
        raise ValueError(
            f"input_length {length} makes {blocks} blocks of {block_tokens} tokens, but hash_ids has {len(ids)}"
        )
    sizes = [block_tokens] * (blocks - 1) + [length - block_tokens * (blocks - 1)] if blocks else []
    # a last block that is not full is another block than a full one of the same id
    prompt = tuple(Block(f"h{i}", size) for i, size in zip(ids, sizes, strict=True))
    return Turn(f"t{number}", f"t{number}", prompt, output, due_s=timestamp / 1000)
