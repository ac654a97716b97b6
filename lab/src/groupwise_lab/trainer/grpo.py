r"""GRPO from top to bottom: sample groups, judge them, weigh every token by its rollout's
advantage, take a step.

The loss of N rollouts is $-\frac1N\sum_n A_n\sum_t f(\rho_{nt})$ with the importance ratio $\rho$
of the present over the sampling policy, and $f$ the identity, PPO's clipping, or the
log-probability itself. What is sampled is drawn from numbers of its own for each batch, so a run
that is resumed goes on bit for bit. Advantages are the library's (`credit`), and what a task
rewards is the task's.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from groupwise.arrays import Whole
from groupwise.errors import InsufficientDataError
from groupwise.intervals import Interval, student_quantile
from groupwise.parsing import JsonObject, JsonView
from groupwise.plain import frozen
from groupwise.record.run import RecordWriter, RunRecord
from groupwise_lab.trainer.adaptive import AdaptiveGroupSize
from groupwise_lab.trainer.credit import (
    Credit,
    GradedRollouts,
    Ingredients,
    advantage_of,
    rewards_of,
)
from groupwise_lab.trainer.folder import NotFiniteError, RunFolder, TrainingStoppedError
from groupwise_lab.trainer.policy import Sampled
from groupwise_lab.trainer.rewards import total_reward
from groupwise_lab.trainer.rows import (
    PATIENCE,
    has_signal,
    meanings,
    refusal,
    rollout_rows,
    silence,
    step_row,
    warning,
)
from groupwise_lab.trainer.settings import TrainSettings

if TYPE_CHECKING:
    from groupwise_lab.trainer.policy import Actor
    from groupwise_lab.trainer.rewards import Problem
    from groupwise_lab.trainer.tasks import Task

_PROMPTS, _TOKENS, _EVALUATION, _EPOCH, _PROBE = 1, 2, 3, 4, 5  # streams of random numbers
# tokens of a completion; a gradient through the many small passes of longer ones costs more than
# reading them again
_ONE_PASS = 5
_PART = 0.1  # of a step, along which its curvature is measured
SAMPLED = ("completion_NL", "mask_NL", "log_probability_NL", "entropy_NL")
_COUNTERS = ("step", "batches", "drawn", "tokens", "idle")
MetricRow = Mapping[str, float | None]


@frozen
class Batch:
    """Rollouts that wait for their update, on the policy's device."""

    judged: GradedRollouts  # problems, completions and rewards
    prompt_PL: Tensor  # tokens of the prompts
    advantage_N: Tensor  # what each rollout's score is multiplied by
    reference_NL: (
        Tensor | None
    )  # log-probabilities under the policy at the start, or None where nothing asks for them
    update: int  # updates that the sampling policy had seen
    present_NL: Tensor | None = (
        # differentiable log-probabilities of the sampling pass, where the next update is on policy
        None
    )


@frozen
class Loss:
    """The loss of some rollouts, and what there is to know of it."""

    value: Tensor  # differentiable; losses of parts of a batch add up to that of the batch
    clipped: float  # weight of the tokens whose ratio the clipping holds, out of `weight_NL`'s sum
    kl: float  # weighted sum of the k3 estimate of the KL divergence, nats; 0 without a reference


def token_weights(mask_NL: Tensor, aggregation: str) -> Tensor:
    """Return what each token's loss is multiplied by in the loss of the batch."""
    if aggregation == "sum":
        return mask_NL / len(mask_NL)
    if aggregation == "sequence_mean":
        return mask_NL / mask_NL.sum(1, keepdim=True) / len(mask_NL)
    return mask_NL / mask_NL.sum()


