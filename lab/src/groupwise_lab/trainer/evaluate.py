"""Models asked benchmarks: what a folder holds is opened, names become problems, answers become
verdicts and counts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise.errors import GroupwiseError, InvalidArgumentError, one_sentence
from groupwise.plain import frozen
from groupwise.prompts import templates
from groupwise_lab.trainer.accuracy import Answers, answers_of
from groupwise_lab.trainer.benchmarks import (
    BENCHMARKS,
    AnswerEquivalence,
    Benchmark,
    BenchmarkQuestion,
    benchmark_file,
    extract_answer,
    is_right,
    load_benchmark,
)
from groupwise_lab.trainer.checkpoints import load_policy, policy_vocabulary
from groupwise_lab.trainer.rewards import Problem, total_reward
from groupwise_lab.trainer.tasks import TASKS, Task, Vocabulary, make_task, transfer_tasks
from groupwise_lab.trainer.text_tasks import TEXT_TASKS, in_texts, make_text_task

if TYPE_CHECKING:
    from torch import Tensor

    from groupwise.gradients.language_models import Precision


INSTRUCTION = "{question}\nPlease reason step by step, and put your final answer within \\boxed{}."
_COLDEST = 1e-6  # dividing logits by this leaves the largest alone
EndedText = tuple[str, bool]
ProgressReport = Callable[[int, int], None]


@frozen
class Sampling:
    """How answers are drawn."""

    samples: int = 1  # of each problem
    temperature: float = 1.0  # that logits are divided by; 0 takes the likeliest token
    max_tokens: int = 1024  # of an answer, its end included
    batch_size: int = 64  # answers drawn at once
    seed: int = 0  # of the random numbers; with another batch size other answers are drawn
    template: str = INSTRUCTION  # what a model is asked; `{question}` stands for the question
    chat: bool = True  # whether the tokenizer's chat template is used where it has one
    stop: tuple[str, ...] = ()  # an answer ends before the first of these texts

    def __post_init__(self) -> None:
        """Check what was asked for."""
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise InvalidArgumentError(
                f"expected a temperature of 0 or more, got {self.temperature:g}: 1 samples the "
                "model as it is"
            )
        for name in ("samples", "max_tokens", "batch_size"):
            if getattr(self, name) < 1:
                raise InvalidArgumentError(
                    f"expected {name} of 1 or more, got {getattr(self, name)}"
                )
        if self.seed < 0:
            raise InvalidArgumentError(f"expected a seed of 0 or more, got {self.seed}")
        if "{question}" not in self.template:
            raise InvalidArgumentError(
                f"expected {{question}} in the template, got {self.template[:60]!r}: write where "
                "the question stands"
            )

    def prompt(self, question: str) -> str:
        r"""Return what the model is asked; a question that asks for a box itself is not told so
        again.
        """
        if self.template == INSTRUCTION and "\\boxed" in question:
            return question
        return self.template.replace("{question}", question)


@frozen
class Model:
    """A model on disk that can be asked."""

    name: str  # for tables
    actor: Any  # what samples: an `Actor`; a language model's has a tokenizer
    vocabulary: Vocabulary | None  # of a policy of ours; None for a language model
    context: int | None  # longest sequence, in tokens; None where it is not known


def open_model(
    folder: str | Path,
    *,
    device: str = "cpu",
    precision: Precision = "float32",
    name: str | None = None,
) -> Model:
    """Open a folder with a policy of ours, a Hugging Face model or a LoRA adapter."""
    folder = Path(folder)
    _check_device(device)
    label = name or folder.resolve().name
    vocabulary = policy_vocabulary(folder)
    if vocabulary is not None:
        policy = load_policy(folder, vocabulary_size=len(vocabulary), device=device).eval()
        return Model(label, policy, vocabulary, policy.context)
    from groupwise.gradients.language_models import load_language_model
    from groupwise_lab.trainer.language_policy import LanguagePolicy

    loaded = load_language_model(folder, device=device, precision=precision)
    return Model(label, LanguagePolicy(loaded), None, loaded.context)


def ask_problems(
    model: Model,
    task: Task,
    problems: Sequence[Problem],
    sampling: Sampling,
    *,
    progress: ProgressReport | None = None,
) -> list[list[EndedText] | None]:
    """Ask a model problems of a task."""
    if model.vocabulary is not None and model.vocabulary != task.vocabulary:
        raise InvalidArgumentError(
            f"expected a model that reads {task.vocabulary.symbols!r} for {task.name}, got one of "
            f"{model.vocabulary.symbols!r}: ask others"
        )
    if model.vocabulary is None:
        rows = [model.actor.prompt_tokens(task, [problem])[0].tolist() for problem in problems]
        return _sampled(model, rows, sampling, task, progress)
    length = min(sampling.max_tokens, task.completion_length)
    if model.context is not None and task.prompt_length + length - 1 > model.context:
        raise InvalidArgumentError(
            f"expected a context of {task.prompt_length + length - 1} tokens for {task.name}, got "
            f"{model.context}: take a lower level"
        )
    answers: list[list[EndedText] | None] = []
    for batch, start, stop in _batches(len(problems), sampling):
        prompt_PL = model.actor.prompt_tokens(task, problems[start:stop])
        answers += _drawn(model.actor, prompt_PL, length, sampling, batch, task)
        if progress is not None:
            progress(len(answers), len(problems))
    return answers


def ask_questions(
    model: Model,
    questions: Sequence[str],
    sampling: Sampling,
    *,
    progress: ProgressReport | None = None,
) -> list[list[EndedText] | None]:
    """Ask a language model questions."""
    if model.vocabulary is not None:
        raise InvalidArgumentError(
            "expected a language model for questions in words, got a policy that reads "
            f"{model.vocabulary.symbols!r}: ask it a task"
        )
    rows = [
        _encoded(model.actor.tokenizer, sampling.prompt(question), chat=sampling.chat)
        for question in questions
    ]
    return _sampled(model, rows, sampling, None, progress)


def _sampled(
    model: Model,
    rows: Sequence[Sequence[int]],
    sampling: Sampling,
    task: Task | None,
    progress: ProgressReport | None,
) -> list[list[EndedText] | None]:
    """Ask a language model prompts of tokens, in answers that are shorter where the context is;
    None where a prompt fills it.
    """
    room = math.inf if model.context is None else model.context
    # Prompts of like length together, so that little is padded.
    order = sorted(
        (place for place, row in enumerate(rows) if len(row) < room),
        key=lambda place: len(rows[place]),
    )
    answers: list[list[EndedText] | None] = [None] * len(rows)
    for batch, start, stop in _batches(len(order), sampling):
        places = order[start:stop]
        longest = len(rows[places[-1]])
        prompt_PL = model.actor.padded([rows[place] for place in places])
        length = int(
            min(
                sampling.max_tokens,
                room - longest + 1,
                math.inf if task is None else task.completion_length,
            )
        )
        drawn = _drawn(model.actor, prompt_PL, length, sampling, batch, task)
        for place, completions in zip(places, drawn, strict=True):
            answers[place] = completions
        if progress is not None:
            progress(stop, len(order))
    return answers


def _batches(count: int, sampling: Sampling) -> Iterator[tuple[int, int, int]]:
    """Yield the number of a batch and the first and last of its prompts."""
    prompts = max(1, sampling.batch_size // sampling.samples)
    for batch, start in enumerate(range(0, count, prompts)):
        yield batch, start, min(count, start + prompts)


def _drawn(
    actor: Any, prompt_PL: Tensor, length: int, sampling: Sampling, batch: int, task: Task | None
) -> list[list[EndedText]]:
    """Return the completions of some prompts, no more than a batch of one prompt at a time."""
    import torch

    generator = torch.Generator(prompt_PL.device).manual_seed(sampling.seed * 1_000_003 + batch)
    texts: list[list[EndedText]] = [[] for _ in range(len(prompt_PL))]
    left = sampling.samples
    while left:
        size = min(left, sampling.batch_size)
        with cooled(actor, sampling.temperature):
            sampled = actor.sample(prompt_PL, size, generator, length)
        if not bool(sampled.log_probability_NL.isfinite().all()):
            raise InvalidArgumentError(
                "expected a model with finite logits, got NaN or infinity: its weights are broken, "
                "take another one"
            )
        written, ended = actor.texts(task, sampled.completion_NL, sampled.mask_NL)
        for place, (text, end) in enumerate(zip(written, ended, strict=True)):
            texts[place // size].append(_stopped(text, sampling.stop, ended=end))
        left -= size
    return texts


def _stopped(text: str, stops: Sequence[str], *, ended: bool) -> EndedText:
    """Return a text up to the first of some others."""
    places = [text.find(stop) for stop in stops if stop and stop in text]
    return (text[: min(places)], True) if places else (text, ended)


@contextmanager
def cooled(actor: Any, temperature: float) -> Iterator[None]:
    """Let a model sample at a temperature: its logits are divided by it while the block runs."""
    if temperature == 1:
        yield
        return
    divisor = max(temperature, _COLDEST)

    def scale(_module: object, _given: object, out: Any) -> Any:
        if hasattr(out, "logits"):
            out.logits = out.logits.float() / divisor
            return out
        return out.float() / divisor

    hook = (actor.head if hasattr(actor, "head") else actor.model).register_forward_hook(scale)
    try:
        yield
    finally:
        hook.remove()


def _encoded(tokenizer: Any, text: str, *, chat: bool) -> list[int]:
    """Return the tokens of a prompt, as a message where the tokenizer has a chat template."""
    from groupwise.gradients.language_models import prompt_ids

    prompt = (
        [{"role": "user", "content": text}]
        if chat and tokenizer.chat_template is not None
        else text
    )
    # A template is a program: it can fail in any way.
    with one_sentence(
        "a chat template that takes one message",
        "use --no-chat",
        raised=Exception,
        kind=InvalidArgumentError,
    ):
        return prompt_ids(tokenizer, prompt)


def _check_device(device: str) -> None:
    """Refuse a device that torch does not have."""
    import torch

    raised = (RuntimeError, AssertionError)
    with one_sentence(
        "a device that torch has, as cpu or cuda",
        f"{device!r} is none",
        raised=raised,
        kind=InvalidArgumentError,
    ):
        torch.empty(1, device=device)


_CHECKPOINT = re.compile(r"(?:.*[-_])?([0-9]{1,12})")
_DEFAULT_PROBLEMS = 200
_IN_WORDS = [entry.name for entry in TEXT_TASKS if not entry.from_file]


@frozen
class Paper:
    """What models are asked under one name."""

    name: str  # of the benchmark
    entry: Benchmark | None = None  # of the registry, where it is a file
    questions: tuple[BenchmarkQuestion, ...] = ()  # of the file
    task: Task | None = None  # where it is none
    notes: tuple[str, ...] = ()  # what is to be known of it


def papers_of(
    names: Sequence[str],
    *,
    data: Path | None = None,
    problems: int | None = None,
    seed: int = 0,
    trained: Task | None = None,
) -> tuple[Paper, ...]:
    """Return what some names stand for."""
    papers = tuple(_paper(name.strip(), data, problems, seed, trained) for name in names)
    twice = [
        paper.name
        for place, paper in enumerate(papers)
        if paper.name in {other.name for other in papers[:place]}
    ]
    if not papers or twice:
        raise InvalidArgumentError(
            f"expected each benchmark once, got {twice[0]} twice"
            if twice
            else "expected a benchmark, got none"
        )
    return papers


def transfer_papers(
    trained: Task, *, problems: int | None = None, seed: int = 0
) -> tuple[Paper, ...]:
    """Return the held-out problems of a task that was trained on, and what it may transfer to."""
    count = problems or _DEFAULT_PROBLEMS
    own = Paper(task_label(trained), task=_fewer(trained, count, seed))
    return (
        own,
        *(
            Paper(other.name, task=other)
            for other in transfer_tasks(trained, seed=seed, problems=count)
        ),
    )


def task_label(task: Task) -> str:
    """Return a task's name with its levels."""
    levels = sorted({problem.level for problem in (*task.train, *task.held_out)})
    return f"{task.name}/{'+'.join(map(str, levels))}"


