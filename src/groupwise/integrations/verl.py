"""Record a verl run as it trains: `VERL_USE_EXTERNAL_MODULES=groupwise.integrations.verl`.

verl imports this module in every process. Its advantage estimators then hand their rewards with
group ids to the record, and its tracker the metrics; both return what they returned before. A
process that computes no advantage writes nothing. No scores are taken here. The process of the
tracker judges the run as it goes.
"""

import atexit
import functools
import inspect
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from groupwise.arrays import floats
from groupwise.integrations.generation import Generation, apart, array_of, joined, step_meanings
from groupwise.integrations.live_judgement import LiveJudgement
from groupwise.parsing import JsonObject, JsonView
from groupwise.readers.configs import flatten, settings_in
from groupwise.record.recorder import (
    FOLDER,
    Failures,
    Identity,
    Recorder,
    RolloutDicts,
    Say,
    guarded,
    home_of,
    opened,
    to_terminal,
)
from groupwise.record.run import Meaning, RunConfig, RunRecord

VARIABLE = "GROUPWISE_RECORD"
"""Environment variable: the folder of the record; "groupwise" in the trainer's default_local_dir
where it is not set.
"""
_MARK, _PADDING = "__groupwise__", "pad"
_MOST_FAILURES = 5

_REWARD = Meaning(
    "reward",
    "reward",
    "mean reward of the rollouts of this step, including any KL term that is part of the reward",
)


