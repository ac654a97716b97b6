"""Consoles: what trainers print, read line by line; the forms of a row are TRL's, verl's, SkyRL's
and slime's, any other loop's.

Each form says how a line of it becomes a row; all share one engine. Only literals are read, nothing
is executed. Where a row has no step of its own, the progress bars printed around it tell it
(`progress_bars.py`).
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from groupwise.errors import NothingYetError, UnreadableRunError
from groupwise.files import forms
from groupwise.parsing import JsonObject, JsonView
from groupwise.readers.assemble import (
    TWO_PROGRAMS,
    Feed,
    Log,
    Origin,
    Request,
    assemble,
    encoding_notes,
)
from groupwise.readers.configs import VERL_DUMP, Stated, VerlSettings, number_in
from groupwise.readers.keys import quantity_named
from groupwise.readers.progress_bars import (
    COUNTED,
    Bars,
    Printed,
    by_turns,
    of_whole_steps,
    on_one_clock,
    printed_steps,
    within_steps,
)
from groupwise.readers.rows import (
    KIND_KEYS,
    STEP_KEYS,
    RowStore,
    holding,
    is_evaluation,
    is_summary,
    spelled,
    summary_notes,
    unwrapped,
)
from groupwise.readers.source import (
    ENDINGS,
    ESCAPE,
    HEAD,
    Notes,
    Peek,
    PrintedRow,
    Tracebacks,
    bare,
    is_cut,
    json_in,
    lines_of,
    noted,
    number_of,
    parse_row,
    sender_of,
    shown,
    start_of,
    vocabulary,
)
from groupwise.record.run import RunRecord, annotated
from groupwise.wording import clean, count

Numbers = dict[str, float]  # by name

_STRUCTURED = vocabulary("structured")
_SCAN = 1 << 25
_MOST_BREAKS = 10  # errors behind which a program went on, and lines that say that it resumes
_RESUMED, _LOSS, _REWARDED = forms("resumed loss rewarded")


class Console(Feed):
    """Takes printed lines and keeps the rows among them; each form of a row has a class of its
    own.
    """

    form = ""
    expected = ""  # what a log of the form holds, for the message where there is none
    longest = 1 << 22  # characters of a line; the remainder of a longer one counts as the next

    damaged = 0
    chosen = ""  # run of several
    _serves = False  # whether it reports how fast it answers, as an engine does
    _printer = ""  # the process that printed the last row
    _is_cut, _cut_rows = False, 0  # the present line, and how many rows were
    # lines with a reward before the first row, behind the last, and between two at most
    _ahead = _behind = _between = 0
    _unread = ""  # the first of them
    _passed = 0  # lines with a loss that are of no row

    def __init__(self) -> None:
        self.store = RowStore()
        self._tracebacks = Tracebacks()
        self._resumed: dict[int, None] = {}  # rows before a line that says so

    def take(self, lines: Iterable[str]) -> None:
        """Read whole lines."""
        for raw in lines:
            line = ESCAPE.sub("", raw) if "\x1b" in raw else raw
            self._serves |= "generation throughput:" in line
            self._is_cut = is_cut(raw)
            sender, body = sender_of(line) if "pid=" in line else ("", line)
            # others may break off as the run ends
            if sender in ("", self._printer) or not self.store.count:
                self._tracebacks.add(body, self.store.read)
            may_resume = "esum" in body or " at iteration " in body
            if may_resume and len(self._resumed) < _MOST_BREAKS and _RESUMED.match(body):
                self._resumed[self.store.read] = None
            rows = self.store.read
            for start in range(0, len(line) or 1, self.longest):
                self.line(line[start : start + self.longest].rstrip())
            if self.store.read != rows:  # fewer where a step makes those before it none
                if rows:
                    self._between = max(self._between, self._behind)
                else:
                    self._ahead += self._behind
                self._printer, self._behind = sender, 0
            elif _REWARDED.search(line):
                self._behind += 1
                self._unread = self._unread or clean(line.strip(), longest=60)

    def line(self, line: str) -> None:
        """Read one line without colours."""
        raise NotImplementedError

    def nothing(self) -> tuple[str, str]:
        """Return what was found in place of rows, and what to do or why."""
        came = "the output of an inference server, which has no reward," if self._serves else "none"
        if self._behind:
            like = f"{self._behind} lines name a reward and were not read, as {self._unread!r}"
            return came, like + ": print Step 1/30 | reward=0.5"
        return came, "give the log of the training itself"

    def log(self, origin: Origin, notes: Notes) -> Log:
        """Return the rows so far with what the form knows of them."""
        return Log(self.store, origin.path, self.form, origin.size, notes)

    def record(self, origin: Origin, request: Request) -> RunRecord:
        """Return the record of what was taken so far."""
        if not self.store.count:
            came, hint = self.nothing()
            quoted = self._tracebacks.behind.get(0)
            hint = f"the run stopped with {quoted}" if quoted else hint
            raise NothingYetError(
                f"expected {self.expected}, got {came} in {shown(origin.path)}: {hint}"
            )
        notes = encoding_notes(origin.encoding) + noted(
            self.damaged, "printed row is damaged and was", "printed rows are damaged and were"
        )
        notes += noted(
            self._cut_rows,
            "row was",
            "rows were",
            "cut off at the end of a line, so some values are missing",
        )
        for lines, where in (
            (self._ahead, "before the first row name a reward"),
            (self._behind, "behind the last row name a reward"),
            (self._passed, "beside the rows name a loss"),
        ):
            if lines > max(self._between, _MOST_BREAKS):
                what = "give what is printed in another form a file of its own"
                notes.append(f"{lines} lines {where} and were not read: {what}")
        self.chosen = request.chosen
        record = assemble(self.log(origin, notes), request)
        own = self.own_rows()
        before = self.store.read - self.store.count + max(own) + 1
        record = annotated(record, *self._restarts(own, before))
        if quoted := self._tracebacks.behind.get(before):
            step = record.steps["step"][-1]
            stopped = f"after the last row, step {step}, the log has a traceback: {quoted}"
            record = annotated(record, stopped, error=quoted)
        return record

    def own_rows(self) -> set[int]:
        """Return the rows of the run that was chosen, all of them where there is one."""
        runs = self.store.labels.get("run", {})
        own = {row for row, name in runs.items() if name == self.chosen}
        return own or set(range(self.store.count))

    def _restarts(self, own: set[int], last: int) -> Iterator[str]:
        """Yield the steps behind which a program went on after an error, or from a checkpoint."""
        counters = [name for name in self.store.names() if name.endswith("step")]
        if counters:
            rows, steps = max(map(self.store.sparse, counters), key=lambda held: len(held[0]))
            said = dict.fromkeys(
                [*self._tracebacks.behind][:_MOST_BREAKS],
                "an error follows step {:.0f}, and the run goes on",
            )
            said |= dict.fromkeys(self._resumed, "the program resumed after step {:.0f}")
            for row, words in said.items():
                place = np.searchsorted(self.store.number[rows], row, side="right")
                if place and row < last and rows[place - 1] in own:
                    yield words.format(steps[place - 1])


# TRL, Unsloth, ms-swift and OpenRLHF: {'loss': 0.1, 'reward': 0.5} amid progress bars

_TRL_ROW, _BAR, _TITLED, _TRAINING, _NUMBERED = forms("trl_row bar titled training numbered")
_ARGUMENTS, _ARGUMENT, _SAID, _VERSION, _AROUND = forms("arguments argument said version around")
_TRAINERS_KEY, _MARK_IN_ROW, _PAIR_IN_ROW, _OPEN, _HEAD, _TAIL = forms(
    "trainers_key mark_in_row pair_in_row open head tail"
)
_STATEMENTS = {name: next(forms(name)) for name in ("total", "epochs", "rollout_batch_size")}
_MARKS = frozenset({"loss", "reward"})  # quantities, of which a row of training names one
_MOST_TITLES = 1000
_MOST_RUNS = 16
_MOST_BARS = 16
# Characters of a row, and of the step that stands before it.
_LONGEST_ROW, _LONGEST_MARK = 20_000, 80
_ZEROS = str.maketrans("123456789", "000000000")
_LONGEST_PREFIX = 1000
_LEAST_CORE = 4


class TrlConsole(Console):
    """Rows as Python dictionaries without a step of their own; a dictionary within another text
    is none of them.
    """

    form = "trl_console"
    expected = "rows such as {'loss': ...} in a trainer's output"

    _shape: frozenset[str] | None = None  # of the last row
    _summaries = _embedded = _ended = 0
    _length = 0  # of the lines that are held back

    def __init__(self) -> None:
        super().__init__()
        self._seen: Bars = {}
        self._reached: Bars = {}
        self._titled: set[int] = set()
        self._stated: JsonObject = {}
        self._arguments: JsonObject = {}
        # lines of a row that a terminal wrapped, as far as they have come
        self._held: list[str] = []

    def take(self, lines: Iterable[str]) -> None:
        """Read whole lines; millions may be nothing but a bar that the next one overwrites."""
        super().take(line for line in lines if not self._is_bar(line))

    def _is_bar(self, line: str) -> bool:
        """Return whether a line is only a progress bar, and note how far it has come."""
        alone = line.endswith("]\n") and "%|" in line and "{" not in line and "'" not in line
        if self._held or not alone:
            return False
        self._look_at_bars(line)
        return True

    def line(self, line: str) -> None:
        """Read a line; one that opens a row and does not close it waits for those that do, as a
        terminal wraps.
        """
        if self._held and not self._goes_on(line):
            self.finish()
        start = _OPEN.search(line, line.rfind("}") + 1) if "{" in line and not self._held else None
        if start and self._is_cut:
            self._cut_rows += 1
            self._whole(f"{line[: max(line.rfind(', '), start.end())]}}}")
        elif start or self._held:
            self._held.append(line)
            self._length += len(line)
            if start is None and "}" in line:
                self._held = ["".join(self._held)]
                self.finish()
        else:
            self._whole(line)

    def finish(self) -> None:
        """Read what was held back: a row whose lines are joined, or lines that are none."""
        lines, self._held, self._length = self._held, [], 0
        for line in lines:
            self._whole(line)

    def _goes_on(self, line: str) -> bool:
        """Return whether a line may continue the row that waits: an entry of its own, or as wide
        as its first line, but for the last one.
        """
        more = len(line) - len(self._held[0])
        before, end, _ = line.partition("}")
        return (
            (line.startswith(" '") or (more < 2 and (more > -2 or bool(end))))
            and "{" not in before
            and "%|" not in line
            and self._length < _LONGEST_ROW
        )

    def _whole(self, line: str) -> None:
        """Read the rows and the bars of a line, or what the trainer says of itself."""
        matches = list(_TRL_ROW.finditer(line)) if "{'" in line else []
        if not matches:
            self._look_at_bars(line)
            self.damaged += "': " in line and _is_cut_row(line)
            self._read_statement(line)
            self._passed += _LOSS.search(line) is not None
            return
        starts, ends = [match.start() for match in matches], [match.end() for match in matches]
        for match, before, after in zip(
            matches, [0, *ends], [*starts[1:], len(line)], strict=False
        ):
            around = line[before : match.start()], line[match.end() : after]
            self._look_at_bars(around[0])
            row, numbered = parse_row(match[0]), _NUMBERED.search(around[0][-_LONGEST_MARK:])
            if row is not None and numbered and "step" not in row:  # as OpenRLHF prints it
                row["step"] = float(numbered[1])
            self._row(row, alone=_stands_alone(*around))
        self._look_at_bars(line[ends[-1] :])

    def _look_at_bars(self, text: str) -> None:
        """Note how far each bar of a text has come: beside that of the training an evaluation or
        a data set has its own.
        """
        if " [" not in text:
            return
        for number, whole in _BAR.findall(text):
            done, total = int(number), int(whole)
            if total not in self._reached and len(self._titled) < _MOST_TITLES:
                self._titled |= {
                    int(of) for title, of in _TITLED.findall(text) if not _TRAINING.search(title)
                }
            self._seen.pop(total, None)
            self._seen[total] = done
            if done >= self._reached.get(total, 0):
                self._reached[total] = done
        while len(self._seen) > _MOST_BARS:
            del self._seen[next(iter(self._seen))]

    def _row(self, row: PrintedRow | None, *, alone: bool) -> None:
        """Keep a row of the training with the bar before it; what stands within a text counts
        only with a trainer's keys.
        """
        if not alone and (
            row is None or sum(_TRAINERS_KEY.fullmatch(str(key)) is not None for key in row) < 3
        ):
            self._embedded += bool(_MARKS & _quantities(row or ()))
        elif row is None:
            self.damaged += 1
        elif is_summary(row):
            self._summaries += 1
            self._ended = self.store.read
        elif _MARKS & _quantities(row) or any(str(key).startswith("eval_") for key in row):
            if self._shape is None or not self._is_cut:
                self._shape = _shape(tuple(row))
            self.store.add(row)
            self.store.mark(bars=dict(self._seen), shape=self._shape)

    def _read_statement(self, line: str) -> None:
        """Note what the trainer says of itself at its start."""
        for name, pattern in _STATEMENTS.items() if " = " in line else ():
            if match := pattern.search(line):
                self._stated[name] = int(match[1].replace(",", "") or 0)
        if not self.store.count:
            pairs = _ARGUMENT.findall(line) if _ARGUMENTS.search(line) else _SAID.findall(line)
            self._arguments |= {name: number_in(value) for name, value in pairs}
        if "trl" in line.lower() and (match := _VERSION.search(line)):
            self._stated.setdefault("framework_version", match[1])

    def log(self, origin: Origin, notes: Notes) -> Log:
        """Return the trainer's own rows of one run with their steps."""
        notes += summary_notes(self._summaries)
        store, printed = self._trainers(notes)
        runs, again = by_turns(store, printed)
        if runs > 1:
            several = "several" if runs > _MOST_RUNS else f"{runs}"
            raise UnreadableRunError(
                f"expected one run, got {shown(origin.path)}, into which {several} programs "
                "print alternately: epochs repeat with other values, or rise and fall. Give the "
                "output of one program"
            )
        if again.any():
            notes.append(
                f"{count(again.sum(), 'row was', 'rows were')} printed again with the same "
                "values and left out"
            )
            store = store.kept(~again)
            printed = replace(printed, bars=store.marked("bars"))
        step, step_notes = printed_steps(store, printed)
        stated = ((self._arguments | self._stated, "the printed output"),)
        notes += step_notes
        return Log(store, origin.path, self.form, origin.size, notes, stated=stated, step=step)

    def _trainers(self, notes: Notes) -> tuple[RowStore, Printed]:
        """Return the trainer's own rows and what was printed around them."""
        store, odd = self.store, _strangers(self.store.marked("shape"))
        notes += noted(
            self._embedded + len(odd),
            "printed dictionary is not a row of the trainer and was",
            "printed dictionaries are not rows of the trainer and were",
            "left out: inside other text, or without the usual keys",
        )
        if odd:
            store = store.kept(np.array([row not in odd for row in range(store.count)]))
        ended = self._summaries > 0 and self._ended >= self.store.read
        stated = self._stated
        return store, Printed(
            store.marked("bars"),
            dict(self._reached),
            frozenset(self._titled),
            stated.get("total"),
            stated.get("epochs"),
            ended,
        )


