"""What is computed of arrays of any meaning."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import rankdata
from tests.cases import each_case

from groupwise.arrays import mean_ranks


@each_case("values", [[3.0, 1.0, 2.0], [1.0, 1.0, 0.0, math.inf, math.inf], [5.0], [0.0] * 4])
def test_ranks_of_equal_values_are_their_mean(values: list[float]) -> None:
    np.testing.assert_array_equal(mean_ranks(values), rankdata(values))
