"""What the recorder accepts is read: arbitrary rows, keys, texts, whole numbers, floats and
nesting, and journals of anything.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from groupwise.readers.follow import Follower
from groupwise.record.journal import Journal
from groupwise.record.recorder import Recorder
from groupwise.record.run import RecordWriter, RunRecord
from groupwise.record.table import BASE_COLUMNS

HUGE = 10**400
numbers = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([HUGE, -HUGE, 2**63, -(2**63) - 1, 2**64]),
    st.floats(),
    st.floats(width=32).map(np.float32),
    st.integers(-(2**63), 2**63 - 1).map(np.int64),
)
texts = st.text(
    st.characters(codec=None, categories=None), max_size=12
)  # half pairs of surrogates and NUL among them
keys = st.one_of(
    texts,
    st.integers(),
    st.none(),
    st.tuples(st.integers()),
    st.sampled_from([*BASE_COLUMNS[1:], " step", "log/window", "about", "row", "%s"]),
)
rows = st.dictionaries(keys, numbers, max_size=5)
prompts = st.one_of(
    st.integers(-5, 5), st.integers(), st.sampled_from([HUGE, 10**4000, 2**63, 2**64 - 1])
)
rollouts = st.fixed_dictionaries(
    {"prompt_id": prompts},
    optional={
        "prompt": st.none() | texts,
        "completion": st.none() | texts | numbers | st.lists(texts),
        "reward": numbers,
    },
)
# Those of one step have the same keys where they are given by column.
odd_rollouts = st.builds(
    lambda columns, more: {**more, **columns}, rollouts, st.dictionaries(keys, numbers, max_size=3)
)


def expected(value: Any) -> float | None:
    """What the table holds of a number."""
    if value is None:
        return None
    try:
        number = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return None if math.isnan(number) else number


def loaded_and_followed(folder: Path) -> RunRecord:
    """Read a record in both ways; both are sound."""
    record, follower = RunRecord.load(folder), Follower(folder)
    record.validate()
    follower.poll()
    assert not follower.problem
    assert follower.record is not None
    follower.record.validate()
    assert follower.record.steps.select(BASE_COLUMNS).equals(record.steps.select(BASE_COLUMNS))
    if record.rollouts is not None:
        assert follower.record.rollouts is not None
        named = [
            name
            for name in ("step", "prompt_id", "prompt", "completion")
            if name in record.rollouts.columns
        ]
        rollouts = follower.record.rollouts
        assert rollouts.select(name for name in named if name in rollouts.columns).equals(
            record.rollouts.select(name for name in named if name in rollouts.columns)
        )
    return record


@given(st.lists(st.tuples(rows, st.lists(odd_rollouts, max_size=3)), min_size=1, max_size=4))
def test_what_is_recorded_is_read(steps: list[tuple[dict[Any, Any], list[dict[str, Any]]]]) -> None:
    with tempfile.TemporaryDirectory() as home:
        said: list[str] = []
        recorder = Recorder(Path(home) / "run", say=said.append)
        recorder.open()
        for number, (row, some) in enumerate(steps, start=1):
            recorder.append(
                {**{key: value for key, value in row.items() if key != "step"}, "step": number},
                some,
            )
        recorder.snapshot().validate()
        recorder.close()
        assert said == []
        record = loaded_and_followed(Path(home) / "run")
        assert record.steps["step"].to_list() == list(range(1, len(steps) + 1))
        for number, (row, _) in enumerate(steps):
            for key, value in row.items():
                if (
                    isinstance(key, str)
                    and key.isascii()
                    and key not in (*BASE_COLUMNS, "log/window")
                    and sum(str(k) == key for k in row) == 1
                ):
                    assert record.steps[key][number] == expected(value), key
        given_rollouts = [
            (number, column) for number, (_, some) in enumerate(steps, start=1) for column in some
        ]
        assert (0 if record.rollouts is None else len(record.rollouts)) == len(given_rollouts)
        if record.rollouts is not None:
            assert record.rollouts["step"].to_list() == [number for number, _ in given_rollouts]
            ids = [(columns["prompt_id"] + 2**63) % 2**64 - 2**63 for _, columns in given_rollouts]
            assert record.rollouts["prompt_id"].to_list() == ids
            if "completion" in record.rollouts.columns:
                kept = [columns.get("completion") for _, columns in given_rollouts]
                texts_kept = [
                    None if text is None else str(text).encode("utf-8", "backslashreplace").decode()
                    for text in kept
                ]
                assert record.rollouts["completion"].to_list() == texts_kept


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts, st.just(HUGE)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
odd_row = st.dictionaries(st.one_of(texts, st.sampled_from(BASE_COLUMNS)), json_values, max_size=4)
odd_entry = st.fixed_dictionaries(
    {
        "row": st.one_of(
            json_values,
            odd_row,
            odd_row.flatmap(lambda row: st.integers(1, 9).map(lambda step: {**row, "step": step})),
        )
    },
    optional={
        "rollouts": st.one_of(
            json_values,
            st.lists(
                st.one_of(
                    json_values,
                    odd_row,
                    odd_row.flatmap(
                        lambda row: prompts.map(lambda prompt: {**row, "prompt_id": prompt % HUGE})
                    ),
                )
            ),
        )
    },
)


@given(
    st.lists(
        st.one_of(
            odd_entry,
            st.dictionaries(texts.filter(lambda key: key != "about"), json_values, max_size=2),
        ),
        max_size=5,
    )
)
def test_whatever_a_journal_holds_the_sound_step_of_it_is_read(
    entries: list[dict[str, Any]],
) -> None:
    with tempfile.TemporaryDirectory() as home:
        with Journal(Path(home) / "journal.jsonl") as journal:
            for entry in (
                *entries,
                {
                    "row": {"step": 10, "reward": 0.5},
                    "rollouts": [{"prompt_id": 1, "completion": "c"}],
                },
            ):
                journal.append(entry, sync=False)
        record = loaded_and_followed(Path(home))
        assert record.steps["step"].to_list()[-1] == 10
        assert record.steps["reward"].to_list()[-1] == 0.5
        assert record.rollouts is not None
        assert record.rollouts["completion"].to_list()[-1] == "c"


LONE = "1 cell of 'completion' had half a character (a lone surrogate), written as \\udxxx now"
LARGE = "1 cell of 'prompt_id' is beyond 64 bits, and kept modulo 2**64"
FELL = "1 cell of 'optimizer_updates' is NaN, infinite or a fall: the steps are the clock"
NANS = "2 cells of 'loss' are NaN, and read as missing"
WINDOW = "2 cells of 'window' are no finite number above 0: 1 is used instead"


@each_case(
    ("rows", "some", "note"),
    [
        ([{"reward": 0.5}], [{"prompt_id": 0, "completion": "a\ud800b"}], LONE),
        ([{"reward": 0.5}], [{"prompt_id": 2**63, "reward": 1.0}], LARGE),
        ([{"optimizer_updates": n} for n in (4, 8, 1, 12)], [], FELL),
        ([{"window": n} for n in (2, 0, -1)], [], WINDOW),
        (
            [{"loss": n} for n in (0.1, math.nan, None, math.nan)],
            [{"prompt_id": 0, "reward": math.nan}],
            NANS,
        ),
    ],
)
def test_an_odd_cell_costs_itself_and_is_noted(
    rows: list[dict[str, Any]], some: list[dict[str, Any]], note: str, tmp_path: Path
) -> None:
    with RecordWriter(tmp_path) as writer:
        for number, row in enumerate(rows, start=1):
            writer.append({**row, "step": number}, some)
    record = loaded_and_followed(tmp_path)
    assert record.notes == (note,)
    assert len(record.steps) == len(rows)
    follower = Follower(tmp_path)
    follower.poll()
    assert follower.record is not None
    assert follower.record.notes == (note,)


@pytest.mark.parametrize("clock", [(4, 8, 1, 12), (4, math.inf, 8, 12), (math.nan, 4, 8, 12)])
def test_the_steps_stand_in_for_a_clock_that_falls_or_has_no_end(
    clock: tuple[float, ...], tmp_path: Path
) -> None:
    with RecordWriter(tmp_path) as writer:
        for number, updates in enumerate(clock, start=1):
            writer.append({"step": number, "optimizer_updates": updates})
    assert (
        RunRecord.load(tmp_path).steps["optimizer_updates"].to_list() == [1.0, 2.0, 3.0, 4.0]
        if clock[0] == 4
        else [1.0, 4.0, 8.0, 12.0]
    )


def test_a_number_beyond_all_floats_and_a_row_of_odd_keys_stop_no_recording(tmp_path: Path) -> None:
    said: list[str] = []
    recorder = Recorder(tmp_path / "run", say=said.append)
    recorder.open()
    odd_keys: dict[Any, Any] = {
        "step": 1,
        "reward": HUGE,
        "kl": -HUGE,
        None: 1.0,
        "": 2.0,
        "a\ud800": 3.0,
    }
    recorder.append(odd_keys)
    recorder.append({"step": 2**70})
    recorder.append({"step": 2, "reward": [0.5]})
    recorder.close()
    record = RunRecord.load(tmp_path / "run")
    assert record.steps.select("reward", "kl", "None", "", "a\\ud800").row(0) == (
        math.inf,
        -math.inf,
        1.0,
        2.0,
        3.0,
    )
    assert [sentence.split(",")[0] for sentence in said] == [
        "a step is not recorded: expected a whole number for step",
        (
            "'reward' contains values that are not numbers or texts: these cells are missing in the "
            "record"
        ),
    ]
