"""How often the judgement is right on simulated runs whose truth is known: states, causes, first
signs, and alarms as a run goes on.

    nice python lab/experiments/diagnosis/confusion.py rates --runs 200 --state build/confusion
    nice python lab/experiments/diagnosis/confusion.py sequential --runs 1000 --rows 150 --state
    build/confusion [--seconds 3600] python lab/experiments/diagnosis/confusion.py tables --state
    build/confusion
    nice python lab/experiments/diagnosis/confusion.py words --runs 500

`rates` judges runs of every kind once they have ended; `sequential` judges healthy runs after every
row, as one that looks all the time; `words` says what slow noise around a level is said to do. Each
run has its own seed and is kept in the state's folder as
it is done, so that a study that was cut short goes on where it stopped; another version of the
engine begins anew. `tables` writes the tables states, causes, likely, signs and sequential of
results.txt from what is there. The simulator is `lab/src/groupwise_lab/worlds/logs.py`.
"""

import os
import sys

os.environ.setdefault(
    "POLARS_MAX_THREADS", "1"
)  # before polars is loaded: its threads only wait for each other on such small tables

import hashlib
import inspect
import json
import math
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from scipy.stats import beta

import groupwise
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Certainty, Judgement, Learning, State
from groupwise.record.run import RunRecord, cut, steps_table

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common
from common import Row, Rows, arguments, results_of, where

from groupwise_lab.worlds.logs import HEALTHY, ILL, KINDS, Truth, run_of
from groupwise_lab.worlds.runs import autoregressive_noise as autoregressive

RESULTS = results_of(__file__)
FIRST_SEED = (
    1_000_000  # of the tables; rules were mended while looking at the first hundred of each kind
)
ROWS = 150
# A cause of the simulator by the words of the engine.
NAMED: Mapping[str, str] = {
    "length": "ran away in length",
    "instability": "instab|came apart",
    "numerics": "numeric|not finite",
    "verifier": "verifier",
    "harder_data": "harder data|too hard",
    "hacking": "hacking",
    "overfitting": "overfit",
    "truncation": "truncation|cut off",
    "concentration": "concentration|entropy collapse",
    "degeneracy": "degenera|no gradient|zero-variance|all the same|identical",
    "sampler": "sampler",
    "group": "group is too small|too small a group",
    "format": "format",
    "rate": "learning rate",
}
# The states that a label allows.
ALLOWED: Mapping[str, tuple[str, ...]] = {
    "healthy": ("ok",),
    "recovered": ("ok",),
    "overfitting": ("ok", "warning"),
    "slow": ("ok", "warning"),
    "flat": ("warning",),
    "stalled": ("warning", "failed"),
    "declining": ("warning", "failed"),
    "harder": ("warning", "failed"),
    "cutoff": ("warning", "failed"),
    "format": ("warning", "failed"),
    "hacking": ("warning", "failed"),
    "failure": ("warning", "failed"),
    "collapse": ("failed",),
    "zero": ("failed",),
}
# What holds from the start, or has no moment, has no first sign to find; of swings that widen
# nobody says when they harm.
UNDATED = ("format_alone", "zero_throughout", "cut_off", "flat", "group_too_small", "overfitting")
RIGHT = ("likely, right", "possible, right", "between two, one right")
VERDICTS = (
    "likely, right",
    "possible, right",
    "between two, one right",
    "none",
    "wrong, not likely",
    "likely, wrong",
)


def causes_in(names: Iterable[str]) -> list[str]:
    """The simulator's names of what the engine named."""
    return [
        next((key for key, words in NAMED.items() if re.search(words, name, re.IGNORECASE)), name)
        for name in names
    ]


def verdict_of(judgement: Judgement, truth: Truth) -> str:
    """What a cause is worth: see VERDICTS."""
    named, certainty = causes_in(judgement.cause.names), judgement.cause.certainty
    if certainty is Certainty.NONE or not named:
        return "none"
    right = bool({*truth.causes[:1], *truth.also} & set(named))
    if certainty is Certainty.LIKELY:
        # Where such a log cannot tell, "likely" is luck unless the name is the true one.
        return "likely, right" if right else "likely, wrong"
    if certainty is Certainty.POSSIBLE:
        return "possible, right" if right else "wrong, not likely"
    return (
        "between two, one right" if right or set(named) & set(truth.causes) else "wrong, not likely"
    )


def rows_off(record: RunRecord, step: int | None, low: int, high: int) -> float | None:
    """Rows between a step and a range of rows; None without a step."""
    if step is None:
        return None
    row = int(np.searchsorted(record.steps["step"].to_numpy(), step))
    return float(row - high if row > high else min(row - low, 0))


