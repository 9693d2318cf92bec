"""The same function over many tasks, in as many processes as are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing import get_context
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def over(function: Callable[[Task], Result], tasks: Sequence[Task], processes: int = 1) -> list[Result]:
    """Results in the order of the tasks. `function` is one of a module, so that a spawned process finds it."""
    workers = min(processes, len(tasks))
    if workers <= 1:
        return [function(task) for task in tasks]
    with get_context("spawn").Pool(workers) as pool:
        return pool.map(function, tasks, chunksize=1)
