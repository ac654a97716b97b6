"""Whether the experiments that `groupwise probe` names tell causes that the logs of real runs leave
open: members of the trial of advice, made again from their seeds with their completions.

    nice python lab/experiments/probe/real.py [--members 12]

A run is looked at every ten updates behind its fault until its log leaves the cause open, or to
its end; then the experiments are made as they are named, the first first, until the cause is
likely: graded by the verifier as it is meant to be, or sampled again from a checkpoint. Writes the
table `real` of results.txt: of so many members how many are tied, how often the first experiment
and the last spoke for the cause, how often it then was likely and right, or wrong, and how many
experiments were made. The sealed task is left out; SmolLM2's runs would take a graphics card.
"""

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before polars is loaded

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2]), *(str(HERE.parent / name) for name in ("advice", ""))]

import torch
from arms import EVERY, HORIZONS, Seen, course_of
from common import arguments, results_of
from faults import SEALED, SMALL, Member, members
from trial import Journey, settings_of

from groupwise.analysis.probing import RUNNABLE, ProbeOptions, run_probe
from groupwise.diagnostics.causes import KINDS, choices, contenders, outcome_of
from groupwise.diagnostics.judge import judge
from groupwise.diagnostics.judgement import Certainty, Judgement
from groupwise.diagnostics.signals import Evidence
from groupwise.errors import InsufficientDataError
from groupwise.record.run import ProbeResult, Probes, RunRecord
from groupwise.record.table import rollouts_table
from groupwise_lab.trainer.checkpoints import save_policy
from groupwise_lab.trainer.rows import rollout_rows

RESULTS = results_of(__file__)
KEPT = 64  # completions of an update that are logged
CAUSES = {
    "verifier": ("broken_verifier", "noisy_verifier"),
    "harder_data": ("hard_prompts",),
    "stale_queue": ("lag",),
    "concentration": ("spent_entropy",),
}
SHARES = ("first", "last", "likely", "wrong", "made")
GRADER = """
import json
import sys
sys.path[:0] = {paths!r}
from faults import SMALL, healthy_task, members
from groupwise_lab.trainer.rewards import Problem
PROBLEMS = {{prompt: Problem(**own) for prompt, own in json.load(open("problems.json")).items()}}
MEANT = healthy_task(members(SMALL)[{number}]).verifier
def right(prompts, completions, **more):
    asked = [PROBLEMS[prompt] for prompt in prompts]
    parts = MEANT(asked, completions, [True] * len(completions))
    return [sum(MEANT.weights[name] * float(part[at]) for name, part in parts.items())
            for at in range(len(completions))]
"""


class Logged(Seen):
    """A run with its completions and its problems."""

    def __init__(self, member: Member) -> None:
        super().__init__()
        self.member, self.rollouts, self.problems = member, [], {}
        chosen = settings_of(member, HORIZONS[SMALL].steps)
        self.journey = Journey(member, chosen, fault=member.fault)

    def advance(self) -> None:
        """Make an update and log it."""
        self.journey.advance()
        if self.journey.ended:
            return
        self.add(self.journey)
        batch = self.journey.run._last_batch
        shown = self.journey.actor.shown
        self.problems |= {shown(problem): problem for problem in batch.judged.problems}
        rows = rollout_rows(batch.judged, batch.advantage_N, shown)[:KEPT]
        self.rollouts += [{"step": len(self.rows), **row} for row in rows]

    def seen(self) -> RunRecord:
        """The log at this look."""
        record = self.record(course_of(self.member, faulty=self.journey.faulty))
        return replace(record, rollouts=rollouts_table(self.rollouts))

    def made(self, name: str, record: RunRecord, judged: Judgement) -> ProbeResult:
        """Make an experiment as the command does, with the verifier as it is meant."""
        Path("problems.json").write_text(
            json.dumps(self.problems, default=asdict), encoding="utf-8"
        )
        source = GRADER.format(paths=sys.path[:8], number=self.member.number)
        Path("meant.py").write_text(source, encoding="utf-8")
        model = Path(f"checkpoint-{len(self.rows)}")
        save_policy(self.journey.actor, model, self.journey.run.task.vocabulary)
        how = ProbeOptions(KINDS[name].rollouts, function="meant:right", model=model, seconds=300)
        return run_probe(record, judged, name, how)


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


def walked(cause: str, logged: Logged, record: RunRecord) -> dict[str, float]:
    """Make the experiments that are named, one after the other, until the cause is likely."""
    results: list[ProbeResult] = []
    judged = judge(record, ended=False)
    while judged.cause.certainty is not Certainty.LIKELY:
        named = choices(judged.cause, Evidence(record))
        able = [kind.probe for kind in named if kind.probe in RUNNABLE and not kind.missing]
        if not able:
            break
        try:
            results.append(logged.made(able[0], record, judged))
        except InsufficientDataError:  # it comes and goes: there is no before and after
            break
        record = replace(record, probes=Probes(Path(), "", tuple(results)))
        judged = judge(record, ended=False)
    speak = [
        bool(outcome) and max(outcome.chances, key=lambda key: outcome.chances[key]) == cause
        for outcome in map(outcome_of, results)
    ]
    likely = judged.cause.certainty is Certainty.LIKELY
    right = judged.cause.keys == (cause,)
    ends = (speak[:1] == [True], speak[-1:] == [True], likely and right, likely and not right)
    return dict(zip(SHARES, (*ends, len(results)), strict=True))


def of_cause(cause: str, most: int) -> Iterator[dict[str, float]]:
    """Walk members with a fault of this cause."""
    earlier = EVERY if cause in ("verifier", "harder_data") else 0  # something was earned before
    own = [
        member
        for member in members(SMALL)
        if member.fault.kind in CAUSES[cause]
        and member.fault.onset >= earlier
        and member.task != SEALED
    ]
    for member in [row for row in own if row.fault.size.get("mode") != "one"][:most]:
        logged, record, tied = looks(member)
        yield {"tied": tied, **(walked(cause, logged, record) if tied else {})}


def main() -> None:
    """Make the experiments and write the table."""
    most, rows = arguments(__doc__, members=12).members, []
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        for cause in CAUSES:
            own = list(of_cause(cause, most))
            open_ones = [row for row in own if row["tied"]]
            shares = {key: int(sum(row[key] for row in open_ones)) for key in SHARES}
            rows.append({"cause": cause, "members": len(own), "tied": len(open_ones), **shares})
    RESULTS.write("real", rows)


if __name__ == "__main__":
    main()
