"""What is read from a TRL trainer: settings, rollouts and the metrics of a step.

TRL keeps these in private attributes; every one that is used is named here, and a trainer without
them is refused with a sentence. The trainer is left as it is but for the two methods that `Watch`
replaces for the time of the training.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.arrays import Float
from groupwise.errors import InvalidArgumentError
from groupwise.integrations.generation import Generation, array_of, text_of
from groupwise.parsing import JsonObject
from groupwise.readers.configs import settings_in
from groupwise.readers.keys import version_of
from groupwise.record.resume import Identity, home_of
from groupwise.record.run import RunConfig

GENERATE, JUDGE = "_generate_and_score_completions", "_calculate_rewards"
_NEEDED = (
    GENERATE,
    JUDGE,
    "_logs",
    "_metrics",
    "num_generations",
    "reward_func_names",
    "accelerator",
    "args",
    "state",
)
_KEPT = "groupwise"
_OLDEST = (0, 20)  # that was run: `make loops`
_LATER = "use another, or read the log afterwards (groupwise report)"


def check_trainer(trainer: Any) -> None:
    """Refuse what is not a trainer at all."""
    if isinstance(trainer, type) or not hasattr(trainer, "add_callback"):
        raise InvalidArgumentError(
            f"expected a trainer, got {_kind(trainer)}: make the GRPOTrainer first, then "
            "trainer.add_callback(GroupwiseCallback(trainer))"
        )


def unfit(trainer: Any) -> str:
    """Return why this trainer cannot be recorded; "" if it can."""
    missing = [name for name in _NEEDED if not hasattr(trainer, name)]
    release = version("trl")
    if missing and (version_of(release) or _OLDEST) < _OLDEST:
        return (
            f"expected TRL {_OLDEST[0]}.{_OLDEST[1]} or newer, got TRL {release}, whose "
            f"{_kind(trainer)} has no {', '.join(missing)}: {_LATER}"
        )
    if "num_generations" in missing or GENERATE in missing:
        return (
            f"expected TRL's GRPOTrainer or RLOOTrainer, got {_kind(trainer)}, which samples no "
            "groups of completions: attach the callback to one that does (of AsyncGRPOTrainer "
            "read the log: groupwise report)"
        )
    if missing:
        return (
            f"expected a trainer with {', '.join(missing)}, got {_kind(trainer)} of TRL "
            f"{release}: {_LATER}"
        )
    return ""


def _kind(trainer: Any) -> str:
    """Return the name of a class, for a sentence."""
    return f"the class {trainer.__name__}" if isinstance(trainer, type) else type(trainer).__name__


def version(package: str) -> str:
    """Return the version of an installed package, or "unknown"."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def processes(trainer: Any) -> int:
    """Return how many processes train together."""
    return int(getattr(trainer.accelerator, "num_processes", 1))


def gathered(trainer: Any, values: Sequence[Any]) -> list[Any]:
    """Return the values of all processes, in their order; every process must call this alike."""
    if processes(trainer) == 1:
        return list(values)
    return list(importlib.import_module("accelerate.utils").gather_object(list(values)))


def config_of(trainer: Any) -> RunConfig:
    """Return the settings of a run, as the trainer has them."""
    args = trainer.args
    flat: JsonObject = {
        key: value
        for key, value in args.to_dict().items()
        if isinstance(value, str | int | float | bool)
    }
    flat |= {
        "num_processes": processes(trainer),
        "num_generations": trainer.num_generations,
        "logging_steps": 1,
    }
    flat["lr_scheduler_type"] = (
        str(flat.get("lr_scheduler_type", "")).rsplit(".", 1)[-1].lower() or None
    )
    settings = settings_in(flat)
    settings.pop("assumed", None)
    settings.pop("model", None)
    release = version("trl")
    settings |= {
        "framework": "trl",
        "framework_version": None if release == "unknown" else release,
        "smoothing": 1,
    }
    name = getattr(getattr(trainer.model, "config", None), "_name_or_path", "") or None
    return (
        RunConfig()
        .with_settings(settings, "the trainer's arguments")
        .with_settings({"model": name}, "the model")
    )


def identity_of(trainer: Any, state: Any, folder: Path) -> Identity:
    """Return the number that a run's checkpoint kept, and where its output lies."""
    kept = getattr(state, "stateful_callbacks", None)
    own = kept.get(_KEPT) if isinstance(kept, dict) else None
    return Identity(
        str((own or {}).get("record", "")),
        home_of(getattr(trainer.args, "output_dir", None) or ".", folder),
    )


