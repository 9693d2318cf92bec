"""A virtual machine with NVMe drives of its own: QEMU, a Debian kernel and kvbench. `make test-vm` makes its image.

The machine shares one folder with us, in which it looks for commands (init.sh). Its processors are emulated, so that
it runs anywhere: a /dev/kvm that opens may still run nothing, on a host that is a virtual machine itself.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import STDOUT, Popen

from kvbench import process

_BOOT_LIMIT_S = 600
_POLL_S = 0.1
# With NVMe/TCP's two ends in one machine, Linux 6.1 halts under load: BUG at mm/usercopy.c, in nvmet_tcp's receiving.
_FOR_TCP_ON_LOOPBACK = "hardened_usercopy=off"


@dataclass(frozen=True, slots=True)
class Drive:
    """An NVMe drive: what it says of itself, and how fast it is. In the guest the first one is nvme0n1."""

    serial: str
    size_bytes: int
    bytes_per_s: int  # reads and writes together; far below what an emulated processor can move


@dataclass(frozen=True, slots=True)
class Completed:
    returncode: int
    stdout: str
    stderr: str


class Guest:
    """A running machine. `share` is its /share."""

    def __init__(self, share: Path, qemu: Popen[bytes]) -> None:
        self.share = share
        self._qemu = qemu
        self._commands = 0

    def run(self, command: str, timeout_s: float = 300) -> Completed:
        """Carry out a shell command in the guest and wait for its end, whatever it is."""
        self._commands += 1
        script, rc, out, err = (self.share / f"{self._commands:03}.{end}" for end in ("sh", "rc", "out", "err"))
        new = script.with_suffix(".new")
        new.write_text(command + "\n")
        new.rename(script)
        self.wait_for(rc, timeout_s)
        texts = (file.read_text(errors="replace") for file in (out, err))
        return Completed(int(rc.read_text()), *texts)

    def check(self, command: str, timeout_s: float = 300) -> str:
        """The same for a command that has to succeed; returns what it printed."""
        done = self.run(command, timeout_s)
        assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def wait_for(self, file: Path, timeout_s: float) -> None:
        """Wait until the guest has made a file in its share."""
        deadline_s = time.monotonic() + timeout_s
        while not file.exists():
            assert self._qemu.poll() is None, "the guest has ended; see console.txt"
            assert time.monotonic() < deadline_s, f"no {file.name} within {timeout_s:g} s; see console.txt"
            time.sleep(_POLL_S)


@contextmanager
def booted(image: Path, wheel: Path, drives: Sequence[Drive], folder: Path) -> Iterator[Guest]:
    """A machine for as long as the `with` block lasts. Its drives are new and empty, and go with it."""
    share = folder / "share"
    share.mkdir()
    shutil.copy(wheel, share)
    argv = _argv(image, share)
    for number, drive in enumerate(drives):
        disk = folder / f"{drive.serial}.raw"
        disk.touch()
        os.truncate(disk, drive.size_bytes)
        argv += ["-drive", f"if=none,id=d{number},file={disk},format=raw,throttling.bps-total={drive.bytes_per_s}"]
        argv += ["-device", f"nvme,drive=d{number},serial={drive.serial}"]
    with (folder / "console.txt").open("wb") as console, process.start(argv, stdout=console, stderr=STDOUT) as qemu:
        guest = Guest(share, qemu)
        guest.wait_for(share / "ready", _BOOT_LIMIT_S)
        yield guest
    for drive in drives:
        (folder / f"{drive.serial}.raw").unlink()


def _argv(image: Path, share: Path) -> list[str]:
    return [
        "qemu-system-x86_64", "-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio",
        "-machine", "q35,accel=tcg", "-cpu", "max", "-smp", "2", "-m", "3G",
        "-kernel", str(image / "kernel"), "-initrd", str(image / "initrd"),
        "-append", f"root=/dev/vda rw init=/init console=ttyS0 quiet panic=-1 {_FOR_TCP_ON_LOOPBACK}",
        "-drive", f"if=virtio,format=raw,snapshot=on,file={image / 'root.ext4'}",  # what is written is forgotten
        "-virtfs", f"local,path={share},mount_tag=share,security_model=none",
    ]  # fmt: skip
