"""The truth about a policy, held against brute force, and the estimates of it against the truth,
within their intervals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise_lab.theory.stiffness import kicked_stiffness
from groupwise_lab.trainer.rewards import FailingVerifier, TaskVerifier, exact
from groupwise_lab.trainer.settings import TrainSettings
from groupwise_lab.trainer.tasks import Task, make_task

torch = pytest.importorskip("torch")

from truth import (
    ExactLoss,
    ExactWorld,
    OutcomeTree,
    curvature,
    gradient,
    leading_modes,
    method_for,
    outcome_log_probabilities,
    outcome_rewards,
    true_components,
    values,
)

from groupwise_lab.trainer.adaptive import probe
from groupwise_lab.trainer.grpo import train
from groupwise_lab.trainer.policy import Policy, PolicySize, policy_size


def drawing(seed: int = 5) -> Any:
    return torch.Generator().manual_seed(seed)


def least(task: Task) -> Any:
    """A policy with few enough parameters for dense matrices."""
    return Policy(
        PolicySize("least", 4, 1, 1), vocabulary_size=len(task.vocabulary), context=6, seed=2
    ).double()


@pytest.fixture
def formatted_task() -> Task:
    """A task whose reward is for the form too, so that many answers earn something."""
    return make_task("modular_addition", level=1, format_reward=True)


def test_values_by_one_pass_by_enumeration_and_by_rollouts_agree(
    make_policy: Callable[[], Any],
    small_task: Task,
    formatted_task: Task,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy, problems = make_policy().double(), small_task.train[:9]
    by_answer, by_tree = (
        values(policy, small_task, problems),
        values(policy, formatted_task, problems),
    )
    assert (by_answer.method, by_tree.method) == ("answer", "enumeration")
    assert (by_answer.error_P == 0).all()
    tree = OutcomeTree.of(
        tokens=len(small_task.vocabulary), completion_length=small_task.completion_length
    )
    with torch.no_grad():
        share = (
            outcome_log_probabilities(policy, policy.prompt_tokens(small_task, problems), tree)
            .exp()
            .numpy()
        )
    for task, truth in ((small_task, by_answer), (formatted_task, by_tree)):
        np.testing.assert_allclose(
            truth.value_P, (share * outcome_rewards(task, problems, tree)).sum(1), atol=1e-12
        )
    monkeypatch.setattr("truth.method_for", lambda policy, task: "rollouts")
    sampled = values(policy, formatted_task, problems, rollouts=1500, generator=drawing())
    assert sampled.method == "rollouts"
    # Nine values and a mean, each wrong beyond 4 standard errors one time in 16,000.
    assert (np.abs(sampled.value_P - by_tree.value_P) < 4 * sampled.error_P + 1e-9).all()
    assert abs(sampled.mean - by_tree.mean) < 4 * sampled.mean_error


def test_gradients_by_one_pass_by_enumeration_and_by_rollouts_agree(
    make_policy: Callable[[], Any],
    small_task: Task,
    formatted_task: Task,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy, problems = make_policy().double(), small_task.train[:6]
    world = ExactWorld(policy, small_task, problems, ExactLoss(0.0))
    exact = gradient(policy, small_task, problems)
    np.testing.assert_allclose(
        exact.gradient_D, world.expected_step(world.start_D.numpy()), atol=1e-12
    )
    formatted = ExactWorld(policy, formatted_task, problems, ExactLoss(0.0))
    by_tree = gradient(policy, formatted_task, problems)
    np.testing.assert_allclose(
        by_tree.gradient_D, formatted.expected_step(formatted.start_D.numpy()), atol=1e-12
    )
    monkeypatch.setattr("truth.method_for", lambda policy, task: "rollouts")
    sampled = gradient(policy, formatted_task, problems, rollouts=1000, generator=drawing())
    # The error is a root mean square over many directions: twice it is beyond any of a thousand
    # seeds tried.
    assert (
        0.4 * sampled.error
        < np.linalg.norm(sampled.gradient_D - by_tree.gradient_D)
        < 2 * sampled.error
    )
    assert sampled.error < 0.3 * np.linalg.norm(by_tree.gradient_D)


@pytest.mark.slow
def test_true_components_are_the_sums_over_single_scores(small_task: Task) -> None:
    policy, problems = least(small_task), small_task.train[:2]
    truth = true_components(policy, small_task, problems)
    tree = OutcomeTree.of(
        tokens=len(small_task.vocabulary), completion_length=small_task.completion_length
    )
    log_PO = outcome_log_probabilities(policy, policy.prompt_tokens(small_task, problems), tree)
    reward_PO = outcome_rewards(small_task, problems, tree)
    parts, own = [], []
    for log_O, reward_O in zip(log_PO, reward_PO, strict=True):
        score_OD = np.stack(
            [
                np.concatenate(
                    [
                        part.numpy().ravel()
                        for part in torch.autograd.grad(
                            log_probability, list(policy.parameters()), retain_graph=True
                        )
                    ]
                )
                for log_probability in log_O
            ]
        )
        share = log_O.detach().exp().numpy()
        error = reward_O - share @ reward_O
        norm, pull = (score_OD**2).sum(1), (share * error) @ score_OD
        own.append(pull)
        first = share @ ((error[:, None] * score_OD - pull) ** 2).sum(1)
        parts.append(
            [first, (share @ norm) * (share @ error**2) + pull @ pull, share @ (norm * error)]
        )
    t, r, kappa = np.mean(parts, axis=0)
    mean = np.mean(own, axis=0)
    assert truth.t == pytest.approx(t, rel=1e-9)
    assert truth.r == pytest.approx(r, rel=1e-9)
    assert truth.kappa == pytest.approx(kappa, rel=1e-9)
    assert truth.vp == pytest.approx(
        np.mean([(estimate - mean) @ (estimate - mean) for estimate in own]), rel=1e-9
    )
    assert truth.gradient_norm2 == pytest.approx(mean @ mean, rel=1e-9)
    assert truth.value == pytest.approx(values(policy, small_task, problems).mean, abs=1e-12)
    assert truth.best_group_size == pytest.approx(1 + np.sqrt(r / truth.vp), rel=1e-9)


@pytest.mark.slow
def test_estimates_cover_the_truth(make_policy: Callable[[], Any], small_task: Task) -> None:
    policy, problems = make_policy(), small_task.train[:8]
    truth = true_components(policy, small_task, problems)
    generator = drawing()
    drawn = [
        problems[place]
        for place in torch.randint(len(problems), (96,), generator=generator).tolist()
    ]
    probed = probe(policy, small_task, drawn, 8, generator)
    for name in ("vp", "t", "r", "value", "score_norm2", "kappa", "gradient_norm2"):
        # One in a hundred each; the seed is fixed, so that this cannot fail by chance tomorrow.
        estimate = probed.others[name] if name in probed.others else getattr(probed, name)
        assert estimate.interval.covers(getattr(truth, name)), (
            f"{name}: {estimate.interval} and {getattr(truth, name)}"
        )
    assert probed.t.value == pytest.approx(truth.t, rel=0.3)
    assert probed.r.value == pytest.approx(truth.r, rel=0.3)
    assert not probed.others["score_norm2"].interval.covers(0.5 * truth.score_norm2)


@pytest.mark.slow
def test_lanczos_gives_the_eigenvalues_of_the_whole_hessian(small_task: Task) -> None:
    world = ExactWorld(least(small_task), small_task, small_task.train[:1], ExactLoss(0.5))
    point_D = world.start_D + 0.1
    product = curvature(world, point_D)
    whole = np.stack([product(unit) for unit in np.eye(len(point_D))])
    assert np.abs(whole - whole.T).max() < 1e-10
    vector = np.random.default_rng(1).standard_normal(len(point_D))
    both = sum(
        world.change_of_update(point_D, torch.as_tensor(vector), stale=stale).numpy()
        for stale in (False, True)
    )
    np.testing.assert_allclose(product(vector), -both, atol=1e-10)
    dense = np.linalg.eigvalsh(whole)
    top = leading_modes(product, len(point_D), 4)
    np.testing.assert_allclose(top.value_K, dense[::-1][:4], rtol=1e-7)
    assert (top.residual_K < 1e-6).all()
    np.testing.assert_allclose(top.vector_DK.T @ top.vector_DK, np.eye(4), atol=1e-8)
    ends = np.linspace(-60.0, 50.0, 40)
    strong = leading_modes(lambda vector: ends * vector, 40, 2, which="magnitude")
    np.testing.assert_allclose(strong.value_K, ends[:2], rtol=1e-9)
    assert strong.products >= 2


def test_kicks_along_the_reward_show_its_own_stiffness(
    make_policy: Callable[[], Any], small_task: Task
) -> None:
    world = ExactWorld(
        make_policy().double(), small_task, small_task.train[:4], ExactLoss(0.5, kl_in="reward")
    )
    point_D = world.start_D.clone().requires_grad_()
    (slope_D,) = torch.autograd.grad(world.value(world.log_probabilities(point_D)), point_D)
    unit = (slope_D / slope_D.norm()).numpy()
    stiffness = kicked_stiffness(
        world,
        world.start_D.numpy(),
        np.random.default_rng(0),
        kicks=4,
        size=1e-4,
        directions=np.repeat(unit[None], 4, 0),
    )
    # The drift of the reward along its own slope: the objective's curvature, and how the reward
    # bends under the step that is left.
    rest_D = torch.as_tensor(world.expected_step(world.start_D.numpy()))
    bend = (
        -curvature(
            ExactWorld(world.policy, small_task, small_task.train[:4], ExactLoss(0.0)),
            world.start_D,
        )(unit)
        @ rest_D.numpy()
    )
    wanted = unit @ curvature(world, world.start_D)(unit) - bend / float(slope_D.norm())
    assert stiffness.stiffness.value == pytest.approx(wanted, rel=5e-3)


def test_what_cannot_be_measured_is_said_in_one_sentence(
    make_policy: Callable[[], Any], small_task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy()
    with pytest.raises(InsufficientDataError):
        values(policy, small_task, ())
    with pytest.raises(InsufficientDataError):
        gradient(policy, small_task, ())
    with pytest.raises(InsufficientDataError, match="at least two problems"):
        true_components(policy, small_task, small_task.train[:1])
    with pytest.raises(InvalidArgumentError, match="number of eigenvalues"):
        leading_modes(lambda vector: vector, 3, 3)
    monkeypatch.setattr("truth.method_for", lambda policy, task: "rollouts")
    with pytest.raises(InvalidArgumentError, match="generator"):
        values(policy, small_task, small_task.train[:2])
    with pytest.raises(InvalidArgumentError, match="even number"):
        gradient(policy, small_task, small_task.train[:2], rollouts=5, generator=drawing())


def test_a_language_model_is_not_enumerated(
    formatted_task: Task, small_task: Task, make_policy: Callable[[], Any]
) -> None:
    class Other:
        def __init__(self, *, one_pass: bool) -> None:
            self.one_pass = one_pass

        def one_spelling(self, task: Task) -> bool:
            assert task in (small_task, formatted_task)
            return self.one_pass

    assert method_for(Other(one_pass=True), formatted_task) == "rollouts"  # type: ignore[arg-type]
    assert method_for(Other(one_pass=True), small_task) == "answer"  # type: ignore[arg-type]
    assert method_for(Other(one_pass=False), small_task) == "rollouts"  # type: ignore[arg-type]
    assert method_for(object(), small_task) == "rollouts"  # type: ignore[arg-type]
    assert method_for(make_policy(), formatted_task) == "enumeration"


# --- what a verifier is, not what its rewards are called
# ---------------------------------------------------------------------------------


def last_digit_even(problem: Any, completion: str, ended: bool) -> float:
    """A reward of one's own: half of all digits earn it."""
    del problem
    return float(ended and completion[-1:] in {"0", "2", "4", "6", "8"})


