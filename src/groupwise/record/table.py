"""The two tables of a run: how they are built from columns or rows, what must hold in them, how
finely a column was printed, and completions that stay in the files they were read from.

With a resolution r a value v stands for v ± r.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from groupwise import parsing
from groupwise.arrays import Flags, Float, Whole
from groupwise.errors import InvalidArgumentError, UnreadableRunError
from groupwise.files import open_regular, table_column
from groupwise.parsing import JsonObject, JsonView
from groupwise.plain import Words, frozen
from groupwise.wording import clean, count

# What Polars raises of a damaged file.
UNREADABLE = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    OSError,
    ValueError,
    RuntimeError,
)
BASE_COLUMNS = ("step", "optimizer_updates", "window", "tokens", "seconds")
TEXT_COLUMNS = ("prompt", "completion")
WHOLE_COLUMNS = ("step", "prompt_id")
_NAMED = frozenset((*TEXT_COLUMNS, *WHOLE_COLUMNS))
# bits of a prompt_id that are written: more than 4,300 digits could not be read back
_WIDEST = 1024
_MOST_TOLD = 5
THINNED = 1 / 8  # of the rows of a table that has no room for more
_STRETCH, _STRETCHES, _NEWEST = 16, 64, 1024  # rows of a stretch, the fewest of these, newest rows
_GOLDEN = (5**0.5 - 1) / 2

Odd = Counter[
    tuple[str, str]
]  # (kind, column) -> cells of a journal that a table cannot hold as they are
_ODD = table_column("record/odd.tsv", "kind", "said")


def odd_notes(odd: Odd) -> Words:
    """Return what became of odd cells as notes of a record."""
    notes = [parsing.left_out(odd["wide", ""])] if odd["wide", ""] else []
    notes += [
        _ODD[kind].format(
            cells=count(cells, "cell"),
            column=repr(clean(column, longest=60)),
            is_or_are="is" if cells == 1 else "are",
        )
        for (kind, column), cells in sorted(odd.items(), key=lambda item: item[0][0] == "nan")
        if kind in _ODD
    ]
    rest = len(notes) - _MOST_TOLD
    return (
        *notes[:_MOST_TOLD],
        *([f"there are odd cells in {count(rest, 'more column')} too"] if rest > 0 else []),
    )


def steps_table(
    step: Iterable[int],
    columns: JsonView,
    *,
    optimizer_updates: Any = None,
    window: Any = None,
    tokens: Any = None,
    seconds: Any = None,
) -> pl.DataFrame:
    """Return a steps table from columns."""
    steps = pl.Series(
        "step", np.asarray(step if isinstance(step, np.ndarray) else list(step), dtype=np.int64)
    )
    base = {
        "optimizer_updates": steps.to_numpy() if optimizer_updates is None else optimizer_updates,
        "window": np.ones(len(steps)) if window is None else window,
        "tokens": tokens,
        "seconds": seconds,
    }
    logged = {
        f"log/{key}" if key in BASE_COLUMNS else key: values for key, values in columns.items()
    }
    floats = {
        name: _float_series(name, values, len(steps))
        for name, values in (*base.items(), *logged.items())
    }
    return pl.DataFrame({"step": steps, **floats})


def columns_of(rows: Sequence[JsonView], odd: Odd | None = None) -> dict[str, Float]:
    """Return rows of numbers as columns, NaN where a row has no value or one that is no number."""
    odd = Odd() if odd is None else odd
    columns = {}
    for name, values in _cells(rows, odd).items():
        numbers = columns[sound_text(str(name))] = _numbers(name, values, odd)
        if np.isnan(numbers).sum() > values.count(None) and (
            nan := sum(value != value for value in values)
        ):
            odd["nan", str(name)] += nan
    return columns


def _cells(rows: Sequence[JsonView], odd: Odd, first: Sequence[str] = ()) -> dict[str, list[Any]]:
    """Return the column of each key, some first, of as many as a table may have; None where a row
    lacks it.
    """
    cells: dict[str, list[Any]] = {
        name: [None] * len(rows)
        for name in [*dict.fromkeys(chain(first, *rows))][: parsing.most_keys(len(rows))]
    }
    for place, row in enumerate(rows):
        for name, value in row.items():
            if name in cells:
                cells[name][place] = value
            else:
                odd["wide", ""] += 1
    return cells


def steps_of_rows(rows: Sequence[JsonView], odd: Odd) -> pl.DataFrame:
    """Return a steps table from rows: updates that are missing are the steps, windows are 1."""
    columns = columns_of(rows, odd)
    columns.pop("step", None)
    step = [int(row["step"]) for row in rows]
    base: JsonObject = {name: columns.pop(name, None) for name in BASE_COLUMNS[1:]}
    for name, default in (("optimizer_updates", np.array(step, dtype=float)), ("window", 1.0)):
        if base[name] is not None:
            base[name] = np.where(np.isnan(base[name]), default, base[name])
    return steps_table(step, columns, **base)


def rollouts_table(rows: Sequence[JsonView], odd: Odd | None = None) -> pl.DataFrame | None:
    """Return a rollouts table from rows, or None where there are none."""
    odd = Odd() if odd is None else odd
    cells = _cells(rows, odd, WHOLE_COLUMNS)
    if not {int}.issuperset(map(type, chain(*(cells[name] for name in WHOLE_COLUMNS)))):
        rows = [
            row
            for row in rows
            if all(isinstance(row.get(name), int | np.integer) for name in WHOLE_COLUMNS)
        ]
        odd["no id", "prompt_id"] += len(cells["step"]) - len(rows)
        cells = _cells(rows, Odd(), WHOLE_COLUMNS)
    if not rows:
        return None
    series = []
    for name, values in cells.items():
        if name in TEXT_COLUMNS:
            series.append(text_series(name, values, odd))
        elif name in WHOLE_COLUMNS:
            series.append(pl.Series(name, _whole_numbers(name, values, odd), dtype=pl.Int64))
        else:
            key = sound_text(str(name))
            series.append(_float_series(key, _numbers(name, values, odd), len(rows)))
    return pl.DataFrame({column.name: column for column in series})


def stacked(tables: Sequence[pl.DataFrame | None], odd: Odd) -> Any:
    """Return the rows of tables, one after the other; None where there is no table.

    It has as many columns as a table may have.
    """
    present = [part for part in tables if part is not None]
    if not present:
        return None
    table = pl.concat(present, how="diagonal")
    most = parsing.most_keys(len(table)) + len(BASE_COLUMNS)
    if table.width <= most:
        return table
    odd["wide", ""] += sum(table[name].count() for name in table.columns[most:])
    return table[:, :most]


def newest(rollouts: pl.DataFrame | None, odd: Odd) -> pl.DataFrame | None:
    """Return the rollouts of the newest steps with room, and of these the newest texts."""
    if rollouts is None:
        return None
    most = parsing.MOST_CELLS // rollouts.width
    if len(rollouts) > most:
        kept_rows = rollouts.filter(pl.col("step") > rollouts["step"][-most - 1])
        odd["old", "prompt_id"] += len(rollouts) - len(kept_rows)
        rollouts = kept_rows
    for name in TEXT_COLUMNS:
        if name in rollouts:
            length = rollouts[name].str.len_bytes().fill_null(0)
            older = rollouts["step"].filter(length.cum_sum(reverse=True) > parsing.MOST_TEXT)
            if len(older):
                kept = pl.when(pl.col("step") > older[-1]).then(pl.col(name))
                before, rollouts = rollouts[name].count(), rollouts.with_columns(kept)
                odd["old", name] += before - rollouts[name].count()
    return rollouts if len(rollouts) else None


def text_series(name: str, values: Sequence[Any], odd: Odd) -> pl.Series:
    """Return a column of texts."""
    texts = list(map(_text, values))
    try:
        return pl.Series(name, texts, dtype=pl.Utf8)
    except UnicodeEncodeError:
        sound = [text and sound_text(text) for text in texts]
        odd["text", name] += sum(
            before != other for before, other in zip(texts, sound, strict=True)
        )
        return pl.Series(name, sound, dtype=pl.Utf8)


def sound_text(text: str) -> str:
    r"""Return a text that has a place in UTF-8: half of a surrogate pair as an escape."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _whole_numbers(name: str, values: Sequence[int], odd: Odd) -> Any:
    """Return whole numbers of 64 bits."""
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        return [whole_number(value, odd, name) for value in values]


