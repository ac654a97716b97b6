"""Which printed dictionaries are rows of a trainer: what stands around them, and which keys they have.

A completion that is printed may hold a dictionary too. Nothing is evaluated here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from groupwise.readers.source import ESCAPE

# What a terminal, a launcher or a logger puts around a row: no word of it is a completion's.
_AROUND = re.compile(
    r"[^|\n]{0,200}?\d{1,3}%\|[^|\n]{0,200}\|\s*\d{1,9}/\d{1,9} \[[^\]\n]{0,200}\]?"  # a progress bar and its title
    r"|\|?\s*\d{1,9}/\d{1,9} \[[^\]\n]{0,200}\]?|\d{1,9}it \[[^\]\n]{0,200}\]"
    r"|\([\w.:<>\- ]{1,80}pid=\d+[^()\n]{0,80}\)"  # Ray
    r"|\[(?:rank|default|node|host|gpu|repeated )?[^\[\]\n]{0,60}?\d[^\[\]\n]{0,60}\]|\[(?:INFO|WARNING|DEBUG)\b[^\[\]\n]{0,80}\]"
    r"|\d{4}[-/]\d\d[-/]\d\d(?:[T ]?\d\d:\d\d:\d\d)?(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?|\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?"
    r"|\b(?:TRACE|DEBUG|INFO|SUCCESS|WARNING|ERROR|CRITICAL|stdout|stderr)\b"
    r"|[\w./<>\-]{1,200}\.py:\d{1,6}|\b[\w.<>\-]{1,200}:[\w.<>\-]{1,100}:\d{1,6}|\b\w{1,60}(?:\.\w{1,60}){1,10}\b"
    r"|(?:\bEvaluation completed in [\d.]{1,20}s|\b(?:[Gg]lobal[ _])?[Ss]tep[ =:]{0,2}\d{1,12}|\beval_metrics\b)"
    r"|^\s*\d{1,5}:\s"  # the rank in front of a line, as srun puts it
)
_KEYS = re.compile(
    r"(?:train/|eval[_/])?(?:loss|policy_loss|grad_norm|learning_rate|epoch|reward|reward_std|kl|entropy|num_tokens|step_time|return"
    r"|frac_reward_zero_std|completion_length|response_length|total_length|actor_lr|group_reward_std|(?:completions|rewards|clip_ratio)/.+)"
)
_PAIR = re.compile(r"'([\w /.\-]{1,80})': ?'?-?\d")
_HEAD, _TAIL = re.compile(r"\{'(?:reward|loss)\b|\{'[\w /.\-]{1,80}': ?'?-?\d"), re.compile(r"\d'?\}\s*$")
_ZEROS = str.maketrans("123456789", "000000000")
_LONGEST_PREFIX = 1000
_ENOUGH = 3
_CORE_SHARE = 0.5
_LEAST_CORE = 4


def stands_alone(before: str, after: str) -> bool:
    """Return whether nothing but what loggers and terminals add stands around a row on its line."""
    if "%|" in before:  # what is in front of a bar on its line was printed over by it
        before = before[before.rfind("]") + 1 :] if before.rfind("]") > before.rfind("%|") else before
    if "%|" in after:
        after = after[: after.find("%|")].rstrip("0123456789 ")
    return all(not part or part.isspace() or not _words(part) for part in (before, after))


def _words(text: str) -> bool:
    """Return whether a text holds letters or digits besides what loggers and terminals add."""
    return len(text) > _LONGEST_PREFIX or _holds_words(text.translate(_ZEROS))


@lru_cache(maxsize=4096)  # the same for thousands of rows, but for the digits
def _holds_words(text: str) -> bool:
    """Return whether a short text does, whose digits are zeros."""
    plain = ESCAPE.sub("", text) if "\x1b" in text else text
    return any(character.isalnum() for character in _AROUND.sub(" ", plain))


def is_trainers(keys: Iterable[object]) -> bool:
    """Return whether a row's keys are a trainer's: several that trainers print together."""
    return sum(_KEYS.fullmatch(str(key)) is not None for key in keys) >= _ENOUGH


def is_cut_row(line: str) -> bool:
    """Return whether a line without a whole row is what a row leaves that was cut off at either end."""
    plain = ESCAPE.sub("", line) if "\x1b" in line else line
    head = _HEAD.search(plain)
    if head is not None:
        return not _words(plain[: head.start()]) and ("'loss'" in plain or "'reward'" in plain)
    return _TAIL.search(plain) is not None and sum(_KEYS.fullmatch(key) is not None for key in _PAIR.findall(plain)) > 1


def strangers(shapes: Sequence[frozenset[str]]) -> set[int]:
    """Return which rows have less than half as many keys as most rows of the training share."""
    trains = Counter(shape for shape in shapes if not _evaluates(shape))
    total = sum(trains.values())
    keys: Counter[str] = Counter()
    for shape, rows in trains.items():
        keys.update(dict.fromkeys(shape, rows))
    core = {key for key, rows in keys.items() if rows > _CORE_SHARE * total}
    if len(core) < _LEAST_CORE:
        return set()
    odd = {shape for shape in trains if 2 * len(shape) < len(core)}
    return {row for row, shape in enumerate(shapes) if shape in odd} if odd else set()


def _evaluates(shape: frozenset[str]) -> bool:
    """Return whether a row is of an evaluation."""
    return any(key.startswith("eval") for key in shape)
