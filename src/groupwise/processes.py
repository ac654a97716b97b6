"""What a process may take, and when it ends: one thread of BLAS, since the matrices here are
small; none outlives the process that started it.
"""

import os
import threading
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar


def end_with_parent() -> None:
    """End this process as soon as its parent is gone."""
    threading.Thread(target=_end_after_parent, daemon=True).start()


def _end_after_parent() -> None:
    """Wait until the parent is gone, and end this process."""
    import multiprocessing
    from multiprocessing.connection import wait

    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


TaskArguments = ParamSpec("TaskArguments")
Returned = TypeVar("Returned")


def on_one_thread(function: Callable[TaskArguments, Returned]) -> Callable[TaskArguments, Returned]:
    """Let a function compute on one thread of BLAS, whatever the process is set to."""

    @wraps(function)
    def limited(*args: TaskArguments.args, **options: TaskArguments.kwargs) -> Returned:
        with _libraries().limit(limits=1, user_api="blas"):
            return function(*args, **options)

    return limited


@cache
def _libraries() -> Any:
    """The BLAS of NumPy and that of SciPy, which comes with its linear algebra."""
    import scipy.linalg  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
