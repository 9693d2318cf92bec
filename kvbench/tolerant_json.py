"""JSON documents in the output of storage tools, which mix them with other text and bend the grammar. Pure.

Seen in the field: error lines before the document, several documents one after another, `-nan` and `inf` where there
were no samples, and iostat's array that begins with a comma. Everything here keeps its offset, so that the text
around the documents can be handed back as it was.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

# A document begins the text, a line, or follows another one directly; a brace elsewhere belongs to a message,
# and an indented one to a document that was cut off.
_BEGIN = re.compile(r"(?:\A[\s\ufeff]*|(?<=[\r\n}\]]))[{\[]")
# Strings are matched first, so that what stands in them stays as it is.
_ODDITY = re.compile(
    r'"(?:[^"\\\r\n]|\\.)*"|(?P<comma>\[\s*,)|(?P<number>[-+]?\b(?:nan|inf|infinity)\b)', re.IGNORECASE
)


def documents(text: str) -> tuple[list[Any], str]:
    """Every JSON object, and every array of objects, in `text`, in order; and the text around them, stripped.

    `nan` and `inf`, and numbers beyond a float, become None. What does not parse is part of the text around, so
    a document that was cut off is found there. Raises nothing.
    """
    repaired = _ODDITY.sub(_same_length, text)
    values: list[Any] = []
    around: list[str] = []
    outside, search_from = 0, 0
    while begin := _BEGIN.search(repaired, search_from):
        start = search_from = begin.end() - 1
        try:
            value, end = _DECODER.raw_decode(repaired, start)
        except (ValueError, RecursionError):  # ValueError also for an integer of more than 4300 digits
            search_from += 1
            continue
        if isinstance(value, list) and not all(isinstance(item, dict) for item in value):
            search_from = end  # "[3] a line of a log"
            continue
        values.append(value)
        around.append(text[outside:start])
        outside = search_from = end
    around.append(text[outside:])
    return values, "\n".join(piece for part in around if (piece := part.strip("\ufeff \t\r\n")))


def _same_length(oddity: re.Match[str]) -> str:
    found = oddity.group()
    if oddity["comma"]:
        return found[:-1] + " "
    return "NaN".rjust(len(found)) if oddity["number"] else found


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=lambda name: None)
