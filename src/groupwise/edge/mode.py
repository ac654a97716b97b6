r"""Where one mode of a run stands at the edge of stability: its lag, the lowest force at which it
grows, its margin, and which settings would be safe.

A mode of stiffness K is stable while $\eta K$ is below the threshold of its lag. One mode of
heavy-ball descent is $v_{t+1} = \mu v_t - a x_{t-d}$, $x_{t+1} = x_t + v_{t+1}$: the force $a =
\eta K$ is as old as the rollouts, and kinds of lag differ in the age d. `period_matrix` builds what
one period does to a mode, `threshold` bisects for the force, or of a fixed lag for the angle, at
which an eigenvalue of it leaves the unit circle. `trainers.tsv` says what trainers do that are told
nothing. Every lag counts in optimiser updates.

Everything here speaks of the linear mode that it is given: a faster one that the reward does not
show may be unstable while this one is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from groupwise.arrays import Ends, Flags, Float, Whole, floats, of_numbers
from groupwise.errors import InvalidArgumentError
from groupwise.files import table_rows
from groupwise.plain import Plain, Words, frozen

Complex = NDArray[np.complex128]


LagKind = Literal["none", "fixed", "refresh", "async"]
LAGS = get_args(LagKind)
"""Kinds of lag: every rollout comes from the policy it updates, or is R updates old; R updates use
one generation of rollouts, or those generated during the last R.
"""
_LONGEST = 1e9


def check_lag(lag: str) -> None:
    """Refuse what is no kind of lag."""
    if lag not in LAGS:
        raise InvalidArgumentError(
            f"expected a policy lag, got {lag[:60]!r}: use one of {', '.join(LAGS)}"
        )


def updates_of_period(lag: str, interval: int) -> int:
    """Return the updates that one period covers."""
    return interval if lag in ("refresh", "async") else 1


def period_matrix(
    lag: str, force: ArrayLike, momentum: ArrayLike, interval: ArrayLike = 1
) -> Float:
    """Return the matrix of one period; arrays broadcast to a stack, but for a fixed lag's interval.

    The state of a fixed lag is (x, v, x one update ago, ..., x that many updates ago). Else it is
    (x, v, the position that the rollouts are from), and a period is R updates: refresh begins it
    with rollouts from x, async ends it with those from where it began.
    """
    fixed = lag == "fixed"
    a, mu, updates = np.broadcast_arrays(floats(force), floats(momentum), interval)
    size = int(np.max(interval)) + 2 if fixed else 3
    update = np.zeros((*a.shape, size, size))
    update[..., 0, 0] = 1.0
    update[..., :2, 1] = mu[..., None]
    update[..., :2, -1] = -a[..., None]
    if fixed:
        update[..., 2, 0] = 1.0
        update[..., range(3, size), range(2, size - 1)] = 1.0
        return update
    update[..., 2, 2] = 1.0
    period = update if lag == "none" else _power(update, updates)
    if lag == "async":
        period[..., 2, :] = [1.0, 0.0, 0.0]
        return period
    with np.errstate(invalid="ignore"):
        period[..., 0] += period[..., 2]
    period[..., 2] = 0.0
    return period


def _power(matrix: Float, exponent: Whole) -> Float:
    """Powers of a stack of matrices, each with its own exponent, by repeated squares."""
    product, left = np.broadcast_to(np.eye(3), matrix.shape), exponent.astype(np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        while left.any():
            product = np.where((left % 2 == 1)[..., None, None], product @ matrix, product)
            matrix, left = matrix @ matrix, left // 2
    return product


def threshold(lag: str, momentum: ArrayLike, refresh_interval: ArrayLike) -> Float:
    r"""Return the force per update $a = \eta K$ from which a mode grows; arrays broadcast.

    Source: derived here (lab/docs/theory/dynamics.md); the published rule, $(1-\mu)/R$, is arXiv
    2606.30789's.
    """
    check_lag(lag)
    mu, interval = np.broadcast_arrays(floats(momentum), floats(refresh_interval))
    check_setting(mu, interval)
    if (broken := interval[interval != np.floor(interval)]).size:
        raise InvalidArgumentError(
            f"expected whole updates as refresh interval, got {broken.flat[0]:g}"
        )
    mu_N, updates_N = mu.ravel(), interval.ravel().astype(np.int64)
    if lag == "fixed":
        return _edge_of_delay(mu_N, updates_N).reshape(mu.shape)
    return _edge_of_block(lag, mu_N, updates_N).reshape(mu.shape)


def _edge_of_block(lag: str, mu_N: Float, interval_N: Whole) -> Float:
    """Bisect the force: the characteristic polynomial is linear in it, and no window of stability
    lies above the edge, which is at most that of on-policy training.
    """
    without = _characteristic(period_matrix(lag, 0.0, mu_N, interval_N))[..., None]
    each = _characteristic(period_matrix(lag, 1.0, mu_N, interval_N))[..., None] - without

    def grown(force_NF: Float) -> Flags:
        return _excess(without + force_NF * each) >= 0

    return first_place(grown, np.zeros(len(mu_N)), 2.1 * (1 + mu_N))


def _edge_of_delay(mu_N: Float, age_N: Whole) -> Float:
    r"""Bisect the angle w at which $e^{iw}$ is an eigenvalue under a real force: the matrix is as
    large as the lag, but its characteristic equation, $(\lambda - 1)(1 - \mu/\lambda) +
    a\lambda^{-d} = 0$, is linear in the force.
    """
    mu_N1, age_N1 = mu_N[:, None], age_N[:, None]

    def force(angle_NF: Float) -> Complex:
        turn = np.exp(1j * angle_NF)
        pulled = (1 - turn) * (1 - mu_N1 / turn) * np.exp(1j * angle_NF * age_N1)
        return np.asarray(pulled, dtype=np.complex128)

    low_N = np.full(len(mu_N), 1e-12)
    before_N1 = np.sign(force(low_N[:, None]).imag)
    crossing_N = first_place(
        lambda angle_NF: np.not_equal(np.sign(force(angle_NF).imag), before_N1),
        low_N,
        math.pi / (2 * age_N),
    )
    return force(crossing_N[:, None]).real[:, 0]


def first_place(held: Callable[[Float], Flags], low_N: Float, high_N: Float) -> Float:
    """Return the first place of each bracket at which a condition holds, by sections.

    It is taken not to hold at the lower end, and to hold at the upper one.
    """
    row, part = np.arange(len(low_N)), np.linspace(0, 1, 17)
    for _ in range(20):
        if (high_N <= np.nextafter(low_N, math.inf)).all():
            break
        points = low_N[:, None] + (high_N - low_N)[:, None] * part
        points[:, -1] = high_N
        seen = held(points)
        seen[:, 0], seen[:, -1] = False, True
        place = np.argmax(seen, axis=1)
        low_N, high_N = points[row, place - 1], points[row, place]
    return high_N


def _characteristic(matrix: Float) -> Float:
    r"""The coefficients t, m, c of $\lambda^3 - t\lambda^2 + m\lambda - c$ of matrices of three
    rows, on the first axis.
    """
    entry = np.moveaxis(matrix, (-2, -1), (0, 1))
    with np.errstate(over="ignore", invalid="ignore"):
        t = entry[0, 0] + entry[1, 1] + entry[2, 2]
        m = sum(
            entry[i, i] * entry[j, j] - entry[i, j] * entry[j, i]
            for i, j in ((0, 1), (0, 2), (1, 2))
        )
        c = sum(
            entry[2, i] * (entry[0, j] * entry[1, k] - entry[0, k] * entry[1, j])
            for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1))
        )
    return np.stack([t, m, c])


def _excess(coefficients: Float) -> Float:
    """The largest of Jury's conditions: positive where an eigenvalue is outside the unit circle."""
    t, m, c = coefficients
    with np.errstate(over="ignore", invalid="ignore"):
        pair = np.abs(m - c * t) - (1 - c**2)
        excess = np.maximum(np.maximum(np.abs(t + c) - 1 - m, np.abs(c) - 1), pair)
    # What is no number has left the range of numbers.
    return np.where(np.isnan(excess), np.inf, excess)