def _quantities(row: Iterable[Any]) -> set[str]:
    """Return the quantities of training that the keys of a row name."""
    return {quantity_named(str(key)) for key in row}


@lru_cache(maxsize=1024)
def _shape(keys: tuple[Any, ...]) -> frozenset[str]:
    """Return the keys of a row; one object for the rows that have the same."""
    return frozenset(map(str, keys))


def _stands_alone(before: str, after: str) -> bool:
    """Return whether nothing but what loggers and terminals add stands around a row on its line."""
    # what is in front of a bar on its line was printed over by it
    if before.rfind("]") > before.rfind("%|") > -1:
        before = before[before.rfind("]") + 1 :]
    if "%|" in after:
        after = after[: after.find("%|")].rstrip("0123456789 ")
    return not (_holds_words(before) or _holds_words(after))


def _holds_words(text: str) -> bool:
    """Return whether a text holds letters or digits besides what loggers and terminals add."""
    return len(text) > _LONGEST_PREFIX or (bool(text) and _is_worded(text.translate(_ZEROS)))


@lru_cache(maxsize=4096)  # the same for thousands of rows, but for the digits
def _is_worded(text: str) -> bool:
    """Return whether a short text, whose digits are zeros, holds words of its own."""
    return any(character.isalnum() for character in _AROUND.sub(" ", text))


