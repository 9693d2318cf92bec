"""Bytes, durations, rates: read from text, printed for people. Pure.

Bytes are bytes. GB is 1e9, GiB is 2**30, and neither is ever printed for the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema

_BYTES = {
    "B": 1,
    "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST_S = 1e9  # thirty years
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/]*)\s*\Z")


def _quantity(text: str, units: dict[str, float] | dict[str, int], what: str) -> float:
    match = _QUANTITY.match(text)
    if not match or match[2] not in units:
        raise ValueError(f"{text!r} is not a {what}; write a number and one of {', '.join(units)}")
    return float(match[1]) * units[match[2]]


def parse_bytes(value: object) -> int:
    """`'8 GiB'` → 8589934592. A bare integer is bytes. Raises ValueError, also for a fraction of a byte."""
    if isinstance(value, int) and not isinstance(value, bool):
        size = float(value)
    elif isinstance(value, str):
        size = _quantity(value, _BYTES, "size")
    else:
        raise ValueError(f"{value!r} is not a size; write bytes as an integer, or like '8 GiB'")
    if not 0 <= size < 2**63 or size != int(size):
        raise ValueError(f"{value!r} is not a whole, positive number of bytes")
    return int(size)


def parse_rate(value: object) -> int:
    """`'2.5 GB/s'` → 2500000000 bytes per second. Raises ValueError; the `/s` is required of text."""
    if isinstance(value, str) and not value.rstrip().endswith("/s"):
        raise ValueError(f"{value!r} is not a rate; write it like '2.5 GB/s'")
    rate = parse_bytes(value.rstrip()[:-2] if isinstance(value, str) else value)
    if rate == 0:
        raise ValueError(f"{value!r} is not a rate above 0")
    return rate


def parse_count(value: object) -> int:
    """An integer from 1 to 2³¹ − 1, of things of which there must be one. Raises ValueError."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**31:
        raise ValueError("not a whole number of 1 or more" if not isinstance(value, int) or value < 1 else "too large")
    return value


def parse_seconds(value: object) -> float:
    """`'10m'` → 600.0. A bare number is seconds. Raises ValueError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str):
        seconds = _quantity(value, _SECONDS, "duration")
    else:
        raise ValueError(f"{value!r} is not a duration; write seconds as a number, or like '10m'")
    if not 0 <= seconds <= _LONGEST_S:
        raise ValueError(f"{value!r} is not a duration from 0 to {_LONGEST_S:,.0f} s")
    return seconds


def format_bytes(size_bytes: float) -> str:
    """1.5e9 → `'1.50 GB'`: decimal, three significant figures."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(size_bytes) < 999.5 or unit == "TB":
            break
        size_bytes /= 1000
    digits = 0 if unit == "B" else max(0, 2 - len(str(int(abs(size_bytes)))) + 1)
    return f"{size_bytes:.{digits}f} {unit}"


def format_rate(bytes_per_s: float) -> str:
    """1.5e9 → `'1.50 GB/s'`."""
    return f"{format_bytes(bytes_per_s)}/s"


def format_seconds(seconds: float) -> str:
    """Three significant figures below a minute (`'1.42 s'`, `'830 ms'`), then `'4 min 10 s'`, `'71 h 12 min'`."""
    if seconds != 0 and abs(seconds) < 0.9995:
        for unit, scale in (("ms", 1e3), ("µs", 1e6), ("ns", 1e9)):
            if abs(seconds) * scale >= 0.9995:
                return f"{seconds * scale:.3g} {unit}"
    if abs(seconds) < 59.95:
        return f"{seconds:.3g} s"
    minutes, rest_s = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest_s} s"
    return f"{minutes // 60} h {minutes % 60} min"


def format_value(value: float, unit: str) -> str:
    """A metric's value in its unit, as people read it. `unit` is one that `model.Metric` carries."""
    readable: dict[str, Callable[[float], str]] = {
        "s": format_seconds,
        "B": format_bytes,
        "B/s": format_rate,
        "share": lambda share: f"{100 * share:.3g} %",
        "count": lambda count: f"{count:,.0f}",
        "ratio": lambda ratio: f"{ratio:.4g}",
        "1/s": lambda rate: f"{rate:,.0f} 1/s" if rate >= 100 else f"{rate:.3g} 1/s",
    }
    return readable[unit](value) if unit in readable else f"{value:.4g} {unit}".rstrip()


class _Parsed:
    """Marks a field that may be written with a unit. Duck-typed, so that pydantic is not imported for it."""

    def __init__(self, parse: Any) -> None:
        self.parse = parse

    def __get_pydantic_core_schema__(self, source: type, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(self.parse, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [handler(schema), {"type": "string"}]}


Count = Annotated[int, _Parsed(parse_count)]
SizeBytes = Annotated[int, _Parsed(parse_bytes)]
RateBytes = Annotated[int, _Parsed(parse_rate)]
Seconds = Annotated[float, _Parsed(parse_seconds)]
