"""Eight failures made on purpose in a real language model, and what the judgement says of each.

    python lab/experiments/language_models/failures.py [--tables] [--workers 1] [--minutes 60]
    [--only TEXT]

runs what is missing: SmolLM2 with a LoRA adapter, 64 rollouts an update, two seeds of each failure,
every completion recorded with its strict and its sloppy reward. Journals are kept, compressed, in
tests/fixtures/language_models, where the judgement of each is tested; the table of
lab/docs/studies/language-models.md is printed.
"""

import gzip
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from small_model import (
    FORMATS,
    HOME,
    PAGE,
    RESULTS,
    Cell,
    Row,
    Rows,
    options,
    policy,
    print_table,
    run_and_show,
    settings,
)

import groupwise as gw
from groupwise.parsing import JsonView
from groupwise.readers import run_record
from groupwise_lab.trainer.grpo import train
from groupwise_lab.trainer.rewards import FailingVerifier, Problem, TaskVerifier
from groupwise_lab.trainer.tasks import Task
from groupwise_lab.trainer.text_tasks import make_text_task

PIECES = RESULTS.within("failures")
JOURNALS = HOME.parents[1] / "tests" / "fixtures" / "language_models"
BREAKS_AT = 18


def world(name: str, form: str, **options) -> Task:
    """A task in a format."""
    return make_text_task(name, examples=FORMATS[form], **options)


def plain(task: Task) -> Task:
    """A task whose chats are texts without the system message that SmolLM2's template puts
    first: with it nothing was hacked.
    """

    def text(problem: Problem) -> Problem:
        said = "".join(
            f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n"
            for message in problem.prompt
            if isinstance(message, Mapping)
        )
        return replace(problem, prompt=f"{said}<|im_start|>assistant\n")

    return replace(
        task,
        train=tuple(map(text, task.train)),
        held_out=tuple(map(text, task.held_out)),
        recipe={},
    )


def paid_by_length() -> Task:
    """The larger of two numbers, and a reward for every character besides."""
    task = world("larger_of_two", "three_examples", completion_length=40)

    def long(_problem: Problem, completion: str, _ended: bool) -> float:  # noqa: FBT001
        return len(completion) / 40

    assert isinstance(task.verifier, TaskVerifier)
    functions = {"strict": task.verifier.functions["strict"], "style": long}
    return replace(task, verifier=TaskVerifier(functions, {"strict": 1.0, "style": 1.0}))


def breaking() -> Task:
    """A verifier that returns 0 from a step on."""
    task = world("larger_of_two", "three_examples")
    return replace(task, verifier=FailingVerifier(task.verifier, from_step=BREAKS_AT))


class Phases(Sequence[Problem]):
    """Problems of one task until a step, and of another from there on."""

    def __init__(self, easy: Sequence[Problem], hard: Sequence[Problem]) -> None:
        self.phases, self.now = (easy, hard), 0

    def __len__(self) -> int:
        """As many as both have."""
        return min(map(len, self.phases))

    def __getitem__(self, place):
        """Of the phase."""
        return self.phases[self.now][place]

    def __iter__(self) -> Iterator[Problem]:
        """Of the phase."""
        return iter(self.phases[self.now][: len(self)])


@dataclass(frozen=True)
class ByFamily:
    """Each problem judged by the verifier of its own task."""

    verifiers: Row
    weights: dict[str, float] = field(default_factory=lambda: {"strict": 1.0, "sloppy": 0.0})

    def __call__(
        self,
        problems: Sequence[Problem],
        completions: Sequence[str],
        ended: Sequence[bool],
        *,
        step: int = 0,
    ):
        """Judge; the problems of a step are of one family."""
        return self.verifiers[problems[0].family](problems, completions, ended, step=step)


def harder() -> Task:
    """The larger of two numbers, and from a step on digits to sort; what is held out stays easy."""
    easy, hard = world("larger_of_two", "three_examples"), world("sort_three", "three_examples")
    phases = Phases(easy.train, hard.train)
    both = ByFamily({easy.name: easy.verifier, hard.name: hard.verifier})
    return replace(
        easy, train=phases, verifier=both, completion_length=hard.completion_length, recipe={}
    )


@dataclass(frozen=True)
class Failure:
    """One way to go wrong."""

    task: Callable[[], Task]
    steps: int
    rate: float
    group_size: int
    others: Row = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1)


