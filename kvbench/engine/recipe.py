"""Recipes: how real engines are started, what proves that they read from storage, and what must hold before. Pure.

A recipe is a file of engines/, and holds a family of engines for both kinds of arm: the processes that an arm with
KV on storage has, and the ones that are left when the same engine recomputes. Arms differ in that alone, so the
commands that they have in common are what `told` gives as the engine's flags.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kvbench.errors import StepError, UsageError
from kvbench.model import Arm, Engine
from kvbench.units import format_bytes

# A word, or a document that the engine takes as JSON. `{name}` in either is filled in.
Argument = str | Mapping[str, Any]
Value = str | int | float | bool

_STRICT: dict[str, Any] = {"extra": "forbid"}
_PLACEHOLDER = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_FREE_SHARE = 0.8  # of free memory or free space that tiers may be told to fill
_HASH_SEED = "PYTHONHASHSEED"


@dataclass(frozen=True, slots=True)
class Process:
    """One process of an engine. `storage_…` is added where the arm's KV is on storage; `only` there it runs at all.

    `health` and `metrics` are URLs; a process without `metrics` exports none.
    """

    name: str
    command: tuple[Argument, ...]
    health: str
    metrics: str = ""
    only: Literal["always", "storage"] = "always"
    storage_args: tuple[Argument, ...] = ()
    storage_env: Mapping[str, Argument] = field(default_factory=dict)

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Recipe:
    """An engine as a file of engines/ describes it.

    `processes` are started in this order and stopped in the reverse one. `serves` names the process with OpenAI's
    API, whose version is at `version_path`. Filled in are the `parameters` (a target may give them other values),
    and python, bin (its folder), model, kv_dir, direct, tensor_parallel, host_memory_bytes, host_memory_gib,
    work_dir, shm_name, and every name that ends in port.
    `hits` are the metric families of which one must be exported: they count what came from beyond GPU memory.
    `host_memory` says how the engine takes the size of its host tier: of each rank, of all, or not at all.
    `packages` are the versions that the recipe was proven with. `leftovers` are patterns of files that the engine
    leaves behind when it stops; only those that its processes had mapped are removed.
    """

    id: str
    why: str
    proven: str  # where and how it was tried
    serves: str
    processes: tuple[Process, ...]
    parameters: Mapping[str, Value]
    hits: tuple[str, ...]
    packages: Mapping[str, str]
    version_path: str
    prefix_caching_off: str = ""  # the flag that keeps prefixes out of GPU memory; "": the engine cannot do without
    host_memory: Literal["per_rank", "whole", "none"] = "none"
    disk_gib_per_rank: str = ""  # the parameter that limits what each rank may store, if there is one
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # JSON, written to work_dir
    leftovers: tuple[str, ...] = ()

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Place:
    """Where a launch happens: what only the moment of starting knows. `ports` has every name of `port_names`."""

    kv_dir: str
    work_dir: str
    shm_name: str
    ports: Mapping[str, int]
    python: str


@dataclass(frozen=True, slots=True)
class Command:
    """A process with everything filled in."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    health_url: str
    metrics_url: str

    def __str__(self) -> str:
        """As a line for a shell."""
        return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in self.env.items()), shlex.join(self.argv)])


def port_names(recipe: Recipe) -> list[str]:
    """The placeholders for which a free port is needed, in the order of their names."""
    return sorted(name for name in _placeholders(recipe) if name.endswith("port"))


def commands(recipe: Recipe, arm: Arm, place: Place) -> list[Command]:
    """The processes of an arm's engine, in the order of starting."""
    values, stores = _values(recipe, arm, place), arm.kv == "storage"
    return [
        _command(process, recipe, arm, values) for process in recipe.processes if stores or process.only == "always"
    ]


