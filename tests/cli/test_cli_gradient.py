"""The commands `plan` and `components`: keys that are promised, one line for every mistake, no
hostile file obeyed, nothing overwritten.
"""

from __future__ import annotations

import io
import json
import shlex
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case
from tests.cli.asked import printed, refused

from groupwise.analysis.component_file import SavedComponents, path_beside, save_components
from groupwise.analysis.components import Measurement
from groupwise.analysis.plan import NOT_LOGGED
from groupwise.cli import app as cli
from groupwise.estimators.components import components
from groupwise.readers import open_run
from groupwise.series.groups import zero_variance_outlook

GROUPS, SIZE, WIDTH = 48, 8, 6


def rollouts(seed: int = 1) -> dict[str, np.ndarray[Any, Any]]:
    """Scores and right-or-wrong rewards of 48 groups of 8; prompts differ, so Vp is well above
    zero.
    """
    rng = np.random.default_rng(seed)
    score, prompt = rng.normal(size=(GROUPS * SIZE, WIDTH)), np.repeat(np.arange(GROUPS), SIZE)
    pull = (score * rng.normal(0.2, 0.8, size=(GROUPS, WIDTH))[prompt]).sum(axis=1)
    reward = (rng.random(len(prompt)) < 1 / (1 + np.exp(-pull))).astype(float)
    return {"score_ND": score, "reward_N": reward, "prompt_N": prompt}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with `scores.npz`, and a run `run.csv` of 40 steps without
    completions.
    """
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "scores.npz", rollouts())
    (tmp_path / "run.csv").write_text(
        "step,reward\n" + "".join(f"{step},{step / 40:.4f}\n" for step in range(1, 41))
    )
    return tmp_path


def write(place: Path, arrays: Mapping[str, Any]) -> None:
    """Write an `.npz`."""
    with zipfile.ZipFile(place, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, np.asanyarray(array))


def save(place: Path, facts: Mapping[str, object] | None = None) -> Path:
    """Save components of made rollouts."""
    made = rollouts()
    found = components(made["reward_N"], made["prompt_N"], score_ND=made["score_ND"])
    return save_components(found, place, provenance=facts or {}, force=True)


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command and return what it printed for people."""
    assert cli.main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "nan" not in out
    return out


