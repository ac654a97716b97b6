"""Whether the experiment that `groupwise probe` names first tells causes that the logs of real runs
leave open: members of the trial of advice, made again from their seeds with their completions.

    nice python lab/experiments/probe/real.py [--members 12]

A run is looked at every ten updates behind its fault until its log leaves the cause open, or to
its end; then the experiment on its cause is made: graded again by the verifier as it is meant to
be, scored under the policy of now and of the start, or sampled again. Writes the table `real` of
results.txt: of so many members how many are tied, and of these how often the experiment was named
first, decided rightly, and the cause then was likely and right. The sealed
task is left out; SmolLM2's runs would take a graphics card.
"""

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before polars is loaded

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2]), *(str(HERE.parent / name) for name in ("advice", ""))]

import numpy as np
import torch
from arms import EVERY, HORIZONS, Seen, course_of
from common import arguments, results_of
from faults import SEALED, SMALL, Member, healthy_task, members
from ties import counted, result
from trial import Journey, settings_of

from groupwise.analysis.probing import ProbeOptions, run_probe
from groupwise.diagnostics.causes import KINDS, contenders, resampled, rescored
from groupwise.diagnostics.judge import judge
from groupwise.errors import InsufficientDataError
from groupwise.record.journal import ProbeResult
from groupwise.record.run import RunRecord
from groupwise.record.table import rollouts_table
from groupwise_lab.trainer.credit import rewards_of
from groupwise_lab.trainer.rows import rollout_rows

RESULTS = results_of(__file__)
KEPT = 64  # completions of an update that are logged
CAUSES = {
    "verifier": ("broken_verifier", "noisy_verifier"),
    "harder_data": ("hard_prompts",),
    "stale_queue": ("lag",),
    "concentration": ("spent_entropy",),
}
SHARES = ("first", "right", "likely")
LOOKS_UP = """
import json
GRADES = json.load(open("grades.json"))
def right(prompts, completions, **more):
    return [GRADES[prompt + "|" + text] for prompt, text in zip(prompts, completions)]
"""


