"""What a run says of the time it still takes, step after step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import make_measurement, make_plan

from kvbench.model import Measurement, Stamp, Step
from kvbench.outlook import Outlook

STEPS = make_plan(cells=(8,), rounds=3).steps  # environment, a ceiling and three waves for each of two arms
EXPECTED_S = {step.id: {"environment": 2.0, "ceiling": 20.0, "wave": 100.0}[step.kind] for step in STEPS}
CEILING = 1  # where in STEPS
WAVE = 3


@pytest.fixture
def outlook() -> Outlook:
    return Outlook(STEPS, EXPECTED_S)


def took(step: Step, seconds: float, error: str = "") -> Measurement:
    start = Stamp("2026-01-01T10:00:00.000+00:00", 10**9)
    end = replace(start, monotonic_ns=int((1 + seconds) * 1e9))
    return replace(make_measurement(step, {}, error=error), start=start, end=end)


def test_before_the_first_step_it_is_the_plan_s_estimate(outlook: Outlook) -> None:
    assert outlook.left_s() == 2 + 2 * 20 + 6 * 100
    assert str(outlook) == "about 10 min 42 s left, by assumed rates"


def test_a_ceiling_on_a_slow_medium_does_not_make_the_waves_longer(outlook: Outlook) -> None:
    outlook.measured(took(STEPS[CEILING], 5 * 20))
    assert outlook.left_s() == 2 + 20 + 6 * 100


def test_a_wave_tells_how_long_the_other_waves_of_its_arm_take(outlook: Outlook) -> None:
    outlook.measured(took(STEPS[WAVE], 150))
    assert outlook.left_s() == 2 + 2 * 20 + 2 * 150 + 3 * 100
    outlook.measured(took(next(step for step in STEPS[WAVE + 1 :] if step.arm == STEPS[WAVE].arm), 50))
    assert outlook.left_s() == 2 + 2 * 20 + 1 * 100 + 3 * 100


def test_a_step_that_could_not_be_measured_is_behind_us_and_tells_nothing(outlook: Outlook) -> None:
    outlook.measured(took(STEPS[WAVE], 1, error="no answer"))
    assert outlook.left_s() == 2 + 2 * 20 + 5 * 100


def test_it_rests_on_measured_rates_once_every_kind_that_is_left_has_been_measured(outlook: Outlook) -> None:
    told = []
    for step in STEPS[: WAVE + 2]:
        told.append(outlook.is_measured())
        outlook.measured(took(step, EXPECTED_S[step.id]))
    assert told == [False] * (WAVE + 2)
    assert str(outlook) == "about 6 min 40 s left, by measured rates"
