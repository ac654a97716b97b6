"""Scripts of experiments/ import each other by bare names: they are loaded from their folder and
forgotten again.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "u_statistic"
Loader = Callable[[str], ModuleType]


@contextmanager
def scripts_of(folder: Path) -> Iterator[Loader]:
    """Import a script by its name, as Python does when one starts it; nothing of it stays, nor
    of the path that it adds.
    """
    names = {path.stem for path in (*folder.glob("*.py"), *folder.parent.glob("*.py"))}
    hidden = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    path = list(sys.path)
    sys.path.insert(0, str(folder))
    yield importlib.import_module
    sys.path[:] = path
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(hidden)


@pytest.fixture(scope="module")
def study() -> Iterator[Loader]:
    with scripts_of(FOLDER) as load:
        yield load


@pytest.fixture
def load(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loader]:
    """Import a script of the folder that the test's module names."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    with scripts_of(request.module.FOLDER) as import_script:
        yield import_script


@pytest.fixture
def printed(
    load: Loader, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Start a script with arguments and return what it prints."""

    def start(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        capsys.readouterr()
        load(name).main()
        return capsys.readouterr().out

    return start
