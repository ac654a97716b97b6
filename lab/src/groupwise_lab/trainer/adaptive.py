"""The group size of a run that follows what is measured: probes, the controller's decisions, and
their log.

A probe draws a few prompts and rollouts for itself, with random numbers of its own: groups of two
tell no components, few groups of many tell little of prompts, and rollouts that waited belong to an
old policy. It changes no parameter, and never ends a run.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise.errors import GroupwiseError, InvalidArgumentError
from groupwise.estimators.components import components
from groupwise.parsing import JsonObject, JsonView
from groupwise_lab.trainer.advantages import Advantage
from groupwise_lab.trainer.controller import RunningComponents, running_components
from groupwise_lab.trainer.credit import advantage_of, gradients_kept, rewards_of, score_batch
from groupwise_lab.trainer.folder import DECISIONS
from groupwise_lab.trainer.rewards import total_reward

if TYPE_CHECKING:
    import torch

    from groupwise.estimators.components import Components
    from groupwise_lab.trainer.policy import Actor
    from groupwise_lab.trainer.rewards import Problem
    from groupwise_lab.trainer.settings import AggregationName, TrainSettings
    from groupwise_lab.trainer.tasks import Task

_DRAW = 6  # stream of random numbers, beside those of the loop


class AdaptiveGroupSize:
    """The group size in use, the components so far, and the decisions."""

    def __init__(
        self, settings: TrainSettings, actor: Actor, task: Task, *, pool: int, folder: Path | None
    ) -> None:
        assert settings.adaptive is not None
        self._settings, self._how, self._folder = settings, settings.adaptive, folder
        self._actor, self._task, self._pool = actor, task, pool
        self.group_size, self.seconds = settings.group_size, 0.0
        self.running: RunningComponents | None = None
        self.decisions: list[JsonObject] = []
        entry = advantage_of(settings.advantage)
        if isinstance(entry, Advantage) and entry.smallest_group < 2:
            raise InvalidArgumentError(
                "expected an advantage that compares the rollouts of a group for an adaptive "
                f"group size, got {entry.name}: take leave_one_out, or leave the group size as it "
                "is"
            )

    def look(self, step: int, generator: torch.Generator) -> None:
        """Measure and decide where it is time to; a probe that fails is logged and leaves
        everything as it was.
        """
        if step % self._how.every:
            return
        began = time.perf_counter()
        try:
            new = running_components(self._probed(step, generator))
        except GroupwiseError as error:
            self._log(
                {
                    "step": step,
                    "group_size": self.group_size,
                    "reason": f"Nothing was measured: {error}",
                }
            )
            return
        finally:
            self.seconds += time.perf_counter() - began
        rule = self._how.rule
        self.running = new if self.running is None else self.running.faded(rule.fading) + new
        decision = rule.decide(self.running, self.group_size, self._settings.rollouts_per_step)
        if self._how.mode == "act":
            self.group_size = decision.group_size
        self._log({"step": step, "mode": self._how.mode, **decision.as_dict()})

    def columns(self) -> dict[str, float | None]:
        """Return what a row of the record tells of the last decision that rests on a
        measurement.
        """
        latest = next((entry for entry in reversed(self.decisions) if "best" in entry), None)
        values: dict[str, float | None] = {"probe_seconds": self.seconds}
        if latest is not None:
            values |= {
                "planned_group_size": latest["best"],
                "planned_excess": latest["excess"]["value"],
            }
            values |= {f"running_{name}": latest[name] for name in ("vp", "t", "r")}
        return values

    def _probed(self, step: int, generator: torch.Generator) -> Components:
        """Components of the present policy, from prompts drawn independently."""
        rng = np.random.default_rng([self._settings.seed, _DRAW, step])
        drawn = [
            self._task.train[number] for number in rng.integers(self._pool, size=self._how.prompts)
        ]
        settings = self._settings
        return probe(
            self._actor,
            self._task,
            drawn,
            self._how.rollouts,
            generator,
            aggregation=settings.aggregation,
            micro_batch=settings.micro_batch,
        )

    def _log(self, entry: JsonObject) -> None:
        """Keep a decision, here and in the folder of the run."""
        self.decisions.append(entry)
        self.write()

    def write(self) -> None:
        """Write all decisions, whole or not at all; a disk that is full costs the file and not
        the run.
        """
        if self._folder is None or not self.decisions:
            return
        partial = self._folder / f".{DECISIONS}.{os.getpid()}"
        try:
            partial.write_text(json.dumps(self.decisions, indent=1), encoding="utf-8")
            partial.replace(self._folder / DECISIONS)
        except OSError:
            partial.unlink(missing_ok=True)

    def state(self) -> JsonObject:
        """Return what the next decision depends on, and the log, as plain data."""
        running = None if self.running is None else self.running.as_dict()
        return {
            "group_size": self.group_size,
            "seconds": self.seconds,
            "running": running,
            "decisions": self.decisions,
        }

    def restore(self, about: JsonView) -> None:
        """Go back to what `state` returned."""
        self.group_size, self.seconds = int(about["group_size"]), float(about["seconds"])
        self.running = (
            None if about["running"] is None else RunningComponents.from_dict(about["running"])
        )
        self.decisions = list(about["decisions"])
        self.write()


def probe(
    actor: Actor,
    task: Task,
    problems: Sequence[Problem],
    rollouts: int,
    generator: torch.Generator,
    *,
    aggregation: AggregationName = "sum",
    micro_batch: int | None = None,
) -> Components:
    """Return the components of the present policy, from rollouts of some problems that serve
    nothing else.
    """
    from groupwise.gradients.scores import inner_products, score_gram

    prompt_PL = actor.prompt_tokens(task, problems)
    sampled = actor.sample(prompt_PL, rollouts, generator, task.completion_length)
    reward_N = total_reward(task.verifier, rewards_of(actor, task, problems, sampled)[2])
    batch = score_batch(actor, prompt_PL, sampled.completion_NL, sampled.mask_NL)
    model: Any = getattr(actor, "model", actor)
    memory = getattr(actor, "memory_limit", math.inf)
    with gradients_kept(model):
        if math.isfinite(memory):
            score = inner_products(
                model, batch, aggregation=aggregation, memory_limit=int(memory)
            ).arguments
        else:
            score = score_gram(
                model, batch, aggregation=aggregation, micro_batch=micro_batch
            ).arguments
    label_N = np.repeat(np.arange(len(problems)), rollouts)
    return components(reward_N, label_N, **score, zero_mean=aggregation == "sum")
