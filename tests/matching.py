"""How long a regular expression may try: two ways through one text, and an end that may fail, cost
its length squared or more.

A pattern becomes an automaton of its characters. Two loops that read one word, with a way from the
first to the second that reads it too, are tried in as many ways as the word is long; one loop with
two ways through one word in two to that power.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from re import IGNORECASE, MULTILINE, _constants, _parser  # type: ignore[attr-defined]
from typing import Any

Characters = frozenset[str]
Condition = tuple[Callable[[str, str], bool], ...]  # of the characters on both sides, "" for none
SAMPLE = frozenset("azAZ09_ \t\n\r\0\x1b" + string.punctuation + "é²•")  # and what a pattern names
LARGE = 1000  # a bound that bounds nothing
CATEGORIES: dict[Any, Callable[[str], bool]] = {
    _constants.CATEGORY_DIGIT: str.isdigit,
    _constants.CATEGORY_SPACE: str.isspace,
    _constants.CATEGORY_WORD: lambda character: character.isalnum() or character == "_",
}
NEGATED = {
    _constants.CATEGORY_NOT_DIGIT: _constants.CATEGORY_DIGIT,
    _constants.CATEGORY_NOT_SPACE: _constants.CATEGORY_SPACE,
    _constants.CATEGORY_NOT_WORD: _constants.CATEGORY_WORD,
}
_WORD = CATEGORIES[_constants.CATEGORY_WORD]
_ONE = (_constants.LITERAL, _constants.NOT_LITERAL, _constants.IN, _constants.ANY)
_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)


def read(op: Any, value: Any, sample: Characters, flags: int) -> Characters:
    """The characters of a sample that one item of a pattern takes."""
    if op is _constants.ANY:
        return sample - {"\n"}
    if op is _constants.RANGE:
        return frozenset(letter for letter in sample if value[0] <= ord(letter) <= value[1])
    if op is _constants.CATEGORY:
        wanted = CATEGORIES[NEGATED.get(value, value)]
        return frozenset(letter for letter in sample if wanted(letter) != (value in NEGATED))
    if op is _constants.IN:
        negated = value[0][0] is _constants.NEGATE
        taken = frozenset().union(
            *(read(item[0], item[1], sample, flags) for item in value[negated:])
        )
        return sample - taken if negated else taken
    same = {chr(value)} if not flags & IGNORECASE else {chr(value).lower(), chr(value).upper()}
    return sample - same if op is _constants.NOT_LITERAL else sample & same


def may_fail(_before: str, _after: str) -> bool:
    """What looks farther than one character."""
    return True


class Part:
    """A piece of an automaton: where it may begin and end, and on which conditions it may be
    empty.
    """

    def __init__(
        self,
        empty: Iterable[Condition] = (),
        first: Iterable[tuple[int, Condition]] = (),
        last: Any = None,
    ) -> None:
        self.empty, self.first = list(dict.fromkeys(empty)), list(dict.fromkeys(first))
        self.last = self.first if last is None else list(dict.fromkeys(last))


class Automaton:
    """The characters of a pattern as states, and which may follow which."""

    def __init__(self, pattern: str, flags: int, how: str) -> None:
        tree = _parser.parse(pattern, flags)
        self.flags, self.sample = tree.state.flags, SAMPLE | frozenset(pattern)
        self.takes: list[Characters] = []
        self.edges: dict[tuple[int, int], list[Condition]] = {}
        self.steps: dict[tuple[int, str], dict[str, set[int]]] = {}
        whole = self.sequence(tree)
        ends: Condition = (lambda _, after: not after,) if how == "fullmatch" else ()
        self.ends = [
            (place, condition + ends)
            for place, condition in whole.last
            if may_fail not in condition
        ]
        if how == "search":  # begins anywhere
            start = self.state(self.sample)
            self.link([(start, ())], [(start, ()), *whole.first])
        self.after: dict[int, set[int]] = {place: set() for place in range(len(self.takes))}
        for before, behind in self.edges:
            self.after[before].add(behind)

    def state(self, takes: Characters) -> int:
        self.takes.append(takes)
        return len(self.takes) - 1

    def link(
        self, last: Iterable[tuple[int, Condition]], first: Iterable[tuple[int, Condition]]
    ) -> None:
        for (before, tail), (behind, other) in itertools.product(last, list(first)):
            self.edges.setdefault((before, behind), []).append(tail + other)

    def joined(self, part: Part, other: Part) -> Part:
        self.link(part.last, other.first)
        return Part(
            [a + b for a, b in itertools.product(part.empty, other.empty)],
            part.first
            + [(place, a + b) for a, (place, b) in itertools.product(part.empty, other.first)],
            other.last
            + [(place, a + b) for b, (place, a) in itertools.product(other.empty, part.last)],
        )

    def sequence(self, items: Iterable[Any]) -> Part:
        return reduce(self.joined, (self.item(op, value) for op, value in items), Part([()]))

    def either(self, parts: Iterable[Part]) -> Part:
        parts_before = list(parts)
        return Part(
            *(
                [letter for part in parts_before for letter in getattr(part, side)]
                for side in ("empty", "first", "last")
            )
        )

    def item(self, op: Any, value: Any) -> Part:
        if op in _ONE:
            return Part((), [(self.state(read(op, value, self.sample, self.flags)), ())])
        if op is _constants.SUBPATTERN:
            return self.sequence(value[-1])
        if op is _constants.BRANCH:
            return self.either(map(self.sequence, value[1]))
        if op in _REPEATS:
            return self.repeated(op, *value)
        if op is _constants.AT:
            return Part([(self.at(value),)])
        if op in (_constants.ASSERT, _constants.ASSERT_NOT):
            return self.looked(value[0], value[1], op is _constants.ASSERT)
        raise NotImplementedError(op)

    def repeated(self, op: Any, least: int, most: int, body: Any) -> Part:
        if most < LARGE:
            copies = [self.sequence(body) for _ in range(min(most, 2))]
            parts = [
                part if at < least else Part([*part.empty, ()], part.first, part.last)
                for at, part in enumerate(copies)
            ]
            return reduce(self.joined, parts, Part([()]))
        part = self.sequence(body)
        self.link(part.last, part.first)
        last = part.last
        if op is _constants.POSSESSIVE_REPEAT:
            ((inner, kind),) = body
            taken = read(inner, kind, self.sample, self.flags)
            last = [
                (place, (*condition, lambda _, after: after not in taken))
                for place, condition in last
            ]
        return Part([*part.empty, ()] if least == 0 else part.empty, part.first, last)

    def looked(self, direction: int, body: Any, wanted: bool) -> Part:
        """What looks at one character is a condition; what looks farther may fail, and reads
        what it reads.
        """
        if len(body) == 1 and body[0][0] in _ONE:
            taken = read(body[0][0], body[0][1], self.sample, self.flags)
            if direction < 0:
                return Part([(lambda before, _: (before in taken) == wanted,)])
            return Part([(lambda _, after: (after in taken) == wanted,)])
        return Part([(may_fail,)], [] if direction < 0 else self.sequence(body).first, [])

    def at(self, place: Any) -> Callable[[str, str], bool]:
        lines = self.flags & MULTILINE
        if place in (_constants.AT_BEGINNING, _constants.AT_BEGINNING_STRING):
            return lambda before, _: not before or (bool(lines) and before == "\n")
        if place in (_constants.AT_END, _constants.AT_END_STRING):
            return lambda _, after: not after or after == "\n"
        turned = place is _constants.AT_BOUNDARY
        return lambda before, after: (
            ((bool(before) and _WORD(before)) != (bool(after) and _WORD(after))) == turned
        )

    def kinds(self) -> list[str]:
        """One character of each kind that the pattern tells apart."""
        kinds: dict[object, str] = {}
        conditions = {c for cs in self.edges.values() for condition in cs for c in condition}
        for character in sorted(self.sample):
            seen = tuple(character in takes for takes in self.takes)
            sides = tuple(c(character, "") for c in conditions)
            other = tuple(c("", character) for c in conditions)
            kinds.setdefault((seen, sides, other, _WORD(character), character == "\n"), character)
        return list(kinds.values())

    def reached(self, place: int) -> set[int]:
        seen: set[int] = set()
        waiting = [place]
        while waiting:
            for behind in self.after[waiting.pop()] - seen:
                seen.add(behind)
                waiting.append(behind)
        return seen

    def next(self, place: int, character: str, kinds: list[str]) -> dict[str, set[int]]:
        """Where a reader may be behind the character that it reads at a place, by the one that follows."""
        if (place, character) not in self.steps:
            ways: dict[str, set[int]] = {}
            for behind, other in itertools.product(self.after[place], kinds):
                if other in self.takes[behind] and any(
                    all(c(character, other) for c in cs) for cs in self.edges[place, behind]
                ):
                    ways.setdefault(other, set()).add(behind)
            self.steps[place, character] = ways
        return self.steps[place, character]

    def moves(
        self, places: tuple[int, ...], character: str, kinds: list[str], within: list[set[int]]
    ) -> Iterator[tuple[tuple[int, ...], str]]:
        """Where some readers of one text may be behind its next character."""
        ways = [self.next(place, character, kinds) for place in places]
        for other in min(ways, key=len):
            if all(other in way for way in ways):
                choices = [way[other] & allowed for way, allowed in zip(ways, within, strict=True)]
                yield from ((pick, other) for pick in itertools.product(*choices))

    def fault(self) -> str:
        """What of it is tried in too many ways, or nothing."""
        reached = {place: self.reached(place) for place in self.after}
        loops = {
            place: {other for other in reached[place] if place in reached[other]}
            for place in self.after
            if place in reached[place]
        }
        kinds = self.kinds()
        for place, circle in loops.items():
            for other in circle:
                if other in self.after[place] and len(self.edges[place, other]) > 1:
                    return "a repeat within a repeat reads the same text"
            if pair := self.meets(
                (place, place), (place, place), kinds, [circle, circle], apart=True
            ):
                return f"a repeat reads {pair!r} in two ways"
        for place, other in itertools.permutations(loops, 2):
            if other not in reached[place] or place in reached[other]:
                continue
            between = {at for at in reached[place] if other in reached[at]} | {other, place}
            within = [loops[place], between, loops[other]]
            if pair := self.meets(
                (place, place, other), (place, other, other), kinds, within, fails=True
            ):
                return f"two repeats one behind the other read {pair!r}"
        return ""

    def accepts(self, place: int, character: str, other: str) -> bool:
        """Whether a match may end between two characters."""
        return any(
            place == end and all(c(character, other) for c in condition)
            for end, condition in self.ends
        )

    def meets(
        self,
        start: tuple[int, ...],
        end: tuple[int, ...],
        kinds: list[str],
        within: list[set[int]],
        *,
        apart: bool = False,
        fails: bool = False,
    ) -> str:
        """What readers of one text read who come from some places to others, or nothing; `apart`:
        by different ones; `fails`: none ends.
        """
        seen = set()
        waiting = [
            (start, kind, False, kind)
            for kind in kinds
            if all(kind in self.takes[place] for place in start)
        ]
        while waiting:
            places, before, parted, first = waiting.pop()
            for behind, character in self.moves(places, before, kinds, within):
                if fails and self.accepts(places[-1], before, character):
                    continue
                now = (behind, character, apart and (parted or len(set(behind)) > 1))
                if behind == end and now[2] == apart:
                    return first
                if now not in seen:
                    seen.add(now)
                    waiting.append((*now, first))
        return ""


def fault(pattern: str | bytes, flags: int = 0, how: str = "search") -> str:
    """What of a pattern takes more than time in proportion to a text, or nothing."""
    return Automaton(
        pattern if isinstance(pattern, str) else pattern.decode("latin-1"), flags & ~256, how
    ).fault()
