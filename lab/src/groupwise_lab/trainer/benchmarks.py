r"""Benchmarks of mathematics: which there are, their problems read from files, the final answer in
a text, and whether it is right.

JSONL, JSON, Parquet and CSV are read in the layouts in which they are published, and in verl's
(`prompt`, `reward_model`); nothing is fetched, and nothing in a file is run. The final answer is
what the last `\boxed{}` holds, else what follows the last `####`, else what follows the last
"answer is", else the last number. Numbers are compared exactly, other answers as texts and then by
math-verify, where that is installed (`worker`). No pattern here backtracks far. What cannot be
decided is None and never a silent "wrong".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from groupwise.errors import GroupwiseError, InvalidArgumentError, named, one_sentence
from groupwise.parsing import JsonView
from groupwise.plain import frozen

AnswerKind = Literal["number", "math"]
AnswerEquivalence = Callable[[str, str], bool | None]

_LONGEST_TEXT = 200_000
_LONGEST_ANSWER = 1_000
_MOST_BOXES = 20
_BOX = re.compile(r"\\(?:boxed|fbox) ?\{")
# A sign right behind a figure is an operation.
_DECIMAL = r"(?:(?<![0-9])[-+])?(?:[0-9]{1,60}(?:\.[0-9]{0,60})?|\.[0-9]{1,60})"
_NUMBER = re.compile(_DECIMAL)
_PLAIN = re.compile(rf"({_DECIMAL})(?:[eE]([-+]?[0-9]{{1,3}}))?")
_POWER_OF_TEN = re.compile(rf"({_DECIMAL})(?:\\times|\\cdot|\*)10\^\{{?([-+]?[0-9]{{1,3}})\}}?")
_RATIO = re.compile(r"([-+]?)([0-9]{1,60})/([0-9]{1,60})")
_FRACTION = re.compile(
    r"([-+]?)([0-9]{0,60})\\frac(?:\{([0-9]{1,60})\}|([0-9]))(?:\{([0-9]{1,60})\}|([0-9]))"
)
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])")
_WRITTEN_NUMBER = re.compile(
    rf"(?:(?<![0-9])[-+])?{_THOUSANDS.pattern}(?:\.[0-9]{{1,60}})?|{_DECIMAL}"
)
_UNIT = re.compile(r"(?:\\(?:text|mbox|mathrm|textbf)\{[^{}]{0,100}\}(?:\^[0-9])?)")
_DROPPED = (
    "\\left",
    "\\right",
    "\\!",
    "\\,",
    "\\;",
    "\\ ",
    "\\$",
    "$",
    "\\%",
    "%",
    "^{\\circ}",
    "^\\circ",
    "\\displaystyle",
)
_PHRASE = re.compile(r"answer(?: is|:| =)", re.IGNORECASE)
# A number with words behind it, which may hold other numbers; "2 and 3" or "3 of 4" is no such
# thing.
_NUMBER_FIRST = re.compile(
    rf"\\?\$?({_WRITTEN_NUMBER.pattern})(?![0-9])[,;.]?\s+(?:\(|(?!(?:and|or|of|to|by|times|plus"
    rf"|minus|over)\b)(?:a\s+)?[A-Za-z]{{2}})"
)
_AND = re.compile(r"\\(?:text|mbox|mathrm)\{\s*(?:and|or)\s*\}|(?<![A-Za-z])(?:and|or)(?![A-Za-z])")
_SEVERAL = "; "  # between answers that are all asked for: thousands have commas too


def extract_answer(text: str) -> str | None:
    r"""Return the final answer of a text."""
    text = text[-_LONGEST_TEXT:]
    boxed = _last_boxed(text)
    if boxed is not None:
        return boxed.strip()
    if "####" in text:
        return text.rsplit("####", 1)[1].strip().split("\n", 1)[0].strip() or None
    ends = [match.end() for match in _PHRASE.finditer(text)]
    if ends:
        line = text[ends[-1] :].lstrip(" :*").split("\n", 1)[0].strip().rstrip(".*").strip()
        # A number that a line begins with where words follow it, else the line.
        first = _NUMBER_FIRST.match(line)
        if line:
            return first[1].rstrip(".") if first else line
    numbers = _WRITTEN_NUMBER.findall(text)
    return numbers[-1] if numbers else None


def numbers_in(text: str) -> list[Fraction]:
    """Return the numbers of a text in their order; commas of thousands belong to theirs."""
    numbers = (number_of(written) for written in _WRITTEN_NUMBER.findall(text[-_LONGEST_TEXT:]))
    return [value for value in numbers if value is not None]


def normalised(answer: str) -> str:
    r"""Return an answer without what does not change it: spaces, dollar signs, degrees, units in
    \text, commas of thousands.
    """
    text = answer.strip()[:_LONGEST_ANSWER]
    for dropped in _DROPPED:
        text = text.replace(dropped, "")
    text = text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    without = _UNIT.sub("", text).strip()
    # A unit is dropped behind something; a word alone is the answer.
    text = without or re.sub(r"\\(?:text|mbox|mathrm|textbf)\{([^{}]{0,100})\}", r"\1", text)
    # Before spaces go: "1, 200" are two numbers. In brackets a comma is between two as well.
    text = text if text[:1] in {"(", "["} and text[-1:] in {")", "]"} else _without_thousands(text)
    return "".join(text.split()).rstrip(".")


def number_of(answer: str) -> Fraction | None:
    r"""Return the number that an answer is."""
    text = normalised(answer)
    if match := _PLAIN.fullmatch(text) or _POWER_OF_TEN.fullmatch(text):
        return Fraction(match[1]) * Fraction(10) ** int(match[2] or 0)
    if match := _RATIO.fullmatch(text):
        return _signed(match[1], 0, match[2], match[3])
    if match := _FRACTION.fullmatch(text):
        return _signed(match[1], int(match[2] or 0), match[3] or match[4], match[5] or match[6])
    return None


def _signed(sign: str, whole: int, above: str, below: str) -> Fraction | None:
    """Return a mixed number."""
    if not int(below):
        return None
    size = whole + Fraction(int(above), int(below))
    return -size if sign == "-" else size


def is_right(
    gold: str,
    answer: str | None,
    *,
    kind: AnswerKind = "math",
    tolerance: float = 0.0,
    same: AnswerEquivalence | None = None,
) -> bool | None:
    """Say whether an answer is the right one."""
    if answer is None or not answer.strip():
        return False
    if normalised(gold) == normalised(answer):
        return True
    right = number_of(gold)
    given = number_of(answer)
    if given is None and kind == "number":
        numbers = [match.group() for match in _NUMBER.finditer(_without_thousands(answer))]
        given = number_of(numbers[-1]) if numbers else None
    if right is not None and given is not None:
        return _close(right, given, gold, tolerance)
    if kind == "number":
        return bool(_words(gold)) and _words(gold) == _words(answer)
    if len(answer) > _LONGEST_ANSWER:
        return False
    several = _same_lists(gold, answer, tolerance)
    if several is not None or same is None:
        return several
    return same(gold.replace(_SEVERAL, ", "), answer)


def _same_lists(gold: str, answer: str, tolerance: float) -> bool | None:
    """Whether two lists of answers are the same, in any order unless in brackets; None where
    that is not decided by texts and numbers.
    """
    (bracket, golds), (other, founds) = _listed(gold), _listed(answer)
    if len(golds) == len(founds) == 1:
        return None
    values, given = [number_of(part) for part in golds], [number_of(part) for part in founds]
    decided = None not in values and None not in given
    if len(golds) != len(founds):
        return False if decided else None
    if bracket != other:
        return None
    left = list(range(len(founds)))
    for place, part in enumerate(golds):
        candidates = [place] if bracket else left
        fitting = [
            number
            for number in candidates
            if _same_part(part, values[place], founds[number], given[number], tolerance)
        ]
        if not fitting:
            return False if decided else None
        left.remove(fitting[0])
    return True


def _same_part(
    gold: str, right: Fraction | None, answer: str, given: Fraction | None, tolerance: float
) -> bool:
    """Whether two answers are the same as texts, or as the numbers that they are."""
    return normalised(gold) == normalised(answer) or (
        right is not None and given is not None and _close(right, given, gold, tolerance)
    )


def _listed(answer: str) -> tuple[str, list[str]]:
    """Return the brackets around a list and its parts; curly ones of a set count as none."""
    text = (
        answer.strip()[:_LONGEST_ANSWER]
        .strip("$ ")
        .replace("\\left", "")
        .replace("\\right", "")
        .replace("\\!", "")
    )
    bracket = ""
    if text[:1] in {"(", "["} and text[-1:] in {")", "]"}:
        bracket, text = text[0] + text[-1], text[1:-1]
    elif text.startswith("\\{") and text.endswith("\\}"):
        text = text[2:-2]
    text = _AND.sub(" ; ", text if bracket else _without_thousands(text))
    parts, depth = [""], 0
    for symbol in text:
        depth += (symbol in "([{") - (symbol in ")]}")
        if symbol in ",;" and depth <= 0:
            parts.append("")
        else:
            parts[-1] += symbol
    return bracket, [part.strip() for part in parts if part.strip()] or [text]


def _without_thousands(text: str) -> str:
    """Return the beginning of a text without commas of thousands; spaces stay, so that numbers
    stay apart.
    """
    return _THOUSANDS.sub(lambda match: match.group().replace(",", ""), text[:_LONGEST_ANSWER])


def _close(right: Fraction, given: Fraction, gold: str, tolerance: float) -> bool:
    """Say whether two numbers are the same, within a tolerance or the last place of a rounded
    one.
    """
    decimals = (
        len(normalised(gold).partition(".")[2]) if "." in gold and "e" not in gold.lower() else 0
    )
    rounding = Fraction(1, 2 * 10**decimals) if decimals >= 6 else Fraction(0)
    return abs(right - given) <= max(rounding, abs(right) * Fraction(tolerance))


def _words(text: str) -> str:
    """Return the letters and figures of a text, in lower case."""
    return "".join(symbol for symbol in text.casefold() if symbol.isalnum() or symbol == ":")


def _last_boxed(text: str) -> str | None:
    r"""Return what the last closed \boxed{} holds; of many unclosed ones only the last few are
    looked at.
    """
    for match in reversed([*_BOX.finditer(text)][-_MOST_BOXES:]):
        depth = 1
        for place in range(match.end(), min(len(text), match.end() + 10 * _LONGEST_ANSWER)):
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            if not depth:
                return text[match.end() : place]
    return None


SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")
_LONGEST_QUESTION = 100_000
_SUBSET_SEED = 0


class UnreadableBenchmarkError(GroupwiseError):
    """No benchmark can be made of this file."""


@frozen
class BenchmarkQuestion:
    """One problem of a benchmark."""

    number: int  # row of the file, from 0
    text: str  # as the model is asked
    answer: str  # the right one
    cluster: str  # problems with the same label are variants of one another
    tolerance: float = 0.0  # relative, for a number


@frozen
class Benchmark:
    """An entry of the registry."""

    name: str  # as `--benchmark` takes it
    meaning: str  # one line
    size: int  # problems of the published file
    kind: AnswerKind  # of its answers
    questions: tuple[str, ...]  # columns of the question, the first that is there
    answers: tuple[str, ...]  # columns of the answer, the first that is there
    body: tuple[str, ...] = ()  # column that stands before the question
    solution: str | None = (
        None  # column whose box holds the answer, where no column of answers is there
    )
    cluster: str | None = None  # column of the template
    error: str | None = None  # column of the absolute error that an answer may have
    tolerance: float = 0.0  # relative, for numbers
    files: str = ""  # regular expression that names of its files match


_PROBLEM = ("problem", "question", "Problem", "Question")

BENCHMARKS: tuple[Benchmark, ...] = (
    Benchmark(
        "gsm8k",
        "school arithmetic in words",
        1319,
        "number",
        ("question",),
        ("answer",),
        files=r"gsm-?_?8k",
    ),
    Benchmark(
        "math500",
        "500 problems of MATH",
        500,
        "math",
        _PROBLEM,
        ("answer",),
        solution="solution",
        files=r"math-?_?500",
    ),
    Benchmark(
        "math",
        "competition mathematics, all 5000 test problems",
        5000,
        "math",
        _PROBLEM,
        ("answer",),
        solution="solution",
        files=r"(?<![a-z])(?<!minerva[-_])math(?!-?_?500)(?![a-z])",
    ),
    Benchmark(
        "aime24",
        "American Invitational Mathematics Examination 2024",
        30,
        "math",
        _PROBLEM,
        ("answer", "Answer", "expected_answer"),
        files=r"aime-?_?(?:20)?24",
    ),
    Benchmark(
        "aime25",
        "American Invitational Mathematics Examination 2025",
        30,
        "math",
        _PROBLEM,
        ("answer", "Answer", "expected_answer"),
        files=r"aime-?_?(?:20)?25",
    ),
    Benchmark(
        "amc23",
        "American Mathematics Competitions 2023",
        40,
        "math",
        _PROBLEM,
        ("answer",),
        files=r"amc-?_?(?:20)?23",
    ),
    Benchmark(
        "minerva",
        "undergraduate sciences (OCW)",
        272,
        "math",
        _PROBLEM,
        ("answer",),
        solution="solution",
        tolerance=1e-4,
        files=r"minerva",
    ),
    Benchmark(
        "olympiadbench",
        "olympiad problems in English, text only",
        675,
        "math",
        _PROBLEM,
        ("final_answer", "answer"),
        error="error",
        files=r"olympiad",
    ),
    Benchmark(
        "gaokao2023en",
        "problems of China's university entrance and other examinations of 2023, in English",
        385,
        "math",
        _PROBLEM,
        ("answer",),
        files=r"gaokao-?_?(?:20)?23",
    ),
    Benchmark(
        "svamp",
        "arithmetic in words, varied to mislead",
        1000,
        "number",
        ("question_concat", "Question", "question"),
        ("Answer", "answer"),
        body=("Body", "body"),
        files=r"svamp",
    ),
    Benchmark(
        "asdiv",
        "arithmetic in words of many types",
        2215,
        "number",
        ("question", "Question"),
        ("answer", "Answer"),
        body=("body", "Body"),
        files=r"asdiv",
    ),
    Benchmark(
        "mawps",
        "arithmetic in words, older collections",
        2065,
        "number",
        ("input", "question", "Question"),
        ("target", "result", "answer", "Answer"),
        files=r"mawps",
    ),
    Benchmark(
        "gsm_symbolic",
        "GSM8K templates with other names and numbers; a template is a cluster",
        5000,
        "number",
        ("question",),
        ("answer",),
        cluster="id",
        files=r"gsm-?_?symbolic",
    ),
)


def benchmark_file(entry: Benchmark, folder: Path) -> Path:
    """Return the one file of a folder that is a benchmark's, by its name."""
    if not folder.is_dir():
        raise UnreadableBenchmarkError(
            f"expected a folder with benchmark files, got {folder}, which is none: name one with "
            "--data"
        )
    paths = sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in SUFFIXES and re.search(entry.files, str(path.relative_to(folder)).lower())
    )
    if len(paths) == 1:
        return paths[0]
    came = f"{len(paths)}: {', '.join(path.name for path in paths[:4])}" if paths else "none"
    raise UnreadableBenchmarkError(
        f"expected one file of {entry.name} in {folder}, got {came}: name it, as "
        f"{entry.name}={paths[0] if paths else 'FILE'}"
    )


