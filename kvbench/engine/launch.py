"""What has to be started for an arm's engine, whichever way the target describes it."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kvbench import content, process, safety
from kvbench.content import Loaded
from kvbench.engine import recipe
from kvbench.engine.recipe import Recipe
from kvbench.errors import StepError, UsageError
from kvbench.host.machine.system import available_memory_bytes
from kvbench.model import Arm, Engine, Target

_ASK_VERSIONS = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"


@dataclass(frozen=True, slots=True)
class Program:
    """One process to start. It is up when `health_url` answers; its address may be what it writes to `ready_file`."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    url: str = ""
    health_url: str = ""
    ready_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """An engine to start: its programs in order, which of them serves, and what is known of it beforehand.

    `metrics_urls` are empty where the engine's own address has all there is. `about` is what the arms must have in
    common; None where nothing can be said.
    """

    programs: tuple[Program, ...]
    serves: str
    metrics_urls: tuple[str, ...] = ()
    about: Mapping[str, Any] | None = None
    version_url: str = ""
    chunk_tokens: int | None = None
    recipe: Recipe | None = None


def load_recipe(engine: Engine) -> Recipe:
    """The recipe that an engine names, of engines/ or by the path of a file. Raises UsageError, also when its
    parameters are not the engine's."""
    path = recipe_path(engine.recipe)
    found = content.read(path, Recipe)
    recipe.check(found, engine, path)
    return found


def with_recipes(loaded: Loaded, target: Target) -> Loaded:
    """A gate's files, and with them the recipes that the target names: a run keeps a copy. Raises UsageError."""
    files = dict(loaded.files)
    for engine in (arm.engine for arm in target.arms if arm.engine.recipe):
        load_recipe(engine)
        path = recipe_path(engine.recipe)
        files[f"engines/{path.name}"] = path.read_bytes()
    return replace(loaded, files=files)


def recipe_path(name: str) -> Path:
    """Where a recipe lies. Raises UsageError when there is none of that name."""
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    path = content.content_root() / "engines" / f"{name}.yaml"
    if Path(name).name != name or not path.is_file():
        raise UsageError(f"there is no engine recipe {name!r}", choices())
    return path


def choices() -> str:
    """What can be named as a recipe, for a message."""
    folder = content.content_root() / "engines"
    return f"one of {', '.join(sorted(path.stem for path in folder.glob('*.yaml')))}, or the path of a file"


def emulated(arm: Arm, data_dirs: tuple[Path, ...], log_dir: Path) -> Launch:
    """kvbench's own engine, for the arm's model, accelerator and storage."""
    engine, storage = arm.engine, arm.storage
    ready_file = log_dir / "engine-ready.json"
    argv = [sys.executable, "-m", "kvbench", "engine", "serve", "--port", "0", "--ready-file", str(ready_file)]
    argv += ["--model", engine.model, "--accelerator", engine.accelerator]
    argv += ["--tensor-parallel", str(engine.tensor_parallel), "--host-memory", f"{engine.host_memory_bytes} B"]
    if arm.kv == "recompute":
        argv.append("--recompute")
    else:
        for directory in data_dirs:
            argv += ["--kv-dir", str(directory)]
        argv += ["--salt", ":".join(map(str, data_dirs)), "--fault-log", str(log_dir / "engine-faults.jsonl")]
        if storage and not storage.direct:
            argv.append("--no-direct")
        if storage and storage.rate_limit_bytes_per_s:
            argv += ["--rate-limit", f"{storage.rate_limit_bytes_per_s} B/s"]
    program = Program("engine", tuple(argv), engine.env, ready_file=ready_file)
    return Launch((program,), "engine")


def by_command(arm: Arm, data_dirs: tuple[Path, ...]) -> Launch:
    """The target's command with `{port}`, `{kv_dir}` (several: separated by commas) and `{python}` filled in."""
    engine = arm.engine
    if not engine.command:
        raise StepError("the engine of kind launch has no command", "write its command, or a recipe, in the target")
    (port,) = _free_ports(1)
    values = {"{port}": str(port), "{kv_dir}": ",".join(map(str, data_dirs)), "{python}": sys.executable}
    argv = list(engine.command)
    for name, value in values.items():
        argv = [part.replace(name, value) for part in argv]
    url = f"http://127.0.0.1:{port}"
    return Launch((Program("engine", tuple(argv), engine.env, url, url + engine.health_path),), "engine")


def by_recipe(arm: Arm, data_dirs: tuple[Path, ...], log_dir: Path) -> Launch:
    """The processes of the arm's recipe, with its files written. Raises StepError when a requirement does not hold."""
    chosen = load_recipe(arm.engine)
    if len(data_dirs) > 1:
        raise StepError(
            f"recipe {chosen.id} keeps its pages in one folder, and the arm {arm.name} has {len(data_dirs)} nodes",
            "bring them under one mount point",
        )
    names = recipe.port_names(chosen)
    place = recipe.Place(
        kv_dir=str(data_dirs[0]) if data_dirs else "",
        work_dir=str(log_dir),
        shm_name=f"kvbench_{os.getpid()}",
        ports=dict(zip(names, _free_ports(len(names)), strict=True)),
        python=sys.executable,
    )
    started = recipe.commands(chosen, arm, place)
    disk_bytes = safety.free_bytes(data_dirs[0]) if data_dirs else 0
    recipe.preflight(chosen, arm, started, available_memory_bytes(), disk_bytes)
    for name, text in recipe.files(chosen, arm, place).items():
        (log_dir / name).write_text(text)
    url = f"http://127.0.0.1:{place.ports['port']}"
    return Launch(
        programs=tuple(
            Program(c.name, c.argv, c.env, url if c.name == chosen.serves else "", c.health_url) for c in started
        ),
        serves=chosen.serves,
        metrics_urls=tuple(command.metrics_url for command in started if command.metrics_url),
        about={
            "recipe": chosen.id,
            "model": arm.engine.model,
            "packages": _versions(chosen, arm.engine.parameters.get("python", sys.executable)),
            "commands": recipe.told(chosen, arm),
        },
        version_url=url + chosen.version_path,
        chunk_tokens=recipe.chunk_tokens(chosen, arm.engine),
        recipe=chosen,
    )


def _versions(chosen: Recipe, python: str) -> dict[str, str]:
    """The installed versions of what the recipe needs. Raises StepError when a package is missing."""
    done = process.run([python, "-c", _ASK_VERSIONS, *chosen.packages])
    if done.returncode:
        missing = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise StepError(
            f"recipe {chosen.id} needs {', '.join(chosen.packages)} in {python}: {missing[0]}",
            "name the engine's own Python in the target: parameters: {python: /path/to/venv/bin/python}",
        )
    return {str(name): str(version) for name, version in json.loads(done.stdout).items()}


def _free_ports(count: int) -> list[int]:
    """Different ports that were free a moment ago; a program says so itself if one is taken by then."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in held]
