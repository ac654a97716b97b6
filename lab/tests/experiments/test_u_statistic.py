"""The experiments on the gradient: runner, exact truths against enumeration and autograd, pages
against pieces.
"""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "lab" / "experiments" / "u_statistic"
Study = Callable[[str], ModuleType]


def results_in(study: Study, folder: Path) -> Any:
    return study("common").Results(folder / "results.txt")


def one_row(number: int) -> list[dict[str, int]]:
    return [{"a": number}]


def test_the_runner_writes_each_piece_once_and_goes_on(study: Study, tmp_path: Path) -> None:
    cells = study("cells")
    ran: list[str] = []

    def work(name: str) -> list[dict[str, Any]]:
        if name == "broken" and "broken" not in ran:
            ran.append(name)
            raise KeyboardInterrupt
        ran.append(name)
        return [{"name": name, "number": 1, "share": 0.25}]

    wanted = [cells.Cell(name, work, {"name": name}) for name in ("first", "broken", "last")]
    results = results_in(study, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        cells.run_missing(wanted, results)
    assert list(results.tables()) == ["first"]
    assert cells.run_missing(wanted, results) == []
    assert [path.name for path in tmp_path.iterdir()] == ["results.txt"]
    assert ran == ["first", "broken", "broken", "last"]
    assert results.read("last") == [{"name": "last", "number": 1, "share": 0.25}]


def test_no_cell_begins_after_the_time_is_up(study: Study, tmp_path: Path) -> None:
    cells = study("cells")
    wanted = [cells.Cell("one", lambda: [{"a": 1}])]
    assert cells.run_missing(wanted, results_in(study, tmp_path), minutes=-1.0) == wanted


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_cell_that_fails_is_told_and_the_next_one_begins(
    study: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str], workers: int
) -> None:
    cells = study("cells")
    wanted = [
        cells.Cell("bad", divmod, {}),
        cells.Cell("good", one_row, {"number": 1}),
    ]
    results = results_in(study, tmp_path)
    assert cells.run_missing(wanted, results, workers=workers) == wanted[:1]
    assert "bad failed: TypeError: divmod expected 2 arguments, got 0" in capsys.readouterr().out
    assert results.tables() == {"good": [{"a": 1}]}


