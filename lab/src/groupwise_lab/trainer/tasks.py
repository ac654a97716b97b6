"""Tasks: problems with one right answer each, split into those to train on and those held out, and
families to transfer to.

`make_task` builds one by name, `transfer_tasks` those next to it: other levels, other kinds,
operators that training never showed, all in the same vocabulary and without a prompt of the
training set. A kind of problem is a rule that makes a problem of a few integers, and says how many
values each of them has, so that a small kind can be listed whole and a large one drawn without
repetition. A token is a symbol: 0 pads, 1 ends a completion, the symbols follow. It judges no
completion (`rewards`) and trains nothing.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from groupwise.arrays import Whole
from groupwise.errors import GroupwiseError, InsufficientDataError, InvalidArgumentError, named
from groupwise.parsing import JsonView
from groupwise.plain import frozen
from groupwise_lab.trainer.rewards import FailingVerifier, Problem, TaskVerifier, Verifier

PAD = 0
END = 1
DRAWN_PAD = "\ufffd"  # how a verifier sees a PAD that a policy drew: no symbol, and not nothing
_SPECIAL = 2


@frozen
class Vocabulary:
    """The symbols of a task, each one token."""

    symbols: str  # different characters; the first has token 2

    def __post_init__(self) -> None:
        """Refuse symbols that are not different."""
        if not self.symbols or len(set(self.symbols)) != len(self.symbols):
            raise InvalidArgumentError(
                f"expected different symbols, got {self.symbols!r}: name each once"
            )

    def __len__(self) -> int:
        """Number of tokens, PAD and END included."""
        return len(self.symbols) + _SPECIAL

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without END."""
        unknown = set(text) - {*self.symbols, DRAWN_PAD}
        if unknown:
            raise InvalidArgumentError(
                f"expected symbols of {self.symbols!r}, got {min(unknown)!r} in {text!r}: leave it "
                "out"
            )
        return [
            PAD if symbol == DRAWN_PAD else self.symbols.index(symbol) + _SPECIAL for symbol in text
        ]


Integers = Sequence[int]


@frozen
class ProblemRule:
    """A rule that makes problems."""

    name: str  # of the family of its problems
    sizes: Callable[[int], tuple[int, ...]]  # level -> how many values each integer has
    # level and integers -> prompt and answer; None where these integers make no problem
    write: Callable[[int, Integers], tuple[str, str] | None]


def number(value: int, width: int) -> str:
    """Return an integer with leading zeros, its sign in front."""
    return f"{'-' if value < 0 else ''}{abs(value):0{width}d}"


def _operands(count: int, *others: int) -> Callable[[int], tuple[int, ...]]:
    """Sizes of a kind of so many operands of `level` digits and other integers."""
    return lambda level: (10**level,) * count + others


def _formula(
    text: str, value: Callable[..., int], digits: Callable[[int], int]
) -> Callable[[int, Integers], tuple[str, str]]:
    """Return what writes operands into a text, and their value with so many digits at a level."""
    return lambda level, values: (
        text.format(*(number(operand, level) for operand in values)),
        number(value(*values), digits(level)),
    )


def _sum(count: int) -> Callable[[int, Integers], tuple[str, str]]:
    """Return what writes a sum of so many operands."""
    return _formula(
        "+".join(["{}"] * count) + "=",
        lambda *values: sum(values),
        lambda level: len(str(count * (10**level - 1))),
    )


def _modular(level: int, values: Integers) -> tuple[str, str]:
    """Write a + b modulo 10 to the level; the sign % in place of = says so."""
    return _formula("{}+{}%", lambda first, second: (first + second) % 10**level, int)(
        level, values
    )


def _steps(level: int, values: Integers) -> tuple[str, str]:
    """Write a chain of sums and differences from left to right."""
    count = (len(values) + 1) // 2
    text, total = number(values[0], level), values[0]
    for operand, minus in zip(values[1:count], values[count:], strict=True):
        text += "+-"[minus] + number(operand, level)
        total += -operand if minus else operand
    return text + "=", number(total, len(str(count * (10**level - 1))))


