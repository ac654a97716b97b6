"""TRL's own output: `trainer_state.json`, and a run folder with its checkpoints, README and completions.

`training_args.bin` is a pickle and is never opened: settings come from the README, from files beside it, or from the user.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.errors import GroupwiseError, UnreadableRunError
from groupwise.readers.assemble import Log, Request, assemble, with_rollouts
from groupwise.readers.completions import completions_of, logged_means, without_evaluations
from groupwise.readers.configs import recover
from groupwise.readers.rows import RowStore, counted
from groupwise.readers.source import ArrayStream, JsonReader, open_text, peek, shown
from groupwise.record.run import RunConfig, RunRecord

STATE = "trainer_state.json"
_HISTORY = re.compile(r'"log_history"\s*:\s*\[')
_CHECKPOINT = re.compile(r"checkpoint-(\d{1,12})")
_SPACING = re.compile(r'"logging_steps"\s*:\s*([\d.eE+\-]{1,30})')
_MOST_FOLDERS = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """One trainer_state.json."""

    path: Path  # of the file
    size: int  # bytes
    store: RowStore  # the rows of its log_history, as far as they are whole
    first: float  # the smallest step among them
    about: Mapping[str, Any]  # what else it says, as far as it is whole
    whole: bool  # whether the file is
    skipped: int  # summary rows left out
    duplicates: int  # rows that give a key twice


def sniff_state(path: Path) -> float:
    """Return the confidence that the file is a trainer_state.json, whatever its name."""
    seen = peek(path)
    return 0.97 if not seen.binary and seen.text.startswith("{") and _HISTORY.search(seen.text) else 0.0


def read_state(path: Path, request: Request) -> RunRecord:
    """Read a trainer_state.json; where it lies in a run folder, its README and completions are read too."""
    home = path.parent.parent if _CHECKPOINT.fullmatch(path.parent.name) else path.parent
    return _record([load_state(path)], home if path.name == STATE else None, request, ())


def load_state(path: Path, store: RowStore | None = None, below: float = float("inf")) -> State:
    """Return the rows of a trainer_state.json, streamed, and what else it says."""
    seen = peek(path)
    reader, rows = JsonReader(), store or RowStore()
    before, skipped, first = rows.count, 0, float("inf")
    with open_text(path, seen.encoding) as file:
        head = file.read(1 << 16)
        match = _HISTORY.search(head)
        if match is None:
            raise UnreadableRunError(f"expected a log_history in {shown(path)}, got none: give the trainer_state.json of a checkpoint")
        stream = ArrayStream(file, head[match.end() :], reader)
        for row in stream:
            step = row.get("step") if isinstance(row, dict) else None
            if not isinstance(row, dict) or _is_summary(row):
                skipped += 1
            elif below == float("inf") or (isinstance(step, float) and step < below):
                rows.add(row)
                first = min(first, step) if isinstance(step, float) else first
        rest = stream.remainder() if stream.complete else ""
    about = _about(head[: match.start()], rest)
    if rows.count == before and below == float("inf"):
        what = "no row: log with a smaller logging_steps" if stream.complete else "no whole row, it is cut off or damaged: copy it again"
        raise UnreadableRunError(f"expected logged rows in {shown(path)}, got {what}")
    return State(path, seen.size, rows, first, about or {}, about is not None, skipped, reader.duplicates)


def _is_summary(row: Mapping[str, Any]) -> bool:
    """Return whether a row sums up the whole training."""
    return "train_runtime" in row and "reward" not in row and "loss" not in row


def _about(before: str, rest: str) -> dict[str, Any] | None:
    """Return what a state says besides its rows, or None where the file is not whole."""
    try:
        about = json.loads(f'{before}"log_history": []{rest}')
    except (ValueError, RecursionError):
        return None
    return about if isinstance(about, dict) else None


def _logging_steps(state: State) -> int | None:
    """Return the steps between two rows: TRL takes a number below 1 as a share of all steps."""
    given, longest = state.about.get("logging_steps"), state.about.get("max_steps")
    if not isinstance(given, int | float) or isinstance(given, bool) or not 0 < given < 1e9:
        return None
    if given >= 1:
        return int(given)
    return -int(-given * longest // 1) if isinstance(longest, int) and 0 < longest < 10**9 else None


def _record(states: list[State], folder: Path | None, request: Request, notes: tuple[str, ...]) -> RunRecord:
    """Return the record of the newest state; older ones only add the steps before its first."""
    newest = states[0]
    found = list(notes)
    store = newest.store if len(states) == 1 else _stitched(states, found)
    if not newest.whole:
        found.append(f"the file {shown(newest.path)} is cut off or damaged after row {newest.store.count}: the whole rows before are used")
    if newest.duplicates:
        found.append(f"{counted(newest.duplicates, 'row gives', 'rows give')} a key twice: the last value counts")
    if newest.skipped:
        found.append("the summary row at the end is left out")
    config = _merged(recover(newest.path, folder), request.config)
    spacing = _logging_steps(newest)
    if spacing and not config.logging_steps.known:
        config = config.with_settings({"logging_steps": spacing}, shown(newest.path))
    name = folder.name if folder is not None and folder.name else newest.path.name
    log = Log(store, newest.path, "trl", newest.size, config, tuple(found), name=name)
    record = assemble(log, request)
    return _with_completions(record, folder)


def _merged(config: RunConfig, stronger: RunConfig) -> RunConfig:
    """Return the settings of both, the stronger ones winning."""
    return dataclasses.replace(config, **stronger.known())


def _stitched(states: list[State], notes: list[str]) -> RowStore:
    """Return the rows of all states, newest first in the list: of an older one only the steps that no newer one has."""
    store = RowStore()
    limits = [float("inf"), *(min(state.first for state in states[: number + 1]) for number in range(len(states) - 1))]
    for state, below in reversed(list(zip(states, limits, strict=True))):
        before = store.count
        load_state(state.path, store, below)
        if state is not states[0] and store.count > before:
            found = counted(store.count - before, f"row before step {below:g} comes", f"rows before step {below:g} come")
            notes.append(f"{found} from {shown(state.path)}: the newer state lacks them")
    return store


def _with_completions(record: RunRecord, folder: Path | None) -> RunRecord:
    """Return the record with the completions that the run logged."""
    if folder is None:
        return record
    means, total = logged_means(record)
    rollouts, config, notes, sources = completions_of(folder, record.config, means, total)
    evaluations = [meaning.column for meaning in record.meanings if meaning.quantity.startswith("eval/")]
    if rollouts is not None and evaluations:
        evaluated = np.zeros(len(record.steps), dtype=bool)
        for name in evaluations:
            evaluated |= record.steps[name].is_not_null().to_numpy()
        rollouts, more = without_evaluations(rollouts, record.steps["step"].to_numpy(), total, evaluated)
        notes += more
    return with_rollouts(dataclasses.replace(record, config=config), rollouts, notes, sources)


def states_in(folder: Path) -> list[Path]:
    """Return the trainer states of a run folder, newest first: by the number of their checkpoint, the root's own by its rows."""
    found: list[tuple[int, Path]] = []
    try:
        for number, path in enumerate(folder.iterdir()):
            match = _CHECKPOINT.fullmatch(path.name)
            if match and (path / STATE).is_file():
                found.append((int(match[1]), path / STATE))
            if number > _MOST_FOLDERS:
                break
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnreadableRunError(f"expected a folder that can be listed, got {reason} for {shown(folder)}: check it") from None
    if (folder / STATE).is_file():
        found.append((_global_step(folder / STATE), folder / STATE))
    return [path for _, path in sorted(found, key=lambda entry: (-entry[0], len(entry[1].parts)))]


