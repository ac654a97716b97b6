"""What a reader says of how finely the same numbers were printed, and that a record keeps it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.cases import each_case
from tests.readers.writers import event_file

from groupwise.errors import UnreadableRunError
from groupwise.readers import run_record
from groupwise.readers.assemble import resolutions
from groupwise.readers.rows import RowStore
from groupwise.record.run import Meaning, RunRecord, steps_table
from groupwise.record.table import fewest_decimals, printed_decimals, resolution_of, zero_rows

ROWS = [
    {
        "step": step,
        "reward": 0.111 * step,
        "kl": 0.013 * step,
        "learning_rate": 0.0,
        "grad_norm": 1.0,
    }
    for step in range(1, 6)
]
VERL = {
    "reward": "critic/rewards/mean",
    "kl": "actor/kl_loss",
    "learning_rate": "actor/lr",
    "grad_norm": "actor/grad_norm",
}


def fixed(row: dict[str, float], places: int) -> dict[str, str]:
    return {
        key: str(value) if key == "step" else f"{value:.{places}f}" for key, value in row.items()
    }


def verl(path: Path) -> Path:
    rows = [fixed(row, 3) for row in ROWS]
    lines = (
        " - ".join([f"step:{row['step']}", *(f"{new}:{row[key]}" for key, new in VERL.items())])
        for row in rows
    )
    path.write_text("\n".join(lines) + "\n")
    return path


def verl_of_numpy(path: Path) -> Path:
    lines = (
        " - ".join([f"step:{row['step']}", *(f"{new}:{row[key]!r}" for key, new in VERL.items())])
        for row in EXACT
    )
    path.write_text("\n".join(lines) + "\n")
    return path


def printed(path: Path) -> Path:
    rows = [fixed(row, 3) for row in ROWS]
    path.write_text(
        "".join(
            f"Step {row.pop('step')}/5 | {' | '.join(f'{key}={row[key]}' for key in row)}\n"
            for row in rows
        )
    )
    return path


def csv(path: Path) -> Path:
    path.write_text(
        "\n".join([",".join(ROWS[0]), *(",".join(fixed(row, 3).values()) for row in ROWS)]) + "\n"
    )
    return path


def csv_of_pandas(path: Path) -> Path:
    path.write_text(
        "\n".join([",".join(EXACT[0]), *(",".join(map(repr, row.values())) for row in EXACT)])
        + "\n"
    )
    return path


def jsonl(path: Path) -> Path:
    path.write_text(
        "".join(
            json.dumps({key: round(value, 3) for key, value in row.items()}) + "\n" for row in ROWS
        )
    )
    return path


def jsonl_exact(path: Path) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in EXACT))
    return path


def notebook(path: Path) -> Path:
    rows = [fixed(row, 6) for row in ROWS]
    head, *body = [list(rows[0]), *(list(row.values()) for row in rows)]
    cells = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in body)
    html = f"<table><tr>{''.join(f'<th>{name}</th>' for name in ('Step', *head[1:]))}</tr>{cells}</table>"
    path.write_text(
        json.dumps(
            {
                "cells": [
                    {"cell_type": "code", "source": "", "outputs": [{"data": {"text/html": html}}]}
                ]
            }
        )
    )
    return path


def tensorboard(path: Path) -> Path:
    return event_file(
        path,
        [
            {
                key: value if key == "step" else float(np.float32(value))
                for key, value in row.items()
            }
            for row in ROWS
        ],
    )


EXACT = [row | {"kl": 0.0131234 * row["step"]} for row in ROWS]
THREE, SIX = dict.fromkeys(VERL, 5e-4), dict.fromkeys(VERL, 5e-7)
# The reward shows three decimals by itself; beside a KL that is not rounded a 0 is one.
OWN = {"reward": 5e-4, "kl": 0.0, "learning_rate": 0.0, "grad_norm": 0.0}


@each_case(
    ("write", "name", "expected"),
    [
        (verl, "a.log", THREE),
        (verl_of_numpy, "a.log", OWN),
        (printed, "a.log", THREE),
        (csv, "a.csv", THREE),
        (csv_of_pandas, "a.csv", OWN),
        (
            jsonl,
            "a.jsonl",
            THREE | {"grad_norm": 0.0},
        ),  # 1.0 may be a count: JSON keeps no digits behind it
        (jsonl_exact, "a.jsonl", OWN),
        (notebook, "a.ipynb", SIX),
        (tensorboard, "events.out.tfevents.1", dict.fromkeys(VERL, 0.0)),
    ],
)
def test_the_same_numbers_are_known_as_finely_as_they_were_printed(
    write: Callable[[Path], Path], name: str, expected: dict[str, float], tmp_path: Path
) -> None:
    record = run_record(write(tmp_path / name))
    resolutions = {meaning.column: meaning.resolution for meaning in record.meanings}
    assert {key: resolutions.get(key, resolutions.get(VERL[key])) for key in VERL} == expected


@each_case(
    ("text", "decimals"),
    [
        *(("0.000", 3), ("-0.500", 3), ("1.10 ", 2), (".00", 2)),
        *(
            (text, 0)
            for text in (
                "0.0",
                "12",
                "0.123",
                "0.00e+00",
                "1.0e-10",
                "000",
                "0.00000000",
                "nan",
                "",
                "1.٠٠",
            )
        ),
    ],
)
def test_a_zero_at_the_end_is_that_of_a_fixed_format(text: str, decimals: int) -> None:
    assert printed_decimals(text) == decimals


def test_how_many_decimals_hold_all_values() -> None:
    assert fewest_decimals(np.array([0.5, 0.25, 3.0])) == 2
    assert fewest_decimals(np.array([0.1 + 0.2, 1e9 + 0.5])) == 1
    assert fewest_decimals(np.array([0.1], dtype=np.float32).astype(float), 5) is None
    assert (resolution_of(3), resolution_of(0)) == (5e-4, 0.0)


@each_case(
    ("rows", "expected"),
    [
        ([{"a": 0.25, "b": 0.5}, {"a": 0.75, "b": 0.25}], {}),  # two values are shares of four
        ([{"a": 0.25}, {"a": 0.75}, {"a": 0.11}], {"a": 5e-3}),
        ([{"a": 0.1}, {"a": 0.2}, {"a": 0.3}], {}),
        (
            [
                {"a": 0.25, "b": 0.5, "lr": 1e-4},
                {"a": 0.75, "b": 0.25, "lr": 0.0},
                {"a": 0.11, "b": 0.12},
            ],
            {"a": 5e-3, "b": 5e-3},
        ),
        (
            [{"a": "0.50"}, {"a": "0.125"}],
            {},
        ),  # a 0 at an end, and more decimals elsewhere: no fixed format
        ([{"a": "0.50", "n": "3"}, {"a": "0.25", "n": "4"}], {"a": 5e-3}),
        # one decimal, of more than a share
        (
            [{"a": "1.2", "lr": "0.0"}, {"a": "2.1", "lr": "0.0"}, {"a": "3.3", "lr": "0.0"}],
            {"a": 5e-2, "lr": 5e-2},
        ),
        # four decimals beside a clock in full
        (
            [
                {"a": a, "lr": 0.0, "time": 1.7e9 + 3.1415927 * a}
                for a in (0.1405, 0.1226, 0.0895, 0.1304)
            ],
            {"a": 5e-5, "lr": 5e-5},
        ),
        ([{"a": a, "lr": 0.0} for a in (0.14052, 0.12263, 0.0895)], {"a": 5e-6, "lr": 5e-6}),
        # shares of sixteen and of a hundred, and small numbers
        ([{"a": n / 16, "lr": 0.0} for n in (1, 3, 5, 7)], {}),
        ([{"a": n / 100, "lr": 0.0} for n in (31, 33, 47)], {"a": 5e-3}),
        ([{"a": 0.4, "lr": n * 1e-5} for n in (1, 2, 3)], {}),
    ],
)
def test_values_that_are_round_by_themselves_are_not_rounded(
    rows: list[dict[str, float]], expected: dict[str, float]
) -> None:
    assert resolutions(RowStore.of(rows)) == expected


def test_rows_that_are_kept_and_columns_that_are_renamed_keep_their_digits() -> None:
    store = RowStore.of([{"a": "0.000"}, {"a": "0.001"}])
    assert resolutions(store.kept(np.array([True, False]))) == {"a": 5e-4}
    assert resolutions(store.renamed({"a": "b"})) == {"b": 5e-4}


def test_a_zero_is_one_where_rounding_hides_nothing_that_counts() -> None:
    value = np.array([0.0, 0.01, 0.012, np.nan])
    assert zero_rows(value, 0.0).tolist() == [True, False, False, False]
    assert zero_rows(value, 5e-4).tolist() == [
        True,
        False,
        False,
        False,
    ]  # 0.011 is 22 times as large
    assert zero_rows(value, 6e-4).tolist() == [False] * 4
    assert zero_rows(np.zeros(2), 5e-4).tolist() == [False] * 2


def test_a_percentage_of_two_decimals_is_a_share_of_four(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("step,reward,truncated (%)\n1,0.5,12.50\n2,0.6,50.00\n")
    record = run_record(path)
    meaning = record.meaning("truncated (%)")
    assert meaning is not None
    assert (record.steps["truncated (%)"][0], round(meaning.resolution, 12)) == (0.125, 5e-5)


@pytest.mark.parametrize(("lr", "rate"), [("0.000", None), ("0.001", None), ("0.010", 0.01)])
def test_the_rate_of_a_column_is_a_setting_where_its_digits_tell_it(
    lr: str, rate: float | None, tmp_path: Path
) -> None:
    path = tmp_path / "a.log"
    path.write_text(
        "".join(
            (
                f"step:{step} - critic/rewards/mean:0.{step}00 - actor/kl_loss:0.0{step}0 - "
                f"actor/lr:{lr}\n"
            )
            for step in range(1, 6)
        )
    )
    assert run_record(path).config.value("learning_rate") == rate


def test_a_record_keeps_the_resolution_and_an_old_one_has_none(tmp_path: Path) -> None:
    record = RunRecord(
        "a",
        steps_table([1, 2], {"x": [0.1, 0.2]}),
        meanings=(Meaning("x", "kl", "KL", resolution=5e-4),),
    )
    home = record.save(tmp_path / "a")
    assert RunRecord.load(home).meanings == record.meanings
    about = json.loads((home / "record.json").read_text())
    for resolution in ("much", -1.0, float("inf"), None):
        about["meanings"][0]["resolution"] = resolution
        (home / "record.json").write_text(json.dumps(about))
        with pytest.raises(UnreadableRunError, match="damaged one"):
            RunRecord.load(home)
    del about["meanings"][0]["resolution"]
    (home / "record.json").write_text(json.dumps(about))
    assert RunRecord.load(home).meanings[0].resolution == 0.0


def test_a_rate_of_0_in_all_rows_is_no_setting(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(json.dumps({"step": step, "reward": 0.5, "lr": 0.0}) + "\n" for step in range(5))
    )
    assert not run_record(path).config.learning_rate.known