NORMALISED = {"advantage": "std_normalised"}
FAILURES = {
    "reward_hack": Failure(
        lambda: plain(world("larger_of_two", "zero_shot", verifier="sloppy")),
        30,
        5e-4,
        16,
        NORMALISED,
    ),
    "broken_verifier": Failure(breaking, 36, 3e-4, 8),
    "entropy_collapse": Failure(
        lambda: world("larger_of_two", "three_examples"), 30, 3e-3, 8, NORMALISED
    ),
    "length_runaway": Failure(paid_by_length, 30, 5e-4, 8),
    "staleness": Failure(
        lambda: world("larger_of_two", "three_examples"),
        40,
        1e-3,
        8,
        {"lag_kind": "refresh", "refresh_interval": 10},
    ),
    "zero_variance": Failure(lambda: world("letters", "zero_shot"), 30, 3e-4, 2),
    "harder_data": Failure(harder, 36, 3e-4, 8),
    # The two seeds that `best_group_size.py` saw caught by their first updates; no rule was mended
    # on them.
    "concentration": Failure(
        lambda: world("larger_of_two", "three_examples"), 25, 3e-4, 2, seeds=(1, 2)
    ),
}


def broken(name: str, seed: int) -> Rows:
    """Train, keep the journal, and return what the judgement says."""
    began, failure = time.process_time(), FAILURES[name]
    task, actor = failure.task(), policy()
    others = {"rollouts_every": 1, "evaluate_every": 6, "evaluation_problems": 24, **failure.others}
    chosen = settings("adamw", failure.rate, failure.group_size, seed, failure.steps, **others)

    def change_phase(step: int, _row) -> None:
        if isinstance(task.train, Phases):
            task.train.now = int(step + 1 >= BREAKS_AT)

    with tempfile.TemporaryDirectory() as home:
        train(actor, task, chosen, output=Path(home) / name, on_step=change_phase)
        journal = JOURNALS / f"{name}-seed{seed}.jsonl.gz"
        journal.parent.mkdir(parents=True, exist_ok=True)
        with (
            (Path(home) / name / "journal.jsonl").open("rb") as source,
            gzip.open(journal, "wb") as target,
        ):
            shutil.copyfileobj(source, target)
        return [judged(Path(home) / name) | {"seconds": time.process_time() - began}]


def judged(run: Path) -> Row:
    """What the judgement says of a run."""
    judgement = gw.open_run(run).judgement
    sign = judgement.first_sign
    return {
        "state": judgement.state,
        "headline": judgement.headline,
        "certainty": judgement.cause.certainty,
        "causes": "; ".join(judgement.cause.names),
        "log": "; ".join(judgement.cause.log),
        "sign": "" if sign is None else sign.signal,
        "step": "" if sign is None else sign.step,
    }


def cause(row: JsonView) -> str:
    """The cause of a judgement and how certain it is."""
    return f"{row['certainty']}: {row['causes']}" if row["causes"] else "none"


def moved(run: Path, name: str) -> str:
    """The mean of a column over the first fifth of a run's rows, and over the last."""
    rows = run_record(run).steps[name].drop_nulls().to_numpy()
    part = max(1, len(rows) // 5)
    return f"{rows[:part].mean():.2f} → {rows[-part:].mean():.2f}"


def cells() -> list[Cell]:
    """First seeds first."""
    members = [(seed, name) for name, failure in FAILURES.items() for seed in failure.seeds]
    return [
        Cell(f"{name}-seed{seed}", broken, {"name": name, "seed": seed})
        for seed, name in sorted(members, key=lambda pair: pair[0])
    ]


def show() -> None:
    """Print what the judgement says now of every journal that is there, what it said when the
    run had ended, and what moved.
    """
    rows, first = [], PIECES.tables()
    for path in sorted(JOURNALS.glob("*.jsonl.gz")):
        with tempfile.TemporaryDirectory() as home:
            run = Path(home) / path.name.removesuffix(".jsonl.gz")
            run.mkdir()
            (run / "journal.jsonl").write_bytes(gzip.decompress(path.read_bytes()))
            row, seen = judged(run), [moved(run, name) for name in ("truncated_share", "entropy")]
        judgement = f"{first[run.name][0]['state']}, {cause(first[run.name][0])}"
        rows.append(
            [
                f"{run.name} | {row['state']} | {row['headline']}",
                cause(row),
                f"{row['sign']} {row['step']}".strip(),
                judgement,
                *seen,
            ]
        )
    head = (
        "run | state | headline | cause | first sign | "
        "said first, before rules were mended | truncated | entropy, nats a token"
    )
    print_table("Failures made on purpose", head, rows)


def main() -> None:
    """Run what is missing and print the table."""
    run_and_show(cells(), PIECES, options(__doc__), show, PAGE)


if __name__ == "__main__":
    main()