def _global_step(path: Path) -> int:
    """Return the step at which a state was saved, from its first bytes; 0 where they do not say."""
    try:
        match = re.search(r'"global_step"\s*:\s*(\d{1,12})', peek(path).text)
    except GroupwiseError:
        return 0
    return int(match[1]) if match else 0


def sniff_folder(path: Path) -> float:
    """Return the confidence that the folder is the output of a Transformers trainer."""
    return 0.95 if path.is_dir() and states_in(path) else 0.0


def read_folder(path: Path, request: Request) -> RunRecord:
    """Read the newest state of a run folder that has a whole row; rows that only an older one has are put before it."""
    home = path.parent if _CHECKPOINT.fullmatch(path.name) else path
    states: list[State] = []
    notes: list[str] = []
    problem: GroupwiseError | None = None
    for file in states_in(path):
        if states and states[-1].first <= (_logging_steps(states[-1]) or 1):
            break
        try:
            states.append(load_state(file))
        except GroupwiseError as error:
            problem = problem or error
            notes.append(f"the file {shown(file)} could not be read, so an older state is used")
    if not states:
        raise problem or UnreadableRunError(f"expected a trainer_state.json in {shown(path)}, got none: give the run's folder")
    return _record(states, home, request, tuple(notes) if states else ())
