r"""The final answer in a text, and whether it is the right one.

The answer is what the last `\boxed{}` holds, else what follows the last `####`, else what follows the last "answer is", else the last
number. Numbers are compared exactly, other answers as texts and then by math-verify, where that is installed (`math_judge`). No pattern
here backtracks far. What cannot be decided is None and never a silent "wrong".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Literal

AnswerKind = Literal["number", "math"]
SameMathematics = Callable[[str, str], bool | None]

_LONGEST_TEXT = 200_000
_LONGEST_ANSWER = 1_000
_MOST_BOXES = 20
_BOX = re.compile(r"\\(?:boxed|fbox) ?\{")
# A sign right behind a figure is an operation.
_DECIMAL = r"(?:(?<![0-9])[-+])?(?:[0-9]{1,60}(?:\.[0-9]{0,60})?|\.[0-9]{1,60})"
_NUMBER = re.compile(_DECIMAL)
_PLAIN = re.compile(rf"({_DECIMAL})(?:[eE]([-+]?[0-9]{{1,3}}))?")
_POWER_OF_TEN = re.compile(rf"({_DECIMAL})(?:\\times|\\cdot|\*)10\^\{{?([-+]?[0-9]{{1,3}})\}}?")
_RATIO = re.compile(r"([-+]?)([0-9]{1,60})/([0-9]{1,60})")
_FRACTION = re.compile(r"([-+]?)([0-9]{0,60})\\frac(?:\{([0-9]{1,60})\}|([0-9]))(?:\{([0-9]{1,60})\}|([0-9]))")
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])")
_WRITTEN_NUMBER = re.compile(rf"(?:(?<![0-9])[-+])?{_THOUSANDS.pattern}(?:\.[0-9]{{1,60}})?|{_DECIMAL}")
_UNIT = re.compile(r"(?:\\(?:text|mbox|mathrm|textbf)\{[^{}]{0,100}\}(?:\^[0-9])?)")
_DROPPED = ("\\left", "\\right", "\\!", "\\,", "\\;", "\\ ", "\\$", "$", "\\%", "%", "^{\\circ}", "^\\circ", "\\displaystyle")
_PHRASE = re.compile(r"answer(?: is|:| =)", re.IGNORECASE)
# A number with words behind it, which may hold other numbers; "2 and 3" or "3 of 4" is no such thing.
_NUMBER_FIRST = re.compile(
    rf"\\?\$?({_WRITTEN_NUMBER.pattern})(?![0-9])[,;.]?\s+(?:\(|(?!(?:and|or|of|to|by|times|plus|minus|over)\b)(?:a\s+)?[A-Za-z]{{2}})"
)
_AND = re.compile(r"\\(?:text|mbox|mathrm)\{\s*(?:and|or)\s*\}|(?<![A-Za-z])(?:and|or)(?![A-Za-z])")
_SEVERAL = "; "


def extract_answer(text: str) -> str | None:
    r"""Return the final answer of a text."""
    text = text[-_LONGEST_TEXT:]
    boxed = _last_boxed(text)
    if boxed is not None:
        return boxed.strip()
    if "####" in text:
        return text.rsplit("####", 1)[1].strip().split("\n", 1)[0].strip() or None
    said = [match.end() for match in _PHRASE.finditer(text)]
    if said:
        line = text[said[-1] :].lstrip(" :*").split("\n", 1)[0].strip().rstrip(".*").strip()
        if line:
            return _answer_in(line)
    numbers = _WRITTEN_NUMBER.findall(text)
    return numbers[-1] if numbers else None


def normalised(answer: str) -> str:
    r"""Return an answer without what does not change it: spaces, dollar signs, degrees, units in \text, commas of thousands."""
    text = answer.strip()[:_LONGEST_ANSWER]
    for dropped in _DROPPED:
        text = text.replace(dropped, "")
    text = text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    without = _UNIT.sub("", text).strip()
    # A unit is dropped behind something; a word alone is the answer.
    text = without or re.sub(r"\\(?:text|mbox|mathrm|textbf)\{([^{}]{0,100})\}", r"\1", text)
    # Before spaces go: "1, 200" are two numbers. In brackets a comma is between two as well.
    text = text if text[:1] in {"(", "["} and text[-1:] in {")", "]"} else _without_thousands(text)
    return "".join(text.split()).rstrip(".")


def number_of(answer: str) -> Fraction | None:
    r"""Return the number that an answer is."""
    text = normalised(answer)
    if match := _PLAIN.fullmatch(text) or _POWER_OF_TEN.fullmatch(text):
        return Fraction(match[1]) * Fraction(10) ** int(match[2] or 0)
    if match := _RATIO.fullmatch(text):
        return _signed(match[1], 0, match[2], match[3])
    if match := _FRACTION.fullmatch(text):
        return _signed(match[1], int(match[2] or 0), match[3] or match[4], match[5] or match[6])
    return None


def _signed(sign: str, whole: int, above: str, below: str) -> Fraction | None:
    """Return a mixed number."""
    if not int(below):
        return None
    size = whole + Fraction(int(above), int(below))
    return -size if sign == "-" else size


def is_right(
    gold: str, found: str | None, *, kind: AnswerKind = "math", tolerance: float = 0.0, same: SameMathematics | None = None
) -> bool | None:
    """Say whether an answer is the right one."""
    if found is None or not found.strip():
        return False
    if normalised(gold) == normalised(found):
        return True
    right, given = number_of(gold), number_of(found)
    if right is not None and given is None and kind == "number":
        numbers = [match.group() for match in _NUMBER.finditer(_without_thousands(found))]
        given = number_of(numbers[-1]) if numbers else None
    if right is not None and given is not None:
        return _close(right, given, gold, tolerance)
    if kind == "number":
        return bool(_words(gold)) and _words(gold) == _words(found)
    if len(found) > _LONGEST_ANSWER:
        return False
    several = _same_lists(gold, found, tolerance)
    if several is not None or same is None:
        return several
    return same(gold.replace(_SEVERAL, ", "), found)


def joined(answers: Sequence[str]) -> str:
    """Return several answers, all of which are asked for, as one text; no comma is put between them, which thousands have too."""
    return _SEVERAL.join(answers)


def _same_lists(gold: str, found: str, tolerance: float) -> bool | None:
    """Whether two lists of answers are the same, in any order unless in brackets; None where that is not decided by texts and numbers."""
    (bracket, golds), (other, founds) = _listed(gold), _listed(found)
    if len(golds) == len(founds) == 1:
        return None
    values, given = [number_of(part) for part in golds], [number_of(part) for part in founds]
    decided = None not in values and None not in given
    if len(golds) != len(founds):
        return False if decided else None
    if bracket != other:
        return None
    left = list(range(len(founds)))
    for place, part in enumerate(golds):
        right = values[place]
        fitting = [
            number
            for number in (left if not bracket else [place])
            if normalised(part) == normalised(founds[number])
            or (right is not None and (value := given[number]) is not None and _close(right, value, part, tolerance))
        ]
        if not fitting:
            return False if decided else None
        left.remove(fitting[0])
    return True


def _listed(answer: str) -> tuple[str, list[str]]:
    """Return the brackets around a list and its parts; curly ones of a set count as none."""
    text = answer.strip()[:_LONGEST_ANSWER].strip("$ ").replace("\\left", "").replace("\\right", "").replace("\\!", "")
    bracket = ""
    if text[:1] in {"(", "["} and text[-1:] in {")", "]"}:
        bracket, text = text[0] + text[-1], text[1:-1]
    elif text.startswith("\\{") and text.endswith("\\}"):
        text = text[2:-2]
    text = _AND.sub(" ; ", text if bracket else _without_thousands(text))
    parts, depth = [""], 0
    for symbol in text:
        depth += (symbol in "([{") - (symbol in ")]}")
        if symbol in ",;" and depth <= 0:
            parts.append("")
        else:
            parts[-1] += symbol
    return bracket, [part.strip() for part in parts if part.strip()] or [text]


def _answer_in(line: str) -> str:
    """Return the number that a line begins with where words follow it, else the line."""
    first = _NUMBER_FIRST.match(line)
    return first[1].rstrip(".") if first else line


def _without_thousands(text: str) -> str:
    """Return the beginning of a text without commas of thousands; spaces stay, so that numbers stay apart."""
    return _THOUSANDS.sub(lambda match: match.group().replace(",", ""), text[:_LONGEST_ANSWER])


def _close(right: Fraction, given: Fraction, gold: str, tolerance: float) -> bool:
    """Say whether two numbers are the same, within a tolerance or the last place of a rounded one."""
    decimals = len(normalised(gold).partition(".")[2]) if "." in gold and "e" not in gold.lower() else 0
    rounding = Fraction(1, 2 * 10**decimals) if decimals >= 6 else Fraction(0)
    return abs(right - given) <= max(rounding, abs(right) * Fraction(tolerance))


def _words(text: str) -> str:
    """Return the letters and figures of a text, in lower case."""
    return "".join(symbol for symbol in text.casefold() if symbol.isalnum() or symbol == ":")


def _last_boxed(text: str) -> str | None:
    r"""Return what the last closed \boxed{} holds; of many unclosed ones only the last few are looked at."""
    for match in [*_BOX.finditer(text)][: -_MOST_BOXES - 1 : -1]:
        content = _balanced(text, match.end())
        if content is not None:
            return content
    return None


def _balanced(text: str, start: int) -> str | None:
    """Return the text from a place up to the brace that closes it."""
    depth = 1
    for place in range(start, min(len(text), start + 10 * _LONGEST_ANSWER)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return text[start:place]
    return None
