"""The command `groupwise-lab evaluate`: models asked benchmarks, compared problem by problem,
and a run's transfer over its checkpoints.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from groupwise.cli.app import (
    out_console,
    print_json,
    progress,
)
from groupwise.errors import (
    GroupwiseError,
    InsufficientDataError,
    InvalidArgumentError,
    check_installed,
)
from groupwise.parsing import JsonObject
from groupwise.plain import frozen
from groupwise.wording import count

if TYPE_CHECKING:
    from groupwise.intervals import Interval
    from groupwise.pages.tables import Grid
    from groupwise.pages.text import Printer
    from groupwise_lab.trainer.accuracy import Answers, PairedComparison, Score, TransferRow
    from groupwise_lab.trainer.benchmarks import AnswerEquivalence
    from groupwise_lab.trainer.evaluate import Paper, Sampling
    from groupwise_lab.trainer.tasks import Task

_MOST_MODELS = 200
_MUCH_CUT = 0.05
_MOST_COLUMNS = 9


@frozen
class Examination:
    """What came out."""

    labels: tuple[str, ...]  # of the models, a run's checkpoints by their step
    answers: tuple[Mapping[str, Answers], ...]  # of each model, by benchmark
    k: int  # of pass@k
    level: float  # of the intervals
    transfer: tuple[TransferRow, ...]  # over checkpoints, where it was asked for
    trained_on: str | None  # benchmark that they were trained on, where named
    notes: tuple[str, ...]  # what is to be known

    def scores(self, model: int, benchmark: str) -> tuple[Score, Score]:
        """Return mean@n and pass@k of one model on one benchmark."""
        from groupwise_lab.trainer.accuracy import mean_at, pass_at

        answers = self.answers[model][benchmark]
        return mean_at(answers, level=self.level), pass_at(answers, self.k, level=self.level)

    def comparisons(self) -> tuple[PairedComparison, ...]:
        """Return the second model against the first, where there are two."""
        from groupwise_lab.trainer.accuracy import compare

        if len(self.answers) != 2:
            return ()
        first, second = self.answers
        return tuple(compare(first[name], second[name], level=self.level) for name in first)

    def as_dict(self) -> JsonObject:
        """Plain data for JSON."""
        models = []
        for place, label in enumerate(self.labels):
            rows = []
            for name, answers in self.answers[place].items():
                mean, passed = self.scores(place, name)
                counts = {
                    field: getattr(answers, field)
                    for field in ("problems", "samples", "undecided", "cut", "too_long")
                }
                right = answers.right_P.tolist()
                rows.append(
                    {
                        "benchmark": name,
                        **counts,
                        "mean": mean.as_dict(),
                        f"pass@{self.k}": passed.as_dict(),
                        "right": right,
                    }
                )
            models.append({"model": label, "benchmarks": rows})
        plain: JsonObject = {
            "models": models,
            "k": self.k,
            "level": self.level,
            "notes": self.notes,
        }
        plain["comparisons"] = [comparison.as_dict() for comparison in self.comparisons()]
        return plain | {
            "trained_on": self.trained_on,
            "transfer": [row.as_dict() for row in self.transfer],
        }


def evaluate(
    models: list[Path],
    *,
    benchmark: str | None = None,
    data: Path | None = None,
    problems: int | None = None,
    k: int = 1,
    samples: int | None = None,
    trained_on: str | None = None,
    checkpoints: bool = False,
    temperature: float = 1.0,
    max_tokens: int = 1024,
    batch_size: int = 64,
    seed: int = 0,
    template: str | None = None,
    chat: bool = True,
    stop: list[str] | None = None,
    time_limit: float = 5.0,
    device: str = "cpu",
    precision: str = "float32",
    level: float = 0.95,
    as_json: bool = False,
) -> None:
    """Score models on benchmarks, compare two, or show what a run's training transferred to."""
    from groupwise.pages.text import Printer
    from groupwise_lab.trainer.accuracy import transfer
    from groupwise_lab.trainer.evaluate import INSTRUCTION, Sampling

    sampling = Sampling(
        k if samples is None else samples,
        temperature,
        max_tokens,
        batch_size,
        seed,
        template or INSTRUCTION,
        chat,
        tuple(stop or ()),
    )
    _check(k, sampling.samples, time_limit)
    folders, in_order = _models(models, over_checkpoints=checkpoints)
    trained = _trained([path for _, path in folders])
    if benchmark is not None:
        papers, trained_on = _named_papers(benchmark, data, problems, seed, trained, trained_on)
    else:
        papers, trained_on = _transfer_papers(folders[0][1], problems, seed, trained, trained_on)
    with ExitStack() as stack:
        same = _judge(papers, time_limit, stack)
        answers = [
            _answers(folder, papers, sampling, same, device, precision, quiet=as_json)
            for folder in folders
        ]
    if len(folders) == 1 and checkpoints:
        raise InsufficientDataError(
            "expected two checkpoints or more for transfer, got 1: keep more of them while training"
        )
    labels = [label for label, _ in folders]
    rows = transfer(answers, trained_on=trained_on, level=level) if in_order else ()
    notes = [note for paper in papers for note in paper.notes] + _notes(
        labels, answers, papers, max_tokens, judged=same is not None
    )
    examination = Examination(
        tuple(labels), tuple(answers), k, level, rows, trained_on, tuple(notes)
    )
    if as_json:
        print_json({**examination.as_dict(), "settings": dataclasses.asdict(sampling)})
    else:
        print_examination(examination, Printer(out_console()))


