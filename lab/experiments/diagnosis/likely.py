"""How often a cause that is called likely is the true one, by cause, on simulated logs: those of
the worlds, and those of users' complaints with the healthy ones that look alike.

    nice python lab/experiments/diagnosis/likely.py [--runs 40]

Writes the table `calibration` of results.txt: of each cause how often it was likely, how often
that was right, the lower end of the 95 % interval, and what it was taken for else.
"""

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before polars is loaded

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2])]  # the complaints stand with the tests

import json

from common import arguments
from confusion import FIRST_SEED, KINDS, RESULTS, causes_in, lower
from lab.tests.complaints import ALIKE, CAUSES, DOUBTFUL, log_of

from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Certainty, Judgement
from groupwise.readers import run_record
from groupwise_lab.worlds.logs import run_of


def of_worlds(runs: int) -> Iterator[tuple[Judgement, str, bool]]:
    """Yield judgements with their kind and whether the cause is a true one."""
    for kind in KINDS:
        for number in range(runs):
            record, truth = run_of(kind, FIRST_SEED + number)
            judgement = judge(record)
            right = {*truth.causes[:1], *truth.also} & {*causes_in(judgement.cause.names)}
            yield judgement, kind, bool(right)


def of_complaints(runs: int) -> Iterator[tuple[Judgement, str, bool]]:
    """Yield the same of complaints and of what looks alike."""
    kinds = [(name, *entry) for name, entry in (CAUSES | DOUBTFUL).items()]
    kinds += [(name, *entry, "no such cause") for name, entry in ALIKE.items()]
    with TemporaryDirectory() as folder:
        for name, kind, trainers, words in kinds:
            for trainer in dict.fromkeys(trainers):
                for number in range(runs // 2):
                    path = Path(folder) / f"{trainer}.jsonl"
                    rows = log_of(kind, trainer, FIRST_SEED + number)
                    path.write_text("\n".join(map(json.dumps, rows)))
                    judgement = judge(run_record(path), ended=True)
                    yield judgement, name, any(words in label for label in judgement.cause.names)


def main() -> None:
    """Judge the logs and write the table."""
    runs = arguments(__doc__, runs=40, seed=FIRST_SEED).runs
    said: Counter[str] = Counter()
    right: Counter[str] = Counter()
    else_: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for source in (of_worlds, of_complaints):
        for judgement, kind, holds in source(runs):
            if judgement.cause.certainty is Certainty.LIKELY:
                key = judgement.cause.keys[0]
                said[key] += 1
                right[key] += holds
                else_[key][kind] += not holds
    rows = [
        {
            "cause": key,
            "likely": said[key],
            "right": right[key],
            "share": f"{right[key] / said[key]:.3f}",
            "lower": f"{lower(right[key], said[key]):.3f}",
            "taken for": " ".join(f"{kind} {n}" for kind, n in else_[key].most_common(3) if n),
        }
        for key in sorted(said)
    ]
    RESULTS.write("calibration", rows)
    for row in rows:
        print(*row.values(), sep="\t")


if __name__ == "__main__":
    main()
