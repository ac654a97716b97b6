"""Doctests of what needs an extra are skipped where it is missing; drawn examples are the same
in every run; long grids are thinned.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from _pytest.doctest import DoctestModule

# Small tables gain nothing from threads that wait for each other.
os.environ.setdefault("POLARS_MAX_THREADS", "1")

if find_spec("hypothesis"):  # a trainer's own environment, for `tests/optional`, may be without
    from hypothesis import settings

    # A busy machine is no defect, and one run should draw what the last one drew; `make explore` is
    # for what nobody drew yet.
    settings.register_profile("groupwise", deadline=None, derandomize=True, max_examples=10)
    settings.register_profile("explore", deadline=None, max_examples=1000)
    settings.load_profile("groupwise")

OPTIONAL = ("torch", "transformers")
# Modules that are made of torch cannot even be looked at without it.
OF_TORCH = ("grpo", "language_policy", "policy")
collect_ignore = (
    [] if find_spec("torch") else [f"lab/src/groupwise_lab/trainer/{name}.py" for name in OF_TORCH]
)

# Tests that share what takes long to make or to load, as a browser or transformers: those of a name
# are worked through by one process.
TOGETHER = {
    "tests/browser/": "browser",
    "lab/tests/trainer/": "models",
    "lab/tests/end_to_end/": "models",
    "lab/tests/experiments/test_language_models.py": "models",
    "tests/analysis/test_measure.py": "models",
    "tests/analysis/test_shards.py": "models",
    "tests/gradients/": "models",
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file together, and those of some files."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = str(super()._split_scope(nodeid))
            return next((TOGETHER[path] for path in TOGETHER if file.startswith(path)), file)

    return Scheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the workers read the tests one after the other: what the first one compiles the second
    one loads, in a third of the time.
    """
    with Path(__file__).open() as turn:
        if find_spec("fcntl"):
            import fcntl

            fcntl.flock(turn, fcntl.LOCK_EX)
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[Any], list[Any]]:
    """Look for no doctests in tests, which have none: to look takes a second."""
    collectors = yield
    return [
        collector
        for collector in collectors
        if not (file_path.name.startswith("test_") and isinstance(collector, DoctestModule))
    ]


def pytest_collection_finish() -> None:
    """Spare the collector of garbage the thousands of tests and the libraries, which stay, and
    let it look at the rest less often: a tenth of the processor's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what a thinned test leaves out; skip each doctest that imports a library
    which is not here; run last what leaves an audit hook, which slows all that come after.
    """
    items.sort(key=lambda item: "test_mcp.py" in item.nodeid)
    grids: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("thinned"):
            grids.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in grids.values():
        most = cases[0].get_closest_marker("thinned").args[0]  # type: ignore[union-attr]
        kept = {
            round((place + 0.5) * len(cases) / most - 0.5) for place in range(min(most, len(cases)))
        }
        for place, item in enumerate(cases):
            if place not in kept:
                item.add_marker(pytest.mark.slow)
    missing = [name for name in OPTIONAL if find_spec(name) is None]
    for item in items:
        examples = getattr(getattr(item, "dtest", None), "examples", [])
        for name in missing:
            if any(f"import {name}" in example.source for example in examples):
                item.add_marker(pytest.mark.skip(reason=f"needs {name}"))
