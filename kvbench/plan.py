"""Gate + Target + seed → Plan: the fixed list of steps, what it takes, and what is still to do. Pure."""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from posixpath import normpath
from typing import Any

import kvbench
from kvbench.adapters import adapter
from kvbench.content import Loaded, digest
from kvbench.errors import UsageError
from kvbench.kv import ModelShape, stored_shape
from kvbench.model import (
    FORMAT_VERSION,
    Arm,
    Check,
    DataSheet,
    Gate,
    GateStep,
    Measurement,
    Override,
    Plan,
    Step,
    Target,
)
from kvbench.probes.cost import Cost
from kvbench.probes.table import PROBES, ProbeSpec
from kvbench.units import parse_bytes

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,40}\Z")  # arm and step names become folder names


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says beside gate and target."""

    seed: int = 1
    quick: bool = False
    rounds: int | None = None
    keep_data: bool = False
    duration_s: float | None = None
    slice_s: float | None = None
    round_cv: float | None = None
    round_cv_source: str = ""
    ungated: str = ""
    overrides: tuple[Override, ...] = ()
    destroy_data: tuple[str, ...] = ()


def make_plan(loaded: Loaded, target: Target, shapes: Mapping[str, ModelShape], options: Options) -> Plan:
    """Multiply the gate's steps over arms, cells and rounds. Raises UsageError for what cannot be run or judged.

    Arms are shuffled anew for every round and cell, so that neither always goes first.
    """
    gate = loaded.gate
    _check_target(target)
    _check_steps(gate)
    for check in gate.checks:
        _check_check(check, gate)
    slice_s = _slice_s(gate, options)
    rounds = _rounds(gate, options, slice_s)
    if any(gate_step.arms == "dut_twice" for gate_step in gate.steps):
        target = _with_dut_twice(target)
    expand = _Expansion(loaded, target, shapes, options, slice_s, rounds)
    steps = [step for gate_step in gate.steps if not gate_step.per_round for step in expand(gate_step, 0)]
    for number in range(1, rounds + 1):
        for gate_step in gate.steps:
            if gate_step.per_round and number % _every(gate_step, rounds) == 0:
                steps += expand(gate_step, number)
    return Plan(
        version=FORMAT_VERSION,
        kvbench_version=kvbench.__version__,
        gate=gate,
        target=target,
        steps=tuple(steps),
        seed=options.seed,
        quick=options.quick,
        content_digest=digest(loaded.files),
        keep_data=options.keep_data,
        slice_s=slice_s,
        round_cv=options.round_cv,
        round_cv_source=options.round_cv_source,
        ungated=options.ungated,
        overrides=tuple(one for one in options.overrides if any(step.kind == one.step for step in steps)),
        destroy_data=options.destroy_data,
    )


def _slice_s(gate: Gate, options: Options) -> float:
    """How long one slice is; 0 for a gate of rounds."""
    if not gate.duration_s:
        if options.duration_s or options.slice_s:
            raise UsageError(f"gate {gate.id} has rounds, not a duration", "leave --duration and --slice out")
        return 0.0
    return options.slice_s or (gate.quick_slice_s if options.quick else 0.0) or gate.slice_s


def _rounds(gate: Gate, options: Options, slice_s: float) -> int:
    if not slice_s:
        return options.rounds or (gate.quick_rounds if options.quick else gate.rounds)
    duration_s = options.duration_s or (gate.quick_duration_s if options.quick else 0.0) or gate.duration_s
    if duration_s < slice_s:
        raise UsageError(f"a duration of {duration_s:g} s holds no slice of {slice_s:g} s", "shorten --slice")
    return math.floor(duration_s / slice_s + 1e-9)  # 2 s hold 2,000 slices of 1 ms, though 2 // 0.001 is 1,999


def _every(gate_step: GateStep, rounds: int) -> int:
    """Of how many rounds one has the step: as its gate says, but three times in a run of three rounds or more."""
    return min(gate_step.every, max(1, rounds // 3))


def _with_dut_twice(target: Target) -> Target:
    """The target with its dut a second time, for A/A: the same storage under another name, in the role again."""
    dut = next(arm for arm in target.arms if arm.role == "dut")
    return replace(target, arms=(*target.arms, replace(dut, name=f"{dut.name}-again", role="again")))


def remaining(plan: Plan, measurements: Iterable[Measurement]) -> list[Step]:
    """The steps that no measurement without an error stands for yet, in the plan's order."""
    done = {measurement.step_id for measurement in measurements if not measurement.error}
    return [step for step in plan.steps if step.id not in done]