def _check(k: int, samples: int, time_limit: float) -> None:
    """Refuse what no model can be asked."""
    from groupwise_lab.trainer.worker import check_limit

    check_installed("torch", "safetensors", what="evaluation")
    if not 1 <= k <= samples:
        raise InvalidArgumentError(
            f"-k expects from 1 to the {samples} answers of a problem; got {k}: raise --samples"
        )
    check_limit(time_limit)


def _models(
    paths: Sequence[Path], *, over_checkpoints: bool
) -> tuple[list[tuple[str, Path]], bool]:
    """Return labels and folders of the models, and whether they are the checkpoints of one run."""
    from groupwise.gradients.language_models import model_folder
    from groupwise_lab.trainer.evaluate import checkpoints_of, holds_model

    paths = [model_folder(path) for path in paths]
    for path in paths:
        if not path.is_dir():
            raise GroupwiseError(
                f"expected a folder with a model or a run, got {path}, which is none: give its path"
            )
    if len(paths) == 1 and (over_checkpoints or not holds_model(paths[0])):
        named = [(f"step {step}", path) for step, path in checkpoints_of(paths[0])]
    elif over_checkpoints:
        raise InvalidArgumentError(f"--checkpoints expects one run; got {len(paths)} folders")
    else:
        names = [path.resolve().name for path in paths]
        named = [
            (name if names.count(name) == 1 else str(path), path)
            for name, path in zip(names, paths, strict=True)
        ]
    if len(named) > _MOST_MODELS:
        raise InvalidArgumentError(
            f"expected at most {_MOST_MODELS} checkpoints, got {len(named)}: move some away"
        )
    return named, (len(paths) == 1 and len(named) > 1) or len(paths) > 2


def _named_papers(
    benchmark: str,
    data: Path | None,
    problems: int | None,
    seed: int,
    trained: Task | None,
    trained_on: str | None,
) -> tuple[tuple[Paper, ...], str | None]:
    """Return the benchmarks that were named, and which of them was trained on."""
    from groupwise_lab.trainer.evaluate import papers_of, task_label

    names = [name for name in benchmark.split(",") if name.strip()]
    papers = papers_of(names, data=data, problems=problems, seed=seed, trained=trained)
    wanted = {paper.name for paper in papers}
    if trained_on is not None and trained_on not in wanted:
        raise InvalidArgumentError(
            f"--trained-on expects one of --benchmark, so that it is asked too; got {trained_on}"
        )
    own = task_label(trained) if trained is not None else None
    return papers, trained_on or (own if own in wanted else None)


