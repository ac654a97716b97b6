"""Does the swing of a settled run fall as 1/G? What the components predict, with nothing fitted,
beside simulated runs.

    python lab/experiments/predictable_grpo/fluctuations.py [--quick]

prints the variance of the true mean reward and of the measured batch mean at each group size in two
worlds, the bandit of the note and 64 unlike prompts that share a parameter, with the ratio of G = 4
to 16 and the exponent of G; then where the linear law of the variance ends; writes fluctuations.csv
and temperature.csv. On-policy, leave-one-out, KL term in
the loss: in the reward it makes all arms tie at the fixed point, and nothing swings. It says
nothing of lags.
"""

import math

from moments import mode_noise
from note import RESULTS, Row, Rows, column, logits_at, note_bandit, options, print_table, where
from numpy import ndarray
from prompts import rest_of, shared_world, simulate_prompts
from stationary import group_size_test, stationary_variance, temperature_over_stiffness

from groupwise_lab.simulate.bandit_runs import Records, simulate_bandit
from groupwise_lab.simulate.softmax_bandit import Training, fixed_point
from groupwise_lab.theory.mse import reward_band, variance_ratio

MOMENTUM, FORCE = 0.9, 0.0004
# Time constant (1 - mu)/a = 250 updates; a variance settles at twice that rate, so three of them
# leave a fraction exp(-6).
BURN, LENGTH, EVERY = 750, 2000, 50
SIZES = {"one prompt": (2, 4, 8, 16, 32, 64), "unlike prompts": (2, 4, 8, 16, 32, 64, 128, 256)}
PROMPTS = {"one prompt": 1, "unlike prompts": 8}
# Share of the threshold, and the spread of p that the number of groups keeps to: the last show what
# is left of the nonlinearity there.
WARMING = (
    *tuple((share, 0.02) for share in (0.001, 0.01, 0.03, 0.1, 0.3, 0.5, 0.7)),
    (0.9, 0.04),
    (0.9, 0.02),
    (0.9, 0.01),
)


def spread(series_TS: ndarray) -> tuple[float, float]:
    """Variance about the mean of all runs and records, and its standard error over runs."""
    # A run's records are correlated, its square distances are one number; runs are independent.
    square_S = ((series_TS - series_TS.mean()) ** 2).mean(axis=0)
    return square_S.mean(), float(square_S.std(ddof=1) / math.sqrt(len(square_S)))


