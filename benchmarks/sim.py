"""How fast simulations are, and where the time goes. Give the Mooncake conversation trace to have its figures too:

    .venv/bin/python benchmarks/sim.py [TRACE]

Processor seconds are this machine's; the ratios (cost of a request in a long run to that in a short one, speed of two
processes to that of one) are nearly the same everywhere. Exit code 1 when a ratio is outside of its limit.
"""

from __future__ import annotations

import cProfile
import os
import platform
import pstats
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from kvbench.load.workload import Lengths, SharedPrefixes, Turn
from kvbench.sim import site as sites
from kvbench.sim import sweep
from kvbench.sim.simulate import Source, serve

SITE = sites.load("flash", 64)
STRATEGY = "prefix+ring"
MOST_GROWTH = 1.2  # of the cost of a request from 1,000 requests to 100,000
LEAST_EFFICIENCY = 0.8  # of two processes


def main() -> int:
    print(f"Python {platform.python_version()} on {platform.machine()}, {os.cpu_count()} processors")
    if len(sys.argv) > 1:
        turns = Source(trace=sys.argv[1]).turns(0)
        for nodes in (64, 1000):
            cpu_s, wall_s, _ = timed(lambda count=nodes: serve(sites.load("flash", count), turns, STRATEGY, 0))
            print(
                f"trace, {len(turns):,} requests, {nodes:>5,} nodes: {cpu_s:.1f} s of processor, {wall_s:.1f} s in all"
            )
    growth = growing()
    efficiency = spreading()
    where()
    print(f"memory at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB")
    return int(growth > MOST_GROWTH or efficiency < LEAST_EFFICIENCY)


def growing() -> float:
    """The cost of a request by the length of the run, as a ratio to that of 1,000 requests."""
    costs = {}
    for requests, runs in ((1_000, 7), (10_000, 3), (100_000, 1)):
        made = turns_of(requests)
        cpu_s = median(timed(lambda made=made: serve(SITE, made, STRATEGY, 0))[0] for _ in range(runs))
        costs[requests] = cpu_s / requests
        ratio = costs[requests] / costs[1_000]
        print(f"{requests:>7,} requests: {1e6 * costs[requests]:.0f} µs of processor each, ratio {ratio:.2f}")
    return max(costs.values()) / costs[1_000]


def spreading() -> float:
    """Runs in two processes against the same ones in one: speed-up ÷ 2."""
    seeds = range(8)
    one_cpu_s, one_s, _ = timed(lambda: sweep.over(one_run, seeds, 1))
    _, two_s, _ = timed(lambda: sweep.over(one_run, seeds, 2))
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    more = (children.ru_utime + children.ru_stime) / one_cpu_s - 1
    print(f"8 runs: {one_s:.1f} s in one process, {two_s:.1f} s in two, efficiency {one_s / two_s / 2:.2f}")
    print(f"        {more:+.1%} of processor time, for starting them")
    return one_s / two_s / 2


def one_run(seed: int) -> float:
    return serve(SITE, turns_of(5_000), STRATEGY, seed)["hits"]


def where() -> None:
    """The share of each module in a run's time, under the profiler (which weighs small functions too much)."""
    made = turns_of(3_000)
    profile = cProfile.Profile()
    profile.runcall(serve, SITE, made, STRATEGY, 0)
    shares: Counter[str] = Counter()
    stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for (file, _, _), (_, _, own_s, _, _) in stats.items():
        path = Path(file)
        shares["/".join(path.parts[-2:]) if "kvbench" in path.parts else "Python and libraries"] += own_s
    for name, own_s in shares.most_common(8):
        print(f"{own_s / shares.total():6.1%}  {name}")


def turns_of(requests: int) -> list[Turn]:
    """Prompts of about 6 pages, of which 4 are shared."""
    kind = SharedPrefixes(
        "shared_prefixes", requests, (8, 8), (1024, 1024), Lengths(1024, 0.5), Lengths(128, 0.5), 8.0, 0.8
    )
    return kind.make(Random(1))


def timed(action: Callable[[], object]) -> tuple[float, float, object]:
    """Processor time and time of an action, in seconds, and what it gave."""
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    result = action()
    return time.process_time() - cpu_s, time.perf_counter() - wall_s, result


if __name__ == "__main__":
    sys.exit(main())
