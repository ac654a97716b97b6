"""Mutation testing: a seeded sample of changed lines of a room, each against the tests that reach
its line.

    python scripts/mutants.py ROOM [--count 300] [--seed 0] [--workers 2]

The mutants are cosmic-ray's; coverage says which tests reach a line. Each mutant has 20 seconds.
What is done is kept in `build/mutants/ROOM.jsonl` and not done again while the module stays as it
is. Mutants in annotations and in the decorators of dataclasses compute nothing and are not drawn;
those that change nothing are named, with the reason, in `tests/equivalent_mutants.tsv`.
"""

from __future__ import annotations

import argparse
import ast
import csv
import hashlib
import importlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "groupwise"
BUILD = ROOT / "build" / "mutants"
EQUIVALENT = ROOT / "tests" / "equivalent_mutants.tsv"
LIMIT_SECONDS = 20  # of the processor: a busy machine kills no mutant
LONGEST_WAIT = 300.0  # seconds on the clock, for a mutant that waits for ever
UNJUDGED = 99  # pytest itself broke: neither killed nor survived
TESTS_SECONDS = (
    8.0  # of the processor that the tests of one mutant may take when nothing is changed
)

# Tests besides the room's own that are asked which lines they reach.
ALSO = {
    "estimators": [
        "tests/contract/test_advantages.py",
        "tests/analysis",
        "tests/cli",
    ],
    "intervals.py": [
        "tests/test_intervals.py",
        "tests/estimators",
        "tests/forecasting",
        "tests/comparison",
        "tests/edge",
    ],
    "edge": ["tests/analysis", "tests/golden", "lab/tests/golden"],
    "comparison": ["tests/cli/test_cli_compare.py"],
    "analysis": ["tests/cli/test_cli_compare.py", "tests/cli/test_cli_fleet.py"],
    "record": [
        "tests/analysis/test_probing.py",
        "tests/integrations/test_which_record.py",
        "tests/readers/test_printed_digits.py",
    ],
    "cli": ["tests/analysis/test_probing.py"],
    "pages": [
        "tests/analysis/test_watched.py",
        "tests/browser",
        "tests/cli/test_cli_compare.py",
        "tests/cli/test_cli_fleet.py",
        "tests/cli/test_cli_gradient.py",
    ],
    "series": ["tests/analysis/test_stability.py", "tests/analysis/test_run_groups.py"],
    "wording.py": ["tests/test_wording.py", "tests/pages"],
    "forecasting": ["lab/tests/experiments/test_forecast.py", "tests/test_intervals.py"],
    "diagnostics": [
        "lab/tests/experiments/test_confusion.py",
        "lab/tests/experiments/test_labels.py",
    ],
}


@dataclass(frozen=True)
class Mutant:
    """One change of one place."""

    module: str  # its file, from the package on
    operator: str
    occurrence: int
    line: int
    before: str  # the line as it is, stripped
    after: str  # and changed
    state: str  # a hash of the module, so that results of other states are not taken for this one's

    @property
    def name(self) -> str:
        """What tells it from all others."""
        return f"{self.module}:{self.operator}:{self.occurrence}:{self.state}"


def modules_of(room: str) -> list[Path]:
    """The files of a room, or the one file that it is."""
    place = PACKAGE / room
    return (
        [place]
        if place.is_file()
        else sorted(path for path in place.rglob("*.py") if path.name != "__init__.py")
    )


def idle_spans(text: str) -> list[tuple[int, int]]:
    """First and last lines of what computes nothing: annotations and decorators of dataclasses,
    each on lines of its own or inside.
    """
    spans = []
    for node in ast.walk(ast.parse(text)):
        for name in ("annotation", "returns"):
            part = getattr(node, name, None)
            if isinstance(part, ast.AST):
                spans.append(position(part))
        if isinstance(node, ast.ClassDef):
            spans += [
                position(decorator)
                for decorator in node.decorator_list
                if "dataclass" in ast.unparse(decorator)
            ]
    return spans


def position(node: ast.AST) -> tuple[Any, Any]:
    """Where a node begins and ends, as (line, column) pairs."""
    place: Any = node
    return (place.lineno, place.col_offset), (place.end_lineno, place.end_col_offset)