def _transfer_papers(
    folder: Path, problems: int | None, seed: int, trained: Task | None, trained_on: str | None
) -> tuple[tuple[Paper, ...], str | None]:
    """Return all that a policy may transfer to, where no benchmark was named; the first is what
    it was trained on.
    """
    from groupwise_lab.trainer.checkpoints import policy_vocabulary
    from groupwise_lab.trainer.evaluate import named_task, task_label, transfer_papers

    if trained is None and trained_on is not None and policy_vocabulary(folder) is not None:
        trained = named_task(trained_on, seed=seed)
    if trained is None or trained_on not in {None, task_label(trained), trained.name}:
        raise InvalidArgumentError(
            "--benchmark is missing: name files as gsm8k=FILE or tasks as addition/2, or say "
            "--trained-on TASK of a policy that does not"
        )
    papers = transfer_papers(trained, problems=problems, seed=seed)
    return papers, papers[0].name


def _trained(folders: Sequence[Path]) -> Task | None:
    """Return the task that all checkpoints say they were trained on."""
    from groupwise_lab.trainer.file_task import read_task

    tasks = [read_task(folder) for folder in folders]
    first = tasks[0]
    if any(
        task is not None and first is not None and task.recipe != first.recipe for task in tasks
    ):
        raise InvalidArgumentError(
            "expected models that were trained on one task, got several: evaluate them one by one"
        )
    return first


def _judge(papers: Sequence[Paper], limit: float, stack: ExitStack) -> AnswerEquivalence | None:
    """Return math-verify where it is needed and installed."""
    from groupwise_lab.trainer.worker import MathVerify

    if (
        not any(paper.entry is not None and paper.entry.kind == "math" for paper in papers)
        or util.find_spec("math_verify") is None
    ):
        return None
    return stack.enter_context(closing(MathVerify(limit=limit)))


def _answers(
    folder: tuple[str, Path],
    papers: Sequence[Paper],
    sampling: Sampling,
    same: AnswerEquivalence | None,
    device: str,
    precision: str,
    *,
    quiet: bool,
) -> dict[str, Answers]:
    """Ask one model everything."""
    import torch

    from groupwise_lab.trainer.evaluate import examine, open_model

    label, path = folder
    try:
        model = open_model(path, device=device, precision=cast("Any", precision), name=label)
        with progress(quiet=quiet) as show:
            return {
                paper.name: examine(
                    model,
                    paper,
                    sampling,
                    same=same,
                    progress=partial(show, f"{label}: {paper.name}"),
                )
                for paper in papers
            }
    except torch.cuda.OutOfMemoryError:
        raise GroupwiseError(
            f"expected memory on {device} for {label} and {sampling.batch_size} answers at once, "
            "got too little: lower --batch-size"
        ) from None


def _notes(
    labels: Sequence[str],
    answers: Sequence[Mapping[str, Answers]],
    papers: Sequence[Paper],
    max_tokens: int,
    *,
    judged: bool,
) -> list[str]:
    """Say what a reader of the scores has to know."""
    why = (
        "math-verify could not decide"
        if judged
        else "math-verify, which is not installed, would have to decide"
    )
    notes = []
    for paper in papers:
        limit = (
            f"{count(max_tokens, 'token')} or the end of the context; raise --max-tokens where "
            "that is low"
        )
        if paper.task is not None and paper.task.completion_length <= max_tokens:
            limit = (
                f"{paper.task.completion_length} tokens, the longest right answer, or the end of "
                "the context"
            )
        for label, result in zip(labels, answers, strict=True):
            answer = result[paper.name]
            drawn, where = answer.problems * answer.samples, f"{label}, {paper.name}"
            if answer.undecided:
                notes.append(
                    f"{where}: {answer.undecided} of {drawn} answers count as wrong because {why}"
                )
            if answer.cut > _MUCH_CUT * drawn:
                notes.append(f"{where}: {answer.cut} of {drawn} answers were cut off at {limit}")
            if answer.too_long:
                notes.append(
                    f"{where}: {answer.too_long} of {answer.problems} problems do not fit into the "
                    "model's context and count as wrong"
                )
    return notes


