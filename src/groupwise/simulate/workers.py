"""Chunks of one simulation on several cores: forked processes that write into shared memory.

NumPy's operations on a chunk take microseconds, too short for threads to take turns at the interpreter's lock. A fork starts in
milliseconds, needs no guard in the user's script and copies nothing. It knows nothing of what a chunk is.
"""

from __future__ import annotations

import mmap
import os
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

Tick = Callable[[int], None]
_POLL_SECONDS = 0.1


def usable_workers(wanted: int | None) -> int:
    """Return how many processes may work: those wanted, or one a core; one where a fork would not be safe.

    A fork is left out where another Python thread runs, where JAX is loaded, in a worker of a pool, and where there is no fork.
    """
    if sys.platform != "linux" or threading.active_count() > 1 or "jax" in sys.modules:
        return 1
    from multiprocessing import current_process

    cores = len(os.sched_getaffinity(0))
    return 1 if current_process().daemon else wanted if wanted is not None else cores


def shared_array(shape: tuple[int, ...], number: np.dtype[Any], *, shared: bool) -> NDArray[Any]:
    """Return an array that forked processes write to."""
    size = int(np.prod(shape))
    if not shared or size == 0:
        return np.empty(shape, number)
    return np.frombuffer(mmap.mmap(-1, size * number.itemsize), number).reshape(shape)


def run_parts(
    parts: Sequence[int], run: Callable[[int, Tick], None], *, workers: int, total: int, progress: Callable[[int, int], None] | None
) -> None:
    """Run every part once, on several cores; the calling process takes its share."""
    workers = min(workers, len(parts))
    done_W = shared_array((max(workers, 1),), np.dtype(np.int64), shared=workers > 1)
    done_W[:] = 0

    def report() -> None:
        if progress is not None:
            progress(int(done_W.sum()), total)

    def work(worker: int) -> None:
        def tick(amount: int) -> None:
            done_W[worker] += amount
            if worker == 0:
                report()

        for part in parts[worker::workers]:
            run(part, tick)

    helpers = [_forked(work, worker) for worker in range(1, workers)]
    try:
        work(0)
        for worker, helper in enumerate(helpers, start=1):
            while helper.exitcode is None:
                helper.join(_POLL_SECONDS)
                report()
            if helper.exitcode != 0:
                # It was killed or failed: done here, so that the reason shows.
                done_W[worker] = 0
                work(worker)
        report()
    finally:
        for helper in helpers:
            helper.terminate()
            helper.join()


def _forked(work: Callable[[int], None], worker: int) -> ForkProcess:
    """Start a worker."""
    from multiprocessing import get_context

    process = get_context("fork").Process(target=work, args=(worker,), daemon=True)
    with warnings.catch_warnings():
        # Newer versions warn where a library has threads of its own; the workers touch none of those.
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    return process
