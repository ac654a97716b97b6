"""Problems: a prompt with its one right answer, and the kinds of them, each a rule that makes a problem of a few integers.

A kind says how many values each of its integers has, so that a small kind can be listed whole and a large one drawn without repetition.
Numbers are written with leading zeros: operands with as many digits as the level, answers with as many as the largest needs. It splits
and judges nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Values = Sequence[int]


@dataclass(frozen=True, slots=True)
class Problem:
    """One prompt with its one right answer."""

    prompt: str  # what the policy reads
    answer: str  # what it has to write before END
    family: str  # name of the kind
    level: int  # difficulty; digits of an operand, or symbols to work on


@dataclass(frozen=True, slots=True)
class Kind:
    """A rule that makes problems."""

    name: str  # of the family of its problems
    sizes: Callable[[int], tuple[int, ...]]  # level -> how many values each integer has
    # level and integers -> prompt and answer; None where these integers make no problem
    write: Callable[[int, Values], tuple[str, str] | None]

    def problem(self, level: int, values: Values) -> Problem | None:
        """Return the problem of some integers."""
        written = self.write(level, values)
        return None if written is None else Problem(*written, self.name, level)


def number(value: int, width: int) -> str:
    """Return an integer with leading zeros, its sign in front."""
    return f"{'-' if value < 0 else ''}{abs(value):0{width}d}"


def _operands(count: int) -> Callable[[int], tuple[int, ...]]:
    """Sizes of a kind of so many operands of `level` digits."""
    return lambda level: (10**level,) * count


def _signs(operands: int) -> Callable[[int], tuple[int, ...]]:
    """Sizes of a kind of so many operands and a sign between each two."""
    return lambda level: (10**level,) * operands + (2,) * (operands - 1)


def _sum(level: int, values: Values) -> tuple[str, str]:
    """Write a + b, or a longer sum."""
    digits = len(str(len(values) * (10**level - 1)))
    return "+".join(number(value, level) for value in values) + "=", number(sum(values), digits)


def _modular(level: int, values: Values) -> tuple[str, str]:
    """Write a + b modulo 10 to the level; the sign % in place of = says so."""
    first, second = values
    return f"{number(first, level)}+{number(second, level)}%", number((first + second) % 10**level, level)


def _difference(level: int, values: Values) -> tuple[str, str]:
    """Write a - b."""
    first, second = values
    return f"{number(first, level)}-{number(second, level)}=", number(first - second, level)


def _steps(level: int, values: Values) -> tuple[str, str]:
    """Write a chain of sums and differences from left to right."""
    count = (len(values) + 1) // 2
    text, total = number(values[0], level), values[0]
    for operand, minus in zip(values[1:count], values[count:], strict=True):
        text += "+-"[minus] + number(operand, level)
        total += -operand if minus else operand
    return text + "=", number(total, len(str(count * (10**level - 1))))


def _product(level: int, values: Values) -> tuple[str, str]:
    """Write a * b."""
    first, second = values
    return f"{number(first, level)}*{number(second, level)}=", number(first * second, 2 * level)


def _quotient(level: int, values: Values) -> tuple[str, str]:
    """Write a / b, b of one digit and not zero; what remains is dropped."""
    first, second = values[0], values[1] + 1
    return f"{number(first, level)}/{second}=", number(first // second, level)


def _parentheses(level: int, values: Values) -> tuple[str, str]:
    """Write a, b and c with two signs and one pair of parentheses, around the first two or the last two."""
    (a, b, c), (first, second), late = values[:3], values[3:5], values[5]
    texts = [number(value, level) for value in (a, b, c)]
    one, two = "+-"[first], "+-"[second]
    sign = {"+": 1, "-": -1}
    if late:
        prompt, total = f"{texts[0]}{one}({texts[1]}{two}{texts[2]})=", a + sign[one] * (b + sign[two] * c)
    else:
        prompt, total = f"({texts[0]}{one}{texts[1]}){two}{texts[2]}=", a + sign[one] * b + sign[two] * c
    return prompt, number(total, len(str(3 * (10**level - 1))))


ADDITION = Kind("addition", _operands(2), _sum)
MODULAR_ADDITION = Kind("modular_addition", _operands(2), _modular)
LONG_ADDITION = Kind("long_addition", _operands(3), _sum)
SUBTRACTION = Kind("subtraction", _operands(2), _difference)
TWO_STEP = Kind("two_step", _signs(3), _steps)
THREE_STEP = Kind("three_step", _signs(4), _steps)
MULTIPLICATION = Kind("multiplication", _operands(2), _product)
DIVISION = Kind("division", lambda level: (10**level, 9), _quotient)
PARENTHESES = Kind("parentheses", lambda level: (10**level,) * 3 + (2, 2, 2), _parentheses)


def _digits(level: int) -> tuple[int, ...]:
    """Sizes of a row of digits."""
    return (10,) * level


def _sorting(
    name: str, *, sign: str = "<", sizes: Callable[[int], tuple[int, ...]] = _digits, change: Callable[[Values], Values] = tuple
) -> Kind:
    """Return a kind of sorting: `change` makes the digits that are shown of those drawn."""

    def write(_level: int, values: Values) -> tuple[str, str]:
        shown = change(values)
        return "".join(map(str, shown)) + sign, "".join(map(str, sorted(shown, reverse=sign == ">")))

    return Kind(name, sizes, write)


SORTING = _sorting("sorting")
SORTING_DESCENDING = _sorting("sorting_descending", sign=">")
SORTING_SORTED = _sorting("sorting_sorted", change=sorted)
SORTING_REVERSED = _sorting("sorting_reversed", change=lambda values: sorted(values, reverse=True))
SORTING_LOW = _sorting("sorting_low", sizes=lambda level: (5,) * level)
SORTING_HIGH = _sorting("sorting_high", sizes=lambda level: (5,) * level, change=lambda values: [value + 5 for value in values])
SORTING_REPEATS = _sorting("sorting_repeats", change=lambda values: [values[place // 2] for place in range(len(values))])

_OPENING, _CLOSING = "([{", ")]}"


def _closing(text: str) -> str | None:
    """Return what closes the open brackets of a text, or None where a bracket closes what is not open."""
    open_: list[str] = []
    for symbol in text:
        if symbol in _OPENING:
            open_.append(_CLOSING[_OPENING.index(symbol)])
        elif not open_ or open_.pop() != symbol:
            return None
    return "".join(reversed(open_))


def _brackets(name: str, opening: str, *, change: Callable[[str], str] = str, closes: bool = True) -> Kind:
    """Return a kind of brackets to close: one value a symbol, the last of them closes what was opened last, where something is open."""

    def write(_level: int, values: Values) -> tuple[str, str] | None:
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

    return Kind(name, lambda level: (len(opening) + closes,) * level, write)


def _pair_first(text: str) -> str:
    """Close the first opening bracket at once."""
    return text[0] + _CLOSING[_OPENING.index(text[0])] + text[2:]


BRACKETS = _brackets("brackets", "([{")
BRACKETS_ROUND = _brackets("brackets_round", "(")
BRACKETS_SQUARE = _brackets("brackets_square", "[")
BRACKETS_TWO_KINDS = _brackets("brackets_two_kinds", "({")
BRACKETS_NESTED = _brackets("brackets_nested", "([{", closes=False)
BRACKETS_PAIR = _brackets("brackets_pair", "([{", change=_pair_first, closes=False)