def test_no_cell_begins_when_less_time_is_left_than_the_last_of_its_kind_took(
    study: Study,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells, now = study("cells"), [0.0]
    monkeypatch.setattr(cells.time, "perf_counter", lambda: now[0])

    def work(seconds: float) -> list[dict[str, Any]]:
        now[0] += seconds
        return [{"a": 1}]

    asked = (
        ("long-1", 25.0),
        ("short-1", 5.0),
        ("long-2", 25.0),
        ("long-3", 25.0),
        ("long-4", 25.0),
        ("short-2", 4.0),
        ("short-3", 1.0),
    )
    wanted = [cells.Cell(name, work, {"seconds": seconds}) for name, seconds in asked]
    results = results_in(study, tmp_path)
    left = [cell.name for cell in cells.run_missing(wanted, results, minutes=1.0)]
    # 25, 30 and 55 s have gone when 5 are left: enough for the short kind, once.
    assert left == ["long-3", "long-4", "short-3"]
    out = capsys.readouterr().out
    assert "long-3 is not begun: the last of its kind took 25 s, and 5 s are left" in out
    assert "long-4 is" not in out


def test_the_runner_runs_what_the_command_names_and_nothing_for_tables(
    study: Study, tmp_path: Path
) -> None:
    cells = study("cells")
    wanted = [cells.Cell(name, lambda: [{"a": 1}]) for name in ("first", "second")]
    asked = {"only": "sec", "workers": 1, "minutes": 60.0}
    results = results_in(study, tmp_path)
    cells.run_asked(wanted, results, Namespace(tables=True, **asked))
    assert results.tables() == {}
    cells.run_asked(wanted, results, Namespace(tables=False, **asked))
    assert list(results.tables()) == ["second"]


def test_results_are_read_as_they_were_written(study: Study, tmp_path: Path) -> None:
    """Tables of one file: text, whole numbers, numbers to nine digits; a row more; names apart by
    their beginning.
    """
    results = results_in(study, tmp_path)
    rows = [{"name": 'a "b", c', "count": 3, "share": 1 / 3, "none": ""}]
    results.write("first", rows)
    results.within("part").write("first", [{"x": 1.5}])
    results.add("first", {"name": "d", "count": 4, "share": 2.0, "none": "x"})
    results.add("new", {"y": 1})
    assert results.read("first") == [
        {"name": 'a "b", c', "count": 3, "share": 0.333333333, "none": ""},
        {"name": "d", "count": 4, "share": 2, "none": "x"},
    ]
    assert results.texts("first")[0]["share"] == "0.333333333"
    assert results.tables().keys() == {"first", "new"}
    assert results.within("part").tables() == {"first": [{"x": 1.5}]}
    assert ("new" in results, "part" in results, results.read("part")) == (True, False, [])
    version = study("common").code_version()
    assert results.path.read_text().splitlines()[:2] == [
        f"## first @ {version}",
        "name,count,share,none",
    ]


def test_tables_carry_the_version_of_the_code_that_made_them(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is added to by another version has both, one that is written anew the last."""
    common, results = study("common"), results_in(study, tmp_path)
    results.path.write_text("## old\na\n1\n")
    for version, number in (("v1", 1), ("v2", 2)):
        monkeypatch.setattr(common, "code_version", lambda version=version: version)
        results.add("grown", {"a": number})
        results.within("part").write("first", one_row(number))
    assert results.versions() == {"old": "", "grown": "v1 v2", "part/first": "v2"}
    assert results.within("part").versions() == {"first": "v2"}
    assert (results.read("old"), results.read("grown")) == (one_row(1), one_row(1) + one_row(2))


def test_each_table_has_one_version(study: Study) -> None:
    """That of the code that made it; of older ones the commit in which they first stood."""
    for path in FOLDER.parent.glob("*/results.txt"):
        versions = study("common").Results(path).versions()
        odd = {name for name, version in versions.items() if len(version.split()) != 1}
        assert odd == set(), path


def test_moments_of_a_prompt_are_those_of_its_outcomes(study: Study) -> None:
    """Twelve outcomes with made-up scores of mean zero; the first one is right."""
    rng = np.random.default_rng(3)
    share = rng.dirichlet(np.ones(12))
    score = rng.normal(size=(12, 5))
    score -= share @ score
    reward, length = np.eye(12)[0], (score**2).sum(axis=1)
    gradient = (share * reward) @ score
    above = reward - share @ reward
    prompt_moments = study("world").prompt_moments(share[:1], length[:1], (share @ length)[None])
    assert prompt_moments.reward_variance_P[0] == pytest.approx(share @ above**2, rel=1e-12)
    assert prompt_moments.kappa_P[0] == pytest.approx(share @ (length * above), rel=1e-12)
    assert prompt_moments.gradient_norm2_P[0] == pytest.approx(gradient @ gradient, rel=1e-12)
    assert prompt_moments.oracle_variance_P[0] == pytest.approx(
        share @ (length * above**2) - gradient @ gradient, rel=1e-12
    )


@pytest.fixture(scope="module")
def policy(study: Study) -> Any:
    from groupwise_lab.trainer.policy import Policy, policy_size

    return Policy(
        policy_size("tiny"), vocabulary_size=len(study("world").world_task().vocabulary), seed=1
    ).double()


def test_single_scores_are_those_of_autograd(study: Study, policy: Any) -> None:
    world = study("world")
    rollouts = world.roll(policy, world.world_task().train[:3], 4, torch.Generator().manual_seed(0))
    weight = torch.linspace(-1, 1, 12, dtype=torch.float64)
    sampled = rollouts.sampled
    log_N = (
        policy.log_probabilities(rollouts.prompt_PL, sampled.completion_NL) * sampled.mask_NL
    ).sum(1)
    expected = torch.cat(
        [
            part.reshape(-1)
            for part in torch.autograd.grad((weight * log_N).sum(), list(policy.parameters()))
        ]
    )
    gradient = weight @ world.rollout_scores(policy, rollouts)
    assert float((gradient - expected).abs().max()) < 1e-10 * float(expected.abs().max())


def test_the_exact_gradient_is_the_mean_of_probability_times_score(
    study: Study, policy: Any
) -> None:
    world = study("world")
    problems = world.world_task().train[:20]
    value = torch.from_numpy(world.exact_values(policy, problems))
    expected = (value[:, None] * world.answer_scores(policy, problems)).mean(0)
    gradient = world.exact_gradient(policy, problems)
    assert float((gradient - expected).abs().max()) < 1e-10 * float(expected.abs().max())


def test_errors_of_groups_come_from_their_gram_matrix(study: Study) -> None:
    """The squared distance of one group's weighted sum from its prompt's gradient, by vectors."""
    module = study("gradient_mse")
    rng = np.random.default_rng(0)
    count, size = 8, module.SIZES[-1]
    score, own = rng.normal(size=(count, size, 6)), rng.normal(size=(count, 6))
    reward = rng.integers(2, size=(count, size)).astype(float)
    value = rng.uniform(0.2, 0.8, count)
    moments = study("world").prompt_moments(value, (own**2).sum(axis=1), np.full(count, 9.0))
    gradient = value[:, None] * own
    rows = module._within_of_size(
        size,
        np.einsum("pid,pjd->pij", score, score),
        np.einsum("pid,pd->pi", score, gradient),
        reward,
        moments,
    )
    for row in rows:
        if row["group_size"] == size:  # one block of all prompts
            weight = module.weights(reward, moments, (score**2).sum(axis=2))
            distance = (
                (np.einsum("pi,pid->pd", weight[row["estimator"]], score) - gradient) ** 2
            ).sum(axis=1)
            assert row["measured"] == pytest.approx(distance.mean(), rel=1e-10)
            apart = np.einsum("pi,pid->pd", weight["leave_one_out"] - weight["oracle"], score)
            assert np.isnan(row["excess"]) or row["excess"] == pytest.approx(
                (apart**2).sum(axis=1).mean(), rel=1e-10
            )
    assert {row["estimator"] for row in rows} == set(module.ESTIMATORS)


def test_differences_are_paired_and_the_bootstrap_draws_seeds(study: Study) -> None:
    results = study("group_size_results")
    value_GS = np.array([[0.1, 0.5, 0.9], [0.2, 0.6, 1.0]])
    worse, half = results.paired(*value_GS.tolist())
    assert (worse, half) == (pytest.approx(-0.1), pytest.approx(0.0, abs=1e-12))
    assert results.bootstrap(value_GS).tolist() == [0.0, 1.0]
    assert results.regret(value_GS, 1) == (0.0, 0.0)
    assert results.regret(value_GS, 0) == (pytest.approx(0.1 / 0.6), pytest.approx(0.1 / 0.6))


def test_the_regret_allows_for_what_the_seeds_leave_open(study: Study) -> None:
    # Differences of .02 and -.01: mean .005, standard error .015, and t of one degree of freedom at
    # 97.5 % is 12.706.
    now, most = study("group_size_results").regret(np.array([[0.5, 0.5], [0.52, 0.49]]), 0)
    assert now == pytest.approx(0.005 / 0.505)
    assert most == pytest.approx(
        (0.005 + 12.7062 * 0.015) / (0.5 + 0.005 + 12.7062 * 0.015), rel=1e-5
    )


def test_sizes_near_the_predicted_one_are_compared_over_the_seeds_that_they_share(
    study: Study,
) -> None:
    scores = {2: {0: 0.1, 1: 0.2, 3: 0.0}, 4: {0: 0.3, 1: 0.4}, 8: {0: 0.5, 1: 0.6}, 16: {0: 0.9}}
    sizes, value_GS = study("group_size_results").shared(scores)
    assert sizes == [2, 4, 8]
    assert value_GS.tolist() == [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]
    assert study("group_size_results").shared({16: {0: 0.9}})[1].size == 0


def test_a_page_gets_the_tables_that_were_printed_and_keeps_the_rest(study: Study) -> None:
    pages = study("pages")
    tables = pages.tables_of("\nNew\n\n| a |\n|---|\n| 2 |\n\nSaid.\n\nOther\n\n| b |\n")
    assert tables == {"New": "| a |\n|---|\n| 2 |\n", "Other": "| b |\n"}
    page = "# P\n\n<!-- New -->\n\n| a |\n|---|\n| 1 |\n\nText.\n\n<!-- Missing -->\n\n| kept |\n"
    assert pages.filled(page, tables) == page.replace("| 1 |", "| 2 |")
    assert pages.filled(page.replace("| a |\n|---|\n| 1 |\n\n", ""), tables) == page.replace(
        "| 1 |", "| 2 |"
    )


def test_the_prediction_was_written_before_the_first_run(study: Study) -> None:
    names = [cell.name for cell in study("optimal_group_size").all_cells()]
    assert names[0] == "prediction"
    assert len(set(names)) == len(names)


def test_the_learning_rate_is_the_best_of_the_pilot(study: Study) -> None:
    module = study("optimal_group_size")
    done = module.PIECES.tables()
    for rollouts in module.BUDGETS:
        best = max(
            (*done[f"pilot-N{rollouts}"], *done.get(f"pilot-N{rollouts}-lower", ())),
            key=lambda row: row["mean"],
        )
        assert module.RATES["sgd", rollouts] == best["rate"]


def test_a_critic_gives_values_before_it_learns_from_the_batch(study: Study, policy: Any) -> None:
    from groupwise_lab.trainer.credit import GradedRollouts

    task = study("world").world_task()
    critic = study("critic").Critic(policy.float(), 0.25)
    problems = task.train[:8]
    judged = GradedRollouts(
        problems,
        np.arange(8),
        1,
        None,  # type: ignore[arg-type]
        (),
        (),
        np.tile([1.0, 0.0, 1.0, 1.0], 8),
        {},
        {},
    )
    first = critic.learned(policy, task, judged)["value"]
    assert first == pytest.approx(np.full(8, 0.25), abs=1e-6)
    assert (critic.learned(policy, task, judged)["value"] > first).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "page"),
    [
        ("optimal_group_size", "lab/docs/studies/optimal-group-size.md"),
        ("gradient_mse", "lab/docs/studies/gradient-experiments.md"),
        ("oracle", "lab/docs/studies/gradient-experiments.md"),
    ],
)
def test_the_page_has_the_tables_of_its_pieces(
    study: Study, script: str, page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    module = study(script)
    done = module.PIECES.tables()
    assert done
    module.tables(done)
    text = (ROOT / page).read_text(encoding="utf-8").splitlines()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [line for line in lines if line not in text] == [], (
        f"`python lab/experiments/u_statistic/{script}.py --tables` prints other tables"
    )


@pytest.mark.slow
@pytest.mark.parametrize("script", ["gradient_mse", "optimal_group_size", "oracle"])
def test_scripts_run(script: str) -> None:
    rows = subprocess.run(
        [sys.executable, str(FOLDER / f"{script}.py"), "--quick"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert rows.returncode == 0, rows.stderr
