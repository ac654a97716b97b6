"""`groupwise plan --objective final-gap`: numbers held against formulas written out here, and one line for every mistake."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from tests.cli.asked import printed

from groupwise.cli import app as cli

NUMBERS = ("plan", "--vp", "1", "--t", "2", "--r", "49", "--budget", "1024", "--objective", "final-gap")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a Hessian, one with all matrices, and scores of two parameters."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    hessian = -np.array([[2.0, 0.3], [0.3, 0.5]])
    np.savez(tmp_path / "hessian.npz", hessian_DD=hessian)
    np.savez(tmp_path / "all.npz", hessian_DD=hessian, between_DD=np.eye(2), first_DD=2 * np.eye(2), second_DD=np.diag([30.0, 6.0]))
    score, prompt = rng.normal(size=(384, 2)), np.repeat(np.arange(48), 8)
    pull = (score * rng.normal(0.2, 0.8, size=(48, 2))[prompt]).sum(axis=1)
    reward = (rng.random(384) < 1 / (1 + np.exp(-pull))).astype(float)
    np.savez(tmp_path / "scores.npz", score_ND=score, reward_N=reward, prompt_N=prompt)
    return tmp_path


def test_one_curvature_for_all_directions(capsys: pytest.CaptureFixture[str]) -> None:
    """b lam / (4 b lam - 2) b times the error over n; by default b = 1/lam."""
    plain = printed(capsys, *NUMBERS, "--curvature", "0.5", "--updates", "1000", "--group-size", "4")
    error = (1 + 2 / 4 + 49 / 12) / 256
    assert plain["final_gap"]["expected"] == pytest.approx(error * 4 * 0.5 / (4 - 2) / 1000)
    assert plain["final_gap"]["schedule"] == "steps of 2/i"
    assert plain["present"]["mse"] == pytest.approx(error)
    plain = printed(capsys, *NUMBERS, "--curvature", "0.5", "--step-constant", "3", "--group-size", "4")
    assert plain["final_gap"]["expected"] == pytest.approx(error * 9 * 0.5 / (6 - 2))
    plain = printed(capsys, *NUMBERS, "--curvature", "0.5", "--learning-rate", "0.1", "--group-size", "4")
    assert plain["final_gap"]["expected"] == pytest.approx(error * 0.1 / (2 * (2 - 0.05)))


def test_all_matrices_give_the_law_and_the_best_size_in_its_metric(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = printed(
        capsys, "plan", "--objective", "final-gap", "--curvature", "all.npz", "--budget", "64", "--group-size", "8", "--updates", "500"
    )
    hessian = np.load(here / "all.npz")["hessian_DD"]
    lam, turn = np.linalg.eigh(-hessian)
    b = 1 / lam[0]
    cost = b**2 * lam / (4 * b * lam - 2)
    second = np.diag(turn.T @ np.diag([30.0, 6.0]) @ turn)
    mean = [float(cost @ (1 + 2 / g + second / (g * (g - 1)))) / (64 // g) for g in range(2, 65)]
    assert plain["group_size"] == 2 + int(np.argmin(mean))
    end = plain["final_gap"]
    assert end["expected"] == pytest.approx(mean[6] / 500)
    assert end["leave_one_out"] == pytest.approx(mean[6] / 500)
    oracle = float(cost @ np.full(2, 1 + 2 / 8)) / 8 / 500
    assert end["excess_over_oracle"] == pytest.approx(mean[6] / 500 / oracle - 1)
    # The 90 % quantile lies between those of one and of two equal chi-squares with that mean.
    ends = sorted(stats.chi2(k).ppf(0.9) / k * end["expected"] for k in (1, 2))
    assert ends[0] < end["quantile_90"] < ends[1]
    assert "90 % of runs stay below" in end["sentence"]


def test_scores_are_weighed_by_what_each_direction_costs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a Hessian of a multiple of the identity the plan is the gradient's, and the gap is in its unit."""
    np.savez(here / "even.npz", hessian_DD=-0.5 * np.eye(2))
    plain = printed(capsys, "plan", "scores.npz", "--budget", "64", "--group-size", "8")
    even = printed(
        capsys, "plan", "scores.npz", "--budget", "64", "--group-size", "8", "--objective", "final-gap", "--curvature", "even.npz"
    )
    assert even["group_size"] == plain["group_size"]
    assert even["present"]["mse"] == pytest.approx(plain["present"]["mse"] * 4 * 0.5 / 2)
    assert even["final_gap"]["expected"] == pytest.approx(even["present"]["mse"])
    uneven = printed(capsys, "plan", "scores.npz", "--budget", "64", "--objective", "final-gap", "--curvature", "hessian.npz")
    assert uneven["components"]["vp"]["value"] != pytest.approx(even["components"]["vp"]["value"])


