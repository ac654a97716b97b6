"""Whether the experiment that `groupwise probe` names first tells causes that a log cannot: of each
cause of a tie so many simulated runs, whose cause is known.

    nice python lab/experiments/probe/ties.py [--runs 25]

Each run is a folder as a trainer leaves it: a log of the worlds with rollouts beside it and, where
a policy answered, checkpoints of a small transformer; or a log of the reward alone of a run of the
trainer, whose learning rate rises beyond the edge, or whose verifier fails on some answers from a
step on. The commands list the experiments, make the one that is named first with what its user has,
and judge anew. How far the sampler lags, how it rounds and what it leaves out, how varied answers
are, which function the user has, rates, rises and shares are drawn by seed. Writes the table `ties`
of results.txt: of so many runs how often the experiment was right, and the cause then likely and
right; and the median share of the run's rollouts that it took.
"""

import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before polars is loaded

import io
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, redirect_stdout
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

import numpy as np
import torch
from common import Row, arguments, column, results_of

from groupwise.cli.app import main as groupwise
from groupwise.diagnostics.causes import KINDS, contenders, label_of
from groupwise.diagnostics.judge import judge
from groupwise.record.run import JOURNAL, RunRecord
from groupwise_lab.cli.app import main as laboratory
from groupwise_lab.trainer.checkpoints import save_policy
from groupwise_lab.trainer.grpo import train
from groupwise_lab.trainer.policy import Policy, policy_size
from groupwise_lab.trainer.rewards import FailingVerifier
from groupwise_lab.trainer.settings import TrainSettings
from groupwise_lab.trainer.tasks import END, Vocabulary, make_task
from groupwise_lab.trainer.warm_up import default_cache, warm_up
from groupwise_lab.worlds.logs import run_of

FIRST_SEED, OFTEN, STEPS = 47_000, 18, 600
RESULTS = results_of(__file__)
WORDS = Vocabulary("0123456789+=abcdefgh")
LONGEST, SHORT = 30, 8  # tokens of an answer
RUN, MODEL, FIRST = "run", "weights", "first_weights"
Given = tuple[list[Row], list[str]]  # the rollouts of a run, and what its user has
GRADERS = """
from zlib import crc32
def stays(prompts, completions, **more):
    return [float(text.startswith("right")) for text in completions]
def breaks(prompts, completions, **more):
    return [float(text.startswith("right") and crc32(text.encode()) % 100 < LEFT)
            for text in completions]
def rarely(prompts, completions, **more):
    return [float(crc32("".join(pair).encode()) % 100 < LEFT) for pair in zip(prompts, completions)]
"""
GRADED, MET = ("verifier", "harder_data"), ("concentration", "too_hard")
SAMPLERS = ("never_synchronised", "stale_queue", "precision", "sampling_truncated")
TRAINED = {"edge": "instability", "noise": "verifier"}
TIES = {  # the world, and the causes that its log leaves open
    "verifier": ("verifier_broken", {*GRADED}),
    "harder_data": ("harder_data", {*GRADED}),
    **dict.fromkeys(SAMPLERS, ("sampler_mismatch", {*KINDS["rescore"].causes})),
    "concentration": ("concentration", {*MET}),
    "too_hard": ("flat", {*MET}),
    **dict.fromkeys(TRAINED, ("", {*GRADED, "instability", "concentration"})),
}


def graders(left: float) -> dict[str, Callable[..., list[float]]]:
    """Write the user's functions, of which some let so many of a hundred pass."""
    source = GRADERS.replace("LEFT", f"{left:.0f}")
    Path("graders.py").write_text(source, encoding="utf-8")
    made: dict[str, Any] = {}
    exec(source, made)
    return made


