"""Whether the experiment that `groupwise probe` names first tells causes that a log cannot: of each
cause of a tie so many simulated runs, whose cause is known.

    nice python lab/experiments/probe/ties.py [--runs 25]

The logs are those of the worlds; answers are drawn by the cause: with their grades by a function
that stays or breaks (the user has the old one or the broken one), with log-probabilities of a
sampler in an exact world of 20 words, or as a policy answers today; how far the sampler lags, how
it rounds and what it leaves out is drawn by seed. Writes the table `ties` of
results.txt: of so many runs how often the experiment was named first, decided rightly, and the
cause then was likely and right; and the median share of the run's rollouts that it took.
"""

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before polars is loaded

import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2])]

import numpy as np
from common import arguments, results_of
from tests.analysis.test_probing import world

from groupwise.analysis.probing import ProbeOptions, result_of, run_probe
from groupwise.diagnostics.causes import KINDS, choices, contenders, resampled, rescored
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Cause, Certainty
from groupwise.diagnostics.signals import Evidence
from groupwise.record.journal import ProbeResult, Probes
from groupwise.record.run import RunRecord
from groupwise.record.table import rollouts_table
from groupwise_lab.worlds.logs import run_of

FIRST_SEED, OFTEN = 47_000, 18
RESULTS = results_of(__file__)
SAMPLERS = {
    "never_synchronised": "first",
    "stale_queue": "older",
    "precision": "rounded",
    "sampling_truncated": "truncated",
}
Probe = Callable[[RunRecord, np.random.Generator], ProbeResult]
GRADERS = """
from zlib import crc32
def stays(prompts, completions, **more):
    return [float(text.startswith("right")) for text in completions]
def breaks(prompts, completions, **more):
    return [float(text.startswith("right") and crc32(text.encode()) % 100 < LEFT)
            for text in completions]
"""