def check_setting(momentum: ArrayLike, interval: ArrayLike) -> None:
    """Refuse a momentum or an interval outside its domain."""
    mu, updates = floats(momentum), floats(interval)
    usable = (mu >= 0) & (mu < 1)
    if not usable.all():
        raise InvalidArgumentError(
            f"expected a momentum of at least 0 and below 1, got {mu[~usable].flat[0]:g}"
        )
    usable = (updates >= 1) & (updates <= _LONGEST)
    if not usable.all():
        raise InvalidArgumentError(
            f"expected a refresh interval of 1 to {_LONGEST:,.0f} updates, got "
            f"{updates[~usable].flat[0]:g}"
        )


ImportanceRatio = Literal["none", "exact", "clipped", "unknown"]
KLTerm = Literal["none", "reward", "loss", "unknown"]
IntervalStatus = Literal[
    "exact", "at least", "any", "none"
]  # of a longest interval: found, the longest looked at, proved, none at all
OpenSetting = Literal["lag", "importance_ratio", "kl_in"]

AT_EDGE = 1 - 1e-12
"""Share of the edge from which a force counts as at it."""
LONGEST_INTERVAL = 1_000_000
"""Longest interval that is looked at, in updates."""
EXACT_RATIO = (
    "With the exact importance ratio, only the old deviation and a KL term in the reward lag."
)
CLIPPED_RATIO = (
    "A clipped importance ratio is exact as long as no ratio is clipped, so small oscillations "
    "have the upper limit. Larger ones are bounded by the clip but need not settle."
)
UNKNOWN_RATIO = "It is unknown whether and how the loss corrects for the lag."
AT_LEAST = "No refresh interval up to {:,.0f} updates, the longest tried, is unstable here."
DECIDING: dict[OpenSetting, str] = {
    "lag": "the lag, because the settings give only its maximum",
    "importance_ratio": "the importance ratio (clip fraction near 0: the larger threshold applies)",
    "kl_in": "kl_in, the place of the KL term (in the reward: the smaller threshold applies)",
}
"""What a setting decides that leaves more than one threshold possible."""


