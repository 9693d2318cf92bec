"""Strategies on real directories: the page stores that simulations compare, timed on a target's own nodes.

Each round of each strategy begins with empty folders, and all strategies meet the same sessions, reads and changes in
it. Rounds of all strategies take turns, in a changing order. Every byte read is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kvbench import safety
from kvbench.pages.round import FIGURES, Place, Round
from kvbench.pages.site import Site


def run(
    names: Sequence[str], place: Place, site: Site, rounds: int, *, run_id: str, tell: Callable[[dict[str, Any]], None]
) -> dict[str, list[dict[str, float]]]:
    """The figures of every round of each strategy. `tell` is given a row for every request.

    Raises KvbenchError where a node is no directory, cannot be written to, or is being measured by another run.
    """
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    with safety.alone_on(place.nodes), _claimed(place.nodes, run_id) as folders:
        for number in range(rounds):
            turn = number % len(names)
            for name in (*names[turn:], *names[:turn]):
                trial = Round(name, site, number)
                found[name].append(trial.on(folders, place, f"{run_id}/{name}/{number}"))
                for row in trial.rows:
                    tell({"strategy": name, "round": number, **row})
                for folder in folders:
                    safety.empty(folder)
    return found


@contextmanager
def _claimed(nodes: Sequence[Path], run_id: str) -> Iterator[list[Path]]:
    with ExitStack() as stack:
        folders = []
        for node in nodes:
            folders.append(safety.claim(node, run_id))
            stack.callback(safety.release, folders[-1])
        yield folders


def document(place: Place, site: Site, basis: str, found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """What a run folder keeps: what was asked for, and the figures of every round."""
    return {
        "version": 2,  # 1 had no site, a load beside it and one rate for all nodes
        "basis": basis,
        "nodes": [str(node) for node in place.nodes],
        "direct": place.direct,
        "rate_limits_bytes_per_s": list(place.rates),
        "site": asdict(site),
        "units": FIGURES,
        "rounds": found,
    }
