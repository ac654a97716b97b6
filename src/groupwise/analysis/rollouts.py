"""The completions of a run as pages show them, in groups and in five orders, and its prompts: how
often each was right, and whether it teaches.

A prompt is known again by its text, or by a number that is its own. A visit teaches where its
rewards differ: else its advantages are zero.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise, starmap, takewhile
from typing import Any

import numpy as np
import polars as pl

from groupwise.analysis.charts import whole_short
from groupwise.arrays import Ends, Float, Whole
from groupwise.intervals import Interval, wilson
from groupwise.parsing import JsonObject
from groupwise.plain import Plain, frozen, to_json
from groupwise.record.run import RunRecord
from groupwise.record.table import TEXT_COLUMNS
from groupwise.series.metric import LOG_COMPLETIONS, outcomes_of
from groupwise.wording import clean, count

# The orders in which completions are looked at; only the first has all of them for sure.
VIEWS = ("newest", "zero_variance", "truncated", "highest", "lowest")
HELD = 100  # completions that a report holds
MOST_ROWS = 200  # that are given out at once
LONGEST, LONGEST_PROMPT, LONGEST_WHOLE = 2000, 1000, 200_000  # characters
_HELD_BYTES = 110_000  # that the completions of a report may take
_MOST_SIBLINGS, _MOST_NUMBERS = 64, 24
_NUMBERS = ("reward", "advantage", "length")
NO_COMPLETIONS = f"This log has no completion texts: {LOG_COMPLETIONS}."


@frozen
class Group(Plain):
    """One group, as each of its completions shows it."""

    step: int
    prompt: str  # its end
    prompt_cut: int  # characters before it that are left out
    first: int  # number of its first completion
    size: int
    rewards: tuple[float | None, ...]  # of its completions in order, of a large group the first
    zero_variance: bool


@frozen
class Completion(Plain):
    """One completion; numbers that were not logged are None."""

    id: int  # its number in the order of the log: by step, then by group
    group: int  # place of its group among those given with it
    text: str  # its start
    text_cut: int  # characters behind it that are left out
    end: str  # what stands behind those, "" where nothing is left out
    reward: float | None
    advantage: float | None
    length: float | None
    truncated: bool | None
    more: dict[
        str, float | None
    ]  # what each reward function gave, and every other number that was logged of it


@frozen
class CompletionBatch(Plain):
    """Completions that were asked for, with their groups."""

    groups: tuple[Group, ...]
    rows: tuple[Completion, ...]


@frozen
class Held(Plain):
    """The completions that a report holds."""

    said: str  # which they are, a sentence
    counts: dict[str, int]  # view -> completions of the run in it
    views: dict[
        str, tuple[int, ...]
    ]  # view -> its first completions, by their place in `batch.rows`
    batch: CompletionBatch
    range: Ends  # least and largest reward of the run


class Rollouts:
    """The completions of a record, marked and put in order."""

    def __init__(self, record: RunRecord) -> None:
        """Sort and mark; a record without completions has none."""
        frame = record.rollouts
        if frame is None or not {"step", "prompt_id"} <= set(frame.columns):
            frame = pl.DataFrame(schema={"step": pl.Int64, "prompt_id": pl.Int64})
        self._record = record
        self._read: tuple[list[int], list[dict[str, Any]]] = ([], [])
        self.frame = _marked(frame.sort("step", "prompt_id", maintain_order=True), record)
        kept = ("step", "prompt_id", *TEXT_COLUMNS, *_NUMBERS, *_MARKS)
        numbers = [
            name
            for name, kind in self.frame.schema.items()
            if name not in kept and kind.is_numeric()
        ]
        numbers.sort(key=lambda name: not name.startswith("reward/"))  # its functions first
        self.more = numbers[:_MOST_NUMBERS]
        self.limit = record.config.value("max_completion_length")

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.frame)

    @cached_property
    def reward(self) -> Float:
        """What each completion earned, NaN where that is not known."""
        if "reward" not in self.frame:
            return np.full(len(self), math.nan)
        return self.frame["reward"].fill_null(math.nan).to_numpy()

    @cached_property
    def orders(self) -> dict[str, Whole]:
        """View -> the numbers of its completions, in order; without what the log cannot tell."""
        newest = np.arange(len(self) - 1, -1, -1)
        orders = {"newest": newest}
        for mark in _MARKS:
            if self.frame[mark].count():
                orders[mark] = newest[self.frame[mark].fill_null(value=False).to_numpy()[newest]]
        reward = self.reward
        rewarded = newest[np.isfinite(reward[newest])]
        if rewarded.size:
            for view, sign in (("highest", -1), ("lowest", 1)):  # of equal ones the newest first
                orders[view] = rewarded[np.argsort(sign * reward[rewarded], kind="stable")]
        return orders

    @property
    def counts(self) -> dict[str, int]:
        """View -> how many completions it has."""
        return {view: len(order) for view, order in self.orders.items()}

    @property
    def range(self) -> Ends:
        """Least and largest reward, 0 and 1 where none is known."""
        finite = self.reward[np.isfinite(self.reward)]
        return (finite.min(), finite.max()) if finite.size else (0.0, 1.0)

    def part(self, view: str, first: int, most: int, *, whole: bool = False) -> CompletionBatch:
        """Return completions of a view from a place on; `whole` does not cut a single one's."""
        ids = self.orders.get(view, np.empty(0, dtype=np.int64))[max(first, 0) :][
            : min(most, MOST_ROWS)
        ]
        if whole and len(ids) == 1:
            return self.batch(ids, LONGEST_WHOLE, LONGEST_WHOLE)
        return self.batch(ids, LONGEST, LONGEST_PROMPT)

    def batch(self, ids: Iterable[int], longest: int, longest_prompt: int) -> CompletionBatch:
        """Return completions by their numbers, texts cut."""
        wanted = list(map(int, ids))
        label, starts = self.groups
        group_of = label[wanted].tolist()
        places = {group: at for at, group in enumerate(dict.fromkeys(group_of))}
        groups = tuple(
            self._group(int(starts[group]), int(starts[group + 1]), longest_prompt)
            for group in places
        )
        if self._read[0] != wanted:  # the same ones are asked for with shorter texts
            self._read = wanted, self._record.with_completions(self.frame[wanted]).rows(named=True)
        rows = self._read[1]
        made = tuple(
            self._completion(number, places[group], row, longest)
            for number, group, row in zip(wanted, group_of, rows, strict=True)
        )
        return CompletionBatch(groups, made)

    @cached_property
    def groups(self) -> tuple[Whole, Whole]:
        """The group of each completion, and where each group begins, with the last end."""
        label = self.frame.select(pl.struct("step", "prompt_id").rle_id()).to_series().to_numpy()
        return label, np.append(np.flatnonzero(np.diff(label, prepend=-1)), len(label))

    def _group(self, start: int, stop: int, longest: int) -> Group:
        """Return the group of the completions from `start` to `stop`."""
        head = self.frame.row(start, named=True)
        prompt, left = tail_of(head.get("prompt"), longest)
        last = min(stop, start + _MOST_SIBLINGS)
        return Group(
            head["step"],
            prompt,
            left,
            start,
            stop - start,
            tuple(map(_short, self.reward[start:last].tolist())),
            zero_variance=bool(head["zero_variance"]),
        )

    def _completion(
        self, number: int, group: int, row: Mapping[str, Any], longest: int
    ) -> Completion:
        """Return one completion."""
        text, left, end = _ends_of(row.get("completion"), longest)
        reward, advantage, length = (_short(row.get(name)) for name in _NUMBERS)
        more = {
            clean(name.removeprefix("reward/"), longest=60): _short(row[name]) for name in self.more
        }
        return Completion(
            number, group, text, left, end, reward, advantage, length, row["truncated"], more
        )