def whole_number(value: int, odd: Odd, name: str = "prompt_id") -> int:
    """Return a whole number of 64 bits; of a larger one its last, which keeps hashes apart."""
    if -(2**63) <= value < 2**63:
        return value
    odd["id", name] += 1
    return (value + 2**63) % 2**64 - 2**63


def _numbers(name: str, values: Sequence[Any], odd: Odd) -> Float:
    """Return a column of numbers, NaN for None and for what is no number."""
    try:
        numbers = np.array(values, dtype=float)
    except (TypeError, ValueError, OverflowError):
        numbers = np.zeros(0)
    if numbers.shape == (len(values),):
        return numbers
    return np.array([_number(name, value, odd) for value in values], dtype=float)


def _number(name: str, value: Any, odd: Odd) -> float:
    """Return a cell as a number, NaN where it is none."""
    if isinstance(value, int | float | np.number):
        return _as_float(value)
    if value is not None:
        odd["number", str(name)] += 1
    return math.nan


def _as_float(value: Any) -> float:
    """Return a number as a float; one beyond all floats is infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, 1 if value > 0 else -1)


def mended(steps: pl.DataFrame, odd: Odd) -> pl.DataFrame:
    """Return a steps table whose clock never falls and whose windows are above 0.

    The steps, or 1, stand in for what is not so.
    """
    updates, window = steps["optimizer_updates"].to_numpy(), steps["window"].to_numpy()
    wrong, above = _clock_faults(updates), _is_above(window)
    if wrong:
        odd["clock", "optimizer_updates"] += wrong
        steps = steps.with_columns(optimizer_updates=pl.col("step").cast(pl.Float64))
    if not above.all():
        odd["window", "window"] += (~above).sum()
        steps = steps.with_columns(
            pl.Series("window", np.where(above, window, 1.0), dtype=pl.Float64)
        )
    return steps


def _clock_faults(updates_T: Float) -> int:
    """Return in how many rows the clock is missing, not finite, or falls."""
    return int((~np.isfinite(updates_T)).sum() + (np.diff(updates_T) < 0).sum())


def _is_above(window_T: Float) -> Flags:
    """Return which windows lie above 0."""
    return np.isfinite(window_T) & (window_T > 0)


def rows_that_stand(step_T: Whole) -> Flags:
    """Return which rows no later row supersedes, by having its step or an earlier one.

    So a run that was resumed from a checkpoint keeps, of every step, what the continued run wrote.
    """
    if not len(step_T):
        return np.zeros(0, dtype=bool)
    later = np.minimum.accumulate(step_T[::-1])[::-1]
    return np.append(step_T[:-1] < later[1:], True)


def stretches_kept(number: Whole, share: float) -> Flags:
    """Return which of numbered stretches are kept where only a share of them is."""
    return number * _GOLDEN % 1.0 < share


def thinned(rows: int) -> Flags:
    """Return which rows stay of a table without room for more.

    The newest, and stretches that lie evenly and that no period of a log falls together with.
    """
    stays = stretches_kept(np.arange(rows) // min(_STRETCH, -(-rows // _STRETCHES)), THINNED)
    stays[rows - min(_NEWEST, rows // 8) :] = True
    return stays


def read_parquet(path: Path, *, nested: bool = True) -> pl.DataFrame:
    """Return the table of a Parquet file, its nested columns empty where they are not wanted."""
    try:
        open_regular(path).close()  # what opens it below does so unseen by Python's audit hooks
        table = pl.scan_parquet(path, glob=False, hive_partitioning=False)
        cells = table.select(pl.len()).collect().item() * len(table.collect_schema())
        if cells > parsing.MOST_CELLS:
            most = f"at most {parsing.MOST_CELLS:,} cells"
            raise UnreadableRunError(
                f"expected a table of {most} at {path}, got {cells:,}: write fewer rows or columns"
            )
        if not nested:
            kinds = table.collect_schema().items()
            nothing = [pl.lit(None).alias(name) for name, kind in kinds if kind.is_nested()]
            table = table.with_columns(nothing)
        held, size = table.collect(), path.stat().st_size
    except UnreadableRunError:
        raise
    except UNREADABLE as error:
        reason = str(error).strip().split("\n")[0][:120]
        raise UnreadableRunError(
            f"expected a Parquet file at {path}, got {reason}: write it again or move it away"
        ) from None
    if parsing.MOST_UNFOLDED < held.estimated_size() > parsing.MOST_TIMES * size:
        raise UnreadableRunError(
            f"expected texts of at most {parsing.MOST_UNFOLDED:,} bytes at {path}, got "
            f"{held.estimated_size():,} unpacked from {size:,}: write it again without the texts"
        )
    return held


def _float_series(name: str, values: Any, length: int) -> pl.Series:
    """Return a Float64 column in which NaN is null; None is a column of nulls."""
    numbers = np.full(length, np.nan) if values is None else np.array(values, dtype=float)
    return pl.Series(name, numbers, dtype=pl.Float64, nan_to_null=True)


def plain_number(key: Any, value: Any) -> float | None:
    """Return one value of a row as a float or None."""
    if value is None:
        return None
    if isinstance(value, int | float | np.number) and not isinstance(value, np.complexfloating):
        return _as_float(value)
    raise InvalidArgumentError(
        f"expected a number or None for {str(key)[:60]!r}, got {str(value)[:40]!r}: convert it "
        "first"
    )


def readable_cells(row: Mapping[Any, Any], odd: Odd) -> JsonObject:
    """Return a row with None for each cell that cannot be recorded, which is counted."""
    readable: JsonObject = {}
    for key, value in row.items():
        name = "a key"
        try:
            name = str(key)
            readable[name] = (
                value
                if name in WHOLE_COLUMNS
                else _text(value)
                if name in TEXT_COLUMNS
                else plain_number(key, value)
            )
        except Exception:  # noqa: BLE001 - a value of whatever kind costs itself and no more
            readable[name] = None
            odd["cell", name] += 1
    return readable


def _text(value: Any) -> str | None:
    """Return one text of a completion."""
    return None if value is None else str(value)


def plain_rollout(rollout: JsonView) -> JsonObject:
    """Return one rollout as plain data."""
    prompt = rollout.get("prompt_id")
    if isinstance(prompt, bool) or not isinstance(prompt, int | np.integer):
        raise InvalidArgumentError(
            f"expected a whole number for prompt_id, got {str(prompt)[:40]!r}: number the "
            "prompts of the step"
        )
    number = int(prompt)
    if number.bit_length() > _WIDEST:  # its digits could not be read back
        number = whole_number(number, Odd())
    plain: JsonObject = {"prompt_id": number}
    for name in TEXT_COLUMNS:
        if name in rollout:
            plain[name] = _text(rollout[name])
    for key, value in rollout.items():
        if key not in _NAMED:  # a float is the usual case, of which a step has thousands
            plain[key if type(key) is str else str(key)] = (
                value if type(value) is float else plain_number(key, value)
            )
    return plain


def step_entry(row: JsonView, rollouts: Iterable[JsonView] | None) -> JsonObject:
    """Return one step as a journal takes it."""
    return {"row": row} | (
        {} if rollouts is None else {"rollouts": [plain_rollout(rollout) for rollout in rollouts]}
    )


def check_steps(steps: pl.DataFrame) -> None:
    """Raise where the steps table breaks an invariant."""
    if tuple(steps.columns[: len(BASE_COLUMNS)]) != BASE_COLUMNS:
        raise InvalidArgumentError(
            f"expected the columns {BASE_COLUMNS} first, got {tuple(steps.columns[:5])}: build "
            "the table with steps_table"
        )
    wrong = [
        name
        for name, kind in steps.schema.items()
        if kind != (pl.Int64 if name == "step" else pl.Float64)
    ]
    if wrong:
        kind = steps.schema[wrong[0]]
        raise InvalidArgumentError(
            f"expected Float64 columns (Int64 for step), got {kind} for {wrong[0]!r}: use "
            "steps_table"
        )
    step = steps["step"]
    if step.null_count() or not (step.to_numpy()[1:] > step.to_numpy()[:-1]).all():
        raise InvalidArgumentError(
            "expected strictly increasing steps, got one that is missing, repeated or smaller: "
            "sort the rows"
        )
    if _clock_faults(steps["optimizer_updates"].to_numpy()):
        raise InvalidArgumentError(
            "expected optimizer_updates that never fall, got a missing or a smaller one: check "
            "updates_per_step"
        )
    if not _is_above(steps["window"].to_numpy()).all():
        raise InvalidArgumentError(
            "expected finite windows above 0, got another or none: check logging_steps"
        )


def check_rollouts(rollouts: pl.DataFrame, *, left: bool) -> None:
    """Raise where the rollouts table breaks an invariant.

    `left` says that completions stay in their files.
    """
    for name, kind in rollouts.schema.items():
        whole = name in WHOLE_COLUMNS or (left and name == "completion")
        expected = pl.Int64 if whole else pl.Utf8 if name in TEXT_COLUMNS else pl.Float64
        if kind != expected:
            raise InvalidArgumentError(
                f"expected {expected} for the rollouts' {name!r}, got {kind}: build the table "
                "with rollouts_table"
            )
    for name in WHOLE_COLUMNS:
        if name not in rollouts or rollouts[name].null_count():
            raise InvalidArgumentError(
                f"expected {name} in every row of the rollouts, got a missing one: build "
                "the table with rollouts_table"
            )


@frozen
class Texts:
    """The completions of a record by their places, from 0 in the order of its files."""

    ends: Whole  # the place behind each part of the files
    again: tuple[Callable[[], pl.Series], ...]  # read the completions of each part

    def read(self, rows: pl.DataFrame, made: Sequence[pl.Expr]) -> pl.DataFrame:
        """Return rows with what expressions make of their columns, completions as texts.

        One part is in memory at a time.
        """
        rows = rows.with_row_index("row")
        part = pl.Series(np.searchsorted(self.ends, rows["completion"].fill_null(0), side="right"))
        part = part.zip_with(rows["completion"].is_not_null(), pl.Series([-1]))
        tables = []
        for number in sorted({-1, *part}):
            some = rows.filter(part == number)
            texts, start, size = pl.Series(dtype=pl.Utf8), 0, 0
            if number >= 0:
                start = int(self.ends[number - 1]) if number else 0
                texts, size = self.again[number](), int(self.ends[number]) - start
            if len(texts) < size:
                raise UnreadableRunError(
                    f"expected the {size:,} completions that a file held, got {len(texts):,}: open "
                    "the run again"
                )
            read = some.with_columns(completion=texts.gather(some["completion"] - start))
            tables.append(some.with_columns(read.select(made)))
        return pl.concat(tables).sort("row").drop("row")


MOST_DECIMALS = 12
_PRINTED = 7  # decimals beyond which a 0 is one
# A rounded number tells a size where it is that many times as large as its resolution.
TELLING = 20.0


def printed_decimals(text: str) -> int:
    """Return the decimals of a number in a fixed format, whose last digit is a 0; else 0."""
    decimals = text.rstrip().rpartition(".")[2]
    fixed = 2 <= len(decimals) <= _PRINTED and len(decimals) < len(text)
    return len(decimals) if fixed and decimals[-1] == "0" and decimals.isdecimal() else 0


def fits(values: Float, decimals: int) -> bool:
    """Return whether that many decimals write all values in full."""
    return np.allclose(values, np.round(values, decimals), rtol=5e-16, atol=1e-13)


def fewest_decimals(values: Float, most: int = MOST_DECIMALS) -> int | None:
    """Return the fewest decimals, fewer than `most`, that write all values in full, or None."""
    return next((decimals for decimals in range(most) if fits(values, decimals)), None)


def resolution_of(decimals: int) -> float:
    """Return half a unit of the last printed digit; 0 for none, which is an exact number."""
    return float(f"5e-{decimals + 1}") if decimals else 0.0


def zero_rows(value_T: Float, resolution: float) -> Flags:
    """Return the rows that hold 0.

    Of a rounded column none, unless its other values are so large that a 0 is nothing beside them.
    """
    zero_T: Flags = value_T == 0.0
    others = np.abs(value_T[np.isfinite(value_T) & ~zero_T])
    if resolution and (not others.size or np.median(others) < TELLING * resolution):
        return np.zeros_like(zero_T)
    return zero_T