def _is_cut_row(line: str) -> bool:
    """Return whether a line without a whole row is what a row leaves that was cut off at either
    end.
    """
    head = _HEAD.search(line)
    if head:
        return not _holds_words(line[: head.start()]) and ("'loss'" in line or "'reward'" in line)
    return (
        _TAIL.search(line) is not None
        and sum(_TRAINERS_KEY.fullmatch(key) is not None for key in _PAIR_IN_ROW.findall(line)) > 1
    )


def _strangers(shapes: Sequence[frozenset[str]]) -> set[int]:
    """Return which rows have less than half as many keys as most rows of the training share."""
    trains = Counter(shape for shape in shapes if not any(key.startswith("eval") for key in shape))
    keys: Counter[str] = Counter()
    for shape, rows in trains.items():
        keys.update(dict.fromkeys(shape, rows))
    core = sum(2 * rows > trains.total() for rows in keys.values())
    odd = {shape for shape in trains if core >= _LEAST_CORE and 2 * len(shape) < core}
    return {row for row, shape in enumerate(shapes) if shape in odd}


def sniff_trl(seen: Peek) -> float:
    """Return the confidence that the file holds rows as TRL prints them, amid progress bars."""
    if seen.text[:1] in "[{" and "\n" not in seen.text:
        return 0.0
    if _TRL_ROW.search(seen.text) and _MARK_IN_ROW.search(seen.text):
        # a dictionary of longer names may stand behind the step of another loop
        return 0.7 if "'reward'" in seen.text else 0.5
    printed = seen.path.suffix in (*ENDINGS, ".md") or HEAD in seen.text
    return 0.35 if printed or _BAR.search(seen.text) else 0.05


# verl: step:1 - actor/pg_loss:0.1 - critic/score/mean:0.5, below the settings of the run

_VERL_ROW, _PID, _CELLS, _VERLS_OWN, _SCALED, _REPEATED = forms(
    "verl_row pid cells verls_own scaled repeated"
)
_VERL_BYTES = re.compile(rb"[\s)\]m]step:\d{1,15} - [\w./@+-]{1,200}(?:\([^()\s]{1,20}\))?:")


