"""The summary of one run as plain data, the one source of the page, the terminal text and
`--json`: its first screen of four tiles, the reward with the failure shaded and sparklines, and
what stands below.

What is usual of a quantity in public healthy runs is for the eye alone: no rule asks it. Its table
is made by `lab/experiments/diagnosis/usual.py`.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from groupwise.analysis.charts import (
    POINTS,
    Chart,
    ChartClock,
    Line,
    Mark,
    Role,
    axes_of,
    useful_range,
    with_mean,
)
from groupwise.analysis.fitted import (
    BEHAVIOURS,
    STEP,
    Behaviour,
    Fitted,
    ForecastRequest,
    behaviours_of,
    beyond_spikes,
    definition_of,
    fit_metric,
    forecast_chart,
    meaning_of,
    no_forecast,
)
from groupwise.analysis.plan import GroupSizeEvidence, group_size_evidence
from groupwise.analysis.replay import RunReplay, replay_of_rollouts
from groupwise.analysis.rollouts import HELD, Held, PromptTable, held_rollouts, prompt_table
from groupwise.analysis.stability import StabilityEvidence, stability_evidence
from groupwise.arrays import Float, floats, mean_of, median, moving_mean
from groupwise.diagnostics.falls import end_rows
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Judgement, Sign
from groupwise.files import table_rows
from groupwise.intervals import percent
from groupwise.parsing import JsonObject
from groupwise.plain import Plain, Words, frozen
from groupwise.processes import on_one_thread
from groupwise.record.run import RunRecord, cut
from groupwise.series.metric import GroupEvidence, group_evidence
from groupwise.wording import capital, clean, sentence, short, shown_path

_BANDS = list(table_rows("analysis/usual.tsv"))
LENGTH = "completion_length"  # in times that of the first rows
_SIZE = re.compile(r"(?<![\d.])(\d{1,4}(?:\.\d{1,3})?) ?b(?![a-z])", re.IGNORECASE)
_CLASSES = {1.0: "up to 1B", 4.0: "1B to 4B", 15.0: "4B to 15B", math.inf: "above 15B"}
_FIRST = 5  # rows whose median is the first length


def kind_of(record: RunRecord, name: str = "") -> tuple[str, str, str]:
    """Return trainer, class of size and adapter of a run, each "" where it is not known."""
    config = record.config
    model = f"{config.value('model') or ''} {name}"
    sizes = _SIZE.findall(model)
    size = (
        next(label for most, label in _CLASSES.items() if float(sizes[0]) <= most) if sizes else ""
    )
    lora = bool(config.value("lora_rank")) or "lora" in model.lower()
    return str(config.value("framework") or ""), size, "lora" if lora else ""


def unit_of(quantity: str, value_T: Float) -> float:
    """Return what the table's numbers of a quantity are multiples of in a run."""
    return median(value_T[:_FIRST]) or 1.0 if quantity == LENGTH else 1.0


def _parts(row: dict[str, str]) -> list[str]:
    """The kind of run that a row is of."""
    return [row[name] for name in ("trainer", "size", "adapter") if row[name]]


def usual_line(record: RunRecord, quantity: str, step_T: Float, value_T: Float) -> Line | None:
    """Return 5 to 95 % of the rows of healthy runs of the narrowest kind as a band.

    None where too few runs are known.
    """
    kind = {*kind_of(record, record.name)}
    fitting = [
        row for row in _BANDS if row["quantity"] == quantity and kind.issuperset(_parts(row))
    ]
    if not fitting:
        return None
    row = max(fitting, key=lambda candidate: len(_parts(candidate)))
    parts = ", ".join(_parts(row))
    low, high = (float(row[end]) * unit_of(quantity, value_T) for end in ("low", "high"))
    band = f"5 to 95 % of the rows of {row['runs']} healthy runs{parts and f' ({parts})'}"
    ends = float(step_T[0]), float(step_T[-1])
    return Line("usual", "usual", ends, (), (low, low), (high, high), band)


