"""What is computed of arrays of any meaning."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import rankdata
from tests.cases import each_case

from groupwise.arrays import bisected, mean_ranks


@each_case("values", [[3.0, 1.0, 2.0], [1.0, 1.0, 0.0, math.inf, math.inf], [5.0], [0.0] * 4])
def test_ranks_of_equal_values_are_their_mean(values: list[float]) -> None:
    np.testing.assert_array_equal(mean_ranks(values), rankdata(values))


def test_where_rising_functions_pass_a_target() -> None:
    ends = np.zeros(3), np.full(3, 10.0)
    power = np.array([1.0, 2.0, 3.0])
    assert np.allclose(bisected(lambda x: x**power, 8.0, ends, halvings=40), 8 ** (1 / power))
