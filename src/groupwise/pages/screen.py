"""The judgement of a run in eight lines of 80 columns: the state first, the reward last."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from groupwise.diagnostics.judgement import Certainty, Finding, Judgement, Sign, State, Status
from groupwise.files import table_column
from groupwise.plain import Words, frozen
from groupwise.wording import bare_name, capital, clean, count, number, ranged, sentence

WIDTH, MOST_LINES, MOST_WORDS = 80, 8, 60
_LABEL, _LEAST_NAME, _USUAL_NAME, _MOST_WORDS_A_LINE, _LONGEST = 12, 20, 28, 22, 400
_LONGEST_REMARK = 1000
_MOST_PARTS = 4  # of a line of a page
_SECOND = 2  # by so much the second line of an entry is worth less than its first
_MARKS = table_column("states.tsv", "state", "mark")
_STYLES = table_column("states.tsv", "state", "style")
_CHECK_STYLES = {
    Status.CRITICAL: "red",
    Status.WARNING: "yellow",
    Status.INFO: "blue",
}
_BARS = "▁▂▃▄▅▆▇█"
_KEYS = re.compile(r" \([^()]*\)")  # what each trainer calls it
_CLAUSES = re.compile(r"([;:] )")  # what ends one
_NUMBERS = re.compile(r"[\d.]+")
_ASCII = str.maketrans(f"{_BARS}✓✗÷×−–·", " .:-=+*#+x/x---") | str.maketrans(
    {"→": "->", "≤": "<=", "≥": ">=", "…": "..."}
)

Spell = Callable[[str], str]  # how a text is written: as it is, or in ASCII


@frozen
class _LabelledLine:
    """What a labelled line may say."""

    label: str
    parts: Words
    # as many as have room on a line are said, the first in any case; each with what joins it to the
    # one before
    rank: int  # of its last line: the largest goes first where there is no room
    lines: int = 1  # that it may take


def print_judgement(
    judgement: Judgement,
    console: Console,
    *,
    why: bool = False,
    remarks: Sequence[str] = (),
) -> None:
    """Print the judgement of a run and its reward as one line of bars.

    Where asked for, also every check and the numbers behind them.
    """
    plain = _plain(console)
    first, *others = judgement_lines(judgement, plain=plain)
    _print(console, first, style_of(judgement.state), len(head_of(judgement.state)))
    for line in others:
        _print(console, line)
    if why:
        console.print()
        shown = " ".join(" ".join((first, *others)).split())
        for text in (beside_the_cause(judgement)[0], judgement.do):
            if _spelt(text.rstrip("."), plain=plain) not in shown:  # what had no room
                _print(console, f"  {clean(sentence(text), longest=_LONGEST_REMARK)}")
        for line in filter(None, (judgement.cause.because, *actions_said(judgement))):
            _print(console, f"  {line}")
        for check in judgement.checks:
            if check.status in _CHECK_STYLES:
                _print(console, f"  {_answer(check)}", _CHECK_STYLES[check.status])
                for line in _numbers(check):
                    _print(console, f"      {line}")
        for line in _without_answer(judgement):
            _print(console, f"  {line}")
    if remarks:
        console.print()
        for remark in remarks:
            _print(console, f"  {clean(sentence(remark), longest=_LONGEST_REMARK)}")


def actions_said(judgement: Judgement) -> Iterable[str]:
    """Yield what to do, an action a line, with the settings of the user's trainer."""
    for action in judgement.actions:
        settings = f": {' '.join(action.settings)}" if action.settings else ""
        ask = f" (give --set {action.missing} to complete this)" if action.missing else ""
        yield clean(f"Do: {action.words}{settings}{ask}", longest=_LONGEST)


def print_first_line(judgement: Judgement, console: Console) -> None:
    """Print state, name and headline, for commands that then answer another question."""
    bare = Judgement(judgement.run, judgement.state, judgement.headline, parts=judgement.parts)
    print_judgement(bare, console)


