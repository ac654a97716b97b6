"""math-verify behind a time limit that holds: it runs in a process of its own. It decides nothing by itself."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from groupwise.errors import GroupwiseError, InvalidArgumentError
from groupwise.trainer.worker import Worker

_PROGRAM = Path(__file__).with_name("math_worker.py")


def check_limit(limit: float) -> None:
    """Refuse a time limit that is none."""
    if not (limit > 0 and math.isfinite(limit)):
        raise InvalidArgumentError(f"expected a time limit in seconds above 0, got {limit}")


class MathVerify:
    """Whether two answers mean the same, by math-verify; a context manager that holds its process."""

    def __init__(self, *, limit: float = 5.0) -> None:
        check_limit(limit)
        if find_spec("math_verify") is None:
            raise GroupwiseError("expected math-verify to be installed: pip install 'groupwise[math]'")
        self.limit = limit
        self.timeouts = 0
        self._worker = Worker(_PROGRAM)
        self._known: dict[tuple[str, str], bool | None] = {}

    def __enter__(self) -> MathVerify:
        """Return itself; the process starts with the first question."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End the process."""
        self.close()

    def __call__(self, gold: str, found: str) -> bool | None:
        """Return whether two answers mean the same; None where that cannot be decided in time."""
        if (gold, found) not in self._known:
            self._known[gold, found] = self._asked(gold, found)
        return self._known[gold, found]

    def close(self) -> None:
        """End the process, if there is one."""
        self._worker.close()

    def _asked(self, gold: str, found: str) -> bool | None:
        """Ask the process."""
        if self._worker.start() is None:
            raise GroupwiseError("expected math-verify to start, got nothing from it: reinstall it with pip install 'groupwise[math]'")
        answer, _ = self._worker.ask({"gold": gold, "found": found}, limit=self.limit)
        if answer is None:
            self.timeouts += 1
            return None
        same = answer.get("same")
        return same if isinstance(same, bool) else None
