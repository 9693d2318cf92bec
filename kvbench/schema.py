"""JSON Schemas of the files that people edit, made from the types that validate those files. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, get_args

from kvbench.campaign.ladder import Campaign
from kvbench.content import ABOUT_KEYS, CONTENT_KEYS, CONTENT_VERSION
from kvbench.engine.recipe import Recipe
from kvbench.load.workload import Kind
from kvbench.model import Gate, Target
from kvbench.probes.table import PROBES, ProbeSpec

Schema = dict[str, Any]

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_VERSION: Schema = {"const": CONTENT_VERSION, "description": "Version of the file's format."}


def schema(name: str) -> Schema:
    """The schema of a kind of file: its keys and their types. How they go together, a plan checks."""
    return {"$schema": _DIALECT, **_MAKERS[name](), "title": f"kvbench {name}"}


def _target() -> Schema:
    return _versioned(_of(Target))


def _engine() -> Schema:
    return _versioned(_of(Recipe))


def _campaign() -> Schema:
    return _versioned(_of(Campaign))


def _gate() -> Schema:
    """The gate's own type; of a step, params and quick are those of its probe."""
    whole = _of(Gate)
    step = whole["$defs"]["GateStep"]
    step["properties"]["probe"] = {"enum": list(PROBES)}
    step["allOf"] = []
    for name, spec in PROBES.items():
        params = _some_of(_of(spec.params), whole["$defs"])
        quick = {**params, "properties": {**params["properties"], "concurrency": {}, "page_bytes": {}}}
        step["allOf"].append(
            {
                "if": {"properties": {"probe": {"const": name}}},
                "then": {"properties": {"params": params, "quick": quick}},
            }
        )
    return whole


def _workload() -> Schema:
    """A workload or profile describes requests, or holds params of a probe that names one, some or all of them."""
    definitions: Schema = {}
    types = [spec.params for spec in PROBES.values() if _names_a_file(spec)]
    kinds = [_some_of(_of(one), definitions) for one in (*types, *get_args(Kind))]
    about = {**{key: {"type": "string"} for key in ABOUT_KEYS}, "version": _VERSION}
    for kind in kinds:
        kind["properties"] = about | kind["properties"]
    return {"type": "object", "required": ["version"], "anyOf": kinds, "$defs": definitions}


def _names_a_file(spec: ProbeSpec) -> bool:
    return bool({field.name for field in fields(spec.params)} & CONTENT_KEYS.keys())


def _of(kind: type) -> Schema:
    from pydantic import TypeAdapter

    return TypeAdapter(kind).json_schema()


def _some_of(params: Schema, definitions: Schema) -> Schema:
    """Params without the demand that all be there. What they refer to goes into `definitions` of the whole."""
    definitions |= params.pop("$defs", {})
    return {"type": "object", "properties": params.get("properties", {}), "additionalProperties": False}


def _versioned(whole: Schema) -> Schema:
    return {**whole, "properties": {"version": _VERSION, **whole["properties"]}}


_MAKERS: Mapping[str, Callable[[], Schema]] = {
    "target": _target,
    "gate": _gate,
    "workload": _workload,
    "engine": _engine,
    "campaign": _campaign,
}
