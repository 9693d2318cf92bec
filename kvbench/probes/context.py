"""What a probe is, and what it gets beside its step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kvbench.model import Arm, Measurement, Step, Target

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


class Probe(Protocol):
    """`measure` turns one step into one measurement. Raises StepError when it cannot; leaves no process behind."""

    def __call__(self, step: Step, context: Context) -> Measurement: ...
