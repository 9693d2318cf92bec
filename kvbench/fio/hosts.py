"""Where fio runs: here, or on several hosts at once through its own server mode (fio --server). Pure.

Every host sees the arm's nodes under the same paths, as it does with a shared file system, and has files of its own
there. What a profile moves is spread over the hosts, and its figures are summed over them (`fio/total.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from kvbench import safety
from kvbench.model import Storage
from kvbench.probes.context import Context
from kvbench.probes.params import FioParams, SteadyParams

HERE = ""

P = TypeVar("P", FioParams, SteadyParams)
Jobs = Mapping[str, str]  # host → the text of its job file


@dataclass(frozen=True, slots=True)
class Part:
    """What one host drives: its files, one a node, and what tells its bytes from those of the others."""

    host: str
    paths: tuple[Path, ...]
    hosts: int

    def of(self, params: P) -> P:
        """The host's part of a profile."""
        if isinstance(params, SteadyParams):
            params = replace(params, round_bytes=params.round_bytes // self.hosts)
        return replace(params, size_bytes=params.size_bytes // self.hosts)

    def rate_limit(self, storage: Storage) -> int | None:
        """Of each of its files: a node's limit holds for all hosts together."""
        limit = storage.rate_limit_bytes_per_s
        return limit // self.hosts if limit else None

    def salt(self, salt: str) -> str:
        return f"{salt}/{self.host}" if self.host else salt


def parts(context: Context) -> tuple[Part, ...]:
    """One a host of the target, or the only one: here."""
    hosts = context.storage.hosts or (HERE,)
    return tuple(
        Part(host, tuple(_files(context.data_dirs, number, host)), len(hosts)) for number, host in enumerate(hosts)
    )


def jobs(among: Sequence[Part], job: Callable[[Part], str]) -> Jobs:
    return {part.host: job(part) for part in among}


def client(host: str) -> str:
    """The option by which fio sends the job file that follows it to a host, `name` or `name:port`."""
    name, _, port = host.rpartition(":")
    return f"--client={name},{port}" if name and port.isdigit() else f"--client={host}"


def _files(folders: Sequence[Path], number: int, host: str) -> Iterator[Path]:
    name = f"fio-{number}.data" if host else "fio.data"
    for folder in folders:
        yield safety.data_file(folder, name)
