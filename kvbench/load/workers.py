"""Several processes that drive one load together. Each sends a part of it; what comes back is samples, and those are
merged, never figures of theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from itertools import chain
from multiprocessing.connection import Connection, wait
from typing import Any

from kvbench import process
from kvbench.api_key import ApiKey
from kvbench.errors import KvbenchError
from kvbench.load import standalone
from kvbench.load.client import Progress
from kvbench.load.result import ClientSelf, LoadResult, RequestRow
from kvbench.load.standalone import Load, Part
from kvbench.load.workload import Turn


def drive(
    load: Load, turns: Sequence[Turn] | None, key: ApiKey, processes: int, on_progress: Callable[[Progress], None]
) -> LoadResult:
    """Send the load by so many processes, which begin when all of them have their connections.

    Raises KvbenchError when one of them ends before its part is done.
    """
    if processes == 1:
        return standalone.drive(load, turns, key=key, on_progress=on_progress)
    parts = [(load, turns, key, Part(number, processes)) for number in range(processes)]
    results: list[LoadResult] = []
    with process.in_parallel(_drive_part, parts) as pipes:
        for pipe in pipes:
            _receive(pipe)
        for pipe in pipes:
            with suppress(BrokenPipeError):  # the end of one that is gone is received below
                pipe.send(None)
        working, latest = set(pipes), {}
        while working:
            for pipe in working.intersection(wait(list(working))):
                message = _receive(pipe)
                if isinstance(message, LoadResult):
                    results.append(message)
                    working.remove(pipe)
                else:
                    latest[pipe] = message
            on_progress(_sum(list(latest.values())))
    return merge(results)


def _drive_part(pipe: Connection[Any, Any], load: Load, turns: Sequence[Turn] | None, key: ApiKey, part: Part) -> None:
    """What each process does: say that it is ready, wait for the word, send its progress and then its result."""

    def ready() -> None:
        pipe.send(None)
        pipe.recv()

    try:
        pipe.send(standalone.drive(load, turns, key=key, on_progress=pipe.send, part=part, before_start=ready))
    except KvbenchError as error:
        pipe.send(error)


def _receive(pipe: Connection[Any, Any]) -> Any:
    try:
        message = pipe.recv()
    except (EOFError, ConnectionResetError):
        raise KvbenchError("a process of this load ended before its part was done", "see what it wrote above") from None
    if isinstance(message, KvbenchError):
        raise message
    return message


def _sum(parts: Sequence[Progress]) -> Progress:
    total = None if any(part.total is None for part in parts) else sum(part.total or 0 for part in parts)
    done, failed, in_flight = (sum(getattr(part, name) for part in parts) for name in ("done", "failed", "in_flight"))
    return Progress(total, done, failed, in_flight)


def merge(results: Sequence[LoadResult]) -> LoadResult:
    """The rows of all in the order in which they were due, and the client's word on itself as of one."""
    rows = sorted(chain.from_iterable(result.rows for result in results), key=lambda row: row.due_ns)
    clients = [result.client for result in results]
    added = {field.name: sum(getattr(client, field.name) for client in clients) for field in fields(ClientSelf)}
    merged = ClientSelf(**added | {"in_flight_reached": _most_in_flight(rows)})
    return LoadResult(tuple(rows), merged, min(result.start_ns for result in results))


def _most_in_flight(rows: Sequence[RequestRow]) -> int:
    """The most requests that were sent and not done at one moment."""
    changes = [(row.sent_ns, 1) for row in rows if row.sent_ns is not None]
    changes += [(row.done_ns, -1) for row in rows if row.sent_ns is not None]
    most = now = 0
    for _, change in sorted(changes):  # at one moment, what ends ends first
        now += change
        most = max(most, now)
    return most
