"""The command `groupwise train`: GRPO on a task whose truth is known, live on this machine, written as a record as it goes.

Options become settings, progress goes to standard error, and an interruption ends the run with a checkpoint. The training itself is in
`groupwise.trainer.grpo`.
"""

from __future__ import annotations

import signal
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupwise.errors import GroupwiseError, InvalidArgumentError

if TYPE_CHECKING:
    from groupwise.record.run import RunRecord
    from groupwise.trainer.settings import AdaptiveSettings
    from groupwise.trainer.tasks import Task

INTERRUPTED = 130
_WARM = 0.2
_EVERY, _BOUNDS, _GAIN = 25, "2-", 0.05
Show = Callable[[str, int, int], None]


def _option(name: str, metavar: str, help_: str, *more: str) -> Any:
    """Return one option of the command."""
    return typer.Option(name, *more, metavar=metavar or None, help=help_)


@dataclass(frozen=True, slots=True)
class Start:
    """What is trained, and where."""

    size: str  # of a new policy
    checkpoint: Path | None  # of a policy to start from, or None
    model: Path | None  # folder of a language model in its place, or None
    warm_up: float | None  # probability of the right answer to teach first; 0 for none
    cache: Path | None  # folder of warm-ups, or None for the user's own
    device: str  # as torch names it, or auto
    seed: int  # of the initial weights and the warm-up


def run(
    name: str,
    start: Start,
    knobs: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    output: Path,
    resume: bool,
    force: bool,
    threads: int,
    as_json: bool,
) -> int:
    """Train and print what came of it."""
    from importlib.util import find_spec

    if find_spec("torch") is None or find_spec("safetensors") is None:
        raise GroupwiseError("training needs torch and safetensors: pip install 'groupwise[train]'")
    from groupwise.trainer.settings import TrainSettings
    from groupwise.trainer.tasks import make_task

    device = _device(start.device)
    precision = settings["precision"]
    chosen = TrainSettings(
        **{**settings, "precision": ("bfloat16" if device == "cuda" else "float32") if precision == "auto" else precision}
    )
    task = make_task(name, **knobs)
    chosen.check_pool(len(task.train))
    if threads < 1:
        raise InvalidArgumentError(f"--threads expects a whole number of at least 1; got {threads}")
    import torch

    torch.set_num_threads(threads)
    from groupwise.trainer.folder import RunFolder
    from groupwise.trainer.grpo import train

    with _progress(quiet=as_json) as show, _stopping() as stopped:
        actor: Any = _actor(start, task, device, show)
        begun = _begun(start, actor)
        folder = RunFolder(output, chosen, task, actor)
        folder.check(resume=resume, force=force)
        before = folder.latest_step() if resume else None
        if before is None and not _warmed(actor, start, task, show, stopped):
            typer.echo("Stopped while warming up: nothing is kept; the same command begins anew.", err=True)
            return INTERRUPTED
        record = train(
            actor,
            task,
            chosen,
            output=output,
            resume=resume,
            force=force,
            on_step=lambda step, row: show(_live(row), step, chosen.steps),
            should_stop=lambda: bool(stopped),
            start=begun,
        )
    if before == chosen.steps:
        typer.echo(f"The run in {output} had done its {before} steps already: nothing was trained.", err=True)
    return _told(record, output, chosen.steps, as_json=as_json)


def _begun(start: Start, actor: Any) -> dict[str, str | float | None]:
    """Return what the policy is at the start: a run goes on with the same alone. Of weights from a folder their checksum, not its path."""
    given = start.model is not None or start.checkpoint is not None
    checksum = 0
    for parameter in actor.parameters() if given else ():
        checksum = zlib.crc32(parameter.detach().float().cpu().contiguous().numpy().tobytes(), checksum)
    return {
        "size": None if start.model is not None else start.size,
        "weights": f"of --{'model' if start.model is not None else 'checkpoint'} ({checksum:08x})" if given else "of a new policy",
        "warm_up": _warm_target(start),
        "start_seed": start.seed,
    }


