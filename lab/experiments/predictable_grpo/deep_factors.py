"""One factor at a time from the centre of the deep threshold: where the KL term is, the importance
ratio, Adam, and division by std.

The centre: refresh with R = 8, momentum .9, the KL term in the reward, no ratio. Pieces are written
as they come. `python deep_factors.py` runs what is missing (some ten minutes of one core),
`--tables` prints, `--quick` tries everything.
"""

import numpy as np
import torch
from deep_pieces import Pieces
from deep_threshold import kicked_edge, located_edge, measured_cells, spectra
from deep_world import (
    Deep,
    Linear,
    UpdateSettings,
    deep_world,
    linear,
    pull,
    sampled_step,
    symmetric,
    trained,
)
from note import Row, options, print_table
from truth import leading_modes

from groupwise.edge.mode import threshold

FACTORS = Pieces("deep_factors", ("factor",))
LARGE = Pieces("deep_factors_large", ("factor", "over_edge"))
ADAM = Pieces("deep_factors_adam", ("over_edge", "seed"))
CENTRE = UpdateSettings("refresh", 0.9, 8)
VARIANTS: dict[str, Row] = {
    "centre": {},
    "exact ratio": {"ratio": "exact"},
    "clipped ratio": {"ratio": "clipped"},
    "KL in the loss": {"kl_in": "loss"},
    "KL in the loss, exact ratio": {"kl_in": "loss", "ratio": "exact"},
    "KL in the loss, clipped ratio": {"kl_in": "loss", "ratio": "clipped"},
}
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


def edges(deep: Deep, basis: np.ndarray, kl_in: str) -> None:
    """Edges of the variants whose fixed point is the centre's and whose KL term is there."""
    stiffest = 0.0
    for name, changes in VARIANTS.items():
        if FACTORS.has(name) or changes.get("kl_in", "reward") != kl_in:
            continue
        world = deep.with_loss(**changes)
        force = linear(world, deep.point_D, basis)
        stiffest = stiffest or symmetric(force.now_KK + force.stale_KK)[0]
        current = float(np.abs(force.stale_KK).max()) < 1e-6 * stiffest
        predicted = force.edge(CENTRE, float(threshold("refresh", 0.9, 8)) / stiffest)
        located, error, rates, _ = kicked_edge(
            deep, world, CENTRE, predicted, force, basis, kinked=current
        )
        row = {
            "factor": name,
            "predicted": predicted,
            "measured": located * predicted,
            "error": error * predicted,
        }
        FACTORS.add(
            row | {"growth_low": float(np.exp(rates[0])), "growth_high": float(np.exp(rates[-1]))}
        )


def adam_scale(deep: Deep, draws: int) -> torch.Tensor:
    """What Adam divides by where sampling noise is all there is: the root mean square of sampled
    gradients at the fixed point.
    """
    rng = np.random.default_rng(3)
    square_D = torch.zeros_like(deep.point_D)
    for _ in range(draws):
        square_D += sampled_step(deep.world, deep.point_D, None, rng)[0] ** 2 / draws
    return 1 / (square_D.sqrt() + EPSILON)


def adam(deep: Deep, *, quick: bool) -> None:
    """Adam with its divisor held, then Adam as it is on sampled groups, at multiples of the
    predicted edge.
    """
    scale_D = adam_scale(deep, 3 if quick else 60)
    root = scale_D.sqrt().numpy()
    whole = pull(deep.world, deep.point_D, part="both")
    scaled = lambda vector: root * whole(root * vector)  # noqa: E731
    top = leading_modes(scaled, len(root), 4 if quick else 12)
    vectors = top.vector_DK
    parts = []
    for part in ("now", "stale"):
        product = pull(deep.world, deep.point_D, part=part)
        parts.append(
            vectors.T @ np.stack([root * product(root * column) for column in vectors.T], axis=1)
        )
    force = Linear(parts[0], parts[1])
    predicted = force.edge(CENTRE, float(threshold("refresh", 0.9, 8)) / top.value_K[0])
    kick_D, watch_D = root * vectors[:, 0], vectors[:, 0] / root
    if not FACTORS.has("Adam, divisor held"):
        located, error, rates, _ = located_edge(
            deep, deep.world, CENTRE, predicted, kick_D, watch_D, kinked=False, scale_D=scale_D
        )
        row = {
            "factor": "Adam, divisor held",
            "predicted": predicted / (1 - BETA1),
            "measured": located * predicted / (1 - BETA1),
            "error": error * predicted / (1 - BETA1),
        }
        FACTORS.add(
            row | {"growth_low": float(np.exp(rates[0])), "growth_high": float(np.exp(rates[-1]))}
        )
    for over in (0.7, 1.3, 2.0, 4.0)[: 1 if quick else None]:
        for seed in (1,) if quick else (1, 2):
            if not ADAM.has(over, seed):
                rate = over * predicted / (1 - BETA1)
                ADAM.add(
                    {"over_edge": over, "seed": seed}
                    | adam_run(deep, scale_D, watch_D, rate, seed, 24 if quick else 240)
                )


