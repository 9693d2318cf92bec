"""The same function over many tasks, in as many processes as are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


def over(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    processes: int = 1,
    done: Callable[[], object] = lambda: None,
) -> list[Result]:
    """Results in the order of the tasks; `done` is called after each. `function` is one of a module, so that a spawned
    process finds it.

    An error of a task is raised here; so is the death of a process, which is not waited for.
    """
    workers = min(processes, len(tasks))
    if workers <= 1:
        return _told(map(function, tasks), done)
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        return _told(pool.map(function, tasks), done)


def _told(results: Iterable[Result], done: Callable[[], object]) -> list[Result]:
    found = []
    for result in results:
        found.append(result)
        done()
    return found
