"""The command `groupwise-lab train`: GRPO on a task whose truth is known or a user's own,
written as a record as it goes.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import signal
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import typer

from groupwise.cli.app import (
    Show,
    pairs,
    print_json,
    print_lines,
    progress,
)
from groupwise.errors import (
    InsufficientDataError,
    InvalidArgumentError,
    UnreadableRunError,
    check_installed,
    first_line,
)
from groupwise.files import first_bytes
from groupwise.parsing import JsonObject, JsonView
from groupwise.plain import frozen

if TYPE_CHECKING:
    from groupwise.record.run import RunRecord
    from groupwise_lab.trainer.folder import RunFolder
    from groupwise_lab.trainer.settings import TrainSettings
    from groupwise_lab.trainer.tasks import Task

DONE, INTERRUPTED = 0, 130
_WARM = 0.2
_LARGEST_FILE = 2**20
_SETTINGS = {  # of language models alone, and of one kind of task alone
    "model": (
        "lora",
        "chat_template",
        "max_completion_length",
        "gradient_checkpointing",
        "memory_limit",
    ),
    "symbols": ("level", "format_reward", "proxy_bonus", "failing_from", "failing_share"),
    "words": ("examples", "verifier", "file"),
    "file": ("prompt_column", "answer_column", "reward", "reward_limit"),
}


@frozen
class Start:
    """What a run begins with, and where it runs."""

    level: int | None = None  # difficulty of the task; its own where None
    problems: int = 10_000  # at most so many, held-out ones included
    format_reward: bool = False  # reward form too; the total is in [0, 2]
    proxy_bonus: float | None = None  # train on a proxy reward that can be hacked
    failing_from: int | None = None  # step from which the verifier fails: completions get 0
    failing_share: float = 1.0  # of completions that get 0 from there on
    examples: int = 0  # worked examples before a question in words
    verifier: str = "strict"  # which of the two of a task in words is trained on
    file: Path | None = None  # of the questions, where a task in words reads them
    data: Path | None = None  # of a task of the user's own, in the place of a name
    prompt_column: str = "prompt"  # of its file
    answer_column: str = "answer"  # of its file
    reward: str | None = None  # of its completions: exact, number, math_verify or MODULE:FUNCTION
    reward_limit: float = 60.0  # seconds of one call of a function
    size: str = "small"  # of a new policy
    checkpoint: Path | None = None  # of a policy to start from
    model: Path | None = None  # folder of a language model in its place
    warm_up: float | None = None  # probability of the right answer to teach first; 0 for none
    cache: Path | None = None  # folder of warm-ups; the user's own where None
    lora: int | None = None  # rank of a new LoRA adapter on it; all weights are trained where None
    chat_template: bool = (
        False  # put a prompt that is a text into the model's chat template, as the user's
    )
    max_completion_length: int | None = (
        None  # tokens, of a language model; the task's own where None
    )
    gradient_checkpointing: bool = (
        False  # run the layers again in the backward pass: less memory, more time
    )
    memory_limit: float = 4.0  # GB of one pass of a language model, its weights apart
    start_seed: int = 0  # of the task, the initial weights and the warm-up
    device: str = "auto"  # as torch names it, or auto
    threads: int = 1  # of torch on a CPU

    def __post_init__(self) -> None:
        """Refuse two policies, and no thread."""
        if self.model and self.checkpoint:
            raise InvalidArgumentError(
                "--checkpoint expects no --model beside it; got both: name one policy to start from"
            )
        if self.model is None:
            for name in self.given_of("model"):
                raise InvalidArgumentError(
                    f"{name} expects --model, the folder of a language model; got none: name one, "
                    "or leave it out"
                )
        if self.max_completion_length is not None and self.max_completion_length < 1:
            raise InvalidArgumentError(
                f"expected max_completion_length to be at least 1; got {self.max_completion_length}"
            )
        if not self.memory_limit > 0:
            raise InvalidArgumentError(
                f"expected memory_limit to be above 0; got {self.memory_limit}"
            )
        if self.threads < 1:
            raise InvalidArgumentError(
                f"expected threads to be a whole number of at least 1; got {self.threads}"
            )

    def given_of(self, kind: str) -> list[str]:
        """The settings of one kind alone that are not as they are by default."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        return [name for name in _SETTINGS[kind] if getattr(self, name) != defaults[name]]

    @property
    def given(self) -> str | None:
        """The option that gives the weights, or None for a new policy."""
        return "--model" if self.model else "--checkpoint" if self.checkpoint else None

    @property
    def warm_target(self) -> float:
        """The probability of the right answer to teach first."""
        if self.warm_up is not None:
            return self.warm_up
        return 0.0 if self.given else _WARM


