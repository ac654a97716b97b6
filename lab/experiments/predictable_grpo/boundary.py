"""The edge of stability in (refresh interval, learning rate): exact line, published rule, and where
the bandit itself begins to grow.

    python lab/experiments/predictable_grpo/boundary.py [--quick]

prints the located thresholds beside the exact ones, thresholds where only part of the force is
stale, and exact threshold over rule; writes boundary.csv, partly_stale.csv, exact_over_rule.csv and
exact_over_rule_curves.csv. A
threshold is located by bracketing: two dozen learning rates at once, the full nonlinear expected
dynamics, a kick of a millionth; stiffness by kicks. Its search begins from the same wide bracket
everywhere and sees no exact threshold. Bandit of the note, KL term in the reward, so that the whole
force is as stale as the rollouts. It simulates no noise.
"""

import math

import numpy as np
from kicks import kicked
from note import RESULTS, Rows, logits_at, note_bandit, options, print_table

from groupwise.edge.mode import LAGS, threshold
from groupwise.parsing import JsonObject
from groupwise_lab.fields import KlPlace, LagName
from groupwise_lab.simulate.bandit_runs import expected_path
from groupwise_lab.simulate.softmax_bandit import RatioCorrection, Training, fixed_point
from groupwise_lab.theory.oscillator import rule_threshold

INTERVALS = (1, 2, 4, 8, 16, 32, 64)
MOMENTA = (0.9, 0.0)
RATIO_MOMENTA = (0.0, 0.3, 0.5, 0.9, 0.95, 0.99, 0.999)
DRAWN_MOMENTA = (0.9, 0.999)
PARTLY_STALE: tuple[tuple[str, KlPlace, RatioCorrection], ...] = (
    ("kl_in_reward", "reward", "none"),
    ("kl_in_loss", "loss", "none"),
    ("exact_ratio_kl_in_reward", "reward", "exact"),
    ("exact_ratio_kl_in_loss", "loss", "exact"),
)
PATHS = 24
KICK = 1e-6


