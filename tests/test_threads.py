"""The mathematics takes one thread of BLAS, and leaves the process as it was."""

from __future__ import annotations

from threadpoolctl import threadpool_info, threadpool_limits

from groupwise.threads import on_one_thread


def threads() -> set[int]:
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_a_function_has_one_thread_and_the_process_its_own() -> None:
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        assert on_one_thread(threads)() == {1}
        assert threads() == before