def answered(record: RunRecord, onset: int, cause: str, rng: np.random.Generator) -> RunRecord:
    """Log some answers: as rare as the reward says, or as before and graded so."""
    reward = record.steps[record.column("reward")].to_numpy()
    share = (reward - reward.min()) / np.ptp(reward)
    before = float(share[max(0, onset - 20) : onset].mean())
    left = int(100 * share[onset:].mean() / before)
    Path("graders.py").write_text(GRADERS.replace("LEFT", str(left)), encoding="utf-8")
    rows = []
    for row in range(0, len(share), max(1, len(share) // OFTEN)):
        broken = cause == "verifier" and row >= onset
        for number in range(8):
            right = rng.random() < (before if broken else share[row])
            text = f"{'right' if right else 'wrong'} {row} {number}"
            lost = broken and zlib.crc32(text.encode()) % 100 >= left
            rows.append(
                {
                    "step": int(record.steps["step"][row]),
                    "prompt_id": number // 4,
                    "prompt": f"prompt {row} {number // 4}",
                    "completion": text,
                    "reward": float(right and not lost),
                }
            )
    return replace(record, rollouts=rollouts_table(rows))


def runs(kind: str, keys: set[str], certainty: set[Certainty]) -> Iterator[tuple[RunRecord, int]]:
    """Yield runs of a kind whose log leaves the cause open, with the row of their onset."""
    seed = FIRST_SEED
    while True:
        seed += 1
        record, truth = run_of(kind, seed)
        cause = judge(record).cause
        if record.rollouts is None and cause.certainty in certainty and {*cause.keys} == keys:
            yield record, truth.onset or 0


def regrades(which: int) -> Probe:
    """Grade again by the function of before, or by that of since."""
    function = f"graders:{('stays', 'breaks')[which % 2]}"

    def probe(record: RunRecord, _rng: np.random.Generator) -> ProbeResult:
        how = ProbeOptions(KINDS["regrade"].rollouts, function=function)
        return run_probe(record, judge(record), "regrade", how)

    return probe


def rescores(cause: str) -> Probe:
    """Score what a sampler drew in an exact world."""

    def probe(_record: RunRecord, rng: np.random.Generator) -> ProbeResult:
        lag, noise, top = rng.uniform((0.02, 0.002, 0.6), (0.7, 0.08, 0.99))
        seed = int(rng.integers(1 << 30))
        gap, way = world(SAMPLERS[cause], seed, lag=lag, noise=noise, top=top)
        return result_of("rescore", rescored(gap, way), len(gap), 0.0, seed)

    return probe


def resamples(cause: str) -> Probe:
    """Sample four prompts of a policy that has one answer to each, or many that are wrong."""

    def probe(_record: RunRecord, rng: np.random.Generator) -> ProbeResult:
        top = rng.uniform(0.85, 1.0) if cause == "concentration" else rng.uniform(0.0, 0.2)
        same, other = rng.random((4, 16)) < top, rng.integers(40, size=(4, 16))
        texts = [list(map(str, row)) for row in np.where(same, -1, other).tolist()]
        of_one = rng.random() < 0.5 and cause == "concentration"
        right = int(same[:1].sum()) if of_one else int(rng.binomial(64, 0.01))
        return result_of("resample", resampled(texts, right), 64, 0.0, 1)

    return probe


def ties(count: int) -> Iterator[tuple[str, RunRecord, Probe]]:
    """Yield the cause of each run, the run, and the experiment on it."""
    rng = np.random.default_rng(FIRST_SEED)
    both = {"verifier", "harder_data"}
    for cause, kind in (("verifier", "verifier_broken"), ("harder_data", "harder_data")):
        logged_runs = runs(kind, both, {Certainty.CANNOT_TELL})
        logged = ((answered(record, onset, cause, rng), onset) for record, onset in logged_runs)
        tied = (run for run, _ in logged if {*judge(run).cause.keys} == both)
        for number, record in zip(range(count), tied, strict=False):
            yield cause, record, regrades(number if cause == "verifier" else 0)
    scored = {"step": 1, "prompt_id": 0, "prompt": "x", "completion": "y", "log_probability": -1.0}
    for cause in SAMPLERS:
        logged_runs = runs("sampler_mismatch", {"sampler"}, {Certainty.LIKELY, Certainty.POSSIBLE})
        for _, (record, _onset) in zip(range(count), logged_runs, strict=False):
            yield cause, replace(record, rollouts=rollouts_table([scored])), rescores(cause)
    prompts = {"step": 1, "prompt_id": 0, "prompt": "x", "reward": 0.0}
    for cause in ("concentration", "too_hard"):
        logged_runs = runs("concentration", {"concentration"}, {Certainty.POSSIBLE})
        for _, (record, _onset) in zip(range(count), logged_runs, strict=False):
            yield cause, replace(record, rollouts=rollouts_table([prompts])), resamples(cause)


def counted(cause: str, record: RunRecord, probe: Probe) -> dict[str, float | str]:
    """Make the experiment on one run and judge anew."""
    rng = np.random.default_rng(zlib.crc32(record.name.encode()))
    before = judge(record).cause
    first = [trial.probe for trial in choices(contenders(before), Evidence(record))][:1]
    made = probe(record, rng)
    spoken = [
        outcome.chances
        for outcome in KINDS[made.probe].outcomes
        if outcome.fact.name == made.outcome
    ]
    after: Cause = judge(replace(record, probes=Probes(Path(), "", (made,)))).cause
    sizes = [record.config.value(name) or 8 for name in ("prompts_per_step", "group_size")]
    return {
        "cause": cause,
        "first": first == [made.probe],
        "right": bool(spoken) and max(spoken[0], key=lambda key: spoken[0][key]) == cause,
        "likely": after.certainty is Certainty.LIKELY and after.keys == (cause,),
        "cost": made.rollouts / (float(np.prod(sizes)) * record.steps["step"][-1]),
    }


def main() -> None:
    """Make the experiments and write the table."""
    count = arguments(__doc__, runs=25).runs
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        made = [counted(*tie) for tie in ties(count)]
    rows = []
    for cause in dict.fromkeys(row["cause"] for row in made):
        own = [row for row in made if row["cause"] == cause]
        shares = {name: sum(row[name] for row in own) for name in ("first", "right", "likely")}
        cost = float(np.median([row["cost"] for row in own]))
        rows.append({"cause": cause, "runs": len(own), **shares, "cost": f"{cost:.4f}"})
    RESULTS.write("ties", rows)
    for row in rows:
        print(*row.values(), sep="\t")


if __name__ == "__main__":
    main()