def judgement_lines(judgement: Judgement, *, plain: bool = False) -> list[str]:
    """Return the lines of a judgement; `plain` writes them in ASCII."""
    spell = partial(_spelt, plain=plain)
    head = _headline(judgement, spell)
    bars = [f"  reward {spell(_bars(judgement.heights))}".rstrip()] if judgement.heights else []
    also = (_LabelledLine("also", (part,), 4, lines=2) for part in beside_the_cause(judgement)[1:])
    kept = [*also, *_labelled(judgement)]
    while kept:
        drawn = [line for entry in kept for line in _drawn(entry, spell)]
        lines = [*head, *drawn, *bars]
        if len(lines) <= MOST_LINES and words_in(lines) <= MOST_WORDS:
            return lines
        # The least of them goes: the second line of one, or one altogether.
        least = max(kept, key=lambda entry: entry.rank)
        place, shorter = kept.index(least), replace(least, lines=1, rank=least.rank - _SECOND)
        kept[place : place + 1] = [shorter] * (least.lines > 1)
    return [*head, *bars]


def beside_the_cause(judgement: Judgement) -> Words:
    """Return what is told but for the cause, which has its own line: that of a run without a
    warning stands beside the fact.
    """
    parts = judgement.parts or (judgement.headline,)
    beside = 1 + (judgement.state is State.OK and bool(judgement.cause.names))
    return parts[0], *parts[beside:]


def said_of(judgement: Judgement) -> list[tuple[str, str]]:
    """Return the labels of a judgement with all that each has to say, for a page with room."""
    return [
        (line.label, clean("".join(line.parts[:_MOST_PARTS]), longest=_LONGEST))
        for line in _labelled(judgement)
    ]


def words_in(lines: Iterable[str]) -> int:
    """Return the number of words: what stands between blanks and has a letter."""
    return sum(any(letter.isalpha() for letter in word) for line in lines for word in line.split())


def _plain(console: Console) -> bool:
    """Return whether a console takes no more than ASCII for sure."""
    return not console.encoding.startswith("utf")


def _print(console: Console, line: str, style: str = "", styled: int | None = None) -> None:
    """Print a line, in ASCII where the console takes no more; a pipe gets it whole."""
    text = Text(_spelt(line, plain=_plain(console)))
    text.stylize(style, 0, styled)
    console.print(text, highlight=False, soft_wrap=not console.is_terminal)


def head_of(state: str, *, plain: bool = False) -> str:
    """Return mark and word of a state."""
    return _spelt(f"{_MARKS[state]} {state.replace('_', ' ').upper()}", plain=plain)


def style_of(state: str) -> str:
    """Return how the terminal shows a state; what is none is shown as other text."""
    style = _STYLES[state]
    return style and f"bold {style}"


def _headline(judgement: Judgement, spell: Spell) -> list[str]:
    """Return the first line, and a second where needed; the name is shortened first."""
    head = spell(head_of(judgement.state))
    headline = _brief(beside_the_cause(judgement)[0], spell)
    room = WIDTH - cell_len(head) - 4 - cell_len(headline)
    room = room if room >= _LEAST_NAME else _USUAL_NAME
    name = _shortened(spell(clean(judgement.run) or "unnamed run"), room, spell)
    return _fitted(f"{head}  {name}  ", headline, spell, indent="  ", lines=2)


def _shortened(name: str, room: int, spell: Spell) -> str:
    """Return a name without the endings of files where it is too long, and without its middle
    where that is: its ends tell runs apart.
    """
    name = name if cell_len(name) <= room else bare_name(name)
    if cell_len(name) <= room:
        return name
    dots = spell("…")
    start = (room - len(dots) + 1) // 2
    end = room - len(dots) - start
    return f"{set_cell_size(name, start)}{dots}{set_cell_size(name[::-1], end)[::-1]}"