def _warm_target(start: Start) -> float:
    """Return the probability of the right answer to teach first."""
    if start.warm_up is not None:
        return start.warm_up
    return 0.0 if start.model is not None or start.checkpoint is not None else _WARM


def _device(wanted: str) -> str:
    """Return the device; a GPU where one is there."""
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=wanted)
    except (RuntimeError, AssertionError) as error:
        reason = (str(error).strip().splitlines() or ["none"])[0][:100]
        raise InvalidArgumentError(f"--device expects a device of this machine, as cpu or cuda; got {wanted!r} ({reason})") from None
    return wanted


def _actor(start: Start, task: Task, device: str, show: Show) -> Any:
    """Return the policy that is to be trained, before any warm-up."""
    if start.model is not None:
        from groupwise.scores.language_models import load_language_model
        from groupwise.trainer.language_policy import LanguagePolicy

        show("loading the model", 0, 1)
        return LanguagePolicy(load_language_model(start.model, device=device))
    from groupwise.trainer.checkpoints import load_policy
    from groupwise.trainer.policy import Policy, policy_size

    size = policy_size(start.size)
    if start.checkpoint is not None:
        return load_policy(start.checkpoint, size=size, vocabulary_size=len(task.vocabulary), device=device)
    from groupwise.trainer.tasks import LONGEST_SEQUENCE

    return Policy(size, vocabulary_size=len(task.vocabulary), context=LONGEST_SEQUENCE, seed=start.seed).to(device)


class _Stopped(Exception):  # noqa: N818 - no error: somebody typed Ctrl-C
    """The warm-up was interrupted."""


def _warmed(actor: Any, start: Start, task: Task, show: Show, stopped: list[bool]) -> bool:
    """Warm a new policy up; return whether that came to its end."""
    from groupwise.trainer.policy import Policy
    from groupwise.trainer.warm_up import default_cache, warm_up

    target = _warm_target(start)
    if not target:
        return True
    if not isinstance(actor, Policy):
        raise InvalidArgumentError(
            "--warm-up expects a policy of groupwise, got --model: fine-tune a language model before, and leave it out"
        )
    cache = default_cache() if start.cache is None else start.cache

    def told(step: int, reached: float) -> None:
        show(f"warming up (once): right with probability {reached:.3f}, step {step}", round(100 * reached / target), 100)
        if stopped:
            raise _Stopped

    try:
        warm_up(actor, task, accuracy=target, seed=start.seed, cache=cache, on_step=told)
    except _Stopped:
        return False
    return True


def _live(row: Mapping[str, float | None]) -> str:
    """Return the line of a step."""
    reward = row.get("reward")
    held_out = row.get("eval/reward")
    said = "reward ..." if reward is None else f"reward {reward:.3f}"
    return said + ("" if held_out is None else f", held out {held_out:.3f}")


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Show]:
    """Show on standard error what goes on; the held-out reward stays until the next one comes."""
    if quiet or not sys.stderr.isatty():
        yield lambda _said, _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        kept = ""

        def show(said: str, done: int, total: int) -> None:
            nonlocal kept
            first, _, held_out = said.partition(", held out ")
            kept = held_out or kept
            bar.update(
                task, completed=done, total=total, description=first + (f", held out {kept}" if kept and first.startswith("reward") else "")
            )

        yield show


