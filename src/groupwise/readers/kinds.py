"""Logs of other programs than reinforcement learning, told by their columns; `kinds.tsv` lists
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from groupwise.errors import UnreadableRunError
from groupwise.readers.rows import plain
from groupwise.readers.source import shown, some_of, table_beside
from groupwise.record.run import RunRecord

# Kind, what the columns must hold, and what else they may: any, what supervised training logs too,
# or none.
_KINDS = tuple(
    (row["kind"], tuple(re.compile(f"^(?:{need})$") for need in row["needs"].split()), row["rest"])
    for row in table_beside("kinds.tsv")
)
_SUPERVISED = frozenset(
    {
        "loss",
        "eval/loss",
        "learning_rate",
        "gradient_norm",
        "tokens",
        "step_tokens",
        "step_time",
        "epoch",
        "entropy",
        "eval/entropy",
        "router_loss",
    }
)
_EARNED = re.compile(
    r"clip_|kl|completion|rollout|response|reward|score|return|advantage|success|solve|correct|pass@|win_rate|(?<!token_)acc(uracy)?(?![a-z])"
)
_CLOCK = re.compile(r"_?(runtime|timestamp|wall_?time|time|epoch)|.*global_step")


def check_kind(record: RunRecord, path: Path) -> None:
    """Raise for the log of another program, which holds no reward; where its columns do not tell
    whose it is, it is let through.
    """
    names = [name for name in map(plain, record.metrics()) if not _CLOCK.fullmatch(name)]
    kind, step = next(_kinds(record, names), ""), record.steps["step"]
    if (
        not kind
        and step[-1] == 0
        and len(step) < record.sources[0].rows
        and any(name.startswith("profiling/") for name in names)
    ):
        kind = "profiling of a run that ended before its first update"
    if kind:
        some = some_of([name[:40] for name in names])
        raise UnreadableRunError(
            f"expected a log with a reward, got {shown(path)}: no reward in it: it looks like "
            f"{kind} ({some}); name the reward with --column reward=NAME"
        )


def _kinds(record: RunRecord, names: list[str]) -> Iterator[str]:
    """Yield what the columns look like."""
    quantities = {meaning.quantity for meaning in record.meanings}
    supervised = quantities <= _SUPERVISED and not any(map(_EARNED.search, names))
    for kind, needs, rest in _KINDS:
        held = [[name for name in names if pattern.fullmatch(name)] for pattern in needs]
        if all(held) and (
            rest == "any"
            or (rest == "none" and len(held[0]) == len(names))
            or (rest == "supervised" and supervised)
        ):
            yield kind