def graded(record: RunRecord, onset: int, cause: str, rng: np.random.Generator) -> Given:
    """Log some answers: as rare as the reward says, or as before and graded so."""
    broken = cause == "verifier"
    reward = record.steps[record.column("reward")].to_numpy()
    share = (reward - reward.min()) / np.ptp(reward)
    before = float(share[max(0, onset - 20) : onset].mean())
    grade = graders(100 * share[onset:].mean() / before)
    rows = []
    for row in range(0, len(share), max(1, len(share) // OFTEN)):
        late = broken and row >= onset
        right_N = rng.random(8) < (before if late else share[row])
        texts = [f"{'right' if right else 'wrong'} {row} {at}" for at, right in enumerate(right_N)]
        paid_N = grade["breaks" if late else "stays"](texts, texts)
        for at, (text, paid) in enumerate(zip(texts, paid_N, strict=True)):
            row_of = {"step": record.steps["step"][row], "prompt": f"prompt {row} {at // 4}"}
            rows.append({**row_of, "completion": text, "reward": paid})
    name = "breaks" if broken and rng.random() < 0.5 else "stays"
    return rows, [f"--function=graders:{name}"]


def policy(rng: np.random.Generator, scale: float = 1.5) -> Policy:
    """A small transformer whose logits are so large."""
    seed = int(rng.integers(1 << 30))
    made = Policy(policy_size("tiny"), vocabulary_size=len(WORDS), context=64, seed=seed)
    made.head.weight.data *= scale
    return made


def between(first: Policy, last: Policy, share: float, rng: np.random.Generator) -> Policy:
    """The policy a share of the way from one to another."""
    made, own = policy(rng), last.state_dict()
    made.load_state_dict(
        {name: old + share * (own[name] - old) for name, old in first.state_dict().items()}
    )
    return made


@torch.no_grad()
def answers(
    sampler: Policy, rng: np.random.Generator, longest: int, noise: float = 0.0, top: float = 2.0
) -> list[Row]:
    """Draw eight answers to each of eight prompts, with the log-probability of each token."""
    prompts = [f"{a}+{b}=" for a, b in rng.integers(10, 99, size=(8, 2)) for _ in range(8)]
    ids_NL, scores = torch.tensor([WORDS.encode(prompt) for prompt in prompts]), []
    for _ in range(longest):
        logit_NV = sampler(ids_NL)[:, -1]
        logit_NV += noise * torch.randn_like(logit_NV)
        chance_NV, token_NV = logit_NV.softmax(-1).sort(descending=True)
        chance_NV[chance_NV.cumsum(1) - chance_NV >= top] = 0
        at_N1 = chance_NV.multinomial(1)
        scores.append((chance_NV / chance_NV.sum(1, keepdim=True)).gather(1, at_N1).log())
        ids_NL = torch.cat([ids_NL, token_NV.gather(1, at_N1)], dim=1)
    rows = []
    for prompt, all_ids, score in zip(prompts, ids_NL.tolist(), torch.cat(scores, 1), strict=True):
        ids = all_ids[len(prompt) :]
        own = ids[: ids.index(END)] if END in ids else ids
        text = "".join(WORDS.symbols[token - 2] for token in own if token > END)
        row = {"prompt": prompt, "completion": text, "completion_ids": own, "reward": 0.0}
        rows.append({**row, "logprobs": score[: len(own) + 1].tolist()})
    return rows


def sampled(cause: str, rng: np.random.Generator) -> Given:
    """Log answers of a sampler beside the checkpoint that should have drawn them, and the first."""
    lag, noise, top = rng.uniform((0.02, 0.002, 0.6), (0.7, 0.08, 0.99))
    first, last = policy(rng), policy(rng)
    own = between(first, last, 0.1, rng)
    weights = {"never_synchronised": first, "stale_queue": between(own, first, lag, rng)}
    how = {"precision": {"noise": noise}, "sampling_truncated": {"top": top}}
    rows = answers(weights.get(cause, own), rng, LONGEST, **how.get(cause, {}))
    for made, folder in ((own, MODEL), (first, FIRST)):
        save_policy(made, folder, WORDS)
    return rows, [f"--model={MODEL}", f"--reference={FIRST}"]


def answered(cause: str, rng: np.random.Generator) -> Given:
    """Log answers of a policy beside its checkpoint: one to each prompt, which is right for some,
    or many of which hardly any is right.
    """
    low, high, right = (60, 400, rng.uniform(0, 30)) if cause == "concentration" else (1, 5, 1)
    sampler = policy(rng, float(np.exp(rng.uniform(*np.log((low, high))))))
    save_policy(sampler, MODEL, WORDS)
    rows = answers(sampler, rng, SHORT)
    paid = graders(right)["rarely"](*(column(rows, key) for key in ("prompt", "completion")))
    rows = [{**row, "reward": own} for row, own in zip(rows, paid, strict=True)]
    limit = f"--set=max_completion_length={SHORT}"
    return rows, ["--function=graders:rarely", f"--model={MODEL}", limit]


def trained(cause: str, rng: np.random.Generator) -> RunRecord:
    """Train, and leave a log of the reward alone beside the checkpoints."""
    ramp, onset, start = (int(rng.integers(*ends)) for ends in ((100, 400), (60, 300), (0, 4)))
    low, high = (0.005, 0.1) if cause == "edge" else (1e-4, 6e-4)
    rate, share = float(np.exp(rng.uniform(*np.log((low, high))))), float(rng.uniform(0.5, 0.95))
    task = make_task("modular_addition", level=1)
    actor = Policy(policy_size("tiny"), vocabulary_size=len(task.vocabulary), seed=start)
    warm_up(actor, task, accuracy=0.6, seed=start, cache=default_cache())
    if cause == "noise":
        task = replace(task, verifier=FailingVerifier(task.verifier, from_step=onset, share=share))
    settings = TrainSettings(
        rollouts_per_step=64,
        steps=STEPS,
        learning_rate=rate,
        ramp_steps=ramp,
        checkpoint_every=STEPS,
        evaluate_every=0,
        rollouts_every=0,
        seed=onset,
    )
    record = train(actor, task, settings, output=RUN)
    Path(RUN, JOURNAL).unlink()
    alone = tuple(meaning for meaning in record.meanings if meaning.column == "reward")
    return replace(record, meanings=alone)


def written(record: RunRecord, rows: Sequence[Row]) -> list[str]:
    """Write the log of a run and the rollouts of each step, the last one's where they have none;
    return the settings that its user knows.
    """
    columns = ["step", *(meaning.column for meaning in record.meanings)]
    files = {Path(RUN, "metrics.jsonl"): [*record.steps.select(columns).iter_rows(named=True)]}
    last = {"step": int(record.steps["step"][-1])}
    for row in rows:
        path = Path(RUN, "rollouts", f"{(last | row)['step']}.jsonl")
        files.setdefault(path, []).append(last | row)
    for path, lines in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    names = ("group_size", "prompts_per_step", "framework")
    return [f"--set={name}={record.config.value(name)}" for name in names]


def said(command: Callable[[list[str]], Any], *words: str) -> Any:
    """What `probe` of a command says."""
    out = io.StringIO()
    with redirect_stdout(out):
        command(["probe", *words, "--json"])
    return json.loads(out.getvalue())


def counted(cause: str, seed: int) -> Row | None:
    """Make the experiment that is named first on a run of a cause, and judge anew; None where its
    log does not leave the causes open.
    """
    kind, keys = TIES[cause]
    rng = np.random.default_rng([seed, zlib.crc32(cause.encode())])
    torch.manual_seed(seed)
    rows, given = list[Row](), list[str]()
    if cause in TRAINED:
        record = trained(cause, rng)
    else:
        record, truth = run_of(kind, seed)
        if record.rollouts is not None or {*contenders(judge(record).cause)} != keys:
            return None
        if cause in GRADED:
            rows, given = graded(record, truth.onset or 0, cause, rng)
        else:
            rows, given = (sampled if cause in SAMPLERS else answered)(cause, rng)
    options = written(record, rows)
    listed = said(groupwise, RUN, *options)
    if {*listed["causes"]} != keys:
        return None
    name, cause = listed["probes"][0]["probe"], TRAINED.get(cause, cause)
    asked = (laboratory, name, RUN) if name == "kick" else (groupwise, RUN, name, *options, *given)
    result = said(*asked)["result"]
    after = said(groupwise, RUN, *options)["judgement"]["cause"]
    outcomes = KINDS[name].outcomes
    spoken = [outcome.chances for outcome in outcomes if outcome.fact.name == result["outcome"]]
    sizes = [record.config.value(size) for size in ("prompts_per_step", "group_size")]
    return {
        "right": bool(spoken) and spoken[0].get(cause, 0.0) == max(spoken[0].values()),
        "likely": after["certainty"] == "likely" and after["names"] == [label_of(cause)],
        "cost": result["rollouts"] / (float(np.prod(sizes)) * record.steps["step"][-1]),
    }


def runs(cause: str) -> Iterator[Row]:
    """Yield what comes of the runs of a cause, each in a folder of its own."""
    for seed in count(FIRST_SEED + 1):
        with TemporaryDirectory() as folder, chdir(folder):
            if (row := counted(cause, seed)) is not None:
                yield row


def summed(rows: Sequence[Row]) -> Row:
    """How many were right, and likely too, and the median cost."""
    shares = {name: int(column(rows, name).sum()) for name in ("right", "likely")}
    return {**shares, "cost": f"{np.median(column(rows, 'cost')):.4f}"}


def main() -> None:
    """Make the experiments and write the table."""
    torch.set_num_threads(1)
    number, rows, every = arguments(__doc__, runs=25).runs, [], []
    for cause in TIES:
        every += (own := list(islice(runs(cause), number)))
        rows.append({"cause": cause, "runs": number, **summed(own)})
        print(*rows[-1].values(), sep="\t", flush=True)
    RESULTS.write("ties", rows)
    print("all", len(every), *summed(every).values(), sep="\t")


if __name__ == "__main__":
    main()
