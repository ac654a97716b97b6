"""The experiments on language models: the law in a world that can be listed, areas by hand, the
page against its pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "experiments" / "language_models"
Load = Callable[[str], Any]


def test_the_area_is_the_mean_height_of_trapezoids(load: Load) -> None:
    rows = [
        {"step": 0, "held_out": 0.2},
        {"step": 1, "held_out": ""},
        {"step": 5, "held_out": 0.6},
        {"step": 15, "held_out": 1.0},
    ]
    assert load("best_group_size").area(rows) == pytest.approx((5 * 0.4 + 10 * 0.8) / 15)


def test_the_rate_of_a_study_is_the_best_of_its_whole_pilot(load: Load) -> None:
    module = load("best_group_size")
    done = {
        cell.name: [{"step": 0, "held_out": 0.0}, {"step": 5, "held_out": height}]
        for cell, height in zip(
            module.pilot_cells("adamw", "zero_shot"), (0.2, 0.9, 0.4), strict=True
        )
    }
    assert module.rate_of("adamw", "zero_shot", done) == 3e-4
    done.popitem()
    assert module.rate_of("adamw", "zero_shot", done) is None


def test_variances_of_groups_follow_the_law_where_everything_can_be_listed(load: Load) -> None:
    """One prompt with six completions: score e_k - p, reward 0 or 1; T, R and the variance
    without a baseline by enumeration.
    """
    module, rng = load("gradient_error"), np.random.default_rng(0)
    p_K, z_K = rng.dirichlet(np.ones(6)), np.array([1.0, 0.0, 0.0, 1.0, 1.0, 0.0])
    score_KD = np.eye(6) - p_K
    value, norm_K = p_K @ z_K, (score_KD**2).sum(1)
    e_K = z_K - value
    gradient_D = (p_K * e_K) @ score_KD
    t = p_K @ (norm_K * e_K**2) - gradient_D @ gradient_D
    r = (p_K @ norm_K) * (p_K @ e_K**2) + gradient_D @ gradient_D
    plain = p_K @ (norm_K * z_K**2) - gradient_D @ gradient_D
    module.SHUFFLES = 4
    for size in (2, 8):
        variances = []
        for _ in range(300):
            drawn = rng.choice(6, 64, p=p_K)
            variance = module.variances(
                score_KD[drawn] @ score_KD[drawn].T, z_K[drawn], value, size, rng
            )
            variances.append([variance[name] for name in ("value", "leave_one_out", "none")])
        mean, error = np.mean(variances, 0), np.std(variances, 0) / 300**0.5
        truth = np.array([t / size, t / size + r / (size * (size - 1)), plain / size])
        # Six numbers within 4 standard errors: by chance one run in 3,000 says otherwise.
        np.testing.assert_array_less(np.abs(mean - truth), 4 * error)
        assert abs(mean[1] - truth[0]) > 4 * error[1]  # which the value's own variance is not


def test_the_noise_of_an_update_leaves_out_what_momentum_carries_over(load: Load) -> None:
    """Steps of heavy-ball momentum .9 whose gradients are +1 and -1 in turn, scaled: the
    variance is theirs, whatever the steps are.
    """
    module = load("long_runs")
    fresh_T, step, value = 1e-4 * (-1.0) ** np.arange(400), 0.0, [0.25]
    for fresh in fresh_T:
        step = 0.9 * step + fresh
        value.append(value[-1] + step)
    assert module.fresh_noise(np.array(value)) == pytest.approx(1e-8)


def test_updates_to_a_level_and_how_sizes_differ_in_them(load: Load) -> None:
    """The first of several crossings counts; of 0 and 2 the mean is 1 with a standard error of
    1, and two seeds have a quantile of 12.7.
    """
    module = load("long_runs")
    assert module.updates_to(np.array([0.1, 0.3, 0.2, 0.3]), 0.3) == 1
    assert module.updates_to(np.array([0.1, 0.2]), 0.3) is None
    small, large = [{"updates": 40}, {"updates": 40}], [{"updates": 10}, {"updates": 10}]
    assert module.ratio({4: small, 16: large}, "updates") == "4.00 (4.00 to 4.00)"
    assert (
        module.ratio({4: [*small, {"updates": None}], 16: [*large, {"updates": 10}]}, "updates")
        == "not reached"
    )
    value, low, high = module.over_seeds(np.array([0.0, 2.0]))
    assert (value, low, high) == pytest.approx((1, 1 - 12.7062, 1 + 12.7062), abs=1e-4)


def test_a_ratio_of_means_over_prompts_knows_that_both_move_together(load: Load) -> None:
    """Twice the law at every prompt is 2 without doubt, however much prompts differ; unlike
    ratios leave it open.
    """
    module, law = load("gradient_error"), np.array([9.0, 10.0, 11.0])
    assert module.ratio(2 * law, law) == "2.00 (2.00 to 2.00)"
    # The mean 4 of (4, 2, 6) has a standard error of 2 / 3^.5, so its logarithm one of .28868:
    # exp(4.30265 x .28868) = 3.463.
    assert module.ratio(np.array([4.0, 2.0, 6.0]), np.full(3, 2.0)) == "2.00 (0.58 to 6.93)"


def test_three_models_on_a_line_have_no_narrower_exponent_than_their_draws_leave(
    load: Load,
) -> None:
    """Sizes e, e^2, e^3 and numbers e^-1, e^-2, e^-3: the line fits; two draws of the first lie
    e^.5 apart on both sides of it.
    """
    module = load("stiffness_of_models")
    rows = [{"parameters": np.exp(1), "k": np.exp(-1 + shift)} for shift in (0.5, -0.5)]
    rows += [{"parameters": np.exp(size), "k": np.exp(-size)} for size in (2, 3)]
    # Scatter .5 with one degree of freedom (t = 12.706); the slope has weights -1/2, 0, 1/2 on
    # means of 2, 1, 1 draws: (.5 (1/8 + 1/4))^.5.
    assert module.exponent(rows, "k") == "-1.00 (-6.50 to 4.50)"
    assert module.exponent(rows[2:], "k") == "-1.00, from 2 models"


def test_sizes_of_a_study_in_which_no_run_learns_are_not_tested(load: Load) -> None:
    module = load("best_group_size")
    still, learns = (
        [{"held_out": 0.44}, {"held_out": ""}, {"held_out": 0.44 + more}] for more in (0.09, 0.11)
    )
    assert not module.learnt([still, still])
    assert module.learnt([still, learns])


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "script",
    [
        "best_group_size",
        "gradient_error",
        "where_it_moves",
        "failures",
        "dynamics",
        "stiffness_of_models",
        "long_runs",
        "other_models",
        "gpu",
    ],
)
def test_the_page_has_the_tables_of_its_pieces(
    load: Load, script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    load(script).show()
    text = (
        (ROOT / "docs" / "studies" / "language-models.md").read_text(encoding="utf-8").splitlines()
    )
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert lines
    missing = [line for line in lines if line not in text]
    assert missing == [], (
        f"`python lab/experiments/language_models/{script}.py --tables` prints other tables"
    )


def test_the_list_for_a_gpu_begins_with_the_first_seed_of_all(load: Load) -> None:
    module = load("gpu")
    names = [cell.name for cell in module.cells()]
    assert len(set(names)) == len(names)
    kinds = list(dict.fromkeys(name.split("-")[0] for name in names))
    assert kinds == ["prediction", "N512", "N128", "sampled"]
    seeds = [int(name.rsplit("-seed", 1)[1]) for name in names if "-seed" in name]
    assert seeds == sorted(seeds)
    assert max(seeds) == 5
    given = {cell.name: cell.arguments for cell in module.cells()}
    for form, rate in (
        ("three_examples", 3e-4),
        ("zero_shot", 1e-3),
    ):  # as the pilot of best_group_size.py chose
        asked = {"optimizer": "adamw", "form": form, "rate": rate, "group_size": 64, "seed": 0}
        assert given[f"N512-adamw-{form}-G64-seed0"] == asked | {
            "completion_length": 64,
            "rollouts_per_step": 512,
            "micro_batch": 128,
        }
        assert given[f"N128-adamw-{form}-G2-seed5"] == asked | {
            "group_size": 2,
            "seed": 5,
            "rollouts_per_step": 128,
        }
    assert {given[name]["group"] for name in names if name.startswith("sampled")} == {64}


def test_what_a_gpus_list_lacks_is_said_with_the_command_that_fetches_it(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = load("gpu")
    monkeypatch.setenv("GROUPWISE_MODELS", str(tmp_path))
    cell = {cell.name.split("-")[0]: cell for cell in module.cells()}
    assert (
        module.lacking(cell["N512"])
        == f"{tmp_path} has no smollm2, which `python scripts/fetch_model.py smollm2` fetches"
    )
    (tmp_path / "smollm2").mkdir()
    assert module.lacking(cell["N512"]) == module.lacking(cell["sampled"]) == ""
    monkeypatch.setattr(module, "DEVICE", "cuda")
    monkeypatch.setattr(module.torch.cuda, "is_available", lambda: False)
    assert module.lacking(cell["N512"]) == "GROUPWISE_DEVICE is cuda, and there is no such GPU"
    assert module.lacking(cell["sampled"]) == ""  # as it runs on the processor


def test_sizes_are_paired_by_seed_with_one_correction_for_all_looks(
    load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three seeds at six sizes: the areas are the heights. T = 30 and R = 62 without Vp: by the law
    the error is 30 + 62 / (G - 1), 92 at 2 and 30.98 at 64, which is the best.
    """
    module, grid = load("best_group_size"), load("gpu").MANY
    heights = {
        0: (0.5, 0.6, 0.9, 0.7, 0.4, 0.6),
        1: (0.5, 0.6, 0.7, 0.7, 0.5, 0.5),
        2: (0.5, 0.6, 0.8, 0.7, 0.3, 0.4),
    }
    done = {
        f"N512-adamw-zero_shot-G{size}-seed{seed}": [
            {"step": 0, "held_out": height - 0.3},
            {"step": 25, "held_out": height + 0.3},
        ]
        for seed, row in heights.items()
        for size, height in zip(grid.sizes, row, strict=True)
    }
    done["prediction-zero_shot"] = [{"group_size": np.inf, "vp": -1.0, "t": 30.0, "r": 62.0}]
    module.show_runs(done, grid)
    out = capsys.readouterr().out
    assert "Area under the held-out reward, 25 updates, 512 rollouts of 64 tokens" in out
    assert "p of 5 looks" in out
    # Of 2 less 64: -.1, 0, .1, with t = 0; of 8 less 64: .3, .2, .4, t = .3 sqrt(3)/.1, p .035; of
    # five p-values it is the smallest but that of 4, .1 + (0, 0, .1).
    assert "| adamw | zero_shot | 3 | 2 | 197% | 0.500 | +0.00 ± 0.25 | 1.00 | 1.00 |" in out
    assert "| adamw | zero_shot | 3 | 8 | 25% | 0.800 | +0.30 ± 0.25 | 0.04 | 0.18 |" in out
    assert "| adamw | zero_shot | 3 | 64 | 0% | 0.500 | its best |" in out