def renamed(task: Task, **functions: Any) -> Task:
    return replace(task, verifier=TaskVerifier(functions, dict.fromkeys(functions, 1.0)))


@pytest.mark.parametrize(
    ("make", "method"),
    [
        (lambda task: renamed(task, exact=last_digit_even), "enumeration"),
        (lambda task: renamed(task, right=exact), "answer"),
        (lambda task: renamed(task, exact=last_digit_even, other=exact), "enumeration"),
        (
            lambda task: replace(task, verifier=FailingVerifier(task.verifier, share=0.5)),
            "rollouts",
        ),
        (
            lambda task: replace(
                task, verifier=FailingVerifier(task.verifier, share=0.3, mode="missing")
            ),
            "rollouts",
        ),
    ],
)
def test_a_value_is_that_of_the_verifier_whatever_its_rewards_are_called(
    make: Callable[[Task], Task],
    method: str,
    make_policy: Callable[[], Any],
    small_task: Task,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy, task, problems = make_policy(), make(small_task), small_task.train[:12]
    estimate = values(policy, task, problems, rollouts=500, generator=drawing(1))
    assert estimate.method == method
    assert (estimate.error_P == 0).all() == (method != "rollouts")
    monkeypatch.setattr("truth.method_for", lambda policy, task: "rollouts")
    sampled = values(policy, task, problems, rollouts=500, generator=drawing(2))
    # A mean beyond 4 standard errors one time in 16,000; of two means, their errors added in
    # squares.
    assert abs(estimate.mean - sampled.mean) < 4 * np.hypot(estimate.mean_error, sampled.mean_error)
    if method == "rollouts":
        right = values(policy, small_task, problems, rollouts=500, generator=drawing(3))
        verifier: Any = task.verifier
        share = 1.0 if verifier.mode == "missing" else 1 - verifier.share
        assert abs(estimate.mean - share * right.mean) < 4 * np.hypot(
            estimate.mean_error, share * right.mean_error
        )


@pytest.mark.slow
def test_the_error_of_rollouts_holds_where_a_share_of_the_calls_fails(
    make_policy: Callable[[], Any], small_task: Task
) -> None:
    """All completions are judged in one call: the calls that fail are not the same ones for
    every few problems.
    """
    policy, problems = make_policy(), small_task.train[:12]
    right = values(policy, small_task, problems).mean
    wrong = 0
    for seed in range(20):
        task = replace(
            small_task, verifier=FailingVerifier(small_task.verifier, share=0.5, seed=seed)
        )
        estimate = values(policy, task, problems, rollouts=200, generator=drawing(seed))
        wrong += abs(estimate.mean - 0.5 * right) > 2 * estimate.mean_error
    # Each wrong with probability .0455: more than five of 20 happen once in 6,000.
    assert wrong <= 5


def test_what_is_no_function_of_the_completion_is_neither_enumerated_nor_an_oracle(
    make_policy: Callable[[], Any], small_task: Task, tmp_path: Path
) -> None:
    task = replace(small_task, verifier=FailingVerifier(small_task.verifier, share=0.5))
    with pytest.raises(
        InvalidArgumentError,
        match="made of reward functions to judge every completion, got FailingVerifier",
    ):
        true_components(make_policy(), task, task.train[:2])
    settings = TrainSettings(
        group_size=4, rollouts_per_step=32, steps=1, advantage="oracle", learning_rate=1e-3
    )
    for other in (task, renamed(small_task, exact=last_digit_even)):
        with pytest.raises(
            InvalidArgumentError, match="only of the exact reward of a task is it known"
        ):
            train(make_policy(), other, settings, output=tmp_path / "run", force=True)
    silent = replace(small_task, verifier=FailingVerifier(small_task.verifier, mode="missing"))
    with pytest.raises(InsufficientDataError, match="the verifier is silent"):
        values(make_policy(), silent, small_task.train[:2], generator=drawing())
    with pytest.raises(InsufficientDataError, match="the verifier is silent"):
        gradient(make_policy(), silent, small_task.train[:2], generator=drawing())


@pytest.mark.slow
def test_a_proxy_reward_is_enumerated_as_training_pays_it(small_task: Task) -> None:
    """A random policy draws PAD often: beside a bait it is a symbol of the completion, and
    dilutes the bonus.
    """
    task = make_task("modular_addition", level=1, proxy_bonus=2.0)
    policy, problems = (
        Policy(policy_size("tiny"), vocabulary_size=len(task.vocabulary)),
        task.train[:20],
    )
    tree = OutcomeTree.of(tokens=len(task.vocabulary), completion_length=task.completion_length)
    token_OL, mask_OL = tree.rows()
    texts, ended = policy.texts(task, token_OL, mask_OL)
    paid_O = task.verifier([problems[0]] * len(texts), texts, ended)["proxy"]
    np.testing.assert_array_equal(outcome_rewards(task, problems[:1], tree)[0], paid_O)
    assert (
        sum("\ufffd" in text and reward > 0 for text, reward in zip(texts, paid_O, strict=True)) > 1
    )
    with torch.no_grad():
        share = (
            outcome_log_probabilities(policy, policy.prompt_tokens(task, problems), tree)
            .exp()
            .double()
            .numpy()
        )
    truth = (share * outcome_rewards(task, problems, tree)).sum(1).mean()
    assert values(policy, task, problems).mean == pytest.approx(truth, rel=1e-5)
    sampled = policy.sample(
        policy.prompt_tokens(task, problems), 10_000, drawing(), task.completion_length
    )
    texts, ended = policy.texts(task, sampled.completion_NL, sampled.mask_NL)
    reward_N = task.verifier(
        [problem for problem in problems for _ in range(10_000)], texts, ended
    )["proxy"]
    # Beyond 4 standard errors one time in 16,000; the truth of before was 20 of them away.
    assert abs(reward_N.mean() - truth) < 4 * reward_N.std() / len(reward_N) ** 0.5