def load_benchmark(
    name: str,
    path: str | Path,
    *,
    problems: int | None = None,
    seed: int = _SUBSET_SEED,
    notes: list[str] | None = None,
) -> tuple[BenchmarkQuestion, ...]:
    """Read the problems of a benchmark; rows without a question or an answer are left out and
    told in `notes`.
    """
    entry = named(name, BENCHMARKS, "a benchmark")
    if problems is not None and problems < 1:
        raise InvalidArgumentError(f"expected 1 problem or more, got {problems}")
    path = Path(path)
    if not path.is_file():
        raise UnreadableBenchmarkError(
            f"expected a file of {name}, got {path}, which is none: give its path"
        )
    questions = _problems_of(entry, path, notes)
    if problems is None or problems >= len(questions):
        return tuple(questions)
    import numpy as np

    return tuple(
        questions[place]
        for place in sorted(
            np.random.default_rng(seed).choice(len(questions), problems, replace=False)
        )
    )


def _problems_of(entry: Benchmark, path: Path, notes: list[str] | None) -> list[BenchmarkQuestion]:
    """Return the problems of a file; one where most rows are none is refused."""
    questions, errors = [], {}
    for number, row in enumerate(read_rows(path)):
        try:
            questions.append(question_of(entry, row, number, path))
        except UnreadableBenchmarkError as error:
            errors[number + 1] = error
    if errors and len(errors) >= len(questions):  # a file of another kind
        raise next(iter(errors.values()))
    if not questions:
        raise UnreadableBenchmarkError(
            f"expected problems in {path}, got none: copy the file again"
        )
    if errors and notes is not None:
        rows = (
            f"row{'' if len(errors) == 1 else 's'} "
            f"{', '.join(map(str, list(errors)[:5]))}{', ...' if len(errors) > 5 else ''}"
        )
        whole = len(questions) + len(errors)
        notes.append(
            f"{entry.name}: {len(errors)} of {whole} problems of {path.name} are left out, for "
            f"want of question or answer: {rows}"
        )
    return questions


