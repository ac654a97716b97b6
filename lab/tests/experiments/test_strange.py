"""The study of strange worlds: the worlds themselves, those of one's own, and what a row says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from groupwise.estimators.components import components
from groupwise.forecasting.fit import fit
from groupwise.forecasting.laws import law_by_name
from groupwise.intervals import Interval
from groupwise.prompts import templates
from groupwise_lab.worlds.strange import BALLS, BATCHES, SHAPES, HeavyBall, half, part_passed

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "experiments" / "intervals"
Load = Callable[[str], ModuleType]


@pytest.mark.parametrize("name", ["near-duplicates, eight of each", "normal rewards"])
def test_the_texts_of_a_batch_are_those_of_its_templates(name: str) -> None:
    """Eight variants share scores up to their length, and a text up to a number."""
    batch, rng = BATCHES[name], np.random.default_rng(5)
    score_ND, _, label_N, text_N = batch.draw(batch.make(np.random.default_rng(1)), rng)
    assert len(score_ND) == batch.prompts * batch.rollouts
    first_B = np.unique(label_N, return_index=True)[1]
    kinds = templates([text_N[row] for row in first_B])
    assert kinds.max() + 1 == batch.prompts // batch.variants
    assert (np.diff(kinds) != 0).mean() > 0.5, "shuffled"


def test_no_score_tells_eight_kinds_of_a_list_from_eight_of_thousands() -> None:
    """One law of scores and rewards, two truths: those of the eight, which intervals over prompts
    hold, and those of all, which they do not. So no test of scores has more power than size.
    """
    batch = BATCHES["normal rewards"]
    world = batch.make(np.random.default_rng(1))
    truth, rng = world.moments(), np.random.default_rng(2)
    of_eight, of_all = [], []
    for _ in range(150):
        kind_K = rng.choice(len(truth.oracle_variance_P), 8, replace=False)
        score_ND, reward_N, label_N = world.sample_at(rng.choice(kind_K, 64), 8, rng)
        t = components(reward_N, label_N, score_ND=score_ND).t.interval
        of_eight.append(t.covers(truth.oracle_variance_P[kind_K].mean()))
        of_all.append(t.covers(truth.t))
    assert np.mean(of_eight) > 0.92
    assert np.mean(of_all) < 0.8


def test_a_drawn_batch_is_that_of_its_seed(load: Load) -> None:
    strange, drawn = load("strange"), []
    named = len(strange.BATCHES)
    for _ in range(2):
        rng = np.random.default_rng([3, 1])
        for number in range(2):
            strange.draw_batch(rng, number)
        drawn.append(dict(list(strange.BATCHES.items())[named:]))
        for name in drawn[-1]:
            del strange.BATCHES[name]
    assert list(drawn[0]) == list(drawn[1])
    first, second = (
        {name: batch.make(np.random.default_rng(0)).moments().vp for name, batch in made.items()}
        for made in drawn
    )
    assert first == second
    assert next(iter(first)).startswith("0: difficulty")
    assert "lengths" in list(first)[1]


def test_a_row_counts_coverage_notes_and_width(load: Load) -> None:
    strange = load("strange")
    held = [
        (Interval(value, value - 1, value + 1), 0.0, value > 2) for value in (0.0, 0.5, 1.5, 3.0)
    ]
    row = strange.row_of("a world", "x", held)
    assert (row["draws"], row["noted"], row["covered"]) == (4, 0.25, 0.5)
    assert row["silent"] == pytest.approx(2 / 3)
    spread = np.diff(np.quantile([0.0, 0.5, 1.5, 3.0], [0.025, 0.975]))[0]
    assert row["width"] == pytest.approx(2 / spread)
    assert strange.in_words(row) == f"x 0.50/0.67/{2 / spread:.1f}"
    assert strange.in_words(row | {"noted": 0.0, "covered": np.nan}) == f"x {2 / spread:.1f}"


def test_each_interval_of_a_batch_is_scored(load: Load) -> None:
    rows = load("strange").of_prompts("near-duplicates of normal rewards", 8, 5)
    assert [row["interval"] for row in rows] == ["Vp", "T", "R", "G*", "price", "named size"]
    assert {row["noted"] for row in rows} == {1.0}
    assert min(row["covered"] for row in rows[:4]) >= 0.6
    assert 1 <= rows[-1]["width"] < 1.25


def test_a_curve_is_counted_once_more_where_enough_of_it_was_seen(load: Load) -> None:
    """The fifth of a loss that a tenth of the run cannot hold, and six tenths do; what the rise
    goes on to gain meanwhile is no loss.
    """
    rows = load("strange").of_curves("late decline", 25, 5)
    kinds = [(row["world"], row["interval"]) for row in rows]
    assert ("late decline", "from 10%") in kinds
    assert ("late decline, 20% seen", "from 10%") not in kinds
    assert ("late decline, 20% seen", "from 60%") in kinds
    assert all(0 <= row["covered"] <= 1 < row["width"] for row in rows)
    rise = np.linspace(0.2, 0.8, 101)
    assert part_passed("logistic", rise, 51) == pytest.approx(0.5)
    both = np.append(rise, rise[::-1])
    assert part_passed("late decline", both, 20) == 0
    assert part_passed("late decline", both, 151) == pytest.approx(0.5, abs=0.02)


def test_heavy_ball_is_the_law_that_is_fitted() -> None:
    """Without noise the recursion lies on the law at its own truth."""
    for name, ball in BALLS.items():
        still = HeavyBall(ball.force, 0.0)
        time_T, value_T = still.draw(np.random.default_rng(0), 120)
        law = law_by_name("oscillator").curve(time_T, **ball.truth)
        assert np.abs(law - value_T).max() < 2e-3, name


OWN = """
import numpy as np