def drawn_mutants(room: str, count: int, seed: int) -> list[Mutant]:
    """Draw mutants of a room that change code which computes; each place of each module is as
    likely as any other.
    """
    places = [
        (path, item)
        for path in modules_of(room)
        for item in items_of(str(path.relative_to(PACKAGE)))
    ]
    random.Random(seed).shuffle(places)
    mutants = (mutant for path, item in places if (mutant := mutant_of(path, item)) is not None)
    return list(islice(mutants, count))


def mutant_of(path: Path, item: Any) -> Mutant | None:
    """Return one mutant of a module, or None where it changes nothing that computes."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    text, change = path.read_text(encoding="utf-8"), item.mutations[0]
    if any(start <= tuple(change.start_pos) < end for start, end in idle_spans(text)):
        return None
    changed = mutate_code(
        text, get_operator(change.operator_name)(**(change.operator_args or {})), change.occurrence
    )
    if changed is None or not computes_otherwise(text, changed):
        return None
    line, lines = change.start_pos[0], text.splitlines()
    after = next(
        (new for new, old in zip(changed.splitlines(), lines, strict=False) if new != old), ""
    )
    state = hashlib.sha256(text.encode()).hexdigest()[:12]
    operator, module = change.operator_name.split("/")[-1], str(path.relative_to(PACKAGE))
    return Mutant(
        module, operator, change.occurrence, line, lines[line - 1].strip(), after.strip(), state
    )


def computes_otherwise(text: str, changed: str) -> bool:
    """Whether a change is Python, and another program than before."""
    try:
        return ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))
    except SyntaxError:
        return False


def tests_of(mutant: Mutant, by_line: dict[int, set[str]], every: Iterable[str]) -> set[str]:
    """The tests that reach a mutant's line; where it runs as the module loads, those that reach its
    function, or else its module.

    What a module says as it loads is read by tests that reach none of its lines too: those in the
    file of tests of its name.
    """
    if by_line.get(mutant.line):
        return by_line[mutant.line]
    own = {
        test
        for test in every
        if Path(test.partition("::")[0]).name == f"test_{Path(mutant.module).name}"
    }
    text = (PACKAGE / mutant.module).read_text(encoding="utf-8")
    spans = [
        (node.lineno, node.end_lineno or 0)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    around = [span for span in spans if span[0] <= mutant.line <= span[1]]
    first, last = max(around, default=(1, len(text.splitlines())))
    return own | {
        test for line, tests in by_line.items() if first <= line <= last for test in tests
    }


def reached(room: str) -> tuple[dict[str, dict[int, set[str]]], dict[str, float]]:
    """Which tests reach which lines of the room's modules, and how long each test takes."""
    BUILD.mkdir(parents=True, exist_ok=True)
    data, times = BUILD / f"{room}.coverage", BUILD / f"{room}.times.json"
    mirror = (
        [f"tests/{room}", f"src/groupwise/{room}"]
        if (ROOT / "tests" / room).is_dir()
        else [f"src/groupwise/{room}"]
    )
    tests = [test for test in [*mirror, *ALSO.get(room, [])] if (ROOT / test).exists()]
    newest = max(
        path.stat().st_mtime for name in ["src", "tests"] for path in (ROOT / name).rglob("*.py")
    )
    if not data.exists() or not times.exists() or data.stat().st_mtime < newest:
        environment = os.environ | {
            "COVERAGE_FILE": str(data),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "lab" / "src")]),
            "GROUPWISE_TIMES": str(times),
        }
        options = [
            "-q",
            "-p",
            "no:cacheprovider",
            "--cov=groupwise",
            "--cov-context=test",
            "--cov-report=",
            "-p",
            "mutants",
        ]
        command = [sys.executable, "-m", "pytest", *options, *tests]
        environment["PYTHONPATH"] += os.pathsep + str(Path(__file__).parent)
        finished = subprocess.run(
            command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True
        )
        if finished.returncode != 0:
            raise SystemExit(
                "expected tests that pass before anything is changed, "
                f"got\n{finished.stdout[-3000:]}"
            )
    from coverage import CoverageData

    stored = CoverageData(basename=str(data))
    stored.read()
    by_line = {}
    for path in modules_of(room):
        contexts = stored.contexts_by_lineno(str(path))
        by_line[str(path.relative_to(PACKAGE))] = {
            line: {context.removesuffix("|run") for context in names if context.endswith("|run")}
            for line, names in contexts.items()
        }
    return by_line, json.loads(times.read_text())


_SECONDS: dict[str, float] = defaultdict(float)


