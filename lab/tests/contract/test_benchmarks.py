"""What every entry of `BENCHMARKS` owes: its own layout and verl's are read, a line in the docs,
broken files are one sentence.

The real files are read where the folder of them lies beside the repository.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.cases import each_case

from groupwise.errors import InvalidArgumentError, named
from groupwise_lab.trainer.benchmarks import (
    BENCHMARKS,
    Benchmark,
    UnreadableBenchmarkError,
    benchmark_file,
    extract_answer,
    is_right,
    load_benchmark,
    question_of,
)

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "tasks.md").read_text(
    encoding="utf-8"
)
EACH = each_case("entry", BENCHMARKS)
RIGHT = {
    "gsm8k": "5",
    "math500": "\\frac{1}{2}",
    "math": "2",
    "aime24": "24",
    "aime25": "25",
    "amc23": "27",
    "minerva": "300000000",
    "olympiadbench": "2",
    "svamp": "2",
    "asdiv": "5",
    "mawps": "5",
    "gsm_symbolic": "5",
    "gaokao2023en": "-1",
}
FILES = {
    "gsm8k": ("gsm8k.test.jsonl", "GSM-8K/test.parquet"),
    "math500": ("math500.jsonl", "MATH-500/test.jsonl", "math_500.json"),
    "math": ("verl_math_test.parquet", "math/test.jsonl"),
    "aime24": ("aime24.jsonl", "AIME_2024.csv"),
    "aime25": ("aime25.jsonl", "aime-2025.json"),
    "amc23": ("amc23.jsonl", "amc2023.jsonl"),
    "minerva": ("minerva_math/test.jsonl",),
    "olympiadbench": ("olympiadbench.jsonl", "OlympiadBench/test.parquet"),
    "svamp": ("svamp.json",),
    "asdiv": ("asdiv.csv",),
    "mawps": ("mawps.jsonl",),
    "gsm_symbolic": ("GSM-Symbolic/test.jsonl", "gsm_symbolic.jsonl"),
    "gaokao2023en": ("gaokao2023en.test.jsonl", "Gaokao-2023/test.json"),
}

# A row in the layout of each, our own.
STEPS = "He has 2 + 3 = <<2+3=5>>5 pens.\n#### 5"
EXAMPLES: dict[str, dict[str, object]] = {
    "gsm8k": {"question": "Tom has 2 pens and buys 3. How many has he?", "answer": STEPS},
    "math500": {"problem": "What is $x$ if $2x = 1$?", "answer": "\\frac{1}{2}"},
    "math": {
        "problem": "What is $1 + 1$?",
        "solution": "It is $\\boxed{2}$.",
        "level": "Level 1",
        "type": "Algebra",
    },
    "aime24": {"id": 60, "problem": "What is $20 + 4$?", "answer": "024"},
    "aime25": {"question": "What is $20 + 5$?", "answer": "25"},
    "amc23": {"id": 0, "problem": "What is $20 + 7$?", "answer": 27.0},
    "minerva": {
        "problem": "What is the speed of light in m/s?",
        "solution": "About \\boxed{3e8}.",
        "type": "Physics",
    },
    "olympiadbench": {
        "question": "Find the least prime.",
        "final_answer": ["$2$"],
        "answer_type": "Numerical",
        "error": None,
    },
    "gaokao2023en": {
        "source": "01Q.en",
        "question": "If $x + 1 = 0$, then $x = 1 - 2 = $",
        "lang": "en",
        "answer": "$-1$",
    },
    "svamp": {
        "Body": "Tom has 2 pens and 3 books",
        "Question": "How many pens has he?",
        "Answer": 2.0,
    },
    "asdiv": {
        "body": "Tom has 2 pens and buys 3.",
        "question": "How many has he?",
        "answer": "5 (pens)",
    },
    "mawps": {"input": "Tom has 2 pens and buys 3 . How many has he ?", "target": 5.0},
    "gsm_symbolic": {
        "id": 7,
        "instance": 3,
        "question": "Tom has 2 pens and buys 3. How many has he?",
        "answer": STEPS,
        "original_id": 1,
    },
}


def written(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".json":
        path.write_text(json.dumps({"version": 1, "examples": rows}), encoding="utf-8")
    elif path.suffix == ".csv":
        pl.DataFrame(
            [
                {name: value for name, value in row.items() if not isinstance(value, list)}
                for row in rows
            ]
        ).write_csv(path)
    else:
        pl.DataFrame(rows).write_parquet(path)
    return path


@each_case(
    ("entry", "suffix"),
    [
        (entry, suffix)
        for entry in BENCHMARKS
        for suffix in (".jsonl", ".json", ".parquet", ".csv")
        if suffix != ".csv"  # where a list has no place
        or not any(isinstance(value, list) for value in EXAMPLES[entry.name].values())
    ],
)
def test_its_own_layout_is_read(entry: Benchmark, suffix: str, tmp_path: Path) -> None:
    questions = load_benchmark(
        entry.name, written(tmp_path / f"rows{suffix}", [dict(EXAMPLES[entry.name])] * 2)
    )
    assert len(questions) == 2
    assert {"pens", "x", "1", "20", "speed", "prime"} & set(
        re.findall(r"[a-z]+|[0-9]+", questions[0].text)
    )
    for question in questions:
        assert (
            is_right(
                question.answer, RIGHT[entry.name], kind=entry.kind, tolerance=question.tolerance
            )
            is True
        )
        assert (
            is_right(question.answer, "12345", kind=entry.kind, tolerance=question.tolerance)
            is False
        )


@EACH
def test_the_layout_of_verl_is_read(entry: Benchmark, tmp_path: Path) -> None:
    row = {
        "prompt": [{"role": "user", "content": "What is 2+3?"}],
        "reward_model": {"ground_truth": "5", "style": "rule"},
    }
    question = load_benchmark(entry.name, written(tmp_path / "rows.parquet", [row]))[0]
    assert (question.text, question.answer) == ("What is 2+3?", "5")


@EACH
def test_its_files_are_known_by_their_names_and_no_other_is(
    entry: Benchmark, tmp_path: Path
) -> None:
    for name, files in FILES.items():
        for file in files:
            assert bool(re.search(entry.files, file.lower())) == (name == entry.name), file
    path = written(tmp_path / FILES[entry.name][0], [dict(EXAMPLES[entry.name])])
    (tmp_path / "README.md").write_text(entry.name)
    assert benchmark_file(entry, tmp_path) == path
    written(tmp_path / "b" / FILES[entry.name][-1], [dict(EXAMPLES[entry.name])])
    with pytest.raises(UnreadableBenchmarkError, match=r"expected one file of \w+ in .*, got 2: "):
        benchmark_file(entry, tmp_path)


@EACH
def test_the_page_explains_it(entry: Benchmark) -> None:
    row = next((line for line in PAGE.splitlines() if line.startswith(f"| `{entry.name}` |")), "")
    assert f"| {entry.size} |" in row
    assert [name for name in (*entry.questions, *entry.answers) if f"`{name}`" not in row] == []
    assert row.rstrip().endswith(f"| {entry.kind} |")


@EACH
def test_a_row_without_question_or_answer_is_one_sentence(entry: Benchmark) -> None:
    for columns, word in (
        (entry.questions, "question"),
        ((*entry.answers, entry.solution), "answer"),
    ):
        values: list[Any] = [None, "", [], {"a": 1}, float("nan"), 10**400, True]
        for value in values:
            row = {
                name: (value if name in columns else kept)
                for name, kept in EXAMPLES[entry.name].items()
            }
            with pytest.raises(
                UnreadableBenchmarkError,
                match=rf"^expected an? {word} of {entry.name} .* in row 1 of the row, got [^\n]*$",
            ):
                question_of(entry, row)


BROKEN = {
    "empty.jsonl": b"",
    "blank.jsonl": b"\n\n",
    "cut.jsonl": b'{"question": "a", "answer": "1"}\n{"question": "b", ',
    "number.jsonl": b"1\n",
    "list.jsonl": b'["a"]\n',
    "deep.jsonl": b"[" * 100_000 + b"\n",
    "deep.json": b'{"a":' * 100_000,
    "digits.jsonl": b'{"question": "a", "answer": ' + b"9" * 5000 + b"}\n",
    "bytes.jsonl": b"\xff\xfe\x00",
    "nul.jsonl": b'{"question": "a"\x00}\n',
    "object.json": b'{"question": "a"}',
    "texts.json": b'["a", "b"]',
    "no.parquet": b"PAR1 this is none",
    "empty.parquet": b"",
    "empty.csv": b"",
    "bytes.csv": b"question,answer\n\xff\xfe,1\n",
    "pickle.pkl": b"\x80\x04cos\nsystem\n(S'true'\ntR.",
    "pickle.jsonl": b"\x80\x04cos\nsystem\n(S'true'\ntR.",
    "other.csv": b"a,b\n1,2\n",
    "long.jsonl": b'{"question": "' + b"x" * 200_000 + b'", "answer": "1"}\n',
}


@each_case("name", BROKEN)
def test_broken_files_are_one_sentence(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(BROKEN[name])
    with pytest.raises(UnreadableBenchmarkError) as caught:
        load_benchmark("gsm8k", path)
    said = str(caught.value)
    assert said.startswith("expected ")
    assert name in said
    assert len(said) < 500
    assert "\n" not in said


def test_a_row_without_an_answer_costs_itself_and_is_told(tmp_path: Path) -> None:
    rows = [
        {"question": f"What is {n}?", "answer": "" if n in (1, 4) else str(n)} for n in range(6)
    ]
    notes: list[str] = []
    questions = load_benchmark("gsm8k", written(tmp_path / "rows.jsonl", rows), notes=notes)
    assert [question.number for question in questions] == [0, 2, 3, 5]
    assert notes == [
        (
            "gsm8k: 2 of 6 problems of rows.jsonl are left out, for want of question or answer: "
            "rows 2, 5"
        )
    ]
    load_benchmark("gsm8k", written(tmp_path / "whole.jsonl", rows[2:4]), notes=notes)
    assert len(notes) == 1
    with pytest.raises(
        UnreadableBenchmarkError, match=r"expected an answer of gsm8k \(answer\) in row 2 of"
    ):
        load_benchmark("gsm8k", written(tmp_path / "half.jsonl", rows[:2]))


def test_gaokao_is_read_but_for_two_problems_without_an_answer(shared_data: Path) -> None:
    entry = named("gaokao2023en", BENCHMARKS, "a benchmark")
    notes: list[str] = []
    questions = load_benchmark(entry.name, benchmark_file(entry, shared_data / "hard"), notes=notes)
    assert len(questions) == entry.size - 2
    assert notes[0].startswith(
        "gaokao2023en: 2 of 385 problems of qwen_gaokao2023en.test.jsonl are left out"
    )
    assert notes[0].endswith(": rows 168, 193")
    for question in questions:
        boxed = extract_answer(f"Thus 1 + 2 = 3, so the answer is $\\boxed{{{question.answer}}}$.")
        assert is_right(question.answer, boxed) is True, question


def test_no_file_no_folder_and_no_such_benchmark(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.jsonl"):
        with pytest.raises(UnreadableBenchmarkError):
            load_benchmark("gsm8k", path)
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(UnreadableBenchmarkError):
            benchmark_file(named("gsm8k", BENCHMARKS, "a benchmark"), folder)
    with pytest.raises(InvalidArgumentError, match="gsm8k, math500"):
        load_benchmark("gsm9k", tmp_path)
    with pytest.raises(InvalidArgumentError):
        load_benchmark("gsm8k", tmp_path, problems=0)


def test_some_problems_are_drawn_at_random_and_the_same_again(tmp_path: Path) -> None:
    path = written(
        tmp_path / "gsm8k.jsonl",
        [{"question": f"What is {n}?", "answer": str(n)} for n in range(100)],
    )
    some, again, other = (
        load_benchmark("gsm8k", path, problems=20, seed=seed) for seed in (1, 1, 2)
    )
    assert some == again != other
    numbers = [question.number for question in some]
    assert numbers == sorted(numbers)
    assert numbers != list(range(20))
    assert all(question.answer == str(question.number) for question in some)


def test_variants_of_a_template_are_one_cluster_and_others_are_not(tmp_path: Path) -> None:
    rows = [
        {"id": 7, "instance": n, "question": f"What is {n}?", "answer": f"#### {n}"}
        for n in range(3)
    ] + [{"id": 8, "instance": 0, "question": "What is 9?", "answer": "#### 9"}]
    path = written(tmp_path / "rows.jsonl", rows)
    assert [question.cluster for question in load_benchmark("gsm_symbolic", path)] == [
        "template 7"
    ] * 3 + ["template 8"]
    assert len({question.cluster for question in load_benchmark("gsm8k", path)}) == 4


def test_an_olympiad_answer_may_be_wrong_by_what_its_column_says() -> None:
    entry = named("olympiadbench", BENCHMARKS, "a benchmark")
    question = question_of(
        entry, {"question": "How long?", "final_answer": ["$20$"], "error": "1e-1"}
    )
    assert question.tolerance == pytest.approx(0.005)
    assert is_right(question.answer, "20.1", tolerance=question.tolerance) is True
    assert is_right(question.answer, "20.2", tolerance=question.tolerance) is False


REAL = {
    "gsm8k": ("qwen_gsm8k.test.jsonl", "verl_gsm8k_test.parquet"),
    "math500": ("fireopd_math500.test.jsonl",),
    "math": ("verl_math_test.parquet",),
    "aime24": ("qwen_aime24.test.jsonl", "fireopd_aime24.test.jsonl"),
    "amc23": ("qwen_amc23.test.jsonl", "fireopd_amc2023.test.jsonl"),
    "svamp": ("qwen_svamp.test.jsonl",),
    "asdiv": ("qwen_asdiv.test.jsonl",),
    "mawps": ("qwen_mawps.test.jsonl",),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("name", "file"), [(name, file) for name, files in REAL.items() for file in files]
)
def test_real_files_are_read_whole_and_their_answers_found(
    name: str, file: str, shared_data: Path
) -> None:
    entry = named(name, BENCHMARKS, "a benchmark")
    questions = load_benchmark(name, shared_data / "benchmarks" / file)
    assert len(questions) == entry.size
    for question in questions:
        boxed = extract_answer(f"Thus 1 + 2 = 3, so the answer is $\\boxed{{{question.answer}}}$.")
        assert is_right(question.answer, boxed, kind=entry.kind) is True, question
        assert is_right(question.answer, "123454321.5", kind=entry.kind) is not True, question


def test_two_copies_of_a_benchmark_agree(shared_data: Path) -> None:
    folder = shared_data / "benchmarks"
    for name in ("gsm8k", "aime24", "amc23"):
        first, second = (load_benchmark(name, folder / file) for file in REAL[name])
        answers = [
            {
                is_right(question.answer, other.answer)
                for question, other in zip(first, second, strict=True)
            }
        ]
        assert answers == [{True}], name
