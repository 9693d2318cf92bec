"""The published cells: corrected units, a prediction that beats constant bandwidth, and what G3 would say of them."""

from dataclasses import replace

import pytest

from kvbench import content
from kvbench.engine.cost import Chunk, CostModel
from kvbench.sim import published, published_gate, reproduce
from kvbench.sim.waves import Wave

PEAKS = ("bf16_flops_per_s", "fp8_flops_per_s", "memory_bytes", "memory_bytes_per_s")


@pytest.fixture(scope="module")
def known():
    return published.load()


@pytest.fixture(scope="module")
def r2(known):
    return reproduce.reproduce(known, "r2", seeds=range(3))


def test_printed_units_are_corrected(known):
    assert known.rate_bytes_per_s("local") == round(6.78 * 1.024e9)
    assert reproduce.session_bytes(known) == 118 * 256 * 253_952
    assert reproduce.session_bytes(known) / 2**30 == pytest.approx(7.1445, abs=1e-4), "printed as 7.15 GB, which is GiB"


def test_the_cell_that_the_engine_is_fitted_on_is_met_and_the_others_are_predicted(r2):
    fitted = next(each for each in r2.predictions if each.cell is r2.fitted)
    assert fitted.errors == pytest.approx((0, 0), abs=1e-9)
    assert r2.storage.n == 10, "TTFT and throughput of five cells"


def test_r2_is_predicted_better_than_by_constant_bandwidth(r2):
    """The bound of the plainer model: 5.8 % in the median, 10.4 % at worst."""
    assert r2.storage.median < min(0.058, r2.naive.median)
    assert r2.storage.worst < min(0.104, r2.naive.worst)


def test_recompute_is_predicted_within_15_percent(r2):
    assert r2.recompute.worst < 0.15


def test_sessions_that_host_memory_kept_are_not_read_again(r2):
    read = {each.cell.id: each.sessions_read for each in r2.predictions}
    assert read["local-8"] == 8, "nothing has been read before"
    assert 12 < read["local-16"] < 16, "I3: some bytes of this wave were not read from the disk"
    assert 30 < read["fx100-32"] < 32, "I2: busy bandwidth × time gives 31.0 sessions"
    assert read["recompute-16"] is None


@pytest.mark.parametrize(
    ("definition", "median"), [("floor_index", 3.0), ("nearest_rank", 2.0), ("mean_of_instances", 3.0)]
)
def test_the_median_is_the_one_that_the_report_defines(definition, median):
    assert reproduce.middle(definition, Wave(((1.0, 2.0), (3.0, 4.0)), 5.0, 0)) == median


def test_every_published_cell_is_inconclusive_and_the_misses_are_named(known):
    gate = content.load_gate("G3").gate
    findings = [(report.id, each) for report in known.reports for each in published_gate.judge(report, gate)]
    assert {each.outcome for _, each in findings} == {"INCONCLUSIVE"}
    assert {each.n for _, each in findings} == {1}
    assert {(name, each.dut, each.check.id) for name, each in findings if each.misses} == {
        ("R2", "fx100-8", "throughput-gain"),
        ("X1", "fx100-32", "ttft-reduction"),
        ("X1", "fx100-32", "throughput-gain"),
        ("R3", "pool-own-16", "throughput-gain"),
        ("R3", "pool-cross-32", "ttft-reduction"),
    }


def test_notes_of_cells_are_explained(known):
    assert {note for report in known.reports for cell in report.cells for note in cell.notes} <= set(known.notes)


def test_all_ranks_as_one_device_take_the_same_time(known):
    joint = reproduce.config(known, known.report("R2")).cost
    accelerator = replace(joint.accelerator, **{name: getattr(joint.accelerator, name) / 8 for name in PEAKS})
    split = CostModel(joint.shape, accelerator, 8)
    assert joint.decode_s([30_000] * 16) == pytest.approx(split.decode_s([30_000] * 16))
    assert joint.prefill_s([Chunk(8192, 100)]) == pytest.approx(split.prefill_s([Chunk(8192, 100)]))
    assert joint.kv_budget_bytes() == split.kv_budget_bytes()
