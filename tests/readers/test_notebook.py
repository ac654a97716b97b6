"""Progress tables in notebooks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.errors import UnreadableRunError
from groupwise.readers import run_record

TABLE = """<div><progress value='3'></progress>[3/3 1:00, Epoch 0/1]</div><table border="1"><thead>
<tr><th>Step</th><th>Training Loss</th><th>reward</th><th>reward_std</th><th>rewards / f &amp; g / mean</th></tr>
</thead><tbody>{}</tbody></table><p>"""
ROW = "<tr><td>{0}</td><td>0.1</td><td>0.{0}</td><td>No log</td><td>0.5</td></tr>"


def notebook(path: Path, *outputs: Any, source: Any = "") -> Path:
    """A notebook with one training cell."""
    code = {
        "cell_type": "code",
        "source": source,
        "outputs": [{"data": {"text/html": out}} for out in outputs],
    }
    path.write_text(
        json.dumps(
            {
                "cells": [{"cell_type": "markdown", "source": ["# x"]}, code],
                "metadata": {},
                "nbformat": 4,
            }
        )
    )
    return path


def test_the_longest_table_is_read(tmp_path: Path) -> None:
    long, short = (
        TABLE.format("".join(ROW.format(step) for step in range(1, last + 1))) for last in (3, 1)
    )
    source = [
        "import unsloth\n",
        "args = GRPOConfig(\n",
        "    num_generations = 6,\n",
        "    optim = 'adamw',\n",
        ")",
    ]
    record = run_record(
        notebook(tmp_path / "a.ipynb", short, long.splitlines(keepends=True), source=source)
    )
    assert record.steps["step"].to_list() == [1, 2, 3]
    assert record.steps["reward"].to_list() == [0.1, 0.2, 0.3]
    assert "reward_std" not in record.metrics()
    assert record.column("rewards/f & g/mean") == "rewards / f & g / mean"
    rounded, longest = record.notes
    says("readers/notebook/1", rounded)
    says("readers/notebook/2", longest)
    settings = {name: setting.value for name, setting in record.config.known().items()}
    assert (settings["group_size"], settings["framework"], settings["optimizer"]) == (
        6,
        "unsloth",
        "adamw",
    )


@each_case(
    ("code", "settings"),
    [
        (
            (
                "a = GRPOConfig(learning_rate=1e-6, num_generations=8, optim='adamw_torch', "
                "scale_rewards=False)"
            ),
            (1e-6, 8, "none"),
        ),
        (
            (
                "!pip install trl\n%matplotlib inline\nout = !ls\nif x:\n    "
                "%time\nGRPOConfig(learning_rate=\n1e-6, num_generations=8)"
            ),
            (1e-6, 8, None),
        ),
        (
            (
                "SFTConfig(learning_rate=2e-4)\nt = trl.GRPOConfig(num_generations=8, "
                "learning_rate=1e-6)"
            ),
            (1e-6, 8, None),
        ),  # whatever comes first
        (
            "GRPOConfig(learning_rate=open('/tmp/x').read(), num_generations=2**4, **more)",
            (None, None, None),
        ),  # nothing is run
        (
            "# GRPOConfig(learning_rate=1e-6)\nsaid = 'GRPOConfig(learning_rate=1e-6)'",
            (None, None, None),
        ),
        ("GRPOConfig(learning_rate=1e-6", (None, None, None)),
    ],
)
def test_literal_arguments_of_calls_are_settings(
    code: str, settings: tuple[object, ...], tmp_path: Path
) -> None:
    table = TABLE.format("".join(ROW.format(step) for step in range(1, 4)))
    config = run_record(notebook(tmp_path / "a.ipynb", table, source=code)).config
    assert (
        tuple(config.value(name) for name in ("learning_rate", "group_size", "scale_rewards"))
        == settings
    )


@each_case(
    "outputs",
    [
        [],
        ["<p>hello</p>"],
        ["<table><tr><th>Step</th></tr></table>"],
        [5],
        ["<table><tr><th>x</th></tr><tr><td>1</td></tr>"],
    ],
)
def test_no_progress_table(tmp_path: Path, outputs: list[Any]) -> None:
    with pytest.raises(UnreadableRunError, match="none in"):
        run_record(notebook(tmp_path / "a.ipynb", *outputs))


@each_case(
    "text",
    [
        '{"cells": 5}',
        '{"cells": [1, {"outputs": 3}, {"outputs": [1]}]}',
        '{"cells": [',
        '{"nbformat": 4}',
    ],
)
def test_damaged(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.ipynb").write_text(text)
    with pytest.raises(UnreadableRunError):
        run_record(tmp_path / "a.ipynb")
