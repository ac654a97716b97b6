"""What the scripts on the final gap share: the worlds, the law of a setting, results, and
plain options.

Three worlds: a linear softmax policy over four prompts with two answers each, the same with six
prompts of three answers, and a bandit of four arms in its logits, whose Hessian lacks a rank. It
runs nothing by itself.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common.py

import common
import numpy as np

# scripts take them from here
from common import Results, Row, Rows, column, options, print_table, where  # noqa: F401
from falling_steps import RegularisedWorld, bandit_world, linear_world
from final_gap import CovarianceParts, MatrixMoments, covariance_parts

RESULTS = common.results_of(__file__).within("final_gap")
BASELINE = {
    "leave_one_out": "leave_one_out",
    "oracle": "oracle",
    "vanilla": "fixed",
}  # the simulator's word -> the law's
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
    moments = MatrixMoments(
        m.value_P,
        m.reward_variance_P,
        m.fisher_PDD,
        m.weighted_fisher_PDD,
        m.second_moment_PDD,
        m.gradient_PD,
    )
    return covariance_parts(moments, added_gradient_PD=m.pull_PD, weight_P=world.weight_P)


def stage(name: str) -> Stage:
    """One of the three worlds, ready."""
    world = {
        "two answers": lambda: linear_world(
            np.random.default_rng(19), prompts=4, answers=2, dimensions=2, kl_weight=0.6
        ),
        "three answers": lambda: linear_world(
            np.random.default_rng(2), prompts=6, answers=3, dimensions=3, kl_weight=0.6
        ),
        "bandit": lambda: bandit_world([1.0, 0.6, 0.3, 0.0], kl_weight=0.5),
    }[name]()
    best = world.optimum()
    hessian = world.hessian(best)
    curvature = np.linalg.eigvalsh(-hessian)
    smallest = curvature[curvature > 1e-10 * curvature.max()].min()
    return Stage(name, world, best, hessian, parts_at(world, best), 2 / float(smallest))