def adam_run(
    deep: Deep, scale_D: torch.Tensor, watch_D: np.ndarray, rate: float, seed: int, updates: int
) -> Row:
    """Adam on sampled groups from the fixed point, its second moments those that the noise gives
    there.
    """
    rng, watch = np.random.default_rng([seed, updates]), torch.as_tensor(watch_D)
    now_D, first_D, second_D = (
        deep.point_D.clone(),
        torch.zeros_like(scale_D),
        (1 / scale_D - EPSILON) ** 2,
    )
    along, value, old_PO = [], [], torch.zeros(0)
    for update in range(updates):
        fresh = CENTRE.sampled_at(update) == update
        step_D, now_PO, _ = sampled_step(deep.world, now_D, None if fresh else old_PO, rng)
        old_PO = now_PO if fresh else old_PO
        first_D = BETA1 * first_D + (1 - BETA1) * step_D
        second_D = BETA2 * second_D + (1 - BETA2) * step_D**2
        now_D = now_D + rate * first_D / (second_D.sqrt() + EPSILON)
        along.append(float((now_D - deep.point_D) @ watch))
        value.append(float(deep.world.value(now_PO)))
    third = updates // 3
    return {
        "learning_rate": rate,
        "spread_early": np.std(along[:third]),
        "spread_late": np.std(along[-third:]),
        "value_late": np.mean(value[-third:]),
        "value_lowest": np.min(value),
    }


def large(deep: Deep, basis: np.ndarray, edge: float, *, quick: bool) -> None:
    """What ratio, clipping and std do at four times the edge, after a large kick."""
    cases = {
        name: VARIANTS[name]
        for name in ("centre", "exact ratio", "clipped ratio", "KL in the loss")
    }
    cases["std, KL in the loss"] = {"kl_in": "loss", "std_eps": 1e-4}
    cases["std, KL in the reward"] = {"std_eps": 1e-4}
    for name, changes in cases.items():
        for over in (4.0,):
            if LARGE.has(name, over):
                continue
            path = trained(
                deep.with_loss(**changes),
                deep.point_D,
                CENTRE,
                start_D=deep.point_D + 0.01 * torch.as_tensor(basis[:, 0]),
                learning_rate=over * edge,
                updates=16 if quick else 104,
                watch_DK=basis[:, :1],
                held=False,
                farthest=1e3,
            )
            late = slice(3 * len(path.value_T) // 4, None)
            value = path.value_T[late]
            row = {
                "factor": name,
                "over_edge": over,
                "value": float(value.mean()),
                "lowest": float(value.min()),
                "highest": float(value.max()),
                "spread_along": float(path.along_TK[late, 0].std()),
            }
            LARGE.add(row | {"divergence": float(path.divergence_T[late].mean())})


def show() -> None:
    """All tables."""
    rows = FACTORS.rows()
    centre = next((row["measured"] for row in rows if row["factor"] == "centre"), float("nan"))
    lines = [
        [
            f"{row['factor']} | {row['predicted']:.4g}",
            *measured_cells(row),
            f"{row['measured'] / centre:.3g}",
        ]
        for row in rows
    ]
    if lines:
        print_table(
            "Edges, refresh, R = 8, momentum .9",
            "factor | predicted | measured | difference | over the centre's",
            lines,
        )
    lines = []
    for row in LARGE.rows():
        lines.append(
            [
                (
                    f"{row['factor']} | {row['over_edge']:g} | {row['value']:.4f} | "
                    f"{row['lowest']:.3f} to {row['highest']:.3f}"
                )
            ]
        )
        lines[-1] += [f"{row['spread_along']:.2g} | {row['divergence']:.3f}"]
    header = (
        "factor | learning rate over the centre's edge | mean reward | range | "
        "spread along the stiffest mode | KL"
    )
    print_table("After a large kick, the last quarter of 104 updates", header, lines)
    lines = []
    for row in ADAM.rows():
        lines.append(
            [
                (
                    f"{row['over_edge']:g} | {row['seed']} | {row['learning_rate']:.3g} | "
                    f"{row['spread_early']:.3g}"
                )
            ]
        )
        lines[-1] += [
            f"{row['spread_late']:.3g} | {row['value_late']:.4f} | {row['value_lowest']:.3f}"
        ]
    header = (
        "learning rate over the edge | seed | learning rate | spread, first third | "
        "last third | mean reward | lowest"
    )
    if lines:
        print_table("Adam on sampled groups of 8", header, lines)


def main() -> None:
    """Run what is missing and print."""
    asked = options(__doc__)
    if asked.tables:
        show()
        return
    if asked.quick:
        for pieces in (FACTORS, LARGE, ADAM):
            pieces.keep_in_memory()
    deep = deep_world(quick=asked.quick)
    _, basis, spectrum = spectra(deep, "reward")
    edge = float(threshold("refresh", 0.9, 8)) / symmetric(spectrum.now_KK + spectrum.stale_KK)[0]
    large(deep, basis, edge, quick=asked.quick)
    if not asked.quick:
        edges(deep, basis, "reward")
        edges(
            deep, spectra(deep, "loss")[1], "loss"
        )  # this basis carries the stiffest directions of both parts
    adam(deep, quick=asked.quick)
    show()


if __name__ == "__main__":
    main()