def one_prompt(size: int, runs: int, seed: int) -> tuple[ndarray, ndarray, Row]:
    """Settled runs of the bandit of the note, and what predicts them."""
    world = note_bandit()
    rest = fixed_point(world, Training(1.0))
    noise = mode_noise(world, rest.policy_A, rest.direction_MA[0])
    training = Training(FORCE / rest.stiffness, size, PROMPTS["one prompt"], momentum=MOMENTUM)
    runs_of_bandit = simulate_bandit(
        world,
        training,
        steps=BURN + LENGTH,
        replicates=runs,
        seed=seed,
        start_A=logits_at(rest.value),
        records=Records(("value", "reward"), every=EVERY),
    )
    seen = slice(BURN // EVERY, -1)
    parts = {
        "vp": noise.vp,
        "t": noise.t,
        "r": noise.r,
        "gain": noise.gain,
        "learning_rate": training.learning_rate,
        "reward_variance": noise.reward_variance,
        "value_variance": 0.0,
    }
    return runs_of_bandit.value[seen], runs_of_bandit.series["reward"][seen], parts


def unlike_prompts(size: int, runs: int, seed: int) -> tuple[ndarray, ndarray, Row]:
    """Settled runs of the shared parameter, and what predicts them."""
    world = shared_world()
    rest = rest_of(world)
    rate, start, steps = FORCE / rest.stiffness, rest.theta, BURN + LENGTH
    batch = PROMPTS["unlike prompts"]
    value, measured = simulate_prompts(
        world,
        rate,
        MOMENTUM,
        batch,
        size,
        start=start,
        steps=steps,
        every=EVERY,
        runs=runs,
        seed=seed,
    )
    seen = slice(BURN // EVERY, None)
    parts = {
        "vp": rest.vp,
        "t": rest.t,
        "r": rest.r,
        "gain": rest.gain,
        "learning_rate": rate,
        "reward_variance": rest.reward_variance,
        "value_variance": rest.value_variance,
    }
    return value[seen], measured[seen], parts


def band_row(name: str, size: int, runs: int, seed: int) -> Row:
    """One group size: simulated and predicted variances."""
    value, measured, parts = (one_prompt if name == "one prompt" else unlike_prompts)(
        size, runs, seed
    )
    unit = stationary_variance(
        FORCE, MOMENTUM, learning_rate=parts["learning_rate"], noise_variance=1.0
    )
    settings = {"group_size": size, "prompts": PROMPTS[name], "gain": parts["gain"]}
    settings |= {key: parts[key] for key in ("reward_variance", "value_variance")}
    true, said = reward_band((parts["vp"], parts["t"], parts["r"]), unit, **settings)
    floor, _ = reward_band((parts["vp"], 0.0, 0.0), unit, **settings)
    row = {
        "world": name,
        "group_size": size,
        "prompts": PROMPTS[name],
        "floor": floor**2,
        "predicted": true**2,
    }
    row["variance"], row["standard_error"] = spread(value)
    row["predicted_measured"] = said**2
    row["measured"], row["standard_error_measured"] = spread(measured)
    return row | {name: parts[name] for name in ("vp", "t", "r")}


def show(name: str, rows: Rows) -> None:
    """One world's table, and what a test of 1/G says of it."""
    first = rows[0]["predicted"] * rows[0]["group_size"]
    lines = [
        [
            (
                f"{row['group_size']} | "
                f"{row['variance']:.3e} ± {1.96 * row['standard_error']:.0e} | "
                f"{row['predicted']:.3e} | {row['variance'] / row['predicted']:.3f} | "
                f"{row['predicted'] * row['group_size'] / first:.2f} | {row['measured']:.3e} | "
                f"{row['predicted_measured']:.3e}"
            )
        ]
        for row in rows
    ]
    header = (
        (
            "G | variance, simulated, 95 % | predicted | simulated / predicted | "
            f"G x predicted, over that of G = {rows[0]['group_size']}"
        ),
    )
    print_table(
        f"Swings of the true mean reward: {name}",
        (*header, "of the measured mean | predicted"),
        lines,
    )
    at = {row["group_size"]: row for row in rows}
    four, sixteen = at[4], at[16]
    measured = four["variance"] / sixteen["variance"]
    error = measured * math.hypot(
        *(row["standard_error"] / row["variance"] for row in (four, sixteen))
    )
    exact = variance_ratio(four["vp"], four["t"], four["r"], 4, 16)
    within = variance_ratio(0.0, four["t"], four["r"], 4, 16)
    print(
        f"\nG = 4 over 16: {measured:.2f} ± {1.96 * error:.2f}; predicted {exact:.2f}; "
        f"without the part between prompts {within:.2f}; 1/G: 4."
    )
    print(
        f"Floor that no G removes: {four['floor']:.3e}, "
        f"{100 * four['floor'] / four['predicted']:.0f} % of the variance at G = 4."
    )
    for what, key, error_key in (
        ("True", "variance", "standard_error"),
        ("Measured", "measured", "standard_error_measured"),
    ):
        worth = [2 * (row[key] / row[error_key]) ** 2 for row in rows]
        print(
            f"{what} mean: "
            f"{group_size_test(column(rows, 'group_size'), column(rows, key), worth).status}"
        )


def temperature_row(share: float, swing: float, runs: int, seed: int) -> Row:
    """Simulated variance at one force beside temperature over stiffness and the exact linear
    law, by which p swings by `swing`.
    """
    world = note_bandit()
    rest = fixed_point(world, Training(1.0))
    noise = mode_noise(world, rest.policy_A, rest.direction_MA[0])
    force = 2 * share
    rate = force / rest.stiffness
    alone = noise.gain**2 * stationary_variance(
        force, 0.0, learning_rate=rate, noise_variance=noise.variance(8, 1)
    )
    batch = math.ceil(alone / swing**2)
    training = Training(rate, 8, batch)
    settle = int(3 / force + 100)
    runs_of_bandit = simulate_bandit(
        world,
        training,
        steps=2 * settle,
        replicates=runs,
        seed=seed,
        start_A=logits_at(rest.value),
        records=Records(every=10),
    )
    variance, error = spread(runs_of_bandit.value[settle // 10 :])
    s2 = noise.variance(8, batch)
    exact = noise.gain**2 * stationary_variance(force, 0.0, learning_rate=rate, noise_variance=s2)
    formula = noise.gain**2 * temperature_over_stiffness(
        force, 1.0, learning_rate=rate, noise_variance=s2
    )
    return {
        "force_over_threshold": share,
        "force": force,
        "prompts": batch,
        "variance": variance,
        "standard_error": error,
        "exact": exact,
        "temperature_over_stiffness": formula,
    }


def show_temperature(rows: Rows) -> None:
    """Where the formula ends."""
    lines = [
        [
            (
                f"{row['force_over_threshold']:g} | {row['force']:.4g} | {row['prompts']} | "
                f"{math.sqrt(row['exact']):.3f} | "
                f"{row['variance'] / row['exact']:.3f} ± "
                f"{1.96 * row['standard_error'] / row['exact']:.3f} | "
                f"{row['temperature_over_stiffness'] / row['exact']:.3f}"
            )
        ]
        for row in rows
    ]
    header = (
        "a / threshold | a | groups an update | deviation of p, exact | "
        "simulated / exact | temperature over stiffness / exact"
    )
    print_table(
        "Variance of the true mean as the force grows, on-policy, no momentum, G = 8", header, lines
    )


def main() -> None:
    """Run, print and write."""
    asked = options(__doc__, replicates=2000)
    if asked.tables:
        for name in SIZES:
            show(name, where(RESULTS.read("fluctuations"), world=name))
        show_temperature(RESULTS.read("temperature"))
        return
    runs = 100 if asked.quick else asked.replicates
    rows = []
    for name, sizes in SIZES.items():
        some = [
            band_row(name, size, runs, asked.seed) for size in ((4, 16) if asked.quick else sizes)
        ]
        show(name, some)
        rows += some
    warming = [
        temperature_row(*case, runs, asked.seed)
        for case in (((0.1, 0.02),) if asked.quick else WARMING)
    ]
    show_temperature(warming)
    if asked.quick:
        return
    RESULTS.write("fluctuations", rows)
    RESULTS.write("temperature", warming)


if __name__ == "__main__":
    main()