def named_task(name: str, *, seed: int = 0, trained: Task | None = None) -> Task:
    """Return the task of a name, some of it held out; behind a slash its level, or the worked
    examples of a task in words.
    """
    family, slash, level = name.partition("/")
    if slash and not re.fullmatch("[0-9]{1,3}", level):
        raise InvalidArgumentError(f"expected a task with its level, as addition/2; got {name!r}")
    chosen = int(level) if slash else None
    if family in _IN_WORDS:
        if (
            trained is not None
            and trained.name == family
            and trained.recipe.get("examples") == (chosen or 0)
        ):
            return trained
        return make_text_task(family, examples=chosen or 0, seed=seed)
    plain = make_task(family, seed=seed, level=chosen)
    if trained is None:
        return plain
    if task_label(trained) == task_label(plain):
        return trained
    return make_task(
        family,
        seed=seed,
        level=chosen,
        held_out_share=1.0,
        exclude={problem.text for problem in trained.train},
    )


def examine(
    model: Model,
    paper: Paper,
    sampling: Sampling,
    *,
    same: AnswerEquivalence | None = None,
    progress: ProgressReport | None = None,
) -> Answers:
    """Ask a model a paper and count its right answers; a problem that does not fit into its
    context counts as answered wrongly.
    """
    answers: list[list[EndedText] | None]
    if paper.task is not None:
        task, drawn = _as_read(model, paper.task, sampling)
        answers = ask_problems(model, task, task.held_out, drawn, progress=progress)
        texts = [problem.text for problem in paper.task.held_out]
        given = texts
    else:
        answers = ask_questions(
            model, [question.text for question in paper.questions], sampling, progress=progress
        )
        texts = [question.text for question in paper.questions]
        given = [question.cluster for question in paper.questions]
    # a template that the file names, else that of the wording
    clusters = given if len(set(given)) < len(given) else list(map(str, templates(texts)))
    verdicts = [
        [False] * sampling.samples
        if completions is None
        else _verdicts(paper, place, completions, same)
        for place, completions in enumerate(answers)
    ]
    cut = sum(not ended for completions in answers for _, ended in completions or ())
    return answers_of(paper.name, verdicts, clusters, cut=cut, too_long=answers.count(None))


