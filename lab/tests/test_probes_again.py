"""The fifteen probes with other numbers, trainers and noise: one may be missed."""

from __future__ import annotations

import json
import re
from pathlib import Path

from lab.tests.complaints import log_of
from lab.tests.probes_again import AGAIN

from groupwise.diagnostics.judge import judge
from groupwise.pages.screen import judgement_lines
from groupwise.readers import run_record


def test_the_probes_are_right_with_other_numbers_and_trainers(tmp_path: Path) -> None:
    assert len(AGAIN) == 15
    for seed in (26, 27):
        missed = {}
        for name, (kind, trainer, words) in AGAIN.items():
            path = tmp_path / f"{name}.jsonl"
            path.write_text("\n".join(map(json.dumps, log_of(kind, trainer, seed))))
            said = judgement_lines(judge(run_record(path), ended=True))[:6]
            if not re.search(words, " ".join(" ".join(said).split())):
                missed[name] = said
        assert len(missed) <= 1, missed
