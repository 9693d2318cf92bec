"""A run's cells, fitted and left out in turn. The run is made by the model itself, with a known device and engine."""

import pytest
from modelled_run import AFTER_S, BEFORE_S, COMPUTED, FAST, SLOW, run_of

from kvbench.errors import UsageError
from kvbench.sim.calibrate import calibrate


@pytest.fixture(scope="module")
def result():
    return calibrate(*run_of([FAST, SLOW, COMPUTED], [2, 4, 8]))


def test_device_and_engine_are_found_again(result):
    assert result.fit.rates_bytes_per_s == pytest.approx({"fast": 2e9, "slow": 5e8}, rel=0.05)
    assert result.fit.slowdown == pytest.approx(1.0, rel=0.05)
    assert result.fit.before_s == pytest.approx(BEFORE_S, abs=0.1)
    assert result.fit.after_s == pytest.approx(AFTER_S, abs=0.1)


def test_every_cell_is_predicted_from_the_others(result):
    assert len(result.errors) == 18, "TTFT and throughput of nine cells"
    assert max(result.errors) < 0.05


def test_a_device_that_only_the_left_out_cell_shows_is_not_guessed():
    result = calibrate(*run_of([FAST, COMPUTED], [8]))
    assert [(held.cell.name, held.errors is None) for held in result.held] == [
        ("fast c8", True),
        ("computed c8", False),
    ]


def test_one_cell_is_too_few():
    with pytest.raises(UsageError, match="1 measured cells"):
        calibrate(*run_of([FAST], [8]))
