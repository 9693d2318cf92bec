"""The models and accelerators that kvbench knows, read from workloads/models.yaml and workloads/accelerators.yaml."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kvbench.content import read
from kvbench.engine.cost import Accelerator
from kvbench.errors import UsageError
from kvbench.kv import ModelShape, shape_of_config


@dataclass(frozen=True, slots=True)
class _Models:
    models: tuple[ModelShape, ...]

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012


@dataclass(frozen=True, slots=True)
class _Accelerators:
    accelerators: tuple[Accelerator, ...]

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012


class Shapes(Mapping[str, ModelShape]):
    """Model shapes by id; and, for an engine that loads a folder, by the path of a folder with a config.json."""

    def __init__(self, known: Mapping[str, ModelShape]) -> None:
        self._known = known

    def __getitem__(self, name: str) -> ModelShape:
        """Raises UsageError for a config.json that does not say how large KV is."""
        config = Path(name) / "config.json"
        if name in self._known or not config.is_file():
            return self._known[name]
        try:
            return shape_of_config(json.loads(config.read_text()), name)
        except (ValueError, OSError, RecursionError) as error:
            raise UsageError(f"{config}: {error}", "name a model of workloads/models.yaml that has its shape") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def models(path: Path) -> dict[str, ModelShape]:
    """Model shapes of a YAML file by id. Raises UsageError with file:line and key."""
    return {shape.id: shape for shape in read(path, _Models).models}


def accelerators(path: Path) -> dict[str, Accelerator]:
    """Accelerators of a YAML file by id. Raises UsageError with file:line and key."""
    return {accelerator.id: accelerator for accelerator in read(path, _Accelerators).accelerators}