def policy_loss(
    new_NL: Tensor,
    old_NL: Tensor,
    advantage_N: Tensor,
    mask_NL: Tensor,
    weight_NL: Tensor,
    settings: TrainSettings,
    *,
    reference_NL: Tensor | None = None,
) -> Loss:
    r"""Return the loss of some rollouts.

    $L = -\sum_{nt} w_{nt}\,\min(\rho A_n,\ \mathrm{clip}(\rho, 1-\epsilon, 1+\epsilon') A_n) +
    \beta\,\sum_{nt} w_{nt} k_{nt}$
    """
    advantage = advantage_N[:, None]
    length_N1 = mask_NL.sum(1, keepdim=True).clamp(min=1)
    clipped = 0.0
    if settings.importance_ratio == "none":
        surrogate = new_NL * advantage
    else:
        log_ratio = (new_NL - old_NL) * mask_NL
        if settings.importance_ratio == "sequence":
            log_ratio = log_ratio.sum(1, keepdim=True)
        elif settings.importance_ratio == "sequence_mean":
            log_ratio = log_ratio.sum(1, keepdim=True) / length_N1
        ratio = log_ratio.exp()
        surrogate = ratio * advantage
        if settings.clip is not None:
            high = settings.clip if settings.clip_high is None else settings.clip_high
            held = ratio.clamp(1 - settings.clip, 1 + high) * advantage
            clipped = float((weight_NL * (held < surrogate)).sum())
            surrogate = torch.minimum(surrogate, held)
        if settings.importance_ratio == "sequence":
            surrogate = (
                surrogate / length_N1
            )  # one ratio a rollout: its tokens share it, so that their sum is it
    value = -(weight_NL * surrogate * mask_NL).sum()
    if reference_NL is None:
        return Loss(value, clipped, 0.0)
    behind = (reference_NL - new_NL) * mask_NL
    k3_NL = behind.exp() - behind - 1
    if settings.kl_in == "loss":
        # Weighed by the exact ratio: on rollouts of another policy too the gradient is in
        # expectation that of the KL at the present one.
        ratio_N1 = ((new_NL - old_NL) * mask_NL).sum(1, keepdim=True).detach().exp()
        k2_NL = 0.5 * ratio_N1 * behind.sum(1, keepdim=True) ** 2 / length_N1
        value = (
            value
            + settings.kl_weight
            * (weight_NL * (k3_NL if settings.kl_estimator == "k3" else k2_NL) * mask_NL).sum()
        )
    return Loss(value, clipped, float((weight_NL * k3_NL.detach()).sum()))


