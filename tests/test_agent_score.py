"""The score of agents: the tools alone answer all of it, and an answer is checked, not believed."""

from __future__ import annotations

import runpy
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cases import each_case

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "agent_score.py"
SCORE = SimpleNamespace(**runpy.run_path(str(SCRIPT)))
TASKS: dict[str, Any] = {task.name: task for task in SCORE.TASKS}


@pytest.mark.slow
def test_the_answers_of_the_tools_suffice_for_all_twelve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(TASKS) == 12
    assert SCORE.score(SCORE.by_tools, tmp_path) == 12, capsys.readouterr().out
    assert capsys.readouterr().out.endswith("12 of 12\n")


@pytest.mark.slow
def test_of_public_logs_the_tools_tell_all_but_what_completions_alone_show(
    tmp_path: Path, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(SCORE.REAL_TASKS) == 12
    assert SCORE.score(SCORE.by_tools, tmp_path, SCORE.REAL_TASKS) == 11
    faults = [line for line in capsys.readouterr().out.splitlines() if line.startswith("WRONG")]
    assert [line.split("  ")[1] for line in faults] == ["public: too good"]


@each_case(
    ("name", "answer", "fault"),
    [
        ("which failed", {"run": "c", "change": "mask truncated ones"}, ""),
        ("which failed", {"run": "a", "change": "mask truncated ones"}, "run: 'a'"),
        ("which failed", {"run": "c", "change": "nothing"}, "change: 'nothing'"),
        ("when it came apart", {"step": 74, "cause": "Instability"}, ""),
        ("when it came apart", {"step": "74", "cause": "instability"}, "step: '74'"),
        ("when it came apart", {"step": 120, "cause": "instability"}, "step: 120"),
        ("slow", {"change": "Raise num_generations to 16"}, ""),
        ("slow", {"change": "lower the group size"}, "change: 'lower the group size'"),
        ("which of eight", {"runs": ["g", "b/", "e"]}, ""),
        ("which of eight", {"runs": ["a", "b", "c", "d", "e", "f", "g", "h"]}, "runs: ['a'"),
        ("which of eight", {"runs": "b e g"}, "runs: 'b e g'"),
        ("where it ends", {"reward": None}, "reward: None"),
        ("false alarm", None, "no line of JSON"),
    ],
)
def test_an_answer_is_right_only_where_all_of_it_is(name: str, answer: Any, fault: str) -> None:
    given = SCORE.wrong(TASKS[name], answer)
    assert given.startswith(fault)
    assert bool(given) is bool(fault)


@each_case(
    ("text", "answer"),
    [
        ('I looked.\n```json\n{"a": 1}\n```\n', {"a": 1}),
        ('{"a": 1}\n{"a": 2} is my answer.', {"a": 2}),
        ('{"a": 1}\n{broken}', {"a": 1}),
        ("[1]", None),
        ("", None),
    ],
)
def test_the_last_line_of_json_is_the_answer(text: str, answer: Any) -> None:
    assert SCORE.last_json(text) == answer


def test_an_agent_is_a_command_that_gets_question_and_folder_and_no_shell(tmp_path: Path) -> None:
    """It stands in the folder, and the question comes in its words and on standard input."""
    code = (
        "import json, os, sys; print(json.dumps({'asked': sys.argv[1] == sys.stdin.read(), "
        "'here': os.getcwd() == os.path.realpath(sys.argv[2]), 'more': sys.argv[3:]}))"
    )
    template = f"{shlex.join([sys.executable, '-c', code])} {{question}} {{folder}} ';' '$HOME'"
    answer = SCORE.by_agent(template, TASKS["false alarm"], tmp_path)
    assert answer == {"asked": True, "here": True, "more": [";", "$HOME"]}
