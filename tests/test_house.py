"""The rules of the house that a machine can check: which way imports go, and who may start, wait or draw."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import kvbench

HOUSE = Path(kvbench.__file__).parent
MODULES = sorted(HOUSE.rglob("*.py"))
PROBES = {"fio", "load", "host", "pages", "checkpoint"}  # the folders that measure

# folder or module → what it may not know: who comes after it on the way from a gate file to a report
MAY_NOT_KNOW = {
    **{folder: {"run", "report", "cli", "campaign", "soak"} for folder in PROBES},
    "store": {"run", "report", "cli", "campaign", "soak", "sim", "load"},
    "judge": {"run", "report", "cli", "journal", "store", *PROBES},
    "report": {"run", "cli"},
    "model": {"cli", "content", "engine", "journal", "judge", "plan", "run", *PROBES},
}


def parts(module: Path) -> tuple[str, ...]:
    return module.relative_to(HOUSE).with_suffix("").parts


@cache
def nodes(module: Path) -> tuple[ast.AST, ...]:
    """Every node of a module's source."""
    return tuple(ast.walk(ast.parse(module.read_text(encoding="utf-8"))))


def imports(module: Path) -> Iterator[str]:
    """What a module imports, also within its functions: full names of modules and of what is taken from them."""
    for node in nodes(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("folder", MAY_NOT_KNOW)
def test_imports_go_one_way(folder: str) -> None:
    back = {
        f"{'/'.join(parts(module))} → {name}"
        for module in MODULES
        if parts(module)[0] == folder
        for name in imports(module)
        if name.startswith("kvbench.") and name.split(".")[1] in MAY_NOT_KNOW[folder]
    }
    assert back == set()


@pytest.mark.parametrize(
    ("name", "homes"),
    [
        ("subprocess.Popen", {"process"}),
        ("subprocess.run", set()),
        ("time.monotonic_ns", {"clock", "checkpoint/torch_save"}),  # torch_save: also a script of its own, run by torch
        ("time.time", set()),
        ("time.sleep", {"clock"}),
        ("random.random", set()),
    ],
)
def test_processes_clocks_and_luck_have_one_home(name: str, homes: set[str]) -> None:
    owner, attribute = name.split(".")
    users = {
        "/".join(parts(module))
        for module in MODULES
        for node in nodes(module)
        if isinstance(node, ast.Attribute)
        and node.attr == attribute
        and isinstance(node.value, ast.Name)
        and node.value.id == owner
    }
    assert users == homes


def test_no_module_outgrows_its_subject() -> None:
    lines = {"/".join(parts(module)): len(module.read_text(encoding="utf-8").splitlines()) for module in MODULES}
    assert {name for name, count in lines.items() if count > 450} == set()


def test_nothing_runs_through_a_shell() -> None:
    through = {
        "/".join(parts(module))
        for module in MODULES
        for node in nodes(module)
        if isinstance(node, ast.keyword) and node.arg == "shell"
    }
    assert through == set()