@contextmanager
def _stopping() -> Iterator[list[bool]]:
    """Turn the first Ctrl-C into a wish that the run ends after its step; the second one is as ever."""
    asked: list[bool] = []

    def ask(_number: int, _frame: FrameType | None) -> None:
        asked.append(True)
        signal.signal(signal.SIGINT, before)

    try:
        before = signal.signal(signal.SIGINT, ask)
    except ValueError:  # not in the main thread: nobody types there
        yield asked
        return
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def _told(record: RunRecord, output: Path, steps: int, *, as_json: bool) -> int:
    """Print what the record says of the run and how to go on."""
    from groupwise.cli.options import out_console, print_json
    from groupwise.trainer.rows import idle_since

    done = int(record.steps["step"][-1])
    last = record.steps.tail(20)
    reward = last["reward"].mean()
    evaluated = record.steps["eval/reward"].drop_nulls() if "eval/reward" in record.steps.columns else None
    held_out = float(evaluated[-1]) if evaluated is not None and len(evaluated) else None
    seconds = float(record.steps["seconds"][-1])
    idle = idle_since(record.steps)
    summary = {"folder": str(output), "steps": done, "of": steps, "reward": reward, "held_out": held_out, "seconds": seconds}
    summary |= {"idle_since": idle}
    if as_json:
        print_json(summary)
        return 0 if done >= steps else INTERRUPTED
    console = out_console()
    said = f"reward {reward:.3f} over the last {len(last)} steps" if isinstance(reward, float) else "no reward"
    said += "" if held_out is None else f", {held_out:.3f} on held-out problems"
    console.print(f"{done} of {steps} steps in {seconds:.0f} s: {said}", markup=False, highlight=False)
    for line in _decisions(output):
        console.print(line, markup=False, highlight=False)
    if idle is not None:
        console.print(
            f"From step {idle} to the end no two rollouts of a group differed in reward: nothing was learned there.",
            markup=False,
            highlight=False,
        )
    if done < steps:
        console.print(f"Stopped; the same command with --resume goes on from step {done}.", markup=False, highlight=False)
        return INTERRUPTED
    console.print(f"The run is in {output}; groupwise report {output} says what it did.", markup=False, highlight=False)
    return 0


def _decisions(output: Path) -> list[str]:
    """Return what was decided of the group size, the last few times that it was to change and the last word."""
    import json

    from groupwise.trainer.folder import DECISIONS

    path = output / DECISIONS
    if not path.is_file():
        return []
    entries = json.loads(path.read_text(encoding="utf-8"))
    wanted = [entry for entry in entries if entry["group_size"] != entry.get("present", entry["group_size"])][-5:]
    told = [*wanted, *(entries[-1:] if entries[-1:] != wanted[-1:] else [])]
    return [
        f"Group size{', advised,' if entry.get('mode') == 'advise' else ''} after step {entry['step']}: {entry['reason']}" for entry in told
    ]


def _typed(given: Mapping[str, Any]) -> int:
    """Sort what was typed into what it is for, and run."""
    from dataclasses import fields

    from groupwise.trainer.settings import TrainSettings

    _check_effect(given)
    settings = {field.name: given[field.name] for field in fields(TrainSettings) if field.name in given}
    lag_kind = given["lag_kind"] or ("none" if given["refresh_interval"] == 1 else "refresh")
    settings |= {"clip": given["clip"] or None, "lag_kind": lag_kind, "adaptive": _adaptive(given)}
    start = Start(*(given[name] for name in ("size", "checkpoint", "model", "warm_up", "cache", "device", "start_seed")))
    knobs = {name: given[name] for name in ("level", "problems", "format_reward", "proxy_bonus")} | {"seed": given["start_seed"]}
    how = {name: given[name] for name in ("output", "resume", "force", "threads", "as_json")}
    return run(given["task"], start, knobs, settings, **how)


def _check_effect(given: Mapping[str, Any]) -> None:
    """Refuse options that would change nothing beside the others."""
    for name, default in (("adaptive_every", _EVERY), ("adaptive_bounds", _BOUNDS), ("adaptive_threshold", _GAIN)):
        if given["adaptive_group_size"] == "off" and given[name] != default:
            raise InvalidArgumentError(f"--{name.replace('_', '-')} expects --adaptive-group-size advise or act; got off: name one")
    if given["model"] is not None and given["checkpoint"] is not None:
        raise InvalidArgumentError("--checkpoint expects no --model beside it; got both: name one policy to start from")
    if given["resume"] and given["force"]:
        raise InvalidArgumentError("--force expects a run that is to be replaced; got --resume too, which goes on with it: name one")


