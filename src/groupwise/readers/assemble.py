"""From collected rows to a `RunRecord`: the step column, the clock, the windows, the meanings, how
finely each column was printed, the notes.

Logs of other programs than reinforcement learning are told by their columns; `kinds.tsv` lists
them.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl

from groupwise import parsing
from groupwise.arrays import Columns, Flags, Float
from groupwise.errors import (
    InvalidArgumentError,
    MissingMetricError,
    NothingYetError,
    UnreadableRunError,
)
from groupwise.files import table_rows
from groupwise.plain import frozen
from groupwise.readers.configs import Stated, config_of, with_found
from groupwise.readers.keys import (
    TRL_FAMILY,
    as_shares,
    first_and_last,
    framework_of,
    meanings_of,
    with_reward,
)
from groupwise.readers.rows import (
    LISTED,
    Merged,
    RowStore,
    holding,
    is_counter,
    labels_of,
    merge_rows,
    plain_key,
    rollout_numbers,
    rows_of_run,
    step_column,
)
from groupwise.readers.source import Blocks, Notes, lines_in, peek, shown, some_of, vocabulary
from groupwise.record.run import Meaning, Meanings, RunConfig, RunRecord, Source
from groupwise.record.table import (
    BASE_COLUMNS,
    TELLING,
    fewest_decimals,
    fits,
    resolution_of,
    steps_table,
    stretches_kept,
    thinned,
)
from groupwise.wording import count

# Kind, what the columns must hold, and what else they may: any, none, what supervised training logs
# in all columns or in the others.
_KINDS = tuple(
    (row["kind"], tuple(re.compile(f"^(?:{need})$") for need in row["needs"].split()), row["rest"])
    for row in table_rows("readers/kinds.tsv")
)
_SUPERVISED = frozenset(vocabulary("supervised"))
_EARNED = re.compile(
    r"clip_|kl|completion|rollout|response|reward|score|return|episode|advantage|success|solve"
    r"|correct|pass@|win_rate|(?<!token_)acc(uracy)?(?![a-z])"
)
CLOCK = re.compile(
    r"_?(runtime|timestamp|wall_?time|time|epoch|elapsed(_s|_seconds)?)|.*global_step"
)


def check_kind(record: RunRecord, path: Path) -> None:
    """Raise for the log of another program, which holds no reward; where its columns do not tell
    whose it is, it is let through.
    """
    names, step = list(map(plain_key, record.metrics())), record.steps["step"]
    kind = _log_kind(
        names, {plain_key(meaning.column): meaning.quantity for meaning in record.meanings}
    )
    if (
        not kind
        and step[-1] == 0
        and len(step) < record.sources[0].rows
        and any(name.startswith("profiling/") for name in names)
    ):
        kind = "profiling data from before the first update of a run"
    if kind:
        raise refusal(kind, names, path)


def refusal(kind: str, names: Sequence[str], path: Path) -> UnreadableRunError:
    """Return what is said of the log of another program."""
    some = some_of([name[:40] for name in names if not CLOCK.fullmatch(name)])
    return UnreadableRunError(
        f"expected a log with a reward, got {shown(path)}, which has no reward and looks like "
        f"{kind} ({some}); name the reward with --column reward=NAME"
    )


def _log_kind(keys: Iterable[str], quantities: Mapping[str, str]) -> str:
    """Return what the columns of a log look like, given what some of them mean; "" for a log of
    reinforcement learning.
    """
    names = [name for name in keys if not CLOCK.fullmatch(name)]
    for kind, needs, rest in _KINDS:
        held = [list(filter(pattern.fullmatch, names)) for pattern in needs]
        others = set(names).difference(*held) if rest == "labelled" else set(names)
        supervised = not any(map(_EARNED.search, others)) and _SUPERVISED.issuperset(
            quantities[name] for name in others & quantities.keys()
        )
        if all(held) and (
            rest == "any"
            or (rest == "none" and len(held[0]) == len(names))
            or (rest != "none" and supervised)
        ):
            return kind
    return ""


# What trainers round to, and the different values that show it: settings and shares of a few
# rollouts are round by themselves. Fewer decimals may be those of a share of ten or a hundred.
_MOST, _FEWEST_VALUES, _NO_SHARE = 5, 3, 3
_SAMPLE = 64


def resolutions(store: RowStore) -> dict[str, float]:
    """Return half a unit of the last printed digit of each column that is rounded."""
    keys = [key for key in store.names() if not CLOCK.fullmatch(plain_key(key))]
    needed = {key: _decimals(store, key) for key in keys}
    rounded = {key: decimals for key, (decimals, sure) in needed.items() if decimals and sure}
    writers = max(rounded.values(), default=0)
    several = len(rounded) > 1 or any(
        decimals >= _NO_SHARE or np.nanmax(np.abs(store.sparse(key)[1])) > 1.0
        for key, decimals in rounded.items()
    )
    if several and all(
        decimals is not None and decimals <= writers for decimals, _ in needed.values()
    ):
        # The writer rounds whatever it writes; counts stay whole.
        others = {key: decimals for key, (decimals, sure) in needed.items() if not sure}
        rounded |= {
            key: writers
            for key, decimals in others.items()
            if decimals or not store.sparse(key)[1].any()
        }
    return {key: resolution_of(decimals) for key, decimals in rounded.items()}


def _decimals(store: RowStore, key: str) -> tuple[int | None, bool]:
    """Return the fewest decimals that hold a column, None where it takes more than trainers
    round to, and whether it was rounded.
    """
    values = store.sparse(key)[1]
    values = values[np.isfinite(values)]
    printed = store.decimals.get(key, 0)
    if printed and fits(values, printed):
        return printed, True
    values = values[values != np.rint(values)]
    if not len(values):
        return 0, False
    if not fits(values[:_SAMPLE], _MOST):
        return None, False
    decimals = fewest_decimals(values, _MOST + 1)
    several = len(set(values[: 100 * _SAMPLE].tolist())) >= _FEWEST_VALUES
    if decimals is None or not several:
        return decimals, False
    units = np.rint(np.abs(values) * 10.0**decimals).astype(np.int64)
    # Shares of a few rollouts keep to a part of the digits, and of small numbers few are left.
    grid = np.gcd.reduce(np.append(units, 10**decimals))
    return decimals, grid == 1 and units.max() >= TELLING


_UPDATE_KEYS = vocabulary("updates")
_TOKEN_KEYS = vocabulary("tokens")
_SECOND_KEYS = vocabulary("seconds")
_STAMP_KEYS = vocabulary("time_stamp")
_CUMULATIVE = frozenset(_UPDATE_KEYS + _TOKEN_KEYS + _SECOND_KEYS + _STAMP_KEYS)
_NO_NUMBERS = vocabulary("no_number")
_NO_ELAPSED = 1e9  # seconds, of which 30 years are a time since 1970
_STRETCH = 1024  # lines
_CLOCKS = vocabulary("clock")
# Rows from which a column tells a clock from what each step took, and the share of rows in which
# the latter falls. A column that stands ten times as high as it rises, by less than two seconds or
# tokens a row, is no clock, however long it ran before the log.
_FEWEST, _OFTEN, _BEFORE, _SMALLEST = 3, 0.25, 10.0, 2.0
# What a column may be called and still be something that is measured, however constant it is, and
# what only a column is called.
_NO_SETTING = vocabulary("no_setting")
# What a row says of the one prompt that its completions answer.
_OF_PROMPT = vocabulary("of_one_prompt")
_COUNTED = dict.fromkeys(vocabulary("prompts_of_a_step"), "prompts_per_step")


NamedColumns = Mapping[str, str]  # canonical name, or "step" -> the log's column


@frozen
class Request:
    """What the user asked for besides the path."""

    columns: NamedColumns = field(
        default_factory=dict
    )  # canonical name, or "step" -> the log's column
    config: RunConfig = field(default_factory=RunConfig)  # settings that the user gave
    chosen: str = ""  # which run of a file that holds several, "" for the only one
    # a column that tells the runs of a file apart beside those that do so by their name, or ""
    by: str = ""
    home: Path | None = None  # the folder that was given, where the log is the only one in it
    beside: Mapping[str, tuple[Path, str]] = field(
        default_factory=dict
    )  # quantity -> another file, and its column there ("" to judge)


@frozen
class Log:
    """Rows with what their reader knows about them."""

    store: RowStore  # the rows
    path: Path  # the file
    reader: str  # its name
    size: int  # of the file, bytes
    notes: Sequence[str] = ()  # what the reader had to decide
    # settings that the log itself states, under the trainer's names, with the words for where
    stated: Stated = ()
    # the run's folder, whose files hold settings, or None for the one that was given
    home: Path | None = None
    framework: str = ""  # "trl", or "" to judge by the keys
    complete: bool = True  # whether a TRL log holds all keys (a notebook's table hides some)
    step: Float | None = None  # the step of each row where the reader knows it, else None
    name: str = ""  # of the run, or "" for the file's name


def assemble(log: Log, request: Request) -> RunRecord:
    """Return the record of collected rows."""
    log = _by_metric(log, request)
    store = log.store
    chosen = chosen_columns(store, request.columns)
    step_key, step_R, each, notes = _steps(log, chosen)
    if not step_key and not chosen:
        _check_is_a_log(log)
    chosen_run = "" if log.name == request.chosen else request.chosen
    run_rows = rows_of_run(store, step_R, log.path, chosen_run, request.by)
    merged = _merged(log, chosen, step_key, step_R, run_rows)
    columns, labels = merged.columns, labels_of(store, run_rows)
    words = (
        ({"updates_per_step": each or None}, "the steps of the log"),
        (_logged_settings(columns) | labels, "a column of the log"),
    )
    config = config_of(
        request.config, log.path, log.home or request.home, (*log.stated, *words), notes
    )
    framework = log.framework or _framework(config, columns)
    notes += _of_two_programs(store)
    config, spacing = _with_spacing(_with_updates(config, merged), merged, framework)
    renamed = {
        f"log/{key}" if key in BASE_COLUMNS else key: values for key, values in columns.items()
    }
    meanings = meanings_of(
        renamed, config, framework=framework, complete=log.complete, window=spacing
    )
    if not chosen:
        renamed, meanings = _continued(renamed, meanings, notes)
    shares, meanings, said = as_shares(renamed, with_reward(renamed, meanings))
    fine = {
        key: value * (0.01 if shares.get(key) is not renamed.get(key) else 1.0)
        for key, value in resolutions(store).items()
    }
    renamed, meanings = shares, _with_chosen(meanings, chosen, shares)
    meanings = tuple(
        replace(meaning, resolution=fine.get(meaning.column.removeprefix("log/"), 0.0))
        for meaning in meanings
    )
    alike, meanings = _alike(renamed, meanings)
    longest = spacing if store.share == 1.0 else np.inf  # steps that a row may stand for
    took = _took(merged, {**columns, **renamed}, meanings, longest)
    clock = _clock(merged, columns, took, config, framework, spacing) | chosen_clocks(
        chosen, columns
    )
    if clock["seconds"] is not None:
        clock["seconds"] = _since_start(clock["seconds"], took["seconds"], merged.trained)
    config = _with_rate(config, renamed, meanings)
    steps = steps_table(merged.step, renamed | alike, **clock)
    steps, source = _with_room(steps, log, merged)
    record = RunRecord(
        name=log.name or request.chosen or log.path.name,
        steps=steps,
        config=config,
        meanings=meanings,
        sources=(source,),
        notes=(*log.notes, *notes, *merged.notes, *said, *_store_notes(store)),
        labels=labels,
    )
    return sound(record, shown(log.path))


def _with_room(steps: pl.DataFrame, log: Log, merged: Merged) -> tuple[pl.DataFrame, Source]:
    """Return as many steps as there is room for, and the source of their rows."""
    rows, of = merged.rows, log.store.read if log.store.share < 1 else 0
    if len(steps) > parsing.MOST_ROWS:
        steps = steps.filter(thinned(len(steps)))
        rows, of = len(steps), max(rows, of)
    note = "; ".join(filter(None, (merged.in_part, parsing.read_in_part(rows, of))))
    return steps, Source(str(log.path), log.reader, log.size, rows, note, of or merged.of)


def _by_metric(log: Log, request: Request) -> Log:
    """Return a log whose rows name one metric each with a column a metric, any other as it is."""
    store = log.store
    if not store.names():
        raise NothingYetError(
            f"expected rows with numbers, got none in {shown(log.path)}: give the log of a run, or "
            "wait for its first row"
        )
    named = chosen_columns(
        store, {name: column for name, column in request.columns.items() if name == "step"}
    )
    step_key, step_R, _, _ = _steps(log, named)
    long = store.by_metric(step_R) if step_key else None
    if long is None or {meaning.quantity for meaning in _meanings(store, log.framework)} & {
        "reward",
        "loss",
        "eval/reward",
    }:
        return log
    return replace(
        log,
        store=long,
        notes=(*log.notes, "each row holds one metric, so the metrics of a step were combined"),
    )


def _check_is_a_log(log: Log) -> None:
    """Raise for rows that have neither steps nor a metric that is known."""
    meanings = {
        plain_key(meaning.column): meaning.quantity
        for meaning in _meanings(log.store, log.framework)
    }
    if log.step is None and not any(meanings.values()):
        if kind := _log_kind(map(plain_key, log.store.names()), meanings):
            raise refusal(kind, log.store.names(), log.path)
        raise UnreadableRunError(
            f"expected a log, got {shown(log.path)}, which has neither steps nor a known metric: "
            "name them with --column step=NAME"
        )


def _merged(
    log: Log, chosen: NamedColumns, step_key: str, step_R: Float, run_rows: Flags
) -> Merged:
    """Return one row a step of the run that was chosen."""
    store = log.store
    hidden = {step_key} | ({key for key in store.names() if is_counter(key)} - set(chosen.values()))
    cumulative = {key for key in store.names() if plain_key(key) in _CUMULATIVE} | {
        chosen[name] for name in _CLOCKS if name in chosen
    }
    merged = merge_rows(store, step_R, run_rows, hidden=hidden, cumulative=cumulative)
    if not run_rows.all():  # what only other runs of the table logged is no column of this one
        own = {
            key: values
            for key, values in merged.columns.items()
            if np.isfinite(values).any() or not np.isfinite(store.sparse(key)[1]).any()
        }
        merged = replace(merged, columns=own)
    if not merged.columns:
        cells = "".join(
            f", but {key} such as {cell!r}" for key, cell in list(store.unread.items())[:1]
        )
        hint = "write plain numbers" if cells else "give the log of a run"
        raise UnreadableRunError(
            f"expected numbers beside the step, got none in {shown(log.path)}{cells}: {hint}"
        )
    return merged


def sound(record: RunRecord, what: str) -> RunRecord:
    """Return a record that is valid; raise with what it was made of where it is not."""
    try:
        record.validate()
    except InvalidArgumentError as error:
        raise UnreadableRunError(
            f"expected a log that makes a sound record, got {what}: {error}"
        ) from None
    return record


TWO_PROGRAMS = "it is the output of two programs, so give each a file of its own"


def _of_two_programs(store: RowStore) -> Notes:
    """Return a note where rows have the keys of different frameworks, and none has both."""
    keys: dict[str, list[str]] = {}
    for name in store.names():
        keys.setdefault(framework_of([name, "reward", "reward_std"]), []).append(name)
    rows = {of: holding(store, names) for of, names in keys.items() if of}
    apart = [
        f"{first} and of {other}"
        for first, other in combinations(rows, 2)
        if min(rows[first].sum(), rows[other].sum()) > 1 and not (rows[first] & rows[other]).any()
    ]
    return [f"the log has rows of {apart[0]}: {TWO_PROGRAMS}"] if apart else []


def _framework(config: RunConfig, columns: Columns) -> str:
    """Return the framework by the log's keys; where they are silent, the one that the user or a
    file states.
    """
    framework = framework_of(columns)
    stated = str(config.value("framework") or "").lower().replace("_", "-")
    return (
        stated
        if (not framework and stated) or (framework in TRL_FAMILY and stated == "ms-swift")
        else framework
    )


def chosen_columns(store: RowStore, columns: NamedColumns) -> dict[str, str]:
    """Return the columns that the user named, spelled as in the log; raise MissingMetricError
    where one is not there.
    """
    keys = store.names()
    chosen: dict[str, str] = {}
    for name, column in columns.items():
        matches = [key for key in keys if key == column] or [
            key for key in keys if plain_key(key) == plain_key(column)
        ]
        if not matches:
            listed = ", ".join(keys[:40])
            raise MissingMetricError(
                f"expected a column of the log for {name[:60]}, got {column[:80]!r}: the log has "
                f"{listed}"
            )
        chosen[name] = matches[0]
    return chosen


def _steps(log: Log, chosen: NamedColumns) -> tuple[str, Float, int, Notes]:
    """Return the step column ("" for none), the step of each row, the optimiser updates of a
    step (0 where unknown), and notes.
    """
    store = log.store
    if "step" in chosen:
        return chosen["step"], store.dense(chosen["step"]), 0, []
    if log.step is not None:
        return "", log.step, 0, []
    key, (each, step, note) = "rollout/step", rollout_numbers(store)
    if step is None:
        key, step, note = step_column(store)
    if step is not None:
        return key, step, each, [note] if note else []
    note = "no column is known as the step, so rows are counted: name one with --column step=NAME"
    return "", store.number, each, [note]


def _logged_settings(columns: Columns) -> dict[str, float]:
    """Return what the log repeats in every row, which may be settings."""
    settings: dict[str, float] = {}
    alone = any(plain_key(key) in _OF_PROMPT for key in columns)
    for key, values in columns.items():
        finite = values[np.isfinite(values)]
        section, _, leaf = plain_key(key).removesuffix("_mean").rpartition("/")
        if len(finite) and (finite == finite[0]).all() and leaf not in _NO_SETTING:
            leaf = (
                "group_size"
                if alone and leaf == "count" and section in LISTED
                else _COUNTED.get(leaf, leaf)
            )
            settings.setdefault("/".join(filter(None, (section, leaf))), float(finite[0]))
    return settings


def _with_updates(config: RunConfig, merged: Merged) -> RunConfig:
    """Return the settings with the updates of a step where the log counts both and they keep one
    ratio.
    """
    updates = _rising(
        {plain_key(key): values for key, values in merged.columns.items()},
        _UPDATE_KEYS,
        merged.step.astype(float),
    )
    if config.updates_per_step.known or updates is None:
        return config
    # beyond its first and its last value the count is filled with these
    each = np.trim_zeros(np.diff(updates) / np.diff(merged.step))
    whole = len(each) > 1 and each[0] >= 1 and each[0] % 1 == 0 and np.ptp(each) == 0
    return (
        config.with_settings({"updates_per_step": each[0]}, "the update count of the log")
        if whole
        else config
    )


def _with_rate(config: RunConfig, columns: Columns, meanings: Sequence[Meaning]) -> RunConfig:
    """Return the settings with the peak of the learning rate that the log holds, and with its
    schedule where that is plain.
    """
    rate = next((meaning for meaning in meanings if meaning.quantity == "learning_rate"), None)
    if rate is None or config.learning_rate.known:
        return config
    rates = columns[rate.column]
    rates = rates[np.isfinite(rates) & (rates >= 0)]
    if not rates.any() or rates.max() < TELLING * rate.resolution:
        return config
    course = f"from {rates.max():g} to {rates[-1]:g}"
    settings = {
        "learning_rate": float(rates.max()),
        "learning_rate_schedule": "constant" if rates.min() == rates.max() else course,
    }
    return with_found(config, settings, f"the largest of the column {rate.column}")


def _continued(
    columns: Columns, meanings: Meanings, notes: Notes
) -> tuple[dict[str, Float], Meanings]:
    """Return columns and meanings with what a quantity was called before an upgrade amid the run
    under the name that it has since.
    """
    kept, latest = dict(columns), dict[str, str]()
    for start, end, quantity, name in sorted(
        (*first_and_last(columns[meaning.column]), meaning.quantity, meaning.column)
        for meaning in meanings
    ):
        before = latest.get(quantity)
        last = end if before is None else first_and_last(kept[before])[1]
        if before is not None and last < start <= end:
            until = np.arange(len(kept[name])) < start
            kept[name] = np.where(until, kept.pop(before), kept[name])
            notes.append(
                f"{before} is called {name} from row {start + 1} on; both are read as one column"
            )
        elif first_and_last(kept[before or name])[0] < start <= last < end:
            rows = f"rows {start + 1} to {last + 1}"
            notes.append(
                f"{before} and {name} are both {quantity} in {rows} and are kept as two columns"
            )
        latest[quantity] = name
    return kept, tuple(meaning for meaning in meanings if meaning.column in kept)


def _alike(columns: Columns, meanings: Meanings) -> tuple[dict[str, Float], Meanings]:
    """Return the share of zero-variance groups as a column of its own, where the log has only
    its parts or that of the other groups.
    """
    by = {
        meaning.quantity: meaning.column
        for meaning in reversed(meanings)
        if not meaning.unavailable
    }
    right, wrong, others, kept, total = map(by.get, vocabulary("parts_of_groups"))
    if "dead_group_share" in by:
        return {}, meanings
    if right and wrong:
        name, values, text = (
            f"{right} + {wrong.rpartition('/')[2]}",
            columns[right] + columns[wrong],
            "groups that are all right or all wrong",
        )
    elif others:
        name, values, text = f"1 - {others}", 1.0 - columns[others], f"groups other than {others}"
    elif kept and total:
        with np.errstate(divide="ignore", invalid="ignore"):
            values = 1.0 - columns[kept] / columns[total]
        name, text = f"1 - {kept} / {total}", f"groups other than {kept}"
    else:
        return {}, meanings
    return {name: values}, (*meanings, Meaning(name, "dead_group_share", f"share of {text}"))


def _with_spacing(config: RunConfig, merged: Merged, framework: str) -> tuple[RunConfig, float]:
    """Return the settings with the framework and, where it can be told, logging_steps; and the
    steps that a row averages over.
    """
    config = with_found(config, {"framework": framework or None}, "the log's keys")
    gaps = np.diff(merged.step[merged.trained])
    if framework in TRL_FAMILY and len(gaps):
        usual = int(np.bincount(np.clip(gaps, 0, 100_000)).argmax())
        config = with_found(config, {"logging_steps": usual}, "the spacing of the rows")
    return config, float(config.value("logging_steps") or 1.0)


def _clock(
    merged: Merged,
    columns: Columns,
    took: Columns,
    config: RunConfig,
    framework: str,
    spacing: float,
) -> dict[str, Float | None]:
    """Return the base columns: optimiser updates, windows, tokens and seconds; `took` is what
    each row took of these.
    """
    step = merged.step.astype(float)
    per_step, counted_by = (
        float(config.value("updates_per_step") or 1.0),
        step if merged.clock is None or merged.clock[0] < 0 else merged.clock,
    )
    window = np.ones(len(step))
    if framework in TRL_FAMILY or config.logging_steps.known:
        gaps = _gaps(step[merged.trained], spacing)
        window[merged.trained] = np.clip(gaps, 1.0, spacing) * (
            per_step if framework not in TRL_FAMILY else 1.0
        )
    spelled = {plain_key(key): values for key, values in columns.items()}
    updates = _rising(spelled, _UPDATE_KEYS, step)
    counted = {
        "tokens": _rising(spelled, _TOKEN_KEYS),
        "seconds": _rising(spelled, _SECOND_KEYS),
    }
    if counted["seconds"] is None:
        stamp = _rising(spelled, _STAMP_KEYS, sure=True)
        counted["seconds"] = None if stamp is None else stamp - np.nanmin(stamp)
    for name, each in took.items():
        if counted[name] is None and np.isfinite(each).any() and not (each < 0).any():
            counted[name] = np.nancumsum(each)
    return {
        "optimizer_updates": counted_by * per_step if updates is None else updates,
        "window": window,
        **counted,
    }


def _took(
    merged: Merged, columns: Columns, meanings: Sequence[Meaning], spacing: float
) -> dict[str, Float]:
    """Return the tokens and seconds of each row, all its steps together, NaN where they are not
    logged.
    """
    step = merged.step.astype(float)
    steps_done = np.clip(_gaps(step, spacing), 0, spacing)
    seconds_of = {}
    for name, quantity, keys in (
        ("tokens", "step_tokens", _TOKEN_KEYS),
        ("seconds", "step_time", _SECOND_KEYS),
    ):
        named = [columns[meaning.column] for meaning in meanings if meaning.quantity == quantity]
        named += [
            values
            for key, values in columns.items()
            if plain_key(key) in keys and _of_each_step(values)
        ]
        each = named[0] if named else np.full(len(step), np.nan)
        seconds_of[name] = np.where(np.isfinite(each), each, np.nan) * steps_done
    return seconds_of


def _gaps(step: Float, spacing: float) -> Float:
    """Return the steps from each row's predecessor to it; the first row has as many as usual."""
    return np.diff(step, prepend=step[0] - min(spacing, max(step[0], 1.0)))