def draw(rng):
    number = np.repeat(np.arange(24), 6)
    sign = rng.choice([-1.0, 1.0], 144)
    return np.stack([sign, 0 * sign], 1), sign * SLOPE[number % 2], number

SLOPE = np.array([1.0, 2.0])

def curve(rng):
    return 0.5 + 0.02 * rng.normal(size=120)
"""


def test_a_world_and_a_curve_of_ones_own_are_scored_alone_and_nothing_is_written(
    printed: Callable[..., str], tmp_path: Path
) -> None:
    results = FOLDER / "results.txt"
    before, own = results.read_bytes(), tmp_path / "own.py"
    own.write_text(OWN)
    given = ("--world", f"{own}:draw", "--curve", f"{own}:curve")
    out = printed("strange", *given, "--replicates", "6", "--processes", "1")
    lines = [line for line in out.splitlines() if line.startswith("|")][2:]
    assert [line.split(" | ")[0] for line in lines] == [f"| {own}:draw", f"| {own}:curve"]
    assert "that rules are reported on" in out
    assert results.read_bytes() == before


def test_what_many_batches_come_to_is_the_truth_also_where_prompts_are_copies(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gradients of 1 and 2, half of each: Vp = 1/4; eight copies of one prompt a batch hide none."""
    strange = load("strange")
    monkeypatch.setattr(strange, "BATCHES_OF_TRUTH", 600)

    def copies(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
        sign, slope = rng.choice([-1.0, 1.0], 48), rng.choice([1.0, 2.0])
        return np.stack([sign, 0 * sign], 1), sign * slope, np.repeat(np.arange(8), 6)

    vp, t, r, gradient = strange.pooled(copies)
    assert (vp, gradient) == (pytest.approx(0.25, abs=0.05), pytest.approx(2.25, abs=0.1))
    assert (t, r) == (pytest.approx(0.0, abs=0.2), pytest.approx(5.0, abs=0.3))
    design = BATCHES["near-duplicates, eight of each"]
    world = design.make(np.random.default_rng(1))
    exact, many = world.moments(), strange.pooled(lambda rng: design.draw(world, rng))
    assert many[:3] == pytest.approx((exact.vp, exact.t, exact.r), rel=0.1)


def refused(
    printed: Callable[..., str], capsys: pytest.CaptureFixture[str], *given: str
) -> tuple[list[str], list[str]]:
    """The lines of both outputs of a study that ends with 2."""
    with pytest.raises(SystemExit) as ended:
        printed("strange", *given)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    return out.splitlines(), err.splitlines()


@pytest.mark.parametrize(
    "place",
    ["none.py:draw", "draw", "own.py:SLOPE", "own.py:fails", "own.py:late", "own.py:torn"],
)
def test_what_is_no_function_of_a_file_is_refused_in_one_line(
    place: str,
    printed: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(
        OWN + "\ndef fails(rng):\n    raise ValueError('no batch')\n"
        "\ndef late(rng):\n    return draw(rng) if rng.random() > .5 else fails(rng)\n"
        "\ndef torn(rng):\n    return draw(rng)[0], 1, 2\n"
    )
    given = ("--world", place, "--processes", "1", "--replicates", "4")
    _, [line] = refused(printed, capsys, *given)
    said = f"expected FILE.py:NAME of a function of a generator, got {place!r} ("
    if place == "own.py:torn":  # a function whose batch is none
        said = "own.py:torn: expected reward_N with 1 dimension, got shape (): reshape it"
    assert line.startswith(said)
    assert ("no batch" in line) == (place in {"own.py:fails", "own.py:late"})


def test_a_world_that_ends_the_program_and_a_curve_with_a_hole_leave_the_others_scored(
    printed: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(
        OWN + "\ndef leaves(rng):\n    raise SystemExit(3)\n"
        "\ndef holed(rng):\n    return np.append(curve(rng), np.nan)\n"
    )
    places = ("--world", "own.py:leaves", "--curve", "own.py:holed,,own.py:curve,")
    given = (*places, "--processes", "1", "--replicates", "4")
    out, [end, hole, nothing] = refused(printed, capsys, *given)
    assert [line for line in out if line.startswith("| own.py:curve | 0% | ")]
    assert "got 'own.py:leaves' (SystemExit(3)): name one" in end
    assert hole.startswith("own.py:holed: expected finite numbers in the rows of own.py:holed, got")
    assert nothing.startswith("expected FILE.py:NAME of a function of a generator, got '' (")


@pytest.mark.parametrize(
    ("option", "value", "least"),
    [("processes", "0", 1), ("replicates", "0", 1), ("seed", "-1", 0), ("drawn", "-1", 0)],
)
def test_a_number_that_is_none_of_the_study_is_refused_in_one_line(
    option: str,
    value: str,
    least: int,
    printed: Callable[..., str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, [line] = refused(printed, capsys, f"--{option}={value}")
    said = f"expected a whole number of at least {least} for --{option}, got {value}"
    assert line.endswith(said)


def test_the_half_of_a_world_hangs_on_its_name_alone() -> None:
    halves = {name: half(name) for name in (*BATCHES, *SHAPES, *BALLS)}
    assert half("unlike lengths") == "chosen on"
    assert half("wandering") == "reported on"
    assert 10 < list(halves.values()).count("reported on") < 30


@pytest.mark.parametrize(
    ("name", "seed", "least", "most"),
    [
        ("very unlike lengths", 1, 0.98, 1.0),
        ("unlike lengths", 1, 0.0, 0.1),
        ("prompts that share most", 2, 0.0, 0.05),
        ("rare success", 1, 0.0, 0.1),
        ("rare success", 2, 0.0, 0.1),
    ],
)
def test_a_note_comes_where_lengths_hide_most_and_seldom_elsewhere(
    name: str, seed: int, least: float, most: float
) -> None:
    """A sample without the longest scores is told by the others: of 100 batches of very unlike
    lengths 96 had a note when each prompt counted by its length, and those without held .3.
    """
    world, rng = BATCHES[name].make(np.random.default_rng(seed)), np.random.default_rng(3)
    noted = []
    for _ in range(100):
        score_ND, reward_N, label_N, text_N = BATCHES[name].draw(world, rng)
        made = components(reward_N, label_N, score_ND=score_ND, text_N=text_N)
        noted.append(bool(made.notes))
    assert least <= np.mean(noted) <= most


@pytest.mark.parametrize("number", [20, 35, 37, 39])
def test_a_swing_about_its_plateau_keeps_it_where_laws_compete(number: int) -> None:
    """Its last rows are off the curve by noise that lasts: a sixth of such runs, these among them,
    lost the plateau where nothing said that a swing comes back.
    """
    ball = BALLS["swinging, noise that lasts"]
    assert fit(*ball.draw(np.random.default_rng([2026, number]), 200)).status == "converged"
