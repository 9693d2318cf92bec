"""One machine for all tests here. `make test-vm` makes its image."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from guests import EMPTY, FAST, MAKE_FS, SLOW, Lab, device, folder
from vm.machine import booted


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if "KVBENCH_VM" not in os.environ:
        pytest.skip("KVBENCH_VM names no folder with the image of a machine (1.5 GB); make test-vm does")
    made = Path(os.environ["KVBENCH_VM"])
    (wheel,) = (made / "wheel").glob("*.whl")
    with booted(made / "image", wheel, (SLOW, FAST, EMPTY), tmp_path_factory.mktemp("vm")) as guest:
        for drive in (SLOW, FAST):
            guest.check(f"{MAKE_FS} {device(drive)} && mkdir {folder(drive)} && mount {device(drive)} {folder(drive)}")
        yield Lab(guest)
