"""`trainer.add_callback(GroupwiseCallback(trainer))` records a TRL run as it trains.

Steps, rewards by group, lengths, metrics and settings go into a record beside the checkpoints; the
run is judged as it goes. A failure here is said once, and the training goes on.

TRL keeps what is read in private attributes; every one that is used is named here, and a trainer
without them is refused with a sentence. The trainer is left as it is but for the two methods that
`GenerationWatch` replaces for the time of the training.
"""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.arrays import Float, floats
from groupwise.errors import InvalidArgumentError
from groupwise.integrations.generation import (
    Generation,
    apart,
    array_of,
    joined,
    step_meanings,
)
from groupwise.integrations.live_judgement import LiveJudgement, StopOn, state_to_stop_on
from groupwise.parsing import JsonObject, JsonView
from groupwise.prompts import prompt_text
from groupwise.readers.configs import settings_in
from groupwise.readers.keys import version_of
from groupwise.record.recorder import (
    FOLDER,
    RECENT,
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
from groupwise.record.run import RunConfig

GENERATE, JUDGE = "_generate_and_score_completions", "_calculate_rewards"
_JUDGED = ("inputs", "prompts", "completions", "completion_ids_list")  # what JUDGE is given
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
RecordedStep = tuple[JsonObject, RolloutDicts | None]  # its row and its rollouts
_OLDEST = (0, 20)  # that was run: `make loops`
_LATER = "use another trainer or TRL version, or read the log afterwards (groupwise report)"


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
            "groups of completions: attach the callback to a trainer that does (for "
            "AsyncGRPOTrainer, read the log instead: groupwise report)"
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


def gathered(trainer: Any, values: list[Any]) -> list[Any]:
    """Return the values of all processes, in their order; every process must call this alike."""
    if processes(trainer) == 1:
        return values
    return list(importlib.import_module("accelerate.utils").gather_object(values))


def _trainer_config(trainer: Any) -> RunConfig:
    """Return the settings of a run, as the trainer has them."""
    plain = {
        key: value
        for key, value in trainer.args.to_dict().items()
        if isinstance(value, str | int | float)
    }
    settings = settings_in(
        plain
        | {
            "num_processes": processes(trainer),
            "num_generations": trainer.num_generations,
            "logging_steps": 1,
        }
    )
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


class GenerationWatch:
    """Hand on what a trainer's generation returns, without changing it."""

    def __init__(self, trainer: Any, taken: Callable[[Any], None]) -> None:
        self._trainer, self._taken = trainer, taken
        self._own: JsonObject = {}
        self._own_n: JsonObject = {}  # what this process has of each rollout
        self._part_NF: Float | None = None

    def begin(self) -> None:
        """Wrap the two methods of the trainer."""
        if self._own:
            return
        trainer = self._trainer
        self._own = {name: vars(trainer).get(name) for name in (GENERATE, JUDGE)}
        generate, judge = getattr(trainer, GENERATE), getattr(trainer, JUDGE)

        def watched_judge(*given: Any, **named: Any) -> Any:
            self._part_NF = result = judge(*given, **named)
            self._own_n = dict(zip(_JUDGED, given, strict=False), **named)
            return result

        def watched_generate(*given: Any, **named: Any) -> Any:
            self._own_n, self._part_NF = {}, None
            output = generate(*given, **named)
            if trainer.model.training:
                self._taken(output)
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

    def generation(self, output: Any, *, texts: bool) -> Generation | None:
        """Return the rollouts of the latest generation; every process must call this."""
        trainer = self._trainer
        if self._part_NF is None:
            return None
        part_NF, own_n = array_of(self._part_NF), self._own_n
        count, weights = len(part_NF), getattr(trainer, "reward_weights", None)
        weight_F = 1.0 if weights is None else array_of(weights)
        missing_N = np.isnan(part_NF).all(axis=1)
        reward_N = np.where(missing_N, np.nan, np.nansum(part_NF * weight_F, axis=1))
        if isinstance(output, Mapping) and "prompt_mask" in output:
            own_n["prompt_length"] = array_of(output["prompt_mask"]).sum(axis=1).tolist()

        def column(values: list[Any], made: Callable[[Any], Any] = floats) -> Any:
            return made(values) if len(values) == count else None

        def of_all(name: str, made: Callable[[Any], Any]) -> list[Any]:
            return gathered(trainer, list(map(made, own_n.get(name) or ())))

        return Generation(
            reward_N,
            np.arange(count) // int(trainer.num_generations),
            {name: part_NF[:, at] for at, name in enumerate(trainer.reward_func_names)},
            # gathered over the processes already; TRL offers it nowhere else
            column(list(trainer._logs.get("advantages") or ())[-count:]),
            column(of_all("completion_ids_list", len)),
            column(of_all("prompt_length", float)),
            # as the reward functions see them: a chat as its messages, whatever its template adds
            *(column(of_all(name, prompt_text), list) for name in _JUDGED[1:3] if texts),
        )


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
        return {"loss", *map(str, self._trainer._metrics["train"])} - {"num_tokens"}

    def logged(self) -> None:
        """Forget what was seen: the trainer empties its lists after it logs."""
        self._seen = {}


class GroupwiseCallback:
    """Record a run of TRL's `GRPOTrainer` or `RLOOTrainer` while it trains.

    Example:
        >>> trainer.add_callback(GroupwiseCallback(trainer))  # doctest: +SKIP
    """

    def __init__(
        self,
        trainer: Any,
        *,
        record: str | Path | None = None,
        texts: bool = True,
        check_every: int | None = None,
        stop_on: StopOn | None = None,
        webhook: str | None = None,
        say: Say = to_terminal,
    ) -> None:
        check_trainer(trainer)
        _check_options(record, check_every)
        self.stop_on = None if stop_on is None else state_to_stop_on(stop_on)
        self.trainer, self._unfit = trainer, unfit(trainer)
        home = getattr(getattr(trainer, "args", None), "output_dir", None) or "."
        self.folder = Path(home, FOLDER) if record is None else Path(record)
        self.recorder: Recorder | None = None
        self.notices: list[str] = []
        self._texts, self._say_ = texts, guarded(say)
        self._checks = LiveJudgement(
            self._say, every=check_every, stop_on=self.stop_on, webhook=webhook
        )
        # What all processes do together stands outside of it, or where no failure of one keeps it
        # from the others.
        self._safely = Failures(self._say).caught
        self._watch, self._metrics = GenerationWatch(trainer, self._take), StepMetrics(trainer)
        self._active, self._main, self._clock = False, True, time.perf_counter
        self._learning_rate: float | None = None
        self._in_step = dict.fromkeys(("record", "check"), 0.0)
        self._reset()

    def _reset(self) -> None:
        """Begin the counts of a training."""
        self.record_seconds = self._started = self._first_seconds = 0.0
        self._generations: list[Generation] = []
        self._held: RecordedStep | None = None
        self._last: RecordedStep | None = None
        self._sampled_at = self._since_log = self._steps_seen = 0

    @property
    def check_seconds(self) -> float:
        """What the checks have cost so far."""
        return self._checks.seconds

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Pass over the events that nothing is done at, also those of later versions."""
        if name.startswith("on_"):
            return lambda *_, **__: None
        raise AttributeError(name)

    def _say(self, sentence: str) -> None:
        """Say a sentence, from one process only, and keep it."""
        if self._main:
            self.notices.append(sentence)
            self._say_(sentence)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        """Add the time inside to the cost of recording or checking."""
        begun, collecting = self._clock(), gc.isenabled()
        # A step makes thousands of short-lived objects: collecting garbage among a trainer's
        # millions takes longer than recording.
        gc.disable()
        try:
            yield
        finally:
            if collecting:
                gc.enable()
            self._in_step[what] += self._clock() - begun

    # What the trainer calls

    # the trainer's signature
    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Open the record and say what is wrong with the settings."""
        self._main = bool(getattr(state, "is_world_process_zero", True))
        if self._unfit:
            self._say(f"{self._unfit}; nothing is recorded, and training goes on")
            return
        present = getattr(getattr(self.trainer, "callback_handler", None), "callbacks", [self])
        ours = [
            callback
            for callback in present
            if isinstance(callback, GroupwiseCallback) and callback.trainer is self.trainer
        ]
        if self not in ours[:1]:
            same = (
                "was made for another trainer"
                if self not in ours
                else "is the second one of this trainer"
            )
            self._say(
                f"a GroupwiseCallback {same}, so it does nothing: add only one, made "
                "with the trainer to which you add it"
            )
            return
        with self._safely():
            # of a training that raised: its record is still open, and this is its only writer
            self._let_go()
        self._reset()
        self._active = True
        with self._safely():
            self._metrics.of_step()  # what a training that raised left behind is of no step
            self._checks.begin(last_step=getattr(state, "max_steps", None) or None, here=self._main)
        if self._main:
            with self._safely():
                self.recorder = self._opened(state)
                self._first_seconds = self.recorder.seconds if self.recorder else 0.0
        self._started = time.perf_counter()
        self._watch.begin()

    def _let_go(self) -> None:
        """Put the trainer back, write what is held, and close the record."""
        self._watch.end()
        self._active = False
        if self.recorder:
            self._flush()
            self.recorder.close()

    def on_pre_optimizer_step(self, *_: Any, optimizer: Any = None, **__: Any) -> None:
        """Keep the learning rate of the update that comes."""
        with self._safely():
            groups = getattr(optimizer, "param_groups", None)
            self._learning_rate = float(groups[0]["lr"]) if groups else None

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:  # noqa: ARG002
        """Make the row of the step; it is written now, or with what is logged in a moment."""
        if not self._active:
            return None
        with self._safely(), self._timed("record"):
            self._flush()
            self._held = self._made(state) if self._main else None
            if not getattr(control, "should_log", False):
                self._flush()
        return self._judge(state, control)

    def on_log(
        self,
        args: Any,  # noqa: ARG002
        state: Any,
        control: Any,  # noqa: ARG002
        logs: JsonView | None = None,
        **_: Any,
    ) -> None:
        """Add what the trainer logs to the row of its step."""
        if not self._active or not self._main or not logs or "train_runtime" in logs:
            return
        with self._safely(), self._timed("record"):
            self._add(logs, int(state.global_step))

    def _add(self, logs: JsonView, step: int) -> None:
        """Add what is logged to the row of its step."""
        entry = self._held or self._last
        if entry is None or entry[0]["step"] != step:
            return
        row, rollouts = entry
        # means over all steps since it logged last: not this step's
        means = self._metrics.means() if self._since_log > 1 else set()
        fresh = apart({key: value for key, value in logs.items() if key not in {*row, *means}})
        new = {
            key: float(value)
            for key, value in fresh.items()
            if isinstance(value, int | float) and key not in row
        }
        self._held = ({**row, **new}, rollouts) if new or self._held else None
        self._flush()
        if not any(str(key).startswith("eval_") for key in logs):
            self._metrics.logged()
            self._since_log = 0

    def on_save(self, *_: Any, **__: Any) -> None:
        """Write what is held back: a resumed run goes on from here."""
        with self._safely():
            self._flush()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Close the record, put the trainer back, and say what recording cost."""
        if not self._active:
            return
        with self._safely():
            self._let_go()
        if self.recorder:
            missing = len(self.recorder.rows) - self.recorder.written
            lost = f", {missing} are not" if missing else ""
            self._say(
                f"{self.recorder.written} steps are recorded in {self.recorder.folder}{lost}; "
                f"{self.cost()}"
            )

    # What it does

    def cost(self) -> str:
        """Return what recording and judging cost, as shares of the other training time."""
        own = self.record_seconds + self.check_seconds
        rest = max(time.perf_counter() - self._started - own, 1e-9)
        steps = max(self._steps_seen, 1)
        words = (
            f"recording takes {self.record_seconds / rest:.2%} of the step time "
            f"({1000 * self.record_seconds / steps:.1f} ms a step)"
        )
        if self.check_seconds:
            words += f", the checks {self.check_seconds / rest:.1%}"
        return words

    def _opened(self, state: Any) -> Recorder | None:
        """Open the record, or one beside it; None where nothing can be written."""
        folder = self.folder.absolute()
        make = partial(
            Recorder,
            name=str(getattr(self.trainer.args, "run_name", "") or folder.parent.name),
            config=_trainer_config(self.trainer),
            meanings_of=partial(step_meanings, framework="trl"),
            recent=RECENT if self._checks.on else 0,
            say=self._say,
        )
        identity = identity_of(self.trainer, state, self.folder)
        recorder = opened(make, self.folder, int(state.global_step), self._say, identity)
        if recorder:
            keep_record(state, recorder.run["id"])
        return recorder

    def _take(self, output: Any) -> None:
        """Keep the rollouts of a generation."""
        self._sampled_at = int(self.trainer.state.global_step)
        with self._safely(), self._timed("record"):
            generation = self._watch.generation(output, texts=self._texts)
            if generation and self._main:
                self._generations.append(generation)

    def _made(self, state: Any) -> RecordedStep:
        """Return the row of the step that has ended, and its rollouts."""
        step = int(state.global_step)
        generations, self._generations = self._generations, []
        metrics = apart(self._metrics.of_step(), "learning_rate")
        generation = joined(generations) if generations else None
        row: JsonObject = {
            "step": step,
            "optimizer_updates": step,
            "tokens": getattr(state, "num_input_tokens_seen", None) or None,
            "seconds": self._first_seconds + time.perf_counter() - self._started,
            "learning_rate": self._learning_rate,
            "lag": max(step - 1 - self._sampled_at, 0),
        }
        row |= (generation.row() if generation else {}) | metrics
        self._count(row)
        return row, generation.rollouts() if generation else None

    def _count(self, row: JsonObject) -> None:
        """Add what the step cost to the sums."""
        self._steps_seen += 1
        self._since_log += 1
        self.record_seconds += self._in_step["record"]
        row |= {f"groupwise/{what}_seconds": seconds for what, seconds in self._in_step.items()}
        self._in_step = dict.fromkeys(self._in_step, 0.0)

    def _flush(self) -> None:
        """Write the row that is held."""
        if self._held and self.recorder:
            self.recorder.append(*self._held)
        self._last, self._held = self._held or self._last, None

    def _judge(self, state: Any, control: Any) -> Any:
        """Judge the run where it is time; all processes stop together."""
        step, stop = int(state.global_step), False
        if not self._checks.due(step):
            return None
        if (
            self._main
            and self.recorder
            and self._checks.affordable(time.perf_counter() - self._started)
        ):
            before = self._in_step["check"]
            with self._safely(), self._timed("check"):
                stop = self._checks.look(self._record_so_far(), step)
            self._checks.took(self._in_step["check"] - before)
        if self.stop_on and processes(self.trainer) > 1:
            stop = any(gathered(self.trainer, [stop]))
        if stop:
            self._say(
                f"training stops after step {step}, as requested with stop_on={self.stop_on!r}"
            )
            control.should_training_stop = True
        return control

    def _record_so_far(self) -> Any:
        """Return the steps so far, the one that is held included."""
        assert self.recorder
        self._flush()
        return self.recorder.snapshot()


def _check_options(record: Any, check_every: Any) -> None:
    """Refuse arguments of another kind, and an interval that is no number of steps."""
    if record == "" or not isinstance(record, str | PathLike | None):
        raise InvalidArgumentError(
            f"expected a folder for record, got {str(record)[:40]!r}: give its path"
        )
    if check_every is not None and (not isinstance(check_every, int) or check_every < 0):
        raise InvalidArgumentError(
            "expected a whole number of steps for check_every, 0 for none, got "
            f"{check_every!r}: give it in steps"
        )
