"""One pydantic adapter a type: making one takes milliseconds, and a soak needs thousands of times one."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """The adapter that validates a frozen type of ours, and dumps its values."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