def cost(step: Step, plan: Plan, shapes: Mapping[str, ModelShape]) -> Cost:
    """What a step is expected to take."""
    spec = PROBES[step.probe]
    arm = plan.target.arm(step.arm) if step.arm else None
    return spec.cost(_params(spec, step.params, step.id), arm, _shape(arm, shapes))


def total_cost(plan: Plan, steps: Sequence[Step], shapes: Mapping[str, ModelShape]) -> Cost:
    """What the steps take together: times and bytes added, space at its highest (added too when data is kept)."""
    costs = [cost(step, plan, shapes) for step in steps]
    spaces = [c.space_bytes for c in costs]
    kept = _kept_bytes(plan, steps, costs)
    return Cost(
        seconds=sum(c.seconds for c in costs),
        written_bytes=sum(c.written_bytes for c in costs) + kept,
        space_bytes=(sum(spaces) if plan.keep_data else max(spaces, default=0)) + kept,
        kept_bytes=kept,
        read_bytes=sum(c.read_bytes for c in costs),
        evidence_bytes=sum(c.evidence_bytes for c in costs),
    )


def _kept_bytes(plan: Plan, steps: Sequence[Step], costs: Sequence[Cost]) -> int:
    """Of arms on the same nodes once."""
    kept: dict[tuple[str, ...], int] = {}
    for step, taken in zip(steps, costs, strict=True):
        storage = plan.target.arm(step.arm).storage if step.arm else None
        if storage:
            kept[storage.nodes] = max(kept.get(storage.nodes, 0), taken.kept_bytes)
    return sum(kept.values())


def parse_params(step: Step) -> Any:
    """A step's params as its probe's own type."""
    return _params(PROBES[step.probe], step.params, step.id)


@dataclass(frozen=True, slots=True)
class _Expansion:
    loaded: Loaded
    target: Target
    shapes: Mapping[str, ModelShape]
    options: Options
    slice_s: float
    rounds: int

    def __call__(self, gate_step: GateStep, round_number: int) -> Iterator[Step]:
        hooks = sorted(name for name in self.target.hooks if gate_step.hook and name.startswith(gate_step.hook))
        if gate_step.hook and not hooks:
            return
        quick = dict(gate_step.quick) if self.options.quick else {}
        scaling = quick.pop("scaling", gate_step.scaling)
        if gate_step.scaling and not (scaling and self.target.can_scale):
            return
        concurrency = quick.pop("concurrency", gate_step.concurrency)
        page_sizes = quick.pop("page_bytes", gate_step.page_bytes)
        base = {**self.loaded.params.get(gate_step.id, {}), **gate_step.params, **quick}
        for override in self.options.overrides:
            base |= override.params if override.step == gate_step.id else {}
        known = {field.name for field in fields(PROBES[gate_step.probe].params)}
        if self.target.session_tokens and "session_tokens" in known:
            base["session_tokens"] = self.target.session_tokens
        if self.slice_s and "slice_s" in known:
            base["slice_s"] = self.slice_s
        if hooks:
            turn = round_number // _every(gate_step, self.rounds)
            base["hook"] = hooks[(turn - 1) % len(hooks)]
        for (page_cell, page_bytes), change, (load_cell, load) in product(
            _pages(page_sizes), scaling or ("",), _loads(concurrency)
        ):
            cell = "-".join(filter(None, (page_cell, change, load_cell)))
            params = {**base, **page_bytes, **({"scaling": change} if change else {}), **load}
            rng = random.Random(f"{self.options.seed}/{gate_step.id}/{round_number}/{cell}")
            arms = _arms(gate_step, self.target)
            rng.shuffle(arms)
            for arm in arms:
                yield self._step(gate_step, round_number, cell, arm, params)

    def _step(
        self, gate_step: GateStep, round_number: int, cell: str, arm: Arm | None, params: Mapping[str, Any]
    ) -> Step:
        spec = PROBES[gate_step.probe]
        parts = (
            gate_step.id,
            f"r{round_number:0{max(2, len(str(self.rounds)))}}" if round_number else "",
            cell,
            arm.name if arm else "",
        )
        step_id = "-".join(part for part in parts if part)
        if arm and "page_bytes" not in params and "page_bytes" in {field.name for field in fields(spec.params)}:
            shape = _shape(arm, self.shapes)
            if shape is None and any("{page_bytes}" in str(value) for value in (params.get("options") or {}).values()):
                raise UsageError(
                    f"step {step_id} reads whole pages, and the size of a page of arm {arm.name} is not known",
                    "name a model of workloads/models.yaml or a folder with its config.json, and a known type",
                )
            params = {**params, "page_bytes": shape.page_bytes(arm.engine.tensor_parallel) if shape else 0}
        _params(spec, params, f"{self.loaded.source}: step {gate_step.id}")
        return Step(
            id=step_id,
            kind=gate_step.id,
            probe=gate_step.probe,
            arm=arm.name if arm else "",
            cell=cell,
            round=round_number,
            params=params,
            # not of the arm: both arms of a round meet the same prompts
            seed=_seed(self.options.seed, gate_step.id, round_number, cell),
            engine=gate_step.engine,
        )


