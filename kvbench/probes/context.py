"""What a probe is: what it gets beside its step, and what it returns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kvbench import clock
from kvbench.errors import StepError
from kvbench.model import Arm, Basis, Metric, Step, Storage, Target

if TYPE_CHECKING:
    from kvbench.engine.lifecycle import EngineHandle
    from kvbench.process import Survivors


@dataclass(frozen=True, slots=True)
class Context:
    """What a probe gets beside its step.

    `raw_dir` is empty and takes this attempt's evidence. `data_dirs` are folders of our own making on the arm's nodes,
    one a node, empty, and removed after the step; the probe may write nowhere else. A node that is a block device
    stands for itself (`ProbeSpec.on_devices`).
    `checkpoint_dirs` are such folders in the arm's pool of checkpoints, if it has one.
    `lasting_dirs` are the run's folders on the same nodes, which stay until its end: for what all its steps share.
    `engine` is running and answers, or None. `progress(text, share)` says what runs now; share is 0 to 1 or None.
    `survivors` marks the processes that the probe starts, so that a resumed run can end what outlived it.
    `overhead` is filled by `phase`.
    """

    run_dir: Path
    raw_dir: Path
    target: Target
    arm: Arm | None
    data_dirs: tuple[Path, ...]
    engine: EngineHandle | None
    attempt: int
    deadline_ns: int
    progress: Callable[[str, float | None], None]
    survivors: Survivors
    lasting_dirs: tuple[Path, ...] = ()
    checkpoint_dirs: tuple[Path, ...] = ()
    overhead: dict[str, float] = field(default_factory=dict)

    @property
    def storage(self) -> Storage:
        """The arm's. Raises StepError when it has none."""
        if self.arm is None or self.arm.storage is None:
            raise StepError("the arm has no storage", "give the arm a storage with nodes")
        return self.arm.storage

    @property
    def left_s(self) -> float:
        return (self.deadline_ns - clock.monotonic_ns()) / 1e9

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Say what runs now, and note how long it took."""
        self.progress(name, None)
        began_ns = clock.monotonic_ns()
        yield
        self.overhead[name] = (clock.monotonic_ns() - began_ns) / 1e9

    def source(self, name: str) -> str:
        """A file of the evidence, as a metric names it."""
        return str((self.raw_dir / name).relative_to(self.run_dir))

    def keep(self, name: str, facts: Mapping[str, Any]) -> str:
        """Write JSON among the evidence; returns its source."""
        (self.raw_dir / name).write_text(json.dumps(facts, indent=1, ensure_ascii=False, default=str) + "\n")
        return self.source(name)

    def keep_rows(self, name: str, rows: Sequence[Mapping[str, Any]]) -> str:
        """Write a table among the evidence; returns its source."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(list(rows)), self.raw_dir / name, compression="zstd")
        return self.source(name)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a probe has found: a Measurement but for what the run itself knows of it (step, attempt, times, files)."""

    metrics: Mapping[str, Metric]
    series: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    basis: Basis = "measured"


class Probe(Protocol):
    """Measures one step. Raises StepError when it cannot; leaves no process behind."""

    def __call__(self, step: Step, context: Context) -> Measured: ...
