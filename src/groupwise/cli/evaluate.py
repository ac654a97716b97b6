"""The command `groupwise evaluate`: models asked benchmarks, compared problem by problem, and a run's transfer over its checkpoints.

One model gives its scores, two a comparison, more or a run's folder the table of transfer. The statistics are in
`groupwise.trainer.accuracy` and `transfer`; here options become their arguments.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from groupwise.cli.examined import Examination
from groupwise.cli.options import checked_share, counting, out_console, print_json
from groupwise.errors import GroupwiseError, InsufficientDataError, InvalidArgumentError

if TYPE_CHECKING:
    from groupwise.trainer.accuracy import Answers
    from groupwise.trainer.benchmarks import SameMathematics
    from groupwise.trainer.evaluate import Paper, Sampling
    from groupwise.trainer.tasks import Task

_MOST_MODELS = 200
_MUCH_CUT = 0.05


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be asked, as typed; None is not given."""

    benchmarks: str | None  # names with commas between them
    data: Path | None  # folder of benchmark files
    problems: int | None  # of each at most
    trained_on: str | None  # benchmark or task that the models were trained on
    k: int  # of pass@k
    checkpoints: bool  # whether a folder with a model and checkpoints is taken for a run
    time_limit: float  # seconds that math-verify has for one answer


def run(models: Sequence[Path], wish: Wish, sampling: Sampling, *, device: str, precision: str, level: float, as_json: bool) -> None:
    """Ask, count and print."""
    from importlib.util import find_spec

    checked_share("--level", level)
    if find_spec("torch") is None or find_spec("safetensors") is None:
        raise GroupwiseError("expected torch and safetensors to be installed for evaluation: pip install 'groupwise[hf]'")
    if not 1 <= wish.k <= sampling.samples:
        raise InvalidArgumentError(f"-k expects from 1 to the {sampling.samples} answers of a problem; got {wish.k}: raise --samples")
    _check_precision(precision)
    folders, in_order = _models(models, over_checkpoints=wish.checkpoints)
    papers, trained_on = _papers(wish, [path for _, path in folders], sampling.seed)
    with ExitStack() as stack:
        same = _judge(papers, wish, stack)
        answers = [_answers(path, label, papers, sampling, same, device, precision, quiet=as_json) for label, path in folders]
    found = _examination(
        [label for label, _ in folders], answers, papers, wish, trained_on, level, in_order=in_order, judged=same is not None
    )
    if as_json:
        print_json({**found.as_dict(), "settings": dataclasses.asdict(sampling)})
        return
    from groupwise.cli.evaluate_text import print_examination

    print_examination(found, out_console())


def _models(paths: Sequence[Path], *, over_checkpoints: bool) -> tuple[list[tuple[str, Path]], bool]:
    """Return labels and folders of the models, and whether they are the checkpoints of one run."""
    from groupwise.trainer.evaluate import checkpoints_of, holds_model

    for path in paths:
        if not path.is_dir():
            raise GroupwiseError(f"expected a folder with a model or a run, got {path}, which is none: give its path")
    if len(paths) == 1 and (over_checkpoints or not holds_model(paths[0])):
        found = [(f"step {step}", path) for step, path in checkpoints_of(paths[0])]
    elif over_checkpoints:
        raise InvalidArgumentError(f"--checkpoints expects one run; got {len(paths)} folders")
    else:
        names = [path.resolve().name for path in paths]
        found = [(name if names.count(name) == 1 else str(path), path) for name, path in zip(names, paths, strict=True)]
    if len(found) > _MOST_MODELS:
        raise InvalidArgumentError(f"expected at most {_MOST_MODELS} checkpoints, got {len(found)}: move some away")
    return found, (len(paths) == 1 and len(found) > 1) or len(paths) > 2