def judged(kind: str, seed: int) -> Row:
    """Judge one run that has ended."""
    record, truth = run_of(kind, seed)
    judgement = judge(record)
    sign = None if judgement.first_sign is None else judgement.first_sign.step
    # A healthy run that stands below its top is rightly told to stand, which is "warning".
    allowed = (
        *ALLOWED[truth.label],
        *(("warning",) if truth.stands and judgement.learning is Learning.FLAT else ()),
    )
    verdict = verdict_of(judgement, truth)
    row = {
        "kind": kind,
        "seed": seed,
        "state": str(judgement.state),
        "right": str(judgement.state) in allowed,
        "stands": truth.stands,
        # The right words: the true cause at any certainty; none where there is none.
        "worded": verdict in RIGHT if truth.causes else verdict == "none",
        "verdict": verdict,
        "certainty": str(judgement.cause.certainty),
        "names": causes_in(judgement.cause.names),
        "learning": str(judgement.learning),
        "headline": judgement.headline[:120],
    }
    if truth.signs is not None and truth.onset is not None:
        row["sign_off"] = rows_off(record, sign, *truth.signs)
        row["onset_off"] = rows_off(record, judgement.since_step, truth.onset, truth.onset)
    return row


def watched(kind: str, seed: int, rows: int = ROWS) -> Row:
    """Judge one run after every row: the first row at which it is failing, and at which it is to
    be watched; None where it never is.
    """
    record, _ = run_of(kind, seed, rows=rows)
    step_T = record.steps["step"]
    first = {}
    for row in range(1, rows + 1):
        judgement = judge(cut(record, step_T[row - 1]), ended=False)
        first.setdefault(judgement.state, (row, judgement.headline[:120]))
    alarm, warning = first.get(State.FAILING), first.get(State.WARNING)
    seen = {
        "alarm": alarm and alarm[0],
        "warning": warning and warning[0],
        "headline": (alarm or warning or (0, ""))[1],
    }
    return {"kind": kind, "seed": seed, "rows": rows, **seen}


def worded(rows: int, seed: int) -> str:
    """What the reward is said to do where noise of a memory of .8 stands around a level."""
    rng = np.random.default_rng(seed)
    reward = 0.5 + rng.uniform(0.02, 0.1) * autoregressive(rng, rows, 1.0, 0.8)
    record = RunRecord("noise", steps_table(range(1, rows + 1), {"reward": reward}))
    return judge(record).learning.value


def engine() -> str:
    """A name of this version of the engine: of its files."""
    home = Path(groupwise.__file__).parent
    parts = (
        "diagnostics",
        "series",
        "forecasting",
        "record",
        "edge",
        "intervals.py",
        "arrays.py",
        "wording.py",
    )
    files = sorted(
        path
        for part in parts
        for path in ((home / part).rglob("*.py") if (home / part).is_dir() else [home / part])
    )
    files += [Path(inspect.getfile(run_of))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:10]


def kept_rows(path: Path) -> Rows:
    """What is kept in a file, but for a last line that was cut short."""
    if not path.exists():
        return []
    return [
        json.loads(line)
        for line in path.read_text().splitlines(keepends=True)
        if line.endswith("\n")
    ]


