"""The models and accelerators that kvbench knows, read from workloads/models.yaml and workloads/accelerators.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kvbench.content import read
from kvbench.engine.cost import Accelerator
from kvbench.kv import ModelShape


@dataclass(frozen=True, slots=True)
class _Models:
    models: tuple[ModelShape, ...]

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012


@dataclass(frozen=True, slots=True)
class _Accelerators:
    accelerators: tuple[Accelerator, ...]

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012


def models(path: Path) -> dict[str, ModelShape]:
    """Model shapes of a YAML file by id. Raises UsageError with file:line and key."""
    return {shape.id: shape for shape in read(path, _Models).models}


def accelerators(path: Path) -> dict[str, Accelerator]:
    """Accelerators of a YAML file by id. Raises UsageError with file:line and key."""
    return {accelerator.id: accelerator for accelerator in read(path, _Accelerators).accelerators}