_MARKS = ("zero_variance", "truncated")


def _marked(frame: pl.DataFrame, record: RunRecord) -> pl.DataFrame:
    """Add whether the group of a completion has zero variance, and whether it was truncated."""
    frame = frame.drop(_MARKS, strict=False)
    outcomes = outcomes_of(record) if len(frame) else None
    if outcomes is None:
        frame = frame.with_columns(zero_variance=pl.lit(None, dtype=pl.Boolean))
    else:
        equal = outcomes.group_by("step", "prompt_id").agg(
            zero_variance=pl.col("outcome").n_unique() == 1
        )
        frame = frame.join(equal, on=["step", "prompt_id"], how="left", maintain_order="left")
    # A completion was cut off as logged, else by its length and the limit, else it is not known.
    limit = record.config.value("max_completion_length")
    cut = (
        pl.col("length") >= limit
        if limit is not None and "length" in frame
        else pl.lit(None, dtype=pl.Boolean)
    )
    cut = pl.col("ended") <= 0 if "ended" in frame else cut
    return frame.with_columns(truncated=cut)


def _short(value: Any) -> float | None:
    """Return a finite number in six digits, or None."""
    if value is None or not math.isfinite(value):
        return None
    return whole_short(float(f"{value:.6g}"))


def _ends_of(text: Any, longest: int) -> tuple[str, int, str]:
    """Return the start of a cleaned text, how many characters are left out, and its end.

    Line feeds are kept; the answer stands at the end.
    """
    whole = str(text or "")
    left = len(whole) - longest
    if left <= 0:
        return _lines(whole), 0, ""
    start = longest - longest // 3
    return _lines(whole[:start]), left, _lines(whole[start + left :])