def _of_each_step(values: Float) -> bool:
    """Whether a column of a clock's name holds what each step took: one number in all rows, or
    one that falls as often as not.
    """
    finite = values[np.isfinite(values)]
    return len(finite) >= _FEWEST and (
        bool((finite == finite[0]).all()) or float((np.diff(finite) < 0).mean()) > _OFTEN
    )


def _stands(values: Float) -> bool:
    """Whether a column hardly rises for its height: no clock, unless it counts since 1970."""
    if len(values) < _FEWEST or not 0 < values[0] < _NO_ELAPSED:
        return False
    rise = float(values[-1] - values[0])
    return rise * _BEFORE < values[0] and rise < _SMALLEST * (len(values) - 1)


def _since_start(seconds: Float, took: Float, trained: Flags) -> Float:
    """Return a clock with the time of its first row: where it is 0 there, as a time of day, what
    that step took, else the median row.

    An evaluation before the training took nothing of it.
    """
    usable = np.flatnonzero(np.isfinite(seconds))
    if len(usable) and seconds[usable[0]] > _NO_ELAPSED:
        seconds = seconds - seconds[usable[0]]
    if len(usable) < 2 or seconds[usable[0]] != 0 or not trained[usable[0]]:
        return seconds
    first = took[usable[0]]
    return seconds + (first if first > 0 else np.median(np.diff(seconds[usable])))