def _as_read(model: Model, task: Task, sampling: Sampling) -> tuple[Task, Sampling]:
    """Return a task in words as a model reads it: one without a chat template is asked in a
    text, and its answer is a line.
    """
    chat = task.recipe.get("chat")
    if (
        model.vocabulary is not None
        or chat is None
        or (chat and model.actor.tokenizer.chat_template is not None)
    ):
        return task, sampling
    return in_texts(task) if chat else task, replace(sampling, stop=(*sampling.stop, "\n"))


def _verdicts(
    paper: Paper, place: int, completions: Sequence[EndedText], same: AnswerEquivalence | None
) -> list[bool | None]:
    """Say of each completion of one problem whether it is right."""
    if paper.task is not None:
        texts, ended = [text.strip() for text, _ in completions], [end for _, end in completions]
        rewards = paper.task.verifier([paper.task.held_out[place]] * len(texts), texts, ended)
        right_N = rewards.get(
            "exact", rewards.get("strict", total_reward(paper.task.verifier, rewards))
        )
        return [bool(value == 1) for value in right_N]
    assert paper.entry is not None
    question, kind = paper.questions[place], paper.entry.kind
    extracted = [extract_answer(text) for text, _ in completions]
    return [
        is_right(question.answer, answer, kind=kind, tolerance=question.tolerance, same=same)
        for answer in extracted
    ]