def files(recipe: Recipe, arm: Arm, place: Place) -> dict[str, str]:
    """The configuration files that the processes of an arm with KV on storage read, by their names in work_dir."""
    if arm.kv != "storage":
        return {}
    values = _values(recipe, arm, place)
    return {name: json.dumps(_fill(document, values), indent=1) + "\n" for name, document in recipe.files.items()}


def told(recipe: Recipe, arm: Arm) -> dict[str, str]:
    """What the arm's engine has in common with one that recomputes: its commands, without anything of this start."""
    common = commands(recipe, _anywhere(arm.engine), _nowhere(recipe))
    return {command.name: str(command) for command in common}


def described(recipe: Recipe, arm: Arm, place: Place) -> list[str]:
    """What would be started for an arm, as a script that can be read and run; ports and folders are of `place`."""
    lines = [f"# {recipe.id} for arm {arm.name}, KV: {arm.kv}", f"# proven: {recipe.proven}"]
    for name, text in files(recipe, arm, place).items():
        lines += [f"cat >{place.work_dir}/{name} <<'END'", text.rstrip(), "END"]
    for command in commands(recipe, arm, place):
        metrics = f", metrics at {command.metrics_url}" if command.metrics_url else ""
        lines += [f"# {command.name}: up when {command.health_url} answers{metrics}", f"{command} &"]
    return lines


def chunk_tokens(recipe: Recipe, engine: Engine) -> int:
    """Tokens of one page of the storage."""
    return int(engine.parameters.get("chunk_tokens") or recipe.parameters["chunk_tokens"])


def check(recipe: Recipe, engine: Engine, source: Path | str) -> None:
    """Raise UsageError for a recipe that cannot be filled in, or for parameters that it does not have."""
    if recipe.serves not in [process.name for process in recipe.processes]:
        raise UsageError(f"{source}: serves names no process: {recipe.serves!r}")
    if "chunk_tokens" not in recipe.parameters:
        raise UsageError(f"{source}: parameters has no chunk_tokens", "say how many tokens one stored page holds")
    unknown = _placeholders(recipe) - set(_values(recipe, _anywhere(engine), _nowhere(recipe)))
    if unknown:
        raise UsageError(f"{source}: nothing fills in {{{sorted(unknown)[0]}}}", "make it a parameter")
    for name in engine.parameters:
        if name not in recipe.parameters and name != "python":
            known = ", ".join(("python", *recipe.parameters))
            raise UsageError(f"recipe {recipe.id} has no parameter {name!r}", f"one of: {known}")


def _anywhere(engine: Engine) -> Arm:
    return Arm("any", "dut", engine, "recompute")


def _nowhere(recipe: Recipe) -> Place:
    return Place("", "", "", dict.fromkeys(port_names(recipe), 0), "python")


# ---------------------------------------------------------------- before the start


def preflight(recipe: Recipe, arm: Arm, started: list[Command], free_memory_bytes: int, free_disk_bytes: int) -> None:
    """Raise StepError for what would spoil the measurement, or the machine, before anything is started."""
    engine = arm.engine
    seeds = {command.name: command.env.get(_HASH_SEED, "") for command in started}
    if "" in seeds.values() or len(set(seeds.values())) > 1:
        raise StepError(
            f"recipe {recipe.id}: {_HASH_SEED} is not the same for every process: {seeds}",
            f"set {_HASH_SEED} in its env: names of pages follow from it, and differ between processes without it",
        )
    serving = next(command for command in started if command.name == recipe.serves)
    if recipe.prefix_caching_off and recipe.prefix_caching_off not in serving.argv:
        raise StepError(f"recipe {recipe.id}: {recipe.serves} is started without {recipe.prefix_caching_off}")
    if "--enable-prefix-caching" in serving.argv:
        raise StepError(
            "the engine is started with --enable-prefix-caching: a hit in GPU memory is no read from storage",
            "take it out of extra_args",
        )
    if arm.kv == "storage":
        for what, needed_bytes, free_bytes in _sizes(recipe, engine, free_memory_bytes, free_disk_bytes):
            if needed_bytes > _FREE_SHARE * free_bytes:
                raise StepError(
                    f"recipe {recipe.id}: {what} takes {format_bytes(needed_bytes)} over all ranks, more than "
                    f"{_FREE_SHARE:.0%} of the {format_bytes(free_bytes)} that are free",
                    "make it smaller in the target, or make room",
                )