def study(
    call: Callable[[str, int], Row],
    tasks: Sequence[tuple[str, int]],
    path: Path,
    *,
    workers: int,
    seconds: float,
) -> Rows:
    """Call a function for every task that is not in the file yet, and write each as it is done,
    until the time is over.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = kept_rows(path)
    done = {(row["kind"], row["seed"]) for row in kept}
    left = [task for task in tasks if task not in done]
    end = time.monotonic() + seconds
    # Written anew, so that a line that was cut short is gone.
    path.write_text("".join(json.dumps(row) + "\n" for row in kept))
    with path.open("a") as file:
        for result in _called(call, left, workers=workers, end=end):
            kept.append(result)
            file.write(json.dumps(result) + "\n")
            file.flush()
    return kept


def _called(
    call: Callable[[str, int], Row], left: Sequence[tuple[str, int]], *, workers: int, end: float
) -> Iterator[Row]:
    """Results as they come, until a time."""
    if workers == 1:
        for task in left:
            if time.monotonic() > end:
                return
            yield call(*task)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for first in range(0, len(left), 20 * workers):
            if time.monotonic() > end:
                return
            for future in as_completed(
                [pool.submit(call, *task) for task in left[first : first + 20 * workers]]
            ):
                yield future.result()


def tasks_of(kinds: Sequence[str], runs: int, first: int = 0) -> list[tuple[str, int]]:
    """A run of every kind, then the next of every kind: cut short anywhere, all kinds have as
    many.
    """
    return [(kind, FIRST_SEED + first + number) for number in range(runs) for kind in kinds]


def upper(count: int, runs: int, level: float = 0.975) -> float:
    """The upper end of the 95 % interval of Clopper and Pearson; of none that is 1 -
    0.025^(1/n).
    """
    return 1.0 if count >= runs else float(beta.ppf(level, count + 1, runs - count))


def lower(count: int, runs: int, level: float = 0.025) -> float:
    """The lower end of the same."""
    return 0.0 if count == 0 else float(beta.ppf(level, count, runs - count + 1))


def write(name: str, header: Sequence[str], lines: Iterable[Sequence[object]]) -> None:
    """Write a table, numbers with four places."""
    written = [
        [f"{cell:.4f}" if isinstance(cell, float) else cell for cell in line] for line in lines
    ]
    RESULTS.write(name, [dict(zip(header, line, strict=True)) for line in written])


def grouped(rows: Sequence[Row], kinds: Sequence[str] = KINDS) -> Iterator[tuple[str, Rows]]:
    """Runs by kind, in the order of the kinds."""
    for kind in kinds:
        part = where(rows, kind=kind)
        if part:
            yield kind, part


def tables(rows: Sequence[Row], seen: Sequence[Row]) -> None:
    """Write all tables."""
    states = ["ok", "warning", "failed"]
    lines = []
    together = "all healthy", [row for row in rows if row["kind"] in HEALTHY]
    for kind, part in [*grouped(rows), together]:
        count, runs = Counter(row["state"] for row in part), len(part) or 1
        allowed = sum(row["right"] for row in part) / runs
        # Of a healthy run that is said to stand, and does.
        beside = sum(row["right"] for row in part if row["state"] != "ok") / runs
        shares, alarms = [count[state] / runs for state in states], count["failed"]
        lines.append([kind, runs, *shares, alarms, upper(alarms, runs), beside, allowed])
    write(
        "states", ["kind", "runs", *states, "alarms", "alarms_upper", "beside_ok", "allowed"], lines
    )
    lines = []
    for kind, part in grouped(rows, ILL):
        count = Counter(row["verdict"] for row in part)
        worded = sum(row["worded"] for row in part) / len(part)
        lines.append(
            [kind, len(part), *(count[verdict] / len(part) for verdict in VERDICTS), worded]
        )
    write("causes", ["kind", "runs", *VERDICTS, "right words"], lines)
    write("likely", ["certainty", "named", "runs", "right", "low", "high"], calibration(rows))
    lines = []
    for kind, part in grouped(rows, [kind for kind in ILL if kind not in UNDATED]):
        for name in ("sign_off",) if kind == "swings" else ("sign_off", "onset_off"):
            off = np.abs([row[name] for row in part if row.get(name) is not None])
            if off.size:
                lines.append(
                    [
                        kind,
                        name,
                        off.size,
                        float(np.median(off)),
                        float(np.quantile(off, 0.9)),
                        float(np.mean(off <= 5)),
                    ]
                )
    write("signs", ["kind", "what", "runs", "median", "ninth_tenth", "within_five_rows"], lines)
    if not seen:
        return  # of a study that was not run for this engine the table of before stands
    lines = []
    for kind, part in [*grouped(seen, HEALTHY), ("all", list(seen))]:
        alarms, watch = (
            sum(row[name] is not None for row in part) for name in ("alarm", "warning")
        )
        if part:
            rest = [upper(alarms, len(part)), watch, watch / len(part), upper(watch, len(part))]
            lines.append([kind, len(part), alarms, alarms / len(part), *rest])
    write(
        "sequential",
        ["kind", "runs", "alarms", "share", "upper", "watched", "watched_share", "watched_upper"],
        lines,
    )


def calibration(rows: Sequence[Row]) -> list[list[object]]:
    """How often a named cause is the true one, by what was named and how surely; of a healthy
    run none is.
    """
    lines = []
    for certainty in ("likely", "possible"):
        part = where(rows, certainty=certainty)
        for name in ["all", *sorted({row["names"][0] for row in part if row["names"]})]:
            of = [row for row in part if name in ("all", *row["names"])]
            right = sum(row["verdict"].endswith(", right") for row in of)
            if of:
                lines.append(
                    [
                        certainty,
                        name,
                        len(of),
                        right / len(of),
                        lower(right, len(of)),
                        upper(right, len(of)),
                    ]
                )
    return lines


def main() -> None:
    """Run a study, or write its tables."""
    numbers = {"runs": 200, "first": 0, "rows": ROWS, "seconds": math.inf, "workers": 1}
    given = arguments(__doc__, "what", **numbers, state="build/confusion")
    warnings.simplefilter("ignore")
    rates, sequential = (
        Path(given.state, f"{name}-{engine()}.jsonl") for name in ("rates", "sequential")
    )
    studies = {"rates": (judged, KINDS, rates), "sequential": (watched, HEALTHY, sequential)}
    if given.what in studies:
        judge_run, kinds, file = studies[given.what]
        tasks = tasks_of(kinds, given.runs, given.first)
        study(judge_run, tasks, file, workers=given.workers, seconds=given.seconds)
    elif given.what == "words":
        said = Counter(worded(given.rows, given.first + seed) for seed in range(given.runs))
        print({word: count / given.runs for word, count in said.most_common()})
        return
    elif given.what != "tables":
        raise SystemExit(f"expected rates, sequential, words or tables, got {given.what}")
    tables(kept_rows(rates), kept_rows(sequential))


if __name__ == "__main__":
    main()