def grows(
    lag: LagName,
    momentum: float,
    interval: int,
    rate_S: np.ndarray,
    kl_place: KlPlace,
    ratio: RatioCorrection,
) -> np.ndarray:
    """Whether a kick has grown between the second and the last quarter of a long run, at each
    learning rate.
    """
    world = note_bandit()
    training = Training(
        1.0, momentum=momentum, lag=lag, interval=interval, kl_place=kl_place, ratio=ratio
    )
    rest = fixed_point(world, training)
    updates = max(4000, 400 * interval)
    start = logits_at(rest.value + KICK)
    path = expected_path(world, training, steps=updates, start_AS=start, learning_rate_S=rate_S)
    distance_TS = np.abs(path.value - rest.value)
    early, late = (
        distance_TS[updates // 4 : updates // 2].max(axis=0),
        distance_TS[3 * updates // 4 :].max(axis=0),
    )
    # A run that has settled lies at rounding, early and late; one that has long grown goes round a
    # limit cycle, early and late.
    return (late > early) & (late > 1e-3 * KICK) | (late > 100 * KICK)


def located(
    lag: LagName,
    momentum: float,
    interval: int,
    kl_place: KlPlace = "reward",
    ratio: RatioCorrection = "none",
) -> float:
    """The learning rate from which the bandit grows, to a thousandth."""
    low, high = 1e-3, 1e2
    while high / low > 1.001:
        rate_S = np.geomspace(low, high, PATHS)
        grown = grows(lag, momentum, interval, rate_S, kl_place, ratio)
        first = int(np.argmax(grown)) if grown.any() else PATHS - 1
        low, high = rate_S[max(first - 1, 0)], rate_S[first]
    return math.sqrt(low * high)


def boundary_row(lag: LagName, momentum: float, interval: int, stiffness: float) -> JsonObject:
    """One cell of the map."""
    rate = located(lag, momentum, interval)
    # Without a lag the published rule knows no interval: one update a generation.
    exact, rule = (
        float(threshold(lag, momentum, interval)),
        float(rule_threshold(momentum, 1 if lag == "none" else interval)),
    )
    product = rate * stiffness
    return {
        "lag": lag,
        "momentum": momentum,
        "interval": interval,
        "learning_rate": rate,
        "located": product,
        "exact": exact,
        "rule": rule,
        "gap": product / exact - 1,
        "exact_over_rule": exact / rule,
    }


def show_boundary(rows: Rows) -> None:
    """The located thresholds."""
    lines = [
        [
            (
                f"{row['momentum']:g} | {row['lag']} | {row['interval']} | "
                f"{row['located']:.4g} | {row['exact']:.4g} | {100 * row['gap']:+.2f} % | "
                f"{row['rule']:.4g} | {row['exact_over_rule']:.2f}"
            )
        ]
        for row in rows
    ]
    print_table(
        "Thresholds of learning rate x stiffness",
        "momentum | lag | R | located | exact | gap | rule | exact / rule",
        lines,
    )
    print(f"\nLargest gap {100 * max(abs(row['gap']) for row in rows):.2f} %.")


def ratio_rows() -> Rows:
    """Exact threshold over the rule, at each lag and momentum: at interval 1, and its ends over
    intervals of 2 to 256.
    """
    interval = np.arange(2, 257)
    rows = []
    for lag in ("fixed", "refresh", "async"):
        for momentum in RATIO_MOMENTA:
            ratio = threshold(lag, momentum, interval) / rule_threshold(momentum, interval)
            least, most = int(ratio.argmin()), int(ratio.argmax())
            rows.append(
                {
                    "lag": lag,
                    "momentum": momentum,
                    "at_1": float(threshold(lag, momentum, 1) / rule_threshold(momentum, 1)),
                }
            )
            rows[-1] |= {
                "least": float(ratio[least]),
                "least_at": int(interval[least]),
                "most": float(ratio[most]),
                "most_at": int(interval[most]),
            }
    return rows


def ratio_curves() -> Rows:
    """Exact threshold over the rule where the picture needs it: whole intervals about a twelfth
    of a doubling apart.
    """
    interval = np.unique(np.round(np.geomspace(1, 256, 97)).astype(int))
    curves = {
        (lag, momentum): threshold(lag, momentum, interval) / rule_threshold(momentum, interval)
        for lag in ("refresh", "fixed", "async")
        for momentum in DRAWN_MOMENTA
    }
    return [
        {"lag": lag, "momentum": momentum, "interval": int(r), "exact_over_rule": float(ratio)}
        for (lag, momentum), ratios in curves.items()
        for r, ratio in zip(interval, ratios, strict=True)
    ]


def show_ratios(rows: Rows) -> None:
    """The table."""
    lines = [
        [f"{row['lag']} | {row['momentum']:g} | {row['at_1']:.3f}"]
        + [f"{row[end]:.3f} (R = {row[f'{end}_at']})" for end in ("least", "most")]
        for row in rows
    ]
    print_table(
        "Exact threshold over the published rule, R to 256",
        "lag | momentum | R = 1 | least, R >= 2 | most, R >= 2",
        lines,
    )


def partly_stale_rows(stiffness: float, lags: tuple[LagName, ...]) -> Rows:
    """Momentum .9, interval 8: what of the force is stale."""
    rows = []
    for lag in lags:
        rows.append({"lag": lag, "exact": float(threshold(lag, 0.9, 8))})
        for name, place, ratio in PARTLY_STALE:
            rows[-1][name] = located(lag, 0.9, 8, place, ratio) * stiffness
    return rows


def show_partly_stale(rows: Rows) -> None:
    """The table."""
    lines = [
        [
            row["lag"],
            *(f"{row[name]:.4g}" for name in ("exact", *(case[0] for case in PARTLY_STALE))),
        ]
        for row in rows
    ]
    header = (
        "lag | exact, all stale | KL in the reward | KL in the loss | "
        "exact ratio, KL in the reward | exact ratio, KL in the loss"
    )
    print_table(
        "Located thresholds of learning rate x stiffness, momentum .9, interval 8", header, lines
    )


def main() -> None:
    """Run, print and write."""
    asked = options(__doc__)
    if asked.tables:
        show_boundary(RESULTS.read("boundary"))
        show_ratios(RESULTS.read("exact_over_rule"))
        show_partly_stale(RESULTS.read("partly_stale"))
        return
    world, training = note_bandit(), Training(0.5, kl_place="reward")
    stiffness = kicked(world, training, asked.seed).stiffness
    print(
        f"Stiffness by kicks {stiffness.value:.5f} ({stiffness.low:.5f} to {stiffness.high:.5f}); "
        f"exact {fixed_point(world, training).stiffness:.6f}."
    )
    momenta, intervals = ((0.9,), (4,)) if asked.quick else (MOMENTA, INTERVALS)
    rows = [
        boundary_row(lag, m, r, stiffness.value) for m in momenta for lag in LAGS for r in intervals
    ]  # type: ignore[arg-type]
    show_boundary(rows)
    ratios, curves = ratio_rows(), ratio_curves()
    show_ratios(ratios)
    partly = partly_stale_rows(
        stiffness.value, ("refresh",) if asked.quick else ("refresh", "fixed", "async")
    )
    show_partly_stale(partly)
    if asked.quick:
        return
    RESULTS.write("boundary", rows)
    RESULTS.write("partly_stale", partly)
    RESULTS.write("exact_over_rule", ratios)
    RESULTS.write("exact_over_rule_curves", curves)


if __name__ == "__main__":
    main()
