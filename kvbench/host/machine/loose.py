"""Values as tools write them: numbers as text, objects where a number was, nothing at all. Pure; nothing raises."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from kvbench.tolerant_json import documents

_NUMBER = re.compile(r"\s*([-+]?(?:0[xX][0-9a-fA-F]{1,16}|[0-9]{1,30}(?:\.[0-9]{0,30})?))")


def first_object(text: str) -> Mapping[str, Any]:
    """The first JSON object of a tool's output, whatever stands around it; empty where there is none."""
    return next((value for value in documents(text)[0] if isinstance(value, dict)), {})


def mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> Iterator[Mapping[str, Any]]:
    """The objects of a list; none where it is no list."""
    yield from (item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def number(value: object) -> float | None:
    """A number, also as text with a unit behind it (`"310"`, `"34 C"`, `"0x10"`), or as `{"value": …}`; else None."""
    if isinstance(value, dict):
        return number(value.get("value")) if not isinstance(value.get("value"), dict) else None
    if isinstance(value, str):
        match = _NUMBER.match(value)
        if match is None:
            return None
        return float(int(match[1], 16)) if "x" in match[1].lower() else float(match[1])
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def whole(value: object) -> int | None:
    """A number as a count: neither negative nor larger than 2**63."""
    found = number(value)
    return int(found) if found is not None and 0 <= found < 2**63 else None


def text(value: object) -> str:
    """One line of printable text, runs of blanks as one; "" for what is neither text nor a number."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    line = " ".join(str(value)[:500].split())
    return line.encode("utf-8", errors="replace").decode("utf-8")