def train(
    task: str | None = None,
    *,
    output: Path,
    settings: Path | None = None,
    overrides: list[str] | None = None,
    data: Path | None = None,
    prompt_column: str | None = None,
    answer_column: str | None = None,
    reward: str | None = None,
    level: int | None = None,
    failing_from: int | None = None,
    size: str | None = None,
    checkpoint: Path | None = None,
    model: Path | None = None,
    lora: int | None = None,
    chat_template: bool | None = None,
    max_completion_length: int | None = None,
    group_size: int | None = None,
    rollouts_per_step: int | None = None,
    steps: int | None = None,
    learning_rate: float | None = None,
    advantage: str | None = None,
    seed: int | None = None,
    device: str | None = None,
    resume: bool = False,
    force: bool = False,
    as_json: bool = False,
) -> int:
    """Train a small policy on a task whose truth is known, or a language model on your prompts,
    by GRPO; the run is a record.
    """
    if resume and force:
        raise InvalidArgumentError(
            "--force expects a run that is to be replaced; got --resume too, which goes on with "
            "it: name one"
        )
    typed = {
        "data": data,
        "prompt_column": prompt_column,
        "answer_column": answer_column,
        "reward": reward,
        "level": level,
        "failing_from": failing_from,
        "size": size,
        "checkpoint": checkpoint,
        "model": model,
        "lora": lora,
        "chat_template": chat_template,
        "max_completion_length": max_completion_length,
        "group_size": group_size,
        "steps": steps,
        "rollouts_per_step": rollouts_per_step,
        "learning_rate": learning_rate,
        "advantage": advantage,
        "seed": seed,
        "device": device,
    }
    wanted = wanted_of(
        settings,
        overrides or (),
        {name: value for name, value in typed.items() if value is not None},
    )
    check_installed("torch", "safetensors", what="training")
    start, chosen = settings_of(wanted)
    problem = task_of(task, start)
    chosen.check_pool(len(problem.train))
    return _train(start, problem, chosen, output, resume=resume, force=force, as_json=as_json)


def task_of(name: str | None, start: Start) -> Task:
    """Build the task of a name or of a file; refuse settings that are another kind of task's."""
    if (name is None) == (start.data is None):
        came = "none" if name is None else f"{name} and {start.data}"
        raise InvalidArgumentError(f"train expects a TASK or --data FILE, one of them; got {came}")
    from groupwise_lab.trainer.file_task import is_text_task

    kind = "file" if name is None else "words" if is_text_task(name) else "symbols"
    for setting in (
        setting
        for other in _SETTINGS
        if other not in {kind, "model"}
        for setting in start.given_of(other)
    ):
        raise InvalidArgumentError(f"{name or start.data} has no setting {setting}: leave it out")
    if kind != "symbols" and start.model is None:
        raise InvalidArgumentError(
            f"{name or start.data} is asked in words, which a new policy cannot read: name a "
            "language model with --model FOLDER"
        )
    wanted: JsonObject = {setting: getattr(start, setting) for setting in _SETTINGS[kind]}
    wanted |= {"problems": start.problems, "seed": start.start_seed}
    if name is None:
        return _own_task(start, wanted)
    if kind == "words":
        from groupwise_lab.trainer.text_tasks import make_text_task

        return make_text_task(name, **wanted)
    from groupwise_lab.trainer.tasks import make_task

    return make_task(name, **wanted)


def _own_task(start: Start, wanted: JsonView) -> Task:
    """Build the task of a user's file."""
    from groupwise_lab.trainer.file_task import make_file_task

    assert start.data is not None
    if start.data.exists() and not first_bytes(start.data, 1):
        raise InvalidArgumentError(
            f"expected a file of prompts, got {start.data}, which is empty or no file: name another"
        )
    if start.reward is None:
        raise InvalidArgumentError(
            "--data expects --reward, got none: name exact, number, math_verify, or a function as "
            "MODULE:FUNCTION"
        )
    return make_file_task(start.data, **wanted)


