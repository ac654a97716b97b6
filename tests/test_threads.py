"""The mathematics takes one thread of BLAS, and leaves the process as it was."""

from __future__ import annotations

import numpy as np
import scipy.linalg  # noqa: F401 - its BLAS is one of those that are counted
from tests.cases import each_case
from threadpoolctl import threadpool_info, threadpool_limits

from groupwise.arrays import moving_mean
from groupwise.processes import on_one_thread


def threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


def test_a_function_has_one_thread_and_the_process_its_own() -> None:
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        assert on_one_thread(threads)() == {1}
        assert threads() == before


@each_case(
    ("length", "rows"),
    [(40, 7), (2500, 1000), (2500, 1001), (2500, 1024), (2500, 2047), (1500, 1500)],
)
def test_means_of_many_rows_are_those_of_a_product_that_threads_would_share(
    length: int, rows: int
) -> None:
    value = np.random.default_rng(rows).standard_normal(length)
    np.testing.assert_allclose(
        moving_mean(value, rows), np.convolve(value, np.ones(rows) / rows, "valid"), atol=1e-14
    )
    assert len(set(moving_mean(np.full(length, 0.7), rows))) == 1
