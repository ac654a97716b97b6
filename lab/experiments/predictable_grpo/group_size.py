"""Does the mean trajectory depend on the group size? For plain SGD with leave-one-out advantages it
does not; for what people run it does.

    python lab/experiments/predictable_grpo/group_size.py [--quick]

prints plateaus and times of 63 % of the way for three advantages and both places of the KL term at
G = 4 and 16, what noise itself does to the leave-one-out plateau, and the times of SGD and Adam at
G = 4 to 64; writes group_size_plateau.csv, group_size_noise.csv, group_size_curves.csv and
group_size_time.csv. Bandit of the note, from its reference
policy (Adam: from p = .7, where the noise of a batch exceeds its signal). It says nothing of the
size of swings: that is fluctuations.py.
"""

import math

import numpy as np
from moments import ModeNoise, mode_noise
from note import RESULTS, Row, Rows, logits_at, note_bandit, options, print_table
from stationary import stationary_variance

from groupwise.errors import InvalidArgumentError
from groupwise_lab.fields import KlPlace
from groupwise_lab.simulate.bandit_runs import BanditRuns, Records, expected_path, simulate_bandit
from groupwise_lab.simulate.softmax_bandit import AdvantageName, Training, fixed_point

ADVANTAGES: tuple[tuple[AdvantageName, str], ...] = (
    ("leave_one_out", "leave-one-out"),
    ("full_group_mean", "full mean"),
    ("std_normalised", "divided by std"),
)
RATE, UPDATES, PROMPTS = 0.2, 1200, 16
ADAM_RATE, ADAM_START, SGD_RATE = 0.001, 0.7, 0.02
TIME_SIZES = (4, 8, 16, 32, 64)
WINDOW, LONG = 200, 20_000


def time_to_63(step_T: np.ndarray, curve_T: np.ndarray, plateau: float) -> float:
    """First update at which 1 - 1/e of the way is done, between two records by a straight line."""
    way = (curve_T - curve_T[0]) / (plateau - curve_T[0]) - (1 - math.exp(-1))
    place = int(np.argmax(way > 0))
    share = -way[place - 1] / (way[place] - way[place - 1])
    return float(step_T[place - 1] + share * (step_T[place] - step_T[place - 1]))


