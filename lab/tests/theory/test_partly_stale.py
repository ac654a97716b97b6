"""A partly stale force against products of single updates, and the two-armed bandit against its
own nonlinear steps.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from lab.tests.theory.two_arms import TwoArmMode, two_arm_mode
from tests.cases import each_case

from groupwise.edge.mode import threshold
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise_lab.theory.oscillator import recursion
from groupwise_lab.theory.partly_stale import threshold_of_share, updates_of_period

SHARES = (-0.5, 0.2, 0.9, 1.04, 1.5)


def product_of_updates(
    kind: str, force: float, momentum: float, interval: int, share: float
) -> np.ndarray:
    """Products of single updates of (x, x before, ..., v)."""
    lags = {
        "fixed": [interval],
        "refresh": list(range(interval)),
        "async": list(range(interval, 2 * interval)),
    }[kind]
    size = max(lags) + 2
    whole = np.eye(size + 1)
    for lag in lags:
        update = np.zeros((size + 1, size + 1))
        update[0, 0], update[0, -1], update[-1, -1] = 1.0, momentum, momentum
        for row in (0, size):
            update[row, lag] -= force * share
            update[row, 0] -= force * (1 - share)
        for row in range(1, size):
            update[row, row - 1] += 1.0
        whole = update @ whole
    return whole


def radius(kind: str, force: float, momentum: float, interval: int, share: float) -> float:
    return float(
        np.abs(np.linalg.eigvals(product_of_updates(kind, force, momentum, interval, share))).max()
    )


@pytest.mark.thinned(12)
@pytest.mark.parametrize("kind", ["fixed", "refresh", "async"])
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("interval", [1, 2, 5, 12])
def test_thresholds_are_those_of_the_products(
    kind: str, share: float, momentum: float, interval: int
) -> None:
    """A billionth below is stable, above it is not, and nothing grows on a sweep from zero to
    there.
    """
    limit = threshold_of_share(kind, momentum, interval, share)
    assert radius(kind, limit * (1 - 1e-9), momentum, interval, share) < 1 + 1e-12
    assert radius(kind, limit * (1 + 1e-8), momentum, interval, share) > 1
    sweep = [
        radius(kind, part * limit, momentum, interval, share)
        for part in np.linspace(0.01, 0.999, 40)
    ]
    assert max(sweep) < 1 + 1e-12


def test_the_figures_of_the_note() -> None:
    """Momentum .9, eight updates, only the reward's part stale: refresh .0323, fixed .01334,
    async .00976.
    """
    share = two_arm_mode(0.3, 0.5, kl_term="loss").stale_share
    thresholds = {
        kind: threshold_of_share(kind, 0.9, 8, share) for kind in ("refresh", "fixed", "async")
    }
    assert round(thresholds["refresh"], 4) == 0.0323
    assert round(thresholds["fixed"], 5) == 0.01334
    assert round(thresholds["async"], 5) == 0.00976


def test_closed_forms_where_there_are_any() -> None:
    """All current or all stale; a fixed lag of one; refresh without momentum."""
    for kind in ("none", "fixed", "refresh", "async"):
        assert threshold_of_share(kind, 0.7, 6, 0.0) == pytest.approx(2 * 1.7)
        assert threshold_of_share(kind, 0.7, 6, 1.0) == pytest.approx(
            float(threshold(kind, 0.7, 6)), rel=1e-9
        )
    for share, momentum in product((0.3, 0.8, 1.2), (0.0, 0.6)):
        bound = min(
            (1 - momentum) / share,
            2 * (1 + momentum) / (1 - 2 * share) if share < 0.5 else math.inf,
        )
        assert threshold_of_share("fixed", momentum, 1, share) == pytest.approx(bound, rel=1e-9)
        assert threshold_of_share("async", momentum, 1, share) == pytest.approx(bound, rel=1e-9)
        assert threshold_of_share("refresh", momentum, 1, share) == pytest.approx(
            2 * (1 + momentum)
        )
    for share, interval in product((0.6, 0.9, 1.3), (2, 3, 8)):
        closed = (1 - (2 * share - 1) ** (1 / interval)) / (1 - share)
        assert threshold_of_share("refresh", 0.0, interval, share) == pytest.approx(
            closed, rel=1e-9
        )
    for share, interval in product((0.2, 0.4), (2, 3)):
        closed = (2 if interval % 2 == 0 else 1 + (1 - 2 * share) ** (1 / interval)) / (1 - share)
        assert threshold_of_share("refresh", 0.0, interval, share) == pytest.approx(
            closed, rel=1e-9
        )


@pytest.mark.parametrize("kind", ["fixed", "refresh", "async"])
def test_the_recursion_is_the_power_of_the_map(kind: str) -> None:
    updates = updates_of_period(0.02, 0.7, 3, kind, 0.6)
    state = np.full(len(updates[0]), -1.0)
    state[1] = 0.0
    curve = recursion(0.02, 0.7, 30, refresh_interval=3, lag=kind, stale_share=0.6)
    for now in range(1, 31):
        state = updates[(now - 1) % len(updates)] @ state
        assert curve[now] == pytest.approx(1 + state[0], abs=1e-12)


def drift(
    mode: dict[str, object], theta: float, old: float, reference: float, beta: float
) -> float:
    """Expected step over eta of the log odds, by enumeration of groups of rewards drawn at the
    old policy; lines of its own.
    """
    size, advantage, ratio, kl = (
        mode["group_size"],
        mode["advantage"],
        mode["importance_ratio"],
        mode["kl_term"],
    )
    assert isinstance(size, int)
    now, then = (1 / (1 + math.exp(-value)) for value in (theta, old))
    origin = math.log(reference / (1 - reference))
    place = {"none": then, "exact": now}[str(ratio)]
    total = 0.0
    for rewards in product((1, 0), repeat=size):
        chance = math.prod(then if reward else 1 - then for reward in rewards)
        penalty = (
            (beta * math.log((1 - then) / (1 - reference)), beta * math.log(then / reference))
            if kl == "reward"
            else (0.0, 0.0)
        )
        merit = [reward - penalty[reward] for reward in rewards]
        mean, first = sum(merit) / size, merit[0]
        worth = first - mean
        if advantage == "leave_one_out":
            worth *= size / (size - 1)
        elif advantage == "std":
            spread = math.sqrt(sum((value - mean) ** 2 for value in merit) / (size - 1))
            worth = worth / spread if spread > 0 else 0.0
        score = (1 - place) if rewards[0] else -place
        weight = 1.0 if ratio == "none" else (now / then if rewards[0] else (1 - now) / (1 - then))
        total += chance * weight * score * worth
    return 2 * (total - (beta * now * (1 - now) * (theta - origin) if kl == "loss" else 0.0))


CASES = [
    {"advantage": advantage, "group_size": 4, "importance_ratio": ratio, "kl_term": kl}
    for advantage, ratio, kl in product(
        ("leave_one_out", "full_mean", "std"), ("none", "exact"), ("reward", "loss")
    )
    if (advantage, kl) != ("std", "reward")
]


@each_case("case", CASES)
def test_fixed_point_stiffness_and_stale_share_are_those_of_enumerated_groups(
    case: dict[str, object],
) -> None:
    mode = two_arm_mode(0.3, 0.5, **case)  # type: ignore[arg-type]
    theta, step = math.log(mode.value / (1 - mode.value)), 1e-5
    at = [
        [drift(case, theta + now * step, theta + old * step, 0.3, 0.5) for old in (-1, 0, 1)]
        for now in (-1, 0, 1)
    ]
    current, stale = -(at[2][1] - at[0][1]) / (2 * step), -(at[1][2] - at[1][0]) / (2 * step)
    assert at[1][1] == pytest.approx(0.0, abs=1e-9)
    assert mode.stiffness == pytest.approx(current + stale, rel=1e-6)
    assert mode.stale_share == pytest.approx(stale / (current + stale), abs=1e-6)


def settles(kind: str, force: float, momentum: float, interval: int, mode: TwoArmMode) -> bool:
    """Whether the nonlinear bandit without a ratio, KL in the loss, returns from a kick of a
    thousandth.
    """
    origin, beta, eta = math.log(3 / 7), 0.5, force / mode.stiffness
    theta = [math.log(mode.value / (1 - mode.value)) + 1e-3]
    velocity = 0.0
    for now in range(6000):
        block = now - now % interval
        seen = max({"fixed": now - interval, "refresh": block, "async": block - interval}[kind], 0)
        then, here = (1 / (1 + math.exp(-value)) for value in (theta[seen], theta[-1]))
        velocity = momentum * velocity + 2 * eta * (
            then * (1 - then) - beta * here * (1 - here) * (theta[-1] - origin)
        )
        theta.append(theta[-1] + velocity)
        if abs(theta[-1]) > 20:
            return False
    far = np.abs(np.array(theta) - theta[0] + 1e-3)
    return bool(far[-500:].max() < far[:500].max())


@pytest.mark.parametrize("kind", ["fixed", "refresh", "async"])
def test_the_bandit_leaves_its_fixed_point_at_the_threshold(kind: str) -> None:
    mode = two_arm_mode(0.3, 0.5, kl_term="loss")
    limit = threshold_of_share(kind, 0.9, 8, mode.stale_share)
    assert settles(kind, 0.98 * limit, 0.9, 8, mode)
    assert not settles(kind, 1.02 * limit, 0.9, 8, mode)
    # As if all of it were stale: the threshold would be missed by more than that.
    assert float(threshold(kind, 0.9, 8)) > 1.04 * limit


def clipped_swing(
    force: float,
    momentum: float,
    interval: int,
    kick: float,
    *,
    kl_term: str,
    clip: float | None = 0.2,
) -> float:
    """Largest distance from the fixed point over the last of 4,000 updates of the expected
    two-armed bandit with a ratio.
    """
    beta, eta, origin = 0.5, force / 0.18239785, math.log(3 / 7)
    rest = origin + 1 / beta
    theta, velocity, old, far = rest + kick, 0.0, rest + kick, 0.0
    for now in range(4000):
        old = theta if now % interval == 0 else old
        then, here = (1 / (1 + math.exp(-value)) for value in (old, theta))
        step = 0.0
        for reward, before, after, ref, score in (
            (1, then, here, 0.3, 1 - here),
            (0, 1 - then, 1 - here, 0.7, -here),
        ):
            worth = reward - then
            if kl_term == "reward":
                both = then * math.log(then / 0.3) + (1 - then) * math.log((1 - then) / 0.7)
                worth -= beta * (math.log(before / ref) - both)
            ratio = after / before
            kept = clip is None or not (
                (worth > 0 and ratio > 1 + clip) or (worth < 0 and ratio < 1 - clip)
            )
            step += 2 * kept * after * score * worth
        if kl_term == "loss":
            step -= 2 * beta * here * (1 - here) * (theta - origin)
        velocity = momentum * velocity + eta * step
        theta += velocity
        if abs(theta) > 30:
            return math.inf
        far = max(far, abs(theta - rest)) if now >= 3500 else 0.0
    return far


def test_a_clipped_ratio_is_exact_for_small_swings_and_holds_large_ones() -> None:
    """KL in the loss: settles from a small kick at thirty times the stale threshold.

    KL in the reward: the stale threshold, swings held.
    """
    stale = float(threshold("refresh", 0.9, 8))
    for share in (0.9, 3.0, 30.0):
        assert clipped_swing(share * stale, 0.9, 8, 1e-4, kl_term="loss") < 1e-8
    assert clipped_swing(1.05 * 3.8, 0.9, 8, 1e-4, kl_term="loss") > 1e-2
    assert clipped_swing(0.9 * stale, 0.9, 8, 1e-4, kl_term="reward") < 1e-5
    held, free = (
        clipped_swing(1.5 * stale, 0.9, 8, 1e-4, kl_term="reward", clip=clip)
        for clip in (0.2, None)
    )
    assert 0.1 < held < 1.0 < free


def test_a_clipped_ratio_can_keep_a_swing_below_the_threshold() -> None:
    """Why no linear bound is claimed for large swings: unclipped the kick dies out, clipped it
    goes on for ever.
    """
    force = 0.9 * float(threshold("refresh", 0.5, 4))
    assert clipped_swing(force, 0.5, 4, -1.0, kl_term="loss", clip=None) < 1e-8
    assert clipped_swing(force, 0.5, 4, -1.0, kl_term="loss") > 0.1
    assert clipped_swing(force, 0.5, 4, 1e-2, kl_term="loss") < 1e-8


def test_without_a_fixed_point_there_is_no_threshold() -> None:
    """Division by the deviation in large groups: below a KL weight of about 1.08 at p0 = .3
    nothing holds the policy.
    """
    with pytest.raises(InsufficientDataError, match="neither a stiffness nor a threshold"):
        two_arm_mode(0.3, 1.07, advantage="std", kl_term="loss")
    mode = two_arm_mode(0.3, 1.09, advantage="std", kl_term="loss")
    p, q = mode.value, 1 - mode.value
    assert mode.stiffness == pytest.approx(
        2 * (1.09 * p * q - (p - 0.5) * math.sqrt(p * q)), rel=1e-12
    )
    for size, plateaus in ((4, (0.760, 0.658, 0.888)), (16, (0.760, 0.737, 0.999))):
        stiffnesses = [
            two_arm_mode(
                0.3, 0.5, advantage="leave_one_out", group_size=size, kl_term="loss"
            ).value,
            two_arm_mode(0.3, 0.5, advantage="full_mean", group_size=size, kl_term="loss").value,
            two_arm_mode(0.3, 0.5, advantage="std", group_size=size, kl_term="loss").value,
        ]
        assert stiffnesses == pytest.approx(plateaus, abs=0.0006)


def test_bad_input_is_a_sentence() -> None:
    for arguments, message in (
        ({"reference": 1.0}, "reference probability between 0 and 1, got 1"),
        ({"kl_weight": 0.0}, "positive KL weight, got 0"),
        ({"advantage": "median"}, "an advantage, got 'median'"),
        ({"group_size": 1}, "group size of 2 to 512"),
        ({"advantage": "std"}, "KL term in the loss"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            two_arm_mode(**{"reference": 0.3, "kl_weight": 0.5, **arguments})  # type: ignore[arg-type]
