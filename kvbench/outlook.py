"""How long a run still takes: the plan's estimates, corrected by how long steps of the same kind have taken. Pure.

One kind says nothing of another: a medium five times slower than assumed makes fio's ceiling five times longer, and a
wave, which mostly computes, hardly at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvbench.model import Measurement, Step
from kvbench.units import format_seconds

_Kind = tuple[str, str]  # of step, and its arm


class Outlook:
    """What of the steps is left. Give it every measurement, those of a run that is resumed too."""

    def __init__(self, steps: Iterable[Step], expected_s: Mapping[str, float]) -> None:
        self._kinds: dict[str, _Kind] = {step.id: (step.kind, step.arm) for step in steps}
        self._expected_s = expected_s
        self._left = set(self._kinds)
        self._behind_s: dict[_Kind, tuple[float, float]] = {}  # as expected, and as it took

    def measured(self, measurement: Measurement) -> None:
        """A step is behind us. One that could not be measured says nothing of how long others take."""
        self._left.discard(measurement.step_id)
        if measurement.error:
            return
        kind = self._kinds[measurement.step_id]
        expected_s, took_s = self._behind_s.get(kind, (0.0, 0.0))
        seconds = (measurement.end.monotonic_ns - measurement.start.monotonic_ns) / 1e9
        self._behind_s[kind] = expected_s + self._expected_s[measurement.step_id], took_s + seconds

    def left_s(self) -> float:
        return sum(self._pace(self._kinds[step_id]) * self._expected_s[step_id] for step_id in self._left)

    def is_measured(self) -> bool:
        """Whether a step of every kind that is left has been measured."""
        return all(self._kinds[step_id] in self._behind_s for step_id in self._left)

    def __str__(self) -> str:
        return f"about {format_seconds(self.left_s())} left, by {'measured' if self.is_measured() else 'assumed'} rates"

    def _pace(self, kind: _Kind) -> float:
        expected_s, took_s = self._behind_s.get(kind, (0.0, 0.0))
        return took_s / expected_s if expected_s else 1.0