def _train(
    start: Start,
    task: Task,
    chosen: TrainSettings,
    output: Path,
    *,
    resume: bool,
    force: bool,
    as_json: bool,
) -> int:
    """Train and print what came of it."""
    from groupwise_lab.trainer.grpo import train

    held_out = ""
    with progress(quiet=as_json) as show, _stopping() as stopped:

        def report(step: int, row: Mapping[str, float | None]) -> bool:
            nonlocal held_out
            reward, evaluated = row.get("reward"), row.get("eval/reward")
            held_out = held_out if evaluated is None else f", held out {evaluated:.3f}"
            show(
                f"reward {'...' if reward is None else f'{reward:.3f}'}{held_out}",
                step,
                chosen.steps,
            )
            return bool(stopped)

        actor, task, chosen, folder = prepared(start, task, chosen, output, show)
        folder.check(resume=resume, force=force)
        before = folder.latest_step() if resume else None
        if before is None and not _warmed(actor, start, task, show, stopped):
            typer.echo(
                "Stopped while warming up: nothing is kept; the same command begins anew.", err=True
            )
            return INTERRUPTED
        record = train(
            actor, task, chosen, output=folder, resume=resume, force=force, on_step=report
        )
    _check_rewarded(record, chosen, before)
    missing, rollouts = getattr(task.verifier, "missing", 0), getattr(task.verifier, "asked", 0)
    if missing:
        typer.echo(
            f"{missing:,} of {rollouts:,} rollouts had no reward: they counted for nothing.",
            err=True,
        )
    if before == chosen.steps:
        typer.echo(
            f"The run in {output} had done its {before} steps already: nothing was trained.",
            err=True,
        )
    return _summary(record, output, chosen.steps, as_json=as_json)


def prepared(
    start: Start, task: Task, chosen: TrainSettings, output: Path, show: Show
) -> tuple[Any, Task, TrainSettings, RunFolder]:
    """Return the policy, the task and the settings that fit it, and the folder of the run."""
    import torch

    from groupwise_lab.trainer.file_task import readable_by
    from groupwise_lab.trainer.folder import RunFolder

    torch.set_num_threads(start.threads)
    if start.max_completion_length is not None:
        task = dataclasses.replace(task, completion_length=start.max_completion_length)
    actor = _actor(start, task, chosen, show)
    task, chosen = _fitted(actor, readable_by(actor, task), chosen)
    return actor, task, chosen, RunFolder(output, chosen, task, actor, start=_begun(start, actor))


def _check_rewarded(record: RunRecord, chosen: TrainSettings, before: int | None) -> None:
    """Refuse a run that had no reward in any step that was made now, or in none at all where it
    was done already.
    """
    done, begun = int(record.steps["step"][-1]), before or 0
    made = record.steps.filter(record.steps["step"] > (begun if begun < done else 0))["reward"]
    if made.null_count() < len(made):
        return
    more = f" --steps {done + len(made)}" if done == chosen.steps else ""
    how = (
        "begin anew with --force"
        if more and chosen.schedule != "constant"
        else f"go on with --resume{more}"
    )
    rollouts = len(made) * chosen.rollouts_per_step
    raise InsufficientDataError(
        f"expected rewards, got none for all {rollouts:,} rollouts: nothing was learnt; mend what "
        f"judges them and {how}"
    )


def wanted_of(file: Path | None, overrides: Sequence[str], typed: JsonView) -> JsonObject:
    """Put settings together: those of a file, over them KEY=VALUE texts, over them the options."""
    wanted: JsonObject = {} if file is None else settings_in(file)
    for key, text in pairs("--set", "KEY=VALUE", overrides).items():
        *above, name = key.split(".")
        inner = wanted
        for part in above:
            inner[part] = dict(inner[part]) if isinstance(inner.get(part), Mapping) else {}
            inner = inner[part]
        try:
            inner[name] = json.loads(text)
        except ValueError:
            inner[name] = text
    return {**wanted, **typed}


def settings_in(path: Path) -> JsonObject:
    """Read a file of settings."""
    import yaml

    try:
        content = first_bytes(path, _LARGEST_FILE + 1)
        if content is None or len(content) > _LARGEST_FILE:
            came = "what is no file" if content is None else f"{path.stat().st_size:,} bytes"
            raise UnreadableRunError(f"expected settings in {path}, got {came}: name another file")
        values = yaml.safe_load(content.decode())  # JSON is YAML too
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        raise UnreadableRunError(
            f"expected settings as YAML or JSON in {path}, got something else: write one KEY: "
            "VALUE a line"
        ) from None
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise UnreadableRunError(
            f"expected settings by name in {path}, got none: write one KEY: VALUE a line"
        )
    return values


