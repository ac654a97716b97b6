r"""What is true of a policy on a task: values, gradient, variance components and curvature, exact wherever they can be.

$V(x) = \sum_y \pi(y|x) z(y)$ takes one pass where only one answer earns anything, the enumeration of all answers where they are short,
and rollouts with their error else. Beside each truth stands the estimate that a run could make. It trains nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from groupwise.arrays import Float
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.estimators.components import Components, components
from groupwise.scores.scores import score_gram
from groupwise.trainer.enumeration import MOST_OUTCOMES, OutcomeTree, outcome_log_probabilities, outcome_rewards
from groupwise.trainer.knowable import answer_weight, is_function
from groupwise.trainer.policy import Actor, Policy, Sampled
from groupwise.trainer.problems import Problem
from groupwise.trainer.rewards import total_reward
from groupwise.trainer.spectrum import Spectrum, curvature, leading_modes
from groupwise.trainer.tasks import Task

__all__ = [
    "FEWEST_ROLLOUTS",
    "Gradient",
    "Method",
    "SampledWorld",
    "Spectrum",
    "TrueComponents",
    "Values",
    "curvature",
    "estimated_components",
    "gradient",
    "leading_modes",
    "method_for",
    "score_batch",
    "true_components",
    "values",
]
Method = Literal["answer", "enumeration", "rollouts"]
FEWEST_ROLLOUTS = 1000
_ROLLOUTS_AT_ONCE = 4096
_OUTCOMES_AT_ONCE = 2_000_000


@dataclass(frozen=True, slots=True)
class Values:
    """The expected reward of every problem."""

    value_P: Float  # reward units
    error_P: Float  # standard error of each; 0 where exact
    method: Method  # answer (one pass), enumeration, or rollouts
    rollouts: int  # of each problem; 0 where exact

    @property
    def mean(self) -> float:
        """Mean over problems."""
        return float(self.value_P.mean())

    @property
    def mean_error(self) -> float:
        """Standard error of the mean, of rollouts alone: the problems are those given."""
        return float(np.sqrt((self.error_P**2).sum()) / len(self.error_P))


def values(
    policy: Actor, task: Task, problems: Sequence[Problem], *, rollouts: int = FEWEST_ROLLOUTS, generator: torch.Generator | None = None
) -> Values:
    """Return V(x) of every problem.

    Source: arXiv 2603.01162 takes 1,000 rollouts; the exact ways are derived here.
    """
    if not problems:
        raise InsufficientDataError("expected at least one problem to measure")
    method = method_for(policy, task)
    if method == "rollouts":
        return _values_by_rollouts(policy, task, problems, rollouts, generator)
    with torch.no_grad():
        parts = [_expected_reward(policy, task, some, method).double().cpu().numpy() for some in _parts(problems, task, method)]
    return Values(np.concatenate(parts), np.zeros(len(problems)), method, 0)


def method_for(policy: Actor, task: Task) -> Method:
    """Return how V(x) can be had: by the one right answer, by enumeration, or by rollouts only."""
    if answer_weight(policy, task) is not None:
        return "answer"
    few = (len(task.vocabulary) - 1) ** task.completion_length <= MOST_OUTCOMES
    return "enumeration" if isinstance(policy, Policy) and few and is_function(task.verifier) else "rollouts"


def _parts(problems: Sequence[Problem], task: Task, method: Method) -> list[Sequence[Problem]]:
    """Problems in parts that fit into memory."""
    size = 2048
    if method == "enumeration":
        size = max(1, _OUTCOMES_AT_ONCE // len(task.vocabulary) ** task.completion_length)
    return [problems[at : at + size] for at in range(0, len(problems), size)]


def _expected_reward(policy: Actor, task: Task, problems: Sequence[Problem], method: Method) -> Tensor:
    """V(x) of every problem, differentiable."""
    prompt_PL = policy.prompt_tokens(task, problems)
    if method == "answer":
        answer_PL, mask_PL = policy.answer_tokens(task, problems)
        return (answer_weight(policy, task) or 0.0) * (policy.log_probabilities(prompt_PL, answer_PL) * mask_PL).sum(1).exp()
    assert isinstance(policy, Policy)
    tree = OutcomeTree.of(tokens=len(task.vocabulary), completion_length=task.completion_length)
    log_PO = outcome_log_probabilities(policy, prompt_PL, tree)
    return (log_PO.exp() * torch.as_tensor(outcome_rewards(task, problems, tree)).to(log_PO)).sum(1)


def _values_by_rollouts(policy: Actor, task: Task, problems: Sequence[Problem], rollouts: int, generator: torch.Generator | None) -> Values:
    """The mean reward of samples."""
    _check_sampling(rollouts, generator)
    assert generator is not None
    size = max(1, _ROLLOUTS_AT_ONCE // rollouts)
    parts = [_sampled(policy, task, problems[at : at + size], rollouts, generator) for at in range(0, len(problems), size)]
    # All in one call: which of a verifier's calls fail may depend on their place in it.
    reward_PG = _rewards(task, problems, [text for part in parts for text in part[2]], [end for part in parts for end in part[3]])
    count_P = np.isfinite(reward_PG).sum(1)
    if count_P.min() < 2:
        raise InsufficientDataError(f"expected at least 2 rewards of every problem, got {count_P.min()}: the verifier is silent; mend it")
    return Values(np.nanmean(reward_PG, 1), np.nanstd(reward_PG, 1, ddof=1) / np.sqrt(count_P), "rollouts", rollouts)


def _check_sampling(rollouts: int, generator: torch.Generator | None) -> None:
    """Refuse what cannot be sampled."""
    if generator is None:
        raise InvalidArgumentError("expected a generator: this task's answers are too many to enumerate, so that rollouts are drawn")
    if rollouts < 2:
        raise InvalidArgumentError(f"expected at least 2 rollouts of every problem, got {rollouts}: {FEWEST_ROLLOUTS} are usual")


def _judged(
    policy: Actor, task: Task, problems: Sequence[Problem], rollouts: int, generator: torch.Generator
) -> tuple[Sampled, Float, Tensor]:
    """Samples of every problem, their rewards P x G, and the prompts."""
    sampled, prompt_PL, texts, ended = _sampled(policy, task, problems, rollouts, generator)
    return sampled, _rewards(task, problems, texts, ended), prompt_PL


def _sampled(
    policy: Actor, task: Task, problems: Sequence[Problem], rollouts: int, generator: torch.Generator
) -> tuple[Sampled, Tensor, list[str], list[bool]]:
    """Samples of every problem, the prompts, the samples' texts, and whether each ended."""
    prompt_PL = policy.prompt_tokens(task, problems)
    sampled = policy.sample(prompt_PL, rollouts, generator, task.completion_length)
    return sampled, prompt_PL, *policy.texts(task, sampled.completion_NL, sampled.mask_NL)


