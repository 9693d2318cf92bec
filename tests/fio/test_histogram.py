"""Percentiles from histograms are nearest rank over all samples, as numpy's inverted_cdf gives them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.fio.histogram import merge, percentile_ns


@given(
    st.dictionaries(st.integers(1, 10**10), st.integers(1, 30), min_size=1, max_size=20),
    st.sampled_from([1.0, 25.0, 50.0, 75.0, 100.0]),  # exact in binary: numpy computes the rank in floats
)
def test_the_percentile_is_the_one_of_the_samples(bins: dict[int, int], percentile: float) -> None:
    samples = [value for value, count in bins.items() for _ in range(count)]
    assert percentile_ns(bins, percentile) == np.percentile(samples, percentile, method="inverted_cdf")


def test_the_rank_is_exact() -> None:
    assert percentile_ns({1: 999, 2: 1}, 99.9) == 1


def test_no_samples_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="without samples"):
        percentile_ns({}, 50)


def test_merging_adds_counts() -> None:
    assert merge([{1: 2, 5: 1}, {1: 3}, {}]) == {1: 5, 5: 1}
