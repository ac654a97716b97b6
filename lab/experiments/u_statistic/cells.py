"""The runner of this folder: cells that each leave one table, written when it is done; what is
there already is not run again.

Ctrl-C loses the cells that were running and nothing else; the same command goes on. It knows no
experiment.
"""

import argparse
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common.py

from common import Results, Row, Rows, arguments, column, print_table, results_of, where  # noqa: F401

from groupwise.parsing import JsonView
from pages import printed, refresh

RESULTS = results_of(__file__)


@dataclass(frozen=True)
class Cell:
    """One piece of an experiment.

    Args:
        name: of its table.
        function: of a module, called with `arguments`; returns the rows.
        arguments: plain data.
    """

    name: str
    function: Callable[..., Rows]
    arguments: JsonView = field(default_factory=dict)


def options(text: str | None) -> argparse.Namespace:
    """--quick, --tables, --workers, --minutes and --only."""
    return arguments(text, quick=False, tables=False, workers=2, minutes=60.0, only="")


def missing(cells: Iterable[Cell], results: Results) -> list[Cell]:
    """The cells that are not done, in their order."""
    done = results.tables()
    return [cell for cell in cells if cell.name not in done]


def run_missing(
    cells: Sequence[Cell], results: Results, *, workers: int = 1, minutes: float = 60.0
) -> list[Cell]:
    """Run what is missing, in order, and write each piece as it comes; return what is still
    missing.

    A cell that fails is told, and the next one begins. With one worker none begins when less time
    is left than the last of its kind took.
    """
    wanted, began = missing(cells, results), time.perf_counter()
    print(
        f"{len(cells) - len(wanted)} of {len(cells)} cells are there; {len(wanted)} to run",
        flush=True,
    )
    if workers <= 1:
        _run_in_turn(wanted, results, began + 60 * minutes)
        return missing(cells, results)
    waiting = list(reversed(wanted))
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        running = {}
        while waiting or running:
            while waiting and len(running) < workers and time.perf_counter() - began < 60 * minutes:
                cell = waiting.pop()
                running[pool.submit(_timed, cell)] = cell
            if not running:
                break
            ready = next(as_completed(running))
            _kept(running.pop(ready), ready.result, results)
    return missing(cells, results)


def _run_in_turn(wanted: Sequence[Cell], results: Results, end: float) -> None:
    """Run one cell after the other while their time lasts."""
    took = {}
    too_long = set()
    for cell in wanted:
        kind, left = cell.name.split("-")[0], end - time.perf_counter()
        if left <= 0:
            break
        if left < took.get(kind, 0.0):
            if kind not in too_long:
                print(
                    f"{cell.name} is not begun: the last of its kind took {took[kind]:.0f} s, and "
                    f"{left:.0f} s are left",
                    flush=True,
                )
            too_long.add(kind)
            continue
        began = time.perf_counter()
        _kept(cell, partial(_timed, cell), results)
        took[kind] = time.perf_counter() - began


def run_asked(cells: Sequence[Cell], results: Results, asked: argparse.Namespace) -> None:
    """Run what is missing of the cells that the command names; nothing with --tables."""
    if not asked.tables:
        run_missing(
            [cell for cell in cells if asked.only in cell.name],
            results,
            workers=asked.workers,
            minutes=asked.minutes,
        )


def run_and_show(
    cells: Sequence[Cell],
    results: Results,
    asked: argparse.Namespace,
    show: Callable[[], None],
    page: str,
) -> None:
    """Run what is missing, print the tables and put them into their page, and say what was not
    run.
    """
    run_asked(cells, results, asked)
    refresh(page, printed(show))
    say_missing(cells, results)


def _timed(cell: Cell) -> tuple[Rows, float]:
    """Run a cell with one thread."""
    import torch

    torch.set_num_threads(1)
    began = time.perf_counter()
    return cell.function(**cell.arguments), time.perf_counter() - began


def _kept(cell: Cell, result: Callable[[], tuple[Rows, float]], results: Results) -> None:
    """Keep the rows of a cell, or tell why there are none."""
    try:
        rows, seconds = result()
        results.write(cell.name, rows, digits=6)
    except Exception as error:  # noqa: BLE001 - whatever it is: the other cells are not lost for it
        traceback.print_exc()
        print(f"{cell.name} failed: {type(error).__name__}: {error}", flush=True)
    else:
        print(f"{cell.name}: {seconds:.1f} s", flush=True)


def say_missing(cells: Sequence[Cell], results: Results) -> None:
    """Say plainly what was not run."""
    left = missing(cells, results)
    if left:
        kinds = Counter(cell.name.rsplit("-seed", 1)[0] for cell in left)
        said = ", ".join(
            name if count == 1 else f"{name} ({count} seeds)" for name, count in kinds.items()
        )
        print(
            f"\n{len(left)} of {len(cells)} cells are missing: {said}. "
            "The script runs them without --tables."
        )