def settings_of(wanted: JsonView) -> tuple[Start, TrainSettings]:
    """Sort settings into those of the start and those of the training."""
    from groupwise_lab.trainer.settings import TrainSettings

    types = get_type_hints(Start)
    names = [*types, *(field.name for field in dataclasses.fields(TrainSettings))]
    for name in wanted:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            raise InvalidArgumentError(
                f"expected a setting, got {name[:60]!r}: "
                + (f"write {near[0]}" if near else f"use one of {', '.join(names)}")
            )
    start = Start(
        **{
            name: _typed(name, value, types[name])
            for name, value in wanted.items()
            if name in types
        }
    )
    training = {name: value for name, value in wanted.items() if name not in types}
    if "lag_kind" not in training and training.get("refresh_interval", 1) != 1:
        training["lag_kind"] = "refresh"
    if training.get("precision", "auto") == "auto":
        training["precision"] = "bfloat16" if _device(start.device) == "cuda" else "float32"
    return start, TrainSettings.from_mapping(training)


def _typed(name: str, value: Any, hint: Any) -> Any:
    """Return a setting of the start as its type wants it, or refuse it."""
    kinds = get_args(hint) or (hint,)
    if type(value) in kinds:
        return value
    if Path in kinds and isinstance(value, str | Path):
        return Path(value)
    if float in kinds and type(value) in {int, str}:
        with suppress(ValueError):
            return float(value)  # YAML takes 1e-3 for text
    words = {
        int: "a whole number",
        float: "a number",
        str: "a name",
        bool: "true or false",
        Path: "a path",
        type(None): "null",
    }
    raise InvalidArgumentError(
        f"expected {name} to be {' or '.join(words[kind] for kind in kinds)}; got "
        f"{str(value)[:60]!r}"
    )


def _begun(start: Start, actor: Any) -> dict[str, str | float | None]:
    """Return what the policy is at the start: a run goes on with the same alone.

    Of weights from a folder their checksum, not its path.
    """
    checksum = 0
    for parameter in actor.parameters() if start.given else ():
        checksum = zlib.crc32(
            parameter.detach().float().cpu().contiguous().numpy().tobytes(), checksum
        )
    return {
        "lora": start.lora,
        "chat_template": float(start.chat_template) or None,
        "completion_length": start.max_completion_length,
        "size": None if start.model else start.size,
        "weights": f"of {start.given} ({checksum:08x})" if start.given else "of a new policy",
        "warm_up": start.warm_target,
        "start_seed": start.start_seed,
    }


def _device(wanted: str) -> str:
    """Return the device; a GPU where one is there."""
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=wanted)
    except (RuntimeError, AssertionError) as error:
        reason = first_line(error)
        raise InvalidArgumentError(
            f"--device expects a device of this machine, as cpu or cuda; got {wanted!r} ({reason})"
        ) from None
    return wanted


def _fitted(actor: Any, task: Task, chosen: TrainSettings) -> tuple[Task, TrainSettings]:
    """Leave out what a language model's context does not hold; let it read at once what its
    memory holds, where nobody has said.
    """
    from groupwise_lab.trainer.file_task import within_context
    from groupwise_lab.trainer.language_policy import LanguagePolicy

    if not isinstance(actor, LanguagePolicy):
        return task, chosen
    task, tokens, where = within_context(actor, task)
    if chosen.micro_batch is not None:
        return task, chosen
    # Of held-out prompts nothing is kept for a gradient.
    most = actor.rollouts_of_a_pass(chosen.group_size, tokens, task.completion_length, where=where)
    return task, chosen if most >= chosen.rollouts_per_step else dataclasses.replace(
        chosen, micro_batch=most
    )


def _actor(start: Start, task: Task, chosen: TrainSettings, show: Show) -> Any:
    """Return the policy that is to be trained, before any warm-up."""
    from groupwise.gradients.language_models import TRAINED, load_language_model, load_reader
    from groupwise_lab.trainer.checkpoints import load_policy
    from groupwise_lab.trainer.tasks import LONGEST_SEQUENCE

    device = _device(start.device)
    if start.model:
        from groupwise_lab.trainer.language_policy import LanguagePolicy, with_new_adapter

        if start.chat_template and load_reader(start.model).tokenizer.chat_template is None:
            raise InvalidArgumentError(
                "--chat-template expects a tokenizer with a chat template, got none in "
                f"{start.model}: leave it out"
            )
        show("loading the model", 0, 1)
        # Weights that stay as they are may be rounded; those that are trained are kept in single
        # precision.
        whole = start.lora is None
        frozen = chosen.precision == "bfloat16" and not whole
        # SGD has one moment; the policy at the start is kept beside for a KL term.
        trained = TRAINED - 4 * (chosen.optimizer == "sgd") + 4 * bool(chosen.kl_weight)
        loaded = load_language_model(
            start.model,
            device=device,
            precision="bfloat16" if frozen else "float32",
            trained=trained if whole else 0,
        )
        if start.lora is not None:
            loaded = with_new_adapter(loaded, start.lora, start.start_seed)
        memory = start.memory_limit * 1e9
        return LanguagePolicy(
            loaded,
            chat=start.chat_template,
            checkpointing=start.gradient_checkpointing,
            memory_limit=memory,
        )
    from groupwise_lab.trainer.policy import Policy, policy_size

    size = policy_size(start.size)
    if start.checkpoint:
        return load_policy(
            start.checkpoint, size=size, vocabulary_size=len(task.vocabulary), device=device
        )
    return Policy(
        size, vocabulary_size=len(task.vocabulary), context=LONGEST_SEQUENCE, seed=start.start_seed
    ).to(device)


