"""Components on disk: what was saved comes back, nothing is overwritten by mistake, and a
damaged file is a sentence.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.cases import each_case

from groupwise.analysis.components import (
    check_free,
    is_components,
    load_components,
    path_beside,
    save_components,
    without_groups,
)
from groupwise.errors import (
    GroupwiseError,
    InsufficientDataError,
    OverwriteError,
    UnreadableRunError,
)
from groupwise.estimators.best_group_size import Budget, plan_from_components
from groupwise.estimators.components import (
    QUANTITIES,
    Components,
    components,
)


def arrays(prompts: int = 24) -> tuple[Any, Any, Any]:
    """Scores, rewards and prompts of groups of 8."""
    rng = np.random.default_rng(1)
    score, prompt = rng.normal(size=(prompts * 8, 4)), np.repeat(np.arange(prompts), 8)
    pull = (score * rng.normal(0.2, 0.8, size=(prompts, 4))[prompt]).sum(axis=1)
    return score, (rng.random(len(prompt)) < 1 / (1 + np.exp(-pull))).astype(float), prompt


def estimated(prompts: int = 24, *, level: float = 0.95) -> Components:
    score, reward, prompt = arrays(prompts)
    return components(reward, prompt, score_ND=score, level=level)


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_what_was_saved_comes_back(tmp_path: Path, level: float) -> None:
    estimate = estimated(level=level)
    saved = load_components(
        save_components(
            estimate, tmp_path / "c.json", provenance={"model": "tiny", "steps": [1, 9]}
        )
    )
    assert saved.components.as_dict() == estimate.as_dict()
    assert dict(saved.provenance) == {"model": "tiny", "steps": [1, 9]}
    np.testing.assert_array_equal(saved.components.estimate_C, estimate.estimate_C)
    budget = Budget(256)
    assert (
        plan_from_components(saved.components, budget).as_dict()
        == plan_from_components(estimate, budget).as_dict()
    )


def test_two_prompts_have_no_interval_before_and_after(tmp_path: Path) -> None:
    estimate = estimated(2)
    target = save_components(estimate, tmp_path / "c.json", provenance={})
    json.loads(target.read_text(), parse_constant=pytest.fail)
    saved = load_components(target).components
    assert saved.vp.value == estimate.vp.value
    assert not saved.vp.interval.bounded


def test_the_file_lies_inside_a_folder_and_beside_a_file(tmp_path: Path) -> None:
    assert path_beside(tmp_path) == tmp_path / "groupwise-components.json"
    assert path_beside(tmp_path / "run.csv") == tmp_path / "run.csv.groupwise-components.json"
    assert path_beside(f"{tmp_path}/run.jsonl#a") != path_beside(f"{tmp_path}/run.jsonl#b")


def test_only_a_file_of_ours_is_replaced_and_only_when_told(tmp_path: Path) -> None:
    target = tmp_path / "c.json"
    check_free(target, force=False)
    save_components(estimated(), target, provenance={"round": 1})
    with pytest.raises(OverwriteError, match="--force"):
        save_components(estimated(), target, provenance={"round": 2})
    assert load_components(target).provenance["round"] == 1
    save_components(estimated(), target, provenance={"round": 2}, force=True)
    assert load_components(target).provenance["round"] == 2
    other = tmp_path / "log.json"
    other.write_text('{"step": 1}')
    with pytest.raises(OverwriteError, match="even with --force"):
        save_components(estimated(), other, provenance={}, force=True)
    assert other.read_text() == '{"step": 1}'
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.json", "log.json"]


def test_a_failed_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(GroupwiseError, match="No space left"):
        save_components(estimated(), tmp_path / "c.json", provenance={})
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_ours_is_known_by_its_head(tmp_path: Path) -> None:
    assert is_components(save_components(estimated(), tmp_path / "c.json", provenance={}))
    for name, content in (("a", b""), ("b", b"\xff\xfe" * 200), ("c", b'{"step": 1}')):
        (tmp_path / name).write_bytes(content)
        assert not is_components(tmp_path / name)
    assert not is_components(tmp_path / "missing")
    assert not is_components(tmp_path)


COUNT = len(QUANTITIES)

DAMAGE: dict[str, dict[str, Any]] = {
    "another version": {"version": 2},
    "another format": {"format": "x"},
    "other quantities": {"quantities": ["vp"]},
    "too few estimates": {"estimate": [1.0]},
    "an estimate that is no number": {"estimate": [None] * COUNT},
    "a text for a number": {"estimate": ["x"] * COUNT},
    "a ragged covariance": {"covariance": [[1.0], [1.0, 2.0]]},
    "pseudo-values of other prompts": {"prompts": 3},
    "a level that is none": {"vp": {"level": 7}},
    "no level": {"vp": {}},
    "a list for a mapping": {"provenance": [1]},
    "a covariance that no estimate has": {"covariance": (np.eye(COUNT) * 1e200).tolist()},
    "an estimate that none is": {"estimate": [1e308] * COUNT},
    "a gradient that none is": {"estimate": [0.0] * 3 + [1e308] + [0.0] * (COUNT - 4)},
    "an estimate whose square is too large": {"estimate": [1e160] * COUNT},
    "no pseudo-values": {"pseudo_values": None},
    "pseudo-values that none are": {"pseudo_values": (np.eye(24, COUNT) * 1e100).tolist()},
    "one prompt": {"prompts": 1},
    "no prompts": {"prompts": -24},
    "a part of a prompt": {"prompts": 24.5},
    "a text of prompts": {"prompts": "24"},
    "prompts without end": {"prompts": 10**400},
    "fewer rollouts than prompts can have": {"rollouts": 3},
    "fewer than none left out": {"left_out": -1},
    "another kind of method": {"method": ["jackknife"]},
    "a text for a truth value": {"zero_mean": "no"},
}


@each_case("name", DAMAGE)
def test_a_damaged_file_is_a_sentence(tmp_path: Path, name: str) -> None:
    target = save_components(estimated(), tmp_path / "c.json", provenance={})
    target.write_text(json.dumps({**json.loads(target.read_text()), **DAMAGE[name]}))
    with pytest.raises(UnreadableRunError, match=r"c\.json"):
        load_components(target)


@each_case(
    "content",
    [
        "",
        "{",
        "[]",
        "1",
        '"x"',
        "[" * 100_000,
        '{"format": NaN}',
        "\x00",
        '{"a": 1' + "0" * 5000 + "}",
    ],
)
def test_what_is_no_such_file_is_a_sentence(tmp_path: Path, content: str) -> None:
    target = tmp_path / "c.json"
    target.write_text(content)
    with pytest.raises(UnreadableRunError, match=r"c\.json"):
        load_components(target)


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UnreadableRunError, match="groupwise components"):
        load_components(tmp_path / "c.json")
    (tmp_path / "c.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UnreadableRunError):
        load_components(tmp_path / "c.json")


def test_a_folder_with_one_log_still_opens_with_components_in_it(tmp_path: Path) -> None:
    from groupwise.readers import run_record

    (tmp_path / "metrics.csv").write_text("step,reward\n1,0.25\n2,0.5\n", encoding="utf-8")
    rng = np.random.default_rng(1)
    estimate = components(
        rng.normal(size=64), np.repeat(np.arange(8), 8), score_ND=rng.normal(size=(64, 3))
    )
    save_components(estimate, path_beside(tmp_path), provenance={})
    save_components(estimate, tmp_path / "other.json", provenance={})
    assert len(run_record(tmp_path).steps) == 2


@pytest.mark.parametrize("field", ["covariance", "pseudo_values"])
def test_numbers_that_are_none_are_refused(tmp_path: Path, field: str) -> None:

    rng = np.random.default_rng(1)
    estimate = components(
        rng.normal(size=64), np.repeat(np.arange(8), 8), score_ND=rng.normal(size=(64, 3))
    )
    path = save_components(estimate, tmp_path / "c.json", provenance={})
    plain = json.loads(path.read_text(encoding="utf-8"))
    plain[field][1][2] = None
    path.write_text(json.dumps(plain), encoding="utf-8")
    with pytest.raises(UnreadableRunError, match="damaged"):
        load_components(path)


def test_estimate_and_covariance_are_those_of_the_pseudo_values(tmp_path: Path) -> None:
    """A file that contradicts itself: what was saved of every prompt decides."""
    estimate = estimated()
    target = save_components(estimate, tmp_path / "c.json", provenance={})
    plain = json.loads(target.read_text())
    plain["estimate"] = [7.0] * len(plain["estimate"])
    plain["covariance"] = [[9.0 * (i == j) for j in range(COUNT)] for i in range(COUNT)]
    target.write_text(json.dumps(plain))
    read = load_components(target).components
    assert read.as_dict() == estimate.as_dict()
    np.testing.assert_array_equal(read.covariance_CC, estimate.covariance_CC)


def test_the_name_of_a_method_cannot_be_made_up(tmp_path: Path) -> None:
    target = save_components(estimated(), tmp_path / "c.json", provenance={})
    plain = {**json.loads(target.read_text()), "method": "bootstrap"}  # which earlier versions had
    target.write_text(json.dumps(plain))
    assert load_components(target).components.method == "jackknife"


def test_two_groups_that_a_model_can_read_are_enough() -> None:
    rows = pl.DataFrame({"group": np.repeat(np.arange(5), 2)})
    kept, left_out, _ = without_groups(rows, [0, 2, 5], 64)  # of three groups a rollout
    assert (kept["group"].to_list(), left_out) == ([3, 3, 4, 4], 3)
    with pytest.raises(InsufficientDataError, match="got 1 of 4"):
        without_groups(rows.head(8), [0, 2, 5], 64)