class VerlConsole(Console):
    """Rows of numbers behind their step; what comes before the first of them holds the settings."""

    form = "verl_console"
    expected = "verl's printed rows (step:1 - ...)"

    _broken = _headless = 0

    def __init__(self) -> None:
        super().__init__()
        self._settings = VerlSettings()  # of the process whose rows are to come
        self._settings_of: dict[str, VerlSettings] = {}  # by the process that prints rows
        self._scaled: set[str] = set()

    def nothing(self) -> tuple[str, str]:
        """Return what was found in place of rows, and what to do or why."""
        if self._headless:
            return f"only {count(self._headless, 'line')} without a step", "copy it again"
        return "none", "wait for the first step, or check why there is none"

    def line(self, line: str) -> None:
        """Read one row, or what is said before the first."""
        if "[repeated " in line:
            line = _REPEATED.sub("", line).rstrip()
        match = _VERL_ROW.search(line) if "step:" in line else None
        if match:
            sender = sender_of(line)[0]
            self._settings_of.setdefault(sender, self._settings)
            self.store.add(self._row(match))
            self.store.mark(sender=sender)
            return
        self._headless += _is_headless(line)
        if self._settings in self._settings_of.values() and "{'" in line and VERL_DUMP.search(line):
            self._settings = VerlSettings()
        if self._settings not in self._settings_of.values():
            self._settings.add(line)

    def _row(self, match: re.Match[str]) -> Numbers:
        """Return the numbers of a printed row."""
        row, cells = {"step": float(match[1])}, match[2].split(" - ")[1:]
        if self._is_cut:
            self._cut_rows += 1
            cells = cells[:-1]
        for part in cells:
            key, mark, text = part.partition(":")
            value = number_of(text)
            if value is None:
                self._broken += bool(mark)
                continue
            if key[-1:] == ")" and (unit := _SCALED.fullmatch(key)):
                self._scaled.add(key)
                key, value = unit[1], value * float(unit[2])
            elif text[-1:] == "0":
                self.store.see_print(key, text)
            row[key] = value
        return row

    def log(self, origin: Origin, notes: Notes) -> Log:
        """Return the rows with the settings printed before them."""
        if self._scaled:
            names = clean(", ".join(sorted(self._scaled)))
            notes.append(
                f"{names} had a scale factor in the name: the values "
                "were multiplied by it and the name shortened"
            )
        notes += noted(
            self._headless,
            "line looks like a row without its step and was",
            "lines look like rows without their step and were",
        )
        why = "left out: another process may have printed into the line"
        notes += noted(
            self._broken, "value is not a number and was", "values are not numbers and were", why
        )
        self._tell_runs_apart()
        first = min(self.own_rows())
        settings = self._settings_of[self.store.marked("sender")[first]].settings()
        stated = (
            (settings, "the settings that verl printed"),
            ({"framework": "verl"}, "the printed rows"),
        )
        return replace(super().log(origin, notes), stated=stated, framework="verl")

    def _tell_runs_apart(self) -> None:
        """Label the rows of processes of one kind that are several runs: they print by turns, or a
        later one starts over.

        One whose steps begin behind the first of the run before goes on from a checkpoint of it.
        """
        senders = list(map(_PID.match, self.store.marked("sender")))
        kinds = {match[1] if match else None for match in senders}
        names = [match[2] if match else "" for match in senders]
        if len(kinds) != 1 or None in kinds:
            return
        begins = [row for row, before in enumerate([None, *names[:-1]]) if names[row] != before]
        turns = len(begins) > len(set(names))
        step, run, first = self.store.dense("step"), {}, np.inf
        for row in begins:
            if turns or step[row] <= first:
                run[names[row]], first = names[row], step[row]
                present = names[row]
            run.setdefault(names[row], present)
        if len(set(run.values())) > 1:
            self.store.labels["run"] = {row: run[name] for row, name in enumerate(names)}


def _is_headless(line: str) -> bool:
    """Return whether a line that is no row holds the cells of one."""
    return " - " in line and len(_CELLS.findall(line)) > 2


def sniff_verl(seen: Peek) -> float:
    """Return the confidence that the file is verl's printed output: a row of it, or its
    settings, within the first 32 MB.
    """
    if seen.text[:1] == "{" and not VERL_DUMP.match(seen.text):
        return 0.0
    structured = seen.path.suffix.lower() in _STRUCTURED
    if _VERL_BYTES.search(b"\n" + start_of(seen, len(seen.head) if structured else _SCAN)):
        return 0.8
    if structured:
        return 0.0
    if any(_is_headless(line) and _VERLS_OWN.search(line) for line in lines_of(seen.text)):
        return 0.6
    return 0.45 if "actor_rollout_ref" in seen.text else 0.0


# slime: rollout 3: {'rollout/raw_reward': 0.5}; SkyRL: a dictionary over many lines below "Step 3:"

_SLIME_HEAD, _SKYRL_STEP, _SKYRL_ENTRY = forms("slime_head skyrl_step skyrl_entry")
_SLIME_COUNTER = {"eval": "eval/step", "step": "train/step"}  # others count rollouts
_SKYRL_KEY = (
    r"\{'(?:reward|policy|generate|trainer|timing|eval|loss|critic|async|environment|rollout)"
    r"[\w-]*/"
)
_SKYRL_HEAD = re.compile(_SKYRL_KEY)
_DICT_BYTES = re.compile(
    rb"(?:^|[\s\]-])(?:rollout|perf|eval|step) \d{1,12}: \{'(?:rollout|perf|eval|train|passrate)/"
    rb"|[\s|-]Step \d{1,12}: ?(?:\x1b\[0m)?\r?\n(?:[^\n{]{0,400}\n){0,5}[^\n{]{0,400}"
    + _SKYRL_KEY.encode()
)
_ANY_DICT = re.compile(
    rb"\{'(?:rollout|perf|eval|train|passrate|reward|policy|generate|trainer|timing|loss|critic"
    rb"|async|environment)[\w-]*/"
)
_MOST_ENTRIES = 2000
_MOST_SENDERS = 64


