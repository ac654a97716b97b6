"""Logs of other programs than reinforcement learning, told by their columns; `kinds.tsv` lists
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from groupwise.errors import UnreadableRunError
from groupwise.files import table_rows
from groupwise.readers.rows import plain
from groupwise.readers.source import shown, some_of, vocabulary
from groupwise.record.run import RunRecord

# Kind, what the columns must hold, and what else they may: any, none, what supervised training logs
# in all columns or in the others.
_KINDS = tuple(
    (row["kind"], tuple(re.compile(f"^(?:{need})$") for need in row["needs"].split()), row["rest"])
    for row in table_rows("readers/kinds.tsv")
)
_SUPERVISED = frozenset(vocabulary("supervised"))
_EARNED = re.compile(
    r"clip_|kl|completion|rollout|response|reward|score|return|advantage|success|solve|correct"
    r"|pass@|win_rate|(?<!token_)acc(uracy)?(?![a-z])"
)
CLOCK = re.compile(
    r"_?(runtime|timestamp|wall_?time|time|epoch|elapsed(_s|_seconds)?)|.*global_step"
)


def check_kind(record: RunRecord, path: Path) -> None:
    """Raise for the log of another program, which holds no reward; where its columns do not tell
    whose it is, it is let through.
    """
    names, step = list(map(plain, record.metrics())), record.steps["step"]
    kind = kind_of(names, {plain(meaning.column): meaning.quantity for meaning in record.meanings})
    if (
        not kind
        and step[-1] == 0
        and len(step) < record.sources[0].rows
        and any(name.startswith("profiling/") for name in names)
    ):
        kind = "profiling of a run that ended before its first update"
    if kind:
        raise refusal(kind, names, path)


def refusal(kind: str, names: Sequence[str], path: Path) -> UnreadableRunError:
    """Return what is said of the log of another program."""
    some = some_of([name[:40] for name in names if not CLOCK.fullmatch(name)])
    return UnreadableRunError(
        f"expected a log with a reward, got {shown(path)}: no reward in it: it looks like {kind} "
        f"({some}); name the reward with --column reward=NAME"
    )


def kind_of(keys: Iterable[str], quantities: Mapping[str, str]) -> str:
    """Return what the columns of a log look like, given what some of them mean; "" for a log of
    reinforcement learning.
    """
    names = [name for name in keys if not CLOCK.fullmatch(name)]
    for kind, needs, rest in _KINDS:
        held = [[name for name in names if pattern.fullmatch(name)] for pattern in needs]
        others = set(names).difference(*held) if rest == "labelled" else set(names)
        supervised = not any(map(_EARNED.search, others)) and _SUPERVISED.issuperset(
            quantities[name] for name in others & quantities.keys()
        )
        if all(held) and (
            rest == "any"
            or (rest == "none" and len(held[0]) == len(names))
            or (rest != "none" and supervised)
        ):
            return kind
    return ""
