"""`kvbench advise` as a user meets it: what it says, what it writes, and its exit codes."""

import json
import os
from types import SimpleNamespace

import pytest
import typer
from modelled_run import FAST, SLOW, run_of
from typer.testing import CliRunner

from kvbench import journal
from kvbench.cli.advise import advise
from kvbench.errors import Exit, UsageError

SMALL = ("retrieval", "--requests", "5", "--site", "narrow", "--seeds", "2")


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)


def call(*args):
    app = typer.Typer()
    app.command()(advise)
    return CliRunner().invoke(app, args)


@pytest.fixture(params=[[FAST, SLOW]])
def run_folder(tmp_path, monkeypatch, request):
    plan, measurements = run_of(request.param, [2, 4])
    folder = SimpleNamespace(plan=plan, measurements=lambda: measurements)
    monkeypatch.setattr(journal.RunFolder, "open", lambda path: folder)
    return str(tmp_path)


def test_a_limit_that_is_met_without_layers():
    done = call(*SMALL, "--ttft-limit", "1h")
    assert done.exit_code == Exit.PASS
    assert "advised: none of the layers\n" in done.output
    assert "TTFT max of 5" in done.output, "a p99 of five requests is their worst"
    assert "not simulated: the site has no tier below flash" in done.output
    assert "simulated, site narrow, not calibrated; 2 seeds" in done.output


def test_a_limit_that_no_layer_brings_within_reach():
    assert call(*SMALL, "--ttft-limit", "1us").exit_code == Exit.FAIL


def test_the_document_has_every_set_with_its_intervals(tmp_path):
    file = tmp_path / "advice.json"
    call(*SMALL, "--ttft-limit", "1h", "--json", str(file))
    document = json.loads(file.read_text())
    assert document["basis"] == "simulated"
    assert [each["layers"] for each in document["combinations"]] == [
        [],
        ["prefix"],
        ["weights"],
        ["prefix", "weights"],
    ]
    assert all(each["ttft_to_limit"]["n"] == 2 for each in document["combinations"])
    assert [each["worth"] for each in document["layers"]][2] == "no_tier"
    assert document["advised"] == {"layers": [], "limit": "met"}


def test_a_run_is_advised_on_models_that_are_calibrated_on_it(run_folder):
    done = call(run_folder, "--ttft-limit", "1h", "--nodes", "2", "--seeds", "2")
    assert done.exit_code == Exit.PASS
    assert f"simulated, calibrated on {run_folder}; its cells by the others: " in done.output
    assert "TTFT max of 4" in done.output, "the largest wave"


@pytest.mark.parametrize("run_folder", [[FAST]], indirect=True)
def test_a_limit_within_what_the_models_miss_is_undecided(run_folder, tmp_path):
    file = tmp_path / "advice.json"
    assert call(run_folder, "--ttft-limit", "1h", "--seeds", "2", "--json", str(file)).exit_code == Exit.PASS
    ttft_s = json.loads(file.read_text())["combinations"][0]["figures"]["ttft_p99_s"]["mean"]
    near = call(run_folder, "--ttft-limit", f"{1.2 * ttft_s}s", "--seeds", "2")
    assert near.exit_code == Exit.INCONCLUSIVE
    assert "the models miss measured cells by up to 58%" in near.output
    assert "no layer could be simulated; --nodes N asks" in near.output, "it has one node"


def test_a_run_tells_its_own_site(run_folder):
    done = call(run_folder, "--ttft-limit", "2s", "--site", "narrow")
    assert isinstance(done.exception, UsageError)
    assert "it tells its site and its load" in str(done.exception)


@pytest.mark.parametrize("limit", ["0s", "soon"])
def test_a_limit_that_is_none_is_refused(limit):
    done = call(*SMALL, "--ttft-limit", limit)
    assert isinstance(done.exception, UsageError) or done.exit_code == Exit.USAGE