def _papers(wish: Wish, folders: Sequence[Path], seed: int) -> tuple[tuple[Paper, ...], str | None]:
    """Return what is asked, and which of it was trained on; of a policy, where nothing is named, all that it may transfer to."""
    from groupwise.trainer.checkpoints import policy_vocabulary
    from groupwise.trainer.evaluate import named_task, papers_of, task_label, transfer_papers

    if wish.problems is not None and wish.problems < 1:
        raise InvalidArgumentError(f"--problems expects 1 or more; got {wish.problems}")
    trained = _trained(folders)
    if wish.benchmarks is not None:
        names = [name for name in wish.benchmarks.split(",") if name.strip()]
        papers = papers_of(names, data=wish.data, problems=wish.problems, seed=seed, trained=trained)
        asked = {paper.name for paper in papers}
        if wish.trained_on is not None and wish.trained_on not in asked:
            raise InvalidArgumentError(f"--trained-on expects one of --benchmark, so that it is asked too; got {wish.trained_on}")
        own = task_label(trained) if trained is not None else None
        return papers, wish.trained_on or (own if own in asked else None)
    if trained is None and wish.trained_on is not None and policy_vocabulary(folders[0]) is not None:
        trained = named_task(wish.trained_on, seed=seed)
    if trained is None or wish.trained_on not in {None, task_label(trained), trained.name}:
        raise InvalidArgumentError(
            "--benchmark is missing: name files as gsm8k=FILE or tasks as addition/2, or say --trained-on TASK of a policy that does not"
        )
    papers = transfer_papers(trained, problems=wish.problems, seed=seed)
    return papers, papers[0].name


def _trained(folders: Sequence[Path]) -> Task | None:
    """Return the task that all checkpoints say they were trained on."""
    from groupwise.trainer.tasks import read_task

    tasks = [read_task(folder) for folder in folders]
    first = tasks[0]
    if any(task is not None and first is not None and task.recipe != first.recipe for task in tasks):
        raise InvalidArgumentError("expected models that were trained on one task, got several: evaluate them one by one")
    return first


def _judge(papers: Sequence[Paper], wish: Wish, stack: ExitStack) -> SameMathematics | None:
    """Return math-verify where it is needed and installed."""
    from importlib.util import find_spec

    from groupwise.trainer.math_judge import MathVerify, check_limit

    check_limit(wish.time_limit)
    if not any(paper.entry is not None and paper.entry.kind == "math" for paper in papers) or find_spec("math_verify") is None:
        return None
    return stack.enter_context(MathVerify(limit=wish.time_limit))


def _answers(
    path: Path,
    label: str,
    papers: Sequence[Paper],
    sampling: Sampling,
    same: SameMathematics | None,
    device: str,
    precision: str,
    *,
    quiet: bool,
) -> dict[str, Answers]:
    """Ask one model everything."""
    import torch

    from groupwise.trainer.evaluate import examine, open_model

    try:
        model = open_model(path, device=device, precision=cast("Any", precision), name=label)
        found = {}
        for paper in papers:
            with counting(quiet=quiet, doing=f"{label}: {paper.name}") as told:
                found[paper.name] = examine(model, paper, sampling, same=same, told=told)
    except torch.cuda.OutOfMemoryError:
        raise GroupwiseError(
            f"expected memory on {device} for {label} and {sampling.batch_size} answers at once, got too little: lower --batch-size"
        ) from None
    return found


def _examination(
    labels: Sequence[str],
    answers: Sequence[Mapping[str, Answers]],
    papers: Sequence[Paper],
    wish: Wish,
    trained_on: str | None,
    level: float,
    *,
    in_order: bool,
    judged: bool,
) -> Examination:
    """Put together what came out."""
    from groupwise.trainer.accuracy import transfer

    rows = transfer(answers, trained_on=trained_on, level=level) if in_order else ()
    if len(labels) == 1 and wish.checkpoints:
        raise InsufficientDataError("expected two checkpoints or more for transfer, got 1: keep more of them while training")
    notes = [note for paper in papers for note in paper.notes]
    return Examination(
        tuple(labels), tuple(answers), wish.k, level, rows, trained_on, (*notes, *_notes(labels, answers, papers, judged=judged))
    )