def _quotient(level: int, values: Integers) -> tuple[str, str]:
    """Write a / b, b of one digit and not zero; what remains is dropped."""
    first, second = values[0], values[1] + 1
    return f"{number(first, level)}/{second}=", number(first // second, level)


def _parentheses(level: int, values: Integers) -> tuple[str, str]:
    """Write a, b and c with two signs and one pair of parentheses, around the first two or the
    last two.
    """
    (a, b, c), (first, second), late = values[:3], values[3:5], values[5]
    texts = [number(value, level) for value in (a, b, c)]
    inner, outer = "+-"[first], "+-"[second]
    sign = {"+": 1, "-": -1}
    if late:
        prompt, total = (
            f"{texts[0]}{inner}({texts[1]}{outer}{texts[2]})=",
            a + sign[inner] * (b + sign[outer] * c),
        )
    else:
        prompt, total = (
            f"({texts[0]}{inner}{texts[1]}){outer}{texts[2]}=",
            a + sign[inner] * b + sign[outer] * c,
        )
    return prompt, number(total, len(str(3 * (10**level - 1))))


_OPENING, _CLOSING = "([{", ")]}"


def _closing(text: str) -> str | None:
    """Return what closes the open brackets of a text, or None where a bracket closes what is not
    open.
    """
    open_: list[str] = []
    for symbol in text:
        if symbol in _OPENING:
            open_.append(_CLOSING[_OPENING.index(symbol)])
        elif not open_ or open_.pop() != symbol:
            return None
    return "".join(reversed(open_))


INTEGERS = Vocabulary("0123456789+-*/()=%")
DIGIT_ROWS = Vocabulary("0123456789<>")
BRACKET_ROWS = Vocabulary("([{)]}=")

# Tokens of the longest prompt and completion of any task and level together: a policy with as many
# positions can do all.
LONGEST_SEQUENCE = 32
RECIPE = "task.json"
_MOST_PROBLEMS = 1_000_000
_DRAWS_A_PROBLEM = 50
_LISTED_WHOLE = 100_000
_BLOCK = 1024  # numbers that are taken apart at once


class UnreadableTaskError(GroupwiseError):
    """A file holds no recipe of a task."""


@frozen
class Task:
    """What a policy is trained on, or evaluated on."""

    name: str  # of the family
    vocabulary: Vocabulary  # of prompts and answers
    train: tuple[Problem, ...]  # problems to train on
    held_out: tuple[Problem, ...]  # problems of the same kinds and levels, none of them in `train`
    prompt_length: int  # tokens of the longest prompt
    completion_length: int  # tokens of the longest answer, END included
    verifier: Verifier  # what judges a completion
    # arguments of `make_task` that build it again; empty where it was built otherwise
    recipe: JsonView = field(default_factory=dict)

    def prompt_tokens(self, problems: Sequence[Problem]) -> Whole:
        """Return the prompts as tokens, padded on the left."""
        return self._padded(
            [self.vocabulary.encode(problem.text) for problem in problems],
            self.prompt_length,
            left=True,
        )

    def answer_tokens(self, problems: Sequence[Problem]) -> Whole:
        """Return the right completions as tokens, END included, padded on the right."""
        return self._padded(
            [[*self.vocabulary.encode(problem.answer), END] for problem in problems],
            self.completion_length,
            left=False,
        )

    def _padded(self, rows: list[list[int]], length: int, *, left: bool) -> Whole:
        """Return rows of one length."""
        padded = np.full((len(rows), length), PAD, dtype=np.int64)
        for place, row in enumerate(rows):
            padded[place, slice(length - len(row), None) if left else slice(len(row))] = row
        return padded


@frozen
class TaskFamily:
    """An entry of the registry: a task of any level."""

    name: str  # as `make_task` takes it
    meaning: str  # one line
    vocabulary: Vocabulary  # of prompts and answers
    kinds: tuple[ProblemRule, ...]  # of its problems, in equal numbers where several
    levels: tuple[int, int]  # lowest and highest
    level: int  # where none is asked for
    unit: str = "digits of an operand"  # what a level counts
    answer_pattern: str = "-?[0-9]+"  # form of an answer, a regular expression
    bait: str = "9"  # symbol of the proxy reward
    # levels that `transfer_tasks` adds to that of the training task, for a kind contained in
    # another
    shift: int = 0


def _integers(kind: ProblemRule, meaning: str, highest: int) -> TaskFamily:
    """Return an arithmetic family."""
    return TaskFamily(kind.name, meaning, INTEGERS, (kind,), (1, highest), 2)


def _sorting(
    name: str,
    meaning: str,
    *,
    sign: str = "<",
    digits: int = 10,
    change: Callable[[Integers], Integers] = tuple,
    shift: int = 1,
) -> TaskFamily:
    """Return a family of rows of digits to sort: `change` makes the digits that are shown of
    those drawn.
    """

    def write(_level: int, values: Integers) -> tuple[str, str]:
        shown = change(values)
        return "".join(map(str, shown)) + sign, "".join(
            map(str, sorted(shown, reverse=sign == ">"))
        )

    kind = ProblemRule(name, lambda level: (digits,) * level, write)
    return TaskFamily(
        name, meaning, DIGIT_ROWS, (kind,), (2, 12), 4, "digits", "[0-9]+", shift=shift
    )


def _brackets(
    name: str,
    meaning: str,
    opening: str,
    *,
    change: Callable[[str], str] = str,
    closes: bool = True,
    shift: int = 1,
) -> TaskFamily:
    """Return a family of brackets to close: one value a symbol, the last of them closes what was
    opened last, where something is open.
    """

    def write(_level: int, values: Integers) -> tuple[str, str] | None:
        text, open_ = "", ""
        for value in values:
            if value < len(opening) or not open_:
                text += opening[value % len(opening)]
                open_ = _CLOSING[_OPENING.index(text[-1])] + open_
            else:
                text, open_ = text + open_[0], open_[1:]
        text = change(text)
        answer = _closing(text)
        return (text + "=", answer) if answer else None

    kind = ProblemRule(name, lambda level: (len(opening) + closes,) * level, write)
    return TaskFamily(
        name,
        meaning,
        BRACKET_ROWS,
        (kind,),
        (3, 12),
        5,
        "brackets shown",
        r"[)\]}]+",
        bait="(",
        shift=shift,
    )


_FIVE = (
    _integers(
        ProblemRule("two_step", _operands(3, 2, 2), _steps), "a ± b ± c, from left to right", 4
    ),
    _integers(
        ProblemRule("three_step", _operands(4, 2, 2, 2), _steps),
        "a ± b ± c ± d, from left to right",
        4,
    ),
    _integers(
        ProblemRule(
            "multiplication",
            _operands(2),
            _formula("{}*{}=", operator.mul, lambda level: 2 * level),
        ),
        "a * b",
        4,
    ),
    _integers(
        ProblemRule("division", _operands(1, 9), _quotient),
        "a / b with b from 1 to 9; the remainder is dropped",
        4,
    ),
    _integers(
        ProblemRule("parentheses", _operands(3, 2, 2, 2), _parentheses),
        "a ± b ± c with parentheses around the first two or the last two",
        4,
    ),
)

TASKS: tuple[TaskFamily, ...] = (
    _integers(ProblemRule("addition", _operands(2), _sum(2)), "a + b", 9),
    _integers(
        ProblemRule("modular_addition", _operands(2), _modular),
        "a + b modulo 10 to the level, asked for with % in place of =",
        9,
    ),
    TaskFamily(
        "integer_problems",
        "the five kinds of integer problems below, in equal numbers",
        INTEGERS,
        tuple(family.kinds[0] for family in _FIVE),
        (1, 4),
        1,
    ),
    *_FIVE,
    _integers(ProblemRule("long_addition", _operands(3), _sum(3)), "a + b + c", 4),
    _integers(
        ProblemRule("subtraction", _operands(2), _formula("{}-{}=", operator.sub, int)),
        "a - b, which may be negative",
        9,
    ),
    _sorting("sorting", "digits, smallest first", shift=0),
    _sorting(
        "sorting_descending",
        "digits, largest first, asked for with > in place of <",
        sign=">",
        shift=0,
    ),
    _sorting("sorting_sorted", "digits that are sorted already", change=sorted),
    _sorting(
        "sorting_reversed",
        "digits in reverse order",
        change=lambda values: sorted(values, reverse=True),
    ),
    _sorting("sorting_low", "digits from 0 to 4", digits=5),
    _sorting(
        "sorting_high",
        "digits from 5 to 9",
        digits=5,
        change=lambda values: [value + 5 for value in values],
    ),
    _sorting(
        "sorting_repeats",
        "each digit twice in a row",
        change=lambda values: [values[place // 2] for place in range(len(values))],
    ),
    _brackets("brackets", "close what is open, three sorts of brackets", "([{", shift=0),
    _brackets("brackets_round", "round brackets only", "(", shift=3),
    _brackets("brackets_square", "square brackets only", "[", shift=3),
    _brackets("brackets_two_kinds", "round and curly brackets", "({"),
    _brackets(
        "brackets_nested",
        "opening brackets only, so that all are to be closed",
        "([{",
        closes=False,
    ),
    _brackets(
        "brackets_pair",
        "a pair, then opening brackets only",
        "([{",
        change=lambda text: text[0] + _CLOSING[_OPENING.index(text[0])] + text[2:],
        closes=False,
    ),
)


def make_task(
    name: str,
    *,
    seed: int = 0,
    level: int | Sequence[int] | None = None,
    problems: int = 10_000,
    held_out_share: float = 0.2,
    format_reward: bool = False,
    proxy_bonus: float | None = None,
    failing_from: int | None = None,
    failing_share: float = 1.0,
    exclude: Collection[str] = (),
) -> Task:
    """Build a task.

    A kind with no more problems than asked for is listed whole; a larger one is drawn without
    repetition. From the step `failing_from` on a share of completions gets 0, whatever they say.
    """
    family = named(name, TASKS, "a task")
    levels = _levels(family, level)
    recipe = {
        "name": name,
        "seed": seed,
        "level": list(levels),
        "problems": problems,
        "held_out_share": held_out_share,
    }
    recipe |= {"format_reward": format_reward, "proxy_bonus": proxy_bonus}
    verifier: Verifier = TaskVerifier.of(
        answer_pattern=family.answer_pattern,
        format_reward=format_reward,
        bait=family.bait,
        bonus=proxy_bonus,
    )
    if failing_from is not None:
        recipe |= {"failing_from": failing_from, "failing_share": failing_share}
        verifier = FailingVerifier(verifier, failing_from, failing_share, seed=seed)
    check_split(seed, problems, held_out_share)
    drawn = _shuffled(family, levels, problems, seed, frozenset(exclude))
    if not drawn:
        raise InsufficientDataError(
            f"expected problems of {name} at level {levels}, got none that are not excluded: use "
            "another level"
        )
    held = round(held_out_share * len(drawn))
    return Task(
        name,
        family.vocabulary,
        drawn[held:],
        drawn[:held],
        max(len(problem.text) for problem in drawn),
        max(len(problem.answer) for problem in drawn) + 1,
        verifier,
        {} if exclude else recipe,
    )


def check_split(seed: int, problems: int, held_out_share: float) -> None:
    """Refuse a split of problems that is none."""
    if seed < 0 or not 1 <= problems <= _MOST_PROBLEMS or not 0 <= held_out_share <= 1:
        raise InvalidArgumentError(
            f"expected a seed from 0, from 1 to {_MOST_PROBLEMS} problems and a held-out share in "
            f"[0, 1]; got {seed}, {problems} and {held_out_share}"
        )


def transfer_tasks(task: Task, *, seed: int = 0, problems: int = 200) -> tuple[Task, ...]:
    """Build what a trained policy can be tried on besides: its own kind at other levels, and
    every other kind of its vocabulary.
    """
    trained = {(problem.family, problem.level) for problem in task.train}
    level = max(level for _, level in trained)
    seen = {problem.text for problem in task.train}
    tasks = []
    for family in TASKS:
        if family.vocabulary != task.vocabulary or len(family.kinds) > 1:
            continue
        own = {level for name, level in trained if name == family.name}
        lowest, highest = family.levels
        # The three levels of its own next to it, where there is a choice the higher one; of other
        # kinds one level.
        near = sorted(
            set(range(lowest, highest + 1)) - own, key=lambda other: (abs(other - level), -other)
        )[:3]
        for other in sorted(near) if own else (max(lowest, min(highest, level + family.shift)),):
            try:
                built = make_task(
                    family.name,
                    seed=seed,
                    level=other,
                    problems=problems,
                    held_out_share=1.0,
                    exclude=seen,
                )
            except InsufficientDataError:
                continue  # every problem of it was trained on
            tasks.append(replace(built, name=f"{family.name}/{other}"))
    return tuple(tasks)


def write_task(task: Task, folder: Path) -> None:
    """Write the recipe of a task beside a checkpoint, so that it is known what was trained on;
    nothing where there is none.
    """
    if task.recipe:
        (folder / RECIPE).write_text(json.dumps(dict(task.recipe), indent=1), encoding="utf-8")


def _levels(family: TaskFamily, level: int | Sequence[int] | None) -> tuple[int, ...]:
    """Return the levels asked for."""
    levels = (
        (family.level,) if level is None else (level,) if isinstance(level, int) else tuple(level)
    )
    lowest, highest = family.levels
    if not levels or any(
        not isinstance(level, int) or not lowest <= level <= highest for level in levels
    ):
        raise InvalidArgumentError(
            f"expected levels of {family.name} ({family.unit}) from {lowest} to {highest}; got "
            f"{level}"
        )
    return tuple(dict.fromkeys(levels))


@lru_cache(maxsize=8)
def _shuffled(
    family: TaskFamily,
    levels: tuple[int, ...],
    problems: int,
    seed: int,
    exclude: frozenset[str],
) -> tuple[Problem, ...]:
    """Return the problems of a task in random order."""
    rng = np.random.default_rng([seed, *family.name.encode()])
    drawn = _drawn(family, levels, problems, rng, set(exclude))
    return tuple(drawn[place] for place in rng.permutation(len(drawn)))


def _drawn(
    family: TaskFamily,
    levels: Sequence[int],
    problems: int,
    rng: np.random.Generator,
    seen: set[str],
) -> list[Problem]:
    """Return problems of every kind and level, as equal in number as they come, no prompt twice."""
    cells = [(kind, level) for kind in family.kinds for level in levels]
    picked: list[Problem] = []
    for place, (kind, level) in enumerate(cells):
        wanted = problems // len(cells) + (place < problems % len(cells))
        candidates = _candidates(kind, level, wanted, rng)
        while wanted and (problem := next(candidates, None)) is not None:
            if problem.text not in seen:
                seen.add(problem.text)
                picked.append(problem)
                wanted -= 1
    return picked


def _candidates(
    kind: ProblemRule, level: int, wanted: int, rng: np.random.Generator
) -> Iterator[Problem]:
    """Yield all problems of a small kind in random order, or random ones of a large kind."""
    sizes = kind.sizes(level)
    space = math.prod(sizes)
    draws = _DRAWS_A_PROBLEM * wanted
    numbers = (
        rng.permutation(space)
        if space <= max(draws, _LISTED_WHOLE)
        else rng.integers(space, size=draws)
    )
    for start in range(0, len(numbers), _BLOCK):
        block = np.unravel_index(numbers[start : start + _BLOCK], sizes)
        for values in np.transpose(block).tolist():
            written = kind.write(level, values)
            if written is not None:
                yield Problem(*written, kind.name, level)