@frozen
class Stability(Plain):
    """Whether one mode is stable, by which threshold and margin.

    Example:
        >>> from groupwise import stability
        >>> mode = stability(0.02, 0.9, refresh_interval=4, lag="refresh")
        >>> mode.stable, round(mode.margin, 2), mode.max_refresh_interval
        (True, 3.65, 14.0)
    """

    KEYS = (
        "stable threshold rule_threshold margin max_learning_rate max_refresh_interval "
        "max_refresh_status force lag refresh_interval momentum bounds deciding=open_settings "
        "status notes"
    )

    force: float  # learning rate x stiffness, a
    lag: str  # kind
    refresh_interval: int  # R, updates
    momentum: float  # mu
    threshold: float  # of a, for this lag
    rule_threshold: float  # (1 - mu)/R, the published rule
    margin: float  # the lowest threshold that is possible over a
    max_learning_rate: float | None  # at the threshold; None where the present one is not known
    # the longest interval up to which all are stable; infinite where none is too long
    max_refresh_interval: float
    max_refresh_status: IntervalStatus
    # thresholds that lag, importance ratio and KL term leave possible, lowest first
    bounds: Ends
    # the settings that decide between them, where the force lies between them
    open_settings: tuple[OpenSetting, ...] = ()
    notes: Words = ()  # sentences

    @property
    def stable(self) -> bool | None:
        """Whether the mode returns to its fixed point; None where the settings leave both sides of
        the edge possible.
        """
        sides = {self.force < AT_EDGE * bound for bound in self.bounds}
        return sides.pop() if len(sides) == 1 else None

    @property
    def decision(self) -> str:
        """What decides on which side of the edge the mode is, or "" where nothing is left open."""
        names = [DECIDING[name] for name in self.open_settings]
        return f" This depends on {'; '.join(names)}." if names else ""

    @property
    def status(self) -> str:
        """What to know, in one sentence."""
        low, high = self.bounds
        if self.stable:
            margin = f"{self.margin:.3g}" if self.margin < 1000 else "over 1,000 times"
            return (
                f"Stable: the force {self.force:.3g} is below the threshold {low:.3g}, a margin "
                f"of {margin}."
            )
        largest = (
            ""
            if self.max_learning_rate is None
            else f"; the largest stable learning rate is {self.max_learning_rate:.3g}"
        )
        if self.stable is None:
            return (
                f"Cannot tell: the force of {self.force:.3g} lies between {low:.3g} and "
                f"{high:.3g}, the thresholds that these settings allow.{self.decision}"
            )
        return f"Unstable: the force {self.force:.3g} exceeds the threshold {high:.3g}{largest}."


