"""`kvbench run strategies` as a user meets it: what it says, what it keeps, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from kvbench.cli.strategies import run_strategies
from kvbench.errors import Exit, UsageError

SITE = """\
version: 1
id: small
why: a test
nodes: 2
rate: 20 MB/s
load: {sessions: 4, pages: 2, page_bytes: 8 KiB, reads: 12, at_once: 2, compute_page: 1 ms}
changes: [{at: 0.5, what: new}]
"""


def call(*args: str) -> Result:
    app = typer.Typer()
    app.command()(run_strategies)
    return CliRunner().invoke(app, args)


@pytest.fixture
def site(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(SITE)
    return str(path)


def test_a_demonstration_says_what_is_no_property_of_the_storage(site: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = call("ring", "ring+move", "--site", site, "--quick", "--out", str(run))
    assert done.exit_code == Exit.PASS, done.output
    assert "demonstration: 3 directories of one disk, site small; mean" in done.output
    assert "each node was limited, to stand for a slower medium: 20.0 MB/s, 20.0 MB/s, 20.0 MB/s" in done.output
    assert "computing was emulated: 0 s a prompt, 1 ms more for each page that was lacking" in done.output
    kept = json.loads((run / "strategies.json").read_text())
    assert {name: len(rounds) for name, rounds in kept["rounds"].items()} == {"ring": 3, "ring+move": 3}
    assert kept["site"]["changes"] == [{"at": 0.5, "what": "new", "node": -1}]
    assert len((run / "requests.jsonl").read_text().splitlines()) == 2 * 3 * 12


def test_a_target_has_its_own_nodes_and_rate(site: str, tmp_path: Path) -> None:
    nodes = [tmp_path / name for name in "abcd"]
    for node in nodes:
        node.mkdir()
    target = tmp_path / "target.yaml"
    storage = json.dumps({"nodes": [str(node) for node in nodes], "direct": False})
    target.write_text(f"version: 1\nname: t\narms:\n  - {{name: pool, role: dut, engine: {{}}, storage: {storage}}}\n")
    done = call("ring", "--site", site, "--quick", "--target", str(target), "--out", str(tmp_path / "run"))
    assert done.exit_code == Exit.PASS, done.exception or done.output
    assert "measured, site small" in done.output
    assert "limited" not in done.output, "the site's rate stands for another medium where there is none"
    assert "may have come from the page cache" in done.output
    assert all(node.is_dir() and not list(node.iterdir()) for node in nodes)


def test_a_strategy_that_is_named_twice_is_one(site: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = call("ring", "ring", "modulo", "--site", site, "--quick", "--out", str(run))
    assert done.exit_code == Exit.PASS, done.exception or done.output
    kept = json.loads((run / "strategies.json").read_text())
    assert {name: len(rounds) for name, rounds in kept["rounds"].items()} == {"ring": 3, "modulo": 3}


def test_a_target_without_storage_under_test_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "target.yaml"
    target.write_text("version: 1\nname: t\narms:\n  - {name: b, role: baseline, engine: {}, kv: recompute}\n")
    done = call("ring", "--target", str(target), "--out", str(tmp_path / "run"))
    assert isinstance(done.exception, UsageError)
    assert "exactly one arm must have the role dut" in done.exception.message


def test_a_layer_that_the_site_cannot_show_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    done = call("ring+heat", "--out", str(tmp_path / "run"))
    assert isinstance(done.exception, UsageError)
    assert done.exception.hint == "--site tiers"
    assert not (tmp_path / "run").exists()
