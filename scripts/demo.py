"""A policy learns to add while you watch, and groupwise says what it sees: `make demo`, from top to
bottom.

    python scripts/demo.py [--folder build/demo] [--page groupwise-report.html] [--steps 400]

trains as `groupwise-lab train modular_addition` does, stops at 40 % for a forecast, goes on, sets
the forecast against what came, and then types three commands: components, plan, report, of which it
shows the first lines. It needs the extra `hf` of the laboratory and nothing else. An earlier run in
FOLDER is replaced; the warmed-up policy there is used again. It prints at most 40 lines.
"""

from __future__ import annotations

import argparse
import io
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # small matrices gain nothing from threads that wait for each other
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

TASK, LEVEL, SIZE, START = (
    "modular_addition",
    2,
    "small",
    0.2,
)  # as in `groupwise-lab train modular_addition`
SHARE, WINDOW = (
    0.4,
    20,
)  # part of the run that the forecast sees; updates that are averaged to be compared with it
BARS = "▁▂▃▄▅▆▇█"
Show = Callable[[str, int, int], None]


def main() -> None:
    """Train, forecast, train on, compare, and ask what to change."""
    asked = options()
    began = time.perf_counter(), time.process_time()
    run, warm, cut = asked.folder / "addition", asked.folder / "warm-up", round(SHARE * asked.steps)
    say(
        "A transformer of 0.1 million parameters learns addition modulo 100 by GRPO, 64 prompts "
        "with 8 rollouts an update."
    )
    say(f"By hand: groupwise-lab train {TASK} -o {run} --steps {asked.steps}")
    record = learn(run, warm, cut, asked.steps, seen=[])

    say(
        f"\nStep {cut}, {SHARE:.0%} of the way. What is to come? By hand: groupwise forecast {run} "
        f"--until {cut}"
    )
    at = [round(cut + part * (asked.steps - cut) / 3) for part in (1, 2, 3)]
    expected = ahead(record, at)

    record = learn(run, warm, asked.steps, asked.steps, seen=record.steps["reward"].to_list())
    compare(record, at, expected)

    say(
        "\nHow many rollouts a prompt? The variance of the run's own gradient at its last "
        "checkpoint, and what follows from it:"
    )
    ask(2, "components", run, "--model", run / "checkpoints" / f"checkpoint-{asked.steps}")
    ask(2, "plan", run)
    say("\nHow does it stand, and everything on one page that opens with that:")
    ask(3, "report", run, "-o", asked.page, "--force")
    spent = time.perf_counter() - began[0], time.process_time() - began[1]
    say(
        f"\n{spent[0]:.0f} s in all, {spent[1]:.0f} of them of a processor. The report: "
        f"{asked.page.resolve().as_uri()}"
    )