def question_of(
    entry: Benchmark, row: JsonView, number: int = 0, path: Path | str = "the row"
) -> BenchmarkQuestion:
    """Return the problem of one row."""
    where = f"row {number + 1} of {path}"
    text, answer = (
        _verl(row)
        if isinstance(row.get("reward_model"), dict)
        else (_question(entry, row), _answer(entry, row))
    )
    if not text or len(text) > _LONGEST_QUESTION:
        came = (
            f"one of {len(text)} characters"
            if text
            else f"only the columns {', '.join(map(str, list(row)[:8]))}"
        )
        raise UnreadableBenchmarkError(
            f"expected a question of {entry.name} ({' or '.join(entry.questions)}) in {where}, got "
            f"{came}"
        )
    if not answer:
        columns = " or ".join((*entry.answers, *((entry.solution,) if entry.solution else ())))
        raise UnreadableBenchmarkError(
            f"expected an answer of {entry.name} ({columns}) in {where}, got none: mend or remove "
            "the row"
        )
    template = row.get(entry.cluster) if entry.cluster else None
    cluster = str(number) if template is None else f"template {template}"
    error, right = (
        number_of(cell_text(row.get(entry.error)) if entry.error else ""),
        number_of(answer),
    )
    relative = float(abs(error / right)) if error and right else 0.0
    return BenchmarkQuestion(number, text, answer, cluster, max(entry.tolerance, relative))


