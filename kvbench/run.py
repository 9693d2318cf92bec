"""The loop: take the steps that the journal does not hold yet, one after the other, and append what each yields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Protocol

from kvbench import clock, plan, safety
from kvbench.engine import lifecycle
from kvbench.errors import KvbenchError, StepError
from kvbench.host.machine import rawdevice
from kvbench.journal import RunFolder
from kvbench.kv import ModelShape
from kvbench.model import Measurement, Step
from kvbench.pages import filler
from kvbench.probes.context import Context, Measured
from kvbench.probes.cost import Cost
from kvbench.probes.table import PROBES
from kvbench.store import deviceindex
from kvbench.units import format_bytes

RESERVE_BYTES = 256 * 2**20  # kept free beside what a step needs: journal, evidence, report
_TIME_LIMIT_FACTOR = 20  # a step that takes this many times its estimate hangs
_TIME_LIMIT_MIN_S = 600.0
_CHECKPOINTS = "{}/checkpoints"
_SAME_ERROR_LIMIT = 2  # steps that fail alike, one after the other, before the run stops


class Observer(Protocol):
    """Who watches a run: the terminal, or nobody in tests."""

    def began(self, step: Step, attempt: int, done: int, total: int) -> None: ...
    def progress(self, text: str, share: float | None) -> None: ...
    def measured(self, step: Step, measurement: Measurement) -> None: ...
    def note(self, text: str) -> None: ...


def execute(folder: RunFolder, shapes: Mapping[str, ModelShape], observer: Observer) -> None:
    """Measure every step that is still to do. A step that cannot be measured is recorded with its error.

    When the run is ended (`RunFolder.end`) meanwhile, the step in flight is the last one.

    Raises KvbenchError when the run cannot go on (no space, no target, the same error again and again); what was
    measured is kept, and calling this again goes on from there.
    """
    with folder.locked():
        folder.check_content()
        if folder.mend():
            observer.note("the journal's last line was torn; its step runs again")
        if ended := folder.survivors.end_all():
            observer.note(f"ended {ended} process(es) that had outlived the run")
        with safety.alone_on(_nodes(folder)), _claimed(folder) as claims:
            folder.started()
            _Loop(folder, shapes, observer, claims).go()


@dataclass(frozen=True, slots=True)
class _Loop:
    folder: RunFolder
    shapes: Mapping[str, ModelShape]
    observer: Observer
    claims: Mapping[str, tuple[Path, ...]]  # arm, or its pool of checkpoints → our folder on each of the nodes

    def go(self) -> None:
        todo = plan.remaining(self.folder.plan, self.folder.measurements())
        total = len(self.folder.plan.steps)
        errors: list[str] = []
        for position, step in enumerate(todo):
            if self.folder.ended():
                self.observer.note(f"stopped before step {step.id}; to go on: kvbench resume {self.folder.path}")
                return
            cost = plan.cost(step, self.folder.plan, self.shapes)
            self._check_space(step, cost)
            attempt = self.folder.begin(step)
            self.observer.began(step, attempt, total - len(todo) + position, total)
            measurement = self._measure(step, attempt, cost)
            self.folder.finish(measurement)
            self.observer.measured(step, measurement)
            errors = [*errors, measurement.error] if measurement.error else []
            if len(errors) >= _SAME_ERROR_LIMIT and len(set(errors)) == 1:
                raise KvbenchError(
                    f"{len(errors)} steps failed alike: {errors[-1]}",
                    f"mend the cause, then: kvbench resume {self.folder.path}",
                )

    def _measure(self, step: Step, attempt: int, cost: Cost) -> Measurement:
        start, raw_dir = clock.stamp(), self.folder.raw_dir(step)
        limit_s = max(_TIME_LIMIT_MIN_S, _TIME_LIMIT_FACTOR * cost.seconds)
        overhead, error = dict[str, float](), ""
        try:
            with self._context(step, attempt, raw_dir, start.monotonic_ns + int(limit_s * 1e9)) as context:
                overhead = context.overhead
                measured = PROBES[step.probe].load()(step, context)
        except (StepError, OSError) as problem:  # an OSError here is the storage's or the network's, not ours
            measured, error = Measured({}), problem.message if isinstance(problem, StepError) else str(problem)
        return Measurement(
            step_id=step.id,
            attempt=attempt,
            start=start,
            end=clock.stamp(),
            boot_id=clock.boot_id(),
            raw_files=_relative_files(raw_dir, self.folder.path),
            overhead=overhead,
            error=error,
            **{field.name: getattr(measured, field.name) for field in fields(measured)},
        )

    @contextmanager
    def _context(self, step: Step, attempt: int, raw_dir: Path, deadline_ns: int) -> Iterator[Context]:
        folder = self.folder
        with (
            self._data_dirs(step.arm, step, attempt) as data_dirs,
            self._data_dirs(_CHECKPOINTS.format(step.arm), step, attempt) as checkpoint_dirs,
            ExitStack() as stack,
        ):
            context = Context(
                run_dir=folder.path,
                raw_dir=raw_dir,
                target=folder.plan.target,
                arm=folder.plan.target.arm(step.arm) if step.arm else None,
                data_dirs=data_dirs,
                engine=None,
                attempt=attempt,
                deadline_ns=deadline_ns,
                progress=self.observer.progress,
                survivors=folder.survivors,
                lasting_dirs=self.claims.get(step.arm, ()),
                checkpoint_dirs=checkpoint_dirs,
            )
            if step.engine != "none" and context.arm is not None:
                self.observer.progress("starting the engine", None)
                engine = lifecycle.running(context.arm, data_dirs, context.raw_dir, folder.survivors)
                context = replace(context, engine=stack.enter_context(engine))
            yield context

    @contextmanager
    def _data_dirs(self, pool: str, step: Step, attempt: int) -> Iterator[tuple[Path, ...]]:
        """A fresh folder for this attempt on every node: what an earlier one wrote can never be taken for its own.

        A node that is a block device stands for itself; for a step that keeps pages it is made an empty store.
        """
        nodes = self.claims.get(pool, ())
        places = tuple(safety.data_file(node, f"{step.id}-a{attempt}") for node in nodes)
        folders = [place for place in places if place not in nodes]
        devices = [place for place in places if place in nodes and PROBES[step.probe].keeps_pages]
        for data_dir in folders:
            safety.remove_tree(data_dir)
            data_dir.mkdir()
        for device in devices:
            deviceindex.prepare(device, f"{self.folder.path.name}/{step.id}/{attempt}")
        try:
            with safety.staying(folders):
                yield places
        finally:
            if not self.folder.plan.keep_data:
                for data_dir in folders:
                    safety.remove_tree(data_dir)
                for device in devices:
                    deviceindex.forget(device)

    def _check_space(self, step: Step, cost: Cost) -> None:
        nodes = self.claims.get(step.arm, ())
        safety.check_there(nodes)
        per_node = (cost.space_bytes + cost.kept_bytes) // max(1, len(nodes))
        for path, space_bytes in [(self.folder.path, 0), *((node, per_node - _kept_bytes(node)) for node in nodes)]:
            needed, free = max(0, space_bytes) + RESERVE_BYTES, safety.free_bytes(path)
            if free < needed:
                raise KvbenchError(
                    f"step {step.id} needs {format_bytes(needed)} free at {path}; there are {format_bytes(free)}",
                    f"make room, or shorten the target's session_tokens; then: kvbench resume {self.folder.path}",
                )


def _kept_bytes(node: Path) -> int:
    """What earlier steps have left there for all."""
    return sum(file.stat().st_size for file in (node / filler.FOLDER).glob("*"))


def _relative_files(folder: Path, root: Path) -> tuple[str, ...]:
    return tuple(sorted(str(file.relative_to(root)) for file in folder.rglob("*") if file.is_file()))


def _nodes(folder: RunFolder) -> list[Path]:
    return [Path(node) for arm in folder.plan.target.arms if arm.storage for node in arm.storage.every_node]


@contextmanager
def _claimed(folder: RunFolder) -> Iterator[dict[str, tuple[Path, ...]]]:
    """Our folders on every arm's nodes, emptied of what a killed attempt left, and removed when the run is done.

    Nodes that are block devices are held for ourselves meanwhile; what was written there stays.
    """
    safety.refuse(folder.plan)
    footings = safety.footings(_nodes(folder))
    safety.check_footings(footings, folder.first_footings(footings))
    claims: dict[str, tuple[Path, ...]] = {}
    for arm in folder.plan.target.arms:
        if arm.storage is not None:
            for pool, nodes in (
                (arm.name, arm.storage.nodes),
                (_CHECKPOINTS.format(arm.name), arm.storage.checkpoint_nodes),
            ):
                claims[pool] = tuple(safety.claim(Path(node), folder.path.name) for node in nodes)
    every = {claim for nodes in claims.values() for claim in nodes}
    folders = {claim for claim in every if not claim.is_block_device()}
    if not folder.plan.keep_data:
        for claim in folders:
            safety.empty(claim)
    try:
        with rawdevice.taken(every):
            yield claims
    finally:
        if not folder.plan.keep_data:
            for claim in folders:
                safety.release(claim)