def chosen_clocks(chosen: NamedColumns, columns: Columns) -> dict[str, Float | None]:
    """Return the clocks that the user named; raise where one falls."""
    clocks: dict[str, Float | None] = {}
    for name in _CLOCKS:
        if chosen.get(name) not in columns:
            continue
        values = columns[chosen[name]]
        order = np.arange(len(values), dtype=float)
        clocks[name] = _rising(
            {name: values}, (name,), order if name == "optimizer_updates" else None, sure=True
        )
        if clocks[name] is None:
            other = (
                ", or give the seconds of each step as --column step_time=NAME"
                if name == "seconds"
                else ""
            )
            raise InvalidArgumentError(
                f"expected a column that never decreases for {name}, got {chosen[name][:80]!r}: "
                f"name another{other}"
            )
    return clocks


def _rising(
    spelled: Columns, names: tuple[str, ...], fill_at: Float | None = None, *, sure: bool = False
) -> Float | None:
    """Return the first of the named columns that never falls, or None; gaps are interpolated
    over `fill_at`.
    """
    for name in names:
        values = spelled.get(name)
        if values is None:
            continue
        finite = np.isfinite(values) & (np.abs(values) < 2.0**62)
        if not finite.any() or (np.diff(values[finite]) < 0).any() or values[finite][0] < 0:
            continue
        if fill_at is not None:
            return np.interp(fill_at, fill_at[finite], values[finite])
        if not (np.isnan(values) | finite).all() or (not sure and _stands(values[finite])):
            continue
        return values
    return None