def pytest_runtest_logstart(nodeid: str) -> None:
    """As a plugin of pytest: begins to count a test and its fixtures, by the processor: a busy
    machine leaves out no test.
    """
    _SECONDS[nodeid] -= time.process_time() + sum(os.times()[2:4])


def pytest_runtest_logfinish(nodeid: str) -> None:
    """As a plugin of pytest: ends it."""
    _SECONDS[nodeid] += time.process_time() + sum(os.times()[2:4])


def pytest_sessionfinish() -> None:
    """As a plugin of pytest: keeps how long the tests took."""
    if "GROUPWISE_TIMES" in os.environ:
        Path(os.environ["GROUPWISE_TIMES"]).write_text(json.dumps(_SECONDS))


def chosen_tests(tests: set[str], seconds: dict[str, float]) -> list[str]:
    """The quickest tests first, as many as fit the time of one mutant."""
    chosen, total = [], 0.0
    for test in sorted(tests, key=lambda name: (seconds.get(name, 0.0), name)):
        total += seconds.get(test, 0.0)
        if total > TESTS_SECONDS and chosen:
            break
        chosen.append(test)
    return chosen


def judged(task: tuple[Mutant, list[str]]) -> dict[str, Any]:
    """Run the tests on one mutant: killed, survived, timeout, or reached by no test."""
    mutant, tests = task
    if not tests:
        return {
            **asdict(mutant),
            "name": mutant.name,
            "outcome": "survived",
            "by": "no test reaches it",
        }
    tree = own_tree()
    place = tree / "src" / "groupwise" / mutant.module
    original = place.read_text(encoding="utf-8")
    try:
        place.write_text(changed_text(original, mutant), encoding="utf-8")
        outcome, by = asked(tree, tests)
    finally:
        place.write_text(original, encoding="utf-8")
    return {**asdict(mutant), "name": mutant.name, "outcome": outcome, "by": by}


def own_tree() -> Path:
    """A copy of the project for this process alone."""
    tree = BUILD / f"tree-{os.getpid()}"
    if not tree.exists():
        for name in ("src", "tests", "docs", "lab", "scripts"):
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "conftest.py", "README.md", "Makefile", "mkdocs.yml"):
            shutil.copy(ROOT / name, tree / name)
        shared = BUILD / "shared"  # the real logs lie beside the project
        if (ROOT.parent / "shared").exists() and not shared.exists():
            shared.symlink_to((ROOT.parent / "shared").resolve())
    return tree


def changed_text(text: str, mutant: Mutant) -> str:
    """The module with the mutant in it."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    arguments = next(
        item.mutations[0].operator_args
        for item in items_of(mutant.module)
        if item.mutations[0].operator_name.endswith(mutant.operator)
        and item.mutations[0].occurrence == mutant.occurrence
    )
    changed = mutate_code(
        text, get_operator(f"core/{mutant.operator}")(**(arguments or {})), mutant.occurrence
    )
    assert changed is not None
    return str(changed)


_ITEMS: dict[str, list[Any]] = {}


def items_of(module: str) -> list[Any]:
    """Cosmic-ray's list of the changes of a module, made once."""
    from cosmic_ray.commands.init import _all_work_items

    if module not in _ITEMS:
        _ITEMS[module] = list(_all_work_items([PACKAGE / module], {}))
    return _ITEMS[module]


def asked(tree: Path, tests: list[str]) -> tuple[str, str]:
    """Run tests in a fork that has the libraries loaded already, and say what came of it."""
    log = tree / "log.txt"
    child = os.fork()
    if child == 0:
        os.setpgrp()
        resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_SECONDS, LIMIT_SECONDS + 1))
        sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        os.chdir(tree)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(tree / "src"), str(tree / "lab" / "src")])
        sys.path[:0] = [str(tree / "src"), str(tree / "lab" / "src"), str(tree)]
        sys.dont_write_bytecode = True
        try:
            import pytest

            code = int(
                pytest.main(
                    [
                        "-x",
                        "-q",
                        "-p",
                        "no:cacheprovider",
                        "-p",
                        "no:xdist",
                        "-p",
                        "no:cov",
                        "--no-header",
                        *tests,
                    ]
                )
            )
        except BaseException:  # noqa: BLE001 - whatever it is, the fork ends here
            traceback.print_exc()
            code = UNJUDGED
        os._exit(code)
    end = time.monotonic() + LONGEST_WAIT
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            if code == -signal.SIGXCPU:
                return "timeout", f"more than {LIMIT_SECONDS} s of the processor"
            words = log.read_text(errors="replace").splitlines()
            failed = next(
                (line for line in words if line.startswith(("FAILED", "ERROR"))),
                words[-1] if words else "",
            )
            if code == UNJUDGED or failed.startswith(
                "ERROR: not found"
            ):  # a test that is not in the copy kills nothing
                raise RuntimeError("\n".join(words[-20:]))
            return ("survived" if code == 0 else "killed"), failed[:200]
        time.sleep(0.02)
    os.killpg(child, 9)
    os.waitpid(child, 0)
    return "timeout", f"more than {LONGEST_WAIT:.0f} s"


