"""Expected updates without sampling noise, held against a plain sum over outcomes, finite
differences and the tabular optimum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from groupwise_lab.trainer.tasks import Task

torch = pytest.importorskip("torch")

from truth import ExactLoss, ExactWorld

MakeWorld = Callable[..., ExactWorld]


@pytest.fixture
def make_world(make_policy: Callable[[], Any], small_task: Task) -> MakeWorld:
    """The maker of worlds of a few problems."""
    return lambda loss, problems=7: ExactWorld(
        make_policy().double(), small_task, small_task.train[:problems], loss
    )


def moved(world: ExactWorld, *, seed: int = 1, size: float = 0.3) -> Any:
    """Parameters some way off the reference policy."""
    direction = torch.randn(
        len(world.start_D), dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    return world.start_D + size * direction / direction.norm() * 3


LOSSES = [
    ExactLoss(0.0),
    ExactLoss(0.4),
    ExactLoss(0.4, kl_in="reward"),
    ExactLoss(0.4, ratio="exact"),
    ExactLoss(0.4, kl_in="reward", ratio="exact"),
    ExactLoss(0.4, ratio="clipped"),
]


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_on_policy_every_loss_climbs_the_objective(make_world: MakeWorld, loss: ExactLoss) -> None:
    world = make_world(loss)
    now_D = moved(world).requires_grad_(True)
    (gradient,) = torch.autograd.grad(world.objective(now_D), now_D)
    update_D, now_PO = world.update(now_D, world.log_probabilities(now_D).detach())
    assert float((update_D - gradient).norm() / gradient.norm()) < 1e-10
    np.testing.assert_allclose(
        now_PO.numpy(), world.log_probabilities(now_D).detach().numpy(), atol=1e-14
    )
    np.testing.assert_allclose(world.update(now_D)[0].numpy(), update_D.numpy(), atol=1e-14)
    np.testing.assert_allclose(
        world.expected_step(now_D.detach().numpy()), update_D.numpy(), atol=1e-12
    )


@pytest.mark.parametrize("ratio", ["none", "exact", "clipped"])
@pytest.mark.parametrize("kl_in", ["loss", "reward"])
def test_a_stale_update_is_the_plain_sum_over_outcomes(
    make_world: MakeWorld, ratio: Any, kl_in: Any
) -> None:
    beta, clip = 0.3, 0.05
    world = make_world(ExactLoss(beta, kl_in=kl_in, ratio=ratio, clip=clip), problems=1)
    now_D, old_D = moved(world, seed=2), moved(world, seed=3)
    new = world.log_probabilities(now_D.requires_grad_(True))[0]
    old, reference = (
        item.detach().numpy()[0] for item in (world.log_probabilities(old_D), world.reference_PO)
    )
    reward = world.reward_PO.numpy()[0] - (beta * (old - reference) if kl_in == "reward" else 0)
    weights = []
    for outcome, log_drawn in enumerate(old):
        advantage, quotient = (
            float(reward[outcome] - np.exp(old) @ reward),
            float((new[outcome].detach() - log_drawn).exp()),
        )
        held = advantage * quotient > advantage * min(max(quotient, 1 - clip), 1 + clip)
        weight = (
            np.exp(log_drawn)
            * advantage
            * {"none": 1.0, "exact": quotient, "clipped": 0.0 if held else quotient}[ratio]
        )
        if kl_in == "loss":
            weight -= (
                beta
                * quotient
                * np.exp(log_drawn)
                * float(new[outcome].detach() - reference[outcome])
            )
        weights.append(weight)
    (total,) = torch.autograd.grad(torch.tensor(weights) @ new, now_D)
    update_D, _ = world.update(now_D, torch.as_tensor(old[None]))
    assert float((update_D - total).norm() / total.norm()) < 1e-10


def test_without_ratio_a_stale_update_is_no_gradient_of_the_objective(
    make_world: MakeWorld,
) -> None:
    world = make_world(ExactLoss(0.3, kl_in="reward"))
    now_D, old_D = moved(world, seed=2), moved(world, seed=3)
    (gradient,) = torch.autograd.grad(world.objective(now_D.requires_grad_(True)), now_D)
    update_D, _ = world.update(now_D, world.log_probabilities(old_D).detach())
    assert float((update_D - gradient).norm() / gradient.norm()) > 0.05


def test_the_exact_ratio_leaves_no_lag_with_the_kl_term_in_the_loss(make_world: MakeWorld) -> None:
    world = make_world(ExactLoss(0.3, ratio="exact"))
    now_D = moved(world, seed=2)
    fresh, _ = world.update(now_D, world.log_probabilities(now_D).detach())
    stale, _ = world.update(now_D, world.log_probabilities(moved(world, seed=3)).detach())
    assert float((fresh - stale).norm() / fresh.norm()) < 1e-9


def test_std_divides_every_problem_by_its_own_deviation(make_world: MakeWorld) -> None:
    world = make_world(ExactLoss(0.0, std_eps=1e-4))
    now_D = moved(world).requires_grad_(True)
    log_PO = world.log_probabilities(now_D)
    value_P = (log_PO.exp() * world.reward_PO).sum(1)
    deviation_P = (value_P * (1 - value_P)).detach().sqrt()
    (wanted,) = torch.autograd.grad(
        (value_P / (deviation_P + 1e-4)).mean(), now_D, retain_graph=True
    )
    update_D, _ = world.update(now_D, log_PO.detach())
    assert float((update_D - wanted).norm() / wanted.norm()) < 1e-10


@pytest.mark.thinned(2)
@pytest.mark.parametrize("loss", [*LOSSES[:5], ExactLoss(0.2, std_eps=0.1)], ids=str)
@pytest.mark.parametrize("stale", [False, True])
def test_the_jacobians_are_those_of_finite_differences(
    make_world: MakeWorld, loss: ExactLoss, *, stale: bool
) -> None:
    world = make_world(loss)
    now_D = moved(world)
    direction_D = (
        world.expected_step(now_D.numpy())
        + np.random.default_rng(0).standard_normal(len(now_D)) / 100
    )
    unit_D = torch.tensor(direction_D / np.linalg.norm(direction_D))
    exact = world.change_of_update(now_D, unit_D, stale=stale)
    size = 1e-4
    ends = []
    for sign in (1, -1):
        other_D = now_D + sign * size * unit_D
        with torch.no_grad():
            sampled = world.log_probabilities(other_D if stale else now_D)
        ends.append(world.update(now_D if stale else other_D, sampled)[0])
    slope = (ends[0] - ends[1]) / (2 * size)
    whole = exact if not stale else world.change_of_update(now_D, unit_D, stale=False)
    assert float((slope - exact).norm()) < 1e-5 * float(max(whole.norm(), exact.norm()))


def test_the_tabular_optimum_bounds_the_objective(make_world: MakeWorld) -> None:
    beta = 0.5
    world = make_world(ExactLoss(beta))
    ideal = beta * float(torch.logsumexp(world.reference_PO + world.reward_PO / beta, 1).mean())
    with torch.no_grad():
        start = float(world.objective(world.start_D))
        log_PO = (world.reference_PO + world.reward_PO / beta).log_softmax(1)
        best = float(world.value(log_PO) - beta * world.divergence(log_PO))
    assert start == pytest.approx(world.mean_reward(world.start_D.numpy()), abs=1e-12)
    assert start < ideal
    assert best == pytest.approx(ideal, abs=1e-12)
