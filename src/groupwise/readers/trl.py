"""TRL's own output: `trainer_state.json`, and a run folder with its checkpoints, README and
completions.

`training_args.bin` is a pickle and is never opened: settings come from the README, from files
beside it, or from the user.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import polars as pl

from groupwise import parsing
from groupwise.arrays import Columns, Float
from groupwise.errors import GroupwiseError, UnreadableRunError
from groupwise.parsing import JsonObject, JsonView
from groupwise.plain import frozen
from groupwise.prompts import prompt_text
from groupwise.readers.assemble import Log, Request, assemble
from groupwise.readers.rows import RowStore, is_summary, summary_notes
from groupwise.readers.source import (
    JsonArray,
    Notes,
    inside,
    json_in,
    noted,
    peek,
    read_whole,
    shown,
)
from groupwise.record.run import RunConfig, RunRecord, Source, annotated
from groupwise.record.table import read_parquet
from groupwise.wording import count

STATE = "trainer_state.json"
_HISTORY = re.compile(r'"log_history"\s*:\s*\[')
_CHECKPOINT = re.compile(r"checkpoint-(\d{1,12})")
_OF_SWIFT = "logging.jsonl"  # which ms-swift writes beside its checkpoints
_MOST_FOLDERS = 10_000


@frozen
class TrainerStateFile:
    """One trainer_state.json."""

    path: Path  # of the file
    size: int  # bytes
    store: RowStore  # the rows of its log_history, as far as they are whole
    about: JsonView  # what else it says; nothing where the file is cut off or damaged
    skipped: int  # summary rows left out


def read_state(path: Path, request: Request) -> RunRecord:
    """Read a trainer_state.json; where it lies in a run folder, its README and completions are
    read too.
    """
    home = path.parent.parent if _CHECKPOINT.fullmatch(path.parent.name) else path.parent
    return _record(load_state(path), home if path.name == STATE else None, request)


def load_state(path: Path) -> TrainerStateFile:
    """Return the rows of a trainer_state.json and what else it says."""
    seen = peek(path)
    text = read_whole(seen)
    whole, match = json_in(text), _HISTORY.search(text)
    about = whole if isinstance(whole, dict) and isinstance(whole.get("log_history"), list) else {}
    history = list(about.get("log_history") or (JsonArray(text, match.end()) if match else ()))
    rows = [row for row in history if isinstance(row, dict) and not is_summary(row)]
    if not rows:
        what = (
            "no row: log with a smaller logging_steps"
            if about
            else "no complete row, because it is cut off or damaged: copy it again"
        )
        raise UnreadableRunError(f"expected logged rows in {shown(path)}, got {what}")
    return TrainerStateFile(path, seen.size, RowStore.of(rows), about, len(history) - len(rows))


def _stated(about: JsonView) -> JsonObject:
    """Return the settings that a state holds: TRL takes logging_steps below 1 as a share of all."""
    every, longest = (
        value if isinstance(value := about.get(key), float) and 0 < value < 1e9 else None
        for key in ("logging_steps", "max_steps")
    )
    if every is not None and every < 1:
        every = math.ceil(every * longest) if longest else None
    return {"logging_steps": every and int(every), "planned_steps": longest}


def _record(
    state: TrainerStateFile, folder: Path | None, request: Request, notes: Sequence[str] = ()
) -> RunRecord:
    """Return the record of a state, with the completions in its folder."""
    remarks = list(notes)
    if not state.about:
        remarks.append(
            f"the file {shown(state.path)} is cut off or damaged after row {state.store.count}: "
            "the complete rows before it are used"
        )
    remarks += summary_notes(state.skipped)
    stated = ((_stated(state.about), shown(state.path)),)
    name = (folder.name if folder else "") or state.path.name
    record = assemble(
        Log(
            state.store,
            state.path,
            "trl",
            state.size,
            remarks,
            stated=stated,
            home=folder,
            name=name,
            framework="ms-swift" if folder and (folder / _OF_SWIFT).is_file() else "",
        ),
        request,
    )
    dumps = (folder / "completions").glob("completions_*.parquet") if folder else ()
    files = sorted(path for path in dumps if path.is_file())
    typed, more, sources = completions_in(files[:100_000])
    if typed is None:
        return annotated(record, *more)
    return with_completions(record, typed, more, sources)


def with_completions(
    record: RunRecord, typed: pl.DataFrame, notes: Sequence[str], sources: Sequence[Source]
) -> RunRecord:
    """Return the record with the completions that lie beside its log, but for those of
    evaluations.
    """
    logged = {meaning.quantity: record.values(meaning.column) for meaning in record.meanings}
    means = {
        name.removeprefix("reward/"): values
        for name, values in logged.items()
        if name.startswith("reward/")
    }
    remarks, total = list(notes), logged.get("reward")
    rows, config = rebuilt(typed, record.config, means, total, remarks)
    evaluations = [
        meaning.column for meaning in record.meanings if meaning.quantity.startswith("eval/")
    ]
    logged_reward = (
        pl.Series("logged", total, dtype=pl.Float64) if total is not None else pl.lit(None)
    )
    evaluated = record.steps.select("step", *evaluations).with_columns(logged=logged_reward)
    evaluated = evaluated.filter(pl.any_horizontal(pl.col(evaluations).is_not_null()))
    rollouts, more = _without_evaluations(rows, evaluated)
    sources = (*record.sources, *sources)
    return annotated(record, *remarks, *more, config=config, rollouts=rollouts, sources=sources)


def states_in(folder: Path) -> list[Path]:
    """Return the trainer states of a run folder, newest first: by the number of their
    checkpoint, the root's own by its rows.
    """
    states = [
        (int(match[1]), path / STATE)
        for path in inside(folder, _MOST_FOLDERS)
        if (match := _CHECKPOINT.fullmatch(path.name)) and (path / STATE).is_file()
    ]
    if (folder / STATE).is_file():
        states.append((_global_step(folder / STATE), folder / STATE))
    return [path for _, path in sorted(states, key=lambda entry: (-entry[0], len(entry[1].parts)))]


def _global_step(path: Path) -> int:
    """Return the step at which a state was saved, from its first bytes; 0 where they do not say."""
    with suppress(GroupwiseError):
        if match := re.search(r'"global_step"\s*:\s*(\d{1,12})', peek(path).text):
            return int(match[1])
    return 0


def read_folder(path: Path, request: Request) -> RunRecord:
    """Read the newest state of a run folder that has a whole row."""
    notes: Notes = []
    errors: list[UnreadableRunError] = []
    for file in states_in(path):
        try:
            state = load_state(file)
        except UnreadableRunError as error:
            errors.append(error)
            notes.append(f"the file {shown(file)} could not be read, so an older state was used")
        else:
            return _record(
                state, path.parent if _CHECKPOINT.fullmatch(path.name) else path, request, notes
            )
    raise errors[0]


_AGREEMENT = 0.999
_BY_SAMPLER = "log_probability"
_CONDITION = 1e6


def completions_in(files: Sequence[Path]) -> tuple[pl.DataFrame | None, Notes, list[Source]]:
    """Return the completions in files, None where no file holds any, with notes and sources."""
    notes: Notes = []
    size = sum(path.stat().st_size for path in files)
    tables, sources, before, again = [], [], pl.DataFrame(), 0
    for path in files:
        try:
            written = read_parquet(path)
            table = typed_completions(written, texts=size <= parsing.MOST_TEXT)
        except UnreadableRunError:
            table = None
        if table is None:
            notes.append(
                f"the file {path.name} is damaged, too large or has no completions and was left out"
            )
            continue
        generation = written.drop("step")
        if generation.equals(before):
            again += 1
            continue
        before = generation
        tables.append(table)
        sources.append(Source(str(path), "trl_completions", path.stat().st_size, len(table)))
    if tables and size > parsing.MOST_TEXT:
        notes.append(f"the completions take {size / 1e6:.0f} MB: their texts were left out")
    reused = "the completions of the previous update, which are counted once"
    notes += noted(again, "file repeats", "files repeat", reused)
    return (pl.concat(tables, how="diagonal") if tables else None), notes, sources


def rebuilt(
    rows: pl.DataFrame, config: RunConfig, means: Columns, total: Float | None, notes: Notes
) -> tuple[pl.DataFrame, RunConfig]:
    """Return rows of completions with their groups and the total reward, and the settings that
    they tell.
    """
    rows, config = _grouped(rows.sort("step", maintain_order=True), config, notes)
    functions = _functions(rows, means)
    weights = _logged_weights(functions, means, total)
    return rewarded(
        rows, weights or dict.fromkeys(functions, 1.0), notes, stated=weights is not None
    ), config


def _without_evaluations(
    rollouts: pl.DataFrame, evaluated: pl.DataFrame
) -> tuple[pl.DataFrame | None, Notes]:
    """Return the rollouts of training: at a step with an evaluation, TRL writes the evaluation's
    over them.

    They are kept there only where their mean reward is the one that the log gives for training.
    """
    means = rollouts.group_by("step").agg(pl.col("reward").mean()).join(evaluated, on="step")
    apart = (pl.col("reward") - pl.col("logged")).abs() < 1e-4
    foreign = means.filter(~apart.fill_null(value=False))["step"]
    if not len(foreign):
        return rollouts, []
    left = rollouts.filter(~pl.col("step").is_in(foreign.implode()))
    note = (
        f"in {count(len(foreign), 'step')} with an evaluation, TRL overwrote the training "
        "completions with those of the evaluation, so they were left out"
    )
    return (left if len(left) else None), [note]


def typed_completions(table: pl.DataFrame, *, texts: bool) -> pl.DataFrame | None:
    """Return the columns in our types, or None where the table is not one of completions."""
    if not {"step", "prompt", "completion"} <= set(table.columns):
        return None
    columns, nothing = [pl.col("step").cast(pl.Int64, strict=False)], pl.lit(None, dtype=pl.Utf8)
    for name, kind in table.schema.items():
        if name in ("prompt", "completion"):
            text = pl.col(name) if kind == pl.Utf8 else nothing.alias(name)
            if isinstance(kind, pl.List):  # the messages of a chat
                text = pl.col(name).map_elements(prompt_text, return_dtype=pl.Utf8)
            columns.append(text)
        elif name != "step" and kind.is_numeric():
            columns.append(pl.col(name).cast(pl.Float64, strict=False).fill_nan(None))
        elif name == "logprobs" and isinstance(kind, pl.List) and kind.inner.is_numeric():
            columns.append(pl.col(name).list.mean().cast(pl.Float64).alias(_BY_SAMPLER))
    typed = table.select(columns).drop_nulls("step")
    return (
        typed
        if texts
        else typed.with_columns(pl.col("prompt").hash().cast(pl.Utf8), completion=nothing)
    )


def _grouped(rows: pl.DataFrame, config: RunConfig, notes: Notes) -> tuple[pl.DataFrame, RunConfig]:
    """Return the rows with prompt_id: by position where G is known, else by runs of one prompt."""
    group, source = config.value("group_size"), config.group_size.source
    placed = rows.with_columns(prompt_id=pl.int_range(pl.len()).over("step") // (group or 1))
    groups = placed.group_by("step", "prompt_id").agg(pl.len(), pl.col("prompt").n_unique())
    if group and (groups["len"] == group).all() and (groups["prompt"] == 1).all():
        notes.append(f"completions are grouped by position, {group} rows per group ({source})")
        return placed, config
    run = pl.col("prompt_id")
    rows = rows.with_columns(prompt_id=pl.struct("step", "prompt").rle_id().cast(pl.Int64))
    rows = rows.with_columns(run - run.min().over("step"))
    notes.append(
        "a group is a row of equal prompts: two neighbouring groups of one prompt count as one"
    )
    sizes = rows.group_by("step", "prompt_id").len()["len"].unique().to_list()
    if group:
        notes.append(
            f"the rows of a step form no groups of {group} ({source}): that size is not used"
        )
    elif len(sizes) == 1 and sizes[0] > 1:
        config = config.with_settings({"group_size": sizes[0]}, "equal prompts of neighbours")
    return rows, config


def _functions(rows: pl.DataFrame, named: Iterable[str]) -> list[str]:
    """Return the columns that are reward functions: those that the log names, else every number
    but the advantage and what the sampler says.
    """
    numbers = [
        name
        for name, kind in rows.schema.items()
        if kind == pl.Float64 and name not in ("advantage", _BY_SAMPLER)
    ]
    lowered = {*map(str.lower, named)}
    return [name for name in numbers if name.lower() in lowered] or numbers


def rewarded(
    rows: pl.DataFrame, weights: Mapping[str, float], notes: Notes, *, stated: bool
) -> pl.DataFrame:
    """Return the rows in the record's columns, with the total reward where it is known."""
    total = _weighted(rows, weights)
    agrees = _agreement(rows, total) if weights and "advantage" in rows else None
    names = " + ".join(
        name if weight == 1 else f"{weight:g} {name}" for name, weight in weights.items()
    )
    if agrees is not None and agrees < _AGREEMENT:
        notes.append(
            f"the advantages contradict a total reward of {names}: the functions have other "
            "weights, so the total is unknown"
        )
        total = _weighted(rows, {})
    elif len(weights) > 1 or stated:
        how = "the advantages agree" if agrees is not None else "no advantages could confirm it"
        why = "as the mean rewards in the log show" if stated else "the unweighted sum"
        notes.append(f"the total reward of a completion is {names}, {why} ({how})")
    renamed = rows.rename({name: f"reward/{name}" for name in weights}).with_columns(total)
    wanted = [
        "step",
        "prompt_id",
        "prompt",
        "completion",
        "reward",
        *(f"reward/{name}" for name in weights),
        "advantage",
        _BY_SAMPLER,
    ]
    return renamed.select([name for name in wanted if name in renamed])