TILES, SPARKS = 4, 4
LAST = 10  # rows before a step that its level before averages
_SHARES = ("truncated_share", "dead_group_share")


@frozen
class Tile(Plain):
    """One number of the first screen."""

    name: str  # a word or two
    value: str  # as it is shown
    more: str  # what it was before, or where it stands


@frozen
class ShownSignal:
    """One quantity of a run, finite rows only."""

    quantity: str  # its canonical name
    title: str  # a few words
    unit: str  # of its axis
    step_T: Float
    value_T: Float
    column: str = ""  # the log's own key
    about: str = ""  # what that key means
    sign: Sign | None = None  # what the judgement says of it
    # its level in its last rows by the judgement, and the step of the first of them
    judged: tuple[float, int] | None = None

    @property
    def rows(self) -> int:
        """How many rows an end of it averages."""
        return end_rows(self.value_T.size)

    @property
    def now(self) -> float:
        """Its level in its last rows: what the judgement says of it, else their mean; nan where
        it is no number any more.
        """
        if self.judged:
            return self.judged[0]
        if self.sign and (self.sign.after is None or self.sign.now_from is not None):
            return math.nan if self.sign.after is None else self.sign.after
        return mean_of(self.value_T[-self.rows :])

    @property
    def since(self) -> str:
        """Of which rows that is the mean, in words, or what the last number was."""
        if math.isnan(self.now):
            return f"{self.written(float(self.value_T[-1]))} at step {self.step_T[-1]:,.0f}"
        rows = self.rows if self.judged is None else int((self.step_T >= self.judged[1]).sum())
        return f"mean of the last {rows:,} rows" if rows > 1 else f"step {self.step_T[-1]:,.0f}"

    def before(self, step: float | None) -> tuple[float, str]:
        """Return its level before what is told of it, else its mean before a step, else over the
        first rows; and which of them it is.
        """
        if self.sign and self.sign.before is not None:
            return self.sign.before, f"before step {self.sign.step:,}"
        earlier = self.value_T[self.step_T < step] if step is not None else self.value_T[:0]
        if step is None or not earlier.size:
            return mean_of(self.value_T[: self.rows]), "at the start"
        return mean_of(earlier[-LAST:]), f"before step {step:,.0f}"

    def came_from(self, step: float | None) -> str:
        """Say from which level it came, and to which it went first if it is at another now."""
        value, when = self.before(step)
        sign = self.sign
        if sign is None or sign.after is None or self.written(sign.after) == self.written(self.now):
            return f"{self.written(value)} {when}"
        return f"now; {self.written(value)} {when}, then {self.written(sign.after)}"

    def written(self, value: float) -> str:
        """Write a value of it."""
        if math.isnan(value):
            return "not finite"
        return (percent if self.quantity in _SHARES else short)(value)


@frozen
class NumbersRow(Plain):
    """One quantity in numbers."""

    name: str
    first: str  # mean of the first rows
    before: str  # mean of the rows before the first sign, "" where there is none
    now: str  # mean of the last rows
    low: str
    high: str
    rows: int


@frozen
class Screen(Plain):
    """What the first screen shows."""

    tiles: tuple[Tile, ...]
    chart: Chart  # the reward
    sparks: tuple[Chart, ...]
    others: tuple[Chart, ...]  # signals for which the first screen has no room
    rows: tuple[NumbersRow, ...]  # every signal in numbers
    axes: tuple[ChartClock, ...]  # clocks that the charts can be drawn along in place of the step


# beside the reward, the first first
_OF_TILES = [row["quantity"] for row in table_rows("analysis/tiles.tsv")]


