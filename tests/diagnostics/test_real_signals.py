"""The checks of signals that nothing read before, on real public runs that went well, as they
grew; the files stay outside the project.
"""

from __future__ import annotations

import csv
import os
from dataclasses import replace
from pathlib import Path

import pytest

from groupwise.diagnostics import completions, instability, numerics, verifier
from groupwise.diagnostics.judgement import Status
from groupwise.diagnostics.signals import Evidence
from groupwise.readers import run_record

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("GROUPWISE_DATA", ROOT.parent / "shared" / "data"))
CHECKS = (
    *(
        numerics.finite,
        numerics.gradient,
        numerics.updates,
        numerics.divergence,
        numerics.sampler,
        numerics.staleness,
        verifier.reward_functions,
    ),
    *(
        completions.repetition,
        completions.truncated,
        instability.restart,
        numerics.discards,
        numerics.router,
        verifier.tools,
    ),
)
_LABELS = (
    (ROOT / "experiments" / "diagnosis" / "labels.tsv", ""),
    (DATA / "hard" / "LABELS.tsv", "hard/"),
)


def labelled(*labels: str) -> list[str]:
    """The files of some labels."""
    messages = []
    for table, home in _LABELS:
        if table.is_file():
            with table.open(encoding="utf-8") as file:
                messages += [
                    home + row["file"]
                    for row in csv.DictReader(file, delimiter="\t")
                    if row["label"] in labels
                ]
    return messages


pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"the public runs are not on this machine: {DATA} is absent"
)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("file", labelled("healthy", "recovered"))
def test_runs_that_went_well_are_not_told_at_any_of_twenty_looks(file: str) -> None:
    record = run_record(DATA / file)
    total = len(record.steps)
    for rows in sorted({*range(5, total + 1, max(1, total // 20)), total}):
        evidence = Evidence(replace(record, steps=record.steps.head(rows)))
        messages = [
            finding.message
            for finding in (look(evidence) for look in CHECKS)
            if finding.status in (Status.WARNING, Status.CRITICAL)
        ]
        assert not messages, rows


def test_the_run_whose_numbers_broke_has_its_step() -> None:
    finding = numerics.finite(
        Evidence(
            run_record(DATA / "hard" / "cs336_grpo_off_policy_sweep_focused_e2_tb256.metrics.jsonl")
        )
    )
    assert (finding.status, finding.step, finding.column) == (Status.CRITICAL, 193, "grad_norm")
