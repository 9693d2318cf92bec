"""How long `kvbench --help` takes, against importing typer and rich alone: pairs in turn, one process each.

Seconds are this machine's; their ratio is nearly the same everywhere. Exit code 1 when the ratio of medians is above
LIMIT. Run it with the Python that kvbench is installed for:  .venv/bin/python benchmarks/startup.py
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time

PAIRS = 31
LIMIT = 1.5
HELP = (sys.executable, "-c", "from kvbench.cli.main import main; main()", "--help")  # what the kvbench script does
BARE = (sys.executable, "-c", "import typer, rich")


def main() -> int:
    elapsed_s(HELP), elapsed_s(BARE)  # files into the page cache, modules compiled
    pairs = [in_turn(number) for number in range(PAIRS)]
    helped_s, bare_s = zip(*pairs, strict=True)
    ratio = statistics.median(helped_s) / statistics.median(bare_s)
    ratios = sorted(helped / bare for helped, bare in pairs)
    print(f"Python {platform.python_version()} on {platform.machine()}, {os.cpu_count()} processors, {PAIRS} pairs")
    print(line("kvbench --help", helped_s))
    print(line("import typer, rich", bare_s))
    print(f"ratio of medians    {ratio:.2f}, limit {LIMIT}; single pairs {ratios[0]:.2f} to {ratios[-1]:.2f}")
    return int(ratio > LIMIT)


def in_turn(number: int) -> tuple[float, float]:
    """One pair, (kvbench, bare) in seconds; which goes first changes from pair to pair."""
    if number % 2:
        bare_s = elapsed_s(BARE)
        return elapsed_s(HELP), bare_s
    return elapsed_s(HELP), elapsed_s(BARE)


def elapsed_s(argv: tuple[str, ...]) -> float:
    began_ns = time.perf_counter_ns()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter_ns() - began_ns) / 1e9


def line(name: str, seconds: tuple[float, ...]) -> str:
    low, middle, high = min(seconds), statistics.median(seconds), max(seconds)
    return f"{name:20}{1000 * middle:.0f} ms median, {1000 * low:.0f} to {1000 * high:.0f}, n = {len(seconds)}"


if __name__ == "__main__":
    sys.exit(main())