def _loads(concurrency: Sequence[int]) -> list[tuple[str, dict[str, int]]]:
    """The name and params of every concurrency of a step; one without either where it has none."""
    return [(f"c{number}", {"concurrency": number}) for number in concurrency] or [("", {})]


def _pages(sizes: Sequence[str | int]) -> list[tuple[str, dict[str, int]]]:
    """The same of every page size; that of the arm's own model is filled in arm by arm."""
    return [_page(size) for size in sizes] or [("", {})]


def _page(size: str | int) -> tuple[str, dict[str, int]]:
    if size == "model":
        return "model", {}
    page_bytes = parse_bytes(size)
    for unit, name in ((2**20, "MiB"), (2**10, "KiB")):
        if page_bytes % unit == 0 and page_bytes < 2**10 * unit:
            return f"{page_bytes // unit}{name}", {"page_bytes": page_bytes}
    return f"{page_bytes}B", {"page_bytes": page_bytes}


def _arms(gate_step: GateStep, target: Target) -> list[Arm | None]:
    match gate_step.arms:
        case "none":
            return [None]
        case "storage":
            return [*_arms_with_storage(target)]
        case "two_pools":
            return [arm for arm in _arms_with_storage(target) if arm.storage and arm.storage.checkpoint_nodes]
        case "dut":
            return [arm for arm in target.arms if arm.role == "dut"]
        case "dut_twice":
            return [arm for arm in target.arms if arm.role in ("dut", "again")]
    return [arm for arm in target.arms if arm.role != "again"]


def _arms_with_storage(target: Target) -> list[Arm]:
    return [arm for arm in target.arms if arm.kv == "storage" and arm.role != "again"]


def _seed(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=7).digest(), "little")


def _params(spec: ProbeSpec, params: Mapping[str, Any], where: str) -> Any:
    from pydantic import ValidationError

    try:
        return adapter(spec.params).validate_python(dict(params))
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        key = ".".join(["params", *map(str, problem["loc"])])
        raise UsageError(f"{where}: {key}: {problem['msg'].removeprefix('Value error, ')}") from None


def _shape(arm: Arm | None, shapes: Mapping[str, ModelShape]) -> ModelShape | None:
    return stored_shape(arm.engine, shapes) if arm else None


