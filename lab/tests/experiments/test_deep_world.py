"""The tools of the deep threshold: linear prediction against the library's closed forms, growth
of known series, training by hand.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.edge.mode import threshold
from groupwise_lab.trainer.tasks import make_task

torch = pytest.importorskip("torch")

from truth import ExactLoss, ExactWorld

from groupwise_lab.trainer.policy import Policy, PolicySize

FOLDER = Path(__file__).resolve().parents[2] / "experiments" / "predictable_grpo"


@pytest.fixture(scope="module")
def deep() -> Iterator[ModuleType]:
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module("deep_world")
    sys.path.remove(str(FOLDER))
    sys.modules.pop("deep_world", None)


@each_case(
    ("lag", "interval"),
    [
        ("none", 1),
        ("refresh", 3),
        ("refresh", 8),
        ("fixed", 1),
        ("fixed", 4),
        ("async", 2),
        ("async", 5),
    ],
)
@each_case("momentum", [0.0, 0.9])
def test_modes_that_do_not_mix_grow_from_the_stiffest_ones_threshold(
    deep: ModuleType, lag: str, interval: int, momentum: float
) -> None:
    turned, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))
    pull = turned @ np.diag([7.0, 2.0, 0.5]) @ turned.T
    whole, none = (pull, 0 * pull) if lag == "none" else (0 * pull, pull)
    limit = float(threshold(lag, momentum, interval))
    edge = deep.Linear(whole, none).edge(deep.UpdateSettings(lag, momentum, interval), limit / 5)
    assert edge == pytest.approx(limit / 7, rel=1e-6)


def forces_that_do_not_commute(deep: ModuleType) -> ModuleType:
    """Of a present and a stale part, in three directions."""
    rng, parts = np.random.default_rng(4), []
    for size_K in ([3.0, 0.4, 0.1], [5.0, 2.0, 1.0]):
        turned, _ = np.linalg.qr(rng.standard_normal((3, 3)))
        parts.append(turned @ np.diag(size_K) @ turned.T)
    force: ModuleType = deep.Linear(*parts)
    return force


@each_case(
    ("lag", "interval"),
    [("none", 1), ("refresh", 3), ("fixed", 1), ("fixed", 3), ("async", 1), ("async", 3)],
)
@each_case("momentum", [0.0, 0.8])
def test_the_mode_that_grows_first_grows_as_its_block_says(
    deep: ModuleType, lag: str, interval: int, momentum: float
) -> None:
    forces, setting = forces_that_do_not_commute(deep), deep.UpdateSettings(lag, momentum, interval)
    edge = forces.edge(setting, 0.1)
    assert forces.radius(0.999 * edge, setting) < 1 < forces.radius(1.001 * edge, setting)
    position, start, watch = forces.growing(1.02 * edge, setting)
    assert np.linalg.norm(position) == pytest.approx(1)
    assert np.linalg.norm(watch) == pytest.approx(1)
    # Written out, update by update; who samples is counted here.
    behind = {"none": (0, 0), "refresh": (1, 0), "fixed": (0, interval), "async": (1, interval)}[
        lag
    ]
    places, velocity = [position], start
    for at in range(400 * interval):
        older = places[max(at - behind[0] * (at % interval) - behind[1], 0)]
        velocity = momentum * velocity - 1.02 * edge * (
            forces.now_KK @ places[-1] + forces.stale_KK @ older
        )
        places.append(places[-1] + velocity)
    np.testing.assert_allclose(
        forces.path(1.02 * edge, setting, position, start, 400 * interval),
        places,
        rtol=1e-9,
        atol=1e-12,
    )
    seen = (np.array(places) @ watch)[:: 1 if lag == "fixed" else interval]
    assert deep.growth(seen) == pytest.approx(forces.radius(1.02 * edge, setting), rel=1e-6)
    if lag in ("none", "refresh"):
        # parameters and velocity are the whole state: the mode and its mirror image, from the start
        # on
        columns = np.stack([seen[1:9], seen[:8]], axis=1)
        left = np.linalg.lstsq(columns, seen[2:10], rcond=None)[0]
        np.testing.assert_allclose(columns @ left, seen[2:10], atol=1e-9)


def test_an_edge_far_below_the_guess_is_found_and_where_every_rate_grows_it_is_said(
    deep: ModuleType,
) -> None:
    setting = deep.UpdateSettings("none", 0.0, 1)
    assert deep.Linear(np.array([[4.0]]), np.zeros((1, 1))).edge(setting, 100.0) == pytest.approx(
        0.5
    )
    with pytest.raises(ValueError, match="a mode grows"):
        deep.Linear(np.array([[-4.0]]), np.zeros((1, 1))).edge(setting, 100.0)


def test_a_sign_that_changes_not_once_brackets_no_edge(deep: ModuleType) -> None:
    factors = (0.99, 0.997, 1.003, 1.01)
    assert deep.bracketed(factors, (-0.2, -0.1, 0.1, 0.2)) == pytest.approx((1.0, 0.003))
    assert deep.bracketed(factors, (-0.3, -0.2, -0.1, 0.2)) == pytest.approx((1.0065, 0.0035))
    for rates in ((-0.4, -0.3, -0.2, -0.1), (0.1, 0.2, 0.3, 0.4), (-0.2, 0.1, -0.1, 0.2)):
        with pytest.raises(ValueError, match="changes its sign not once"):
            deep.bracketed(factors, rates)


def test_a_file_of_the_cache_is_whole_or_not_there(
    deep: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deep, "default_cache", lambda: tmp_path / "warm-up")
    whole = np.arange(3.0)
    np.testing.assert_array_equal(deep.cached("three", lambda: whole), whole)
    np.testing.assert_array_equal(deep.cached("three", lambda: 2 * whole), whole)

    def killed(path: Path, values: np.ndarray) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(deep.np, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        deep.cached("four", lambda: whole)
    assert not list(tmp_path.glob("*-four.npy"))


def test_a_part_that_is_current_moves_the_edge_as_the_two_armed_bandit_says(
    deep: ModuleType,
) -> None:
    # Shares and thresholds of the bandit of the theory notes, KL term in the loss: 1.04 of the
    # force is stale.
    for lag, limit in (("refresh", 0.0323), ("fixed", 0.01334), ("async", 0.00976)):
        edge = deep.Linear(np.array([[-0.04]]), np.array([[1.04]])).edge(
            deep.UpdateSettings(lag, 0.9, 8), limit
        )
        assert edge == pytest.approx(limit, rel=2e-3)


def test_growth_of_a_series_is_its_radius_whatever_else_it_rests_on(deep: ModuleType) -> None:
    step = np.arange(40)
    for radius, turn in ((0.97, 0.4), (1.05, 2.9), (1.0, 1.3)):
        assert deep.growth(radius**step * np.cos(turn * step + 0.3) + 0.2) == pytest.approx(
            radius, abs=1e-6
        )
    assert deep.growth((-1.1) ** step + 0.5**step) == pytest.approx(1.1, abs=1e-4)
    # A world that bends a little adds the square of a mode, which grows faster and is not seen.
    assert deep.growth((-1.06) ** step + 1e-6 * 1.06 ** (2 * step)) == pytest.approx(1.06, abs=1e-4)


def test_the_crossing_is_where_the_line_is_0(deep: ModuleType) -> None:
    assert deep.crossing((0.9, 1.1), np.log(np.array([0.9, 1.1]) / 1.02)) == pytest.approx(1.02)
    assert deep.crossing(
        (0.9, 1.0, 1.1), np.log(np.array([0.9, 1.0, 1.1]) / 0.97)
    ) == pytest.approx(0.97)


def test_who_sampled_for_an_update(deep: ModuleType) -> None:
    lags = {
        (lag, size): [
            at - deep.UpdateSettings(lag, 0.9, size).sampled_at(at) for at in range(12, 18)
        ]
        for lag in ("none", "refresh", "fixed", "async")
        for size in (3,)
    }
    assert lags["none", 3] == [0] * 6
    assert lags["refresh", 3] == [0, 1, 2, 0, 1, 2]
    assert lags["fixed", 3] == [3] * 6
    assert lags["async", 3] == [3, 4, 5, 3, 4, 5]


def test_training_is_heavy_ball_on_the_update_of_the_policy_that_sampled(deep: ModuleType) -> None:
    task = make_task("modular_addition", level=1)
    policy = Policy(
        PolicySize("least", 4, 1, 1), vocabulary_size=len(task.vocabulary), context=6, seed=2
    ).double()
    world = ExactWorld(policy, task, task.train[:3], ExactLoss(0.5, kl_in="reward"))
    watch = np.eye(len(world.start_D))[:, :2]
    path = deep.trained(
        world,
        world.start_D,
        deep.UpdateSettings("refresh", 0.5, 2),
        start_D=world.start_D + 0.01,
        learning_rate=0.3,
        updates=3,
        watch_DK=watch,
        held=False,
    )
    place, velocity, places = world.start_D + 0.01, torch.zeros_like(world.start_D), []
    for sampled_at in (0, 0, 2):
        places.append(place)
        with torch.no_grad():
            sampled = world.log_probabilities(places[sampled_at])
        velocity = 0.5 * velocity + 0.3 * world.update(place, sampled)[0]
        place = place + velocity
    np.testing.assert_allclose(path.end_D.numpy(), place.numpy(), atol=1e-13)
    np.testing.assert_allclose(path.along_TK[-1], (place - world.start_D)[:2].numpy(), atol=1e-13)
    assert len(path.value_T) == 3
    held = deep.trained(
        world,
        world.start_D,
        deep.UpdateSettings("fixed", 0.9, 2),
        start_D=world.start_D,
        learning_rate=0.3,
        updates=3,
        watch_DK=watch,
    )
    np.testing.assert_allclose(held.along_TK, 0, atol=1e-15)


@pytest.fixture
def larger(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script of the larger task, its policy untaught."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path))
    module = importlib.import_module("deep_larger")
    monkeypatch.setattr(module, "START", 0.0005)
    return module


@pytest.mark.parametrize(
    ("lag", "interval"), [("none", 1), ("refresh", 3), ("fixed", 3), ("async", 3), ("fixed", 1)]
)
def test_every_batch_of_the_larger_task_is_drawn_by_the_policy_of_its_lag(
    larger: ModuleType, lag: str, interval: int
) -> None:
    setting, now = larger.UpdateSettings(lag, 0.9, interval), [0]
    drawn: list[tuple[int, int]] = []

    def draw() -> tuple[int, int]:
        drawn.append((now[0], len(drawn)))
        return drawn[-1]

    used = []
    for batch in larger.batches(setting, draw):
        used.append(batch)
        now[0] += 1
        if now[0] == 14:
            break
    assert [update for update, _ in used] == [setting.sampled_at(update) for update in range(14)]
    assert [number for _, number in used] == list(range(14))


@pytest.mark.slow
def test_products_of_the_larger_task_are_sums_over_scores(larger: ModuleType) -> None:
    world = larger.Larger(level=1)
    rollouts = world.rollouts(2, torch.Generator().manual_seed(0))
    weight_N = torch.linspace(-1.0, 2.0, 2 * larger.GROUP, dtype=torch.float64)
    vector = np.random.default_rng(0).standard_normal(len(world.flat()))
    wanted = np.zeros(len(vector))
    for number, weight in enumerate(weight_N.tolist()):
        parts = torch.autograd.grad(world.log_probability(rollouts)[number], world.parameters)
        score = torch.cat([part.reshape(-1) for part in parts]).double().numpy()
        wanted += weight * score * (score @ vector) / len(weight_N)
    product = larger.products(world, rollouts, weight_N)(vector)
    assert np.linalg.norm(product - wanted) < 1e-4 * np.linalg.norm(wanted)


def test_training_on_the_larger_task_samples_a_block_at_a_time(larger: ModuleType) -> None:
    world = larger.Larger(level=1)
    start_D = world.flat()
    value_T, divergence_T, along_T = larger.trained(
        world,
        1e-3,
        10,
        0,
        setting=larger.UpdateSettings("refresh", 0.9, 8),
        prompts=2,
        watch_D=torch.ones_like(start_D) / len(start_D) ** 0.5,
    )
    assert len(value_T) == 10
    assert max(map(abs, divergence_T[:8])) < 1e-5  # the first block was sampled by the reference
    assert abs(along_T[-1]) > 0
    assert float((world.flat() - start_D).norm()) > 0


def test_the_delay_of_a_curve_that_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    inertia = importlib.import_module("deep_inertia")
    time_T = np.arange(0.0, 400.0, 8.0)
    curve = 0.8 - 0.5 * np.exp(-time_T / 120)
    late = 0.8 - 0.5 * np.exp(-np.maximum(time_T - 30, 0) / 120)
    assert inertia.delay(late, curve, time_T) == pytest.approx(30, abs=1)
    assert inertia.delay(curve, curve, time_T) == pytest.approx(0, abs=1e-9)


PAGES = {
    "deep-threshold.md": ("deep_threshold", "deep_larger", "deep_factors"),
    "deep-dynamics.md": ("deep_dynamics", "deep_inertia"),
    "truth.md": ("deep_truth",),
}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_tables_of_the_pages_are_those_that_are_printed(
    page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.syspath_prepend(str(FOLDER.parent / "u_statistic"))
    monkeypatch.setattr(sys, "argv", ["script", "--tables"])
    for name in PAGES[page]:
        module = importlib.import_module(name)
        module.main()
    printed = capsys.readouterr().out.splitlines()
    shown = (FOLDER.parents[1] / "docs" / "studies" / page).read_text(encoding="utf-8").splitlines()
    headers = {
        line
        for line, below in pairwise(printed)
        if line.startswith("| ") and below.startswith("|---")
    }
    tables = [number for number, line in enumerate(shown) if line in headers]
    assert len(tables) == len(headers)
    for number in tables:
        rows = shown[
            number : next(at for at in range(number, len(shown)) if not shown[at].startswith("|"))
        ]
        assert not [row for row in rows if row not in printed]
