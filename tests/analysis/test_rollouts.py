"""The completions that pages show: their order in every view, what a report holds of them, and
texts that are cleaned and cut.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests.golden.sentences import says

from groupwise.analysis.rollouts import HELD, Held, Rollouts, held_rollouts
from groupwise.plain import to_json
from groupwise.record.run import RunConfig, RunRecord
from groupwise.record.table import rollouts_table, steps_table

HOSTILE = "</script><img src=x onerror=alert(1)>\u202e\x1b[31m\x00 <!--"


def record(rows: Sequence[dict[str, Any]], **settings: Any) -> RunRecord:
    steps = sorted({row["step"] for row in rows})
    config = RunConfig().with_settings(settings, "made")
    return RunRecord(
        "made", steps_table(steps, {"reward": [0.5] * len(steps)}), rollouts_table(rows), config
    )


def group(step: int, prompt: int, rewards: Sequence[float], **more: Any) -> list[dict[str, Any]]:
    said = {"step": step, "prompt_id": prompt, "prompt": f"prompt {prompt}"}
    return [
        {
            **said,
            "completion": f"{step}/{prompt}/{k}",
            "reward": reward,
            **{name: values[k] for name, values in more.items()},
        }
        for k, reward in enumerate(rewards)
    ]


def texts(rollouts: Rollouts, view: str) -> list[str]:
    return [row.text for row in rollouts.part(view, 0, 100).rows]


def test_every_view_by_hand() -> None:
    rows = [
        *group(
            2, 0, [0.0, 1.0], length=[10, 64], **{"reward/a": [0.0, 1.0], "reward/b": [1.0, 0.0]}
        ),
        *group(
            1, 5, [0.5, 0.5], length=[64, 9], **{"reward/a": [0.0, 0.5], "reward/b": [0.5, 0.5]}
        ),
        *group(1, 2, [0.2, 0.9], length=[5, 6], **{"reward/a": [0.1, 0.9], "reward/b": [0.1, 0.9]}),
    ]
    rollouts = Rollouts(record(rows, max_completion_length=64))
    assert texts(rollouts, "newest") == ["2/0/1", "2/0/0", "1/5/1", "1/5/0", "1/2/1", "1/2/0"]
    assert texts(rollouts, "zero_variance") == ["1/5/1", "1/5/0"]
    assert texts(rollouts, "truncated") == ["2/0/1", "1/5/0"]
    assert texts(rollouts, "highest")[:3] == ["2/0/1", "1/2/1", "1/5/1"]
    assert texts(rollouts, "lowest")[:2] == ["2/0/0", "1/2/0"]
    assert rollouts.counts == {
        "newest": 6,
        "zero_variance": 2,
        "truncated": 2,
        "highest": 6,
        "lowest": 6,
    }
    (first, *_), batch = rollouts.part("newest", 0, 2).rows, rollouts.part("newest", 0, 2)
    assert (batch.groups[0].step, batch.groups[0].rewards, batch.groups[0].first) == (2, (0, 1), 4)
    assert (first.id, first.more, first.truncated) == (5, {"a": 1, "b": 0}, True)


def test_a_view_that_the_log_cannot_tell_is_not_there() -> None:
    rollouts = Rollouts(record(group(1, 0, [0.0, 1.0])))
    assert set(rollouts.orders) == {"newest", "zero_variance", "highest", "lowest"}
    bare = Rollouts(record([{"step": 1, "prompt_id": 0, "completion": "a"}]))
    assert set(bare.orders) == {"newest"}
    assert held_rollouts(RunRecord("made", steps_table([1], {"reward": [1.0]}))) is None


def test_how_a_completion_ended_is_taken_as_logged_before_its_length() -> None:
    rollouts = Rollouts(
        record(group(1, 0, [0.0, 1.0], ended=[1.0, 0.0], length=[64, 3]), max_completion_length=64)
    )
    assert texts(rollouts, "truncated") == ["1/0/1"]
    assert rollouts.more == ["ended"]


def test_entropy_and_log_probability_are_shown_where_they_were_logged() -> None:
    rollouts = Rollouts(
        record(group(1, 0, [0.0, 1.0], entropy=[0.25, None], log_probability=[-1.5, float("nan")]))
    )
    assert [row.more for row in rollouts.part("lowest", 0, 2).rows] == [
        {"entropy": 0.25, "log_probability": -1.5},
        {"entropy": None, "log_probability": None},
    ]


def test_a_part_is_bounded_and_only_a_single_text_comes_whole() -> None:
    rows: list[dict[str, Any]] = [
        {
            "step": 1,
            "prompt_id": 0,
            "prompt": "p" * 3000,
            "completion": f"{'a' * 5000}\nend{k}",
            "reward": 0.0,
        }
        for k in range(300)
    ]
    rollouts = Rollouts(record(rows))
    assert len(rollouts.part("newest", 0, 10**9).rows) == 200
    assert rollouts.part("nonsense", 0, 5).rows == ()
    assert rollouts.part("newest", -5, 1).rows[0].id == 299
    (cut,), (whole,) = (
        rollouts.part("newest", 0, 1).rows,
        rollouts.part("newest", 0, 1, whole=True).rows,
    )
    assert len(cut.text) + cut.text_cut + len(cut.end) == len(rows[299]["completion"])
    assert cut.end.endswith("\nend299")  # the answer stands at the end
    assert (whole.text, whole.text_cut, whole.end) == (rows[299]["completion"], 0, "")
    assert rollouts.part("newest", 0, 2, whole=True).rows[0].text_cut > 0


def made(groups: int, size: int, text: str) -> RunRecord:
    rng = np.random.default_rng(0)
    rows = [
        rollout
        for step in range(groups)
        for rollout in group(step, 0, (rng.random(size) < step / groups).astype(float).tolist())
    ]
    return record([{**row, "completion": f"{text}{row['completion']}"} for row in rows])


def held(*of: Any, **how: Any) -> Held:
    held = held_rollouts(made(*of), **how)
    assert held is not None
    return held


def test_a_report_holds_a_hundred_and_says_which() -> None:
    rollouts = held(200, 8, "")
    assert len(rollouts.batch.rows) == HELD == len({row.id for row in rollouts.batch.rows})
    assert rollouts.said.startswith("100 of 1,600 completions: the newest groups, the first ")
    assert rollouts.counts["newest"] == 1600
    whole = Rollouts(made(200, 8, ""))
    for view, places in rollouts.views.items():
        ids = [rollouts.batch.rows[place].id for place in places]
        assert len(ids) > 10
        if view != "newest":  # the others are the first of all of the run
            assert ids == whole.orders[view][: len(ids)].tolist()
    newest = [rollouts.batch.rows[place] for place in rollouts.views["newest"]]
    assert {row.id for row in newest} == {row.id for row in rollouts.batch.rows}
    assert [row.id for row in newest[:32]] == list(range(1599, 1567, -1))  # whole groups


def test_rollouts_that_the_log_lacks_are_named_beside_those_it_has() -> None:
    run = made(6, 4, "")
    lacking = held_rollouts(run, spent=32)
    every = held_rollouts(run, spent=24)
    assert lacking is not None
    assert every is not None
    says("analysis/rollouts/2", lacking.said)
    assert every.said == held(6, 4, "").said
    rows = steps_table(range(8), {"reward": [0.5] * 8})
    steps = held_rollouts(dataclasses.replace(run, steps=rows), spent=32)
    assert steps is not None
    says("analysis/rollouts/3", steps.said)


def test_few_are_held_whole() -> None:
    rollouts = held(3, 4, "")
    says("analysis/rollouts/1", rollouts.said)
    assert len(rollouts.batch.rows) == 12


@pytest.mark.parametrize("text", ["a" * 20_000, "漢" * 20_000, "<" * 20_000])
def test_what_a_report_holds_stays_small(text: str) -> None:
    assert len(to_json(held(40, 8, text))) < 120_000


def test_a_group_larger_than_a_report_is_cut() -> None:
    rollouts = held(3, 500, "")
    assert len(rollouts.batch.rows) == HELD
    assert max(len(group.rewards) for group in rollouts.batch.groups) == 64


def test_hostile_texts_keep_their_letters_and_lose_what_is_unseen() -> None:
    rows = [
        {
            "step": 1,
            "prompt_id": 0,
            "prompt": HOSTILE,
            "completion": f"a\n\t{HOSTILE}",
            "reward": float(k),
            f"reward/{HOSTILE}": float(k),
        }
        for k in range(2)
    ]
    shown = to_json(held_rollouts(record(rows)))
    assert "onerror=alert(1)" in shown
    for unseen in ("\\u202e", "\\u001b", "\\u0000", "\\t"):
        assert unseen not in shown
    assert "a\\n    <" in shown