def _check_target(target: Target) -> None:
    names = [arm.name for arm in target.arms]
    for name in names:
        if not _NAME.match(name):
            raise UsageError(f"target {target.name}: arm name {name!r}: letters, digits, - and _ only, at most 41")
    if len(set(names)) != len(names):
        raise UsageError(f"target {target.name}: two arms have the same name", "give each arm a name of its own")
    for role in ("dut", "baseline"):
        if sum(arm.role == role for arm in target.arms) != 1:
            raise UsageError(f"target {target.name}: exactly one arm must have the role {role}")
    if any(arm.role == "again" for arm in target.arms):
        raise UsageError(f"target {target.name}: the role again is kvbench's own", "dut, baseline or reference")
    for arm in target.arms:
        _check_arm(arm, f"target {target.name}: arm {arm.name}")


def _check_arm(arm: Arm, where: str) -> None:
    if arm.kv == "storage" and not (arm.storage and arm.storage.nodes):
        raise UsageError(f"{where}: kv is storage, but it has no storage.nodes", "list its directories")
    if arm.storage and not all(arm.storage.every_node):
        raise UsageError(f"{where}: storage names a directory without a name", "write its absolute path")
    if arm.storage and len(set(map(normpath, arm.storage.every_node))) < len(arm.storage.every_node):
        raise UsageError(f"{where}: storage names a directory twice", "give each node a directory of its own")
    if arm.kv == "recompute" and arm.storage:
        raise UsageError(f"{where}: kv is recompute, but it has storage", "take one of the two out")
    if arm.engine.kind == "openai" and not arm.engine.urls:
        raise UsageError(f"{where}: engine openai needs urls", "urls: [http://127.0.0.1:8000]")
    if arm.engine.kind == "launch" and not (arm.engine.command or arm.engine.recipe):
        raise UsageError(f"{where}: engine launch needs a recipe or a command")


def _check_steps(gate: Gate) -> None:
    for name, uses in Counter(step.id for step in gate.steps).items():
        if not _NAME.match(name):
            raise UsageError(f"gate {gate.id}: step id {name!r}: letters, digits, - and _ only, at most 41")
        if uses > 1:
            raise UsageError(f"gate {gate.id}: two steps have the id {name!r}", "give each step an id of its own")


def _check_check(check: Check, gate: Gate) -> None:
    """A check that could never be judged is a mistake in the gate file, found before anything runs."""
    where = f"gate {gate.id}: check {check.id}"
    if check.rule == "arms_equal":
        return
    named = [] if check.rule == "expected" else [(check.step, check.metric)]
    if check.against_step:
        named.append((check.against_step, check.metric))
    if check.divide_by and not _is_datasheet_figure(check.divide_by, where):
        named.append(_divisor(check.divide_by))
    for step_id, metric in named:
        step = next((s for s in gate.steps if s.id == step_id), None)
        if step is None:
            raise UsageError(f"{where}: there is no step {step_id!r}", f"one of: {', '.join(s.id for s in gate.steps)}")
        if metric not in PROBES[step.probe].metrics:
            known = ", ".join(sorted(PROBES[step.probe].metrics))
            raise UsageError(f"{where}: step {step_id} yields no metric {metric!r}", f"one of: {known}")
    if check.rule not in ("present", "expected") and (not check.op or check.limit is None):
        raise UsageError(f"{where}: rule {check.rule} needs op and limit")
    if (check.op == "in") != isinstance(check.limit, tuple):
        raise UsageError(f"{where}: op `in` goes with a limit of two numbers, and the other ops with one")
    if isinstance(check.limit, tuple) and check.limit[0] > check.limit[1]:
        raise UsageError(f"{where}: no value lies in limit {list(check.limit)}", "write the lower number first")


def _is_datasheet_figure(divide_by: str, where: str) -> bool:
    name, figure = _divisor(divide_by)
    if name != "datasheet":
        return False
    known = [field.name for field in fields(DataSheet)]
    if figure not in known:
        raise UsageError(f"{where}: a data sheet has no figure {figure!r}", f"one of: {', '.join(known)}")
    return True


def _divisor(divide_by: str) -> tuple[str, str]:
    step_id, _, metric = divide_by.partition(".")
    return step_id, metric
