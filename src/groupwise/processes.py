"""What every process of ours that others are started from keeps to: it never outlives the one
that started it.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from multiprocessing.connection import wait


def end_with_parent() -> None:
    """End this process, from now on, as soon as its parent is gone: a kill does not let the
    parent say so.
    """
    threading.Thread(target=_end_after_parent, daemon=True).start()


def _end_after_parent() -> None:
    """Wait until the parent is gone, and end this process."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
