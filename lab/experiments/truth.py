r"""What is true of a policy on a task: values, gradient, expected updates, variance components and
curvature, exact wherever they can be.

$V(x) = \sum_y \pi(y|x) z(y)$ takes one pass where only one answer earns anything, the enumeration
of all answers where they are short, and rollouts with their error else. The outcomes of a prompt
are all strings of tokens that END closes within `completion_length` tokens, and all that it does
not; a `Policy` reads all of them behind their prompt in one row, as branches of a tree. It trains
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel

from groupwise.arrays import Float, Whole
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.gradients.scores import score_gram
from groupwise_lab.trainer.credit import score_batch
from groupwise_lab.trainer.policy import (
    Actor,
    Policy,
    Sampled,
    answer_weight,
    causal,
    positions_of,
    task_texts,
)
from groupwise_lab.trainer.rewards import Problem, is_function, total_reward
from groupwise_lab.trainer.tasks import END, PAD, Task

Logits = Callable[[Tensor, Tensor], Tensor]
"""A policy: tokens and attention mask, both N x L, to logits N x L x tokens."""

MOST_OUTCOMES = 200_000
_TOKENS_AT_ONCE = 60_000
# tokens of a prompt and all branches: beyond, attention among them costs more than reading the
# prompt again
_LONGEST_ROW = 800


@dataclass(frozen=True, slots=True)
class OutcomeTree:
    """All outcomes of one prompt, the same for every prompt."""

    prefix_JL: Whole  # longest unfinished prefixes, one token fewer than a completion may have
    tokens: int  # number of tokens of the vocabulary, PAD and END included
    completion_length: int  # most tokens of a completion

    @classmethod
    def of(cls, *, tokens: int, completion_length: int) -> OutcomeTree:
        """List the outcomes."""
        going = tokens - 1
        if completion_length < 1 or going**completion_length > MOST_OUTCOMES:
            raise InvalidArgumentError(
                f"expected at most {MOST_OUTCOMES:,} completions to enumerate, got "
                f"{going}^{completion_length}: take a task with shorter answers, or sample"
            )
        open_tokens = np.array([token for token in range(tokens) if token != END])
        depth = completion_length - 1
        prefix = (
            np.stack(np.meshgrid(*[open_tokens] * depth, indexing="ij"), axis=-1).reshape(-1, depth)
            if depth
            else np.zeros((1, 0))
        )
        return cls(prefix.astype(np.int64), tokens, completion_length)

    @property
    def outcomes(self) -> int:
        """How many there are."""
        going = self.tokens - 1
        return sum(int(going**depth) for depth in range(self.completion_length + 1))

    def rows(self) -> tuple[Tensor, Tensor]:
        """Tokens of each outcome as a policy draws them, END included, and 1 for those that were
        drawn.
        """
        length, going = self.completion_length, self.tokens - 1
        token_OL, mask_OL = (
            torch.full((self.outcomes, length), PAD),
            torch.zeros(self.outcomes, length),
        )
        first = 0
        for depth in range(length):
            prefix = torch.as_tensor(self.prefix_JL[:: going ** (length - 1 - depth), :depth])
            last = first + len(prefix)
            (
                token_OL[first:last, :depth],
                token_OL[first:last, depth],
                mask_OL[first:last, : depth + 1],
            ) = prefix, END, 1
            first = last
        tails = torch.tensor([token for token in range(self.tokens) if token != END])
        token_OL[first:, :-1] = torch.as_tensor(self.prefix_JL).repeat_interleave(going, 0)
        token_OL[first:, -1], mask_OL[first:] = tails.repeat(len(self.prefix_JL)), 1
        return token_OL, mask_OL

    @property
    def branches(self) -> int:
        """How many unfinished prefixes there are, the empty one not counted."""
        return sum(int((self.tokens - 1) ** depth) for depth in range(1, self.completion_length))


def outcome_log_probabilities(policy: Logits, prompt_PL: Tensor, tree: OutcomeTree) -> Tensor:
    """Log-probability of every outcome, differentiable in the policy's parameters.

    Source: the chain rule; derived here.
    """
    if isinstance(policy, Policy):
        policy = Branches(policy)
    if isinstance(policy, Branches) and prompt_PL.shape[1] + tree.branches <= _LONGEST_ROW:
        logits_PMV = policy.of_tree(prompt_PL, tree)
    else:
        logits_PMV = _one_by_one(policy, prompt_PL, tree)
    return _along_branches(logits_PMV.log_softmax(-1), tree)


def _one_by_one(policy: Logits, prompt_PL: Tensor, tree: OutcomeTree) -> Tensor:
    """Logits behind every unfinished prefix, each longest one read in a row of its own."""
    prompts, length = prompt_PL.shape
    prefix = torch.as_tensor(tree.prefix_JL, device=prompt_PL.device)
    count, depth = prefix.shape
    ids = torch.cat([prompt_PL.repeat_interleave(count, 0), prefix.repeat(prompts, 1)], dim=1)
    # PAD within a completion is a token like any other; on the left of the prompt it is none.
    real = (prompt_PL != PAD).cumsum(1) > 0
    mask = torch.cat(
        [
            real.repeat_interleave(count, 0),
            torch.ones_like(prefix, dtype=torch.bool).repeat(prompts, 1),
        ],
        dim=1,
    )
    rows = max(1, _TOKENS_AT_ONCE // ids.shape[1])
    parts = [
        policy(ids[at : at + rows], mask[at : at + rows])[:, length - 1 :]
        for at in range(0, len(ids), rows)
    ]
    step_PJLV = torch.cat(parts).reshape(prompts, count, depth + 1, tree.tokens)
    going = tree.tokens - 1
    return torch.cat([step_PJLV[:, :: going ** (depth - at), at] for at in range(depth + 1)], dim=1)


class Branches(nn.Module):
    """A policy that reads a prompt with all unfinished prefixes of a tree behind it in one row."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits of plain rows."""
        logits: Tensor = self.policy(input_ids, attention_mask)
        return logits

    def of_tree(self, prompt_PL: Tensor, tree: OutcomeTree) -> Tensor:
        """Logits behind the prompt and behind every unfinished prefix, by depth, P x (1 +
        branches) x tokens.
        """
        policy, length = self.policy, prompt_PL.shape[1]
        if length + tree.completion_length - 1 > policy.context:
            raise InvalidArgumentError(
                f"expected prompt and completion within the policy's context of {policy.context} "
                f"tokens, got {length} and {tree.completion_length}: make a policy with a longer "
                "context"
            )
        last, depth, above = _branch_layout(tree.tokens, tree.completion_length, prompt_PL.device)
        real = (prompt_PL != PAD).cumsum(1) > 0
        if bool(real.all()):
            real = real[:1]
        ids = torch.cat([prompt_PL, last.expand(len(prompt_PL), -1)], dim=1)
        place = torch.cat([positions_of(real), real.sum(1, keepdim=True) + depth - 1], dim=1)
        allowed = torch.zeros(
            len(real), 1, ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device
        )
        allowed[:, :, :length, :length] = causal(length, ids.device)
        allowed[:, :, length:, :length] = True
        allowed[:, :, length:, length:] = above
        allowed[..., :length] &= real[:, None, None, :] | torch.eye(
            ids.shape[1], length, dtype=torch.bool, device=ids.device
        )
        hidden = policy.token(ids) + policy.position(place)
        for number, block in enumerate(policy.blocks):
            hidden, _ = block(
                hidden, allowed, None, first=length - 1 if number == len(policy.blocks) - 1 else 0
            )
        logits: Tensor = policy.head(policy.norm(hidden))
        return logits