class Tap:
    """What a process of verl hands over: rollouts by estimators, metrics by the tracker."""

    recorder: Recorder | None = None
    _folder: Path | None = None
    _last: tuple[JsonObject, RolloutDicts | None] | None = None
    _broken = _noted = False

    def __init__(self, say: Say = to_terminal) -> None:
        self._say, self._config, self._name = guarded(say), RunConfig(), ""
        self._identity = Identity()
        self._generations: list[Generation] = []
        self._inside = threading.local()
        self._failures = Failures(
            self._say, _MOST_FAILURES
        )  # in a row: since the last step that was recorded
        self._began, self._seconds = time.perf_counter(), 0.0
        self._judgement = LiveJudgement(self._say)

    def wrapped(self, estimator: Callable[..., Any]) -> Callable[..., Any]:
        """Return an estimator whose outermost call is recorded and whose result stays."""
        if hasattr(estimator, _MARK):
            return estimator
        signature = inspect.signature(estimator)

        @functools.wraps(estimator)
        def recorded(*given: Any, **named: Any) -> Any:
            if getattr(
                self._inside, "estimator", False
            ):  # an estimator that calls another is one call
                return estimator(*given, **named)
            self._inside.estimator = True
            try:
                result = estimator(*given, **named)
            finally:
                self._inside.estimator = False
            self._safely(
                lambda: self._take(dict(signature.bind_partial(*given, **named).arguments), result)
            )
            return result

        setattr(recorded, _MARK, True)
        return recorded

    def begin(self, config: Any, name: str) -> None:
        """Take the settings of a new tracker and close the record of an earlier one."""
        self.end()
        self._failures.in_a_row, self._broken, self._last, self._generations = 0, False, None, []
        self._began = time.perf_counter()
        flat = dict(flatten(config))
        self._name = name
        home = str(flat.get("trainer/default_local_dir") or ".")
        self._folder = Path(os.environ.get(VARIABLE) or str(Path(home) / FOLDER))
        self._identity = Identity(home=home_of(home, self._folder))
        settings = {**settings_in(flat), "framework": "verl", "smoothing": 1}
        settings.pop("assumed", None)
        self._config = RunConfig().with_settings(settings, "the trainer's configuration")

    def step(self, data: JsonView, step: int) -> None:
        """Write the rollouts taken since the last call, with the metrics of the step."""
        metrics = {
            key: float(value)
            for key, value in apart(data, "reward").items()
            if isinstance(value, int | float | np.number)
        }
        generation = joined(self._generations) if self._generations else None
        self._generations = []
        self.recorder = self.recorder or self._opened(step if generation is None else step - 1)
        if self.recorder is None:
            self._broken = True
            return
        rows = self.recorder.rows
        row: JsonObject = {"step": step}
        rollouts: RolloutDicts | None = None
        if (
            self._last and self._last[0]["step"] == step
        ):  # a second call for one step adds to the first
            row, rollouts = dict(self._last[0]), self._last[1]
        if generation is None and self._last is None and rows and rows[-1]["step"] == step:
            # The validation before a resumed run adds to the step that it goes on from.
            row, rollouts = dict(rows[-1]), _recorded(self.recorder.folder, step)
        else:
            row |= self._progress(rows, step, metrics.get("perf/total_num_tokens"))
        if generation:
            row |= generation.row()
            rollouts = generation.rollouts()
        row |= metrics
        self._last = (row, rollouts)
        self.recorder.append(row, rollouts)
        self._failures.in_a_row = 0
        self._judge(step)

    def _judge(self, step: int) -> None:
        """Judge the run where it is time and affordable."""
        began = time.perf_counter()
        if (
            self.recorder
            and self._judgement.due(step)
            and self._judgement.affordable(began - self._began)
        ):
            self._judgement.look(self.recorder.snapshot(), step)
            self._judgement.took(time.perf_counter() - began)

    def _progress(
        self, rows: Sequence[JsonView], step: int, tokens: float | None
    ) -> dict[str, float]:
        """Return how far the run has come with a step of so many tokens."""
        before: JsonView = next((old for old in reversed(rows) if old["step"] < step), {})
        return {
            "optimizer_updates": step * float(self._config.value("updates_per_step") or 1),
            "seconds": self._seconds + time.perf_counter() - self._began,
            **({} if tokens is None else {"tokens": (before.get("tokens") or 0.0) + tokens}),
        }

    def end(self) -> None:
        """Close the record."""
        if self.recorder:
            self.recorder.close()
            self.recorder = None
            self._broken = True

    def _opened(self, after: int) -> Recorder | None:
        """Open the record where the first step is known, or none where nothing can be written."""
        if self._folder is None:
            self.begin(None, "")
        assert self._folder
        make = functools.partial(
            Recorder,
            name=self._name,
            config=self._config,
            meanings_of=functools.partial(step_meanings, framework="verl", more=(_REWARD,)),
            say=self._say,
        )
        recorder = opened(make, self._folder, max(after, 0), self._say, self._identity)
        self._seconds = recorder.seconds if recorder else 0.0
        self._judgement.begin(last_step=None, here=recorder is not None)
        return recorder

    def _take(self, given: JsonView, result: Any) -> None:
        """Keep the rollouts of one call of an estimator."""
        if not {"token_level_rewards", "response_mask", "index"} <= set(given):
            if not self._noted:
                self._noted = True
                self._say(
                    "this advantage estimator gets no group ids: its rollouts are not recorded, "
                    "metrics are"
                )
            return
        mask_NL, group_N = array_of(given["response_mask"]), np.asarray(given["index"]).astype(str)
        # Rows that verl adds until the workers share them evenly: without a token, under a name
        # that begins so.
        real_N = mask_NL.any(axis=1) | ~np.char.startswith(group_N, _PADDING)
        mask_NL, group_N = mask_NL[real_N], group_N[real_N]
        reward_N = array_of(given["token_level_rewards"])[real_N].sum(axis=1)
        length_N = mask_NL.sum(axis=1)
        advantage_NL = array_of(result[0])[real_N]
        _, first, inverse = np.unique(group_N, return_index=True, return_inverse=True)
        # Groups in the order of their first rollouts: the inverse of an order is its own order.
        rank = np.argsort(np.argsort(first))
        extras = given.get("non_tensor_batch") or {}
        config: Any = given.get("config")
        keys = config.get("gdpo_reward_keys") if hasattr(config, "get") else None
        parts = {str(key): floats(extras[key])[real_N] for key in keys or () if key in extras}
        advantage_N = (advantage_NL * mask_NL).sum(axis=1) / np.maximum(length_N, 1)
        self._generations.append(
            Generation(reward_N, rank[inverse.reshape(-1)], parts, advantage_N, length_N)
        )

    def _safely(self, work: Callable[[], None]) -> None:
        """Do what must not end the training; several failures in a row end the recording."""
        if self._broken:
            return
        with self._failures.caught():
            work()
        self._broken |= self._failures.too_many

    def attach(self, core_algos: Any, tracking: Any) -> None:
        """Put this tap into verl's registry, its estimator called by name, and its tracker."""
        registry = core_algos.ADV_ESTIMATOR_REGISTRY
        for name, estimator in list(registry.items()):
            registry[name] = self.wrapped(estimator)
        # verl's trainer calls this one by its name, not through the registry.
        core_algos.compute_grpo_outcome_advantage = self.wrapped(
            core_algos.compute_grpo_outcome_advantage
        )
        own = core_algos.get_adv_estimator_fn
        if not hasattr(own, _MARK):

            @functools.wraps(own)
            def later(name: Any) -> Any:
                return self.wrapped(own(name))

            setattr(later, _MARK, True)
            core_algos.get_adv_estimator_fn = later  # for those that are registered after us
        if tracking is None:
            self._say(
                "this verl has no Tracking, so nothing is recorded: use groupwise report on its log"
            )
            return
        self._attach_tracking(tracking)

    def _attach_tracking(self, tracking: Any) -> None:
        """Let the tracker hand over settings, metrics and its end."""
        if hasattr(tracking.log, _MARK):
            return
        begin, log, finish = tracking.__init__, tracking.log, getattr(tracking, "finish", None)
        positions = inspect.signature(begin)

        @functools.wraps(begin)
        def begun(self: Any, *given: Any, **named: Any) -> None:
            begin(self, *given, **named)
            arguments = positions.bind_partial(self, *given, **named).arguments
            name = str(arguments.get("experiment_name") or "")
            tap._broken = False
            tap._safely(lambda: tap.begin(arguments.get("config"), name))

        @functools.wraps(log)
        def logged(self: Any, data: Any, step: int, *given: Any, **named: Any) -> Any:
            tap._safely(lambda: tap.step(data, int(step)))
            return log(self, data, step, *given, **named)

        tap = self
        setattr(logged, _MARK, True)
        tracking.__init__, tracking.log = begun, logged
        if finish is not None:

            @functools.wraps(finish)
            def finished(self: Any, *given: Any, **named: Any) -> Any:
                tap._safely(tap.end)
                return finish(self, *given, **named)

            tracking.finish = finished
        atexit.register(lambda: tap._safely(tap.end))


def _recorded(folder: Path, step: int) -> RolloutDicts | None:
    """Return the rollouts that a record has of a step."""
    rollouts = RunRecord.load(folder).rollouts
    if rollouts is None:
        return None
    return rollouts.filter(pl.col("step") == step).drop("step").to_dicts()


def attach(say: Say = to_terminal) -> Tap | None:
    """Attach to verl, where it can be imported; a failure is a sentence."""
    import importlib

    try:
        core_algos = importlib.import_module("verl.trainer.ppo.core_algos")
        tracking = getattr(importlib.import_module("verl.utils.tracking"), "Tracking", None)
        tap = Tap(say)
        tap.attach(core_algos, tracking)
    except (ImportError, AttributeError) as error:
        release = getattr(sys.modules.get("verl"), "__version__", "of unknown version")
        say(
            f"groupwise needs verl 0.6 or newer and cannot attach to verl {release} "
            f"({type(error).__name__}: {str(error)[:200]}): training goes on, not recorded"
        )
        return None
    return tap


TAP = (
    attach() if "verl" in sys.modules else None
)  # verl imports this module while it is being imported itself
