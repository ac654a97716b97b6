"""The folder of a run: its record, and `checkpoints/` beside it with what is needed to go on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from groupwise.errors import (
    GroupwiseError,
    InsufficientDataError,
    OverwriteError,
    first_line,
    one_sentence,
)
from groupwise.parsing import JsonView
from groupwise.record.journal import Journal, hold
from groupwise.record.run import COMPANIONS, JOURNAL, RECORD_FILES, RecordWriter, is_record
from groupwise_lab.trainer.checkpoints import (
    STATE,
    STATE_ABOUT,
    UnreadableCheckpointError,
    mark_state,
    read_state,
    whole_folder,
    write_policy,
    write_state,
)
from groupwise_lab.trainer.tasks import write_task

if TYPE_CHECKING:
    from torch import Tensor

    from groupwise_lab.trainer.policy import Actor
    from groupwise_lab.trainer.settings import TrainSettings
    from groupwise_lab.trainer.tasks import Task


CHECKPOINTS, _COMPONENTS, DECISIONS, _PROBES = COMPANIONS
_CHECKPOINT = re.compile(r"checkpoint-\d+")
_HALF = re.compile(r"\.(checkpoint-\d+)\.(?:partial|retired)-\d+")
# What a policy, the state of a run, transformers and peft write into a checkpoint.
_OF_A_CHECKPOINT = (
    *(
        "*.safetensors",
        "*.safetensors.index.json",
        "config.json",
        "generation_config.json",
        "adapter_config.json",
        "README.md",
    ),
    *(
        "state.json",
        ".state.json.new",
        "note.json",
        "task.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "tokenizer.model",
    ),
    *(
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "vocab.txt",
        "merges.txt",
        "spiece.model",
    ),
    *("sentencepiece*.model", "chat_template.jinja", "chat_template.json"),
)


def strangers(home: Path) -> list[str]:
    """Return what lies in a folder and belongs to no run; of a folder without a record,
    everything.
    """
    own = {*RECORD_FILES, *COMPANIONS} if is_record(home) else set()
    names = {path.name for path in home.iterdir()}
    return sorted(
        name for name in names - own if not (own and fnmatchcase(name, f".{DECISIONS}.*"))
    )


def strange_in_checkpoints(home: Path) -> list[Path]:
    """Return what lies among the checkpoints of a run and was not written by the trainer."""
    folder = home / CHECKPOINTS
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        return [folder]
    strange = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not (_HALF.fullmatch(path.name) and path.is_dir()):
            strange += strange_in(path) if _CHECKPOINT.fullmatch(path.name) else [path]
    return strange


def strange_in(checkpoint: Path) -> list[Path]:
    """Return what lies in a checkpoint and was not written with it; the checkpoint itself where
    it is no plain folder.
    """
    if checkpoint.is_symlink() or not checkpoint.is_dir():
        return [checkpoint]
    return [
        path
        for path in sorted(checkpoint.iterdir())
        if path.is_dir()
        or path.is_symlink()
        or not any(fnmatchcase(path.name, name) for name in _OF_A_CHECKPOINT)
    ]


def remove_run(home: Path) -> None:
    """Remove a run that is to be replaced; its journal stays, empty, so that its writer keeps
    others out throughout.
    """
    files = [home / name for name in (_COMPONENTS, DECISIONS, *RECORD_FILES) if name != JOURNAL]
    with one_sentence(f"to replace the run in {home}", "choose another folder with -o"):
        if (home / CHECKPOINTS).is_dir():
            shutil.rmtree(home / CHECKPOINTS)
        for path in (*files, *home.glob(f".{DECISIONS}.*")):
            path.unlink(missing_ok=True)
        if (home / JOURNAL).exists():
            os.truncate(home / JOURNAL, 0)


def clear_partial(home: Path) -> None:
    """Remove checkpoints that a kill left half written; one that was being replaced gets its
    name back.
    """
    halves = [
        (path, match[1])
        for path in (home.iterdir() if home.is_dir() else ())
        if (match := _HALF.fullmatch(path.name))
    ]
    for path, name in halves:
        if ".retired-" in path.name and not (home / name).exists():
            path.rename(home / name)
    for path, _ in halves:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def alone_with(home: Path) -> Iterator[None]:
    """Make a folder where it is missing, and keep every other trainer from beginning there until
    the block ends.
    """
    with one_sentence(f"to make the folder {home}", "choose one that you can write"):
        home.mkdir(parents=True, exist_ok=True)
        handle = None if sys.platform == "win32" else os.open(home, os.O_RDONLY)
    try:
        if handle is not None:
            hold(
                handle,
                (
                    f"expected to begin a run in {home} alone, got another that begins there: give "
                    "each a folder of its own"
                ),
            )
        yield
    finally:
        if handle is not None:
            os.close(handle)


@contextmanager
def unwritten(home: Path) -> Iterator[None]:
    """Refuse a run that somebody is writing, and hold its journal until the block ends."""
    if not (home / JOURNAL).is_file():
        yield
        return
    with Journal(home / JOURNAL, keep=lambda _entry: None):
        yield


_PLACES = {"data", "file"}  # where the file of a task lies: what it holds is compared
_FREE = {
    "steps",
    "checkpoint_every",
    "checkpoints_kept",
}  # settings that may change when a run goes on

Saved = tuple[dict[str, "Tensor"], dict[str, Any]]


class TrainingStoppedError(GroupwiseError):
    """A run cannot go on; what it had reached is on the disk."""


class NotFiniteError(GroupwiseError):
    """The policy gives a loss or a gradient that is not finite."""


class Resumable(Protocol):
    """A run whose state can be kept."""

    step: int
    whole: bool  # whether nothing is half done

    def state(self) -> Saved:
        """Return everything that the next step depends on."""


class RunFolder:
    """Where a run is kept."""

    def __init__(
        self,
        home: Path,
        settings: TrainSettings,
        task: Task,
        actor: Actor,
        *,
        start: Mapping[str, str | float | None] | None = None,
    ) -> None:
        self.home, self._settings, self._task, self._actor = home, settings, task, actor
        self._start = None if start is None else dict(start)
        self._sound = (
            False  # whether the policy of the latest checkpoint is known to give a finite loss
        )

    def open(
        self, write: Callable[[], RecordWriter], *, resume: bool, force: bool
    ) -> tuple[Saved | None, RecordWriter]:
        """Make the folder ready; nobody else has written in it since it was looked at when this
        returns.
        """
        self._check(resume=resume, force=force)
        # A journal is held by one opening of it alone, so that the folder is held while it changes
        # hands.
        with alone_with(self.home):
            with unwritten(self.home):
                self._check(resume=resume, force=force)
                clear_partial(self.home / CHECKPOINTS)
                saved = self.saved() if resume else None
                if force and not resume:
                    remove_run(self.home)
            return saved, write()

    def check(self, *, resume: bool, force: bool) -> None:
        """Refuse a folder that cannot take the run, before any work is done."""
        self._check(resume=resume, force=force)
        with unwritten(self.home):
            pass

    def _check(self, *, resume: bool, force: bool) -> None:
        """Refuse a folder for what is in it, around it and above it."""
        above = next(path for path in (self.home, *self.home.absolute().parents) if path.exists())
        with one_sentence(f"a folder to write at {self.home}", "choose another with -o"):
            inside = any(self.home.iterdir()) if self.home.exists() else False
            foreign = strangers(self.home) if inside else []
        if not os.access(above, os.W_OK):
            raise GroupwiseError(
                f"expected a folder to write at {self.home}, got no permission in {above}: choose "
                "another with -o"
            )
        if foreign:
            raise OverwriteError(
                f"expected a new folder at {self.home}, got one that holds something other than a "
                f"run ({foreign[0]}): choose another with -o"
            )
        outer = next((path for path in self.home.absolute().parents if is_record(path)), None)
        if outer is not None:
            raise OverwriteError(
                f"expected a folder of its own for the run, got {self.home} inside the run "
                f"{outer}: choose another with -o"
            )
        if not inside or resume:
            return
        if not force:
            raise OverwriteError(
                f"{self.home} holds a run already: go on with it by --resume, replace it by "
                "--force, or choose another with -o"
            )
        beside = strange_in_checkpoints(self.home)
        if beside:
            raise OverwriteError(
                f"expected nothing but checkpoints of the run to replace in {self.home}, got "
                f"{beside[0]}: move it away, or choose another folder with -o"
            )

    def keep(self, step: int, tensors: Mapping[str, Tensor], about: JsonView) -> None:
        """Write a checkpoint with the state of the run; the one before has its own until
        `confirm`.
        """
        settings = self._settings.as_dict()
        with whole_folder(self._checkpoint(step)) as partial:
            if hasattr(self._actor, "save"):
                self._actor.save(partial)
            else:
                write_policy(self._actor, partial, self._task.vocabulary)  # type: ignore[arg-type]
            write_state(
                partial,
                tensors,
                {**about, "settings": settings, "task": self._fingerprint(), "start": self._start},
            )
            write_task(self._task, partial)
        self._sound = False

    def confirm(self) -> None:
        """Drop what the latest checkpoint replaces, once its policy has given a finite loss:
        older state, and what is not to be kept.
        """
        if self._sound or (step := self.latest_step()) is None:
            return
        older = [number for number in self._steps() if number != step]
        for number in older:
            for name in (STATE_ABOUT, STATE):
                (self._checkpoint(number) / name).unlink(missing_ok=True)
        kept = self._settings.checkpoints_kept
        before = [number for number in older if 0 < number < step]  # the first checkpoint stays
        for number in before[: max(0, len(before) - kept + 1)] if kept is not None else ():
            if not strange_in(self._checkpoint(number)):
                shutil.rmtree(self._checkpoint(number), ignore_errors=True)
        self._sound = True

    def discard(self, step: int) -> int:
        """Remove the checkpoint of a policy that gives no finite loss, where there is an older
        one, and let another learning rate go on.
        """
        if len(self._usable()) > 1 and self.latest_step() == step:
            shutil.rmtree(self._checkpoint(step), ignore_errors=True)
        kept = self._usable()[-1]
        mark_state(self._checkpoint(kept), {"stopped": step})
        return kept

    @contextmanager
    def whole_steps(self, run: Resumable) -> Iterator[None]:
        """Whatever fails in the block leaves the state of the last whole step on the disk, and
        is told in a sentence.
        """
        before = run.step
        try:
            yield
        except InsufficientDataError:
            raise
        except NotFiniteError as error:
            kept = self.discard(run.step)
            how = (
                "lower the learning rate"
                if kept == run.step
                else "go on from it by --resume with a lower --learning-rate"
            )
            raise TrainingStoppedError(
                f"{error}: the policy after step {kept} is kept; {how}"
            ) from None
        except Exception as error:
            if run.whole and run.step == before and self.latest_step() != before:
                with suppress(GroupwiseError):
                    self.keep(run.step, *run.state())
            if isinstance(error, GroupwiseError):
                raise
            raise TrainingStoppedError(
                f"expected step {before + 1} to end, got {type(error).__name__} "
                f"({first_line(error)}): the state after step {self.latest_step()} is kept; mend "
                "that and go on by --resume"
            ) from error

    def latest_step(self) -> int | None:
        """Return the step of the latest checkpoint that has the state of the run."""
        usable = self._usable()
        return usable[-1] if usable else None

    def _usable(self) -> list[int]:
        """Return the steps of the checkpoints that have the state of the run."""
        return [
            number for number in self._steps() if (self._checkpoint(number) / STATE_ABOUT).is_file()
        ]

    def saved(self) -> Saved | None:
        """Return the state to go on from, once it is known to be of this run."""
        step = self.latest_step()
        if step is None:
            return None
        latest = self._checkpoint(step)
        tensors, about = read_state(latest)
        if about.get("task") != self._fingerprint():
            raise OverwriteError(
                f"expected the run in {self.home} to be of this task and its options, got another: "
                "give those it began with"
            )
        now, then = self._settings.as_dict(), about.get("settings", {})
        free = (_FREE if self._settings.schedule == "constant" else _FREE - {"steps"}) | (
            {"learning_rate"} if "stopped" in about else set()
        )
        if (
            self._start is not None and about.get("start") is not None
        ):  # a run that Python began may say nothing of its start
            now, then = now | self._start, then | about["start"]
        changed = [name for name in now if name not in free and then.get(name) != now[name]]
        if changed:
            name = changed[0]
            raise OverwriteError(
                f"expected the run in {self.home} to go on as it began, with {name} "
                f"{then.get(name)}; got {now[name]}: give the options it began with"
            )
        if int(about["step"]) > self._settings.steps:
            raise OverwriteError(
                f"expected more than the {about['step']} steps that the run in {self.home} has "
                f"done, got {self._settings.steps}: it is done already; go on with more"
            )
        own = sum(
            parameter.numel()
            for parameter in self._actor.parameters()  # type: ignore[attr-defined]
            if parameter.requires_grad
        )
        if own != len(tensors["parameters"]):
            raise UnreadableCheckpointError(
                f"expected a policy of {own} parameters in {latest}, got "
                f"{len(tensors['parameters'])}: give the size that the run"
                " began with"
            )
        return tensors, about

    def _fingerprint(self) -> str:
        """What tells one task from another: its problems and how they are judged."""
        task = self._task
        rows = [[problem.text, problem.answer] for problem in task.train]
        held_out = [[problem.text, problem.answer] for problem in task.held_out]
        recipe = {name: value for name, value in task.recipe.items() if name not in _PLACES}
        facts = [
            task.name,
            task.vocabulary.symbols,
            rows,
            held_out,
            sorted(task.verifier.weights.items()),
        ]
        return hashlib.sha256(
            json.dumps([*facts, recipe, _plain(task.verifier)]).encode()
        ).hexdigest()[:16]

    def _steps(self) -> list[int]:
        """Return the steps of the checkpoints that are there."""
        folder = self.home / CHECKPOINTS
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return sorted(
            int(name.removeprefix("checkpoint-"))
            for name in names
            if name.removeprefix("checkpoint-").isdigit()
        )

    def _checkpoint(self, step: int) -> Path:
        """Return the folder of a checkpoint."""
        return self.home / CHECKPOINTS / f"checkpoint-{step}"


def _plain(verifier: object) -> Any:
    """Return what tells one verifier from another: its kind, its fields and the names of its
    functions; never an address in memory.
    """
    if dataclasses.is_dataclass(verifier) and not isinstance(verifier, type):
        return [
            type(verifier).__qualname__,
            {
                field.name: _plain(getattr(verifier, field.name))
                for field in dataclasses.fields(verifier)
            },
        ]
    if isinstance(verifier, Mapping):
        return {str(name): _plain(value) for name, value in sorted(verifier.items())}
    if verifier is None or isinstance(verifier, str | int | float):
        return verifier
    return getattr(verifier, "__qualname__", type(verifier).__qualname__)