def keep_record(state: Any, number: str) -> None:
    """Let the checkpoints of a run name its record, which the trainer reads on resume."""
    kept = getattr(state, "stateful_callbacks", None)
    if isinstance(kept, dict):
        kept[_KEPT] = {"record": number}


class Watch:
    """Hand on what a trainer's generation returns, without changing it."""

    def __init__(self, trainer: Any, taken: Callable[[], None]) -> None:
        self._trainer, self._taken = trainer, taken
        self._own: JsonObject = {}
        self.length_n: list[int] | None = None
        self.part_NF: Float | None = None

    def begin(self) -> None:
        """Wrap the two methods of the trainer."""
        if self._own:
            return
        trainer = self._trainer
        self._own = {name: vars(trainer).get(name) for name in (GENERATE, JUDGE)}
        generate, judge = getattr(trainer, GENERATE), getattr(trainer, JUDGE)

        def watched_judge(*given: Any, **named: Any) -> Any:
            result = judge(*given, **named)
            self.length_n, self.part_NF = (
                _lengths(given[3] if len(given) > 3 else named.get("completion_ids_list")),
                result,
            )
            return result

        def watched_generate(*given: Any, **named: Any) -> Any:
            self.length_n = self.part_NF = None
            output = generate(*given, **named)
            if trainer.model.training:
                self._taken()
            return output

        setattr(trainer, JUDGE, watched_judge)
        setattr(trainer, GENERATE, watched_generate)

    def end(self) -> None:
        """Put the trainer's own methods back."""
        for name, own in self._own.items():
            if own is None:
                vars(self._trainer).pop(name, None)
            else:
                setattr(self._trainer, name, own)
        self._own = {}

    def generation(self, *, texts: bool) -> Generation | None:
        """Return the rollouts of the latest generation; every process must call this."""
        trainer = self._trainer
        length_N = gathered(trainer, self.length_n or [])
        if self.part_NF is None:
            return None
        part_NF = array_of(self.part_NF)
        count, names = len(part_NF), list(trainer.reward_func_names)
        weights = getattr(trainer, "reward_weights", None)
        weight_F = (
            np.ones(len(names))
            if weights is None
            else np.asarray([float(weight) for weight in weights])
        )
        missing_N = np.isnan(part_NF).all(axis=1)
        reward_N = np.where(missing_N, np.nan, np.nansum(part_NF * weight_F, axis=1))
        # Gathered over the processes; TRL offers it nowhere else.
        advantages, *logged = (
            _latest(trainer._logs.get(name), count)
            for name in ("advantages", "prompt", "completion")
        )
        prompts, completions = (
            None if values is None or not texts else list(map(text_of, values)) for values in logged
        )
        return Generation(
            reward_N,
            np.arange(count) // int(trainer.num_generations),
            {name: part_NF[:, number] for number, name in enumerate(names)},
            None if advantages is None else np.array(advantages, dtype=float),
            np.array(length_N, dtype=float) if len(length_N) == count else None,
            prompts,
            completions,
        )


def _lengths(completions: Any) -> list[int] | None:
    """Return how many tokens each completion has; None where that is unknown."""
    try:
        return [len(ids) for ids in completions]
    except TypeError:
        return None


def _latest(values: Any, count: int) -> list[Any] | None:
    """Return the last `count` entries of a log, or None where it is shorter."""
    return None if values is None or len(values) < count else list(values)[-count:]


class StepMetrics:
    """The trainer's own metrics of one step, though it logs only every so often.

    TRL collects them in lists until it logs, and then empties the lists: what came since the last
    look is of this step.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._seen: dict[str, int] = {}

    def of_step(self) -> dict[str, float | None]:
        """Return the mean of each metric over what came since the last look."""
        means: dict[str, float | None] = {}
        collected = self._trainer._metrics["train"]  # the log holds only means over several steps
        for name, values in collected.items():
            if name == "num_tokens":
                continue
            seen = self._seen.get(name, 0)
            new = values[seen if seen <= len(values) else 0 :]
            self._seen[name] = len(values)
            valid = [float(value) for value in new if value is not None and math.isfinite(value)]
            if new:
                means[str(name)] = sum(valid) / len(valid) if valid else None
        return means

    def means(self) -> set[str]:
        """Return the metrics that the trainer logs as means over the steps since its last log."""
        return {
            "loss",
            *(str(name) for name in self._trainer._metrics["train"] if name != "num_tokens"),
        }

    def logged(self) -> None:
        """Forget what was seen: the trainer empties its lists after it logs."""
        self._seen = {}