def plateau_row(
    advantage: AdvantageName,
    label: str,
    size: int,
    place: KlPlace,
    replicates: int,
    seed: int,
    *,
    long: int = LONG,
) -> tuple[Row, BanditRuns]:
    """Exact fixed point; expected path and simulated mean over the same last updates; where the
    expected path ends much later.
    """
    world = note_bandit()
    training = Training(RATE, size, PROMPTS, advantage=advantage, kl_place=place)
    try:
        exact = fixed_point(world, training).value
    except InvalidArgumentError:
        exact = math.nan
    path = expected_path(world, training, steps=long).value[:, 0]
    runs = simulate_bandit(
        world, training, steps=UPDATES, replicates=replicates, seed=seed, records=Records(every=5)
    )
    last = runs.value[-WINDOW // 5 :].mean(axis=0)
    row = {
        "advantage": label,
        "kl_place": place,
        "group_size": size,
        "fixed_point": exact,
        "expected": path[UPDATES + 1 - WINDOW : UPDATES + 1].mean(),
        "long_run": path[-1000:].mean(),
        "mean": last.mean(),
        "standard_error": float(last.std(ddof=1) / math.sqrt(replicates)),
    }
    row["time"] = time_to_63(np.arange(long + 1), path, row["long_run"])
    return row, runs


def noise_row(size: int, replicates: int, seed: int) -> Row:
    r"""Leave-one-out with one group an update: how far the noise itself moves the plateau, to
    second order.

    The drift f has no slope but -K and the curvature $f'' = -4\beta pq(1-2p)$ at the fixed point,
    so the mean of theta moves by $(2p-1)Var(\theta)$, of which the curvature of p takes half back:
    $E[p] - p^* = pq(2p-1)Var(\theta)/2$.
    """
    world, training = note_bandit(), Training(RATE, size)
    rest = fixed_point(world, training)
    noise = mode_noise(world, rest.policy_A, rest.direction_MA[0]).variance(size, 1)
    # theta is a difference of two logits: sqrt 2 times the coordinate along the unit vector.
    variance = 2 * stationary_variance(
        RATE * rest.stiffness, 0.0, learning_rate=RATE, noise_variance=noise
    )
    p = rest.value
    runs = simulate_bandit(
        world,
        training,
        steps=1000,
        replicates=replicates,
        seed=seed,
        start_A=logits_at(p),
        records=Records(every=10),
    )
    mean_S = runs.value[20:].mean(axis=0)
    return {
        "group_size": size,
        "shift": float(mean_S.mean() - p),
        "standard_error": float(mean_S.std(ddof=1) / math.sqrt(replicates)),
        "second_order": p * (1 - p) * (2 * p - 1) * variance / 2,
    }


def plateau_rows(
    replicates: int, seed: int, *, quick: bool
) -> tuple[Rows, dict[tuple[str, int], BanditRuns]]:
    """All cells; curves of those with the KL term in the loss."""
    rows, curves = [], {}
    for place in ("loss",) if quick else ("loss", "reward"):
        for advantage, label in ADVANTAGES:
            for size in (4, 16):
                row, runs = plateau_row(
                    advantage, label, size, place, replicates, seed, long=2000 if quick else LONG
                )  # type: ignore[arg-type]
                rows.append(row)
                if place == "loss":
                    curves[label, size] = runs
    return rows, curves


def time_row(optimizer: str, size: int, replicates: int, seed: int) -> Row:
    """Time of 63 % of the way, with its standard error over tenths of the replicates."""
    world = note_bandit()
    adam = optimizer == "adam"
    training = (
        Training(ADAM_RATE, size, 1, momentum=0.9, optimizer="adam")
        if adam
        else Training(SGD_RATE, size, 1, momentum=0.9, optimizer="sgd")
    )
    rest = fixed_point(world, training)
    updates = 4000 if adam else 600
    runs = simulate_bandit(
        world,
        training,
        steps=updates,
        replicates=replicates,
        seed=seed,
        start_A=logits_at(ADAM_START),
        records=Records(every=5),
    )
    parts = np.array_split(np.arange(replicates), 10)
    times = np.array(
        [time_to_63(runs.step_T, runs.value[:, part].mean(axis=1), rest.value) for part in parts]
    )
    return {
        "optimizer": optimizer,
        "group_size": size,
        "time": time_to_63(runs.step_T, runs.value.mean(axis=1), rest.value),
        "standard_error": float(times.std(ddof=1) / math.sqrt(len(parts))),
    }


def predicted_adam_time(noise: ModeNoise, size: int, stiffness: float) -> float:
    r"""$\sqrt{s^2/2}/(\eta K)$: the root of the second moment of each of the two logits is the
    noise's alone.
    """
    return math.sqrt(noise.variance(size, 1) / 2) / (ADAM_RATE * stiffness)


def time_rows(replicates: int, seed: int, *, quick: bool) -> Rows:
    """SGD and Adam over group sizes, with the heuristic's prediction for Adam."""
    world = note_bandit()
    rest = fixed_point(world, Training(1.0))
    noise = mode_noise(world, rest.policy_A, rest.direction_MA[0])
    rows = [
        time_row(name, size, replicates, seed)
        for name in ("sgd", "adam")
        for size in ((4, 16) if quick else TIME_SIZES)
    ]
    first = {row["optimizer"]: row["time"] for row in rows if row["group_size"] == 4}
    for row in rows:
        row["ratio"] = first[row["optimizer"]] / row["time"]
        adam = row["optimizer"] == "adam"
        row["predicted"] = (
            predicted_adam_time(noise, row["group_size"], rest.stiffness)
            if adam
            else (1 - 0.9) / (SGD_RATE * rest.stiffness)
        )
        row["predicted_ratio"] = (
            math.sqrt(noise.variance(4, 1) / noise.variance(row["group_size"], 1)) if adam else 1.0
        )
    return rows


def show_plateaus(rows: Rows) -> None:
    """Plateaus and times of each advantage."""
    lines = [
        [
            row["advantage"],
            row["kl_place"],
            str(row["group_size"]),
            "-" if math.isnan(row["fixed_point"]) else f"{row['fixed_point']:.4f}",
            f"{row['long_run']:.4f}",
            f"{row['expected']:.4f}",
            # At a fixed point where all arms tie the deviation is rounding.
            f"{row['mean']:.4f} "
            + (
                f"± {1.96 * row['standard_error']:.0e}"
                if row["standard_error"] > 1e-12
                else "(no noise)"
            ),
            f"{row['time']:.1f}",
        ]
        for row in rows
    ]
    header = ("advantage | KL term in | G | fixed point | expected path, long run",)
    header = (*header, f"at update {UPDATES} | simulated there, 95 % | updates to 63 %")
    print_table(
        f"Plateau of the reward; SGD, learning rate {RATE}, no momentum, {PROMPTS} groups an "
        "update",
        header,
        lines,
    )


def show_noise(rows: Rows) -> None:
    """What noise does to the plateau."""
    lines = [
        [
            (
                f"{row['group_size']} | "
                f"{1e3 * row['shift']:+.2f} ± {1.96e3 * row['standard_error']:.2f} | "
                f"{1e3 * row['second_order']:+.2f}"
            )
        ]
        for row in rows
    ]
    header = "G | simulated, 95 % | second order"
    print_table(
        "Leave-one-out, one group an update: mean reward less the fixed point, thousandths",
        header,
        lines,
    )


def show_times(rows: Rows) -> None:
    """Times of two optimisers."""
    lines = [
        [
            (
                f"{row['optimizer']} | {row['group_size']} | "
                f"{row['time']:.1f} ± {1.96 * row['standard_error']:.1f} | "
                f"{row['predicted']:.1f} | {row['ratio']:.2f} | {row['predicted_ratio']:.2f}"
            )
        ]
        for row in rows
    ]
    header = (
        "optimiser | G | updates to 63 %, 95 % | predicted time constant | "
        "faster than G = 4 | predicted"
    )
    print_table("One group an update, momentum .9, from p = .7", header, lines)


def main() -> None:
    """Run, print and write."""
    asked = options(__doc__, replicates=2000)
    if asked.tables:
        show_plateaus(RESULTS.read("group_size_plateau"))
        show_noise(RESULTS.read("group_size_noise"))
        show_times(RESULTS.read("group_size_time"))
        return
    replicates = 50 if asked.quick else asked.replicates
    rows, curves = plateau_rows(replicates, asked.seed, quick=asked.quick)
    show_plateaus(rows)
    noisy = [
        noise_row(size, replicates, asked.seed)
        for size in ((4,) if asked.quick else (2, 4, 8, 16, 64))
    ]
    show_noise(noisy)
    times = time_rows(replicates, asked.seed, quick=asked.quick)
    show_times(times)
    if asked.quick:
        return
    RESULTS.write("group_size_plateau", rows)
    RESULTS.write("group_size_noise", noisy)
    RESULTS.write("group_size_time", times)
    RESULTS.write("group_size_curves", curve_rows(curves))


def curve_rows(curves: dict[tuple[str, int], BanditRuns]) -> Rows:
    """The drawn curves as rows."""
    rows = []
    for (label, size), runs in curves.items():
        errors = runs.value.std(axis=1, ddof=1) / math.sqrt(runs.value.shape[1])
        rows += [
            {
                "advantage": label,
                "group_size": size,
                "update": int(update),
                "mean": float(mean),
                "standard_error": float(error),
            }
            for update, mean, error in zip(
                runs.step_T, runs.value.mean(axis=1), errors, strict=True
            )
            if update <= 300
        ]
    return rows


if __name__ == "__main__":
    main()