class Logged(Seen):
    """A run with its completions, and what the verifier as it is meant says of them."""

    def __init__(self, member: Member) -> None:
        super().__init__()
        self.member, self.rollouts, self.grades = member, [], {}
        chosen = settings_of(member, HORIZONS[SMALL].steps)
        self.journey = Journey(member, chosen, fault=member.fault)
        self.first_D = self.journey.run.flat.value_D.clone()
        self.meant = healthy_task(member).verifier

    def advance(self) -> None:
        """Make an update and log it."""
        self.journey.advance()
        if self.journey.ended:
            return
        self.add(self.journey)
        batch = self.journey.run._last_batch
        sampled = batch.judged.sampled
        sums_N = sampled.log_probability_NL.mul(sampled.mask_NL).sum(1).tolist()
        rows = rollout_rows(batch.judged, batch.advantage_N, self.journey.actor.shown)
        asked = batch.judged.problems
        problems = [one for one in asked for _ in range(len(rows) // len(asked))]
        parts = self.meant(problems, batch.judged.text_N, batch.judged.ended_N)
        weights = self.meant.weights
        for place, (row, total) in enumerate(zip(rows[:KEPT], sums_N, strict=False)):
            self.rollouts.append({"step": len(self.rows), **row, "log_probability": total})
            earned = sum(weights[name] * float(part[place]) for name, part in parts.items())
            self.grades[f"{row['prompt']}|{row['completion']}"] = earned

    def seen(self) -> RunRecord:
        """The log at this look."""
        record = self.record(course_of(self.member, faulty=self.journey.faulty))
        return replace(record, rollouts=rollouts_table(self.rollouts))

    def regrade(self, record: RunRecord) -> ProbeResult:
        """Grade again by the verifier as it is meant."""
        Path("grades.json").write_text(json.dumps(self.grades), encoding="utf-8")
        Path("meant.py").write_text(LOOKS_UP, encoding="utf-8")
        how = ProbeOptions(KINDS["regrade"].rollouts, function="meant:right")
        return run_probe(record, judge(record, ended=False), "regrade", how)

    def rescore(self, _record: RunRecord) -> ProbeResult:
        """Score the next batch under the policy that trains on it, and under the first."""
        run, count = self.journey.run, KINDS["rescore"].rollouts
        own_D = run.flat.value_D.clone()
        self.advance()
        batch, scores = run._last_batch, []
        sampled = batch.judged.sampled
        for value_D in (own_D, self.first_D):
            run.flat.value_D.copy_(value_D)
            scored_NL = run._log_probabilities(batch.prompt_PL, sampled.completion_NL)
            scores.append(scored_NL.detach())
        kept = np.random.default_rng(1).permutation(len(sampled.mask_NL))[:count]
        parts = [[], []]
        for row in kept:
            mask_L = sampled.mask_NL[row] > 0
            own, first = (score_NL[row][mask_L].double().numpy() for score_NL in scores)
            parts[0].append(sampled.log_probability_NL[row][mask_L].double().numpy() - own)
            parts[1].append(first - own)
        return result("rescore", rescored(*parts), count)

    def resample(self, _record: RunRecord) -> ProbeResult:
        """Sample four prompts of the last step again."""
        run = self.journey.run
        problems, count = run._last_batch.judged.problems[:4], KINDS["resample"].rollouts
        prompt_PL, each = run.actor.prompt_tokens(run.task, problems), count // len(problems)
        generator = torch.Generator().manual_seed(1)
        sampled = run.actor.sample(prompt_PL, each, generator, run.task.completion_length)
        texts, _, parts = rewards_of(run.actor, healthy_task(self.member), problems, sampled)
        earned_N = sum(self.meant.weights[name] * part_N for name, part_N in parts.items())
        groups = [texts[start : start + each] for start in range(0, len(texts), each)]
        return result("resample", resampled(groups, int((earned_N > 1 - 1e-9).sum())), count)


MADE = {"stale_queue": Logged.rescore, "concentration": Logged.resample}


def looks(member: Member) -> tuple[Logged, RunRecord, bool]:
    """The run at the first look at which its log leaves the cause open, else at its end."""
    logged = Logged(member)
    for step in range(1, HORIZONS[SMALL].last_look + 1):
        logged.advance()
        if logged.journey.ended:
            break
        if step % (2 * EVERY) == 0 and step > member.fault.onset:
            record = logged.seen()
            if len(contenders(judge(record, ended=False).cause)) > 1:
                return logged, record, True
    return logged, logged.seen(), False


def of_cause(cause: str, most: int) -> Iterator[dict[str, float | str]]:
    """Make the experiment on members with a fault of this cause."""
    earlier = EVERY if cause in ("verifier", "harder_data") else 0  # something was earned before
    own = [
        one
        for one in members(SMALL)
        if one.fault.kind in CAUSES[cause] and one.fault.onset >= earlier and one.task != SEALED
    ]
    for member in [one for one in own if one.fault.size.get("mode") != "one"][:most]:
        logged, record, tied = looks(member)
        probe, row = MADE.get(cause, Logged.regrade), {}
        with suppress(InsufficientDataError):  # nothing was earned on one side
            row = counted(cause, record, lambda one, _, of=logged, made=probe: made(of, one))
        yield {**dict.fromkeys(SHARES, False), **row, "tied": tied}


def main() -> None:
    """Make the experiments and write the table."""
    most, rows = arguments(__doc__, members=12).members, []
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        for cause in CAUSES:
            own = list(of_cause(cause, most))
            open_ones = [one for one in own if one["tied"]]
            shares = {key: sum(one[key] for one in open_ones) for key in SHARES}
            rows.append({"cause": cause, "members": len(own), "tied": len(open_ones), **shares})
    RESULTS.write("real", rows)


if __name__ == "__main__":
    main()
