"""Percentiles, intervals, steady state, drift. Pure.

numpy and scipy are imported inside the functions that use them, so that the command line starts fast.
"""

from __future__ import annotations

from collections.abc import Sequence


def percentile(values: Sequence[float], q: float) -> float:
    """The `q`-th percentile (0 to 100) by nearest rank: always one of `values` (Hyndman & Fan 1996, definition 1).

    Raises ValueError when there are no values.
    """
    import numpy as np

    if len(values) == 0:
        raise ValueError("no values, so no percentile")
    return float(np.percentile(values, q, method="inverted_cdf"))
