"""Failures made on purpose in SmolLM2 (`lab/experiments/language_models/failures.py`), from
their journals: what the judgement says of each.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import polars as pl
import pytest
from tests.golden.sentences import says

import groupwise as gw
from groupwise.diagnostics.judgement import Judgement
from groupwise.record.run import RunRecord

JOURNALS = Path(__file__).resolve().parents[1] / "fixtures" / "language_models"


@pytest.fixture
def judgement(request: pytest.FixtureRequest, tmp_path: Path) -> Judgement:
    """Of a recorded run."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "journal.jsonl").write_bytes(
        gzip.decompress((JOURNALS / f"{request.param}.jsonl.gz").read_bytes())
    )
    return gw.open_run(run).judgement


@pytest.mark.parametrize(
    "judgement", ["broken_verifier-seed0", "broken_verifier-seed1"], indirect=True
)
def test_a_verifier_that_breaks_is_named_though_little_entropy_is_left(
    judgement: Judgement,
) -> None:
    # From step 18 on every reward is 0, so that no gradient is left and the answers stay as they
    # are: the little entropy varies by batch.
    assert judgement.state.value == "failed"
    assert (judgement.cause.certainty.value, judgement.cause.names) == (
        "likely",
        ("a broken verifier",),
    )
    assert judgement.first_sign is not None
    assert judgement.first_sign.step == 18


@pytest.mark.parametrize("judgement", ["reward_hack-seed0"], indirect=True)
def test_a_loophole_in_a_real_model_is_told_by_the_strict_function_beside_it(
    judgement: Judgement,
) -> None:
    # The sloppy verifier is trained on; the strict one is logged without weight, and the held-out
    # reward is the sloppy one's too.
    assert judgement.state.value == "failed"
    says("diagnostics/real_model/4", judgement.headline)
    assert (judgement.cause.certainty.value, judgement.cause.names) == (
        "likely",
        ("reward hacking",),
    )
    assert judgement.first_sign is not None
    assert judgement.first_sign.step == 8


@pytest.mark.parametrize("judgement", ["reward_hack-seed1"], indirect=True)
def test_a_loophole_that_opens_late_is_told_though_the_reward_has_stopped_rising(
    judgement: Judgement,
) -> None:
    # Both functions rise to .8 by step 20; then the strict one falls to .35 within ten steps and
    # the sloppy one stands, later to fall.
    assert judgement.state.value == "failed"
    assert (judgement.cause.certainty.value, judgement.cause.names) == (
        "likely",
        ("reward hacking",),
    )
    assert judgement.first_sign is not None
    assert judgement.first_sign.step == 22


@pytest.mark.parametrize("judgement", ["length_runaway-seed1"], indirect=True)
def test_a_policy_that_is_paid_for_what_is_cut_off_is_not_to_get_a_higher_limit(
    judgement: Judgement,
) -> None:
    # The right answer comes first and the text goes on behind it: the strict function stands, and
    # all are cut off from step 22 on.
    assert (judgement.state.value, judgement.cause.certainty.value) == ("warning", "possible")
    assert judgement.cause.names == ("truncated completions earn reward",)
    says("diagnostics/real_model/2", judgement.do)
    assert [action.kind for action in judgement.actions] == ["anew", "mask", "reward"]


@pytest.mark.parametrize("judgement", ["harder_data-seed1"], indirect=True)
def test_harder_data_is_no_runaway_in_length_though_its_answers_are_longer(
    judgement: Judgement,
) -> None:
    # From step 18 on digits are to be sorted: whole prompts fail, at three tokens more an answer,
    # and what is held out stays at .93.
    says("diagnostics/real_model/3", judgement.headline)
    assert (judgement.cause.certainty.value, judgement.cause.names) == ("likely", ("harder data",))


@pytest.mark.parametrize(
    ("judgement", "state", "cause", "sign"),
    [
        # At lr 3e-3 the policy came apart before its entropy was spent: .75, .5, .375, .375, 0 from
        # step 14 on, as answers of 3 tokens grew to the limit.
        ("entropy_collapse-seed0", "failed", ("the policy ran away in length",), 15),
        ("entropy_collapse-seed1", "failed", ("the policy ran away in length",), 17),
        # Every character pays: the total rises, the strict function is lost.
        ("length_runaway-seed0", "warning", ("the policy ran away in length",), 20),
        # Rollouts up to ten updates old at a large learning rate: the groups become alike, and what
        # is lost does not come back.
        ("staleness-seed0", "warning", ("the policy ran away in length",), 10),
        # Here it stands at a tenth for the second half of the run, less than half of its height
        # beyond doubt.
        ("staleness-seed1", "failed", ("the policy ran away in length",), 18),
        # Most answers are cut off from the first step on, before groups of two could matter.
        (
            "zero_variance-seed0",
            "warning",
            ("truncation (most completions hit the limit)",),
            None,
        ),
        # Fewer are cut off in the second run, and four groups of two in five are alike.
        ("zero_variance-seed1", "warning", ("the group is too small for these prompts",), None),
    ],
    indirect=["judgement"],
)
def test_what_went_wrong_is_named(
    judgement: Judgement, state: str, cause: tuple[str, ...], sign: int | None
) -> None:
    assert (judgement.state.value, judgement.cause.certainty.value, judgement.cause.names) == (
        state,
        "likely",
        cause,
    )
    assert (None if judgement.first_sign is None else judgement.first_sign.step) == sign


@pytest.mark.parametrize("seed", [1, 2])
def test_a_policy_that_its_first_update_caught_names_the_second_number_and_is_called_failed(
    seed: int, tmp_path: Path
) -> None:
    # No rule was mended on these: the groups are told, not the entropy that made them alike.
    (tmp_path / "journal.jsonl").write_bytes(
        gzip.decompress((JOURNALS / f"concentration-seed{seed}.jsonl.gz").read_bytes())
    )
    judgement, rollouts = gw.open_run(tmp_path).judgement, RunRecord.load(tmp_path).rollouts
    assert (judgement.state.value, judgement.cause.names) == (
        "failed",
        ("zero-variance groups (almost no group gives a gradient)",),
    )
    assert judgement.do.startswith("compare two completions of one prompt")
    assert rollouts is not None
    late = rollouts.filter(pl.col("step") > 1)
    second = [re.findall(r"\d+", json.loads(prompt)[-1]["content"])[1] for prompt in late["prompt"]]
    named = [
        completion.strip() == number
        for completion, number in zip(late["completion"], second, strict=True)
    ]
    assert sum(named) / len(named) == pytest.approx(0.99, abs=0.005)


@pytest.mark.parametrize("judgement", ["harder_data-seed0"], indirect=True)
def test_harder_data_that_are_learnt_again_leave_a_reward_that_stands(judgement: Judgement) -> None:
    # Rows of 64 rollouts scatter by .24: the dip at step 18 is within their noise, and nothing is
    # said of it.
    assert (judgement.state.value, judgement.cause.names) == ("warning", ())
    says("diagnostics/real_model/1", judgement.do)
