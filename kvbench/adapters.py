"""One pydantic adapter a type: making one takes milliseconds, and a soak needs thousands of times one."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")


@cache
def adapter(kind: type[T]) -> TypeAdapter[T]:
    """The adapter that validates a frozen type of ours."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