def _with_chosen(meanings: Meanings, chosen: NamedColumns, columns: Columns) -> Meanings:
    """Return the meanings with those that the user named in their place."""
    renamed = {
        f"log/{column}" if column in BASE_COLUMNS else column: name
        for name, column in chosen.items()
        if name != "step"
    }
    kept = tuple(
        meaning
        for meaning in meanings
        if meaning.column not in renamed and meaning.quantity not in renamed.values()
    )
    given = tuple(
        Meaning(column, name, f"{name}, as given with --column")
        for column, name in renamed.items()
        if column in columns
    )
    return given + kept


def _store_notes(store: RowStore) -> Notes:
    """Return notes on cells that could not be used."""
    notes, names = [], set(store.names())
    mixed = {key: number for key, number in store.texts.items() if key in names}
    lost = {
        key: cell
        for key, cell in store.unread.items()
        if key not in mixed and plain_key(key) not in _NO_NUMBERS
    }
    if mixed:
        cells = count(sum(mixed.values()), "cell with text counts", "cells with text count")
        notes.append(
            f"{cells} as missing: {some_of([f'{key} ({number})' for key, number in mixed.items()])}"
        )
    if lost:
        columns = count(len(lost), "column is", "columns are")
        notes.append(
            f"{columns} not numeric and left out: "
            f"{some_of([f'{key} ({cell!r})' for key, cell in lost.items()])}"
        )
    return notes + store.left_out_notes()


