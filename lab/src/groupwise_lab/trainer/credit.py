"""From rewards to advantages: the library's own, with what they need besides rewards, and a memory
where they have one.

Rollouts whose verifier gave nothing (NaN) get advantage 0 and leave their group's statistics. No
gradient is taken here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise.arrays import Columns, Float, Whole
from groupwise.errors import InvalidArgumentError
from groupwise.parsing import JsonObject
from groupwise.plain import frozen
from groupwise_lab.trainer.advantages import Advantage, advantage_by_name
from groupwise_lab.trainer.baselines import DynamicBaseline, KernelBaseline, RunningBaseline
from groupwise_lab.trainer.presets import AdvantageSpec
from groupwise_lab.trainer.several_rewards import several_advantages
from groupwise_lab.trainer.worker import UserReward

if TYPE_CHECKING:
    from torch import Tensor

    from groupwise_lab.trainer.policy import Actor, Sampled
    from groupwise_lab.trainer.rewards import Problem, Rewards
    from groupwise_lab.trainer.tasks import Task

_MEMORIES: dict[str, type[DynamicBaseline]] = {
    "running": RunningBaseline,
    "kernel_smoothed": KernelBaseline,
}


@frozen
class GradedRollouts:
    """Rollouts of one update with what the verifier said."""

    problems: Sequence[Problem]  # P of them, one a group
    problem_P: Whole  # their numbers among the training problems
    number: int  # of the batch, from 1
    sampled: Sampled  # P x G completions
    text_N: Sequence[str]  # as texts
    ended_N: Sequence[bool]  # whether each ended by itself
    reward_N: Float  # that is trained on; NaN where there is none
    part_N: Columns  # every reward by name
    weights: Mapping[str, float]  # of each part


def rewards_of(
    actor: Actor, task: Task, problems: Sequence[Problem], sampled: Sampled, *, step: int = 0
) -> tuple[list[str], list[bool], Rewards]:
    """Return completions as texts, whether each ended by itself, and what the verifier says of
    them.
    """
    texts, ended = actor.texts(task, sampled.completion_NL, sampled.mask_NL)
    repeated = [problem for problem in problems for _ in range(len(texts) // len(problems))]
    if not isinstance(task.verifier, UserReward):
        return texts, ended, task.verifier(repeated, texts, ended, step=step)
    lengths = sampled.mask_NL.sum(1).long().tolist()
    ids = [
        row[:length] for row, length in zip(sampled.completion_NL.tolist(), lengths, strict=True)
    ]
    return texts, ended, task.verifier(repeated, texts, ended, step=step, completion_ids=ids)


Ingredients = Callable[["Actor", "Task", GradedRollouts], Mapping[str, Float]]
"""What an advantage needs besides rewards: `value`, `kappa` one a prompt, `score_norm2` one a
rollout.
"""


def advantage_of(name: str) -> Advantage | AdvantageSpec:
    """Return the advantage of a name, or the preset of FRAMEWORK/ESTIMATOR[/VERSION]."""
    if "/" not in name:
        return advantage_by_name(name)
    from groupwise_lab.trainer.presets import preset

    framework, estimator, *version = name.split("/", 2)
    return preset(framework, estimator=estimator, version=version[0] if version else None)


class Credit:
    """Advantages of the batches of one run, in their order."""

    def __init__(
        self,
        advantage: Advantage | AdvantageSpec,
        actor: Actor,
        task: Task,
        *,
        value: float | None = None,
        ingredients: Ingredients | None = None,
    ) -> None:
        self.advantage, self._actor, self._task = advantage, actor, task
        self._value, self._ingredients = value, ingredients
        self.history: list[tuple[Whole, Float, int]] = []
        memory = _MEMORIES.get(advantage.name) if isinstance(advantage, Advantage) else None
        self._memory = None if memory is None else memory()
        if isinstance(advantage, Advantage) and advantage.name == "constant" and value is None:
            raise InvalidArgumentError(
                "expected the value of the advantage constant, got none: name it, in reward units"
            )
        if isinstance(advantage, Advantage) and "kappa" in advantage.needs and ingredients is None:
            raise InvalidArgumentError(
                f"expected ingredients for the advantage {advantage.name}, got none: it needs "
                f"{', '.join(advantage.needs)}; use oracle or weighted_leave_one_out, or call "
                "groupwise_lab.trainer.grpo.train with a function that gives them"
            )

    def advantages(self, judged: GradedRollouts) -> Float:
        """Return the advantage of every rollout; a memory takes the rewards in afterwards."""
        groups = len(judged.problems)
        reward_PG = judged.reward_N.reshape(groups, -1)
        if isinstance(self.advantage, AdvantageSpec):
            return self._by_spec(self.advantage, judged)
        if np.isfinite(reward_PG).all():
            advantage_N = self._by_entry(self.advantage, judged, reward_PG)
        else:
            advantage_N = self._without_missing(self.advantage, judged)
        if self._memory is not None:
            self.remember(judged.problem_P, reward_PG, judged.number)
        return advantage_N

    def remember(self, problem_P: Whole, reward_PG: Float, number: int) -> None:
        """Take in the rewards of a batch, or what had been taken in, when a run goes on."""
        assert self._memory is not None
        self._memory.update(reward_PG, problem_P, step=number)
        self.history.append((problem_P, reward_PG, number))

    def _by_spec(self, spec: AdvantageSpec, judged: GradedRollouts) -> Float:
        """What a framework would give, in its own single precision."""
        import torch

        label_N = np.repeat(
            np.arange(len(judged.problems)), len(judged.reward_N) // len(judged.problems)
        )
        mask_NL = judged.sampled.mask_NL.cpu() if spec.needs_mask else None
        weights = {name: weight for name, weight in judged.weights.items() if weight}
        if spec.several == "standardise_first" and len(weights) > 1:
            parts = torch.tensor(
                np.stack([judged.part_N[name] for name in weights]), dtype=torch.float32
            )
            advantage_N = several_advantages(
                spec, parts, list(weights.values()), label_N, mask_NL=mask_NL
            )
        else:
            advantage_N = spec.advantages(
                torch.tensor(judged.reward_N, dtype=torch.float32), label_N, mask_NL=mask_NL
            )
        return np.asarray(advantage_N.double().numpy(), dtype=np.float64)

    def _by_entry(self, entry: Advantage, judged: GradedRollouts, reward_PG: Float) -> Float:
        """The library's advantage of whole groups."""
        labels = judged.problem_P if self._memory is not None else None
        return np.asarray(
            entry.function(reward_PG, labels, **self._needed(entry, judged, reward_PG.shape))
        ).reshape(-1)

    def _without_missing(self, entry: Advantage, judged: GradedRollouts) -> Float:
        """The library's advantage of the rollouts that have a reward, in groups that are large
        enough without the others.
        """
        if entry.needs:
            raise InvalidArgumentError(
                f"expected a reward for every rollout with the advantage {entry.name}, got none "
                f"for some of batch {judged.number}: mend the verifier, or take leave_one_out"
            )
        group_N = np.repeat(
            np.arange(len(judged.problems)), len(judged.reward_N) // len(judged.problems)
        )
        finite = np.isfinite(judged.reward_N)
        usable = finite & (np.bincount(group_N, weights=finite)[group_N] >= entry.smallest_group)
        advantage_N = np.zeros(len(judged.reward_N))
        if usable.any():
            advantage_N[usable] = np.asarray(
                entry.function(judged.reward_N[usable], group_N[usable])
            )
        return advantage_N

    def _needed(
        self, entry: Advantage, judged: GradedRollouts, shape: tuple[int, ...]
    ) -> JsonObject:
        """The keyword arguments of the advantage."""
        if self._memory is not None:
            return {"baseline": self._memory, "step": judged.number}
        if not entry.needs:
            return {}
        if entry.name == "constant":
            return {"value": self._value}
        given = (
            dict(self._ingredients(self._actor, self._task, judged))
            if self._ingredients is not None
            else {}
        )
        for name in entry.needs:
            if name not in given:
                given[name] = (
                    self._value_of(judged) if name == "value" else self._score_norms(judged)
                )
        return {
            name: np.asarray(given[name]).reshape(shape) if name == "score_norm2" else given[name]
            for name in entry.needs
        }

    def _value_of(self, judged: GradedRollouts) -> Float:
        """V(x) of every prompt: the probability of its one right completion, where nothing else
        earns anything.
        """
        import torch

        from groupwise_lab.trainer.policy import answer_weight

        weight = answer_weight(self._actor, self._task)
        if weight is None:
            named = ", ".join(name for name, weight in judged.weights.items() if weight)
            raise InvalidArgumentError(
                f"expected the value of every prompt for rewards {named}, got none: only of the "
                "exact reward of a task is it known here, where the policy can spell an answer in "
                "one way; call groupwise_lab.trainer.grpo.train with a function that gives it"
            )
        prompt_PL = self._actor.prompt_tokens(self._task, judged.problems)
        answer_PL, mask_PL = self._actor.answer_tokens(self._task, judged.problems)
        with torch.no_grad():
            log_P = (self._actor.log_probabilities(prompt_PL, answer_PL) * mask_PL).sum(1)
        return np.asarray(weight * log_P.exp().double().cpu().numpy(), dtype=np.float64)

    def _score_norms(self, judged: GradedRollouts) -> Float:
        """The squared length of every rollout's score."""
        from groupwise.gradients.scores import score_gram

        prompt_PL = self._actor.prompt_tokens(self._task, judged.problems)
        batch = score_batch(
            self._actor, prompt_PL, judged.sampled.completion_NL, judged.sampled.mask_NL
        )
        model: Any = getattr(self._actor, "model", self._actor)
        with gradients_kept(model):
            return np.asarray(np.diag(score_gram(model, batch).gram_NN), dtype=np.float64)


def score_batch(
    actor: Actor, prompt_PL: Tensor, completion_NL: Tensor, mask_NL: Tensor
) -> dict[str, Tensor]:
    """Return completions of every prompt as the batch that `groupwise.gradients` takes."""
    import torch

    before_NL = prompt_PL.repeat_interleave(len(completion_NL) // len(prompt_PL), 0)
    real_NL, sampled_NL = actor.real(before_NL), mask_NL.long()
    return {
        "input_ids": torch.cat(
            [before_NL.clamp(min=0), completion_NL], 1
        ),  # what is no token is masked
        "attention_mask": torch.cat([real_NL, sampled_NL], 1),
        "completion_mask": torch.cat([torch.zeros_like(real_NL), sampled_NL], 1),
    }


@contextmanager
def gradients_kept(model: Any) -> Iterator[None]:
    """Put the gradients of a model back afterwards: they are views of one vector, and those that
    other code leaves behind are not.
    """
    kept = [(parameter, parameter.grad) for parameter in model.parameters()]
    try:
        yield
    finally:
        for parameter, gradient in kept:
            parameter.grad = gradient
