"""Models asked benchmarks: names on the command line become problems, answers become verdicts and counts.

A benchmark is a file of mathematics (`benchmarks`) or a task (`tasks`), of which the held-out problems are asked. It computes no
statistics of the counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from groupwise.errors import GroupwiseError, InvalidArgumentError
from groupwise.trainer.answers import SameMathematics, extract_answer, is_right
from groupwise.trainer.benchmarks import BENCHMARKS, Benchmark, Question, benchmark_by_name, benchmark_file, load_benchmark
from groupwise.trainer.evaluation import Answers, answers_of
from groupwise.trainer.sampling import Model, Sampling, ask_problems, ask_questions
from groupwise.trainer.tasks import TASKS, Task, make_task, transfer_tasks

Told = Callable[[int, int], None]
_CHECKPOINT = re.compile(r"(?:.*[-_])?([0-9]{1,12})")
_DEFAULT_PROBLEMS = 200


@dataclass(frozen=True, slots=True)
class Paper:
    """What models are asked under one name."""

    name: str  # of the benchmark
    entry: Benchmark | None = None  # of the registry, where it is a file
    questions: tuple[Question, ...] = ()  # of the file
    task: Task | None = None  # where it is none
    notes: tuple[str, ...] = ()  # what is to be known of it


def papers_of(
    names: Sequence[str], *, data: Path | None = None, problems: int | None = None, seed: int = 0, trained: Task | None = None
) -> tuple[Paper, ...]:
    """Return what some names stand for."""
    papers = tuple(_paper(name.strip(), data, problems, seed, trained) for name in names)
    twice = [paper.name for place, paper in enumerate(papers) if paper.name in {other.name for other in papers[:place]}]
    if not papers or twice:
        raise InvalidArgumentError(f"expected each benchmark once, got {twice[0]} twice" if twice else "expected a benchmark, got none")
    return papers


def transfer_papers(trained: Task, *, problems: int | None = None, seed: int = 0) -> tuple[Paper, ...]:
    """Return the held-out problems of a task that was trained on, and what it may transfer to."""
    count = problems or _DEFAULT_PROBLEMS
    own = Paper(task_label(trained), task=_fewer(trained, count, seed))
    return (own, *(Paper(other.name, task=other) for other in transfer_tasks(trained, seed=seed, problems=count)))


def task_label(task: Task) -> str:
    """Return a task's name with its levels."""
    levels = sorted({problem.level for problem in (*task.train, *task.held_out)})
    return f"{task.name}/{'+'.join(map(str, levels))}"


def named_task(name: str, *, seed: int = 0, trained: Task | None = None) -> Task:
    """Return the task of a name with its level behind a slash, some of it held out."""
    family, slash, level = name.partition("/")
    if slash and not re.fullmatch("[0-9]{1,3}", level):
        raise InvalidArgumentError(f"expected a task with its level, as addition/2; got {name!r}")
    chosen = int(level) if slash else None
    plain = make_task(family, seed=seed, level=chosen)
    if trained is None:
        return plain
    if task_label(trained) == task_label(plain):
        return trained
    return make_task(family, seed=seed, level=chosen, held_out_share=1.0, exclude={problem.prompt for problem in trained.train})


def examine(model: Model, paper: Paper, sampling: Sampling, *, same: SameMathematics | None = None, told: Told | None = None) -> Answers:
    """Ask a model a paper and count its right answers."""
    if paper.task is not None:
        return _examined(model, paper.name, paper.task, sampling, told)
    assert paper.entry is not None
    asked = ask_questions(model, [question.text for question in paper.questions], sampling, told=told)
    verdicts: list[list[bool | None]] = []
    for question, completions in zip(paper.questions, asked, strict=True):
        found = [extract_answer(text) for text, _ in completions] if completions is not None else [None] * sampling.samples
        kind, tolerance = paper.entry.kind, question.tolerance
        verdicts.append([is_right(question.answer, answer, kind=kind, tolerance=tolerance, same=same) for answer in found])
    cut = sum(not ended for completions in asked for _, ended in completions or ())
    clusters = [question.cluster for question in paper.questions]
    return answers_of(paper.name, verdicts, clusters, cut=cut, too_long=sum(completions is None for completions in asked))


def _examined(model: Model, name: str, task: Task, sampling: Sampling, told: Told | None) -> Answers:
    """Ask a model the held-out problems of a task."""
    asked = ask_problems(model, task, task.held_out, sampling, told=told)
    verdicts: list[list[bool | None]] = []
    for problem, completions in zip(task.held_out, asked, strict=True):
        if completions is None:
            verdicts.append([False] * sampling.samples)
            continue
        texts, ended = [text.strip() for text, _ in completions], [end for _, end in completions]
        exact_N = task.verifier([problem] * len(texts), texts, ended)["exact"]
        verdicts.append([bool(value == 1) for value in exact_N])
    cut = sum(not ended for completions in asked for _, ended in completions or ())
    too_long = sum(completions is None for completions in asked)
    return answers_of(name, verdicts, [problem.prompt for problem in task.held_out], cut=cut, too_long=too_long)


def checkpoints_of(folder: Path) -> list[tuple[int, Path]]:
    """Return the checkpoints of a run, earliest first: folders whose names end in a number and that hold a model."""
    homes = [home for home in (folder, folder / "checkpoints") if home.is_dir()]
    found = [
        (int(match[1]), path)
        for home in homes
        for path in sorted(home.iterdir())
        if (match := _CHECKPOINT.fullmatch(path.name)) and holds_model(path)
    ]
    if not found:
        raise GroupwiseError(f"expected a model or checkpoints in {folder}, got none: give the folder that a trainer wrote")
    return sorted(found)


def holds_model(folder: Path) -> bool:
    """Whether a folder looks like a model or an adapter."""
    return any((folder / name).is_file() for name in ("config.json", "adapter_config.json"))


def _paper(name: str, data: Path | None, problems: int | None, seed: int, trained: Task | None) -> Paper:
    """Return what one name stands for."""
    label, equals, file = name.partition("=")
    if label in {entry.name for entry in BENCHMARKS}:
        entry = benchmark_by_name(label)
        if not equals and data is None:
            raise InvalidArgumentError(f"expected the file of {label}, got none: write --benchmark {label}=FILE, or --data FOLDER")
        path = Path(file) if equals else benchmark_file(entry, Path(data or "."))
        questions = load_benchmark(label, path, problems=problems, seed=seed)
        notes: tuple[str, ...] = ()
        if problems is None and len(questions) != entry.size:
            notes = (f"{label}: {path.name} has {len(questions)} problems, as published it has {entry.size}",)
        return Paper(label, entry, questions, notes=notes)
    if equals or label.partition("/")[0] not in {family.name for family in TASKS}:
        known = ", ".join([*(entry.name for entry in BENCHMARKS), *(family.name for family in TASKS)])
        raise InvalidArgumentError(f"expected a benchmark of {known}; got {label!r}")
    return Paper(label, task=_fewer(named_task(label, seed=seed, trained=trained), problems or _DEFAULT_PROBLEMS, seed))


def _fewer(task: Task, count: int, seed: int) -> Task:
    """Return a task with at most so many problems held out, drawn at random."""
    if not task.held_out:
        raise InvalidArgumentError(f"expected problems of {task.name} that are held out, got none: take a higher level")
    if count >= len(task.held_out):
        return task
    places = sorted(np.random.default_rng(seed).choice(len(task.held_out), count, replace=False))
    return replace(task, held_out=tuple(task.held_out[place] for place in places))