@of_numbers("open_run(RUN).stability() measures a run")
def stability(
    force: float,
    momentum: float,
    *,
    refresh_interval: int = 1,
    lag: str = "refresh",
    learning_rate: float | None = None,
    importance_ratio: ImportanceRatio = "none",
    kl_term: KLTerm = "unknown",
    lag_is_bound: bool = False,
) -> Stability:
    r"""Return where one mode stands against the edge of stability: $\eta K < a_c(\mu, R)$.

    Args:
        force: $a = \eta K$, learning rate times stiffness, per update.
        momentum: $\mu$ of the optimiser, from 0 to below 1.
        refresh_interval: R, updates from one generation of rollouts to the next, or a fixed lag.
        lag: none, fixed, refresh or async.
        learning_rate: $\eta$, to have the largest stable one in its unit.
        importance_ratio: what corrects old rollouts: none, exact, clipped or unknown.
        kl_term: where the KL term stands: none, reward, loss or unknown.
        lag_is_bound: whether rollouts may be younger than the lag.

    Returns:
        A `Stability`: the thresholds, the margin, and the longest interval that is stable.

    Raises:
        InvalidArgumentError: an argument is outside its domain.

    Example:
        >>> mode = stability(0.02, 0.9, refresh_interval=8)
        >>> mode.stable, round(mode.threshold, 4), round(mode.rule_threshold, 4)
        (True, 0.0339, 0.0125)

    Source: derived here (lab/docs/theory/dynamics.md); the published rule is arXiv 2606.30789's.
    """
    _check_mode(force, momentum, refresh_interval, importance_ratio, kl_term, learning_rate)
    check_lag(lag)
    notes = [] if lag == "none" else _notes_on_ratio(importance_ratio, kl_term)
    if importance_ratio == "exact" and kl_term in {"none", "loss"}:
        lag = "none"  # no lag is left
    interval = 1 if lag == "none" else refresh_interval
    limit = float(threshold(lag, momentum, interval))
    longest, longest_status = longest_interval(lag, force, momentum)
    # With a KL term in the reward the whole force stays stale at the fixed point.
    partly: dict[OpenSetting, bool] = {
        "lag": lag_is_bound,
        "importance_ratio": importance_ratio in {"clipped", "unknown"} and kl_term != "reward",
        "kl_in": importance_ratio != "none" and kl_term == "unknown",
    }
    open_settings = tuple(name for name, is_open in partly.items() if is_open)
    bounds = limit, 2 * (1 + momentum) if open_settings else limit
    margin = bounds[0] / float(force)  # beyond the range of numbers it is infinite
    at_least = [AT_LEAST.format(longest)] if longest_status == "at least" else []
    is_open = bounds[0] * AT_EDGE <= force < bounds[1] * AT_EDGE
    return Stability(
        force=force,
        lag=lag,
        refresh_interval=interval,
        momentum=momentum,
        threshold=limit,
        rule_threshold=(1 - momentum) / interval,
        margin=margin,
        max_learning_rate=None if learning_rate is None else learning_rate * margin,
        max_refresh_interval=longest,
        max_refresh_status=longest_status,
        bounds=bounds,
        open_settings=open_settings if is_open else (),
        notes=(*at_least, *notes),
    )