def _adaptive(given: Mapping[str, Any]) -> AdaptiveSettings | None:
    """Return how the group size follows what is measured, or None where it stays."""
    from groupwise.estimators.controller import ControllerRule
    from groupwise.trainer.settings import AdaptiveSettings

    if given["adaptive_group_size"] == "off":
        return None
    low, dash, high = given["adaptive_bounds"].partition("-")
    if not (dash and low.isdecimal() and (high.isdecimal() or not high)):
        raise InvalidArgumentError(f"--adaptive-bounds expects LOW-HIGH, as 2-64, or LOW-; got {given['adaptive_bounds'][:60]!r}")
    rule = ControllerRule(given["adaptive_threshold"], lowest=int(low), highest=int(high) if high else None)
    return AdaptiveSettings(given["adaptive_group_size"], given["adaptive_every"], rule=rule)


def train(
    task: Annotated[str, typer.Argument(metavar="TASK", help="addition, modular_addition, sorting, ...", show_default=False)],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Of the run.", show_default=False)],
    level: Annotated[int | None, _option("--level", "N", "Difficulty of the task; its own where not given.")] = None,
    problems: Annotated[int, _option("--problems", "P", "At most so many, held-out ones included.")] = 10_000,
    format_reward: Annotated[bool, _option("--format-reward", "", "Reward form too; the total is in [0, 2].")] = False,
    proxy_bonus: Annotated[float | None, _option("--proxy-bonus", "B", "Train on a proxy reward that can be hacked.")] = None,
    size: Annotated[str, _option("--size", "NAME", "Of the policy: tiny, small, medium or large.")] = "small",
    checkpoint: Annotated[Path | None, _option("--checkpoint", "FOLDER", "Start from this policy.")] = None,
    model: Annotated[Path | None, _option("--model", "FOLDER", "Train this Hugging Face language model or LoRA adapter.")] = None,
    warm_up: Annotated[float | None, _option("--warm-up", "P", "Teach until right with this probability; 0.2 for a new policy.")] = None,
    cache: Annotated[Path | None, _option("--cache", "FOLDER", "Of warm-ups; the user's cache where not given.")] = None,
    group_size: Annotated[int, _option("--group-size", "G", "Rollouts of a prompt.", "-G")] = 8,
    adaptive_group_size: Annotated[str, _option("--adaptive-group-size", "MODE", "off, advise, or act on measured components.")] = "off",
    adaptive_every: Annotated[int, _option("--adaptive-every", "T", "Steps between measurements.")] = _EVERY,
    adaptive_bounds: Annotated[str, _option("--adaptive-bounds", "LOW-HIGH", "Group sizes to choose from; the largest is N.")] = _BOUNDS,
    adaptive_threshold: Annotated[float, _option("--adaptive-threshold", "E", "Share of error that a change must surely gain.")] = _GAIN,
    rollouts_per_step: Annotated[int, _option("--rollouts-per-step", "N", "Of one update; N/G prompts.", "-N")] = 512,
    steps: Annotated[int, _option("--steps", "T", "Optimiser updates.")] = 600,
    advantage: Annotated[str, _option("--advantage", "NAME", "Of docs/advantages.md, or trl/grpo.")] = "leave_one_out",
    advantage_value: Annotated[float | None, _option("--advantage-value", "C", "Number of the advantage constant.")] = None,
    optimizer: Annotated[str, _option("--optimizer", "NAME", "sgd, adam or adamw.")] = "adam",
    learning_rate: Annotated[float, _option("--learning-rate", "E", "Per update.")] = 5e-4,
    schedule: Annotated[str, _option("--schedule", "NAME", "constant, linear or cosine.")] = "constant",
    ramp_steps: Annotated[int, _option("--ramp-steps", "T", "Updates of the rise from 0.")] = 0,
    momentum: Annotated[float, _option("--momentum", "M", "Of sgd.")] = 0.0,
    beta1: Annotated[float, _option("--beta1", "B", "Of Adam.")] = 0.9,
    beta2: Annotated[float, _option("--beta2", "B", "Of Adam.")] = 0.999,
    epsilon: Annotated[float, _option("--epsilon", "E", "Of Adam.")] = 1e-8,
    weight_decay: Annotated[float, _option("--weight-decay", "W", "Of the parameters.")] = 0.0,
    gradient_clip: Annotated[float | None, _option("--gradient-clip", "C", "Largest norm of the gradient; any if not given.")] = None,
    importance_ratio: Annotated[str, _option("--importance-ratio", "KIND", "none, token, sequence or sequence_mean.")] = "token",
    clip: Annotated[float, _option("--clip", "EPS", "Of the ratio; 0 leaves it alone.")] = 0.2,
    clip_high: Annotated[float | None, _option("--clip-high", "EPS", "Above; as below where not given.")] = None,
    aggregation: Annotated[str, _option("--aggregation", "NAME", "sum, sequence_mean or batch_token_mean.")] = "sum",
    kl_weight: Annotated[float, _option("--kl-weight", "BETA", "Of the KL to the policy at the start.")] = 0.0,
    kl_in: Annotated[str, _option("--kl-in", "PLACE", "loss or reward.")] = "loss",
    kl_estimator: Annotated[str, _option("--kl-estimator", "NAME", "k2 or k3, in the loss.")] = "k2",
    lag_kind: Annotated[str | None, _option("--lag-kind", "KIND", "none, fixed, refresh or async; refresh where R > 1.")] = None,
    refresh_interval: Annotated[int, _option("--refresh-interval", "R", "Updates of one block, or of a fixed lag.")] = 1,
    prompt_order: Annotated[str, _option("--prompt-order", "NAME", "independent draws, or epochs.")] = "independent",
    prompt_pool: Annotated[int | None, _option("--prompt-pool", "P", "Use only the first P training problems.")] = None,
    micro_batch: Annotated[int | None, _option("--micro-batch", "N", "Rollouts of one pass.")] = None,
    precision: Annotated[str, _option("--precision", "NAME", "float32, bfloat16, or auto: bfloat16 on a GPU.")] = "auto",
    device: Annotated[str, _option("--device", "NAME", "cpu, cuda, or auto: a GPU where there is one.")] = "auto",
    threads: Annotated[int, _option("--threads", "N", "Of torch on a CPU.")] = 1,
    seed: Annotated[int, _option("--seed", "N", "Of prompts and sampling.")] = 0,
    start_seed: Annotated[int, _option("--start-seed", "N", "Of task, initial weights and warm-up.")] = 0,
    evaluate_every: Annotated[int, _option("--evaluate-every", "T", "Steps between evaluations on held-out problems.")] = 20,
    evaluation_problems: Annotated[int, _option("--evaluation-problems", "P", "Held-out problems, four rollouts each.")] = 128,
    checkpoint_every: Annotated[int, _option("--checkpoint-every", "T", "Steps between checkpoints.")] = 50,
    checkpoints_kept: Annotated[int | None, _option("--checkpoints-kept", "K", "Latest ones to keep; all where not given.")] = None,
    rollouts_every: Annotated[int, _option("--rollouts-every", "T", "Steps between those whose rollouts are recorded.")] = 5,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in FOLDER, bit for bit.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a run that is there already.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON to standard output and nothing else.")] = False,
) -> None:
    """Train a small policy by GRPO on a task whose truth is known, and write the run as a record."""
    raise typer.Exit(_typed(dict(locals())))
