"""Which setting separates the runs that learnt from those that did not, and how often luck would.

A separation is no cause: what differs along with the setting, and luck, separate runs as well.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import accumulate

from groupwise.diagnostics.judgement import Learning, State
from groupwise.plain import Plain, frozen
from groupwise.wording import clean, count, share

_FEWEST = 2  # runs on each side
_MOST_LUCK = 0.5  # what luck would do more often is not reported
_MOST_NAMED, _MOST_WORDS = 3, 64  # values in a sentence, and of a setting of words
_FAILED = (State.FAILING, State.FAILED, Learning.FLAT, Learning.FALLING)


@frozen
class Separation(Plain):
    """A setting of which no run that learnt shares a value with one that did not."""

    MORE = ("sentence",)

    setting: str
    learnt: int  # runs
    learnt_with: tuple[str, ...]  # values, numbers in order
    not_learnt: int
    not_learnt_with: tuple[str, ...]
    settings_tried: int  # in which the runs differ
    chance: float  # that luck alone separates the runs by one of these; an upper bound
    also: tuple[str, ...]  # other settings that separate them

    @property
    def sentence(self) -> str:
        """The counts and the chance."""
        others = f" (so do {_listed(self.also)})" if self.also else ""
        return (
            f"The {self.learnt} runs with {self.setting} {_listed(self.learnt_with)} learnt, the "
            f"{self.not_learnt} with {_listed(self.not_learnt_with)} did not{others}; by luck "
            f"alone with a chance of at most {share(self.chance)}, "
            f"{count(self.settings_tried, 'setting')} tried."
        )


def outcome(state: str, learning: str) -> bool | None:
    """Whether a run learnt, by its judgement; None where that cannot be told."""
    if state in _FAILED or learning in _FAILED:
        return False
    return learning not in ("", Learning.UNKNOWN) or None


def separation(
    settings: Sequence[Mapping[str, str]], learnt: Sequence[bool | None]
) -> Separation | None:
    """Return the setting that separates the runs that learnt from the others with the least
    chance of luck; None with fewer than two on a side, or where luck does it as often as not.
    """
    successes, failures = learnt.count(True), learnt.count(False)
    if min(successes, failures) < _FEWEST:
        return None
    runs = [
        (values, success)
        for values, success in zip(settings, learnt, strict=True)
        if success is not None
    ]
    shared = sorted(set.intersection(*({*values} for values, _ in runs)))
    tried = [name for name in shared if len({values[name] for values, _ in runs}) > 1]
    separations = []
    for name in tried:
        results = [(values[name], success) for values, success in runs]
        order, numeric = _ordered({value for value, _ in results})
        seen = {*results}
        won = tuple(value for value in order if (value, True) in seen)
        lost = tuple(value for value in order if (value, False) in seen)
        apart = not {*won} & {*lost} and len(order) <= _MOST_WORDS
        if tuple(order) in (won + lost, lost + won) if numeric else apart:
            runs_of = Counter(value for value, _ in results)
            ways = _splits([runs_of[value] for value in order], successes, numeric=numeric)
            chance = len(tried) * ways / math.comb(len(runs), successes)
            separations.append((chance, name, won, lost))
    if not separations or min(separations)[0] > _MOST_LUCK:
        return None
    chance, best, won, lost = min(separations)
    also = tuple(name for _, name, _, _ in separations if name != best)
    return Separation(best, successes, won, failures, lost, len(tried), chance, also)


def _ordered(values: set[str]) -> tuple[list[str], bool]:
    """Return numbers in their order, or words, and whether they are numbers."""
    with suppress(ValueError):
        return sorted(values, key=float), True
    return sorted(values), False


def _splits(sizes: Sequence[int], successes: int, *, numeric: bool) -> int:
    """Return in how many ways the runs of some values, which lie below or above a limit where
    they are numbers, are so many.
    """
    if numeric:
        return sum(successes in accumulate(way) for way in (sizes, sizes[::-1]))
    ways = [1] + [0] * successes
    for size in sizes:
        for total in range(successes, size - 1, -1):
            ways[total] += ways[total - size]
    return ways[successes]


def _listed(texts: Sequence[str]) -> str:
    named = ", ".join(clean(text, longest=40) for text in texts[:_MOST_NAMED])
    more = len(texts) - _MOST_NAMED
    return f"{named} and {more} more" if more > 0 else named
