"""How often the range of the onset of reward hacking holds the true one, on simulated logs.

    python lab/experiments/diagnosis/measures.py --runs 400 [--seed 20261121]

Writes the table `measures`: the share of ranges that hold the truth and its Wilson interval.
"""

import sys
from pathlib import Path

import numpy as np

from groupwise.diagnostics import hacking
from groupwise.diagnostics.signals import Evidence
from groupwise.intervals import wilson

sys.path.append(str(Path(__file__).resolve().parents[1]))  # common
from common import arguments, results_of

from groupwise_lab.worlds.runs import simulated_run

SEED = 20261121
STREAM = 7  # of random numbers


def held(rng: np.random.Generator) -> bool:
    """Whether the range that is told of a simulated run holds the step of its hack."""
    record, step = simulated_run("reward_hacking", rng)
    pair = hacking.pairs_of(Evidence(record))[0]
    assert step is not None
    parting = hacking.parting_of(pair)
    return parting.first <= step <= parting.last


def main() -> None:
    """Run the simulated logs and write the table."""
    given = arguments(__doc__, runs=400, seed=SEED)
    inside = sum(held(np.random.default_rng([given.seed, STREAM, i])) for i in range(given.runs))
    share = wilson(inside, given.runs)
    row = {"number": "range of the onset of hacking", "world": "simulated runs"}
    row |= {"runs": given.runs, "told": given.runs}
    ends = {"inside": share.value, "low": share.low, "high": share.high}
    row |= {key: f"{end:.4f}" for key, end in ends.items()}
    results_of(__file__).write("measures", [row])


if __name__ == "__main__":
    main()