def listed(load: Load) -> tuple[Any, Any, Any]:
    """A tiny random model with an adapter, in double precision, behind three prompts that share
    their beginning.
    """
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    module = load("dynamics")
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "vocab_size": 20,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
    }
    model: Any = LlamaForCausalLM(LlamaConfig(**shape, initializer_range=0.5)).double()
    model = (
        get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
        .double()
        .eval()
    )
    rows = [[2, 3, 4, 5, 6], [2, 3, 4, 7], [2, 3, 4, 8, 9, 10]]
    plain = torch.stack(
        [
            model(input_ids=torch.tensor([row])).logits[0, -1, [11, 12, 13]].log_softmax(-1)
            for row in rows
        ]
    )
    loss = module.ExactLoss(0.5, kl_in="reward")
    return (
        module,
        module.ListedWorld(model, rows, [11, 12, 13], [0, 1, 1], layers=2, loss=loss),
        plain.detach(),
    )


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_prompts_in_one_row_are_read_as_they_are_alone(load: Load) -> None:
    _, world, plain = listed(load)
    np.testing.assert_allclose(world.reference_PO, plain, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_the_fixed_point_of_a_listed_world_and_its_modes(load: Load) -> None:
    """The best policy by hand; no force there; the stiffest mode from scores is one of the
    Hessian, with the same eigenvalue.
    """
    import torch

    module, world, _ = listed(load)
    settled = module.settled(world)
    point, scores = settled[0], settled[1:]
    weight = world.reference_PO.exp() * torch.exp(world.reward_PO / 0.5)
    np.testing.assert_allclose(
        world.log_probabilities(point).exp(), weight / weight.sum(1, keepdim=True), atol=1e-4
    )
    assert float(world.update(point)[0].norm()) < 1e-3 * float(
        world.update(world.start_D)[0].norm()
    )
    stiffness, direction = module.modes_of_scores(world, scores)
    assert len(stiffness) == 6
    first = direction[0].numpy()
    np.testing.assert_allclose(
        module.curvature(world, point)(first), stiffness[0] * first, atol=2e-3 * stiffness[0]
    )


def test_a_kick_between_two_sides_of_a_known_edge_is_located(load: Load) -> None:
    module = load("dynamics")
    setting, edge = module.UpdateSettings("refresh", 0.9, 4), 1.002
    mode, at_edge = (
        module.Linear(np.zeros((1, 1)), np.ones((1, 1))),
        module.predicted_edge(setting, 1.0),
    )
    position, velocity, _ = mode.growing(1.001 * at_edge, setting)

    def run(factor: float) -> list[dict[str, Any]]:
        along = mode.path(factor / edge * at_edge, setting, position, velocity, 44)[:, 0]
        return [{"along": point, "predicted": 0.1, "rule": 0.03} for point in along]

    done = {
        f"kick-{module.named(setting)}-{factor:g}": run(factor)
        for factor in module.factors(setting)
    }
    located = module.located(setting, done)
    assert located is not None
    measured = located["measured"] / located["predicted"]
    # Runs of 44 updates at 3 % on both sides place the edge of a linear map to .03 %; the page
    # claims .1 %.
    assert measured == pytest.approx(edge, abs=4e-4)
    done.popitem()
    assert module.located(setting, done) is None
