"""Functions that workers of the tests run: a worker imports them by name."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

from groupwise.errors import InvalidArgumentError


def square(number: int) -> int:
    return number * number


def third(number: int) -> float:
    time.sleep(0.1)
    return number / 3


def slow_third(number: int) -> float:
    time.sleep(1.0)
    return number / 3


def slowly(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def spin(seconds: float) -> float:
    """Take so many seconds of the processor."""
    start = time.process_time()
    while time.process_time() - start < seconds:
        pass
    return seconds


def refuse(number: int) -> int:
    if number == 3:
        raise InvalidArgumentError("expected any number but 3, got 3")
    return number


def divide(number: int) -> float:
    return 1 / number


def eat(size: int) -> int:
    held = bytearray(size)
    for place in range(0, size, 4096):
        held[place] = 1
    time.sleep(0.5)
    return len(held)


def own_threads(_: int) -> str:
    return os.environ["OMP_NUM_THREADS"]


@dataclass
class DieOnce:
    """Ends its worker the first time that a shard is begun."""

    folder: Path
    always: tuple[int, ...] = ()

    def __call__(self, number: int) -> int:
        mark = self.folder / f"begun-{number}"
        first = not mark.exists()
        mark.touch()
        if number in self.always or (number % 3 == 1 and first):
            os.kill(os.getpid(), signal.SIGKILL)
        return number * number


@dataclass
class Loading:
    """Loads something on its first call, as a model would be."""

    folder: Path
    loaded: list[int] = field(default_factory=list)

    def __call__(self, number: int) -> int:
        if not self.loaded:
            (self.folder / f"loaded-{os.getpid()}").touch()
            self.loaded.append(7)
        return number + self.loaded[0]


@dataclass
class Unloadable:
    """Cannot be unpickled in a worker."""

    def __call__(self, number: int) -> int:
        return number

    def __setstate__(self, state: object) -> None:
        raise OSError("no such library")

    def __getstate__(self) -> object:
        return {"something": 1}
