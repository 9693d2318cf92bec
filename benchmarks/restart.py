"""What a restart of the page store takes: with the index of a directory, and by the header of every page, in turn.

Seconds are this machine's. Exit code 1 when the index takes longer than LIMIT times the headers. The directory must not
be there, and is removed:  .venv/bin/python benchmarks/restart.py DIR
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from pathlib import Path
from queue import SimpleQueue

from kvbench.store import fileindex
from kvbench.store.keys import PageKey
from kvbench.store.protocol import Done, Write
from kvbench.store.real import RealNodes

PAGES = 4000
PAGE_BYTES = 64 * 1024
PAIRS = 7
LIMIT = 0.6


def main(node: Path) -> int:
    node.mkdir()  # one that is there is nobody's to remove
    try:
        fill(node)
        pairs = [in_turn(node) for _ in range(PAIRS)]
    finally:
        shutil.rmtree(node, ignore_errors=True)
    index_s, headers_s = (statistics.median(seconds) for seconds in zip(*pairs, strict=True))
    print(f"{PAGES:,} pages, {PAIRS} pairs, medians: index {index_s:.3f} s, headers {headers_s:.3f} s")
    print(f"ratio {index_s / headers_s:.2f}, limit {LIMIT}")
    return int(index_s / headers_s > LIMIT)


def fill(node: Path) -> None:
    dones = SimpleQueue[Done]()
    with RealNodes([node], PAGE_BYTES, on_done=dones.put) as nodes:
        nodes.scan()
        for io in range(PAGES):
            nodes.submit(Write(io, 0, PageKey.named(str(io))))


def in_turn(node: Path) -> tuple[float, float]:
    """A restart with the index, and one after it was lost, in seconds."""
    with_index_s = restart_s(node)
    (node / fileindex.NAME).unlink()
    return with_index_s, restart_s(node)


def restart_s(node: Path) -> float:
    with RealNodes([node], PAGE_BYTES, on_done=lambda done: None) as nodes:
        began_ns = time.perf_counter_ns()
        found = nodes.scan()
        seconds = (time.perf_counter_ns() - began_ns) / 1e9
    assert len(found) == PAGES
    return seconds


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