def print_examination(examination: Examination, out: Printer) -> None:
    """Print what came out."""
    if examination.transfer:
        out.grid(_transfer(examination))
        out.grid(_means(examination))
    else:
        for model, label in enumerate(examination.labels):
            out.line(f"{label}:")
            out.grid(_scores(examination, model))
    if examination.comparisons() and not examination.transfer:
        out.line(f"{examination.labels[1]} minus {examination.labels[0]}, problem by problem:")
        out.grid(_comparisons(examination))
    for note in examination.notes:
        out.line(f"· {note}.")


def _scores(examination: Examination, model: int) -> Grid:
    """Return the scores of one model."""
    from groupwise.intervals import percent

    samples = next(iter(examination.answers[model].values())).samples
    head = ["Benchmark", "Problems", f"mean@{samples}", "s.e.", percent(examination.level)]
    rows = []
    for name, answers in examination.answers[model].items():
        mean, passed = examination.scores(model, name)
        row = [
            name,
            str(answers.problems),
            _number(mean.interval.value),
            _number(mean.error),
            _ends(mean.interval),
        ]
        rows.append(
            [
                *row,
                *(
                    [_number(passed.interval.value), _ends(passed.interval)]
                    if examination.k > 1
                    else []
                ),
            ]
        )
    return _grid(
        [
            *head,
            *([f"pass@{examination.k}", percent(examination.level)] if examination.k > 1 else []),
        ],
        rows,
    )


def _comparisons(examination: Examination) -> Grid:
    """Return the difference of two models."""
    from groupwise.intervals import percent

    rows = []
    for row in examination.comparisons():
        counts = [str(count) for count in (row.better, row.worse, row.same)]
        rows.append(
            [
                row.benchmark,
                f"{row.difference.value:+.3f}",
                _number(row.error),
                _ends(row.difference, signed=True),
                *counts,
            ]
        )
    return _grid(
        ["Benchmark", "Difference", "s.e.", percent(examination.level), "Better", "Worse", "Same"],
        rows,
    )


def _transfer(examination: Examination) -> Grid:
    """Return the gains from first to last checkpoint."""
    from groupwise.intervals import percent

    named = examination.trained_on is not None
    head = [
        "Benchmark",
        examination.labels[0],
        examination.labels[-1],
        "Gain",
        percent(examination.level),
    ]
    rows = []
    for row in examination.transfer:
        first, last = row.scores[0].interval.value, row.scores[-1].interval.value
        gain = row.gain.difference
        cells = [
            row.benchmark,
            _number(first),
            _number(last),
            f"{gain.value:+.3f}",
            _ends(gain, signed=True),
        ]
        if named and row.ratio is None:
            cells += ["trained on", "", ""]
        elif row.ratio is not None:
            bounded = row.ratio.bounded
            share = _number(row.ratio.value if bounded else None, places=2)
            cells += [
                share,
                _ends(row.ratio, places=2) if bounded else "not known",
                _number(row.correlation, places=2),
            ]
        rows.append(cells)
    return _grid(
        [
            *head,
            *(
                ["Share of the gain trained for", percent(examination.level), "Correlation"]
                if named
                else []
            ),
        ],
        rows,
    )


def _means(examination: Examination) -> Grid:
    """Return mean@n at every checkpoint, or at some of many."""
    last = len(examination.labels) - 1
    shown = (
        range(last + 1)
        if last < _MOST_COLUMNS
        else [round(place * last / (_MOST_COLUMNS - 1)) for place in range(_MOST_COLUMNS)]
    )
    samples = next(iter(examination.answers[0].values())).samples
    rows = [
        [row.benchmark, *(_number(row.scores[place].interval.value) for place in shown)]
        for row in examination.transfer
    ]
    return _grid([f"mean@{samples}", *(examination.labels[place] for place in shown)], rows)


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Grid:
    """Return a table with a column of names and columns of numbers."""
    from groupwise.pages.tables import Grid

    return Grid(tuple(head), tuple(map(tuple, rows)), tuple(range(1, len(head))))


def _number(value: float | None, *, places: int = 3) -> str:
    """Write a number that may be missing."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.{places}f}"


def _ends(interval: Interval, *, signed: bool = False, places: int = 3) -> str:
    """Write the ends of an interval."""
    low, high = (
        f"{end:+.{places}f}" if signed else f"{end:.{places}f}"
        for end in (interval.low, interval.high)
    )
    return f"{low} to {high}"