class DictConsole(Console):
    """Dictionaries that carry their step: slime's on one line, SkyRL's over many, several
    processes printing at once.
    """

    form = "printed_dicts"
    expected = "dictionaries of steps"

    _rounded = False

    def __init__(self) -> None:
        super().__init__()
        self._open: dict[str, tuple[float, list[str]]] = {}  # by the process that prints

    def line(self, line: str) -> None:
        """Read one line: slime's row, the head of one of SkyRL's, or an entry of it."""
        sender, body = sender_of(line)
        slime = _SLIME_HEAD.search(body) if ": {'" in body and body.rstrip().endswith("}") else None
        head = _SKYRL_STEP.search(body) if slime is None and body.endswith(":") else None
        if slime:
            counter = _SLIME_COUNTER.get(slime[1], "rollout/step")
            self._add({counter: float(slime[2])}, body[slime.end() :].rstrip())
        elif head:
            self.damaged += bool(self._open.get(sender, (0.0, []))[1])
            if len(self._open) < _MOST_SENDERS:
                self._open[sender] = (float(head[1]), [])
        elif sender in self._open:
            self._entry(sender, body)

    def _entry(self, sender: str, body: str) -> None:
        """Take an entry of a dictionary that is printed over several lines; another line between
        them is passed over.
        """
        step, entries = self._open[sender]
        if not _SKYRL_ENTRY.match(body) or (body[:1] == "{") == bool(entries):
            return
        if not entries and not _SKYRL_HEAD.match(body):
            del self._open[sender]
            return
        entries.append(body)
        if body.endswith("}") or len(entries) > _MOST_ENTRIES:
            del self._open[sender]
            self._rounded = True
            self._add({"step": step}, "".join(entries))

    def finish(self) -> None:
        """Forget what is open: what follows is of another step."""
        self._open.clear()

    def _add(self, step: Numbers, text: str) -> None:
        """Keep the row that a printed dictionary holds."""
        row = parse_row(text)
        if row is None:
            self.damaged += 1
        else:
            self.store.add(row | step)

    def log(self, origin: Origin, notes: Notes) -> Log:
        """Return the rows so far."""
        if self._rounded:
            notes.append("the rows come from printed output and are rounded to four decimals")
        return super().log(origin, notes)


def sniff_dicts(seen: Peek) -> float:
    """Return the confidence that the file is printed output of SkyRL or slime: a row of either
    within the first 32 MB.
    """
    if seen.text[:1] == "{" or seen.path.suffix.lower() in (*_STRUCTURED, ".md"):
        return 0.0
    start = b"\n" + start_of(seen, _SCAN)
    # the first looks for fixed letters only, and is fast
    return 0.8 if _ANY_DICT.search(start) and _DICT_BYTES.search(start) else 0.0


# Any other loop: Step 3/30 | loss=0.1 | reward=0.5, tables of "key | value" and lists below a
# step's heading

_STEP, _TRAIN_STEP, _OTHER_STEP, _BRACES, _CHAINED_ALONE = forms(
    "step train_step other_step braces chained_alone"
)
_PAIR, _MOMENTS, _CHAINED, _NESTED, _ALONE = forms("pair moments chained nested alone")
_KIND, _SAMPLE, _CELL, _COUNTER, _EPOCH = forms("kind sample cell counter epoch")
_JSON, _BARS, _BEHIND_BAR, _PLACE, _HELD_OUT = forms("json bars behind_bar place held_out")
_KNOWN, _REWARD, _UPDATED, _MEAN, _LABEL = forms("known reward updated mean label")
_EVALUATED = next(forms("evaluated"))
_SETTING, _STATISTICS, _STATISTIC, _OF_SAMPLE = forms("setting statistics statistic of_sample")
_UNITS = {"": 1.0, "%": 100.0, "k": 1e-3}
_STEP_WORDS = ("step", "iter", "update")  # one of which every name of a step has
# An evaluation is named before a step, or alone behind it: test | Step 3, Step 3 [eval]. A word
# within a logger's or a machine's name, such as dev-2, is none.
_WORD = rf"(?:{'|'.join(vocabulary('evaluation'))})"
_EVALUATION = re.compile(
    r"(?i)(?:\b(?:eval|evaluation|validation|val)\b"
    rf"|(?<![\w./:-]){_WORD}(?![\w./-]))(?!\s*[=:]\s*[-\d.])"
)
_EVALUATION_BEHIND = re.compile(
    rf"(?i)\W{{0,9}}(?:(?:{'|'.join(KIND_KEYS)})\s?[=:]\s?)?{_WORD}\s?(?:[\])|,:]|-\s)"
    r"(?!\s*[-\d.])"
)
_SELDOM = 0.2  # share of the steps that has a name on lines without a step, at most: it is chance
_QUOTED = re.compile(
    rf"(?i)\W{{0,9}}(?:{'|'.join(vocabulary('prompt') + vocabulary('completion'))})s?"
    r"\W{0,3}[:=](?!\s*[-+.\d])"
)
_RECURS = 20  # rows of one form, from which on they are counted
_RENAMED = {"group": "group_size", "G": "group_size", "temp": "temperature", "LR": "learning_rate"}
_COUNTS = frozenset(vocabulary("count"))
_SIDE_BY_SIDE = 3  # edges of a line of a panel whose cells are pairs by themselves
_WRAPPED = 4000  # characters of a panel's line that are kept for the next
_SCAN_LINES = 4000
_OF_A_PART = "of a part/"  # in front of what a line says of one prompt of a step