@lru_cache(maxsize=8)
def _branch_layout(
    tokens: int, completion_length: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Last token and depth of every unfinished prefix but the empty one, shortest first, and
    which prefix begins which.
    """
    going = tokens - 1
    open_tokens = torch.tensor([token for token in range(tokens) if token != END], device=device)
    size = [going**depth for depth in range(1, completion_length)]
    last = torch.cat([open_tokens.repeat(count // going) for count in size] or [open_tokens[:0]])
    depth = torch.repeat_interleave(
        torch.arange(1, completion_length, device=device),
        torch.tensor(size, dtype=torch.long, device=device),
    )
    number = torch.cat([torch.arange(count, device=device) for count in size] or [open_tokens[:0]])
    # A prefix's number at its depth, written in base `going`, begins with the number of every
    # prefix it begins with.
    deeper = (depth[:, None] - depth[None, :]).clamp(min=0)
    above = (depth[:, None] >= depth[None, :]) & (
        number[:, None] // going**deeper == number[None, :]
    )
    return last, depth, above


def _along_branches(step_PMV: Tensor, tree: OutcomeTree) -> Tensor:
    """Sum the steps of every outcome."""
    prompts, going = len(step_PMV), tree.tokens - 1
    so_far, first, sums = step_PMV.new_zeros(prompts, 1), 0, []
    for depth in range(tree.completion_length):
        step_PJV = step_PMV[:, first : first + going**depth]
        first += going**depth
        sums.append(so_far + step_PJV[..., END])
        # Slices: picking by a list of places has a slow derivative.
        onward_PJV = torch.cat([step_PJV[..., :END], step_PJV[..., END + 1 :]], dim=-1)
        so_far = (so_far.unsqueeze(-1) + onward_PJV).reshape(prompts, -1)
    return torch.cat([*sums, so_far], dim=1)


def outcome_rewards(task: Task, problems: Sequence[Problem], tree: OutcomeTree) -> Float:
    """Reward of every outcome of every problem, by the task's own verifier."""
    if not is_function(task.verifier):
        raise InvalidArgumentError(
            "expected a verifier made of reward functions to judge every completion, got "
            f"{type(task.verifier).__name__}: make it a TaskVerifier, or sample"
        )
    text, ended = task_texts(task, *tree.rows())  # as a verifier sees them in training
    reward = np.zeros((len(problems), len(text)))
    for place, problem in enumerate(problems):
        reward[place] = total_reward(
            task.verifier, task.verifier([problem] * len(text), text, ended)
        )
    return reward


Ratio = Literal["none", "exact", "clipped"]


@dataclass(frozen=True, slots=True)
class ExactLoss:
    """What the loss does with the lag."""

    kl_weight: float  # beta of the KL term to the reference
    kl_in: Literal["loss", "reward"] = (
        "loss"  # loss (of the current policy) or reward (of the policy that sampled)
    )
    ratio: Ratio = "none"  # none, exact or clipped importance ratio of the whole completion
    clip: float = 0.2  # of the clipped ratio
    # advantages are divided by the deviation of their prompt's reward plus this, in the limit of
    # large groups; None: not at all
    std_eps: float | None = None


class ExactWorld:
    """A policy on a small task, as a function of its flat parameters.

    It follows the protocol of `groupwise_lab.theory.stiffness`: `mean_reward` and `expected_step`.
    """

    def __init__(
        self, policy: nn.Module, task: Task, problems: tuple[Problem, ...], loss: ExactLoss
    ) -> None:
        self.policy, self.loss = policy, loss
        self.tree = OutcomeTree.of(
            tokens=len(task.vocabulary), completion_length=task.completion_length
        )
        self.outcomes = _Outcomes(policy, self.tree)
        self.shapes = {name: value.shape for name, value in self.outcomes.named_parameters()}
        self.start_D = torch.cat([value.detach().flatten() for value in policy.parameters()])
        self.prompt_PL = torch.as_tensor(task.prompt_tokens(problems))
        self.reward_PO = torch.as_tensor(
            outcome_rewards(task, problems, self.tree), dtype=self.start_D.dtype
        )
        with torch.no_grad():
            self.reference_PO = self.log_probabilities(self.start_D)

    def log_probabilities(self, parameter_D: Tensor) -> Tensor:
        """Return the log-probability of every outcome of every prompt, differentiable."""
        sizes = [shape.numel() for shape in self.shapes.values()]
        parts = torch.split(parameter_D, sizes)
        values = {
            name: part.view(shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }
        outcome_PO: Tensor = functional_call(self.outcomes, values, (self.prompt_PL,))
        return outcome_PO

    def value(self, log_probability_PO: Tensor) -> Tensor:
        """Return the mean reward."""
        return (log_probability_PO.exp() * self.reward_PO).sum(1).mean()

    def divergence(self, log_probability_PO: Tensor) -> Tensor:
        """Return the KL divergence from the reference."""
        return (log_probability_PO.exp() * (log_probability_PO - self.reference_PO)).sum(1).mean()

    def objective(self, parameter_D: Tensor) -> Tensor:
        """Return the mean reward minus the weighted KL: what the expected update on policy
        ascends, but for division by a deviation.
        """
        log_probability_PO = self.log_probabilities(parameter_D)
        return self.value(log_probability_PO) - self.loss.kl_weight * self.divergence(
            log_probability_PO
        )

    def surrogate(self, now_PO: Tensor, sampled_PO: Tensor) -> Tensor:
        r"""The loss whose gradient in the present policy is the expected update, with outcomes
        drawn by another one.
        """
        advantage = self._advantage(sampled_PO)
        share = sampled_PO.exp()
        if self.loss.ratio == "none":
            gain = share * advantage * now_PO
        else:
            ratio = (now_PO - sampled_PO).exp()
            gain = share * advantage * ratio
            if self.loss.ratio == "clipped":
                gain = torch.minimum(
                    gain, share * advantage * ratio.clamp(1 - self.loss.clip, 1 + self.loss.clip)
                )
        current = (
            self.loss.kl_weight * self.divergence(now_PO) if self.loss.kl_in == "loss" else 0.0
        )
        return gain.sum(1).mean() - current

    def _advantage(self, sampled_PO: Tensor) -> Tensor:
        """Reward minus its mean under the policy that sampled: leave-one-out in expectation."""
        reward = self.reward_PO
        if self.loss.kl_in == "reward":
            reward = reward - self.loss.kl_weight * (sampled_PO - self.reference_PO)
        share = sampled_PO.exp()
        centred = reward - (share * reward).sum(1, keepdim=True)
        if self.loss.std_eps is None:
            return centred
        return centred / ((share * centred**2).sum(1, keepdim=True).sqrt() + self.loss.std_eps)

    def update(self, now_D: Tensor, sampled_PO: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The expected update, divided by the learning rate."""
        parameter = now_D.detach().requires_grad_()
        now_PO = self.log_probabilities(parameter)
        (gradient,) = torch.autograd.grad(
            self.surrogate(now_PO, now_PO.detach() if sampled_PO is None else sampled_PO), parameter
        )
        return gradient, now_PO.detach()

    def mean_reward(self, parameter_D: Float) -> float:
        """The mean reward, exact."""
        with torch.no_grad():
            return float(
                self.value(
                    self.log_probabilities(torch.as_tensor(parameter_D, dtype=self.start_D.dtype))
                )
            )

    def expected_step(self, parameter_D: Float) -> Float:
        """The expected update on policy, divided by the learning rate."""
        return np.asarray(
            self.update(torch.as_tensor(parameter_D, dtype=self.start_D.dtype))[0].double().numpy()
        )

    def change_of_update(self, now_D: Tensor, direction_D: Tensor, *, stale: bool) -> Tensor:
        """How the expected update changes as the present policy moves, or as the sampling one
        does; an exact Jacobian product.
        """
        now = now_D.detach().requires_grad_()
        sampled = now_D.detach().requires_grad_()
        with twice_differentiable():
            now_PO, sampled_PO = self.log_probabilities(now), self.log_probabilities(sampled)
            (gradient,) = torch.autograd.grad(
                self.surrogate(now_PO, sampled_PO), now, create_graph=True
            )
            # The Jacobian times a vector by the trick of two transposed products.
            dummy = torch.zeros_like(gradient, requires_grad=True)
            (pulled,) = torch.autograd.grad(
                gradient, sampled if stale else now, dummy, create_graph=True
            )
            (pushed,) = torch.autograd.grad(pulled, dummy, direction_D)
        return pushed.detach()


class _Outcomes(nn.Module):
    """The log-probabilities of all outcomes as the output of a module, as `functional_call`
    wants it.
    """

    def __init__(self, policy: nn.Module, tree: OutcomeTree) -> None:
        super().__init__()
        self.policy, self.tree = Branches(policy) if isinstance(policy, Policy) else policy, tree

    def forward(self, prompt_PL: Tensor) -> Tensor:
        """P x O."""
        return outcome_log_probabilities(self.policy, prompt_PL, self.tree)


@contextmanager
def twice_differentiable() -> Iterator[None]:
    """Attention that has second derivatives."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


@dataclass(frozen=True, slots=True)
class Spectrum:
    """Leading eigenvalues of a symmetric matrix that is known by its products."""

    value_K: Float  # largest first
    vector_DK: Float  # orthonormal
    residual_K: Float  # $|Av - wv|$: an eigenvalue of the matrix lies within that of each value
    products: int  # how many products with the matrix it took


def leading_modes(
    product: Callable[[Float], Float],
    size: int,
    count: int,
    *,
    which: Literal["largest", "magnitude"] = "largest",
    tolerance: float = 1e-8,
) -> Spectrum:
    """Return the leading eigenvalues of a symmetric matrix by Lanczos (ARPACK, through SciPy).

    Source: Lehoucq, Sorensen, Yang (1998), ARPACK Users' Guide.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    if not 0 < count < size:
        raise InvalidArgumentError(
            f"expected a number of eigenvalues between 1 and {size - 1}, got {count}"
        )
    made = 0

    def counted(vector: Any) -> Float:
        nonlocal made
        made += 1
        return product(np.array(vector, dtype=np.float64).ravel())

    operator = LinearOperator((size, size), matvec=counted, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(
        size
    )  # the same start gives the same signs of the vectors
    eigenvalue_K, vectors = eigsh(
        operator, k=count, which="LA" if which == "largest" else "LM", tol=tolerance, v0=start
    )
    order = np.argsort(-eigenvalue_K if which == "largest" else -np.abs(eigenvalue_K))
    value_K, vector_DK = eigenvalue_K[order], vectors[:, order]
    images = np.stack([product(column) for column in vector_DK.T], axis=1)
    return Spectrum(value_K, vector_DK, np.linalg.norm(images - vector_DK * value_K, axis=0), made)


def curvature(world: ExactWorld, parameter_D: Tensor) -> Callable[[Float], Float]:
    """Return products with minus the Hessian of the regularised objective, whose eigenvalues are
    stiffnesses at its maximum.
    """
    import torch

    def product(vector: Float) -> Float:
        point_D = parameter_D.detach().clone().requires_grad_()
        with twice_differentiable():
            (slope_D,) = torch.autograd.grad(world.objective(point_D), point_D, create_graph=True)
            (found_D,) = torch.autograd.grad(slope_D @ torch.as_tensor(vector).to(slope_D), point_D)
        return -np.asarray(found_D.double().numpy())

    return product


ValueMethod = Literal["answer", "enumeration", "rollouts"]
FEWEST_ROLLOUTS = 1000
_ROLLOUTS_AT_ONCE = 4096
_OUTCOMES_AT_ONCE = 2_000_000


@dataclass(frozen=True, slots=True)
class ExpectedRewards:
    """The expected reward of every problem."""

    value_P: Float  # reward units
    error_P: Float  # standard error of each; 0 where exact
    method: ValueMethod  # answer (one pass), enumeration, or rollouts
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
    policy: Actor,
    task: Task,
    problems: Sequence[Problem],
    *,
    rollouts: int = FEWEST_ROLLOUTS,
    generator: torch.Generator | None = None,
) -> ExpectedRewards:
    """Return V(x) of every problem.

    Source: arXiv 2603.01162 takes 1,000 rollouts; the exact ways are derived here.
    """
    if not problems:
        raise InsufficientDataError("expected at least one problem to measure")
    method = method_for(policy, task)
    if method == "rollouts":
        return _values_by_rollouts(policy, task, problems, rollouts, generator)
    with torch.no_grad():
        parts = [
            _expected_reward(policy, task, some, method).double().cpu().numpy()
            for some in _parts(problems, task, method)
        ]
    return ExpectedRewards(np.concatenate(parts), np.zeros(len(problems)), method, 0)


def method_for(policy: Actor, task: Task) -> ValueMethod:
    """Return how V(x) can be had: by the one right answer, by enumeration, or by rollouts only."""
    if answer_weight(policy, task) is not None:
        return "answer"
    few = (len(task.vocabulary) - 1) ** task.completion_length <= MOST_OUTCOMES
    return (
        "enumeration"
        if isinstance(policy, Policy) and few and is_function(task.verifier)
        else "rollouts"
    )


def _parts(problems: Sequence[Problem], task: Task, method: ValueMethod) -> list[Sequence[Problem]]:
    """Problems in parts that fit into memory."""
    size = 2048
    if method == "enumeration":
        size = max(1, _OUTCOMES_AT_ONCE // len(task.vocabulary) ** task.completion_length)
    return [problems[at : at + size] for at in range(0, len(problems), size)]


def _expected_reward(
    policy: Actor, task: Task, problems: Sequence[Problem], method: ValueMethod
) -> Tensor:
    """V(x) of every problem, differentiable."""
    prompt_PL = policy.prompt_tokens(task, problems)
    if method == "answer":
        answer_PL, mask_PL = policy.answer_tokens(task, problems)
        return (answer_weight(policy, task) or 0.0) * (
            policy.log_probabilities(prompt_PL, answer_PL) * mask_PL
        ).sum(1).exp()
    assert isinstance(policy, Policy)
    tree = OutcomeTree.of(tokens=len(task.vocabulary), completion_length=task.completion_length)
    log_PO = outcome_log_probabilities(policy, prompt_PL, tree)
    return (log_PO.exp() * torch.as_tensor(outcome_rewards(task, problems, tree)).to(log_PO)).sum(1)


def _values_by_rollouts(
    policy: Actor,
    task: Task,
    problems: Sequence[Problem],
    rollouts: int,
    generator: torch.Generator | None,
) -> ExpectedRewards:
    """The mean reward of samples."""
    _check_sampling(rollouts, generator)
    assert generator is not None
    size = max(1, _ROLLOUTS_AT_ONCE // rollouts)
    parts = [
        _sampled(policy, task, problems[at : at + size], rollouts, generator)
        for at in range(0, len(problems), size)
    ]
    # All in one call: which of a verifier's calls fail may depend on their place in it.
    reward_PG = _rewards(
        task,
        problems,
        [text for part in parts for text in part[2]],
        [end for part in parts for end in part[3]],
    )
    count_P = np.isfinite(reward_PG).sum(1)
    if count_P.min() < 2:
        raise InsufficientDataError(
            f"expected at least 2 rewards of every problem, got {count_P.min()}: the verifier is "
            "silent; mend it"
        )
    return ExpectedRewards(
        np.nanmean(reward_PG, 1),
        np.nanstd(reward_PG, 1, ddof=1) / np.sqrt(count_P),
        "rollouts",
        rollouts,
    )


def _check_sampling(rollouts: int, generator: torch.Generator | None) -> None:
    """Refuse what cannot be sampled."""
    if generator is None:
        raise InvalidArgumentError(
            "expected a generator: this task's answers are too many to enumerate, so that rollouts "
            "are drawn"
        )
    if rollouts < 2:
        raise InvalidArgumentError(
            f"expected at least 2 rollouts of every problem, got {rollouts}: {FEWEST_ROLLOUTS} are "
            "usual"
        )


def _judged(
    policy: Actor,
    task: Task,
    problems: Sequence[Problem],
    rollouts: int,
    generator: torch.Generator,
) -> tuple[Sampled, Float, Tensor]:
    """Samples of every problem, their rewards P x G, and the prompts."""
    sampled, prompt_PL, texts, ended = _sampled(policy, task, problems, rollouts, generator)
    return sampled, _rewards(task, problems, texts, ended), prompt_PL


def _sampled(
    policy: Actor,
    task: Task,
    problems: Sequence[Problem],
    rollouts: int,
    generator: torch.Generator,
) -> tuple[Sampled, Tensor, list[str], list[bool]]:
    """Samples of every problem, the prompts, the samples' texts, and whether each ended."""
    prompt_PL = policy.prompt_tokens(task, problems)
    sampled = policy.sample(prompt_PL, rollouts, generator, task.completion_length)
    return sampled, prompt_PL, *policy.texts(task, sampled.completion_NL, sampled.mask_NL)


def _rewards(
    task: Task, problems: Sequence[Problem], texts: Sequence[str], ended: Sequence[bool]
) -> Float:
    """Rewards P x G, NaN where there is none."""
    repeated = [problem for problem in problems for _ in range(len(texts) // len(problems))]
    return total_reward(task.verifier, task.verifier(repeated, texts, ended)).reshape(
        len(problems), -1
    )


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of the mean reward over problems."""

    gradient_D: Float  # in the order of `policy.parameters()`
    # expected distance from the truth, |estimate - truth| root mean square; 0 where exact
    error: float
    method: ValueMethod  # answer, enumeration or rollouts


def gradient(
    policy: Policy,
    task: Task,
    problems: Sequence[Problem],
    *,
    rollouts: int = FEWEST_ROLLOUTS,
    generator: torch.Generator | None = None,
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
            total_D += _flat(
                torch.autograd.grad(_expected_reward(policy, task, some, method).sum(), parameters)
            )
        return Gradient(total_D.numpy() / len(problems), 0.0, method)
    _check_sampling(rollouts, generator)
    if rollouts % 2 or rollouts < 4:
        raise InvalidArgumentError(
            f"expected an even number of at least 4 rollouts, got {rollouts}: two halves give the "
            "error"
        )
    assert generator is not None
    halves = [
        _leave_one_out(policy, task, problems, rollouts // 2, generator) / len(problems)
        for _ in range(2)
    ]
    return Gradient(
        ((halves[0] + halves[1]) / 2).numpy(), float((halves[0] - halves[1]).norm()) / 2, method
    )


def _leave_one_out(
    policy: Policy,
    task: Task,
    problems: Sequence[Problem],
    rollouts: int,
    generator: torch.Generator,
) -> Tensor:
    """The sum of all problems' leave-one-out gradients."""
    parameters = list(policy.parameters())
    total_D = torch.zeros(sum(parameter.numel() for parameter in parameters), dtype=torch.float64)
    size = max(1, _ROLLOUTS_AT_ONCE // rollouts)
    for at in range(0, len(problems), size):
        sampled, reward_PG, prompt_PL = _judged(
            policy, task, problems[at : at + size], rollouts, generator
        )
        if not np.isfinite(reward_PG).all():
            raise InsufficientDataError(
                "expected a reward for every rollout, got none for some: the verifier is silent; "
                "mend it"
            )
        centred = (reward_PG - reward_PG.mean(1, keepdims=True)) / (rollouts - 1)
        log_N = (policy.log_probabilities(prompt_PL, sampled.completion_NL) * sampled.mask_NL).sum(
            1
        )
        total_D += _flat(
            torch.autograd.grad(
                (torch.as_tensor(centred.reshape(-1)).to(log_N) * log_N).sum(), parameters
            )
        )
    return total_D


def _flat(parts: Sequence[Tensor]) -> Tensor:
    """One vector."""
    return torch.cat([part.detach().double().flatten().cpu() for part in parts])


@dataclass(frozen=True, slots=True)
class TrueComponents:
    r"""Variance components by enumeration, the prompts being drawn from the problems with equal
    chances.
    """

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

    With $K$ the inner products of the scores of a problem's outcomes: $|g(x)|^2 = (\pi e)^T K (\pi
    e)$, $S_2 = \sum\pi K_{yy}$, $T_o = \sum\pi K_{yy}e^2 - |g(x)|^2$.

    Source: the definitions of arXiv 2603.01162, sections 3 and 4.
    """
    if len(problems) < 2:
        raise InsufficientDataError(
            f"expected at least two problems, got {len(problems)}: the variance between prompts "
            "needs them"
        )
    tree = OutcomeTree.of(tokens=len(task.vocabulary), completion_length=task.completion_length)
    reward_PO = outcome_rewards(task, problems, tree)
    with torch.no_grad():
        share_PO = (
            outcome_log_probabilities(policy, policy.prompt_tokens(task, problems), tree)
            .exp()
            .double()
            .numpy()
        )
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
            [
                float(share @ (norm * error**2)) - own,
                score2 * float(share @ error**2) + own,
                own,
                score2,
                float(share @ (norm * error)),
            ]
        )
    t, r, within, score2, kappa = np.mean(sums, axis=0).tolist()
    whole_D = np.zeros(sum(parameter.numel() for parameter in policy.parameters()))
    for some in _parts(problems, task, "enumeration"):
        gradients = torch.autograd.grad(
            _expected_reward(policy, task, some, "enumeration").sum(), list(policy.parameters())
        )
        whole_D += _flat(gradients).numpy() / len(problems)
    norm2 = float(whole_D @ whole_D)
    return TrueComponents(
        within - norm2,
        t,
        r,
        norm2,
        within,
        score2,
        kappa,
        float((share_PO * reward_PO).sum(1).mean()),
        len(problems),
    )