def screen_of(
    record: RunRecord,
    fitted: Fitted,
    groups: GroupEvidence,
    judged: Judgement,
    *,
    points: int = POINTS,
) -> Screen:
    """Return tiles, charts and numbers of the first screen of a run; no line has more points
    than said.
    """
    reward = _signal(
        Behaviour("reward", fitted.title, ""), fitted.clock.step_T, fitted.series.value_T
    )
    if reward and fitted.metric == judged.metric:
        level = (
            None if judged.now is None or judged.now_from is None else (judged.now, judged.now_from)
        )
        ended = int(reward.step_T[-1])
        reward = replace(
            _with_sign(reward, judged),
            judged=(math.nan, ended)
            if level is None and ended < (judged.last_step or 0)
            else level,
        )
    signs, signals = judged.signs, [*_signals(record, groups, fitted.metric, judged)]
    signals.sort(
        key=lambda signal: signs.index(signal.sign) if signal.sign else len(signs)
    )  # stable: the usual order else
    small = [
        signal for signal in signals if not _is_beside(signal, fitted)
    ]  # the others are on the large chart
    order = {behaviour.quantity: place for place, behaviour in enumerate(BEHAVIOURS)}
    shown = sorted(small[:SPARKS], key=lambda signal: order.get(signal.quantity, len(order)))
    since = _since(judged)
    begun = float(record.steps["step"][0]) if since is None else since
    shade = (begun, None) if judged.alarm else None
    charts = {signal.quantity: _chart(record, signal, shade, points // 3) for signal in small}
    sparks = tuple(charts[signal.quantity] for signal in shown)
    others = tuple(replace(charts[signal.quantity], small=False) for signal in small[SPARKS:])
    every = [*filter(None, (reward, *signals))]
    return Screen(
        tiles=tuple(
            _tiles(reward, signals, since, judged.level if fitted.metric == judged.metric else None)
        )[:TILES],
        chart=_reward_chart(fitted, signals, judged, shade, points),
        sparks=sparks,
        others=others,
        rows=tuple(_row(signal, since) for signal in every),
        axes=axes_of(record.steps),
    )


def _with_sign(signal: ShownSignal, judged: Judgement) -> ShownSignal:
    """Return a signal with what the judgement says of it, by its quantity or by the name that
    the words begin with.
    """
    name = "held-out" if signal.quantity == "eval/reward" else f"{signal.title} "
    signs = (
        sign
        for sign in judged.signs
        if sign.signal == signal.quantity or sign.words.startswith(name)
    )
    return replace(signal, sign=next(signs, None))


def _since(judged: Judgement) -> float | None:
    """Return from where a failure is shown: its first sign, or else its own step."""
    return judged.first_sign.step if judged.first_sign else judged.since_step


def _signal(
    what: Behaviour, step_T: Float, value_T: Float, *, column: str = "", about: str = ""
) -> ShownSignal | None:
    """Return a quantity without the rows in which it is missing, or None where it is missing
    everywhere.
    """
    usable = np.isfinite(value_T)
    step = floats(step_T)[usable]
    return (
        ShownSignal(what.quantity, what.title, what.unit, step, value_T[usable], column, about)
        if usable.any()
        else None
    )


def _signals(
    record: RunRecord, groups: GroupEvidence, metric: str, judged: Judgement
) -> Iterable[ShownSignal]:
    """Yield the known quantities beside the metric that a log holds, in their usual order, and
    what else the judgement names.
    """
    step = record.values("step")
    of_groups = {"dead_group_share": groups.zero_variance, "reward_std_within_group": groups.spread}
    wanted = {behaviour.quantity: behaviour for behaviour in (*BEHAVIOURS, *behaviours_of(record))}
    columns = {name: meaning.column for name in wanted if (meaning := meaning_of(record, name))}
    for sign in judged.signs:
        name = "eval/reward" if sign.signal == "held_out" else sign.signal
        meaning = meaning_of(record, name)
        column = meaning.column if meaning else sign.column
        if column and column not in columns.values():
            title = clean(name.replace("_", " ") if meaning else column, longest=60)
            wanted.setdefault(name, Behaviour(name, capital(title), ""))
            columns[name] = column
    for name, behaviour in wanted.items():
        track, column, signal = of_groups.get(name), columns.get(name, ""), None
        if track and track.known:
            signal = _signal(behaviour, track.step_T, track.value_T, about=sentence(track.source))
        elif column and column != metric:
            value = record.steps[column].cast(pl.Float64).fill_null(math.nan).to_numpy()
            meaning = record.meaning(column)
            signal = _signal(
                behaviour,
                step,
                value,
                column=clean(column, longest=80),
                about=definition_of(meaning) if meaning else "",
            )
        if signal:
            yield _with_sign(signal, judged)


def _tiles(
    reward: ShownSignal | None,
    signals: Sequence[ShownSignal],
    since: float | None,
    level: float | None,
) -> Iterable[Tile]:
    """Yield now, the best, and what else was logged, the most useful first; the levels before
    are those of the judgement.
    """
    if reward:
        rows = reward.rows
        yield Tile("Now", reward.written(reward.now), reward.since)
        means = moving_mean(reward.value_T, rows)
        best, (peak, when) = int(means.argmax()), reward.before(None)
        # A height of fewer rows than an end averages is one as well.
        if reward.sign is None or means[best] >= peak:
            end = f"step {reward.step_T[best + rows - 1]:,.0f}"
            when = f"mean of {rows} rows to {end}" if rows > 1 else f"at {end}"
            late = since is not None and bool(reward.step_T[best] >= since)
            peak, when = means[best], when + ", after the first sign" * late
        yield Tile("Peak", reward.written(peak), when)
    for signal in sorted(signals, key=_place):
        yield Tile(signal.title, signal.written(signal.now), signal.came_from(since))
    if reward:
        first = (
            f"mean of the first {reward.rows} rows"
            if reward.rows > 1
            else f"step {reward.step_T[0]:,.0f}"
        )
        start = reward.written(mean_of(reward.value_T[: reward.rows]))
        value = start if level is None else reward.written(level)
        yield Tile("Start", value, first if value == start else "level the judgement starts from")
        yield Tile(
            "Rows",
            f"{reward.value_T.size:,}",
            f"step {reward.step_T[0]:,.0f} to {reward.step_T[-1]:,.0f}",
        )


def _place(signal: ShownSignal) -> int:
    """The place of a signal among the tiles: what is usual in its order, behind what the
    judgement names beside that.
    """
    if signal.quantity in _OF_TILES:
        return _OF_TILES.index(signal.quantity)
    return -1 if signal.sign else len(_OF_TILES)


def _chart(
    record: RunRecord, signal: ShownSignal, shade: tuple[float, None] | None, points: int
) -> Chart:
    """Chart a quantity small, on an axis that a few spikes do not crush."""
    y_range, beyond = beyond_spikes(signal.value_T)
    lines = with_mean(
        "logged",
        signal.step_T,
        signal.value_T,
        points=points,
        split=math.inf if shade is None else shade[0],
    )
    usual = usual_line(record, signal.quantity, signal.step_T, signal.value_T)
    if usual:
        lines = usual, *lines
        y_range = y_range or useful_range(usual.ordinates, shown=signal.value_T)
    if y_range is None and signal.quantity in _SHARES:
        y_range = useful_range(shown=[0.0, 0.1, *signal.value_T])
    caption = (signal.about + beyond).strip()
    return Chart(
        signal.quantity,
        signal.title,
        STEP,
        signal.unit,
        lines,
        (),
        caption,
        subject=signal.column,
        y_range=y_range,
        shade=shade,
        small=True,
    )


def _reward_chart(
    fitted: Fitted,
    signals: Sequence[ShownSignal],
    judged: Judgement,
    shade: tuple[float, None] | None,
    points: int,
) -> Chart:
    """Chart the metric, raw under its running mean, with the rewards that the judgement sets
    beside it: no law.
    """
    step, value, since = fitted.clock.step_T, fitted.series.value_T, _since(judged)
    split = math.inf if shade is None else shade[0]
    lines = list(with_mean("logged", step, value, points=points, split=split))
    for signal in signals:
        if _is_beside(signal, fitted):
            role: Role = "evaluation" if signal.quantity == "eval/reward" else "beside"
            *raw, line = with_mean(
                "", signal.step_T, signal.value_T, points=points // 3, split=split
            )
            name = signal.title.lower() if signal.quantity == "eval/reward" else signal.title
            lines.append(replace(line, name=f"{name}, {line.name}" if raw else name, role=role))
    marks = (Mark(since, "first sign"),) if since is not None else ()
    y_range = useful_range(shown=[signal for line in lines for signal in line.ordinates])
    key = clean(fitted.metric, longest=80)
    return Chart(
        "reward",
        fitted.title,
        STEP,
        "",
        tuple(lines),
        marks,
        wide=True,
        subject=key,
        y_range=y_range,
        shade=shade,
    )


def _is_beside(signal: ShownSignal, fitted: Fitted) -> bool:
    """Return whether a signal stands on the chart of the reward: the held-out reward, or a
    reward function that a sign names.
    """
    if fitted.quantity != "reward" or not signal.quantity.startswith("reward/"):
        return fitted.quantity == "reward" and signal.quantity == "eval/reward"
    return signal.sign is not None


def _row(signal: ShownSignal, since: float | None) -> NumbersRow:
    """Return a quantity in numbers."""
    value_T, (before, when) = signal.value_T, signal.before(since)
    levels = value_T[: signal.rows].mean(), before, signal.now, value_T.min(), value_T.max()
    first, at_sign, now, low, high = map(signal.written, levels)
    at_sign = at_sign if when.startswith("before") else ""
    return NumbersRow(signal.title, first, at_sign, now, low, high, value_T.size)


_FEWEST_POINTS, _FEWEST_HELD = 120, 12


@frozen
class Summary(Plain):
    """Everything that a report says of one run."""

    KEYS = (
        "run=name metric=fitted.metric quantity=fitted.quantity judgement screen steps "
        "fit=fitted forecast=fitted.outlook charts group_size stability rollouts prompts "
        "settings unknown_settings columns=meanings unknown_columns notes sources"
    )

    name: str  # of the run, cleaned
    judgement: Judgement  # how it stands, and why
    screen: Screen  # what the first screen shows
    fitted: Fitted  # the metric with its fit and outlook
    # of the rows used the first step, the last step and the number; and until where they were to be
    # used, or None
    steps: JsonObject
    charts: dict[str, tuple[Chart, ...]]  # by section: "forecast"
    no_forecast: str  # why there is none, "" where there is one
    group_size: GroupSizeEvidence  # what the run says of it
    stability: StabilityEvidence  # what the run says of it
    rollouts: Held | None  # the completions that the page holds, or None
    replay: RunReplay | None  # None without rollouts, or where none is live
    prompts: PromptTable  # which of them teach
    settings: dict[str, dict[str, str]]  # value and source of each that is known
    unknown_settings: Words  # names of the others
    meanings: tuple[dict[str, str], ...]  # column, quantity, definition, doubt of each logged key
    unknown_columns: Words  # logged keys without a known meaning
    notes: Words  # of the reader and of the fit
    sources: tuple[JsonObject, ...]  # path, reader, bytes, rows and note of each file

    @property
    def law_answers(self) -> bool:
        """Whether a law holds whose plateau is known, of a run that did not fail."""
        return self.fitted.fit.status == "converged" and not self.judgement.alarm


def page_room(runs: int, completions: int = HELD) -> tuple[int, int]:
    """Return the points of a line and the completions of each of so many runs on a page: with
    many, each has fewer of both.
    """
    return max(_FEWEST_POINTS, POINTS // runs), min(completions, max(_FEWEST_HELD, HELD // runs))


@on_one_thread
def summarise(
    record: RunRecord,
    *,
    metric: str = "reward",
    until: float | None = None,
    at: Sequence[float] | None = None,
    forecast_level: float = 0.9,
    room: tuple[int, int] = (POINTS, HELD),
    opened: Path | None = None,
    ended: bool | None = None,
) -> Summary:
    """Summarise a run.

    Args:
        record: the run.
        metric: what to judge by.
        until: last step to use, or None for all.
        at: steps to forecast at, or None for a few beyond the last.
        forecast_level: nominal coverage of the forecast's bands.
        room: the largest number of points of a drawn line, and of completions that the page holds;
            with 0 no text of a prompt either.
        opened: what the run was read from; its files are shown from there on, and components are
            looked for beside it.
        ended: whether the run is over, as `judge` takes it.

    Returns:
        The summary; what cannot be said is said to be unavailable.

    Raises:
        MissingMetricError: the metric is not in the log.
        InvalidArgumentError: an argument is out of its range.

    Example:
        >>> from groupwise.record.table import steps_table
        >>> reward = [0.8 - 0.6 * 0.9**t + 0.01 * (-1) ** t for t in range(60)]
        >>> summarise(RunRecord("demo", steps_table(range(60), {"reward": reward}))).judgement.alarm
        False
    """
    fitted = fit_metric(record, metric, until=until, ahead=ForecastRequest(at, forecast_level))
    used = cut(record, until)
    judgement = judge(used, ended=ended)
    none_shown = no_forecast(judgement, fitted.problem)
    if none_shown:
        fitted = replace(fitted, outlook=None)
    groups, step = group_evidence(used), used.steps["step"]
    points, completions = room
    spent = judgement.spent.rollouts if judgement.spent else None
    group_size = group_size_evidence(used, opened=opened, until=until)
    stability = stability_evidence(used, fitted)
    forecast = None if none_shown else forecast_chart(fitted, points=points)
    charts: dict[str, tuple[Chart, ...]] = {"forecast": (forecast,) if forecast else ()}
    return Summary(
        name=clean(record.name) or "unnamed run",
        judgement=judgement,
        screen=screen_of(used, fitted, groups, judgement, points=points),
        fitted=fitted,
        steps={"first": step[0], "last": step[-1], "rows": len(step), "until": until},
        charts=charts,
        no_forecast=none_shown,
        group_size=group_size,
        stability=stability,
        rollouts=held_rollouts(used, most=completions, spent=spent) if completions else None,
        replay=replay_of_rollouts(used),
        prompts=prompt_table(used) if completions else PromptTable(""),
        settings={
            name: {"value": clean(setting.value), "source": clean(setting.source)}
            for name, setting in record.config.known().items()
        },
        unknown_settings=record.config.unknown(),
        meanings=_meanings(record),
        unknown_columns=tuple(clean(key) for key in record.metrics() if not record.meaning(key)),
        notes=_notes(record, fitted),
        sources=_sources(record, opened),
    )


def _meanings(record: RunRecord) -> tuple[dict[str, str], ...]:
    """Return what each logged key means, with the doubts."""
    return tuple(
        {
            "column": clean(meaning.column),
            "quantity": clean(meaning.quantity),
            "definition": clean(meaning.definition, longest=400),
            "doubt": "has no use here"
            if meaning.unavailable
            else "ambiguous"
            if meaning.ambiguous
            else "",
        }
        for meaning in record.meanings
    )


def _sources(record: RunRecord, opened: Path | None) -> tuple[JsonObject, ...]:
    """Return the files, named from the run's own name on: a page is for others, who have no
    business with our folders.
    """
    return tuple(
        {
            "path": clean(shown_path(source.path, opened), longest=400),
            "reader": clean(source.reader),
            "bytes": source.bytes,
            "rows": source.rows,
            "note": clean(source.note, longest=400),
        }
        for source in record.sources
    )


def _notes(record: RunRecord, fitted: Fitted) -> Words:
    """Return the notes of reader, series and fit, each once."""
    notes = (*record.notes, *fitted.notes)
    return tuple(dict.fromkeys(clean(note, longest=500) for note in notes))