def _weighted(rows: pl.DataFrame, weights: Mapping[str, float]) -> pl.Series:
    """Return the weighted sum of reward functions, missing where all of them are, or where there
    is none.
    """
    if not weights:
        return pl.Series("reward", [None] * len(rows), dtype=pl.Float64)
    missing = pl.all_horizontal(pl.col(list(weights)).is_null())
    weighted = pl.sum_horizontal([pl.col(name) * weight for name, weight in weights.items()])
    return rows.select(reward=pl.when(missing).then(None).otherwise(weighted)).to_series()


def _logged_weights(
    functions: Sequence[str], means: Columns, total: Float | None
) -> dict[str, float] | None:
    """Return the weights w with `reward = sum_f w_f mean_f` in every row of the log, or None
    where no such weights are determined.
    """
    if total is None or set(functions) - set(means):
        return None
    design = np.column_stack([means[name] for name in functions])
    good = np.isfinite(design).all(axis=1) & np.isfinite(total)
    if good.sum() < 2 * len(functions) + 1 or np.linalg.cond(design[good]) > _CONDITION:
        return None
    weights = np.linalg.lstsq(design[good], total[good], rcond=None)[0]
    if np.abs(design[good] @ weights - total[good]).max() > 1e-5 * max(
        1.0, np.abs(total[good]).max()
    ):
        return None
    return {name: round(weight, 4) for name, weight in zip(functions, weights, strict=True)}


def _agreement(rows: pl.DataFrame, total: pl.Series) -> float | None:
    """Return the correlation, within groups, of advantage and total reward; None where neither
    moves.

    An advantage is the centred reward times one factor a group, so it is 1 in every group where the
    total is right.
    """
    keys, reward, advantage = ("step", "prompt_id"), pl.col("reward"), pl.col("advantage")
    centred = rows.select(*keys, "advantage", total).with_columns(
        column - column.mean().over(keys) for column in (reward, advantage)
    )
    both, spread, spread_of_advantage = (pl.col(name) for name in ("both", "spread", "advantages"))
    moves = (spread > 1e-6) | ((spread > 1e-12) & (spread_of_advantage > 1e-12))
    groups = (
        centred.filter(reward.is_finite() & advantage.is_finite())
        .group_by(keys)
        .agg(
            both=(reward * advantage).sum(),
            spread=(reward**2).sum(),
            advantages=(advantage**2).sum(),
        )
        .filter(moves)
    )
    scale = (spread * spread_of_advantage).sqrt()
    agreement = pl.when(scale > 0).then(both / scale).otherwise(0.0)
    return groups.select(agreement).to_series().mean()  # type: ignore[return-value]