class PrintedConsole(Console):
    """Numbers by name on lines that name a step, or that follow one which does; objects of JSON
    behind what a logger puts first.
    """

    form = "printed"
    expected = "printed rows such as Step 1/30 | reward=0.5"
    longest = 1 << 16

    _panel: Numbers | None = None
    _indent, _category, _wrapped = 0, "", ""  # of the last line of a panel
    # the last epoch, where epochs are the steps so far; NaN once they cannot be
    _by_epoch = -1.0
    _ordered = 0  # rows that are counted because no line names a step or an epoch
    # the epoch, its last step, and the steps of the epochs before it
    _epoch = _last = _before = 0.0
    _counter = ""  # what the last step that a line named is called
    _quoted = False  # whether a prompt or a completion stands behind the last step
    _is_headed = False  # whether the step of the block begins its line
    _is_worded = False  # a line has said "step" or another word of it, not "(3/30)" alone

    def __init__(self) -> None:
        super().__init__()
        self._block: Numbers = {}
        self._bar: Numbers = {}  # what stands behind the progress bar of a step
        self._heads: list[tuple[int, str]] = []  # of nested names below a step: indentation, name
        self._waiting: list[Numbers] = []  # rows that are counted once their form recurs
        self._stated: JsonObject = {}
        self._shares: list[str] = []
        # counters of steps with rewards: a bar without them is another clock
        self._lists: set[str] = set()
        self._header: list[str] = []  # the names above a table of numbers
        # names on lines that say their step, on lines without one, and on those before the first
        # step; of the row that is counted next, and those that came again before it was whole
        self._own, self._aside, self._lead, self._cycle, self._odd = (Numbers() for _ in range(5))

    def line(self, line: str) -> None:
        """Read a row on one line, the heading of a step, or what is listed below it."""
        line = bare(sender_of(line)[1] if "pid=" in line else line)
        if "σ=" in line or "td" in line:
            line = _MOMENTS.sub(r"\1=\2, \1 std=\3", line)
        if "ean" in line and len(of := _STATISTICS.findall(line)) == 1:
            line = _STATISTIC.sub(rf" {of[0]} \1=", line)
        if "| " in line or line[:5] == "INFO:":
            line = _PLACE.sub("", line)
        for text in self._without_bars(line) if "%|" in line else [line]:
            self._text(text)

    def _text(self, line: str) -> None:
        """Read what stands on a line beside progress bars."""
        if not line or self._is_json(line) or self._is_of_panel(line):
            return
        names_step = any(word in line.lower() for word in _STEP_WORDS)
        if (names_step or self._header) and self._is_of_table(line):
            return
        # that of the whole training where a line names several; "3/40" alone may be one
        step = _TRAIN_STEP.search(line) if names_step else None
        step = step or (_STEP.search(line) if names_step or "/" in line else None)
        step = step or (_OTHER_STEP.search(line) if names_step and not self._block else None)
        is_worded = step is not None and any(step.groups()[:2])
        is_of_heading = self._is_worded and not is_worded and "step" in self._block
        if step is None or (is_of_heading and (step[5] or len(self._block) == 1)):
            self._below(line)
            return
        pairs, counter = self._around(line, step), re.sub(r"[\W\d]", "", step[0]).lower()
        self._quoted = not pairs and _SAMPLE.search(line) is not None
        if (
            is_worded
            and not pairs
            and self._lists
            and not self._is_worded
            and (counter not in self._lists)
        ):
            return  # the text of a completion among rows of another counter
        begins = _begins(line, step)
        if not pairs and not begins and self._block and self._is_headed:
            return  # words below a heading that stands alone
        self._is_worded = is_worded
        evaluates = _EVALUATION.search(line, 0, step.end()) or _EVALUATION_BEHIND.match(
            line, step.end()
        )
        if evaluates and not is_worded and not self._lists:
            return  # the counter of an evaluation
        if evaluates and not any(map(is_evaluation, pairs)):
            pairs = _under("eval/", pairs)
        self._close()
        if self._quoted:
            return
        self._counter, self._is_headed = counter, begins
        self._block = {"step": self._numbered(step, line)} | pairs
        if pairs:
            self._own |= pairs
            self._close()

    def _around(self, line: str, step: re.Match[str]) -> Numbers:
        """Return the names and numbers of a line that names its step."""
        before = "" if _begins(line, step) else line[: step.start()]
        return self._cells_of(f"{before} {line[step.end() :]}")

    def _cells_of(self, line: str) -> Numbers:
        """Return the names and numbers of a line."""
        return _cells(line) or _in_braces(line) or self._spaced(line) | self._pairs(line)

    def _counted_row(self, line: str) -> None:
        """Keep the row of an epoch, which is a step as long as no line names one and no epoch
        comes again; else one that is counted.
        """
        epoch = _EPOCH.search(line) if "poch" in line.lower() else None
        if epoch and _begins(line, epoch):
            pairs, number = self._around(line, epoch), float(epoch[1])
            if self._ordered or not any(map(_KNOWN.search, pairs)):
                return
            if number > self._by_epoch:
                self._by_epoch = number
                self.store.add({"step": number} | pairs)
            elif self._by_epoch >= 0:
                self.store, self._by_epoch = RowStore(), math.nan
        else:
            names_reward = "eward" in line and not _EVALUATION.search(line)
            pairs = self._cells_of(line) if names_reward else self._alone(line)
            self._beside(pairs)
            self._turn(pairs)

    def _alone(self, line: str) -> Numbers:
        """Return the names and numbers of a line that holds no step, no evaluation and no words
        but a label before them.
        """
        match = _ALONE.match(line)
        if match and not _EVALUATION.search(line):
            pairs = self._cells_of(line)
            names = " ".join(pairs).lower()
            if not (
                pairs.keys() & {*STEP_KEYS} if match[1] else any(map(names.count, _STEP_WORDS))
            ):
                return pairs
        self._passed += _LOSS.search(line) is not None
        return {}

    def _turn(self, pairs: Numbers) -> None:
        """Take what nothing numbers: a name that comes again begins the next row."""
        if pairs.keys() & self._cycle.keys():
            self._count(self._cycle)
            self._cycle = {}
        self._cycle |= pairs

    def _count(self, pairs: Numbers) -> None:
        """Keep a row that nothing numbers: a reward and what its update did, or a mean reward
        beside others, which a completion has not, in a form that recurs.
        """
        if not self._ordered and not self._by_epoch < 0:
            return
        rows, means = [pairs], [*filter(_MEAN.search, pairs)]
        names = {name for name in pairs if name not in self._odd or not _REWARD.search(name)}
        if not _UPDATED.match(" ".join(names)):
            if (
                len(pairs) < 2
                or "reward" not in _quantities(means)
                or means != [*filter(_MEAN.search, next(iter(self._waiting), pairs))]
            ):
                self._odd |= pairs
                return
            if len(self._waiting) < _RECURS:
                self._waiting += [pairs] * (not self._ordered)
                if len(self._waiting) < _RECURS:
                    return
                rows, self._behind = self._waiting, 0
        for row in rows:
            self._ordered += 1
            self._by_epoch = float(self._ordered)
            self.store.add({"step": self._by_epoch} | row)

    def _keep(self, row: PrintedRow | JsonView) -> None:
        """Keep a row that names its step; those of epochs, and those that are counted, are none
        then.
        """
        if self._by_epoch >= 0:
            if not any(map(_KNOWN.search, row)):
                return
            self._ahead += self.store.read
            self.store, self._ordered = RowStore(), 0
        self._by_epoch = math.nan
        if not self.store.count and any(map(_REWARD.search, self._lead)):
            self._aside |= self._lead
            self.store.add(self._lead)
        self.store.add(row)

    def _below(self, line: str) -> None:
        """Read a line without a step: a setting before the first, what is listed below one, or
        the evaluation after a row.
        """
        self._quoted |= _QUOTED.match(line) is not None
        if self._block:
            pairs = self._nested(line) or self._cells_of(line)
            if _QUOTED.search(line) or _OF_SAMPLE.match(line):  # what one completion earned
                several = any(map(_MEAN.search, pairs))
                pairs = {key: pairs[key] for key in pairs if several or not _REWARD.search(key)}
            self._block |= {} if set(pairs) & set(self._block) else pairs
        elif not self.store.count or self._by_epoch >= 0:
            self._counted_row(line)
            for name, value in _SETTING.findall(line):
                self._stated.setdefault(_RENAMED.get(name, name), number_in(value))
        elif pairs := self._evaluated(line):
            self.store.add({"step": self._before + self._last} | pairs)
        else:
            self._beside(self._alone(line))

    def _evaluated(self, line: str) -> Numbers:
        """Return what a line without a step says of an evaluation, which it or its names name."""
        if source := _EVALUATED.search(line):
            return _under(f"eval/{source[1]}/", self._cells_of(line[source.end() :]))
        pairs = self._pairs(line) if _HELD_OUT.match(line) else {}
        return pairs if all(map(is_evaluation, pairs)) else {}

    def _beside(self, pairs: Numbers) -> None:
        """Take what a line without a step says beside the rows that have one: behind a prompt or
        a completion only what is a mean.
        """
        if not self._own:
            self._lead |= pairs
        elif not self._quoted or any(map(_MEAN.search, pairs)):
            has_reward = any(map(_REWARD.search, self._own))
            fresh = {
                name: value
                for name, value in pairs.items()
                if name not in self._own and not (has_reward and _REWARD.search(name))
            }
            if fresh:
                self._aside |= fresh
                self.store.add(fresh)

    def _numbered(self, step: re.Match[str], line: str) -> float:
        """Return the step of a line; where steps start anew with each epoch they are counted on."""
        number = float(next(filter(None, step.groups())))
        epoch = _EPOCH.search(line)
        now = float(epoch[1]) if epoch else self._epoch
        if now > self._epoch and number <= self._last:
            self._before += self._last
        elif now < self._epoch:
            self._before = 0.0
        self._epoch, self._last = now, number
        return self._before + number

    def _without_bars(self, line: str) -> Iterator[str]:
        """Yield the texts of a line that are none of its progress bars; what a title or the end
        of the last bar says is of the bar's step, and the last of a step counts.
        """
        *titles, rest = _BARS.split(line)
        for title in titles:
            if _STEP.search(title) and _PAIR.search(title := title.rstrip(" :")):
                yield title
        for number, text in _BEHIND_BAR.findall(line)[-1:]:
            pairs = self._pairs(text)
            if any(map(_REWARD.search, pairs)):  # else it is another clock
                if self._bar.get("step") != float(number):
                    self._close()
                self._bar |= {"step": float(number)} | pairs
        yield rest.strip()

    def _is_json(self, line: str) -> bool:
        """Keep the row that an object at the end of a line holds, if it tells its step."""
        match = _JSON.search(line) if '{"' in line and line.endswith("}") else None
        row = json_in(match[1]) if match else None
        if not isinstance(row, dict):
            return False
        row = unwrapped(row)
        if not any(isinstance(row.get(key), int | float) for key in STEP_KEYS):
            return False
        self._close()
        self._keep(row)
        return True

    def _is_of_panel(self, line: str) -> bool:
        """Take a line of a box of numbers that names its step inside; one below a step's heading
        is none.
        """
        edge = line.lstrip()[:1] or " "
        if edge in "╭┌┏" and not self._block:
            self._panel = {}
        elif self._panel is not None and edge in "╰└┗":
            steps = [
                value
                for key, value in self._panel.items()
                if spelled(key).rpartition("/")[2] in STEP_KEYS
            ]
            if steps:
                self._keep({"step": steps[0]} | self._panel)
            else:
                self._turn(self._panel)
            self._panel = None
        elif self._panel is not None and edge in "│┃":
            inner = line.strip(" │┃")
            category, _, rest = re.sub(r"\s{2,}", "\t", inner).partition("\t")
            if line.index(inner) > self._indent and self._panel:  # the end of a long line
                category, rest = self._category, f"{self._wrapped[-_WRAPPED:]} {inner}"
            elif inner:
                self._indent = line.index(inner)
            self._category, self._wrapped = category, rest
            pairs, front = self._pairs(rest), "" if category == "other" else f"{category}/"
            if line.count("│") > _SIDE_BY_SIDE or _PAIR.search(category):
                pairs, front = self._pairs(line.replace("│", "|")), ""
                named = _STEP.search(line)
                self._panel |= {"step": float(named[1])} if named and named[1] else {}
            self._panel |= _under(front, pairs) if pairs else _cells(line)
        return self._panel is not None

    def _is_of_table(self, line: str) -> bool:
        """Keep the row of numbers below a line of as many names, of which one is the step's."""
        mark = r"\s*[|,\t]\s*" if re.search(r"[|,\t]", line) else r"\s+"
        cells = re.split(mark, line.strip(" |,"))
        fits = len(cells) == len(self._header) and None not in map(number_of, cells)
        if fits:
            self._keep(dict(zip(self._header, map(number_of, cells), strict=True)))
        elif len(cells) > 2 and {*map(str.lower, cells)} & {*STEP_KEYS}:
            self._header = cells
        return fits

    def finish(self) -> None:
        """Keep the rows whose lines are all read."""
        self._close()
        self._count(self._cycle)
        self._cycle = {}

    def _close(self) -> None:
        """Keep the row whose lines are all read."""
        if any(map(_REWARD.search, self._block)):
            self._lists.add(self._counter)
        for row, counter in ((self._bar, ""), (self._block, self._counter)):
            if len(row) > 1:
                self._keep(row)
                self.store.mark(counter=counter)
        self._bar, self._block, self._heads = {}, {}, []

    def _nested(self, line: str) -> Numbers:
        """Return the number of a line whose name is nested, by its indentation, below others."""
        match = _NESTED.fullmatch(line)
        if not match:
            return {}
        while self._heads and self._heads[-1][0] >= len(match[1]):
            self._heads.pop()
        if match[3] is None:
            self._heads.append((len(match[1]), match[2]))
            return {}
        return (
            {"/".join([*(name for _, name in self._heads), match[2]]): float(match[3])}
            if self._heads
            else {}
        )

    def _pairs(self, line: str) -> Numbers:
        """Return the names and numbers of a line; a percentage becomes a share."""
        pairs = _PAIR.findall(line)
        part = pairs and any(name.lower() not in _COUNTS for name, _ in _COUNTER.findall(line))
        return self._named(
            (f"{_OF_A_PART if part else ''}{key.strip()}", text, percent)
            for key, text, percent in pairs
        )

    def _spaced(self, line: str) -> Numbers:
        """Return the names and numbers of a line without signs between them: Train loss 0.1,
        Rewards mean 0.5; without commas, it holds nothing else: reward 0.2 loss 0.1.
        """
        texts = re.split(r"[,|;]", " ".join(line.strip(" :-|>").split()))
        parts = [text.rpartition(": ") for text in texts if not _PAIR.search(text)]
        cells = [cell for _, _, text in parts for cell in _chained(text)]
        fits = len(cells) > max(1, len(parts) / 2)
        if len(texts) == 1:
            label = "".join(word for *front, _ in parts for word in front)
            wanted = _KNOWN if len(cells) > 1 else _CHAINED_ALONE
            fits = any(_LABEL.fullmatch(label) and wanted.search(name) for name, _, _ in cells)
        return self._named(cells) if fits else {}

    def _named(self, cells: Iterable[tuple[str, str, str]]) -> Numbers:
        """Return numbers by name, the first of each; counters of steps are none."""
        named: Numbers = {}
        for key, text, unit in cells:
            name = _counted(key)
            if name is None or name in named:
                continue
            named[name] = float(text) / _UNITS[unit]
            if unit == "%":
                self._shares.append(name)
            else:
                self.store.see_print(name, text)
        return named

    def log(self, origin: Origin, notes: Notes) -> Log:
        """Return the rows so far with the settings that the program printed."""
        notes.append("the rows come from printed output and have its rounding")
        what = f"read as shares ({', '.join(dict.fromkeys(self._shares))})"
        notes += noted(len(self._shares), "value in % is", "values in % are", what)
        notes += [COUNTED] * (self._ordered > 0)
        stated: Stated = ((self._stated, "the printed output"),)
        often = _SELDOM * len(self.store.sparse("step")[0])
        names = [
            name
            for name in self.store.names()
            if name in self._own
            or name not in self._aside
            or len(self.store.sparse(name)[0]) > often
        ]
        store = on_one_clock(self.store, [*filter(_REWARD.search, names)], notes)
        store = within_steps(store, [*filter(_KNOWN.search, names)], notes)
        store = of_whole_steps(store, names, _OF_A_PART)
        return Log(store, origin.path, self.form, origin.size, notes, stated=stated)