def batches_needed(update: int, kind: str, interval: int) -> int:
    """Return how many batches have been sampled when an update begins; each update uses one, oldest
    first.

    The lag of a batch is the updates between its sampling and its use: with "refresh" a block of
    `interval` batches is sampled at once, with "async" the block after the one in use, with "fixed"
    each batch waits `interval` updates.
    """
    if kind in {"none", "fixed"}:
        return update + 1 + (interval if kind == "fixed" else 0)
    return (update // interval + (2 if kind == "async" else 1)) * interval


def train(
    actor: Actor,
    task: Task,
    settings: TrainSettings,
    *,
    output: str | Path | RunFolder,
    resume: bool = False,
    force: bool = False,
    on_step: Callable[[int, MetricRow], bool | None] | None = None,
    ingredients: Ingredients | None = None,
) -> RunRecord:
    """Train a policy and write the run as it goes; where `on_step` returns True, the run ends
    with that step and a checkpoint of it.
    """
    folder = (
        output if isinstance(output, RunFolder) else RunFolder(Path(output), settings, task, actor)
    )
    run = TrainingRun(actor, task, settings, ingredients, folder=folder.home)
    model = getattr(getattr(actor, "size", None), "name", type(actor).__name__)
    config = settings.run_config(model=model, max_completion_length=task.completion_length)
    sentences = meanings(tuple(task.verifier.weights))
    saved, record = folder.open(
        lambda: RecordWriter(folder.home, config=config, meanings=sentences),
        resume=resume,
        force=force,
    )
    with record as writer:
        if saved is not None:
            run.restore(*saved)
        else:
            folder.keep(run.step, *run.state())
        stopping = False
        while run.step < settings.steps and not stopping:
            with folder.whole_steps(run):
                row, rollouts = run.advance()
                folder.confirm()
                writer.append(row, rollouts, sync=False)
            if run.learned and run.idle == PATIENCE:
                warnings.warn(warning(run.step - PATIENCE + 1, row), stacklevel=2)
            stopping = on_step is not None and bool(on_step(run.step, row))
            if run.step % settings.checkpoint_every == 0 or run.step == settings.steps or stopping:
                with folder.whole_steps(run):
                    # a run that is resumed needs the rows of its checkpoint; those behind it are
                    # made again
                    writer.sync()
                    folder.keep(run.step, *run.state())
        with folder.whole_steps(run):
            run.check()
            folder.confirm()
    return RunRecord.load(folder.home)


@frozen
class Kick:
    """What the next step of a run does."""

    curvature: Interval  # times the learning rate
    learning_rate: float
    nats: float  # that completions of prompts which the step has not seen move by, to second order
    gain: float  # of their mean reward, to first order


def step_curvature(
    actor: Actor,
    task: Task,
    settings: TrainSettings,
    folder: RunFolder,
    *,
    kicks: int,
    since: int = 0,
) -> Kick:
    r"""The learning rate times the curvature along the next step of a run:
    $10 s^\top(g(\theta+s/10)-g(\theta))/(-s^\top g(\theta))$ with the step $s$ and the gradient
    $g$ of the loss: of a quadratic, 2 is the edge. Behind the step the same rollouts count by their
    importance ratio, unclipped; nothing of the run changes. The next step is that behind the last
    checkpoint, or, of a change before any, that of the policy as it began at the rate of its step.
    With $d = 10\,\Delta\log\pi$ of another batch behind a tenth of the step the KL is
    $\frac12\overline{d^2}$ and the gain of reward $\overline{A d}$.
    """
    run, saved = TrainingRun(actor, task, settings, None), None if since else folder.saved()
    if saved is not None:
        run.restore(*saved)
    elif not since:
        raise InsufficientDataError(
            f"expected a checkpoint in {folder.home}, got none: train first"
        )
    run.settings = replace(settings, clip=None, clip_high=None)
    batches = [run._sampled_batch(run.batches + 1 + number) for number in range(kicks)]
    unseen = run._sampled_batch(run.batches + 1 + kicks)
    point_D, before = run.flat.value_D.clone(), [run.gradient_of(batch) for batch in batches]
    run.flat.gradient_D.copy_(torch.stack(before).mean(dim=0))
    norm = float(torch.linalg.vector_norm(run.flat.gradient_D))
    run.step += 1
    rate = settings.learning_rate_at(max(run.step, since))
    run._update(norm, run.step, rate)
    step_D = run.flat.value_D - point_D
    run.flat.value_D.copy_(point_D + _PART * step_D)  # behind a large step nothing is curved
    behind = [run.gradient_of(replace(batch, present_NL=None)) for batch in batches]
    sampled = unseen.judged.sampled
    change_NL = run._scored(unseen.prompt_PL, sampled) - sampled.log_probability_NL
    moved_N = change_NL.mul(sampled.mask_NL).sum(1) / _PART
    pair_K2 = np.array(
        [
            [float((far - near) @ step_D) / _PART, -float(near @ step_D)]
            for near, far in zip(before, behind, strict=True)
        ]
    )
    mean, covariance = pair_K2.mean(axis=0), np.cov(pair_K2.T) / kicks
    if not mean[1]:
        raise InsufficientDataError(
            f"expected a gradient behind step {run.step - 1:,}, got 0, since the rewards of every "
            "group are equal there: kick a run that ends before they are (groupwise-lab train "
            f"--steps N below {run.step - 1:,})"
        )
    value, slope = mean[0] / mean[1], np.array([1.0, -mean[0] / mean[1]]) / mean[1]
    half = student_quantile(0.95, kicks - 1) * math.sqrt(float(slope @ covariance @ slope))
    curvature = Interval(float(value), float(value - half), float(value + half))
    nats, gain = 0.5 * moved_N.square().mean(), (unseen.advantage_N * moved_N).mean()
    return Kick(curvature, rate, float(nats), float(gain))


class FlatParameters:
    """The trainable parameters of a module as one vector, and their gradient as another; the
    module's tensors are views of both.
    """

    def __init__(self, module: nn.Module) -> None:
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.value_D = torch.cat([parameter.detach().reshape(-1) for parameter in parameters])
        self.gradient_D = torch.zeros_like(self.value_D)
        start = 0
        for parameter in parameters:
            stop = start + parameter.numel()
            parameter.data = self.value_D[start:stop].view_as(parameter)
            parameter.grad = self.gradient_D[start:stop].view_as(parameter)
            start = stop


class UpdateRule:
    """Heavy ball, Adam or AdamW."""

    def __init__(self, settings: TrainSettings, like_D: Tensor) -> None:
        self.settings = settings
        names = ("velocity",) if settings.optimizer == "sgd" else ("first_moment", "second_moment")
        self.state = {name: torch.zeros_like(like_D) for name in names}

    @torch.no_grad()
    def step(
        self, value_D: Tensor, gradient_D: Tensor, *, learning_rate: float, update: int
    ) -> None:
        """Change the parameters."""
        settings = self.settings
        if settings.weight_decay and settings.optimizer == "adamw":
            value_D.mul_(1 - learning_rate * settings.weight_decay)
        elif settings.weight_decay:
            gradient_D = gradient_D + settings.weight_decay * value_D
        if settings.optimizer == "sgd":
            velocity = (
                self.state["velocity"].mul_(settings.momentum).add_(gradient_D, alpha=learning_rate)
            )
            value_D.sub_(velocity)
            return
        first, second = self.state["first_moment"], self.state["second_moment"]
        first.mul_(settings.beta1).add_(gradient_D, alpha=1 - settings.beta1)
        second.mul_(settings.beta2).addcmul_(gradient_D, gradient_D, value=1 - settings.beta2)
        # Both moments begin at zero: divided by the share of their weights that has come.
        root = second.sqrt().div_((1 - settings.beta2**update) ** 0.5).add_(settings.epsilon)
        value_D.addcdiv_(first, root, value=-learning_rate / (1 - settings.beta1**update))


class TrainingRun:
    """A run between two steps: parameters, optimiser, batches that wait, and counters."""

    def __init__(
        self,
        actor: Actor,
        task: Task,
        settings: TrainSettings,
        ingredients: Ingredients | None,
        *,
        folder: Path | None = None,
    ) -> None:
        self.actor, self.task, self.settings = actor, task, settings
        module: Any = actor
        self.flat = FlatParameters(module)
        self.optimizer = UpdateRule(settings, self.flat.value_D)
        self.credit = Credit(
            advantage_of(settings.advantage),
            actor,
            task,
            value=settings.advantage_value,
            ingredients=ingredients,
        )
        self.reference_D = self.flat.value_D.clone() if settings.kl_weight else None
        settings.check_pool(len(task.train))
        self.pool = len(task.train) if settings.prompt_pool is None else settings.prompt_pool
        self.adaptive = (
            None
            if settings.adaptive is None
            else AdaptiveGroupSize(settings, actor, task, pool=self.pool, folder=folder)
        )
        self.step, self.batches, self.drawn, self.tokens = 0, 0, 0, 0
        self.idle, self.learned = (
            0,
            False,
        )  # steps in a row without a signal, and whether there ever was one
        self.silent = 0  # steps in a row without any reward, since this process took the run up
        self.whole = True  # whether nothing is half done
        # On policy the pass that samples serves as the forward pass of the update, where it can
        # keep its graph and takes the batch whole.
        short = task.completion_length <= _ONE_PASS and hasattr(actor, "sample_with_graph")
        self.one_pass = short and settings.lag_kind == "none" and settings.micro_batch is None
        self.waiting: list[Batch] = []
        self._last_batch: Batch | None = None
        self.seconds, self._started = 0.0, time.perf_counter()

    def advance(self) -> tuple[JsonObject, list[JsonObject] | None]:
        """Sample what is due, take one step, and return its row and rollouts."""
        settings, number = self.settings, self.step + 1
        # The group size may change for the batches sampled from here on; one that waits keeps its
        # own.
        if self.adaptive is not None:
            self.adaptive.look(self.step, self._generator(_PROBE, self.step))
        while self.batches < batches_needed(
            self.step, settings.lag_kind, settings.refresh_interval
        ):
            self.waiting.append(self._sampled_batch(self.batches + 1))
            self.batches, self.drawn = (
                self.batches + 1,
                self.drawn + len(self.waiting[-1].judged.problems),
            )
        batch = self.waiting[0]
        signal = self._has_signal(batch)
        learning_rate = settings.learning_rate_at(number)
        row = step_row(
            batch.judged, number=number, learning_rate=learning_rate, lag=self.step - batch.update
        )
        row |= self._gradient(batch, number)
        self.whole = False
        self._update(row["gradient_norm"], number, learning_rate)
        self._last_batch = replace(self.waiting.pop(0), present_NL=None)
        self.step, self.learned, self.idle = (
            number,
            self.learned or signal,
            0 if signal else self.idle + 1,
        )
        size = len(batch.judged.reward_N) // len(batch.judged.problems)
        self.tokens += int(batch.judged.sampled.mask_NL.sum()) + size * int(
            self.actor.real(batch.prompt_PL).sum()
        )
        if self.adaptive is not None:
            row |= {"group_size": size, **self.adaptive.columns()}
        row |= self._evaluated(number)
        row |= {
            "tokens": self.tokens,
            "seconds": self.seconds + time.perf_counter() - self._started,
        }
        self.whole = True
        kept = settings.rollouts_every and (
            number % settings.rollouts_every == 0 or number in {1, settings.steps}
        )
        return row, rollout_rows(
            batch.judged, batch.advantage_N, self.actor.shown
        ) if kept else None

    def gradient_of(self, batch: Batch) -> Tensor:
        """The gradient of the loss on a batch at the present policy."""
        self._gradient(batch, self.step + 1)
        return self.flat.gradient_D.clone()

    def _has_signal(self, batch: Batch) -> bool:
        """Return whether there is something to learn from; refuse a run in which there never
        was, end one whose verifier is silent.
        """
        signal = has_signal(batch.judged)
        if not signal and not self.learned and self.idle + 1 == PATIENCE:
            raise refusal(batch.judged, self.task, language=hasattr(self.actor, "tokenizer"))
        self.silent = 0 if np.isfinite(batch.judged.reward_N).any() else self.silent + 1
        stuck = getattr(self.task.verifier, "stuck", "")
        if stuck or self.silent == PATIENCE:
            raise TrainingStoppedError(stuck or silence(batch.judged))
        return signal

    def check(self) -> None:
        """Refuse a policy whose last batch gives no finite loss: nothing else has looked at it
        yet.
        """
        if self._last_batch is not None:
            self._gradient(self._last_batch, self.step + 1)

    def _sampled_batch(self, number: int) -> Batch:
        """Draw prompts and completions with the present policy, judge them, and give every
        rollout its advantage.
        """
        size = self.settings.group_size if self.adaptive is None else self.adaptive.group_size
        problem_P = self._drawn_problems(number, self.settings.rollouts_per_step // size)
        problems = [self.task.train[place] for place in problem_P]
        prompt_PL = self.actor.prompt_tokens(self.task, problems)
        sampled, present_NL = self._drawn(prompt_PL, size, number)
        judged = self._judged(problems, problem_P, sampled, number)
        reference_NL = self._under_reference(prompt_PL, sampled)
        earned_N = judged.reward_N
        if reference_NL is not None and self.settings.kl_in == "reward":
            behind_N = (
                (sampled.log_probability_NL - reference_NL)
                .mul(sampled.mask_NL)
                .sum(1)
                .double()
                .cpu()
                .numpy()
            )
            earned_N = earned_N - self.settings.kl_weight * behind_N
        advantage_N = torch.from_numpy(self.credit.advantages(replace(judged, reward_N=earned_N)))
        return Batch(
            judged,
            prompt_PL,
            advantage_N.to(prompt_PL.device, self.flat.value_D.dtype),
            reference_NL,
            self.step,
            present_NL,
        )

    def _drawn(self, prompt_PL: Tensor, size: int, number: int) -> tuple[Sampled, Tensor | None]:
        """Return the completions of a batch, and in a run of one pass their differentiable
        log-probabilities.
        """
        sampled = self._sample(
            prompt_PL, size, self._generator(_TOKENS, number), with_graph=self.one_pass
        )
        present_NL = sampled.log_probability_NL
        return replace(
            sampled, log_probability_NL=present_NL.detach()
        ), present_NL if self.one_pass else None

    def _drawn_problems(self, number: int, count: int) -> Whole:
        """Return the numbers of a batch's problems."""
        seed, first = self.settings.seed, self.drawn
        if self.settings.prompt_order == "independent":
            return np.random.default_rng([seed, _PROMPTS, number]).integers(self.pool, size=count)
        epochs = range(first // self.pool, (first + count - 1) // self.pool + 1)
        order = np.concatenate(
            [
                np.random.default_rng([seed, _EPOCH, epoch]).permutation(self.pool)
                for epoch in epochs
            ]
        )
        return order[first - epochs[0] * self.pool :][:count]

    def _judged(
        self,
        problems: Sequence[Problem],
        problem_P: Whole,
        sampled: Sampled,
        number: int,
    ) -> GradedRollouts:
        """Ask the verifier."""
        texts, ended, rewards = rewards_of(self.actor, self.task, problems, sampled, step=number)
        weights = dict(self.task.verifier.weights)
        return GradedRollouts(
            problems,
            problem_P,
            number,
            sampled,
            texts,
            ended,
            total_reward(self.task.verifier, rewards),
            rewards,
            weights,
        )

    @torch.no_grad()
    def _under_reference(self, prompt_PL: Tensor, sampled: Sampled) -> Tensor | None:
        """Return log-probabilities under the policy at the start, whose parameters stand in for
        the present ones meanwhile.
        """
        if self.reference_D is None:
            return None
        present_D = self.flat.value_D.clone()
        self.flat.value_D.copy_(self.reference_D)
        try:
            return self._scored(prompt_PL, sampled)
        finally:
            self.flat.value_D.copy_(present_D)

    @torch.no_grad()
    def _scored(self, prompt_PL: Tensor, sampled: Sampled) -> Tensor:
        """Return log-probabilities under the present policy."""
        size = len(sampled.completion_NL) // len(prompt_PL)
        parts = [
            self._log_probabilities(prompt_PL[groups], sampled.completion_NL[rows])
            for groups, rows in self._parts(len(prompt_PL), size)
        ]
        return torch.cat(parts)

    def _gradient(self, batch: Batch, number: int) -> dict[str, float]:
        """Take the gradient of a batch at the present policy; the policy is as it was."""
        sampled, settings = batch.judged.sampled, self.settings
        weight_NL = token_weights(sampled.mask_NL, settings.aggregation)
        self.flat.gradient_D.zero_()
        loss, clipped, kl = 0.0, 0.0, 0.0
        for groups, rows in self._parts(
            len(batch.prompt_PL), len(sampled.completion_NL) // len(batch.prompt_PL)
        ):
            new_NL = batch.present_NL
            if new_NL is None:
                new_NL = self._log_probabilities(
                    batch.prompt_PL[groups], sampled.completion_NL[rows]
                )
            # Without lag the ratio is 1 by definition: rounding of the sampler's own pass must not
            # enter.
            old_NL = (
                new_NL.detach() if batch.update == self.step else sampled.log_probability_NL[rows]
            )
            reference_NL = None if batch.reference_NL is None else batch.reference_NL[rows]
            part = policy_loss(
                new_NL,
                old_NL,
                batch.advantage_N[rows],
                sampled.mask_NL[rows],
                weight_NL[rows],
                settings,
                reference_NL=reference_NL,
            )
            part.value.backward()  # type: ignore[no-untyped-call]
            loss, clipped, kl = (
                loss + float(part.value.detach()),
                clipped + part.clipped,
                kl + part.kl,
            )
        norm = float(torch.linalg.vector_norm(self.flat.gradient_D))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise NotFiniteError(
                f"expected a finite loss at step {number}, got a loss of {loss:g} and a gradient "
                f"of norm {norm:g}"
            )
        total = float(weight_NL.sum())
        logged = {"loss": loss, "gradient_norm": norm, "clip_ratio": clipped / total}
        return logged if self.reference_D is None else logged | {"kl": kl / total}

    def _update(self, norm: float, number: int, learning_rate: float) -> None:
        """Take one step of the optimiser along the gradient."""
        limit = self.settings.gradient_clip
        if limit is not None and norm > limit:
            self.flat.gradient_D.mul_(limit / norm)
        self.optimizer.step(
            self.flat.value_D, self.flat.gradient_D, learning_rate=learning_rate, update=number
        )

    def _evaluated(self, number: int) -> dict[str, float]:
        """Return mean rewards on held-out problems, the same ones each time, four rollouts each;
        nothing after most updates.
        """
        every = self.settings.evaluate_every
        if not (
            self.task.held_out and every and (number % every == 0 or number == self.settings.steps)
        ):
            return {}
        problems = self.task.held_out[: self.settings.evaluation_problems]
        prompt_PL = self.actor.prompt_tokens(self.task, problems)
        sampled = self._sample(prompt_PL, 4, self._generator(_EVALUATION, number))
        judged = self._judged(problems, np.arange(len(problems)), sampled, number)
        parts = {"eval/reward": judged.reward_N} | {
            f"eval/rewards/{name}/mean": part_N for name, part_N in judged.part_N.items()
        }
        return {
            name: float(np.nanmean(part_N))
            for name, part_N in parts.items()
            if np.isfinite(part_N).any()
        }

    def _sample(
        self,
        prompt_PL: Tensor,
        group_size: int,
        generator: torch.Generator,
        *,
        with_graph: bool = False,
    ) -> Sampled:
        """Draw completions in the precision of the run."""
        draw: Any = getattr(self.actor, "sample_with_graph" if with_graph else "sample")
        with self._precision():
            sampled: Sampled = draw(prompt_PL, group_size, generator, self.task.completion_length)
        return sampled

    def _log_probabilities(self, prompt_PL: Tensor, completion_NL: Tensor) -> Tensor:
        """Score completions in the precision of the run."""
        with self._precision():
            return self.actor.log_probabilities(prompt_PL, completion_NL)

    def _precision(self) -> torch.autocast:
        """Return the context of every pass through the policy."""
        return torch.autocast(
            self.flat.value_D.device.type,
            dtype=torch.bfloat16,
            enabled=self.settings.precision == "bfloat16",
        )

    def _parts(self, groups: int, size: int) -> Iterator[tuple[slice, slice]]:
        """Yield groups and their rollouts, as many as one pass takes; at least one group."""
        many = (
            groups
            if self.settings.micro_batch is None
            else max(1, self.settings.micro_batch // size)
        )
        for start in range(0, groups, many):
            yield slice(start, start + many), slice(start * size, (start + many) * size)

    def _generator(self, stream: int, number: int) -> torch.Generator:
        """Return the random numbers of one batch: they depend on the seed and its number alone."""
        word = np.random.SeedSequence([self.settings.seed, stream, number]).generate_state(
            1, np.uint64
        )[0]
        return torch.Generator(self.flat.value_D.device).manual_seed(int(word >> np.uint64(1)))

    def state(self) -> tuple[dict[str, Tensor], JsonObject]:
        """Return everything that the next step depends on, as tensors and plain data."""
        tensors = {
            "parameters": self.flat.value_D,
            **{f"optimizer.{name}": vector for name, vector in self.optimizer.state.items()},
        }
        if self.reference_D is not None:
            tensors["reference"] = self.reference_D
        for place, batch in enumerate(self.waiting):
            judged = batch.judged
            kept = {name: getattr(judged.sampled, name) for name in SAMPLED} | {
                "advantage_N": batch.advantage_N
            }
            kept |= {
                "problem_P": torch.from_numpy(judged.problem_P),
                "reward_N": torch.from_numpy(judged.reward_N),
            }
            kept |= {
                f"reward.{name}": torch.from_numpy(part_N) for name, part_N in judged.part_N.items()
            }
            kept |= {} if batch.reference_NL is None else {"reference_NL": batch.reference_NL}
            tensors |= {f"batch{place}.{name}": tensor for name, tensor in kept.items()}
        for place, (problem_P, reward_PG, _) in enumerate(self.credit.history):
            tensors |= {
                f"memory{place}.problem": torch.from_numpy(problem_P),
                f"memory{place}.reward": torch.from_numpy(reward_PG),
            }
        about: JsonObject = {name: getattr(self, name) for name in _COUNTERS} | {
            "learned": self.learned
        }
        if self.adaptive is not None:
            about["adaptive"] = self.adaptive.state()
        waiting = [
            {
                "update": batch.update,
                "number": batch.judged.number,
                "rewards": list(batch.judged.part_N),
            }
            for batch in self.waiting
        ]
        memory = [number for _, _, number in self.credit.history]
        seconds = self.seconds + time.perf_counter() - self._started
        return tensors, about | {"seconds": seconds, "waiting": waiting, "memory": memory}

    def restore(self, tensors: Mapping[str, Tensor], about: JsonView) -> None:
        """Go back to what `state` returned."""
        with torch.no_grad():
            self.flat.value_D.copy_(tensors["parameters"])
            for name, vector in self.optimizer.state.items():
                vector.copy_(tensors[f"optimizer.{name}"])
            if self.reference_D is not None:
                self.reference_D.copy_(tensors["reference"])
        for name in _COUNTERS:
            setattr(self, name, int(about[name]))
        self.learned = bool(about["learned"])
        if self.adaptive is not None:
            self.adaptive.restore(about["adaptive"])
        self.seconds = float(about["seconds"])
        for place, number in enumerate(about["memory"]):
            self.credit.remember(
                tensors[f"memory{place}.problem"].numpy(),
                tensors[f"memory{place}.reward"].numpy(),
                number,
            )
        self.waiting = [
            self._restored(f"batch{place}.", tensors, entry)
            for place, entry in enumerate(about["waiting"])
        ]

    def _restored(self, prefix: str, tensors: Mapping[str, Tensor], about: JsonView) -> Batch:
        """Return a batch that waited."""
        device = self.flat.value_D.device
        own = {
            name.removeprefix(prefix): tensor
            for name, tensor in tensors.items()
            if name.startswith(prefix)
        }
        problem_P = own["problem_P"].numpy()
        problems = [self.task.train[number] for number in problem_P]
        sampled = Sampled(*(own[name].to(device) for name in SAMPLED))
        parts = {name: own[f"reward.{name}"].numpy() for name in about["rewards"]}
        weights = dict(self.task.verifier.weights)
        texts, ended = self.actor.texts(self.task, sampled.completion_NL, sampled.mask_NL)
        judged = GradedRollouts(
            problems,
            problem_P,
            int(about["number"]),
            sampled,
            texts,
            ended,
            own["reward_N"].numpy(),
            parts,
            weights,
        )
        reference_NL = own["reference_NL"].to(device) if "reference_NL" in own else None
        prompt_PL = self.actor.prompt_tokens(self.task, problems)
        # Drawn once more for its graph: a batch that waited in a run of one pass is of the policy
        # that is here.
        present_NL = (
            self._drawn(prompt_PL, len(texts) // len(problems), judged.number)[1]
            if self.one_pass
            else None
        )
        return Batch(
            judged,
            prompt_PL,
            own["advantage_N"].to(device),
            reference_NL,
            int(about["update"]),
            present_NL,
        )
