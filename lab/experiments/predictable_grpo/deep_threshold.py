"""The stability threshold in a transformer, without sampling noise and with it: predicted from
Jacobians, then measured by training.

Addition mod 10 with a KL term, heavy-ball SGD, no importance ratio. Pieces are written as they
come; what is there is not run again. `python deep_threshold.py` runs what is missing (some ten
minutes of one core; `--edges N` ends after N edges), `--tables` prints, `--quick` tries everything.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict

import numpy as np
import torch
from deep_pieces import Pieces
from deep_world import (
    GROUP,
    Deep,
    Linear,
    UpdateSettings,
    bracketed,
    cached,
    crossing,
    deep_world,
    growth,
    linear,
    pull,
    sampled_step,
    symmetric,
    trained,
)
from note import Row, options, print_table
from numpy import ndarray
from truth import ExactWorld, leading_modes

from groupwise.edge.force import ForceOfMotion
from groupwise.edge.mode import threshold
from groupwise.parsing import JsonView
from groupwise_lab.theory.oscillator import rule_threshold
from groupwise_lab.theory.stiffness import kicked_stiffness, relaxed_stiffness

SPECTRUM = Pieces("deep_spectrum", ("kl_in", "part", "rank"))
EDGES = Pieces("deep_edges", ("kl_in", "lag", "momentum", "interval"))
LINEAR = Pieces("deep_edges_linear", ("kl_in", "lag", "momentum", "interval"))
RUNS = Pieces("deep_runs", ("start", "lag", "momentum", "interval", "factor"))
SAMPLED = Pieces("deep_sampled", ("lag", "momentum", "interval", "group_size", "seed", "factor"))
STIFFNESS = Pieces("deep_stiffness", ("method",))
COUNT = 20
# parameter units along the mode that grows first, about .00002 nats of log-probability: a
# hundredfold growth is linear still
KICK = 1e-6
FACTORS = (0.97, 1.03)
BRACKET = (0.99, 0.997, 1.003, 1.01)
# of a bracket, where growth has a kink and its sign is all that is used: to a hundred-thousandth
HALVINGS = 8
LAGS = ("refresh", "fixed", "async")
CENTRE = UpdateSettings("refresh", 0.9, 8)
SAMPLED_LAGS = (CENTRE, UpdateSettings("fixed", 0.9, 8), UpdateSettings("async", 0.9, 8))
LIMIT = float(threshold("refresh", 0.9, 8))
ON_POLICY = UpdateSettings("none", 0.9, 1)
RUNS_FROM = (
    ("warm", ON_POLICY, (0.03, 0.1, 0.3, 0.01, 1.1)),
    ("kick", CENTRE, (0.7, 1.3, 4.0)),
    ("warm", CENTRE, (0.2, 0.7, 1.3, 4.0)),
)


def settings() -> Iterator[tuple[str, UpdateSettings]]:
    """Where an edge is looked for, the KL term in the reward first."""
    yield "reward", UpdateSettings("none", 0.9, 1)
    for momentum, intervals in ((0.9, (8, 2, 4)), (0.0, (8,))):
        for interval in intervals:
            yield from (("reward", UpdateSettings(lag, momentum, interval)) for lag in LAGS)
    yield "reward", UpdateSettings("none", 0.0, 1)
    yield (
        "reward",
        UpdateSettings("fixed", 0.9, 1),
    )  # with an interval of one, refresh has no lag, and double buffering is a fixed lag of one
    yield from (("loss", UpdateSettings(lag, 0.9, 8)) for lag in LAGS)
    for momentum, interval in ((0.9, 16), (0.0, 2)):
        yield from (("reward", UpdateSettings(lag, momentum, interval)) for lag in LAGS)


def directions(deep: Deep, world: ExactWorld) -> ndarray:
    """Directions that carry the stiffest modes; where the parts of the pull do not commute, the
    stiffest ones of each part as well.
    """
    size = len(deep.point_D)
    top = leading_modes(pull(world, deep.point_D, part="both"), size, COUNT).vector_DK
    if world.loss.kl_in == "reward":
        return top
    more = [
        leading_modes(
            pull(world, deep.point_D, part=part), size, COUNT // 2, which="magnitude"
        ).vector_DK
        for part in ("now", "stale")
    ]
    # What either part does to the stiffest ones leaves their space; with it in, the error of the
    # projection is of second order.
    more += [
        np.stack([pull(world, deep.point_D, part=part)(column) for column in top.T[:8]], axis=1)
        for part in ("now", "stale")
    ]
    every_DK = np.hstack([top, *more])
    left_DK, size_K, _ = np.linalg.svd(
        every_DK / np.linalg.norm(every_DK, axis=0), full_matrices=False
    )
    return left_DK[
        :, size_K > 1e-4 * size_K[0]
    ]  # the parts' stiffest directions are nearly those of their sum: what is there twice, once


def spectra(deep: Deep, kl_in: str) -> tuple[ExactWorld, ndarray, Linear]:
    """The world with its KL term there, its stiffest modes, and both Jacobians between
    directions that carry them.
    """
    world = deep.with_loss(kl_in=kl_in)
    basis = cached(f"directions-{kl_in}-{deep.iterations}", lambda: directions(deep, world))
    force = linear(world, deep.point_D, basis)
    for part, listed in (
        ("both", symmetric(force.now_KK + force.stale_KK)[:COUNT]),
        ("now", symmetric(force.now_KK)[:COUNT]),
        ("stale", symmetric(force.stale_KK)[:COUNT]),
    ):
        for rank, value in enumerate(listed, 1):
            if not SPECTRUM.has(kl_in, part, rank):
                SPECTRUM.add(
                    {"kl_in": kl_in, "part": part, "rank": rank, "eigenvalue": float(value)}
                )
    return world, basis, force


def stiffness(deep: Deep, stiffest_D: ndarray) -> float:
    """The stiffness that the reward shows, by kicks and by relaxation; returns that by kicks."""
    if not STIFFNESS.has("relaxation"):
        point = deep.point_D.numpy()
        parameter_D = deep.point_D.clone().requires_grad_()
        (slope_D,) = torch.autograd.grad(
            deep.world.value(deep.world.log_probabilities(parameter_D)), parameter_D
        )
        unit = (slope_D / slope_D.norm()).numpy()
        rng = np.random.default_rng(1)
        value = deep.world.mean_reward(point)
        for method, stiffness in (
            ("kicks at random", kicked_stiffness(deep.world, point, rng, kicks=24, size=0.05)),
            (
                "kicks along the reward's slope",
                kicked_stiffness(
                    deep.world, point, rng, size=0.005, directions=unit[None].repeat(4, 0)
                ),
            ),
            (
                "relaxation",
                relaxed_stiffness(
                    deep.world, point - 0.01 * unit, learning_rate=0.003, plateau=value, updates=60
                ),
            ),
        ):
            at = stiffness.stiffness
            row = {
                "method": method,
                "stiffness": at.value,
                "low": at.low,
                "high": at.high,
                "n": stiffness.n,
                "value": value,
            }
            STIFFNESS.add(
                row
                | {
                    "slope_norm": float(slope_D.norm()),
                    "share_of_stiffest": float(unit @ stiffest_D) ** 2,
                }
            )
    return next(
        row["stiffness"]
        for row in STIFFNESS.rows()
        if row["method"] == "kicks along the reward's slope"
    )


def edge_row(
    deep: Deep,
    world: ExactWorld,
    setting: UpdateSettings,
    force: Linear,
    basis: ndarray,
    scalar: float,
    reward_mode: float,
) -> Row:
    """One edge, predicted and measured."""
    began = time.process_time()
    limit = float(threshold(setting.lag, setting.momentum, setting.interval))
    predicted = force.edge(setting, limit / scalar)
    located, error, rates, sizes = kicked_edge(
        deep, world, setting, predicted, force, basis, kinked=setting.lag == "none"
    )
    return {
        "kl_in": world.loss.kl_in,
        **asdict(setting),
        "predicted": predicted,
        "measured": located * predicted,
        "error": error * predicted,
        "scalar": limit / scalar,
        "reward_mode": limit / reward_mode,
        "rule": float(rule_threshold(setting.momentum, setting.interval)) / scalar,
        "growth_low": float(np.exp(rates[0])),
        "growth_high": float(np.exp(rates[-1])),
        "amplitude_high": sizes[-1],
        "seconds": time.process_time() - began,
    }


def kicked_edge(
    deep: Deep,
    world: ExactWorld,
    setting: UpdateSettings,
    predicted: float,
    force: Linear,
    basis: ndarray,
    *,
    kinked: bool,
) -> tuple[float, float, list[float], list[float]]:
    """`located_edge` by the mode that linear theory says grows first."""
    kick_D, velocity_D, watch_D = (
        basis @ part_K for part_K in force.growing(1.001 * predicted, setting)
    )
    velocity = KICK * torch.as_tensor(velocity_D)
    return located_edge(
        deep, world, setting, predicted, kick_D, watch_D, kinked=kinked, velocity_D=velocity
    )


def located_edge(
    deep: Deep,
    world: ExactWorld,
    setting: UpdateSettings,
    predicted: float,
    kick_D: ndarray,
    watch_D: ndarray,
    *,
    kinked: bool,
    scale_D: torch.Tensor | None = None,
    velocity_D: torch.Tensor | None = None,
) -> tuple[float, float, list[float], list[float]]:
    """`fitted_edge` of training from a kick."""

    def along(factor: float) -> ndarray:
        path = trained(
            world,
            deep.point_D,
            setting,
            start_D=deep.point_D + KICK * torch.as_tensor(kick_D),
            learning_rate=factor * predicted,
            updates=updates_after_kick(setting),
            watch_DK=watch_D[:, None],
            farthest=100 * KICK,
            scale_D=scale_D,
            velocity_D=velocity_D,
        )
        return path.along_TK[:, 0]

    return fitted_edge(along, setting, kinked=kinked)


def updates_after_kick(setting: UpdateSettings) -> int:
    """Of the runs that show whether a kick grows."""
    return max(60, 16 * setting.interval)


def fitted_edge(
    along: Callable[[float], ndarray],
    setting: UpdateSettings,
    *,
    kinked: bool,
    halvings: int = HALVINGS,
) -> tuple[float, float, list[float], list[float]]:
    """The edge over the predicted one; how far it moves without the first fifth of the series;
    growth (log) and last amplitudes.

    Args:
        along: the series of a run at a multiple of the predicted edge.
        setting: of lag and momentum.
        kinked: a real root leaves a circle: growth has a kink at the edge, so that only its sign is
            used, and its bracket is halved.
        halvings: of that bracket, each a run.
    """
    factors = BRACKET if kinked else FACTORS
    stride = {"none": 1, "fixed": max(1, setting.interval // 2)}.get(setting.lag, setting.interval)
    rates, later, sizes = [], [], []
    for factor in factors:
        series = along(factor)[::stride]
        rates.append(float(np.log(growth(series))))
        later.append(float(np.log(growth(series[len(series) // 5 :]))))
        sizes.append(float(np.abs(series[-3:]).max() / KICK))
    if kinked:
        middle, half = bracketed(factors, rates)
        for _ in range(halvings):
            half /= 2
            middle += half if growth(along(middle)[::stride]) < 1 else -half
        return middle, half, rates, sizes
    edge, again = crossing(factors, rates), crossing(factors, later)
    return edge, abs(edge - again), rates, sizes


def linear_row(setting: UpdateSettings, kl_in: str, force: Linear, scalar: float) -> Row:
    """What the same kick and the same fit find where the linear theory is all there is: the
    error of the method.
    """
    predicted = force.edge(
        setting, float(threshold(setting.lag, setting.momentum, setting.interval)) / scalar
    )
    position_K, velocity_K, watch_K = force.growing(1.001 * predicted, setting)

    def along(factor: float) -> ndarray:
        seen_TK = force.path(
            factor * predicted,
            setting,
            KICK * position_K,
            KICK * velocity_K,
            updates_after_kick(setting),
        )
        series_T = seen_TK @ watch_K
        far = np.abs(series_T) > 100 * KICK
        return series_T[: int(far.argmax()) + 1] if far.any() else series_T

    located = fitted_edge(along, setting, kinked=setting.lag == "none")[0]
    return {"kl_in": kl_in, **asdict(setting), "located": located}


def run_row(
    deep: Deep,
    basis: ndarray,
    setting: UpdateSettings,
    edge: float,
    factor: float,
    start: str,
    updates: int,
) -> Row:
    """Training from the policy that was warmed up, or from a large kick, at a multiple of the
    predicted edge.
    """
    begin_D = (
        deep.world.start_D
        if start == "warm"
        else deep.point_D + 0.02 * torch.as_tensor(basis[:, 0])
    )
    path = trained(
        deep.world,
        deep.point_D,
        setting,
        start_D=begin_D,
        learning_rate=factor * edge,
        updates=updates,
        watch_DK=basis[:, :1],
        held=False,
        farthest=1e3,
    )
    late = slice(3 * len(path.value_T) // 4, None)
    value, along = path.value_T[late], path.along_TK[late, 0]
    swings = path.along_TK[:, 0] - np.mean(path.along_TK[len(path.along_TK) // 2 :, 0])
    turns = int((np.diff(np.sign(swings[len(swings) // 4 :])) != 0).sum())
    row = {
        "start": start,
        **asdict(setting),
        "factor": factor,
        "learning_rate": factor * edge,
        "updates": len(path.value_T),
        "value": float(value.mean()),
        "lowest": float(value.min()),
        "highest": float(value.max()),
        "divergence": float(path.divergence_T[late].mean()),
        "spread_along": float(along.std()),
    }
    objective = path.value_T - deep.world.loss.kl_weight * path.divergence_T
    return row | {"objective": float(objective[late].mean()), "turns": turns}


def sampled_row(
    deep: Deep,
    basis: ndarray,
    setting: UpdateSettings,
    edge: float,
    factor: float,
    seed: int,
    updates: int,
) -> Row:
    """Training on sampled groups of 8 of every problem, from the fixed point."""
    rng, world = np.random.default_rng([seed, round(100 * factor)]), deep.world
    now_D, velocity_D = deep.point_D.clone(), torch.zeros_like(deep.point_D)
    stiffest = torch.as_tensor(basis[:, 0])
    along, value = [], []
    seen = {}
    for update in range(updates):
        step_D, seen[update], _ = sampled_step(
            world, now_D, seen.get(setting.sampled_at(update)), rng
        )
        now_PO = seen[update]
        seen.pop(update - 2 * setting.interval - 1, None)
        velocity_D = setting.momentum * velocity_D + factor * edge * step_D
        now_D = now_D + velocity_D
        along.append(float((now_D - deep.point_D) @ stiffest))
        value.append(float(world.value(now_PO)))
    third = updates // 3
    return {
        **asdict(setting),
        "group_size": GROUP,
        "seed": seed,
        "factor": factor,
        "spread_early": np.std(along[:third]),
        "spread_late": np.std(along[-third:]),
        "value_late": np.mean(value[-third:]),
        "value_lowest": np.min(value),
        "updates": updates,
    }


def measured_cells(row: JsonView) -> list[str]:
    """A measured edge and its difference from the prediction; where a bracket around the
    prediction is all there is, its ends.
    """
    predicted, measured, error = (float(row[name]) for name in ("predicted", "measured", "error"))
    low, high = (100 * ((measured + side) / predicted - 1) for side in (-error, error))
    if error > 1e-3 * predicted and abs(measured / predicted - 1) < 1e-6:
        return [f"{measured - error:.4g} to {measured + error:.4g}", f"{low:+.2f} to {high:+.2f} %"]
    return [f"{measured:.4g} +- {error:.1g}", percent(measured / predicted)]


def percent(ratio: float) -> str:
    """How far a ratio is from one, with a third digit where two would be zeros."""
    over = 100 * (ratio - 1)
    return f"{over:+.{3 if abs(over) < 0.005 else 2}f} %"


def show() -> None:
    """All tables."""
    onset = ForceOfMotion("refresh", 0.9, 8).onset / LIMIT
    print(f"The stiffest mode oscillates, R = 8 and momentum .9, from {onset:.3f} of its edge on.")
    rows = SPECTRUM.rows()
    lines = []
    for kl_in in ("reward", "loss"):
        for part in ("both", "now", "stale"):
            some = [
                row["eigenvalue"] for row in rows if row["kl_in"] == kl_in and row["part"] == part
            ]
            if some:
                lines.append(
                    [
                        f"{kl_in} | {part}",
                        ", ".join(f"{value:.3g}" for value in some[:6]),
                        f"{some[-1]:.3g}",
                    ]
                )
    print_table(
        "Pull to the fixed point: eigenvalues",
        f"KL term in the | part | largest | the {COUNT}th",
        lines,
    )
    lines = [
        [
            (
                f"{row['method']} | "
                f"{row['stiffness']:.4g} ({row['low']:.4g} to {row['high']:.4g}) | {row['n']} | "
                f"{row['share_of_stiffest']:.4f}"
            )
        ]
        for row in STIFFNESS.rows()
    ]
    print_table(
        "Stiffness that the reward shows",
        "method | K | n | share of the stiffest mode in the reward's slope",
        lines,
    )
    key = ("kl_in", "lag", "momentum", "interval")
    by_method = {tuple(row[name] for name in key): percent(row["located"]) for row in LINEAR.rows()}
    lines = [
        [
            (
                f"{row['kl_in']} | {row['momentum']:g} | {row['lag']} | {row['interval']} | "
                f"{row['predicted']:.4g}"
            )
        ]
        + measured_cells(row)
        + [by_method.get(tuple(row[name] for name in key), "")]
        + [
            f"{100 * (row[other] / row['measured'] - 1):+.1f} %"
            for other in ("scalar", "reward_mode", "rule")
        ]
        for row in EDGES.rows()
    ]
    header = (
        (
            "KL term in the | momentum | lag | R | predicted edge | measured | "
            "measured against predicted | of it the method's"
        ),
    )
    print_table(
        "Edges of the learning rate",
        (*header, "largest eigenvalue alone | reward mode alone | published rule"),
        lines,
    )
    lines = [
        [
            row["start"],
            "on policy" if row["lag"] == "none" else f"{row['lag']}, R = {row['interval']}",
            (
                f"{row['factor']:g} | {row['learning_rate']:.3g} | {row['value']:.4f} | "
                f"{row['lowest']:.3f} to {row['highest']:.3f} | {row['objective']:.4f} | "
                f"{row['spread_along']:.2g} | {row['turns']}"
            ),
        ]
        for row in sorted(RUNS.rows(), key=lambda row: (row["start"], row["lag"], row["factor"]))
    ]
    header = (
        (
            "from | lag | learning rate over the edge | learning rate | "
            "mean reward at the end | range | objective | spread along | turns"
        ),
    )
    print_table("Runs, momentum .9, 240 updates; the last quarter", header, lines)
    lines = [
        [
            (
                f"{row['lag']} | {row['factor']:g} | {row['seed']} | "
                f"{row['spread_early']:.3g} | {row['spread_late']:.3g} | "
                f"{row['value_late']:.4f} | {row['value_lowest']:.3f}"
            )
        ]
        for row in SAMPLED.rows()
    ]
    header = (
        (
            "lag | learning rate over the edge | seed | "
            "spread along the stiffest mode, first third | last third | "
            "mean reward, last third | lowest"
        ),
    )
    print_table("Sampled, 8 completions of every problem", header, lines)


def find_edges(
    deep: Deep,
    spectra_of: dict[str, tuple[ExactWorld, ndarray, Linear]],
    wanted: list[tuple[str, UpdateSettings]],
) -> None:
    """All edges that are missing."""
    shown = stiffness(deep, spectra_of["reward"][1][:, 0])
    for kl_in, setting in wanted:
        key = (kl_in, setting.lag, setting.momentum, setting.interval)
        if EDGES.has(*key) and LINEAR.has(*key):
            continue
        if kl_in not in spectra_of:
            spectra_of[kl_in] = spectra(deep, kl_in)
        world, basis, spectrum = spectra_of[kl_in]
        stiffest = symmetric(spectrum.now_KK + spectrum.stale_KK)[0]
        if not EDGES.has(*key):
            EDGES.add(edge_row(deep, world, setting, spectrum, basis, stiffest, shown))
        if not LINEAR.has(*key):
            LINEAR.add(linear_row(setting, kl_in, spectrum, stiffest))


def beyond(deep: Deep, basis: ndarray, force: Linear, edge: float, *, quick: bool) -> None:
    """Runs with sampled groups, and runs that start far from the fixed point."""
    for setting in SAMPLED_LAGS[:1] if quick else SAMPLED_LAGS:
        own = (
            edge
            if setting == CENTRE
            else force.edge(setting, edge * float(threshold(setting.lag, 0.9, 8)) / LIMIT)
        )
        for factor in (0.7, 1.3, 2.0):
            for seed in (1,) if quick else (1, 2):
                if not SAMPLED.has(
                    setting.lag, setting.momentum, setting.interval, GROUP, seed, factor
                ):
                    SAMPLED.add(
                        sampled_row(deep, basis, setting, own, factor, seed, 16 if quick else 240)
                    )
    for start, setting, factors in RUNS_FROM:
        own = edge if setting == CENTRE else force.edge(setting, 100 * edge)
        for factor in factors[:1] if quick else factors:
            if not RUNS.has(start, setting.lag, setting.momentum, setting.interval, factor):
                RUNS.add(run_row(deep, basis, setting, own, factor, start, 16 if quick else 240))


def main() -> None:
    """Run what is missing and print."""
    asked = options(__doc__, edges=99)
    if not asked.tables:
        if asked.quick:
            for pieces in (SPECTRUM, EDGES, LINEAR, RUNS, SAMPLED, STIFFNESS):
                pieces.keep_in_memory()
        deep = deep_world(quick=asked.quick)
        spectra_of = {"reward": spectra(deep, "reward")}
        _, basis, spectrum = spectra_of["reward"]
        wanted = (
            [("reward", UpdateSettings("refresh", 0.9, 2))] if asked.quick else list(settings())
        )
        find_edges(deep, spectra_of, wanted[:4])
        beyond(
            deep,
            basis,
            spectrum,
            spectrum.edge(CENTRE, LIMIT / symmetric(spectrum.now_KK + spectrum.stale_KK)[0]),
            quick=asked.quick,
        )
        find_edges(deep, spectra_of, wanted[: asked.edges])
    show()


if __name__ == "__main__":
    main()