def _labelled(judgement: Judgement) -> Iterable[_LabelledLine]:
    """Yield the labelled lines that there are, in their order."""
    then: Sequence[Sign] = judgement.then
    if first := judgement.first_sign:
        begun = [sign for sign in judgement.signs if sign.step == first.step]
        # What the headline says is not said again.
        fresh = [sign for sign in begun if not _says(judgement, sign)]
        words = _signs(fresh) if fresh else (f"step {first.step:,}",)
        yield _LabelledLine("first sign", words, 5, lines=2)
        then = [sign for sign in then if sign.step != first.step]
        # What the cause names has room where it is not among the first.
        moves = judgement.cause.moves
        if not any(sign.signal in moves for sign in begun):
            begin = min((sign.step for sign in then if sign.signal in moves), default=first.step)
            then = [sign for sign in then if sign.step >= begin]
    if then:
        yield _LabelledLine("then", _signs(then), 6, lines=2)
    if named := judgement.cause.named:
        yield _LabelledLine(judgement.cause.sure, (named,), 4, lines=2)
    if judgement.do:
        yield _LabelledLine("do", (judgement.do,), 3, lines=2)
    if judgement.cost:
        yield _LabelledLine("cost", _joined(judgement.cost.parts, ", "), 4)
    if judgement.gpu_hours:  # who gives the GPUs wants to know
        yield _LabelledLine("GPU-hours", (judgement.gpu_hours,), 3)
    if not judgement.ended:
        yield _LabelledLine(
            "goes on", ("the run has not ended, so a new fall needs more rows to count",), 7
        )
    if judgement.state is State.OK:
        if lacks := _lacks(judgement):
            yield _LabelledLine("not logged", (lacks,), 8)
    elif judgement.not_logged and judgement.cause.certainty is not Certainty.LIKELY:
        bare = [_KEYS.sub("", name) for name in judgement.not_logged]
        yield _LabelledLine("not logged", _joined(bare, "; "), 8, lines=2)


def _says(judgement: Judgement, sign: Sign) -> bool:
    """Whether a headline says what a sign does: its words, or its numbers if it is of this sign."""
    headline = judgement.headline
    numbers = {*_NUMBERS.findall(sign.words)} <= {*_NUMBERS.findall(headline)}
    return sign.words in headline or (sign in judgement.stated and numbers)


def _signs(signs: Sequence[Sign]) -> Words:
    """Return signals that moved, each with its step where that is not the one before's."""
    others = (
        f", {sign.words}" if sign.step == last.step else f"; step {sign.step:,}  {sign.words}"
        for last, sign in pairwise(signs)
    )
    return (f"step {signs[0].step:,}  {signs[0].words}", *others)


def _joined(texts: Sequence[str], joint: str) -> Words:
    """Return texts with what joins each to the one before."""
    return (texts[0], *(f"{joint}{text}" for text in texts[1:]))


def _drawn(line: _LabelledLine, spell: Spell) -> list[str]:
    """Return a labelled line with as many of its parts as have room."""
    head = f"  {line.label:<{_LABEL}}"
    first, *others = (_brief(part, spell) for part in line.parts)
    for part in others:
        longer = first + part
        if len(head) + cell_len(longer) > WIDTH or len(longer.split()) > _MOST_WORDS_A_LINE:
            break
        first = longer
    return _fitted(head, first, spell, indent=" " * len(head), lines=line.lines)


def _bars(heights: Sequence[float | None]) -> str:
    """Return heights as bars, a blank where there is none."""
    return "".join(
        " " if height is None else _BARS[min(len(_BARS) - 1, int(len(_BARS) * height))]
        for height in heights
    )


def _spelt(text: str, *, plain: bool) -> str:
    """Return a text as it is, or in ASCII."""
    return text.translate(_ASCII).encode("ascii", "replace").decode() if plain else text


