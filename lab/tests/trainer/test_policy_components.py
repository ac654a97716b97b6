"""Components of a run under a checkpoint of the trainer's own, which the instrument opens as any
language model.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from groupwise.errors import GroupwiseError
from groupwise.record.run import RunRecord
from groupwise_lab.trainer.tasks import DRAWN_PAD, END, Task

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from groupwise.analysis.components import Measurement, measure_run  # noqa: E402
from groupwise.estimators.components import components  # noqa: E402
from groupwise.gradients.language_models import load_reader  # noqa: E402
from groupwise_lab.trainer.checkpoints import load_policy, save_policy  # noqa: E402
from groupwise_lab.trainer.grpo import train  # noqa: E402
from groupwise_lab.trainer.settings import TrainSettings  # noqa: E402


@pytest.fixture
def run(tmp_path: Path, small_task: Task, make_policy: Callable[[], Any]) -> tuple[RunRecord, Path]:
    """Two steps of eight groups of six, all completions of one symbol, and the checkpoint that
    sampled the second step, nearly.
    """
    settings = TrainSettings(
        group_size=6,
        rollouts_per_step=48,
        steps=2,
        rollouts_every=1,
        learning_rate=1e-4,
        evaluate_every=0,
        prompt_order="epochs",
    )
    record = train(make_policy(), small_task, settings, output=tmp_path / "run")
    return record, tmp_path / "run" / "checkpoints" / "checkpoint-2"


def scores_by_autograd(checkpoint: Path, rows: pl.DataFrame, task: Task) -> np.ndarray:
    """One backward pass a rollout, END scored where it was sampled."""
    policy = load_policy(checkpoint)
    scores = []
    for prompt, completion, ended in rows.select("prompt", "completion", "ended").iter_rows():
        symbols = {"\ufffd": 0} | {
            symbol: task.vocabulary.encode(symbol)[0] for symbol in task.vocabulary.symbols
        }
        before, after = (
            task.vocabulary.encode(prompt),
            [symbols[symbol] for symbol in completion] + [1] * int(ended),
        )
        logits = policy(torch.tensor([before + after]))[0, len(before) - 1 : -1]
        total = logits.log_softmax(-1).gather(1, torch.tensor(after)[:, None]).sum()
        scores.append(
            torch.cat(
                [part.flatten() for part in torch.autograd.grad(total, list(policy.parameters()))]
            ).numpy()
        )
    return np.array(scores, dtype=np.float64)


def test_the_scores_of_a_policy_are_those_of_autograd_and_its_end_is_scored(
    run: tuple[RunRecord, Path], small_task: Task
) -> None:
    """The policy's own forward pass in float32: rounding leaves 1e-5 of the largest component."""
    record, checkpoint = run
    assert record.rollouts is not None
    rows = record.rollouts.filter(pl.col("step") == 2)
    expected = components(
        rows["reward"], rows["prompt_id"], score_ND=scores_by_autograd(checkpoint, rows, small_task)
    )
    measured = measure_run(record, Measurement(checkpoint, groups=8))
    assert measured.provenance["steps"] == [2, 2]
    assert measured.components.estimate_C == pytest.approx(
        expected.estimate_C, rel=1e-5, abs=1e-5 * abs(expected.estimate_C[2])
    )
    assert measured.provenance["cut_off_completions"] == int((rows["ended"] == 0).sum())


def test_the_tokenizer_of_a_checkpoint_is_the_vocabulary_of_its_task(
    run: tuple[RunRecord, Path], small_task: Task
) -> None:
    tokenizer = load_reader(run[1]).tokenizer
    text = small_task.vocabulary.symbols + DRAWN_PAD
    assert tokenizer.encode(text, add_special_tokens=False) == small_task.vocabulary.encode(text)
    assert (len(tokenizer), tokenizer.eos_token_id) == (len(small_task.vocabulary), END)


def test_a_policy_of_other_symbols_is_refused(run: tuple[RunRecord, Path], tmp_path: Path) -> None:
    from groupwise_lab.trainer.policy import Policy, policy_size
    from groupwise_lab.trainer.tasks import BRACKET_ROWS

    record, _ = run
    folder = save_policy(
        Policy(policy_size("tiny"), vocabulary_size=len(BRACKET_ROWS)),
        tmp_path / "brackets",
        BRACKET_ROWS,
    )
    with pytest.raises(GroupwiseError, match="that the model's tokenizer can encode"):
        measure_run(record, Measurement(folder))
