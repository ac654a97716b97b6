"""What a worker of any engine runs: one function, on one shard after another.

Pickles come from the driver that started the worker and go back to it, and to nobody else.
"""

import os
import pickle
import threading
import time
import traceback
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

from groupwise.errors import GroupwiseError, first_line
from groupwise.plain import frozen

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")
OUT_OF_MEMORY = 87  # the exit code of a worker that went over its limit
_LOOK = 0.05  # seconds between looks at the memory


class MessageKind(Enum):
    """What a worker says."""

    READY = "ready"  # it has its function
    VALUE = "value"  # what the function returned, pickled
    # the function raised one of our errors: the input is at fault, and no other worker would help
    REFUSED = "refused"
    RAISED = "raised"  # the function raised anything else


@frozen
class WorkerMessage:
    """One thing that a worker says."""

    kind: MessageKind  # which
    value: bytes = b""  # the pickle of what the function returned
    sentence: str = ""  # what it raised, in one line


class Work:
    """The function of a job inside one worker."""

    def __init__(self, function: bytes, memory: int | None) -> None:
        """Unpickle nothing yet, so that what goes wrong then can be said."""
        self._pickled, self._memory = function, memory
        self._function: Callable[[Any], Any] | None = None

    def ready(self) -> WorkerMessage:
        """Unpickle the function and watch the memory."""
        try:
            # from the driver that started this process
            self._function = pickle.loads(self._pickled)  # noqa: S301
        except Exception as error:  # noqa: BLE001 - the driver says it
            return WorkerMessage(MessageKind.RAISED, sentence=_sentence(error))
        if self._memory is not None:
            threading.Thread(target=_watch, args=(self._memory,), daemon=True).start()
        return WorkerMessage(MessageKind.READY)

    def answer(self, payload: bytes) -> WorkerMessage:
        """Apply the function to one shard."""
        assert self._function
        try:
            # from the driver that started this process
            value = self._function(pickle.loads(payload))  # noqa: S301
            return WorkerMessage(
                MessageKind.VALUE, pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
            )
        except GroupwiseError as error:
            return WorkerMessage(MessageKind.REFUSED, sentence=first_line(error))
        except Exception as error:  # noqa: BLE001
            # whatever the function raises costs its shard alone
            return WorkerMessage(MessageKind.RAISED, sentence=_sentence(error))


def _sentence(error: Exception) -> str:
    """Return an error with its class and the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}: {first_line(error)}"


def _watch(limit: int) -> None:
    """End this process once it holds more than its limit."""
    while True:
        if held() > limit:
            os._exit(OUT_OF_MEMORY)
        time.sleep(_LOOK)


def held() -> int:
    """Return the bytes of memory of this process, or the most that it ever held."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )
    except (OSError, ValueError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # of macOS, which counts bytes