def _notes(labels: Sequence[str], answers: Sequence[Mapping[str, Answers]], papers: Sequence[Paper], *, judged: bool) -> list[str]:
    """Say what a reader of the scores has to know."""
    why = "math-verify could not decide" if judged else "math-verify, which is not installed, would have to decide"
    notes = []
    for paper in papers:
        limit = "the limit of tokens; raise --max-tokens where that is low"
        if paper.task is not None:
            limit = f"{paper.task.completion_length} tokens, the longest right answer, or at --max-tokens or the end of the context"
        for label, found in zip(labels, answers, strict=True):
            one = found[paper.name]
            drawn, where = one.problems * one.samples, f"{label}, {paper.name}"
            if one.undecided:
                notes.append(f"{where}: {one.undecided} of {drawn} answers count as wrong because {why}")
            if one.cut > _MUCH_CUT * drawn:
                notes.append(f"{where}: {one.cut} of {drawn} answers were cut off at {limit}")
            if one.too_long:
                notes.append(f"{where}: {one.too_long} of {one.problems} problems do not fit into the model's context and count as wrong")
    return notes


def _check_precision(precision: str) -> None:
    """Refuse a precision that is none."""
    from groupwise.scores.language_models import Precision

    if precision not in get_args(Precision):
        raise InvalidArgumentError(f"--precision expects {', '.join(get_args(Precision))}; got {precision!r}")


def evaluate(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL...", help="Folders of models or checkpoints, or one of a run.", show_default=False)
    ],
    *,
    benchmark: Annotated[
        str | None,
        typer.Option("--benchmark", metavar="NAME,NAME", help="As gsm8k, gsm8k=FILE or addition/3, commas between.", show_default=False),
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="FOLDER", help="Where the files of benchmarks lie.", show_default=False)
    ] = None,
    problems: Annotated[
        int | None,
        typer.Option("--problems", metavar="P", help="Of each, drawn at random; all of a file, 200 of a task.", show_default=False),
    ] = None,
    k: Annotated[int, typer.Option("-k", metavar="K", help="Tries of pass@K.")] = 1,
    samples: Annotated[
        int | None, typer.Option("--samples", "-n", metavar="N", help="Answers to each problem; K where not given.", show_default=False)
    ] = None,
    trained_on: Annotated[
        str | None, typer.Option("--trained-on", metavar="NAME", help="Which of them was trained on.", show_default=False)
    ] = None,
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="Take the checkpoints of a run that has a model too.")] = False,
    temperature: Annotated[float, typer.Option("--temperature", metavar="T", help="Of the answers; 0 is the likeliest token.")] = 1.0,
    max_tokens: Annotated[int, typer.Option("--max-tokens", metavar="L", help="Of an answer.")] = 1024,
    batch_size: Annotated[int, typer.Option("--batch-size", metavar="N", help="Answers drawn at once.")] = 64,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of answers, of tasks and of the draw of problems.")] = 0,
    template: Annotated[
        str | None,
        typer.Option("--template", metavar="TEXT", help="What is asked, with {question}; step by step and a box.", show_default=False),
    ] = None,
    chat: Annotated[bool, typer.Option("--chat/--no-chat", help="Use the tokenizer's chat template where it has one.")] = True,
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", metavar="TEXT", help="An answer ends before this text. Repeatable.", show_default=False),
    ] = None,
    time_limit: Annotated[float, typer.Option("--time-limit", metavar="S", help="Seconds for math-verify on one answer.")] = 5.0,
    device: Annotated[str, typer.Option("--device", metavar="NAME", help="As torch names it.")] = "cpu",
    precision: Annotated[str, typer.Option("--precision", metavar="NAME", help="Of a language model's weights.")] = "float32",
    level: Annotated[float, typer.Option("--level", metavar="SHARE", help="Coverage of the intervals, between 0 and 1.")] = 0.95,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON to standard output and nothing else.")] = False,
) -> None:
    """Score models on benchmarks, compare two, or show what a run's training transferred to."""
    from groupwise.trainer.evaluate import INSTRUCTION, Sampling

    wish = Wish(benchmark, data, problems, trained_on, k, checkpoints, time_limit)
    sampling = Sampling(
        k if samples is None else samples, temperature, max_tokens, batch_size, seed, template or INSTRUCTION, chat, tuple(stop or ())
    )
    run(models, wish, sampling, device=device, precision=precision, level=level, as_json=as_json)
