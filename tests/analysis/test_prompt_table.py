"""Prompts with their pass rates: which teach, and how they stand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.golden.sentences import says

from groupwise.analysis.rollouts import LOG_PROMPTS, prompt_table
from groupwise.readers import run_record
from groupwise.record.run import RunRecord
from groupwise.record.table import rollouts_table, steps_table


def record(visits: Sequence[tuple[int, str | None, list[float]]]) -> RunRecord:
    rows: list[dict[str, Any]] = [
        {"step": step, "prompt_id": place, "prompt": prompt, "completion": "c", "reward": reward}
        for place, (step, prompt, rewards) in enumerate(visits)
        for reward in rewards
    ]
    steps = sorted({step for step, _, _ in visits})
    return RunRecord(
        "made", steps_table(steps, {"reward": [0.5] * len(steps)}), rollouts_table(rows)
    )


HALF, RIGHT, WRONG = [0.0, 1.0] * 4, [1.0] * 8, [0.0] * 8
VISITS = [
    (1, "learnt", WRONG),
    (2, "learnt", HALF),
    (3, "learnt", RIGHT),
    (2, "hard", WRONG),
    (3, "hard", WRONG),
    (1, "even", HALF),
    (3, "rare", [*WRONG[:7], 1.0]),
]


def test_how_prompts_stand_by_their_newest_visits() -> None:
    table = prompt_table(record(VISITS))
    rows = {row.prompt: row for row in table.rows}
    assert {name: row.standing for name, row in rows.items()} == {
        "learnt": "solved",
        "hard": "too hard",
        "even": "teaches",
        "rare": "teaches",
    }
    assert (rows["learnt"].visits, rows["learnt"].teaching) == (3, 1)
    assert table.binary
    says("analysis/prompt_table/1", table.said)


def test_the_pass_rate_is_that_of_the_newest_rollouts() -> None:
    rows = {row.prompt: row for row in prompt_table(record(VISITS)).rows}
    assert [rows[name].mean for name in ("learnt", "hard", "rare")] == [1.0, 0.0, 0.125]
    assert {row.rollouts for row in rows.values()} == {8}
    even = rows["even"]
    assert even.now is not None
    assert (round(even.now.low, 3), even.now.value, round(even.now.high, 3)) == (
        0.215,
        0.5,
        0.785,
    )  # Wilson, by another program


def test_rewards_of_many_values_have_a_mean_and_no_interval() -> None:
    table = prompt_table(record([(1, "a", [0.1, 0.7, 0.4]), (1, "b", [0.2, 0.2, 0.2])]))
    assert not table.binary
    assert {row.standing for row in table.rows} == {"teaches", "flat"}
    assert all(row.now is None for row in table.rows)


@pytest.mark.parametrize("places", [False, True])
def test_numbers_that_are_the_prompts_own_stand_for_their_texts(
    places: bool, tmp_path: Path
) -> None:
    """Rewards with a number of the data set, or with the place in the batch, which is another
    prompt at each step.
    """
    names = (
        {"learnt": 40, "hard": 7, "even": 8, "rare": 9}
        if not places
        else {"learnt": 0, "hard": 1, "even": 1, "rare": 2}
    )
    rows = [
        {"step": step, "prompt_id": names[str(name)], "reward": reward}
        for step, name, rewards in VISITS
        for reward in rewards
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    table, texts = prompt_table(run_record(tmp_path / "log.jsonl")), prompt_table(record(VISITS))
    if places:
        assert table.said == LOG_PROMPTS
        return
    shown = {row.prompt: (row.standing, row.visits, row.teaching) for row in table.rows}
    assert shown == {
        f"prompt {names[row.prompt]}": (row.standing, row.visits, row.teaching)
        for row in texts.rows
    }


def test_prompts_with_rewards_need_no_completions(tmp_path: Path) -> None:
    rows = [
        {"step": step, "prompt": name, "reward": reward}
        for step, name, rewards in VISITS
        for reward in rewards
    ]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert (
        prompt_table(run_record(tmp_path / "log.jsonl")).said == prompt_table(record(VISITS)).said
    )


def test_without_prompts_it_says_what_to_log() -> None:
    assert prompt_table(record([(1, None, HALF)])).said == LOG_PROMPTS
    assert prompt_table(RunRecord("made", steps_table([1], {"reward": [1.0]}))).said == LOG_PROMPTS


def test_rewards_that_never_differ_are_flat() -> None:
    table = prompt_table(record([(1, "a", [1.0, 1.0]), (1, "b", [1.0, 1.0])]))
    assert [row.standing for row in table.rows] == ["flat", "flat"]


def test_a_long_list_keeps_both_ends() -> None:
    table = prompt_table(
        record([(1, f"p{place}", HALF if place % 2 else RIGHT) for place in range(100)]), shown=8
    )
    assert [row.standing for row in table.rows] == ["teaches"] * 6 + ["solved"] * 2
    assert dict(table.standings) == {"teaches": 50, "solved": 50}
