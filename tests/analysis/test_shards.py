"""Scores taken by workers: the same bits whatever the engine, workers and shards; shards that fail;
against exact components.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.golden.sentences import says

from groupwise.cli.app import main
from groupwise.engine.engine import Engine, ShardOutcome, ShardStatus
from groupwise.engine.worker import MessageKind, Work
from groupwise.errors import GroupwiseError
from groupwise.estimators.components import components, components_of_moments
from groupwise.estimators.moments import GroupMoments, gradient_weights, moments_of_gram
from groupwise.plain import plain
from groupwise.readers import run_record
from groupwise.record.run import RunRecord

torch = pytest.importorskip("torch")

from tests.analysis.drawn import GROUPS, POISON, DrawnShard, random_run  # noqa: E402

from groupwise.analysis import components as room  # noqa: E402
from groupwise.analysis.components import (  # noqa: E402
    Measurement,
    Spread,
    measure_run,
)
from groupwise_lab.trainer.checkpoints import save_policy  # noqa: E402
from groupwise_lab.trainer.policy import Policy, policy_size  # noqa: E402
from groupwise_lab.trainer.tasks import Vocabulary  # noqa: E402

SYMBOLS = Vocabulary("0123456789+=.")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small policy with random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        policy = Policy(policy_size("tiny"), vocabulary_size=len(SYMBOLS), context=24)
    return save_policy(policy, tmp_path_factory.mktemp("model") / "policy", SYMBOLS)


@pytest.fixture(scope="module")
def run() -> RunRecord:
    return random_run()


class Here(Engine):
    """Applies a function as a worker does, in this process: for tests that ask what scores say,
    and not who takes them.
    """

    __slots__ = ()

    def map(
        self, function: Any, shards: Mapping[str, Any], *, each: Any = None, **_: Any
    ) -> list[ShardOutcome]:
        work, counts = Work(pickle.dumps(function), None), []
        assert work.ready().kind is MessageKind.READY
        for name, value in shards.items():
            answer = work.answer(pickle.dumps(value))
            if answer.kind is MessageKind.VALUE:
                counts.append(
                    ShardOutcome(
                        name,
                        ShardStatus.DONE,
                        pickle.loads(answer.value),
                        tries=1,
                        size=len(answer.value),
                    )
                )
            else:
                counts.append(
                    ShardOutcome(
                        name,
                        ShardStatus.FAILED,
                        sentence=f"shard {name}: {answer.sentence}",
                        tries=1,
                    )
                )
            each(counts[-1])
        return counts


def bits(estimate: Any) -> bytes:
    return bytes(
        estimate.components.estimate_C.tobytes() + estimate.components.covariance_CC.tobytes()
    )


def test_shards_say_what_exact_inner_products_say(checkpoint: Path, run: RunRecord) -> None:
    """Moments within groups are exact; between groups a sketch as wide as 2^16 leaves a
    hundredth.
    """
    exact = measure_run(run, Measurement(checkpoint, precision="float64")).components
    measured = measure_run(
        run,
        Measurement(checkpoint, precision="float64", sketch_width=1 << 16),
        None,
        Spread(Here(), 3),
    )
    assert measured.components.t.value == pytest.approx(exact.t.value, rel=1e-10)
    assert measured.components.r.value == pytest.approx(exact.r.value, rel=1e-10)
    assert measured.components.gradient_norm2.value == pytest.approx(
        exact.gradient_norm2.value, abs=0.02 * exact.others["within_gradient_norm2"].value
    )
    says("analysis/shards/1", measured.provenance["inner_products"])
    assert measured.provenance["shards"] == 3
    assert measured.provenance["bytes_from_workers"] < GROUPS * ((1 << 16) + 16) * 8 + 3 * 4000


def test_workers_take_a_first_pass_as_one_process_does(checkpoint: Path, run: RunRecord) -> None:
    how = Measurement(checkpoint, precision="float64", layers=("head",))
    exact, measured = measure_run(run, how), measure_run(run, how, None, Spread(Here(), 3))
    assert measured.components.t.value == pytest.approx(exact.components.t.value, rel=1e-10)
    assert measured.components.r.value == pytest.approx(exact.components.r.value, rel=1e-10)
    assert measured.provenance["parameters"] == exact.provenance["parameters"]


@pytest.fixture(scope="module")
def undisturbed(checkpoint: Path, run: RunRecord) -> bytes:
    """What this process says of three shards."""
    return bits(measure_run(run, Measurement(checkpoint, sketch_width=64), None, Spread(Here(), 3)))


def test_bits_depend_on_no_shards(checkpoint: Path, run: RunRecord, undisturbed: bytes) -> None:
    assert (
        bits(measure_run(run, Measurement(checkpoint, sketch_width=64), None, Spread(Here(), 64)))
        == undisturbed
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("engine", "workers"), [("local", 4), ("slurm", 2), ("ray", 1), ("ray", 2), ("ray", 4)]
)
def test_bits_depend_on_no_engine(
    checkpoint: Path, run: RunRecord, undisturbed: bytes, engine: str, workers: int
) -> None:
    """Ray where RAY_ADDRESS names a cluster; submitit's own processes, which it never waits for,
    where there is no SLURM.
    """
    pytest.importorskip({"local": "numpy", "slurm": "submitit", "ray": "ray"}[engine])
    if engine == "ray" and "RAY_ADDRESS" not in os.environ:
        pytest.skip("RAY_ADDRESS names no cluster")
    assert (
        bits(
            measure_run(
                run,
                Measurement(checkpoint, sketch_width=64),
                None,
                Spread(Engine(engine, workers), 3),
            )
        )
        == undisturbed
    )


@pytest.mark.slow
def test_the_mean_over_tokens_is_that_of_all_rollouts(checkpoint: Path, run: RunRecord) -> None:
    exact = measure_run(run, Measurement(checkpoint, aggregation="batch_token_mean")).components
    estimate = measure_run(
        run,
        Measurement(checkpoint, sketch_width=64, aggregation="batch_token_mean"),
        None,
        Spread(Here(), 3),
    ).components
    assert estimate.t.value == pytest.approx(exact.t.value, rel=2e-4)


@given(st.lists(st.integers(4, 9), min_size=2, max_size=8), st.integers(0, 2**32 - 1), st.data())
@settings(deadline=None)
def test_groups_add_up_as_one_batch(sizes: list[int], seed: int, data: st.DataObject) -> None:
    """Whatever is cut where, and whatever is added first, the sum says what the scores of the
    whole batch say.
    """
    rng = np.random.default_rng(seed)
    prompt = np.repeat(np.arange(len(sizes)), sizes)
    score, reward = rng.normal(size=(len(prompt), 5)), rng.normal(size=len(prompt))
    parts = []
    for group in range(len(sizes)):
        own, value = score[prompt == group], reward[prompt == group]
        moments = moments_of_gram(own @ own.T, value, np.zeros(len(value)))
        parts.append(replace(moments, gradient_PD=(gradient_weights(value) @ own)[None]))
    while len(parts) > 1:
        place = data.draw(st.integers(0, len(parts) - 2))
        parts[place : place + 2] = [GroupMoments.joined(parts[place : place + 2])]
    expected = components(reward, prompt, score_ND=score)
    estimate = components_of_moments(parts[0])
    scale = float(np.abs(expected.estimate_C).max())
    np.testing.assert_allclose(
        estimate.estimate_C, expected.estimate_C, rtol=1e-10, atol=1e-10 * scale
    )
    if len(sizes) > 2:
        np.testing.assert_allclose(
            estimate.covariance_CC, expected.covariance_CC, rtol=1e-8, atol=1e-10 * scale**2
        )


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, checkpoint: Path, run: RunRecord) -> Callable[..., Any]:
    """Measures with scores that are drawn, so that workers need no model."""
    monkeypatch.setattr(room, "ScoreShard", DrawnShard)

    def measured(*, progress: Any = None, engine: Engine | None = None) -> Any:
        return measure_run(
            run, Measurement(checkpoint, sketch_width=8), progress, Spread(engine or Here(), 3)
        )

    return measured


def test_each_shard_is_told_as_it_ends(drawn: Callable[..., Any]) -> None:
    progress: list[tuple[int, int]] = []
    drawn(progress=lambda done, of: progress.append((done, of)))
    assert progress == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.slow
def test_a_shard_that_fails_twice_is_named_and_left_out(
    drawn: Callable[..., Any], run: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run.rollouts is not None
    monkeypatch.setenv(POISON, repr(run.rollouts["reward"][0]))
    alone = drawn(engine=Engine("local", 1))
    assert alone.components.prompts == 4
    [lost] = alone.provenance["shards_left_out"]
    [note] = [
        note
        for note in alone.components.notes
        if note.startswith(f"Shard {lost}: its worker was ended by signal 9")
    ]
    assert "after 2 tries" in note
    assert "1 of 3 shards were left out because they failed." in alone.components.notes


def test_nothing_but_failures_is_one_sentence(run: RunRecord, checkpoint: Path) -> None:
    with pytest.raises(GroupwiseError, match="expected scores, got none; shard 1"):
        measure_run(run, Measurement(checkpoint, layers=("nothing*",)), None, Spread(Here(), 1))


@pytest.mark.slow
def test_the_command_with_an_engine(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    from groupwise import examples

    run = tmp_path / "run"
    shutil.copytree(examples.trl_run(), run)
    arguments = [
        "components",
        str(run),
        "--model",
        str(checkpoint),
        "--groups",
        "8",
        "--sketch-width",
        "64",
    ]
    assert main([*arguments, "--engine", "local", "--workers", "1", "--shards", "4", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["prompts"], document["provenance"]["shards"]) == (8, 4)
    here = measure_run(
        run_record(run), Measurement(checkpoint, groups=8, sketch_width=64), None, Spread(Here(), 2)
    )
    assert (
        document["vp"] == plain(here.components)["vp"]
    )  # a worker's bits are those of this process
    assert main(["components", str(run), "--workers", "2"]) == 2
    assert "--workers needs --engine" in capsys.readouterr().err
    assert main([*arguments, "--engine", "local", "--gpus-per-task", "1", "--force"]) == (
        2 if not torch.cuda.is_available() else 0
    )
    if not torch.cuda.is_available():
        assert "expected GPUs for a worker (1), got 0 on this machine" in capsys.readouterr().err
