"""The run folder: what was going to run, what has been measured, and the raw evidence. Append-only, torn-tail safe.

    RUN/plan.json        the Plan, written before anything runs
    RUN/content/         copies of the gate, workloads and models that were used
    RUN/journal.jsonl    one fsynced line when a step begins, one when it has been measured
    RUN/raw/<step>/      evidence of the step's last attempt
    RUN/starts.jsonl     one line for each time that the run was started or revived: by which process, when
    RUN/mounts.json      what storage the target's nodes stood on when the run first began
    RUN/ended            there once the run is over and nothing may revive it: `finished` or `stopped`
    RUN/verdict.json, requests.parquet, report.*    made from the above, and makeable again

A line counts when it is whole. A kill or a full disk can tear the last one: it is cut off, and its step runs again.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from kvbench import clock
from kvbench.adapters import adapter
from kvbench.content import digest
from kvbench.errors import KvbenchError, UsageError
from kvbench.host.machine.footing import Footing
from kvbench.model import FORMAT_VERSION, Measurement, Plan, Step, Verdict
from kvbench.process import ProcessId, Survivors

_MOUNTS_VERSION = 2  # 1: where each node was mounted, and nothing else

T = TypeVar("T")

Ending = Literal["finished", "stopped"]


class RunHeld(KvbenchError):
    """Another kvbench runs this run at this moment."""


class RunFolder:
    """A run on disk. `create` makes one, `open` takes one up; both raise KvbenchError that says what is wrong."""

    def __init__(self, path: Path) -> None:
        self.path = path = path.resolve()  # tools and engines are given paths in it, and may stand elsewhere
        self.survivors = Survivors(path)
        self._journal = path / "journal.jsonl"
        self._starts = path / "starts.jsonl"

    @classmethod
    def create(cls, path: Path, plan: Plan, files: Mapping[str, bytes], gate_source: Path) -> RunFolder:
        """Write plan and content. The folder appears whole or not at all."""
        fresh = path.with_name(f".{path.name}.new")
        try:
            shutil.rmtree(fresh, ignore_errors=True)
            for name, content in files.items():
                file = fresh / "content" / name
                file.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(file, content)
            (fresh / "raw").mkdir()
            (fresh / "journal.jsonl").touch()
            write_atomically(fresh / "content" / "gate-source", f"{gate_source}\n".encode())
            write_atomically(fresh / "plan.json", to_json(plan))
            fresh.rename(path)
            _fsync_folder(path.parent)
        except OSError as error:
            shutil.rmtree(fresh, ignore_errors=True)
            raise KvbenchError(f"{path} cannot be made: {error.strerror}", "choose another folder with --out") from None
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        if not (path / "plan.json").is_file():
            raise UsageError(f"{path} is not a run folder: it holds no plan.json", "kvbench runs lists the runs here")
        folder = cls(path)
        folder.plan  # noqa: B018 - a folder of a newer version, or a damaged one, is refused here
        return folder

    @cached_property
    def plan(self) -> Plan:
        file = self.path / "plan.json"
        try:
            document = json.loads(file.read_bytes())
            version = int(document["version"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise KvbenchError(f"{file} is damaged: {error}") from None
        if version > FORMAT_VERSION:
            raise UsageError(
                f"{self.path} was written by a newer kvbench (format {version}, this one reads {FORMAT_VERSION})",
                f"use kvbench {document.get('kvbench_version', 'of that version')} or later",
            )
        return from_json(document, Plan, file)

    def check_content(self) -> None:
        """Raise KvbenchError when the copies of the content are not those that the plan was made from."""
        content = self.path / "content"
        files = {str(f.relative_to(content)): f.read_bytes() for f in content.rglob("*.yaml")}
        if digest(files) != self.plan.content_digest:
            raise KvbenchError(
                f"{content} was changed after the run began: its digest is not the plan's",
                "restore the files; to judge with other thresholds: kvbench judge RUN --gate FILE",
            )

    def edited_source(self) -> Path | None:
        """The gate file that the run was started from, if it has been edited since. The run keeps its copy."""
        source = Path((self.path / "content" / "gate-source").read_text().strip())
        copy = self.path / "content" / "gates" / source.name
        return source if source.is_file() and source.read_bytes() != copy.read_bytes() else None

    # ------------------------------------------------------------ journal

    def begin(self, step: Step) -> int:
        """Note that a step begins; returns the number of this attempt, from 1."""
        attempt = self._attempts[step.id] = self._attempts[step.id] + 1
        self._append({"event": "begin", "step": step.id, "attempt": attempt})
        return attempt

    @cached_property
    def _attempts(self) -> Counter[str]:
        """Counted once: to read the journal before each of a soak's thousands of steps would take ever longer."""
        return Counter(line["step"] for line in self._lines() if line["event"] == "begin")

    def finish(self, measurement: Measurement) -> None:
        """Persist a measurement: after this returns, its step is done."""
        self._append({"event": "measured", "step": measurement.step_id, "measurement": as_plain(measurement)})

    def measurements(self) -> list[Measurement]:
        """The last measurement of every step that has one, in the plan's order."""
        found = {line["step"]: line["measurement"] for line in self._lines() if line["event"] == "measured"}
        order = [step.id for step in self.plan.steps if step.id in found]
        return [from_json(found[step_id], Measurement, self._journal) for step_id in order]

    def raw_dir(self, step: Step) -> Path:
        """The empty folder for a step's evidence; what an earlier attempt left is removed."""
        folder = self.path / "raw" / step.id
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def mend(self) -> bool:
        """Cut a torn last line off the journal. Returns whether there was one."""
        content = self._journal.read_bytes()
        whole = sum(len(line) for line in _whole_lines(content, self._journal))
        if whole == len(content):
            return False
        with self._journal.open("r+b") as file:
            file.truncate(whole)
            os.fsync(file.fileno())
        return True

    def _lines(self) -> Iterator[dict[str, Any]]:
        for line in _whole_lines(self._journal.read_bytes(), self._journal):
            yield json.loads(line)

    def _append(self, entry: Mapping[str, Any]) -> None:
        line = json.dumps({"version": FORMAT_VERSION, **entry}, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        with self._journal.open("ab", buffering=0) as file:
            size = file.tell()
            try:
                if file.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            except OSError as error:
                file.truncate(size)
                raise KvbenchError(
                    f"{self._journal}: {error.strerror}; the last step was not recorded",
                    f"make room, then: kvbench resume {self.path}",
                ) from None

    # ------------------------------------------------------------ its life

    def started(self) -> None:
        """Note that this process runs the run from now on. Called under `locked`."""
        line = json.dumps({"version": FORMAT_VERSION, **asdict(ProcessId.of(os.getpid())), **asdict(clock.stamp())})
        with self._starts.open("ab") as file:
            file.write(line.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def first_footings(self, found: Mapping[str, Footing]) -> Mapping[str, Footing]:
        """What the nodes stood on when the run first began: noted at the first call, the same from then on."""
        file = self.path / "mounts.json"
        if not file.is_file():
            mounts = {node: as_plain(footing) for node, footing in found.items()}
            write_atomically(file, json.dumps({"version": _MOUNTS_VERSION, "mounts": mounts}).encode())
        mounts = json.loads(file.read_bytes())["mounts"]
        return {
            node: from_json({"point": noted} if isinstance(noted, str) else noted, Footing, file)
            for node, noted in mounts.items()
        }

    def starts(self) -> list[ProcessId]:
        """The processes that have run it, the last one last; a torn line is left out."""
        lines = self._starts.read_bytes().splitlines() if self._starts.is_file() else []
        starts = [json.loads(line) for line in lines if _parses(line)]
        return [ProcessId(start["pid"], start["started"], start["boot_id"]) for start in starts]

    def holder(self) -> ProcessId | None:
        """The process that runs it at this moment. To tell, the lock is not touched: a start might find it taken."""
        return next((start for start in self.starts()[-1:] if start.is_alive()), None)

    def end(self, how: Ending) -> None:
        """Say, durably, that the run is over. One that is under way ends before its next step."""
        write_atomically(self.path / "ended", f"{how}\n".encode())

    def ended(self) -> str:
        """`finished`, `stopped`, or "" for a run that is to go on."""
        try:
            return (self.path / "ended").read_text().strip()
        except FileNotFoundError:
            return ""

    def reopen(self) -> str:
        """Let a run that is over go on; returns how it had ended, as `ended` does."""
        how = self.ended()
        (self.path / "ended").unlink(missing_ok=True)
        return how

    # ------------------------------------------------------------ the rest

    def save_verdict(self, verdict: Verdict) -> Path:
        """A re-judged verdict stands beside the first one, never in its place."""
        name = "verdict-rejudged.json" if verdict.rejudged else "verdict.json"
        return write_atomically(self.path / name, to_json(verdict))

    def load_verdict(self) -> Verdict | None:
        file = self.path / "verdict.json"
        if not file.is_file():
            return None
        try:
            document = json.loads(file.read_bytes())
        except ValueError as error:
            raise KvbenchError(f"{file} is damaged: {error}", f"make it again: kvbench judge {self.path}") from None
        return from_json(document, Verdict, file)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run for as long as the block lasts. Raises RunHeld when another kvbench holds it."""
        with (self.path / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunHeld(f"{self.path} is being run by another kvbench", "wait for it, or stop it") from None
            yield


def _whole_lines(content: bytes, path: Path) -> list[bytes]:
    """The lines that are whole. A torn tail is left out; damage before whole lines raises KvbenchError."""
    lines = content.splitlines(keepends=True)
    good = [line.endswith(b"\n") and _parses(line) for line in lines]
    count = good.index(False) if False in good else len(lines)
    if any(good[count:]):
        raise KvbenchError(f"{path}:{count + 1}: the journal is damaged before its end", "restore it from a copy")
    return lines[:count]


def _parses(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def as_plain(value: object) -> Any:
    """A model type as what JSON holds."""
    kind: Any = type(value)
    return adapter(kind).dump_python(value, mode="json")


def to_json(value: object) -> bytes:
    """A model type as indented JSON, the same bytes for the same value."""
    return json.dumps(as_plain(value), indent=1, allow_nan=False).encode() + b"\n"


def from_json(document: Any, kind: type[T], path: Path) -> T:
    """A model type from JSON. Raises KvbenchError that names the file and key."""
    from pydantic import ValidationError

    try:
        return cast(T, adapter(cast(Any, kind)).validate_python(document))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in problem["loc"])
        raise KvbenchError(f"{path} is damaged: key {key}: {problem['msg']}") from None


def write_atomically(path: Path, content: bytes) -> Path:
    """Write a file so that a reader, or a crash, finds the old content or the new, never a part."""
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)
    _fsync_folder(path.parent)
    return path


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