def options() -> argparse.Namespace:
    """--folder, --page and --steps."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("build/demo"),
        help="of the run and the warmed-up policy (build/demo)",
    )
    parser.add_argument(
        "--page",
        type=Path,
        default=Path("groupwise-report.html"),
        help="the report (groupwise-report.html)",
    )
    parser.add_argument("--steps", type=int, default=400, help="updates, at least 60 (400)")
    asked = parser.parse_args()
    if asked.steps < 60:
        parser.error(
            f"expected at least 60 steps, got {asked.steps}: a forecast from 40 % of fewer has "
            "nothing to go by"
        )
    return asked


def learn(run: Path, cache: Path, until: int, steps: int, *, seen: list[float]) -> Any:
    """Warm a new policy up and train it to a step, or go on from the run's last checkpoint where
    rewards have been seen.
    """
    import torch

    torch.set_num_threads(1)
    from groupwise_lab.trainer.grpo import train
    from groupwise_lab.trainer.policy import Policy, policy_size
    from groupwise_lab.trainer.settings import TrainSettings
    from groupwise_lab.trainer.tasks import make_task
    from groupwise_lab.trainer.warm_up import warm_up

    task = make_task(TASK, level=LEVEL)
    policy = Policy(policy_size(SIZE), vocabulary_size=len(task.vocabulary), seed=0)
    with live() as show:

        def warmed(_: int, right: float) -> None:
            show(
                f"warming up: right with probability {right:.2f}",
                min(100, round(100 * right / START)),
                100,
            )

        def step(number: int, row: Any) -> None:
            seen.append(row["reward"])
            show(f"reward {row['reward']:.2f} {curve(seen)}", number, steps)

        if seen:
            return train(
                policy, task, TrainSettings(steps=until), output=run, resume=True, on_step=step
            )
        warm_up(policy, task, accuracy=START, cache=cache, on_step=warmed)
        return train(policy, task, TrainSettings(steps=until), output=run, force=True, on_step=step)


def curve(value_T: list[float], width: int = 30) -> str:
    """A curve between 0 and 1 in one line of text."""
    shown = (
        [value_T[place * len(value_T) // width] for place in range(width)]
        if len(value_T) > width
        else value_T
    )
    return "".join(BARS[min(7, int(8 * value))] for value in shown)


@contextmanager
def live() -> Iterator[Show]:
    """One line that changes; where standard output is no terminal, a line each third of the way."""
    if not sys.stdout.isatty():
        calls: list[tuple[str, int]] = []

        def tell(text: str, done: int, total: int) -> None:
            here = (text.partition(" ")[0], 3 * done // total)
            if here not in calls:
                calls.append(here)
                say(f"  {done:>4} of {total}  {text}")

        yield tell
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    ) as bar:
        line = bar.add_task("", total=None)
        yield lambda text, done, total: bar.update(
            line, description=text, completed=done, total=total
        )


def ahead(record: Any, at: list[int]) -> Any:
    """The forecast of the mean of 20 steps around each step asked for, from what is there."""
    from groupwise.forecasting.forecast import forecast
    from groupwise.series.metric import metric_series

    series = metric_series(record, "reward")
    ahead = forecast(
        series.time_T,
        series.value_T,
        [step - WINDOW / 2 for step in at],
        window=series.window,
        smoothing=series.smoothing,
        bounds=series.bounds,
        rows=WINDOW,
    )
    say(f"{ahead.message[0].upper()}{ahead.message[1:]}.")
    say(
        f"  steps {at[-1] - WINDOW + 1} to {at[-1]}: {ahead.mean_S[-1]:.2f}, between "
        f"{ahead.low_S[-1]:.2f} and {ahead.high_S[-1]:.2f}"
    )
    return ahead


def compare(record: Any, at: list[int], expected: Any) -> None:
    """Print what came beside what was forecast."""
    reward = dict(zip(record.steps["step"], record.steps["reward"], strict=True))
    say("\nThe forecast made at 40 %, and what came:")
    say("  steps        forecast  90 % band     came")
    inside = 0
    for place, step in enumerate(at):
        came = sum(reward[number] for number in range(step - WINDOW + 1, step + 1)) / WINDOW
        low, high = expected.low_S[place], expected.high_S[place]
        inside += bool(low <= came <= high)
        where = "" if low <= came <= high else "  outside"
        say(
            f"  {step - WINDOW + 1:>3} to {step:<5}  {expected.mean_S[place]:.2f}      {low:.2f} "
            f"to {high:.2f}  {came:.2f}{where}"
        )
    say(f"  {inside} of {len(at)} inside.")


def ask(most: int, *words: object) -> None:
    """Print a command as one would type it, and the first lines of its answer; stop where it
    fails, which to judge a run as bad is not.
    """
    from groupwise.cli.app import main as groupwise

    command = [str(word) for word in words]
    say(f"$ groupwise {shlex.join(command)} | head -{most}")
    with redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")) as kept:
        code = groupwise(command)
        kept.flush()
        lines = [line for line in kept.buffer.getvalue().decode().splitlines() if line.strip()]
    for line in lines[:most]:
        say(line)
    if code not in (0, 1, 3):
        raise SystemExit(code)


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


if __name__ == "__main__":
    main()