def longest_interval(lag: str, force: float, momentum: float) -> tuple[float, IntervalStatus]:
    """Return the longest interval up to which all are stable, and what is known of it: thresholds
    fall with the interval.
    """

    def unstable(intervals: ArrayLike) -> Flags:
        return AT_EDGE * threshold(lag, momentum, intervals) <= force

    if lag == "none":
        return (0.0, "none") if unstable(1) else (math.inf, "any")
    if not unstable(LONGEST_INTERVAL):
        return float(LONGEST_INTERVAL), "at least"
    low, high = 0, LONGEST_INTERVAL
    while high - low > 1:
        edges = np.arange(low, high, max(1, (high - low) // 32))
        place = int(np.searchsorted(unstable(edges[1:]), v=True))
        low, high = (int(edge) for edge in np.append(edges, high)[place : place + 2])
    return float(low), "exact" if low else "none"


def _check_mode(
    force: Any, momentum: Any, interval: Any, ratio: str, kl_term: str, learning_rate: Any
) -> None:
    """Refuse what is no mode of a run."""
    for value in (force, momentum, interval, learning_rate or 1):
        if not isinstance(value, Real):
            raise InvalidArgumentError(f"expected a number, got {value!r}: convert it")
    check_setting(momentum, interval)
    if interval != int(interval):
        raise InvalidArgumentError(f"expected whole updates as refresh interval, got {interval:g}")
    if learning_rate is not None and not (math.isfinite(learning_rate) and learning_rate > 0):
        raise InvalidArgumentError(f"expected a positive learning rate, got {learning_rate:g}")
    if not (math.isfinite(force) and force > 0):
        raise InvalidArgumentError(
            f"expected a positive stiffness times learning rate, got {force}: without a "
            "restoring force the dynamics do not settle"
        )
    if ratio not in get_args(ImportanceRatio):
        raise InvalidArgumentError(
            f"expected an importance ratio of none, exact, clipped or unknown, got {ratio[:60]!r}"
        )
    if kl_term not in get_args(KLTerm):
        raise InvalidArgumentError(
            f"expected a KL term of none, reward, loss or unknown, got {kl_term[:60]!r}"
        )


def _notes_on_ratio(ratio: ImportanceRatio, kl_term: KLTerm) -> list[str]:
    """What an importance ratio does about the lag."""
    if ratio == "none":
        return []
    if kl_term == "reward":
        stays = (
            "A KL term in the reward is as old as the rollouts: near the end of training the whole "
            "gradient is, with any importance ratio."
        )
        held = "The clip bounds oscillations beyond the limit; it does not move the limit."
        return [stays, held] if ratio == "clipped" else [stays]
    return [{"exact": EXACT_RATIO, "clipped": CLIPPED_RATIO}.get(ratio, UNKNOWN_RATIO)]


TRAINERS = tuple(table_rows("edge/trainers.tsv"))


@frozen
class LagSetting:
    """The lag of the rollouts behind the policy, as a judgement of stability takes it."""

    kind: LagKind
    refresh_interval: int  # R in updates; of a fixed lag the lag itself
    importance_ratio: ImportanceRatio = "none"  # what the loss does about the lag
    # where the KL penalty is: in the reward it is as stale as the rollouts, in the loss current
    kl_term: KLTerm = "unknown"
    is_bound: bool = False  # whether rollouts may be younger

    @property
    def longest(self) -> int:
        """The age of the oldest rollouts, in updates."""
        oldest = {"none": 0, "fixed": self.refresh_interval, "refresh": self.refresh_interval - 1}
        return oldest.get(self.kind, 2 * self.refresh_interval - 1)

    @property
    def remaining(self) -> tuple[LagSetting, ...]:
        """The lags that may remain after the loss's correction: this one, none, or both where
        ratio, KL term or a mere bound leave it open.
        """
        uncorrected = self.importance_ratio == "none" or self.kl_term == "reward"
        if self.kind == "none" or (uncorrected and not self.is_bound):
            return (self,)
        corrected = self.importance_ratio == "exact" and self.kl_term != "unknown"
        on_policy = LagSetting("none", 1)
        return (on_policy,) if corrected else (self, on_policy)


def defaults_of(framework: str) -> dict[str, str]:
    """Return the settings of a framework's usual trainer where it is told nothing."""
    name = "trl" if framework == "unsloth" else framework
    usual = next((row["defaults"] for row in TRAINERS if row["framework"] == name), "")
    return dict(pair.split("=", 1) for pair in usual.split())
