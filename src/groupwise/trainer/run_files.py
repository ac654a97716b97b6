"""Which files in a folder are a run's own, who is writing them, and how they go when the run is replaced.

A run is a folder with a record; what the trainer did not write is never removed. It reads no checkpoint and trains nothing.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

from groupwise.errors import GroupwiseError
from groupwise.record.journal import Journal, hold
from groupwise.record.run import COMPANIONS, JOURNAL, RECORD_FILES, is_record

CHECKPOINTS, _COMPONENTS, DECISIONS = COMPANIONS
_CHECKPOINT = re.compile(r"checkpoint-\d+")
_HALF = re.compile(r"\.(checkpoint-\d+)\.(?:partial|retired)-\d+")
# What a policy, the state of a run, transformers and peft write into a checkpoint.
_OF_A_CHECKPOINT = (
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "adapter_config.json",
    "README.md",
    "state.json",
    ".state.json.new",
    "note.json",
    "task.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "sentencepiece*.model",
    "chat_template.jinja",
    "chat_template.json",
)


def strangers(home: Path) -> list[str]:
    """Return what lies in a folder and belongs to no run; of a folder without a record, everything."""
    own = {*RECORD_FILES, *COMPANIONS} if is_record(home) else set()
    names = {path.name for path in home.iterdir()}
    return sorted(name for name in names - own if not (own and fnmatchcase(name, f".{DECISIONS}.*")))


def strange_in_checkpoints(home: Path) -> list[Path]:
    """Return what lies among the checkpoints of a run and was not written by the trainer."""
    folder = home / CHECKPOINTS
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        return [folder]
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if _HALF.fullmatch(path.name) and path.is_dir():
            continue
        found += strange_in(path) if _CHECKPOINT.fullmatch(path.name) else [path]
    return found


def strange_in(checkpoint: Path) -> list[Path]:
    """Return what lies in a checkpoint and was not written with it; the checkpoint itself where it is no plain folder."""
    if checkpoint.is_symlink() or not checkpoint.is_dir():
        return [checkpoint]
    return [
        path
        for path in sorted(checkpoint.iterdir())
        if path.is_dir() or path.is_symlink() or not any(fnmatchcase(path.name, name) for name in _OF_A_CHECKPOINT)
    ]


def remove_run(home: Path) -> None:
    """Remove a run that is to be replaced; its journal stays, empty, so that its writer keeps others out throughout."""
    try:
        if (home / CHECKPOINTS).is_dir():
            shutil.rmtree(home / CHECKPOINTS)
        for path in (
            home / _COMPONENTS,
            home / DECISIONS,
            *home.glob(f".{DECISIONS}.*"),
            *(home / name for name in RECORD_FILES if name != JOURNAL),
        ):
            path.unlink(missing_ok=True)
        if (home / JOURNAL).exists():
            os.truncate(home / JOURNAL, 0)
    except OSError as error:
        raise GroupwiseError(f"expected to replace the run in {home}, got {error.strerror}: choose another folder with -o") from None


def clear_partial(home: Path) -> None:
    """Remove checkpoints that a kill left half written; one that was being replaced gets its name back."""
    halves = [(path, match[1]) for path in (home.iterdir() if home.is_dir() else ()) if (match := _HALF.fullmatch(path.name))]
    for path, name in halves:
        if ".retired-" in path.name and not (home / name).exists():
            path.rename(home / name)
    for path, _ in halves:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def alone_with(home: Path) -> Iterator[None]:
    """Make a folder where it is missing, and keep every other trainer from beginning there until the block ends."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        handle = None if sys.platform == "win32" else os.open(home, os.O_RDONLY)
    except OSError as error:
        raise GroupwiseError(f"expected to make the folder {home}, got {error.strerror}: choose one that you can write") from None
    try:
        if handle is not None:
            hold(handle, f"expected to begin a run in {home} alone, got another that begins there: give each a folder of its own")
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