def _under(front: str, pairs: Numbers) -> Numbers:
    """Return numbers with something in front of their names."""
    return {f"{front}{name}": value for name, value in pairs.items()}


def _chained(text: str) -> list[tuple[str, str, str]]:
    """Return the names, numbers and units of a text that holds nothing else."""
    cells, at, plain = [], 0, text.strip()
    while match := _CHAINED.match(plain, at):
        cells.append((match[1].strip(), match[2], match[3]))
        at = match.end()
    return cells if at == len(plain) else []


@lru_cache(maxsize=4096)
def _counted(key: str) -> str | None:
    """Return the name of a number without a preposition at its end; None for a counter of steps."""
    name = re.sub(r"(?i)^epoch [\d/]{1,20}\s+|^\d[\d.,/]{0,20}\. | (?:of|at|for|in)$", "", key)
    return None if name.lower() in _COUNTS else name


def _begins(line: str, step: re.Match[str]) -> bool:
    """Return whether nothing but what loggers add stands before the step of a line."""
    return not _holds_words(_KIND.sub(" ", line[: step.start()]))


def _in_braces(line: str) -> Numbers:
    """Return the names and numbers of a Python dictionary on a line."""
    start = _BRACES.search(line)
    row = parse_row(line[start.start() : line.rfind("}") + 1]) if start else None
    numbers = {str(key): number_of(str(value)) for key, value in (row or {}).items()}
    return {name: number for name, number in numbers.items() if number is not None}


