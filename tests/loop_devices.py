"""Block devices for tests: loop devices over sparse files."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def loop_device(backing: Path, size_bytes: int) -> Iterator[Path]:
    """An empty one. Skips the test where none can be made."""
    with backing.open("wb") as file:
        file.truncate(size_bytes)
    try:
        made = subprocess.run(["losetup", "--find", "--show", backing], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no loop device can be made here: {error}")
    try:
        yield Path(made.stdout.strip())
    finally:
        subprocess.run(["losetup", "--detach", made.stdout.strip()], check=True)
