"""What the scripts on the final gap share: the worlds, the law of a setting, CSV beside the script, and plain options.

Three worlds: a linear softmax policy over four prompts with two answers each, the same with six prompts of three answers, and a
bandit of four arms in its logits, whose Hessian lacks a rank. It runs nothing by itself.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from groupwise.asymptotics.final_gap import CovarianceParts, covariance_parts
from groupwise.simulate.regularised import RegularisedWorld, bandit_world, linear_world

RESULTS = Path(__file__).resolve().parent / "results" / "final_gap"
PICTURES = Path(__file__).resolve().parents[2] / "docs" / "img"
BASELINE = {"leave_one_out": "leave_one_out", "oracle": "oracle", "vanilla": "fixed"}  # the simulator's word -> the law's
# Okabe and Ito; every series has its own marker too.
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION = "#000000", "#e69f00", "#56b4e9", "#009e73", "#0072b2", "#d55e00"
STYLE = {"leave_one_out": (BLUE, "o"), "oracle": (GREEN, "s"), "vanilla": (VERMILION, "^")}
NAME = {"leave_one_out": "leave-one-out", "oracle": "oracle", "vanilla": "no baseline"}


@dataclass(frozen=True, slots=True)
class Stage:
    """A world with what the law needs of it.

    Args:
        name: of the world.
        world: itself.
        best_D: its optimum.
        hessian_DD: there.
        parts: of the gradient's covariance there.
        step_constant: b, twice the inverse of the smallest curvature.
    """

    name: str
    world: RegularisedWorld
    best_D: np.ndarray
    hessian_DD: np.ndarray
    parts: CovarianceParts
    step_constant: float


def parts_at(world: RegularisedWorld, theta_D: np.ndarray) -> CovarianceParts:
    """The parts of the covariance of a minibatch's gradient, from the world's own moments."""
    m = world.moments(theta_D)
    return covariance_parts(
        m.value_P,
        m.reward_variance_P,
        m.fisher_PDD,
        m.weighted_fisher_PDD,
        m.second_moment_PDD,
        m.gradient_PD,
        added_gradient_PD=m.pull_PD,
        weight_P=world.weight_P,
    )


def stage(name: str) -> Stage:
    """One of the three worlds, ready."""
    world = {
        "two answers": lambda: linear_world(np.random.default_rng(19), prompts=4, answers=2, dimensions=2, kl_weight=0.6),
        "three answers": lambda: linear_world(np.random.default_rng(2), prompts=6, answers=3, dimensions=3, kl_weight=0.6),
        "bandit": lambda: bandit_world([1.0, 0.6, 0.3, 0.0], kl_weight=0.5),
    }[name]()
    best = world.optimum()
    hessian = world.hessian(best)
    curvature = np.linalg.eigvalsh(-hessian)
    smallest = curvature[curvature > 1e-10 * curvature.max()].min()
    return Stage(name, world, best, hessian, parts_at(world, best), 2 / float(smallest))


def options(text: str | None, **numbers: int) -> argparse.Namespace:
    """--quick, --tables, --seed, and whole numbers with defaults."""
    parser = argparse.ArgumentParser(description=(text or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--quick", action="store_true", help="smallest run that exercises everything; writes no file")
    parser.add_argument("--tables", action="store_true", help="print the tables and draw the figures of the CSV files; runs nothing")
    parser.add_argument("--seed", type=int, default=2026)
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def write_csv(name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows with nine digits."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{value:.9g}" if isinstance(value, float) else value for key, value in row.items()})


def read_csv(name: str) -> list[dict[str, Any]]:
    """Read what `write_csv` wrote; numbers as such."""

    def cell(text: str) -> Any:
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                continue
        return text

    with (RESULTS / name).open(newline="", encoding="utf-8") as file:
        return [{key: cell(text) for key, text in row.items()} for row in csv.DictReader(file)]


def print_table(title: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """Print a table as the page shows it."""
    print(f"\n{title}\n")
    for cells in (header, ["---"] * len(header), *lines):
        print(f"| {' | '.join(cells)} |")


def pyplot() -> Any:
    """Matplotlib, set so that the same numbers give the same file."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "groupwise", "svg.fonttype": "path", "font.size": 10, "axes.spines.top": False})
    mpl.rcParams.update({"axes.spines.right": False, "axes.grid": True, "grid.color": "#dddddd", "legend.frameon": False})
    from matplotlib import pyplot as plt

    return plt


def save(figure: Any, name: str) -> None:
    """Write a figure as SVG without a date."""
    figure.savefig(PICTURES / name, metadata={"Date": None})
    print(f"drawn: {name}")