def _sizes(recipe: Recipe, engine: Engine, memory_bytes: int, disk_bytes: int) -> Iterator[tuple[str, int, int]]:
    if recipe.host_memory != "none":
        ranks = engine.tensor_parallel if recipe.host_memory == "per_rank" else 1
        yield "host memory", engine.host_memory_bytes * ranks, memory_bytes
    if name := recipe.disk_gib_per_rank:
        gib = float(engine.parameters.get(name) or recipe.parameters[name])
        yield "storage", int(gib * 2**30) * engine.tensor_parallel, disk_bytes


def exports_hits(recipe: Recipe, exposition: str) -> bool:
    """Whether a Prometheus exposition has one of the families that prove hits."""
    names = {line.replace("{", " ", 1).split(" ", 1)[0] for line in exposition.splitlines()}
    return any(name in names or f"{name}_total" in names for name in recipe.hits)


# ---------------------------------------------------------------- filling in


def _command(process: Process, recipe: Recipe, arm: Arm, values: Mapping[str, Value]) -> Command:
    stores = arm.kv == "storage"
    words = [*process.command, *(process.storage_args if stores else ())]
    env = {**recipe.env, **(process.storage_env if stores else {}), **arm.engine.env}
    extra = arm.engine.extra_args if process.name == recipe.serves else ()
    return Command(
        name=process.name,
        argv=(*(_word(word, values) for word in words), *extra),
        env={name: _word(value, values) for name, value in env.items()},
        health_url=_word(process.health, values),
        metrics_url=_word(process.metrics, values),
    )


def _values(recipe: Recipe, arm: Arm, place: Place) -> dict[str, Value]:
    engine = arm.engine
    python = engine.parameters.get("python", place.python)
    return {
        **recipe.parameters,
        **engine.parameters,
        **place.ports,
        "python": python,
        "bin": str(Path(python).parent),
        "model": engine.model,
        "kv_dir": place.kv_dir,
        "direct": arm.storage.direct if arm.storage else True,
        "tensor_parallel": engine.tensor_parallel,
        "host_memory_bytes": engine.host_memory_bytes,
        "host_memory_gib": engine.host_memory_bytes / 2**30,
        "work_dir": place.work_dir,
        "shm_name": place.shm_name,
    }


def _word(argument: Argument, values: Mapping[str, Value]) -> str:
    filled = _fill(argument, values)
    return json.dumps(filled, separators=(",", ":")) if isinstance(filled, Mapping) else _text(filled)


def _fill(node: Any, values: Mapping[str, Value]) -> Any:
    """The same document with its placeholders filled in; one that is a whole string keeps the type of its value."""
    if isinstance(node, Mapping):
        return {key: _fill(value, values) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_fill(value, values) for value in node]
    if not isinstance(node, str):
        return node
    if (whole := _PLACEHOLDER.fullmatch(node)) and whole[1] in values:
        return values[whole[1]]
    return _PLACEHOLDER.sub(lambda match: _text(values.get(match[1], match[0])), node)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _placeholders(recipe: Recipe) -> set[str]:
    def strings(node: Any) -> Iterator[str]:
        if isinstance(node, Mapping):
            for value in node.values():
                yield from strings(value)
        elif isinstance(node, list | tuple):
            for value in node:
                yield from strings(value)
        elif isinstance(node, str):
            yield node

    parts: list[Any] = [dict(recipe.env), dict(recipe.files)]
    for process in recipe.processes:
        parts += [process.command, process.storage_args, dict(process.storage_env), process.health, process.metrics]
    return {name for text in strings(parts) for name in _PLACEHOLDER.findall(text)}