def _rewards(task: Task, problems: Sequence[Problem], texts: Sequence[str], ended: Sequence[bool]) -> Float:
    """Rewards P x G, NaN where there is none."""
    repeated = [problem for problem in problems for _ in range(len(texts) // len(problems))]
    return total_reward(task.verifier, task.verifier(repeated, texts, ended)).reshape(len(problems), -1)


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of the mean reward over problems."""

    gradient_D: Float  # in the order of `policy.parameters()`
    error: float  # expected distance from the truth, |estimate - truth| root mean square; 0 where exact
    method: Method  # answer, enumeration or rollouts


def gradient(
    policy: Policy, task: Task, problems: Sequence[Problem], *, rollouts: int = FEWEST_ROLLOUTS, generator: torch.Generator | None = None
) -> Gradient:
    """Return the gradient of the mean of V(x).

    Source: Lemma 1 of arXiv 2603.01162 for rollouts; the exact ways and the error are derived here.
    """
    if not problems:
        raise InsufficientDataError("expected at least one problem to measure")
    method, parameters = method_for(policy, task), list(policy.parameters())
    total_D = torch.zeros(sum(parameter.numel() for parameter in parameters), dtype=torch.float64)
    if method != "rollouts":
        for some in _parts(problems, task, method):
            total_D += _flat(torch.autograd.grad(_expected_reward(policy, task, some, method).sum(), parameters))
        return Gradient(total_D.numpy() / len(problems), 0.0, method)
    _check_sampling(rollouts, generator)
    if rollouts % 2 or rollouts < 4:
        raise InvalidArgumentError(f"expected an even number of at least 4 rollouts, got {rollouts}: two halves give the error")
    assert generator is not None
    halves = [_leave_one_out(policy, task, problems, rollouts // 2, generator) / len(problems) for _ in range(2)]
    return Gradient(((halves[0] + halves[1]) / 2).numpy(), float((halves[0] - halves[1]).norm()) / 2, method)


def _leave_one_out(policy: Policy, task: Task, problems: Sequence[Problem], rollouts: int, generator: torch.Generator) -> Tensor:
    """The sum of all problems' leave-one-out gradients."""
    parameters = list(policy.parameters())
    total_D = torch.zeros(sum(parameter.numel() for parameter in parameters), dtype=torch.float64)
    size = max(1, _ROLLOUTS_AT_ONCE // rollouts)
    for at in range(0, len(problems), size):
        sampled, reward_PG, prompt_PL = _judged(policy, task, problems[at : at + size], rollouts, generator)
        if not np.isfinite(reward_PG).all():
            raise InsufficientDataError("expected a reward for every rollout, got none for some: the verifier is silent; mend it")
        centred = (reward_PG - reward_PG.mean(1, keepdims=True)) / (rollouts - 1)
        log_N = (policy.log_probabilities(prompt_PL, sampled.completion_NL) * sampled.mask_NL).sum(1)
        total_D += _flat(torch.autograd.grad((torch.as_tensor(centred.reshape(-1)).to(log_N) * log_N).sum(), parameters))
    return total_D


def _flat(parts: Sequence[Tensor]) -> Tensor:
    """One vector."""
    return torch.cat([part.detach().double().flatten().cpu() for part in parts])


@dataclass(frozen=True, slots=True)
class TrueComponents:
    r"""Variance components by enumeration, the prompts being drawn from the problems with equal chances."""

    vp: float  # $E|g(X) - g|^2$
    t: float  # $E\,T_o(X)$
    r: float  # $E[S_2\sigma^2 + |g(X)|^2]$
    gradient_norm2: float  # $|g|^2$
    within_gradient_norm2: float  # $E|g(X)|^2$
    score_norm2: float  # $E\,S_2$
    kappa: float  # $E[|s|^2 e]$
    value: float  # mean reward
    problems: int  # how many

    @property
    def best_group_size(self) -> float:
        r"""$1 + \sqrt{R/V_p}$, as a real number."""
        return 1 + math.sqrt(self.r / self.vp) if self.vp > 0 else math.inf


def true_components(policy: Policy, task: Task, problems: Sequence[Problem]) -> TrueComponents:
    r"""Enumerate every outcome's score and return the variance components.

    With $K$ the inner products of the scores of a problem's outcomes: $|g(x)|^2 = (\pi e)^T K (\pi e)$, $S_2 = \sum\pi K_{yy}$,
    $T_o = \sum\pi K_{yy}e^2 - |g(x)|^2$.

    Source: the definitions of arXiv 2603.01162, sections 3 and 4.
    """
    if len(problems) < 2:
        raise InsufficientDataError(f"expected at least two problems, got {len(problems)}: the variance between prompts needs them")
    tree = OutcomeTree.of(tokens=len(task.vocabulary), completion_length=task.completion_length)
    reward_PO = outcome_rewards(task, problems, tree)
    with torch.no_grad():
        share_PO = outcome_log_probabilities(policy, policy.prompt_tokens(task, problems), tree).exp().double().numpy()
    outcome_OL, mask_OL = tree.rows()
    sums = []
    for number, (share, reward) in enumerate(zip(share_PO, reward_PO, strict=True)):
        prompt_PL = policy.prompt_tokens(task, problems[number : number + 1])
        gram = score_gram(policy, score_batch(policy, prompt_PL, outcome_OL, mask_OL)).gram_NN
        error = reward - share @ reward
        norm, pull = np.diag(gram), share * error
        own = float(pull @ gram @ pull)
        score2 = float(share @ norm)
        sums.append(
            [float(share @ (norm * error**2)) - own, score2 * float(share @ error**2) + own, own, score2, float(share @ (norm * error))]
        )
    t, r, within, score2, kappa = np.mean(sums, axis=0).tolist()
    whole_D = np.zeros(sum(parameter.numel() for parameter in policy.parameters()))
    for some in _parts(problems, task, "enumeration"):
        found = torch.autograd.grad(_expected_reward(policy, task, some, "enumeration").sum(), list(policy.parameters()))
        whole_D += _flat(found).numpy() / len(problems)
    norm2 = float(whole_D @ whole_D)
    return TrueComponents(within - norm2, t, r, norm2, within, score2, kappa, float((share_PO * reward_PO).sum(1).mean()), len(problems))


def score_batch(policy: Actor, prompt_PL: Tensor, completion_NL: Tensor, mask_NL: Tensor) -> dict[str, Tensor]:
    """Return the batch that `groupwise.scores.scores` takes."""
    before_NL = prompt_PL.repeat_interleave(len(completion_NL) // len(prompt_PL), 0)
    real_NL, mask = policy.real(before_NL), mask_NL.long()
    return {
        "input_ids": torch.cat([before_NL.clamp(min=0), completion_NL], 1),  # what is no token is masked
        "attention_mask": torch.cat([real_NL, mask], 1),
        "completion_mask": torch.cat([torch.zeros_like(real_NL), mask], 1),
    }


def estimated_components(
    policy: Policy,
    task: Task,
    problems: Sequence[Problem],
    *,
    prompts: int,
    group_size: int,
    generator: torch.Generator,
    level: float = 0.95,
) -> Components:
    """Return the components as a run would estimate them, from the scores of sampled rollouts."""
    if not problems:
        raise InsufficientDataError("expected at least one problem to measure")
    drawn = [problems[place] for place in torch.randint(len(problems), (prompts,), generator=generator).tolist()]
    sampled, reward_PG, prompt_PL = _judged(policy, task, drawn, group_size, generator)
    gram = score_gram(policy, score_batch(policy, prompt_PL, sampled.completion_NL, sampled.mask_NL)).gram_NN
    return components(reward_PG.reshape(-1), np.repeat(np.arange(prompts), group_size), gram_NN=gram, level=level)


class SampledWorld:
    """A policy on a task too large to enumerate, as a function of its flat parameters: averages of rollouts.

    It follows the protocol of `groupwise.theory.stiffness`: `mean_reward` and `expected_step`, both with sampling noise, and no KL term.
    """

    def __init__(self, policy: Policy, task: Task, problems: Sequence[Problem], *, rollouts: int, generator: torch.Generator) -> None:
        _check_sampling(rollouts, generator)
        self.policy, self.task, self.problems = policy, task, problems
        self.rollouts, self.generator = rollouts, generator

    def mean_reward(self, parameter_D: Float) -> float:
        """The mean reward, by rollouts only where it is not exact."""
        self._stand_at(parameter_D)
        return values(self.policy, self.task, self.problems, rollouts=self.rollouts, generator=self.generator).mean

    def expected_step(self, parameter_D: Float) -> Float:
        """The mean leave-one-out gradient."""
        self._stand_at(parameter_D)
        total_D = _leave_one_out(self.policy, self.task, self.problems, self.rollouts, self.generator)
        return np.asarray((total_D / len(self.problems)).numpy())

    def _stand_at(self, parameter_D: Float) -> None:
        """Put the parameters there."""
        whole = torch.as_tensor(parameter_D).to(next(self.policy.parameters()))
        with torch.no_grad():
            torch.nn.utils.vector_to_parameters(whole, self.policy.parameters())
