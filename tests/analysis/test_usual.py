"""What is usual of a quantity: the narrowest kind of healthy runs that a run is one of, in grey."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.analysis.summary import kind_of, usual_line
from groupwise.files import table_rows
from groupwise.record.run import RunConfig, RunRecord
from groupwise.record.table import steps_table

ROWS = list(table_rows("analysis/usual.tsv"))
STEP = np.arange(1.0, 41.0)


def run(**settings: object) -> RunRecord:
    config = RunConfig().with_settings(settings, "test")
    return RunRecord("run", steps_table(range(1, 41), {"reward": [0.5] * 40}), config=config)


def test_no_band_rests_on_fewer_than_five_runs_of_three_sources() -> None:
    assert ROWS
    for row in ROWS:
        assert float(row["low"]) <= float(row["median"]) <= float(row["high"])
        assert (int(row["runs"]) >= 5, int(row["sources"]) >= 3) == (True, True)


@each_case(
    ("settings", "kind"),
    [
        ({"framework": "trl", "model": "Qwen/Qwen2.5-7B-Instruct"}, ("trl", "4B to 15B", "")),
        ({"model": "org/Base-0.5B", "lora_rank": 16}, ("", "up to 1B", "lora")),
        ({"model": "org/Base-70b"}, ("", "above 15B", "")),
        ({"model": "org/Base", "lora_rank": 0}, ("", "", "")),
    ],
)
def test_a_run_is_of_a_trainer_a_size_and_an_adapter(
    settings: dict[str, object], kind: tuple[str, str, str]
) -> None:
    assert kind_of(run(**settings)) == kind


def test_the_band_is_that_of_the_narrowest_kind_and_a_length_goes_by_its_first_rows() -> None:
    length = np.full(40, 200.0)
    line = usual_line(run(framework="trl", model="Base-7B"), "completion_length", STEP, length)
    assert line is not None
    row = next(row for row in ROWS if (row["trainer"], row["size"]) == ("trl", "4B to 15B"))
    assert line.low == pytest.approx([200 * float(row["low"])] * 2)
    assert line.band.endswith("(trl, 4B to 15B)")
    everywhere = usual_line(run(framework="slime"), "entropy", STEP, length)
    assert everywhere is not None
    assert everywhere.band.endswith("healthy runs")
    assert usual_line(run(), "reward", STEP, length) is None