def checkpoints_of(folder: Path) -> list[tuple[int, Path]]:
    """Return the checkpoints of a run, earliest first: folders whose names end in a number and
    that hold a model.
    """
    homes = [home for home in (folder, folder / "checkpoints") if home.is_dir()]
    checkpoints = [
        (int(match[1]), path)
        for home in homes
        for path in sorted(home.iterdir())
        if (match := _CHECKPOINT.fullmatch(path.name)) and holds_model(path)
    ]
    if not checkpoints:
        raise GroupwiseError(
            f"expected a model or checkpoints in {folder}, got none: give the folder that a "
            "trainer wrote"
        )
    return sorted(checkpoints)


def holds_model(folder: Path) -> bool:
    """Whether a folder looks like a model or an adapter."""
    return any((folder / name).is_file() for name in ("config.json", "adapter_config.json"))


def _paper(
    name: str, data: Path | None, problems: int | None, seed: int, trained: Task | None
) -> Paper:
    """Return what one name stands for: the problems of a benchmark, from the file that was named
    or a folder of files, or of a task.
    """
    label, equals, file = name.partition("=")
    entry = next((entry for entry in BENCHMARKS if entry.name == label), None)
    if entry is None:
        _check_family(name)
        return Paper(
            label,
            task=_fewer(
                named_task(label, seed=seed, trained=trained), problems or _DEFAULT_PROBLEMS, seed
            ),
        )
    if not equals and data is None:
        raise InvalidArgumentError(
            f"expected the file of {label}, got none: write --benchmark {label}=FILE, or --data "
            "FOLDER"
        )
    path = Path(file) if equals else benchmark_file(entry, Path(data or "."))
    notes: list[str] = []
    questions = load_benchmark(label, path, problems=problems, seed=seed, notes=notes)
    if problems is None and not notes and len(questions) != entry.size:
        notes.append(
            f"{label}: {path.name} has {len(questions)} problems, as published it has {entry.size}"
        )
    return Paper(label, entry, questions, notes=tuple(notes))


def _check_family(name: str) -> None:
    """Refuse what is neither a benchmark nor the name of a family of tasks, with or without a
    level.
    """
    families = [*(family.name for family in TASKS), *_IN_WORDS]
    if name.partition("/")[0] not in families:
        names = ", ".join([*(entry.name for entry in BENCHMARKS), *families])
        raise InvalidArgumentError(
            f"expected a benchmark of {names}; got {name.partition('=')[0]!r}"
        )


def _fewer(task: Task, count: int, seed: int) -> Task:
    """Return a task with at most so many problems held out, drawn at random."""
    if not task.held_out:
        raise InvalidArgumentError(
            f"expected problems of {task.name} that are held out, got none: take a higher level"
        )
    if count >= len(task.held_out):
        return task
    places = sorted(np.random.default_rng(seed).choice(len(task.held_out), count, replace=False))
    return replace(task, held_out=tuple(task.held_out[place] for place in places))