def equivalent() -> set[tuple[str, str, str]]:
    """Mutants that were looked at and change nothing: module, line before, line after."""
    if not EQUIVALENT.exists():
        return set()
    with EQUIVALENT.open(encoding="utf-8", newline="") as handle:
        return {
            (row["module"], row["before"], row["after"])
            for row in csv.DictReader(handle, delimiter="\t")
        }


def print_table(results: list[dict[str, Any]]) -> None:
    """Print the killed share by module with its Wilson interval, and the survivors."""
    from groupwise.intervals import wilson

    same = equivalent()
    counted = [row for row in results if (row["module"], row["before"], row["after"]) not in same]
    rooms: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in counted:
        rooms[row["module"]].append(row)
    print(f"{'module':42}{'mutants':>9}{'killed':>8}{'timeout':>9}{'share':>8}  95 % interval")
    for module, rows in [*sorted(rooms.items()), ("all", counted)]:
        killed, late = (
            sum(row["outcome"] == "killed" for row in rows),
            sum(row["outcome"] == "timeout" for row in rows),
        )
        share = wilson(killed + late, len(rows))
        print(
            f"{module:42}{len(rows):>9}{killed:>8}{late:>9}{share.value:>8.3f}  {share.low:.3f} to "
            f"{share.high:.3f}"
        )
    print(f"named as equivalent: {len(results) - len(counted)}")
    for row in sorted(
        (row for row in counted if row["outcome"] == "survived"),
        key=lambda row: (row["module"], row["line"]),
    ):
        print(
            f"survived {row['module']}:{row['line']} {row['operator']}\n    - {row['before']}\n    "
            f"+ {row['after']}   [{row['by'][:60]}]"
        )


def main() -> int:
    """Draw mutants of a room, judge those that are not judged yet, print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("room")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    by_line, seconds = reached(given.room)
    drawn = drawn_mutants(given.room, given.count, given.seed)
    kept = BUILD / f"{given.room}.jsonl"
    done = (
        {row["name"]: row for row in map(json.loads, kept.read_text().splitlines())}
        if kept.exists()
        else {}
    )
    tasks = [
        (mutant, chosen_tests(tests_of(mutant, by_line[mutant.module], seconds), seconds))
        for mutant in drawn
        if mutant.name not in done
    ]
    print(
        f"{len(drawn)} mutants drawn with seed {given.seed}, {len(tasks)} to be judged", flush=True
    )
    preload()
    if tasks:
        control(tasks)
    with (
        multiprocessing.get_context("fork").Pool(given.workers) as pool,
        kept.open("a", encoding="utf-8") as handle,
    ):
        for row in pool.imap_unordered(judged, tasks):
            done[row["name"]] = row
            handle.write(json.dumps(row) + "\n")
            handle.flush()
    for tree in BUILD.glob("tree-*"):
        shutil.rmtree(tree)
    print_table([done[mutant.name] for mutant in drawn])
    return 0


def control(tasks: list[tuple[Mutant, list[str]]]) -> None:
    """Tests of the mutants pass in a copy of the project in which nothing is changed; else every
    mutant would seem killed.
    """
    tests = sorted(
        {
            test
            for _, chosen in random.Random(0).sample(tasks, min(5, len(tasks)))
            for test in chosen
        }
    )
    outcome, by = asked(own_tree(), tests[:200])
    if outcome == "killed":
        raise SystemExit(f"expected tests that pass in a copy of the project, got {by}")


def preload() -> None:
    """Load the libraries that every run of the tests needs, once, before processes are forked."""
    for name in ("numpy", "polars", "scipy.optimize", "scipy.special", "scipy.stats"):
        importlib.import_module(name)


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(main())
