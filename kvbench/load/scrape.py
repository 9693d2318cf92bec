"""An engine's metrics while a wave runs: raw, at a steady interval, into one file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from kvbench import clock
from kvbench.errors import StepError

_INTERVAL_S = 2.0  # a scrape costs the engine some milliseconds


@contextmanager
def scraping(metrics_text: Callable[[], str], path: Path) -> Iterator[None]:
    """Append an exposition every two seconds, each under a comment with its moment, as long as the block lasts.

    One that could not be had is noted in its place: a busy engine may be slow to answer, and that spoils no wave.
    Raises OSError when they could not be written, at the end.
    """
    stopping, failed = threading.Event(), list[OSError]()

    def run(file: TextIO) -> None:
        while not stopping.wait(_INTERVAL_S):
            at_ns = clock.monotonic_ns()
            try:
                text = metrics_text()
            except StepError as error:
                text = f"# not answered: {error.message}\n"
            try:
                file.write(f"# kvbench: monotonic_ns {at_ns}\n{text}")
            except OSError as error:
                failed.append(error)
                return

    with path.open("w") as file:
        thread = threading.Thread(target=run, args=(file,), name="scrape", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join()
    for error in failed:
        raise error
