"""Whether a replay's intervals hold what is met on logged groups that it was not shown, and what
the policy's own movement adds.

    python lab/experiments/replay/held_out.py [--data ../shared/data/rollouts] [--repeats N]

Half of a log's prompts are shown and the other half is met. In the paired runs a small transformer
trains with and without dynamic sampling.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common.py
from common import Rows, arguments, print_table, results_of

from groupwise import open_run
from groupwise.analysis.rollouts import named_outcomes
from groupwise.arrays import Float
from groupwise.errors import InsufficientDataError
from groupwise.estimators.replay import Choice, LoggedGroups, Replay, replay_groups
from groupwise.intervals import Interval
from groupwise.parsing import JsonObject
from groupwise_lab.trainer import grpo
from groupwise_lab.trainer.policy import Policy, Sampled, policy_size
from groupwise_lab.trainer.settings import TrainSettings
from groupwise_lab.trainer.tasks import make_task
from groupwise_lab.trainer.warm_up import warm_up

SPARING = (Choice.SOLVED, Choice.FLAT, Choice.CONFORMAL)  # of rollouts


def main() -> None:
    """Print the tables, and write them beside this file."""
    options = arguments(__doc__, data="", repeats=100, updates=150)
    if options.data:
        _written("held_out_real", _tally(_real(Path(options.data), options.repeats)))
    _written("drift", [_pair(seed, options.updates) for seed in range(3)])


def _written(name: str, rows: Rows) -> None:
    results_of(__file__).write(name, rows, 3)
    print_table(
        name,
        list(rows[0]),
        [
            [f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row.values()]
            for row in rows
        ],
    )


Prediction = tuple[str, str, Interval, float]  # source, quantity, what was foretold, what was met


def _tally(comparisons: Iterator[Prediction]) -> Rows:
    """How often each interval held what was met."""
    table: dict[tuple[str, str], list[tuple[Interval, float]]] = {}
    for source, quantity, interval, met in comparisons:
        table.setdefault((source, quantity), []).append((interval, met))
    rows: Rows = [
        {
            "source": source,
            "quantity": quantity,
            "comparisons": len(pairs),
            "held": float(np.mean([interval.covers(met) for interval, met in pairs])),
            "foretold": float(np.mean([interval.value for interval, _ in pairs])),
            "met": float(np.mean([met for _, met in pairs])),
            "width": float(np.mean([interval.width for interval, _ in pairs])),
        }
        for (source, quantity), pairs in table.items()
    ]
    return rows


def _real(folder: Path, repeats: int) -> Iterator[Prediction]:
    """Show half of the prompts of each log, and meet the others."""
    logs = {path.name.split(".")[0]: _logged(path) for path in sorted(folder.glob("*.slim.jsonl"))}
    logs |= {path.stem: _counted(path) for path in sorted(folder.glob("*.csv"))}
    for name, log_NK in logs.items():
        for repeat in range(repeats):
            rng = np.random.default_rng(repeat)
            shown = (rng.permutation(log_NK[:, 3].max().astype(int) + 1) % 2 == 0)[
                log_NK[:, 3].astype(int)
            ]
            with suppress(InsufficientDataError):  # none live, or too few rollouts a group
                first, second = (_replayed(log_NK[half]) for half in (shown, ~shown))
                yield from _compared(name, first, second)
                size = second.group_size
                half_NK = log_NK[shown][np.arange(shown.sum()) % size < size // 2]
                small = {row.group_size: row for row in _replayed(half_NK).choices}
                yield name, f"live, from half of G = {size}", small[size].live, second.live.value


def _replayed(log_NK: Float) -> Replay:
    reward, group, step, prompt = log_NK.T
    return replay_groups(LoggedGroups.of(reward, group, step, prompt_N=prompt))


def _compared(name: str, shown: Replay, met: Replay) -> Iterator[Prediction]:
    yield name, "groups a live group", shown.dynamic.drawn, met.dynamic.drawn.value
    others = {(row.choice, row.group_size): row for row in met.choices}
    for row in shown.choices:
        other, what = others.get((row.choice, row.group_size)), row.choice.value
        if other is None:
            continue
        if row.choice in SPARING:
            yield name, f"rollouts, {what}", row.rollouts, other.rollouts.value
        if row.group_size is None or row.group_size <= met.group_size:
            yield name, f"live, {row.group_size or what}", row.live, other.live.value


def _logged(path: Path) -> Float:
    """Reward, group, step and prompt of each rollout."""
    outcomes = named_outcomes(open_run(path))
    assert outcomes is not None
    group = pl.struct("step", "prompt_id").rank("dense")
    prompt = group if outcomes["prompt"].null_count() else pl.col("prompt").rank("dense")
    columns = pl.col("outcome"), group.alias("group"), pl.col("step"), prompt.alias("prompt") - 1
    return outcomes.select(columns).to_numpy().astype(np.float64)


def _counted(path: Path) -> Float:
    """The same of a table of right rollouts a prompt: one step, in random order."""
    table = pl.read_csv(path)
    rows = [
        [float(place < row["n_correct"]), number, 0, number]
        for number, row in enumerate(table.iter_rows(named=True))
        for place in np.random.default_rng(number).permutation(row["n_samples"])
    ]
    return np.array(rows)


class Dynamic(grpo.TrainingRun):
    """A run whose batches are filled with live groups alone."""

    groups: int = 0  # drawn

    def _drawn_problems(self, number: int, count: int) -> Any:
        size, kept, parts = self.settings.group_size, [], []
        self.one_pass = False
        while sum(map(len, kept)) < count:
            again = 1000 * number + len(kept)
            problem_P = super()._drawn_problems(again, count)
            problems = [self.task.train[place] for place in problem_P]
            prompt_PL = self.actor.prompt_tokens(self.task, problems)
            sampled, _ = super()._drawn(prompt_PL, size, again)
            reward_PG = self._judged(problems, problem_P, sampled, number).reward_N.reshape(
                count, size
            )
            live = np.flatnonzero(np.ptp(reward_PG, axis=1) > 0)
            needed = count - sum(map(len, kept))
            self.groups += count if len(live) < needed else int(live[needed - 1]) + 1
            kept.append(problem_P[live])
            rows = torch.as_tensor((live[:, None] * size + np.arange(size)).ravel())
            parts.append([getattr(sampled, name)[rows] for name in grpo.SAMPLED])
        self.kept = Sampled(*(torch.cat(part)[: count * size] for part in zip(*parts, strict=True)))
        return np.concatenate(kept)[:count]

    def _drawn(self, *_: Any) -> Any:
        return self.kept, None


def _pair(seed: int, updates: int) -> JsonObject:
    """Train with and without dynamic sampling from one start, and say what the log foretold."""
    settings = TrainSettings(
        steps=updates,
        group_size=8,
        rollouts_per_step=128,
        seed=seed,
        evaluate_every=updates,
        rollouts_every=1,
    )
    row: JsonObject = {"seed": seed, "updates": updates}
    cache = Path(tempfile.mkdtemp())
    for name, kind in (("plain", grpo.TrainingRun), ("dynamic", Dynamic)):
        task = make_task("modular_addition", level=2)
        policy = Policy(policy_size("tiny"), vocabulary_size=len(task.vocabulary), seed=seed)
        warm_up(policy, task, accuracy=0.2, seed=seed, cache=cache)
        run = kind(policy, task, settings, None)
        rows: list[list[float]] = []
        names: dict[str, int] = {}
        for _ in range(updates):
            logged, rollouts = run.advance()
            for rollout in rollouts or ():
                group = 1000 * run.step + rollout["prompt_id"]
                prompt = names.setdefault(rollout["prompt"], len(names))
                rows.append([rollout["reward"], group, run.step, prompt])
        row[f"{name}_held_out"] = logged.get("eval/reward")
        if name == "plain":
            foretold = _replayed(np.array(rows, dtype=float)).dynamic.drawn
            row |= {"foretold": foretold.value, "low": foretold.low, "high": foretold.high}
        else:
            row["met"] = run.groups / updates / settings.prompts_per_step
    row["drift"] = row["met"] / row["foretold"] - 1
    return row


if __name__ == "__main__":
    main()
