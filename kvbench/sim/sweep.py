"""The same function over many tasks, in as many processes as are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def over(function: Callable[[Task], Result], tasks: Sequence[Task], processes: int = 1) -> list[Result]:
    """Results in the order of the tasks. `function` is one of a module, so that a spawned process finds it.

    An error of a task is raised here; so is the death of a process, which is not waited for.
    """
    workers = min(processes, len(tasks))
    if workers <= 1:
        return [function(task) for task in tasks]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        return list(pool.map(function, tasks))
