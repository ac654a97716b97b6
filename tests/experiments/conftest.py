"""Modules of experiments/u_statistic import each other by bare names: they are loaded from their folder and forgotten again."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "u_statistic"


@pytest.fixture(scope="module")
def study() -> Iterator[Callable[[str], ModuleType]]:
    names = {path.stem for path in FOLDER.glob("*.py")}
    hidden = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module
    sys.path.remove(str(FOLDER))
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(hidden)