def _brief(text: str, spell: Spell) -> str:
    """Return a text cleaned, in one line, without the stop at its end."""
    return spell(clean(text, longest=_LONGEST).rstrip("."))


def _shorter(text: str) -> Iterable[str]:
    """Yield a text, then it without what stands in brackets, then without its last clause too, and
    so on.
    """
    yield text
    clauses = _CLAUSES.split(_KEYS.sub("", text))
    for last in range(len(clauses), 0, -2):
        yield "".join(clauses[:last])
    yield clauses[0].partition(", ")[0]


def _fitted(head: str, text: str, spell: Spell, *, indent: str, lines: int) -> list[str]:
    """Break a text after its head into so many lines at most; clauses that have no room are left
    out, and one that has none by itself is shown to be cut off.
    """
    for shorter in _shorter(text):
        drawn = _wrapped(head, shorter, indent)
        if len(drawn) <= lines and words_in([shorter]) <= _MOST_WORDS_A_LINE:
            return drawn
    few = " ".join(shorter.split(" ")[:_MOST_WORDS_A_LINE])
    *drawn, last = _wrapped(head, few, indent)[:lines]
    return [*drawn, set_cell_size(last, WIDTH - 3).rstrip() + spell("…")]


def _wrapped(head: str, text: str, indent: str) -> list[str]:
    """Break a text after its head into lines."""
    start = _start(text, WIDTH - cell_len(head))
    rest = text[len(start) :].lstrip()
    return [head + start, *(_wrapped(indent, rest, indent) if rest else ())]


def _start(text: str, room: int) -> str:
    """Return the whole words that have room, or as much of the first as has."""
    return (set_cell_size(text, room + 1).rpartition(" ")[0] or set_cell_size(text, room)).rstrip()


def check_title(check: str) -> str:
    """Return the name of a check as words."""
    titles = table_column("diagnostics/checks.tsv", "check", "title")
    return titles.get(check, capital(check.replace("_", " ")))


def _answer(check: Finding) -> str:
    """Return what a check answers, in a line."""
    status = f"{check_title(check.check)}, {check.status.value}"
    since = "" if check.step is None else f" from step {check.step:,}"
    return clean(f"{status}{since}: {sentence(check.message)}", longest=_LONGEST)


def _lacking(judgement: Judgement) -> list[Finding]:
    """Return the checks that could look if something was logged."""
    return [check for check in judgement.checks if check.status is Status.NOT_LOGGED and check.log]


def _lacks(judgement: Judgement) -> str:
    """Return how many checks ran, and how many lack a signal; "" where none lacks one."""
    ran = sum(check.status is not Status.NOT_LOGGED for check in judgement.checks)
    lacking = len(_lacking(judgement))
    said = f"{count(ran, 'check')} ran; {count(lacking, 'lacks a signal', 'lack a signal')}"
    return said if lacking else ""


def _without_answer(judgement: Judgement) -> Iterable[str]:
    """Yield which checks saw nothing, then how many lack something, and what for the first."""
    clear = [check_title(each.check) for each in judgement.checks if each.status is Status.NONE]
    if clear:
        yield f"No sign of a problem in {count(len(clear), 'check')}: {'; '.join(clear)}."
    if lacks := _lacks(judgement):
        yield f"Not logged: {lacks}; --json lists all."
    for check in _lacking(judgement)[:3]:
        yield clean(f"    {check_title(check.check)}: log {check.log}.", longest=_LONGEST)


def _numbers(check: Finding) -> Iterable[str]:
    """Yield the number that a check rests on, what it is held against, and its facts."""
    limit = "" if check.limit is None else f", limit {number(check.limit)}"
    numbers = [] if check.value is None else [f"measured {ranged(check.value)}{limit}"]
    numbers += [fact.value for fact in check.facts]
    numbers += [f"the column is {check.column}"] if check.column else []
    if numbers:
        yield clean("; ".join(numbers), longest=_LONGEST)