def _question(entry: Benchmark, row: JsonView) -> str:
    """Return the question with what stands before it."""
    column = next((name for name in entry.questions if cell_text(row.get(name))), None)
    if column is None:
        return ""
    # A question that holds its body already stands in a column of its own.
    body = (
        ""
        if column == "question_concat"
        else next((cell_text(row[name]) for name in entry.body if cell_text(row.get(name))), "")
    )
    return f"{body}{'' if not body or body[-1] in '.?!,' else '.'} {cell_text(row[column])}".strip()


def _answer(entry: Benchmark, row: JsonView) -> str:
    """Return the right answer of a row."""
    for name in entry.answers:
        value = row.get(name)
        # OlympiadBench has a list of one text, which may hold several answers.
        value = (
            _SEVERAL.join(filter(None, map(cell_text, value))) if isinstance(value, list) else value
        )
        answer = cell_text(value)
        if "####" in answer:  # with its working
            return extract_answer(answer) or ""
        if answer:
            bare = (
                answer.split("(", 1)[0] if entry.name == "asdiv" else answer.strip("$ ")
            )  # a unit in brackets
            return bare.strip() or answer
    solution = cell_text(row.get(entry.solution)) if entry.solution else ""
    return (extract_answer(solution) or "") if solution else ""


def _verl(row: JsonView) -> tuple[str, str]:
    """Return question and answer of a row in verl's layout."""
    extra, messages = row.get("extra_info"), row.get("prompt")
    question = cell_text(extra.get("question")) if isinstance(extra, dict) else ""
    if not question and isinstance(messages, list | tuple):
        contents = [
            cell_text(message.get("content"))
            for message in messages
            if isinstance(message, dict) and message.get("role") == "user"
        ]
        question = contents[-1] if contents else ""
    return question, cell_text(row["reward_model"].get("ground_truth"))


