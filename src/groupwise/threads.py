"""How many threads of BLAS the mathematics takes: its matrices are small."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


def on_one_thread(function: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """Let a function compute on one thread of BLAS, whatever the process is set to."""

    @wraps(function)
    def limited(*args: Given.args, **options: Given.kwargs) -> Answer:
        with _libraries().limit(limits=1, user_api="blas"):
            return function(*args, **options)

    return limited


@cache
def _libraries() -> Any:
    """The BLAS of NumPy and that of SciPy, which comes with its linear algebra."""
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
