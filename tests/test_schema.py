"""What an editor is told of the files that people edit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from kvbench import schema
from kvbench.campaign.ladder import Campaign, Party, commented_yaml, planned_days
from kvbench.cli.main import app
from kvbench.cli.schema import NAMES
from kvbench.content import content_root
from kvbench.errors import UsageError
from kvbench.probes.table import PROBES


def names(whole: dict[str, Any], part: str) -> set[str]:
    return set(whole["$defs"][part]["properties"])


def read(path: Path) -> Any:
    return YAML(typ="safe").load(path)


def test_sizes_and_rates_may_be_numbers_or_text_with_a_unit() -> None:
    storage = schema.schema("target")["$defs"]["Storage"]["properties"]
    assert {one["type"] for one in storage["array_cache_bytes"]["anyOf"]} == {"integer", "string", "null"}
    assert schema.schema("gate")["properties"]["duration_s"]["anyOf"] == [{"type": "number"}, {"type": "string"}]


@pytest.mark.parametrize("name", NAMES)
def test_a_misspelt_key_is_not_allowed(name: str) -> None:
    whole = schema.schema(name)
    objects = [*whole.get("$defs", {}).values(), *whole.get("anyOf", [whole])]
    assert objects
    assert all(one["additionalProperties"] is False for one in objects if "properties" in one)


def test_the_keys_of_the_files_that_ship_are_known() -> None:
    root = content_root()
    for path in (root / "workloads").glob("target*.yaml"):
        assert read(path).keys() <= schema.schema("target")["properties"].keys()
    for path in (root / "gates").glob("*.yaml"):
        gate = schema.schema("gate")
        assert read(path).keys() <= gate["properties"].keys()
        for step in read(path)["steps"]:
            assert step.keys() <= names(gate, "GateStep")
    for path in (root / "engines").glob("*.yaml"):
        assert read(path).keys() <= schema.schema("engine")["properties"].keys()
    kinds = [set(kind["properties"]) for kind in schema.schema("workload")["anyOf"]]
    for folder in ("fio", "inference", "kv"):
        for path in (root / "workloads" / folder).glob("*.yaml"):
            assert any(read(path).keys() <= kind for kind in kinds), path


def test_a_step_is_offered_the_params_of_its_probe() -> None:
    whole = schema.schema("gate")
    branches = {one["if"]["properties"]["probe"]["const"]: one for one in whole["$defs"]["GateStep"]["allOf"]}
    assert branches.keys() == PROBES.keys()
    wave = branches["load.cold_recovery"]["then"]["properties"]
    assert {"workload", "session_tokens"} <= wave["params"]["properties"].keys()
    assert "concurrency" in wave["quick"]["properties"]


def test_a_new_campaign_has_no_key_that_its_schema_does_not_know() -> None:
    from datetime import date

    text = commented_yaml(Campaign("joint", parties=(Party("a", 'B "C" <d@e.f>'),), due=planned_days(date(2026, 1, 1))))
    written = YAML(typ="safe").load(text)
    assert written.keys() == schema.schema("campaign")["properties"].keys()
    assert written["parties"] == [{"name": "a", "contact": 'B "C" <d@e.f>'}]


def test_the_command_prints_one_or_writes_all(tmp_path: Path) -> None:
    printed = CliRunner().invoke(app, ["schema", "target"])
    assert json.loads(printed.output) == schema.schema("target")
    assert CliRunner().invoke(app, ["schema", "--out", str(tmp_path / "new")]).exit_code == 0
    assert {path.name for path in (tmp_path / "new").iterdir()} == {f"{name}.schema.json" for name in NAMES}
    for args in (["schema"], ["schema", "plan"]):
        assert isinstance(CliRunner().invoke(app, args).exception, UsageError)
