"""Recipes of real engines: what would be started, and what stops them before anything is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvbench.cli.engine import recipe as show
from kvbench.engine import launch, recipe
from kvbench.engine.recipe import Place, Recipe
from kvbench.errors import StepError, UsageError
from kvbench.model import Arm, Engine, Storage

GOLDEN = Path(__file__).parents[1] / "golden" / "engines"
ENGINES = Path(__file__).parents[2] / "engines"
NAMES = sorted(path.stem for path in ENGINES.glob("*.yaml"))
GIB = 2**30


def arm(name: str, kv: str = "storage", **engine: Any) -> Arm:
    storage = Storage(("/mnt/kv",)) if kv == "storage" else None
    return Arm("dut", "dut", Engine("launch", "/models/m", recipe=name, **engine), kv, storage)  # type: ignore[arg-type]


def started(given: Arm, found: Recipe | None = None) -> list[recipe.Command]:
    found = found or launch.load_recipe(given.engine)
    ports = {name: 9000 + number for number, name in enumerate(recipe.port_names(found))}
    return recipe.commands(found, given, Place("/mnt/kv/run", "/run/raw", "shm", ports, "/venv/bin/python"))


@pytest.mark.parametrize("name", NAMES)
def test_the_commands_are_as_reviewed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    show(name)
    assert capsys.readouterr().out == (GOLDEN / f"{name}.sh").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_an_engine_that_stores_is_the_one_that_recomputes_with_something_added(name: str) -> None:
    stores, recomputes = arm(name, host_memory_bytes=GIB), arm(name, "recompute", host_memory_bytes=GIB)
    found = launch.load_recipe(stores.engine)
    assert recipe.told(found, stores) == recipe.told(found, recomputes)
    both = {command.name: command for command in started(stores)}
    for command in started(recomputes):
        assert both[command.name].argv[: len(command.argv)] == command.argv
        assert command.env.items() <= both[command.name].env.items()
        assert "/mnt/kv/run" not in str(command)


@pytest.mark.parametrize("name", NAMES)
def test_every_process_has_the_same_seed_of_hashes(name: str) -> None:
    assert {command.env["PYTHONHASHSEED"] for command in started(arm(name))} == {"0"}


def test_arguments_of_the_target_go_to_the_process_that_serves() -> None:
    server, engine = started(arm("vllm-lmcache-mp", extra_args=("--max-model-len=4096",), env={"A": "1"}))
    assert engine.argv[-1] == "--max-model-len=4096"
    assert "--max-model-len=4096" not in server.argv
    assert (server.env["A"], engine.env["A"]) == ("1", "1")


def test_a_document_keeps_the_types_of_what_is_filled_in() -> None:
    (engine,) = started(arm("vllm-offloading", host_memory_bytes=GIB, parameters={"read_threads": "4"}))
    assert '"cpu_bytes_to_use":1073741824,"block_size":256,' in engine.argv[-1]


def test_the_recipes_are_named_to_who_names_none() -> None:
    with pytest.raises(UsageError) as refused:
        show()
    assert refused.value.hint == f"one of {', '.join(NAMES)}, or the path of a file"


def test_what_a_page_holds_is_the_target_s_word_before_the_recipe_s() -> None:
    found = launch.load_recipe(arm("vllm-mooncake").engine)
    assert recipe.chunk_tokens(found, Engine()) == 128
    assert recipe.chunk_tokens(found, Engine(parameters={"chunk_tokens": "64"})) == 64


# ---------------------------------------------------------------- before the start


@pytest.mark.parametrize(
    ("name", "engine", "free", "message"),
    [
        ("vllm-lmcache-mp", {"host_memory_bytes": 80 * GIB}, (100, 0), None),
        ("vllm-lmcache-mp", {"host_memory_bytes": 81 * GIB}, (100, 0), "host memory takes 87.0 GB over all ranks"),
        # one server for all ranks; in process each rank has its own
        ("vllm-lmcache-mp", {"host_memory_bytes": 40 * GIB, "tensor_parallel": 4}, (100, 0), None),
        ("vllm-lmcache-inprocess", {"host_memory_bytes": 20 * GIB, "tensor_parallel": 4}, (100, 50), None),
        ("vllm-lmcache-inprocess", {"host_memory_bytes": 40 * GIB, "tensor_parallel": 4}, (100, 50), "host memory"),
        ("vllm-lmcache-inprocess", {"tensor_parallel": 4}, (100, 49), "storage takes 42.9 GB over all ranks"),
        ("vllm-lmcache-inprocess", {"parameters": {"disk_gib": "60"}}, (100, 50), "storage takes 64.4 GB"),
        ("vllm-lmcache-mp", {"env": {"PYTHONHASHSEED": ""}}, (100, 0), "PYTHONHASHSEED is not the same"),
        ("vllm-lmcache-mp", {"extra_args": ("--enable-prefix-caching",)}, (100, 0), "a hit in GPU memory is no read"),
    ],
)
def test_what_would_spoil_the_measurement_is_refused(
    name: str, engine: dict[str, Any], free: tuple[int, int], message: str | None
) -> None:
    given = arm(name, **engine)
    found = launch.load_recipe(given.engine)

    def check() -> None:
        recipe.preflight(found, given, started(given), free[0] * GIB, free[1] * GIB)

    if message is None:
        check()
    else:
        with pytest.raises(StepError, match=message):
            check()


def test_an_arm_that_recomputes_needs_no_room() -> None:
    given = arm("vllm-lmcache-mp", "recompute", host_memory_bytes=81 * GIB)
    recipe.preflight(launch.load_recipe(given.engine), given, started(given), 1, 1)


@pytest.mark.parametrize(
    ("exposition", "proves"),
    [
        ('vllm:external_prefix_cache_hits_total{engine="0"} 0\n', True),
        ("lmcache_mp_lookup_hit_l2_tokens_total 5\n", True),
        ("vllm:prefix_cache_hits_total 5\n", False),
        ("", False),
    ],
)
def test_a_family_that_counts_hits_is_there_or_not(exposition: str, proves: bool) -> None:
    assert recipe.exports_hits(launch.load_recipe(arm("vllm-lmcache-mp").engine), exposition) is proves


# ---------------------------------------------------------------- wrong files and targets


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (Engine(recipe="vllm"), "there is no engine recipe 'vllm'"),
        (Engine(recipe="../gates/g3"), "there is no engine recipe"),
        (Engine(recipe="vllm-mooncake", parameters={"protokol": "tcp"}), "has no parameter 'protokol'"),
    ],
)
def test_a_recipe_or_parameter_that_is_not_there_is_named(engine: Engine, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        launch.load_recipe(engine)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"serves": "sglang"}, "serves names no process: 'sglang'"),
        ({"parameters": {}}, "parameters has no chunk_tokens"),
        ({"parameters": {"chunk_tokens": 256}}, "nothing fills in {dtype}"),
    ],
)
def test_a_recipe_that_cannot_be_filled_in_is_refused(change: dict[str, Any], message: str) -> None:
    found = launch.load_recipe(arm("vllm-lmcache-mp").engine)
    with pytest.raises(UsageError, match=message):
        recipe.check(replace(found, **change), Engine(), "r.yaml")