def _cells(line: str) -> Numbers:
    """Return the names and numbers of a line of a table, "key | value" side by side; empty for
    another line.
    """
    cells = list(filter(None, map(str.strip, _CELL.split(line))))
    if len(cells) % 2:
        return {}
    names, values = cells[::2], list(map(number_of, cells[1::2]))
    if None in values or {*map(number_of, names)} != {None}:
        return {}
    return {
        name[:200]: value for name, value in zip(names, values, strict=True) if value is not None
    }


def sniff_printed(seen: Peek) -> float:
    """Return the confidence that the file holds printed rows with a step and a reward, a score
    or a loss.
    """
    settings = "\n}\n" in seen.text  # printed before the rows
    object_first = seen.text.startswith("{") and not settings
    if object_first or seen.path.suffix.lower() in (*_STRUCTURED, ".md"):
        return 0.0
    console = PrintedConsole()
    console.take(lines_of(seen.text)[:_SCAN_LINES])
    console.finish()
    store = console.store
    rows = holding(store, [*filter(_KNOWN.search, store.names())]).sum()
    return 0.55 if rows > 1 else 0.4 if rows else 0.0


# What a row of each form starts with, and whose rows they are.
_PROGRAMS = {
    "verl_console": (_VERL_BYTES, "verl's"),
    "trl_console": (re.compile(rb"\{'loss': [^\n{]{1,4000}'reward': "), "TRL's"),
    "printed_dicts": (_DICT_BYTES, "slime's or SkyRL's"),
    "printed": (
        re.compile(rb"metrics_tag: \{|Training Results:|\| Reward: \d|Metrics \xe2\x94\x80"),
        "another trainer's",
    ),
}


def foreign_rows(seen: Peek, form: str) -> Notes:
    """Return notes on the rows of other programs in a file that is read by one form."""
    start = b"\n" + start_of(seen, _SCAN)
    return [
        f"the file also has rows in {program} form, which are not read: {TWO_PROGRAMS}"
        for other, (row, program) in _PROGRAMS.items()
        if other != form and (row != _DICT_BYTES or _ANY_DICT.search(start))
        if len(row.findall(start)) > 1
    ]