def cell_text(value: object) -> str:
    """Return a text, or a finite number without a needless .0, as text; nothing for anything
    else.
    """
    if isinstance(value, float):
        return (
            str(int(value))
            if value.is_integer() and abs(value) < 1e15
            else str(value)
            if abs(value) < float("inf")
            else ""
        )
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if abs(value) < 10**100 else ""
    return value.strip() if isinstance(value, str) else ""


def read_rows(path: Path) -> Sequence[JsonView]:
    """Return the rows of a file of JSONL, JSON, Parquet or CSV."""
    if path.suffix not in SUFFIXES:
        raise UnreadableBenchmarkError(f"expected {', '.join(SUFFIXES)}, got {path}: convert it")
    with _from_file(
        f"to read {path}", "check the file, whether it is UTF-8 too", OSError, UnicodeDecodeError
    ):
        rows = _table(path) if path.suffix in (".parquet", ".csv") else _objects(path)
    other = next((row for row in rows if not isinstance(row, dict)), None)
    if other is not None:
        raise UnreadableBenchmarkError(
            f"expected an object for every problem in {path}, got {type(other).__name__}: copy the "
            "file again"
        )
    return rows


def _from_file(
    expected: str, advice: str, *raised: type[Exception]
) -> AbstractContextManager[None]:
    """Turn what is raised in the block into one sentence on a file."""
    return one_sentence(expected, advice, raised=raised, kind=UnreadableBenchmarkError)


def _objects(path: Path) -> list[Any]:
    """Return what a file has a line, or the list in it, alone or as the one list of an object."""
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix == ".jsonl":
        return [
            _parsed(line, f"line {number} of {path}")
            for number, line in enumerate(text.split("\n"), 1)
            if line.strip()
        ]
    content = _parsed(text, str(path))
    lists = (
        [value for value in content.values() if isinstance(value, list)]
        if isinstance(content, dict)
        else [content]
    )
    if len(lists) != 1 or not isinstance(lists[0], list):
        raise UnreadableBenchmarkError(
            f"expected a list of objects in {path}, got {type(content).__name__}: write one object "
            "a problem"
        )
    return lists[0]


def _parsed(text: str, where: str) -> Any:
    """Return what a JSON text says."""
    with _from_file(f"JSON in {where}", "copy the file again", ValueError, RecursionError):
        return json.loads(text)


def _table(path: Path) -> list[JsonView]:
    """Return the rows of a table."""
    import polars as pl

    with _from_file(
        f"a table in {path}",
        "copy the file again",
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
    ):
        table = (
            pl.read_parquet(path)
            if path.suffix == ".parquet"
            else pl.read_csv(path, infer_schema=False)
        )
    return list(table.iter_rows(named=True))