class _Stopped(Exception):  # noqa: N818 - no error: somebody typed Ctrl-C
    """The warm-up was interrupted."""


def _warmed(actor: Any, start: Start, task: Task, show: Show, stopped: list[bool]) -> bool:
    """Warm a new policy up; return whether that came to its end."""
    from groupwise_lab.trainer.policy import Policy
    from groupwise_lab.trainer.warm_up import default_cache, warm_up

    target = start.warm_target
    if not target:
        return True
    if not isinstance(actor, Policy):
        raise InvalidArgumentError(
            "warm_up expects a policy of groupwise, got --model: fine-tune a language model "
            "before, and leave it out"
        )
    cache = start.cache or default_cache()

    def report(step: int, reached: float) -> None:
        show(
            f"warming up (once): right with probability {reached:.3f}, step {step}",
            round(100 * reached / target),
            100,
        )
        if stopped:
            raise _Stopped

    try:
        warm_up(actor, task, accuracy=target, seed=start.start_seed, cache=cache, on_step=report)
    except _Stopped:
        return False
    return True


@contextmanager
def _stopping() -> Iterator[list[bool]]:
    """Turn the first Ctrl-C into a wish that the run ends after its step; the second one is as
    ever.
    """
    stopped: list[bool] = []

    def ask(_number: int, _frame: FrameType | None) -> None:
        stopped.append(True)
        signal.signal(signal.SIGINT, before)

    try:
        before = signal.signal(signal.SIGINT, ask)
    except ValueError:  # not in the main thread: nobody types there
        yield stopped
        return
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)


def _summary(record: RunRecord, output: Path, steps: int, *, as_json: bool) -> int:
    """Print what the record says of the run and how to go on."""
    from groupwise_lab.trainer.rows import idle_since

    done = int(record.steps["step"][-1])
    code = DONE if done >= steps else INTERRUPTED
    last = record.steps.tail(20)
    reward = last["reward"].mean()
    evaluated = (
        record.steps["eval/reward"].drop_nulls() if "eval/reward" in record.steps.columns else None
    )
    held_out = float(evaluated[-1]) if evaluated is not None and len(evaluated) else None
    seconds = float(record.steps["seconds"][-1])
    idle = idle_since(record.steps)
    if as_json:
        summary = {
            "folder": str(output),
            "steps": done,
            "of": steps,
            "reward": reward,
            "held_out": held_out,
            "seconds": seconds,
            "idle_since": idle,
        }
        print_json(summary)
        return code
    sentence = (
        f"reward {reward:.3f} over the last {len(last)} steps"
        if isinstance(reward, float)
        else "no reward"
    )
    sentence += "" if held_out is None else f", {held_out:.3f} on held-out problems"
    lines = [f"{done} of {steps} steps in {seconds:.0f} s: {sentence}", *_decisions(output)]
    if idle is not None:
        lines.append(
            f"From step {idle} to the end no two rollouts of a group differed in reward: nothing "
            "was learned there."
        )
    if code == DONE:
        lines.append(f"The run is in {output}; groupwise report {output} says what it did.")
    else:
        lines.append(f"Stopped; the same command with --resume goes on from step {done}.")
    print_lines(*lines)
    return code


def _decisions(output: Path) -> list[str]:
    """Return what was decided of the group size, the last few times that it was to change and
    the last word.
    """
    from groupwise_lab.trainer.folder import DECISIONS

    path = output / DECISIONS
    if not path.is_file():
        return []
    entries = json.loads(path.read_text(encoding="utf-8"))
    wanted = [
        entry
        for entry in entries
        if entry["group_size"] != entry.get("present", entry["group_size"])
    ][-5:]
    shown = [*wanted, *(entries[-1:] if entries[-1:] != wanted[-1:] else [])]
    return [
        (
            f"Group size{', advised,' if entry.get('mode') == 'advise' else ''} after step "
            f"{entry['step']}: {entry['reason']}"
        )
        for entry in shown
    ]