def test_steps_whose_first_ones_throw_a_run_off_are_warned_of(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The experiment's steps b/i from i = 1 were 36 times above the law after 1,000 updates."""
    even = (*NUMBERS, "--curvature", "0.5", "--updates")
    for arguments, told in (
        ((*even, "1000"), False),
        ((*even, "5"), True),
        ((*even, "1000", "--step-constant", "4.1"), True),
        (("plan", "--objective", "final-gap", "--curvature", "all.npz", "--budget", "64"), True),
    ):
        end = printed(capsys, *arguments)["final_gap"]
        assert ("(i + i0)" in end["sentence"]) is told
        assert bool(end["notes"]) is told
    assert "to leading order" in end["sentence"] or "tends to" in end["sentence"]
    assert "to leading order" in printed(capsys, *even, "1000")["final_gap"]["sentence"]


def test_a_fixed_baseline_is_left_out_where_its_offset_is_not_known(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("plan", "--objective", "final-gap", "--budget", "64", "--group-size", "8", "--curvature")
    assert "fixed" not in printed(capsys, *arguments, "all.npz")["final_gap"]
    np.savez(here / "offset.npz", **dict(np.load(here / "all.npz")) | {"offset_DD": np.eye(2)})
    end = printed(capsys, *arguments, "offset.npz")["final_gap"]
    assert end["fixed"] > end["oracle"]


def test_noise_in_flat_directions_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hessian, noise = -np.diag([2.0, 0.0]), np.eye(2)
    np.savez(here / "flat.npz", hessian_DD=hessian, between_DD=noise, first_DD=noise, second_DD=noise)
    end = printed(capsys, "plan", "--objective", "final-gap", "--budget", "64", "--group-size", "8", "--curvature", "flat.npz")["final_gap"]
    assert "1 of 2 directions have no curvature; noise there, with 50 % of the noise, is left out" in end["sentence"]


def test_the_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*NUMBERS, "--curvature", "0.5"]) == 0
    out = capsys.readouterr().out
    assert "the expected gap tends to" in out
    assert "in every direction alike" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((*NUMBERS,), "--curvature is missing"),
        ((*NUMBERS, "--curvature", "0"), "positive number"),
        ((*NUMBERS, "--curvature", "none.npz"), "no such file"),
        ((*NUMBERS, "--curvature", "scores.npz"), "hessian_DD"),
        ((*NUMBERS, "--curvature", "hessian.npz"), "scores in an .npz"),
        ((*NUMBERS, "--curvature", "0.5", "--step-constant", "1"), "above 1/"),
        ((*NUMBERS, "--curvature", "0.5", "--learning-rate", "5"), "below 2 over"),
        ((*NUMBERS, "--curvature", "0.5", "--learning-rate", "1", "--step-constant", "3"), "got both"),
        ((*NUMBERS, "--curvature", "0.5", "--learning-rate", "1", "--updates", "3"), "no --updates"),
        ((*NUMBERS, "--curvature", "0.5", "--updates", "-1"), "positive number"),
        ((*NUMBERS[:-2], "--updates", "3"), "without --objective final-gap"),
        ((*NUMBERS[:-1], "gap"), "gradient or final-gap"),
        (("plan", "wide.npz", "--budget", "64", "--objective", "final-gap", "--curvature", "hessian.npz"), "scores of 2 parameters"),
        (("plan", "--budget", "64", "--objective", "final-gap", "--curvature", "uphill.npz"), "negative semi-definite"),
        (("plan", "--budget", "64", "--objective", "final-gap", "--curvature", "pickle.npz"), "plain numbers"),
    ],
)
def test_every_mistake_gets_one_line(here: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], sentence: str) -> None:
    np.savez(here / "uphill.npz", hessian_DD=np.eye(2), between_DD=np.eye(2), first_DD=np.eye(2), second_DD=np.eye(2))
    np.savez(here / "pickle.npz", hessian_DD=np.array([{}], dtype=object))
    made = dict(np.load(here / "scores.npz"))
    np.savez(here / "wide.npz", **made | {"score_ND": np.hstack([made["score_ND"]] * 2)})
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert sentence in err