def _meanings(store: RowStore, framework: str) -> Meanings:
    """Return what the columns mean by their names and values alone."""
    columns = {key: store.dense(key) for key in store.names()}
    return meanings_of(
        columns,
        RunConfig(),
        framework=framework or framework_of(columns),
        complete=False,
        window=1.0,
    )


@frozen
class Origin:
    """Where the lines of a feed come from."""

    path: Path  # of the file
    size: int  # bytes of it that were read
    encoding: str = "utf-8"  # of its text


class Feed(ABC):
    """Takes the lines of a log in order, each with its line feed where it has one."""

    store: RowStore  # the rows so far
    joined = b"\0"  # what joins lines that are not read apart
    _lines = 0  # so far
    _newest: Sequence[bytes] = ()  # of them, which wait where not all are read

    @abstractmethod
    def take(self, lines: Iterable[str]) -> None:
        """Read whole lines."""

    def take_whole(self, block: bytes) -> int:
        """Read whole lines in UTF-8; return their number."""
        lines = lines_in(block)
        self.take(lines)
        return len(lines)

    def take_block(self, block: bytes) -> None:
        """Read whole lines in UTF-8; where there is no room for all rows, stretches of them."""
        if self.store.share == 1.0:
            self._lines += self.take_whole(block)
            return
        lines = [*self._newest, *block.splitlines(keepends=True)]
        waits = max(0, len(lines) // _STRETCH - 1) * _STRETCH
        for start in range(0, waits, _STRETCH):
            stretch = b"".join(lines[start : start + _STRETCH])
            number = np.array([self._lines // _STRETCH])
            if self.joined in stretch or stretches_kept(number, self.store.share)[0]:
                self.take_whole(stretch)
                self.finish()
            else:
                self.store.read += _STRETCH * self.store.read // self._lines
            self._lines += _STRETCH
        self._newest = lines[waits:]

    def take_newest(self) -> None:
        """Read the lines that wait."""
        if self._newest:
            self._lines += len(self._newest)
            self.take_whole(b"".join(self._newest))
            self._newest = ()

    def finish(self) -> None:  # noqa: B027  most hold nothing back
        """Take what was held back: no line follows."""

    @abstractmethod
    def record(self, origin: Origin, request: Request) -> RunRecord:
        """Return the record of what was taken so far."""


def read_fed(feed: Feed, path: Path, request: Request) -> RunRecord:
    """Read a whole file through a feed."""
    seen = peek(path)
    blocks = Blocks(seen)
    for block in blocks:
        feed.take_block(block)
    feed.take_newest()
    feed.finish()
    record = feed.record(Origin(path, seen.size, seen.encoding), request)
    return replace(record, notes=(*blocks.notes(), *record.notes))


def encoding_notes(encoding: str) -> Notes:
    """Return the note on an encoding that was guessed."""
    return ["the file is not UTF-8 and was read as Latin-1"] if encoding == "latin-1" else []