def test_a_plan_for_three_numbers_has_the_keys_that_are_promised(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = printed(capsys, "plan", "--vp", "1", "--t", "0", "--r", "49", "--budget", "1024")
    assert (found["group_size"], found["prompts"], found["next_update"]) == (4, 256, 8)
    assert found["mse"] == pytest.approx((1 + 49 / (4 * 3)) / 256)
    assert {"group_size", "prompts", "mse", "excess"} == set(found["curve"][0])
    assert all(point["prompts"] == 1024 // point["group_size"] for point in found["curve"])
    low, high = found["safe_sizes"]
    assert low <= 4 <= high
    assert "components" not in found


def test_a_plan_from_data_says_what_it_is_from(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    found = printed(capsys, "plan", "scores.npz", "--budget", "512", "--group-size", "4")
    for name in ("vp", "t", "r"):
        assert {"value", "low", "high"} <= set(found["components"][name])
        assert (
            found["components"][name]["low"]
            < found["components"][name]["value"]
            < found["components"][name]["high"]
        )
    low, high = found["safe_sizes"]
    assert low <= found["group_size"] <= high
    assert found["present"]["group_size"] == 4
    assert found["baselines"][0]["name"] == "leave_one_out"
    text = shown(capsys, "plan", "scores.npz", "--budget", "512", "--group-size", "4")
    assert (
        text.index("is safe for a whole run")
        < text.index("More error now")
        < text.index("Baseline at 4 × 128")
    )
    assert "in use" in text


def test_saved_components_give_the_same_plan_as_their_scores(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    save(here / "saved.json")
    from_scores = printed(capsys, "plan", "scores.npz", "--budget", "512")
    assert printed(capsys, "plan", "saved.json", "--budget", "512")["curve"] == from_scores["curve"]
    wide = printed(capsys, "plan", "saved.json", "--budget", "512", "--level", "0.99")[
        "components"
    ]["t"]
    assert wide["level"] == 0.99
    assert (
        wide
        == printed(capsys, "plan", "scores.npz", "--budget", "512", "--level", "0.99")[
            "components"
        ]["t"]
    )


def test_a_run_is_planned_from_what_lies_beside_it(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    save(path_beside(here / "run.csv"))
    found = printed(
        capsys, "plan", "run.csv", "--set", "group_size=4", "--set", "prompts_per_step=64"
    )
    assert found["budget"]["amount"] == 256
    assert found["present"]["group_size"] == 4
    assert any("the run's own" in note for note in found["notes"])
    small = printed(
        capsys,
        "plan",
        "run.csv",
        "--set",
        "group_size=16",
        "--set",
        "prompts_per_step=64",
        "--budget",
        "8",
    )
    assert "present" not in small
    assert any("beyond this budget" in note for note in small["notes"])


def test_costs_come_from_the_run_and_are_told(
    capsys: pytest.CaptureFixture[str], trl_run: Path
) -> None:
    save(path_beside(trl_run))
    tokens = printed(capsys, "plan", str(trl_run), "--budget", "4000", "--budget-unit", "tokens")
    assert tokens["budget"]["rollout_cost"] == pytest.approx(
        38.0
    )  # lengths of the last five of twenty steps, 36 to 40
    assert any("38 tokens" in note for note in tokens["notes"])
    seconds = printed(capsys, "plan", str(trl_run), "--budget", "20", "--budget-unit", "seconds")
    assert seconds["budget"]["rollout_cost"] == pytest.approx(
        2.0 / 8
    )  # 2 s a step of two groups of four
    given = printed(
        capsys,
        "plan",
        str(trl_run),
        "--budget",
        "4000",
        "--budget-unit",
        "tokens",
        "--rollout-cost",
        "50",
        "--prompt-cost",
        "10",
    )
    assert (given["budget"]["rollout_cost"], given["budget"]["prompt_cost"]) == (50, 10)


def test_a_group_size_that_is_given_is_the_runs_own(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    given = printed(capsys, "plan", "run.csv", "--group-size", "4")
    assert given == printed(capsys, "plan", "run.csv", "--set", "group_size=4")
    assert given["batch"]["group_size"] == 4


def test_a_run_without_components_is_answered_from_its_rewards(
    capsys: pytest.CaptureFixture[str], here: Path, trl_run: Path
) -> None:
    text = shown(capsys, "plan", str(trl_run), "--budget", "64")
    found = printed(capsys, "plan", str(trl_run))
    outlook = zero_variance_outlook(open_run(trl_run))
    assert outlook is not None
    assert found["zero_variance"] == outlook.as_dict()
    assert found["effective_group_size"] == pytest.approx(
        outlook.group_size * (1 - outlook.now.value)
    )
    assert found["batch"]["said"] in text
    assert text.startswith(found["status"])
    assert text.endswith(
        f"its price: groupwise components {shlex.quote(str(trl_run))} --model CHECKPOINT\n"
    )
    told = [line for line in text.splitlines() if not line.startswith(" ")]
    assert (
        sum(any(letter.isalpha() for letter in word) for line in told for word in line.split())
        <= 60
    )


def test_components_that_leave_no_safe_size_are_said_and_rewards_are_shown(
    capsys: pytest.CaptureFixture[str], trl_run: Path
) -> None:
    rng = np.random.default_rng(1)
    score, reward = rng.normal(size=(24, 4)), np.arange(24) < 2  # one prompt of six teaches
    few = components(reward, np.repeat(np.arange(6), 4), score_ND=score)
    save_components(few, path_beside(trl_run), provenance={}, force=True)
    assert cli.main(["plan", str(trl_run)]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("groupwise: expected T and R above zero, got one that 6 prompts")
    assert "For a safe size and its price" in out


def test_a_run_that_collapsed_is_said_to_have_before_its_group_size_is_planned(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    rows = [f"{step},{0.8 + 0.01 * (-1) ** step if step < 40 else 0.0}\n" for step in range(60)]
    Path("fallen.csv").write_text("step,reward\n" + "".join(rows))
    text = shown(capsys, "plan", "fallen.csv", "--set", "group_size=8")
    assert text.splitlines()[:2] == [
        "✗ FAILED  fallen.csv  reward 0.80 → 0.00, collapsed at step 40",
        NOT_LOGGED,
    ]
    found = printed(capsys, "plan", "fallen.csv")
    assert (found["state"], found["headline"]) == (
        "failed",
        "reward 0.80 → 0.00, collapsed at step 40",
    )


def test_a_run_that_stands_needs_attention_before_its_group_size_is_planned(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    rows = [f"{step},{0.4 + 0.01 * (-1) ** step}\n" for step in range(60)]
    Path("stands.csv").write_text("step,reward\n" + "".join(rows))
    first, second = shown(capsys, "plan", "stands.csv", "--set", "group_size=8").splitlines()[:2]
    assert first.startswith("The run needs attention first. WARNING: Nothing learnt in 59 steps")
    assert second == NOT_LOGGED


def test_a_run_that_logged_no_groups_says_what_to_log(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    text = shown(capsys, "plan", "run.csv", "--set", "group_size=8")
    assert text.splitlines()[:2] == [
        NOT_LOGGED,
        (
            "A step is ? prompts x 8 rollouts in ? updates; give --set prompts_per_step=B --set "
            "updates_per_step=U."
        ),
    ]
    assert printed(capsys, "plan", "run.csv")["zero_variance"] is None


@each_case(
    ("arguments", "words"),
    [
        (["plan", "--budget", "64"], "--vp and --t and --r are missing"),
        (["plan", "--vp", "1", "--budget", "64"], "--t and --r are missing"),
        (["plan", "scores.npz", "--vp", "1", "--budget", "64"], "leave out scores.npz or --vp"),
        (["plan", "--vp", "1", "--t", "1", "--r", "1"], "--budget is missing"),
        (["plan", "scores.npz"], "--budget is missing"),
        (
            [
                "plan",
                "--vp",
                "1",
                "--t",
                "1",
                "--r",
                "1",
                "--budget",
                "9",
                "--budget-unit",
                "tokens",
            ],
            "--rollout-cost is missing",
        ),
        (
            [
                "plan",
                "--vp",
                "1",
                "--t",
                "1",
                "--r",
                "1",
                "--budget",
                "9",
                "--budget-unit",
                "euros",
            ],
            "'euros'",
        ),
        (["plan", "--vp", "-1", "--t", "1", "--r", "1", "--budget", "9"], "zero or positive"),
        (["plan", "--vp", "nan", "--t", "1", "--r", "1", "--budget", "9"], "zero or positive"),
        (["plan", "--vp", "0", "--t", "0", "--r", "0", "--budget", "9"], "not all zero"),
        (["plan", "--vp", "1", "--t", "1", "--r", "1", "--budget", "nan"], "positive number"),
        (["plan", "--vp", "1", "--t", "1", "--r", "1", "--budget", "inf"], "positive number"),
        (["plan", "--vp", "1", "--t", "1", "--r", "1", "--budget", "1"], "raise it"),
        (["plan", "--vp", "1", "--t", "1", "--r", "1", "--budget", "1e300"], "use a smaller one"),
        (
            ["plan", "--vp", "1", "--t", "1", "--r", "1", "--budget", "64", "--group-size", "1"],
            "between 2 and 64",
        ),
        (
            ["plan", "--vp", "1", "--t", "1", "--r", "1", "--budget", "64", "--prompt-cost", "-1"],
            "prompt cost",
        ),
        (
            ["plan", "--vp", "1", "--t", "1", "--r", "1", "--budget", "64", "--prompt-pool", "1"],
            "pool",
        ),
        (["plan", "scores.npz", "--budget", "64", "--level", "95"], "--level"),
        (
            ["plan", "--vp", "1", "--t", "1", "--r", "1", "--budget", "64", "--level", "0.9"],
            "no --level with --vp",
        ),
        (
            [
                "plan",
                "--vp",
                "1",
                "--t",
                "1",
                "--r",
                "1",
                "--budget",
                "64",
                "--set",
                "a=1",
                "--column",
                "a=b",
            ],
            "no --set or --column",
        ),
        (["plan", "scores.npz", "--budget", "64", "--set", "group_size=8"], "which is no run"),
        (["plan", "nowhere.npz", "--budget", "64"], "no such file"),
        (["plan", "nowhere.csv", "--budget", "64"], "nowhere.csv"),
        (["components", "nowhere.csv"], "nowhere.csv"),
        (["components", "run.csv"], "expected --model CHECKPOINT"),
        (["components", "run.csv", "--groups", "8"], "--groups goes with --model"),
        (["components", "run.csv", "-o", "x.json"], "expected --model CHECKPOINT"),
        (["components", "run.csv", "--any-mean"], "no scores without --model CHECKPOINT"),
        (["components", "scores.npz", "--model", "m"], "which is no run"),
        (["components", "scores.npz", "--steps", "1:2"], "which is no run"),
        (["components", "scores.npz", "--seed", "-1"], "--seed"),
        (["components", "run.csv", "--model", "m", "--aggregation", "max"], "sequence_mean"),
        (
            ["components", "run.csv", "--model", "m", "--groups", "1"],
            "--groups expects a whole number of at least 2; got 1",
        ),
        (["components", "run.csv", "--model", "m", "--sketch-width", "0"], "--sketch-width"),
        (["components", "run.csv", "--model", "m", "--steps", "9:1"], "100:200"),
        (["components", "run.csv", "--model", "m", "--steps", "x"], "100:200"),
    ],
)
def test_every_mistake_is_one_line(
    capsys: pytest.CaptureFixture[str], here: Path, arguments: list[str], words: str
) -> None:
    before = sorted(here.iterdir())
    assert words in refused(capsys, *arguments)
    assert sorted(here.iterdir()) == before


def changed(name: str, place: object, value: object) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A change of one entry of one array."""

    def change(made: dict[str, Any]) -> dict[str, Any]:
        array = made[name].copy()
        array[place] = value
        return {**made, name: array}

    return change


def as_gram(made: dict[str, Any]) -> dict[str, Any]:
    return {
        "gram_NN": made["score_ND"] @ made["score_ND"].T,
        "reward_N": made["reward_N"],
        "prompt_N": made["prompt_N"],
    }


BAD: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "groups of one": (
        lambda made: {**made, "prompt_N": np.arange(GROUPS * SIZE)},
        "groups of at least 4 rollouts of one prompt, got 1",
    ),
    "all-equal rewards": (
        lambda made: {**made, "reward_N": np.ones(GROUPS * SIZE)},
        "48 groups with equal rewards throughout",
    ),
    "a NaN reward": (changed("reward_N", 3, np.nan), "finite numbers in reward_N, got nan at [3]"),
    "an infinite reward": (
        changed("reward_N", 3, np.inf),
        "finite numbers in reward_N, got inf at [3]",
    ),
    "a huge reward": (changed("reward_N", 3, 1e200), "at most 1e+15 in reward_N"),
    "a NaN score": (
        changed("score_ND", (3, 1), np.nan),
        "finite numbers in score_ND, got nan at [3, 1]",
    ),
    "an infinite score": (
        changed("score_ND", (3, 1), -np.inf),
        "finite numbers in score_ND, got -inf",
    ),
    "huge scores": (
        lambda made: {**made, "score_ND": made["score_ND"] * 1e80},
        "at most 1e+15 in score_ND",
    ),
    "a NaN label": (
        lambda made: {**made, "prompt_N": np.full(GROUPS * SIZE, np.nan)},
        "prompt labels",
    ),
    "one prompt": (lambda made: {**made, "prompt_N": made["prompt_N"] * 0}, "at least two prompts"),
    "half a Gram matrix": (
        lambda made: {**as_gram(made), "gram_NN": np.triu(as_gram(made)["gram_NN"])},
        "symmetric gram_NN",
    ),
    "a Gram matrix that is not square": (
        lambda made: {**as_gram(made), "gram_NN": made["score_ND"]},
        "square matrix",
    ),
    "a NaN in the Gram matrix": (
        lambda made: changed("gram_NN", (3, 3), np.nan)(as_gram(made)),
        "finite numbers in gram_NN",
    ),
    "too few rewards": (lambda made: {**made, "reward_N": made["reward_N"][:-1]}, "383 and 384"),
    "other names": (
        lambda made: {"scores": made["score_ND"], "rewards": made["reward_N"]},
        "got scores, rewards",
    ),
    "scores twice": (lambda made: {**made, **as_gram(made)}, "one of score_ND, gram_NN, sketch_NK"),
    "no prompts": (
        lambda made: {"score_ND": made["score_ND"], "reward_N": made["reward_N"]},
        "with reward_N and prompt_N in bad.npz, got score_ND, reward_N",
    ),
    "objects": (
        lambda made: {**made, "reward_N": made["reward_N"].astype(object)},
        "plain numbers in reward_N",
    ),
    "complex numbers": (lambda made: {**made, "score_ND": made["score_ND"] + 1j}, "got complex128"),
    "texts": (
        lambda made: {**made, "score_ND": made["score_ND"].astype(str)},
        "plain numbers in score_ND",
    ),
    "one number": (lambda made: {**made, "reward_N": np.float64(1)}, "got shape ()"),
    "nothing": (
        lambda _: {"score_ND": np.empty((0, 3)), "reward_N": np.empty(0), "prompt_N": np.empty(0)},
        "got shape (0, 3)",
    ),
}


@each_case("name", BAD)
def test_bad_numbers_are_told_in_a_sentence(
    capsys: pytest.CaptureFixture[str], here: Path, name: str
) -> None:
    change, words = BAD[name]
    write(here / "bad.npz", change(rollouts()))
    assert words in refused(capsys, "components", "bad.npz")
    assert words in refused(capsys, "plan", "bad.npz", "--budget", "64")


def test_a_negative_component_is_handed_over_with_what_would_tell_it_from_zero(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    """Rewards that have nothing to do with the scores: Vp is zero, and seed 5 puts its estimate
    below.
    """
    rng = np.random.default_rng(5)
    reward, score = rng.normal(size=96), rng.normal(size=(96, 4))
    np.savez(
        here / "idle.npz", score_ND=score, reward_N=reward, prompt_N=np.repeat(np.arange(12), 8)
    )
    found = printed(capsys, "components", "idle.npz")
    assert found["vp"]["value"] < 0
    assert "not distinguishable from zero" in found["vp"]["status"]
    assert "prompts would show it" in found["vp"]["status"]
    assert "not distinguishable from zero" in shown(capsys, "components", "idle.npz")
    planned = printed(capsys, "plan", "idle.npz", "--budget", "64")
    assert planned["status"].startswith("4 is safe for a whole run")
    assert any("prompts would show it" in note for note in planned["notes"])


def member(shape: tuple[int, ...], data: bytes) -> bytes:
    """A member of an archive whose header says what it likes."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<f8", "fortran_order": False, "shape": shape}
    )
    return file.getvalue() + data


HOSTILE: dict[str, bytes | dict[str, bytes]] = {
    "no archive": b"hello",
    "empty": b"",
    "header only": {"score_ND": b"\x93NUMPY\x01\x00\x20\x00__import__('os').system('id')   \n"},
    "junk": {"score_ND": b"junk", "reward_N": b"", "prompt_N": b""},
    "a huge shape": {
        "score_ND": member((10**9, 10**6), b"x" * 80),
        "reward_N": member((1,), b"x" * 8),
    },
    "a negative shape": {
        "score_ND": member((-1, 10), b"x" * 80),
        "reward_N": member((1,), b"x" * 8),
    },
}


@each_case("name", HOSTILE)
def test_a_hostile_archive_is_a_sentence(
    capsys: pytest.CaptureFixture[str], here: Path, name: str
) -> None:
    content = HOSTILE[name]
    if isinstance(content, bytes):
        (here / "bad.npz").write_bytes(content)
    else:
        with zipfile.ZipFile(here / "bad.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            for key, data in content.items():
                archive.writestr(f"{key}.npy", data)
    assert "bad.npz" in refused(capsys, "components", "bad.npz")


def test_an_archive_that_swells_is_not_unpacked(
    capsys: pytest.CaptureFixture[str], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of 260 kB can hold zeros for 268 MB; here the limit is lowered, so that the test
    needs no such memory.
    """
    monkeypatch.setattr("groupwise.analysis.component_file._SUSPICIOUS_BYTES", 2**16)
    made = {
        "score_ND": np.zeros((2**14, 8)),
        "reward_N": np.zeros(2**14),
        "prompt_N": np.zeros(2**14, dtype=int),
    }
    with zipfile.ZipFile(here / "bad.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in made.items():
            archive.writestr(f"{name}.npy", member(array.shape, array.astype(float).tobytes()))
    assert "swell to" in refused(capsys, "components", "bad.npz")


@each_case("part", [0.1, 0.5, 0.9, 0.999])
def test_a_torn_archive_is_a_sentence(
    capsys: pytest.CaptureFixture[str], here: Path, part: float
) -> None:
    whole = (here / "scores.npz").read_bytes()
    (here / "torn.npz").write_bytes(whole[: int(part * len(whole))])
    assert "damaged" in refused(capsys, "components", "torn.npz")
    flipped = bytearray(whole)
    flipped[int(part * 0.9 * len(whole))] ^= 0xFF
    (here / "torn.npz").write_bytes(flipped)
    assert cli.main(["components", "torn.npz"]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err


def test_components_of_a_file_are_saved_only_where_asked_to(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    before = {path.name for path in here.iterdir()}
    found = printed(capsys, "components", "scores.npz")
    assert {
        "vp",
        "t",
        "r",
        "gradient_norm2",
        "group_size",
        "prompts",
        "rollouts",
        "method",
        "status",
        "notes",
    } <= set(found)
    assert found["method"] == "jackknife"
    assert {path.name for path in here.iterdir()} == before
    assert printed(capsys, "components", "scores.npz", "-o", "saved.json")["file"] == "saved.json"
    assert printed(capsys, "components", "saved.json")["r"] == found["r"]
    assert "--force" in refused(capsys, "components", "scores.npz", "-o", "saved.json")
    assert cli.main(["components", "scores.npz", "-o", "saved.json", "--force"]) == 0
    capsys.readouterr()
    for taken in ("run.csv", "scores.npz"):
        kept = (here / taken).read_bytes()
        assert taken in refused(capsys, "components", "scores.npz", "-o", taken, "--force")
        assert (here / taken).read_bytes() == kept


def test_the_choices_of_an_estimate_are_obeyed(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    plain = printed(capsys, "components", "scores.npz")
    free = printed(capsys, "components", "scores.npz", "--any-mean")
    assert (plain["zero_mean"], free["zero_mean"]) == (True, False)
    assert free["t"]["value"] != plain["t"]["value"]
    made = rollouts()
    write(here / "gram.npz", as_gram(made))
    assert printed(capsys, "components", "gram.npz")["r"]["value"] == pytest.approx(
        plain["r"]["value"]
    )
    write(here / "half.npz", {**made, "score_ND": made["score_ND"].astype(np.float16)})
    assert printed(capsys, "components", "half.npz")["r"]["value"] == pytest.approx(
        plain["r"]["value"], rel=1e-2
    )


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A stand-in for the measurement, which needs a model: it notes how it was called."""
    calls: list[dict[str, Any]] = []

    def measure_run(
        record: object, how: Measurement, progress: Callable[[int, int], None], spread: object
    ) -> SavedComponents:
        assert spread is None  # no engine was asked for
        calls.append(asdict(how))
        progress(1, 2)
        made = rollouts()
        return SavedComponents(
            components(made["reward_N"], made["prompt_N"], score_ND=made["score_ND"]),
            {"model": how.model.name},
        )

    monkeypatch.setattr("groupwise.analysis.components.measure_run", measure_run)
    return calls


def test_measured_components_are_written_beside_the_run_and_found_there(
    capsys: pytest.CaptureFixture[str], trl_run: Path, measured: list[dict[str, Any]]
) -> None:
    command = [
        "components",
        str(trl_run),
        "--model",
        "ckpt",
        "--adapter",
        "lora",
        "--groups",
        "9",
        "--steps",
        "1:2",
        "--seed",
        "4",
    ]
    command += [
        "--aggregation",
        "sequence_mean",
        "--layers",
        "q_proj",
        "--layers",
        "v_proj",
        "--sketch-width",
        "64",
    ]
    found = printed(capsys, *command)
    assert found["file"] == str(path_beside(trl_run))
    assert found["provenance"] == {"model": "ckpt"}
    call = measured[0]
    assert (call["model"], call["adapter"], call["groups"], call["steps"], call["seed"]) == (
        Path("ckpt"),
        Path("lora"),
        9,
        (1, 2),
        4,
    )
    assert (call["aggregation"], call["sketch_width"]) == ("sequence_mean", 64)
    assert call["layers"] == ("q_proj", "v_proj")
    assert call["level"] == 0.95
    planned = printed(capsys, "plan", str(trl_run), "--budget", "64")
    assert planned["components"]["vp"]["value"] == found["vp"]["value"]
    assert planned["present"]["group_size"] == 4


def test_any_mean_goes_with_a_model_too(
    capsys: pytest.CaptureFixture[str], trl_run: Path, measured: list[dict[str, Any]]
) -> None:
    command = ["components", str(trl_run), "--model", "ckpt", "--force"]
    for option, expected in (([], None), (["--any-mean"], False), (["--zero-mean"], True)):
        printed(capsys, *command, *option)
        assert measured[-1]["zero_mean"] is expected
    assert "--any-mean" in refused(capsys, "components", str(trl_run), "--any-mean")


def test_what_no_estimate_can_be_is_a_damaged_file(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    plain = json.loads(save(here / "saved.json").read_text())
    for change in (
        {
            "estimate": [0.0] * 3 + [1e308] + [0.0] * (len(plain["estimate"]) - 4),
            "pseudo_values": None,
        },
        {"pseudo_values": [[1e308] * len(plain["estimate"])] * GROUPS},
    ):
        (here / "bad.json").write_text(json.dumps({**plain, **change}))
        for command in (["components", "bad.json"], ["plan", "bad.json", "--budget", "64"]):
            assert "damaged file" in refused(capsys, *command)


def test_nothing_is_measured_where_the_result_could_not_be_written(
    capsys: pytest.CaptureFixture[str], trl_run: Path, measured: list[dict[str, Any]]
) -> None:
    place = path_beside(trl_run)
    place.write_text("mine")
    command = ["components", str(trl_run), "--model", "ckpt"]
    assert "--force" in refused(capsys, *command)
    assert "not replaced even with --force" in refused(capsys, *command, "--force")
    assert place.read_text() == "mine"
    assert "does not exist" in refused(capsys, *command, "-o", str(trl_run / "no" / "x.json"))
    assert "--force" in refused(capsys, *command, "-o", str(trl_run / "README.md"), "--force")
    assert measured == []
    place.unlink()
    save(place)
    assert cli.main([*command, "--force"]) == 0
    assert len(measured) == 1


def test_a_damaged_file_of_components_is_a_sentence(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    plain = json.loads(save(here / "saved.json").read_text())
    for change in (
        {"pseudo_values": None, "covariance": [[None] * len(row) for row in plain["covariance"]]},
        {"pseudo_values": [[None] * len(row) for row in plain["pseudo_values"]]},
        {"estimate": [1, 2]},
        {"version": 99},
        {"prompts": 1, "pseudo_values": None},
    ):
        (here / "bad.json").write_text(json.dumps({**plain, **change}))
        assert "bad.json" in refused(capsys, "plan", "bad.json", "--budget", "64")


def test_a_file_of_components_cannot_style_the_terminal(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    save(
        here / "saved.json",
        {"model": "[bold red]x[/] \x1b[2J", "\x1b]8;;evil": "y", "nested": {"a": [1]}},
    )
    text = shown(capsys, "components", "saved.json")
    assert "[bold red]x[/]" in text
    assert "\x1b" not in text
    assert "nested" not in text
