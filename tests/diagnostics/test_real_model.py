"""Failures made on purpose in SmolLM2 (`experiments/language_models/failures.py`), from their journals: what the judgement says of each."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import groupwise as gw
from groupwise.diagnostics.judgement import Judgement

JOURNALS = Path(__file__).resolve().parents[1] / "fixtures" / "language_models"


@pytest.fixture
def judgement(request: pytest.FixtureRequest, tmp_path: Path) -> Judgement:
    """Of a recorded run."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "journal.jsonl").write_bytes(gzip.decompress((JOURNALS / f"{request.param}.jsonl.gz").read_bytes()))
    return gw.open_run(run).judgement


@pytest.mark.parametrize("judgement", ["broken_verifier-seed0"], indirect=True)
def test_a_verifier_that_breaks_is_named_though_little_entropy_is_left(judgement: Judgement) -> None:
    # From step 18 on every reward is 0, so that no gradient is left and the answers stay as they are: the little entropy varies by batch.
    assert judgement.state.value == "failed"
    assert (judgement.cause.certainty.value, judgement.cause.names) == ("likely", ("a broken verifier",))
    assert judgement.first_sign is not None
    assert judgement.first_sign.step == 18


@pytest.mark.parametrize("judgement", ["reward_hack-seed0"], indirect=True)
def test_a_loophole_in_a_real_model_is_told_by_the_strict_function_beside_it(judgement: Judgement) -> None:
    # The sloppy verifier is trained on; the strict one is logged without weight, and the held-out reward is the sloppy one's too.
    assert (judgement.state.value, judgement.headline) == ("failed", "reward 0.44 → 0.75, strict 0.38 → 0.22: reward hacking likely")
    assert (judgement.cause.certainty.value, judgement.cause.names) == ("likely", ("reward hacking",))
    assert judgement.first_sign is not None
    assert judgement.first_sign.step == 8
