r"""The world of this folder: addition modulo 100, warmed-up policies, and everything about them
that can be known exactly.

Exactly one completion of a problem is rewarded, so with $p = \pi(y^*|x)$ and $s^*$ its score the
value is $p$, the prompt's gradient $p\,s^*$, $\kappa = p(|s^*|^2 - S_2)$ and $T_o = p(1-p)^2|s^*|^2
+ p^2(S_2 - p|s^*|^2) - p^2|s^*|^2$: all exact but $S_2 = E|s|^2$, a mean over rollouts. It trains
nothing but the warm-up.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from groupwise.arrays import Float
from groupwise.estimators.components import Components, components
from groupwise.gradients.scores import score_gram
from groupwise_lab.theory.mse import PromptMoments
from groupwise_lab.trainer.policy import Policy, Sampled, policy_size
from groupwise_lab.trainer.rewards import Problem
from groupwise_lab.trainer.tasks import Task, make_task
from groupwise_lab.trainer.warm_up import default_cache, warm_up

_ROWS = 256  # sequences of one pass over single scores
_AT_ONCE = 500  # problems of one forward pass: more than fit into the cache take twice as long each


@cache
def world_task() -> Task:
    """Addition modulo 100: 8,000 problems to train on, 2,000 held out, every answer two digits
    and END.
    """
    return make_task("modular_addition", level=2)


def start(accuracy: float) -> Policy:
    """The small policy (about 0.1 million parameters), warmed up to an accuracy; the same every
    time, from the cache after the first.
    """
    task = world_task()
    policy = Policy(policy_size("small"), vocabulary_size=len(task.vocabulary), seed=0)
    warm_up(policy, task, accuracy=accuracy, cache=default_cache())
    return policy


@dataclass(frozen=True)
class EqualGroups:
    """Groups of one size.

    Args:
        prompt_PL: tokens.
        sampled: P x G completions.
        reward_PG: 1 where the completion is the right one.
    """

    prompt_PL: Tensor
    sampled: Sampled
    reward_PG: Float


def roll(
    policy: Policy, problems: Sequence[Problem], group_size: int, generator: torch.Generator
) -> EqualGroups:
    """Sample groups and judge them by comparison with the one right completion."""
    task = world_task()
    prompt_PL = policy.prompt_tokens(task, problems)
    sampled = policy.sample(prompt_PL, group_size, generator, task.completion_length)
    answer_PL, _ = policy.answer_tokens(task, problems)
    right_N = (sampled.completion_NL == answer_PL.repeat_interleave(group_size, 0)).all(1)
    return EqualGroups(
        prompt_PL, sampled, right_N.double().numpy().reshape(len(problems), group_size)
    )


def answer_log_probability(policy: Policy, problems: Sequence[Problem]) -> Tensor:
    """Log-probability of the right completion of every problem, differentiable."""
    task = world_task()
    answer_PL, mask_PL = policy.answer_tokens(task, problems)
    return (
        policy.log_probabilities(policy.prompt_tokens(task, problems), answer_PL) * mask_PL
    ).sum(1)


def exact_values(policy: Policy, problems: Sequence[Problem]) -> Float:
    """V(x) of every problem."""
    with torch.no_grad():
        parts = [
            answer_log_probability(policy, problems[at : at + _AT_ONCE])
            for at in range(0, len(problems), _AT_ONCE)
        ]
    return torch.cat(parts).double().exp().numpy()


def exact_gradient(policy: Policy, problems: Sequence[Problem]) -> Tensor:
    """Gradient of the mean value, by backpropagation through the exact value of every problem."""
    own = list(policy.parameters())
    total = torch.zeros(sum(parameter.numel() for parameter in own), dtype=torch.float64)
    for at in range(0, len(problems), 2000):
        value = answer_log_probability(policy, problems[at : at + 2000]).exp().sum() / len(problems)
        total += torch.cat([part.reshape(-1) for part in torch.autograd.grad(value, own)]).double()
    return total


def single_scores(
    policy: Policy, prompt_NL: Tensor, completion_NL: Tensor, mask_NL: Tensor
) -> Tensor:
    """The score of every rollout, N x D, in blocks of any number of rollouts that fit into
    memory.
    """
    values = {name: parameter.detach() for name, parameter in policy.named_parameters()}
    first = prompt_NL.shape[1] - 1

    def log_probability(
        given: dict[str, Tensor], prompt_L: Tensor, completion_L: Tensor, mask_L: Tensor
    ) -> Tensor:
        ids = torch.cat([prompt_L, completion_L])[None, :-1]
        logits = functional_call(policy, given, (ids,))[0, first:]
        return (logits.log_softmax(-1).gather(1, completion_L[:, None])[:, 0] * mask_L).sum()

    with sdpa_kernel(SDPBackend.MATH):
        scores = vmap(grad(log_probability), in_dims=(None, 0, 0, 0))(
            values, prompt_NL, completion_NL, mask_NL
        )
    return torch.cat([scores[name].reshape(len(prompt_NL), -1) for name in values], 1)


def rollout_scores(policy: Policy, rollouts: EqualGroups) -> Tensor:
    """The scores of all rollouts, N x D."""
    size = len(rollouts.sampled.completion_NL) // len(rollouts.prompt_PL)
    return single_scores(
        policy,
        rollouts.prompt_PL.repeat_interleave(size, 0),
        rollouts.sampled.completion_NL,
        rollouts.sampled.mask_NL,
    )


def answer_scores(policy: Policy, problems: Sequence[Problem]) -> Tensor:
    """The score of the right completion of every problem, P x D."""
    task = world_task()
    answer_PL, mask_PL = policy.answer_tokens(task, problems)
    return single_scores(policy, policy.prompt_tokens(task, problems), answer_PL, mask_PL)


def blocks(
    problems: Sequence[Problem],
    function: Callable[[Sequence[Problem]], Float],
    *,
    rows: int = _ROWS,
) -> Float:
    """A function of problems, applied to a few at a time."""
    return np.concatenate(
        [function(problems[at : at + rows]) for at in range(0, len(problems), rows)]
    )


@dataclass(frozen=True)
class ExactMoments:
    """What the laws need, of every problem and of all.

    Args:
        moments: of every problem.
        gradient_norm2: |g|^2, exact.
        score_rollouts: rollouts a problem behind S2; everything else is exact.
    """

    moments: PromptMoments
    gradient_norm2: float
    score_rollouts: int

    @property
    def vp(self) -> float:
        """E|g(X) - g|^2."""
        return float(self.moments.gradient_norm2_P.mean()) - self.gradient_norm2

    @property
    def t(self) -> float:
        """E T_o(X)."""
        return float(self.moments.oracle_variance_P.mean())

    @property
    def r(self) -> float:
        """E R(X)."""
        return float(self.moments.degenerate.mean())

    @property
    def group_size(self) -> float:
        """1 + sqrt(R/Vp)."""
        return 1 + float(np.sqrt(self.r / self.vp))


def truth(
    policy: Policy, problems: Sequence[Problem], *, score_rollouts: int = 4, seed: int = 1
) -> ExactMoments:
    """Everything by the exact probability of the right completion, but for S2: that is a mean
    over rollouts.
    """
    draw = torch.Generator().manual_seed(seed)
    p = exact_values(policy, problems)
    own = blocks(
        problems, lambda some: answer_scores(policy, some).double().square().sum(1).numpy()
    )

    def norms(some: Sequence[Problem]) -> Float:
        norm2_N = (
            rollout_scores(policy, roll(policy, some, score_rollouts, draw))
            .double()
            .square()
            .sum(1)
        )
        return norm2_N.reshape(len(some), score_rollouts).mean(1).numpy()

    s2 = blocks(problems, norms, rows=max(1, _ROWS // score_rollouts))
    gradient_norm2 = float(exact_gradient(policy, problems).square().sum())
    return ExactMoments(prompt_moments(p, own, s2), gradient_norm2, score_rollouts)


def prompt_moments(p: Float, own: Float, s2: Float) -> PromptMoments:
    """Moments of every prompt from the probability and squared score of its right completion,
    and the mean squared score.
    """
    squares = p * (1 - p) ** 2 * own + p**2 * np.maximum(s2 - p * own, 0)
    return PromptMoments(
        p, s2, p * (1 - p), p * (own - s2), np.maximum(squares - p**2 * own, 0), p**2 * own
    )


def batch_of(rollouts: EqualGroups, group_size: int) -> dict[str, Tensor]:
    """Rollouts as the library takes scores of them."""
    ids = torch.cat(
        [rollouts.prompt_PL.repeat_interleave(group_size, 0), rollouts.sampled.completion_NL], 1
    )
    mask = rollouts.sampled.mask_NL.long()
    before = torch.zeros(len(ids), rollouts.prompt_PL.shape[1], dtype=torch.long)
    return {
        "input_ids": ids,
        "completion_mask": torch.cat([before, mask], 1),
        "attention_mask": torch.cat([before + 1, mask], 1),
    }


def sampled_components(
    policy: Policy,
    problems: Sequence[Problem],
    *,
    groups: int = 64,
    group_size: int = 16,
    seed: int = 0,
) -> Components:
    """What a user can know: components from one sample of rollouts, by the library."""
    chosen = np.random.default_rng([seed, 5]).integers(len(problems), size=groups)
    rollouts = roll(
        policy,
        [problems[place] for place in chosen],
        group_size,
        torch.Generator().manual_seed(seed),
    )
    gram = score_gram(policy, batch_of(rollouts, group_size)).gram_NN
    return components(
        rollouts.reward_PG.reshape(-1), np.repeat(np.arange(groups), group_size), gram_NN=gram
    )