def tail_of(text: Any, longest: int) -> tuple[str, int]:
    """Return the end of a prompt, cleaned, and how many characters are left out.

    Before it stands what every prompt says.
    """
    whole = str(text or "").strip()
    return _lines(whole[-longest:]), max(0, len(whole) - longest)


def _lines(text: str) -> str:
    """Return a text cleaned line by line."""
    return "\n".join(
        clean(line, longest=len(line) + 1) for line in text.replace("\t", "    ").split("\n")
    )


def held_rollouts(record: RunRecord, *, most: int = HELD, spent: int | None = None) -> Held | None:
    """Choose the completions that a report holds; None where there are none.

    The newest group, then the first of each view in turn. Where the run `spent` more rollouts than
    the log has, both numbers are said.
    """
    rollouts = Rollouts(record)
    if not len(rollouts):
        return None
    ids, longest = _chosen(rollouts, most), LONGEST
    while (
        len(to_json(batch := rollouts.batch(ids, longest, longest // 2))) > _HELD_BYTES
        and longest > 50
    ):
        longest //= 2
    place = {number: at for at, number in enumerate(ids)}
    views = {
        view: tuple(place[number] for number in takewhile(place.__contains__, order.tolist()))
        for view, order in rollouts.orders.items()
    }
    views["newest"] = tuple(place[number] for number in sorted(ids, reverse=True))
    whole = count(len(rollouts), "completion")
    choice = (
        f"These are all {whole} of the log."
        if len(ids) == len(rollouts)
        else f"{len(ids)} of {whole}: {_said(views)}."
    )
    return Held(
        choice + _lacking(rollouts, record, spent), rollouts.counts, views, batch, rollouts.range
    )


def _lacking(rollouts: Rollouts, record: RunRecord, spent: int | None) -> str:
    """Say how many rollouts of a run the log has, where it has not all."""
    if spent is None or spent <= len(rollouts):
        return ""
    steps = record.steps["step"]
    bare = (~steps.is_in(rollouts.frame["step"].implode())).sum()
    none = f"; {bare:,} of {count(len(steps), 'row')} have none" if bare else ""
    return f" Of {spent:,} rollouts the log has {len(rollouts):,}{none}."


_NAMES = {
    "zero_variance": "of zero-variance groups",
    "highest": "with the highest reward",
    "lowest": "with the lowest",
}


def _said(views: Mapping[str, Sequence[int]]) -> str:
    """Say what a choice consists of."""
    parts = [
        f"the first {len(held)} {_NAMES.get(view, view)}"
        for view, held in views.items()
        if view != "newest" and held
    ]
    return ", ".join(("the newest groups", *parts))


def _chosen(rollouts: Rollouts, most: int) -> list[int]:
    """Choose whole groups: of the newest for a third, then of each view in turn."""
    chosen: dict[int, None] = {}
    for members in reversed([*starmap(range, pairwise(rollouts.groups[1].tolist()))]):
        if chosen and len(chosen) + len(members) > most // 3:
            break
        chosen |= dict.fromkeys(members[: most // 2])
    queues = [iter(order.tolist()) for view, order in rollouts.orders.items() if view != "newest"]
    while queues and len(chosen) < most:
        for queue in list(queues):
            following = next((number for number in queue if number not in chosen), None)
            if following is None:
                queues.remove(queue)
            elif len(chosen) < most:
                chosen[following] = None
    return list(chosen)


SHOWN = 40  # prompts of a table
_RECENT = 8  # rollouts that "now" takes, in whole visits
_LONGEST = 160
_PLACES = 2  # batches beyond which a number is no place in one
# rewards of a prompt's newest visits differ, are all the highest, the lowest, equal
STANDINGS = ("teaches", "solved", "too hard", "flat")
LOG_PROMPTS = (
    "To see which prompts give a gradient, log the text or a fixed id of each, and rewards."
)


@frozen
class PromptRow(Plain):
    """One prompt."""

    prompt: str  # its end
    standing: str  # one of STANDINGS
    visits: int
    teaching: int  # visits whose rewards differ
    now: (
        Interval | None
    )  # pass rate over the newest rollouts; None where rewards take more than two values
    mean: float  # reward over the newest rollouts
    rollouts: int  # that `now` and `mean` take


@frozen
class PromptTable(Plain):
    """The prompts of a run, or why there is no table of them."""

    said: str  # how many teach, in a sentence, or what to log
    binary: bool = False  # whether rewards take two values, so that the mean is a pass rate
    standings: tuple[tuple[str, int], ...] = ()  # how many prompts stand how
    rows: tuple[PromptRow, ...] = ()  # those that teach most, then those that teach least


def prompt_table(record: RunRecord, *, shown: int = SHOWN) -> PromptTable:
    """Return the prompts of a run, those that teach first."""
    outcomes = named_outcomes(record)
    named = None if outcomes is None else outcomes.drop_nulls("prompt")
    if named is None or named.is_empty():
        return PromptTable(LOG_PROMPTS)
    low, high = named["reward"].min(), named["reward"].max()
    binary, visits = named["reward"].n_unique() == 2, _visits(named)
    prompts = _prompts(visits, low, high)
    last = shown // 4
    ends = pl.concat([prompts.head(shown - last), prompts.tail(last)])
    rows = (prompts if len(prompts) <= shown else ends).iter_rows(named=True)
    standings = tuple(prompts.group_by("standing", maintain_order=True).len().iter_rows())
    return PromptTable(
        _prompts_said(standings, len(prompts), float(visits["teaches"].mean())),  # type: ignore[arg-type]
        binary,
        standings,
        tuple(_row(row, (low, high) if binary else None) for row in rows),
    )


def named_outcomes(record: RunRecord) -> pl.DataFrame | None:
    """Return rewarded completions of groups; `prompt` is null where a prompt is not known again.

    None where there are no such completions.
    """
    outcomes = outcomes_of(record)
    if outcomes is None or "reward" not in outcomes or not outcomes["reward"].count():
        return None
    if "prompt" not in outcomes or not outcomes["prompt"].count():
        widest = outcomes.group_by("step").agg(pl.col("prompt_id").n_unique())["prompt_id"].max()
        # Places in a batch end with it, and name another prompt at each step; numbers beyond are
        # the prompts' own.
        own = outcomes["prompt_id"].max() > _PLACES * widest  # type: ignore[operator]
        outcomes = outcomes.with_columns(
            prompt=pl.format("prompt {}", "prompt_id") if own else pl.lit(None, pl.Utf8)
        )
    return outcomes


def _visits(named: pl.DataFrame) -> pl.DataFrame:
    """Return the groups whose prompt is known, a row each."""
    reward = pl.col("reward")
    visits = named.group_by("step", "prompt_id", maintain_order=True).agg(
        pl.col("prompt").first(),
        size=pl.len(),
        sum=reward.sum(),
        low=reward.min(),
        high=reward.max(),
        teaches=pl.col("outcome").n_unique() > 1,
    )
    return visits.sort("step", maintain_order=True)


def _prompts(visits: pl.DataFrame, lowest: Any, highest: Any) -> pl.DataFrame:
    """Return a row a prompt, those that teach first: its visits, and its newest ones together."""
    later = pl.col("size").cum_sum(reverse=True).over("prompt") - pl.col("size")
    now, low, high = later < _RECENT, pl.col("low"), pl.col("high")
    size = pl.col("size").filter(now).sum()
    prompts = visits.group_by("prompt", maintain_order=True).agg(
        low.filter(now).min(),
        high.filter(now).max(),
        visits=pl.len(),
        teaching=pl.col("teaches").sum(),
        mean=pl.col("sum").filter(now).sum() / size,
        rollouts=size,
    )
    several = pl.lit(lowest < highest)
    standing = (
        pl.when(low != high)
        .then(pl.lit("teaches"))
        .when(several, low == highest)
        .then(pl.lit("solved"))
        .when(several, low == lowest)
        .then(pl.lit("too hard"))
        .otherwise(pl.lit("flat"))
    )
    prompts = prompts.with_columns(standing=standing.cast(pl.Enum(STANDINGS))).sort(
        "standing", "teaching", descending=[False, True], maintain_order=True
    )
    return prompts.drop("low", "high")


def _row(row: JsonObject, values: tuple[Any, Any] | None) -> PromptRow:
    """Return one prompt as it is shown."""
    now: Interval | None = None
    if values is not None:
        low, high = values
        passed = round(row["rollouts"] * (row["mean"] - low) / (high - low))
        now = wilson(passed, row["rollouts"])
    prompt = tail_of(row["prompt"], _LONGEST)[0].replace("\n", " ")
    return PromptRow(**row | {"prompt": prompt, "now": now})


def _prompts_said(standings: tuple[tuple[str, int], ...], prompts: int, taught: float) -> str:
    """Say how the prompts stand."""
    verbs = {"teaches": ("gives a gradient", "give a gradient")}
    parts = ", ".join(
        f"{number:,} {verbs.get(name, (f'is {name}', f'are {name}'))[number != 1]}"
        for name, number in standings
    )
    return (
        f"Of {count(prompts, 'prompt')}, by the newest rollouts of each, {parts}; "
        f"{100 * taught:.0f} % of all visits gave a gradient."
    )
