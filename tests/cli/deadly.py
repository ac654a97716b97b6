"""A judge that some runs end: workers of the tests import it by name, and little besides, since
each takes that long to start.
"""

from __future__ import annotations

import os
import time
from typing import Any

from groupwise.analysis.fleet import FleetRow, Judge
from groupwise.cli.mcp import Folders


class Deadly(Judge):
    """A judge whose worker one run kills, one keeps, and one makes too large."""

    def __call__(self, path: str) -> list[FleetRow]:
        held = []
        while "huge" in path:
            held.append(b"1" * (1 << 26))
        while "slow" in path:
            time.sleep(0.1)
        if "deadly" in path:
            os._exit(1)
        return super().__call__(path)


class Hanging(Folders):
    """Folders of which one question is never answered."""

    def call(self, name: str, given: Any) -> tuple[str, bool]:
        while name == "hang":
            time.sleep(0.1)
        return super().call(name, given)
