"""Where a law stops to hold: a jump in the level, a fall from the height once reached, or aimless wandering.

Each finding names the time from which no single law describes the series. What to do about it is for diagnosis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from groupwise.curves import search
from groupwise.curves.law_fit import LawFit, aicc_of, orthonormal
from groupwise.curves.laws import Law, law_by_name
from groupwise.curves.noise import NoiseShape, Whitener, moment_shape, noise_posterior, noise_shapes
from groupwise.curves.observations import Observations

FloatArray = NDArray[np.float64]

# A jump has to beat every law by this much in AICc, beyond the three numbers it costs (height, place, and the search for it).
MARGIN = 10.0
PLACES = 40


@dataclass(frozen=True, slots=True)
class Break:
    """A jump on top of a law."""

    time: float  # when, in the clock of the observations
    jump: float  # height, reward units
    aicc: float  # criterion of the law with the jump


def find_break(observations: Observations) -> Break | None:
    """The best single jump on top of a constant or of an exponential."""
    n = observations.time_M.size
    if n < 20:
        return None
    places = np.unique(np.linspace(0.04 * n, 0.96 * n, min(PLACES, n)).astype(int))
    found = [_best_jump(observations, law_by_name(name), places) for name in ("constant", "exponential")]
    best = min(found, key=lambda candidate: candidate[0].aicc)
    law, place = (law_by_name("constant"), law_by_name("exponential"))[found.index(best)], best[1]
    step = max(1, int(np.diff(places).max(initial=1)))
    closer = np.arange(max(1, place - step), min(n - 1, place + step) + 1)
    return min(best, _best_jump(observations, law, closer), key=lambda candidate: candidate[0].aicc)[0]


def matters(jump: Break, observations: Observations) -> bool:
    """Whether a jump is a good part of what the metric has done in all; noise that changes its size makes small ones."""
    return abs(jump.jump) >= 0.25 * float(np.ptp(_running_mean(observations)))


def _running_mean(observations: Observations) -> FloatArray:
    """Mean of each block with its neighbours, a twentieth of the series wide."""
    value = observations.value_M
    half = max(1, value.size // 40)
    padded = np.pad(value, half, mode="edge")
    return np.asarray(np.convolve(padded, np.full(2 * half + 1, 1 / (2 * half + 1)), "valid"))


def _best_jump(observations: Observations, law: Law, places: NDArray[np.intp]) -> tuple[Break, int]:
    """The best place of a jump on top of one law, under the noise that is left once it is taken out."""
    n = observations.time_M.size
    centred = observations.value_M - observations.value_M.mean()
    steps = (np.arange(n)[:, None] >= places[None, :]).astype(float)
    shape, basis = noise_shapes(observations.gap)[0], observations.basis(law_by_name("exponential").nodes)
    for attempt in range(2):
        place, columns, residual = _scan(observations, law, centred, steps, shape, basis)
        if attempt == 0:
            shape = moment_shape(residual, gap=observations.gap)
            if shape.share == 0:
                break
    independent = orthonormal(columns)
    noise = noise_posterior(observations.time_M, observations.relative_variance_M, independent, residual, gap=observations.gap)
    jump = float(np.linalg.lstsq(columns, centred, rcond=None)[0][-1])
    k = int(places[place])
    found = Break(float(observations.time_M[k]), jump, aicc_of(noise, n, len(law.parameters) + 3))
    return found, k


def _scan(
    observations: Observations,
    law: Law,
    centred: FloatArray,
    steps: FloatArray,
    shape: NoiseShape,
    basis: tuple[FloatArray, FloatArray],
) -> tuple[int, FloatArray, FloatArray]:
    """The place of least error, the regressors there, and the residual."""
    products = search.gram(observations, basis, centred, shape)
    whitened = Whitener(observations.time_M, observations.relative_variance_M, shape).apply(steps)
    others = np.column_stack([basis[1], np.ones(centred.size), centred])
    cross, own = others.T @ whitened, np.einsum("ij,ij->j", steps, whitened)
    grid = search.whole_box(law, observations.span).points((24,)) if law.shapes else ()
    shapes = search.whole_box(law, observations.span).shapes(grid) if law.shapes else ()
    best = (np.inf, 0, 0)
    for j in range(steps.shape[1]):
        swept = products.without(np.append(cross[:, j], own[j]))
        if law.shapes:
            errors = search.surface(law, swept, *shapes).error_Q
        else:
            errors = np.array([swept.value_value - swept.one_value**2 / max(swept.one_one, 1e-300)])
        best = min(best, (float(errors.min()), j, int(errors.argmin())))
    columns = [np.ones(centred.size), steps[:, best[1]]]
    if law.shapes:
        columns.insert(1, basis[1] @ law.decay(products.nodes_K, *(float(s[best[2]]) for s in shapes)))
    design = np.column_stack(columns)
    return best[1], design, centred - design @ np.linalg.lstsq(design, centred, rcond=None)[0]


def fall_from_height(observations: Observations) -> float:
    """Time from which a metric that should rise has lost most of its height for good, or nan.

    Read from the running mean and not from a fitted curve, which bridges rise and fall. The last twentieth of the rows
    has to lie in the lower half of what was reached, and further from the height than their scatter explains.
    """
    value, smooth = observations.value_M, _running_mean(observations)
    if value.size < 12:
        return float("nan")
    few = max(3, value.size // 20)
    # The height is the mean of the highest few, so that a short good time counts and a single lucky mean does not.
    height = float(np.sort(smooth)[-few:].mean())
    end = float(value[-few:].mean())
    floor = min(float(smooth.min()), 0.0) if height > 0 else float(smooth.min())
    scatter = float(np.sqrt(np.mean(np.diff(value) ** 2) / 2))
    if height - end < 0.5 * (height - floor) or height - end < 5 * scatter / np.sqrt(few):
        return float("nan")
    high = np.flatnonzero(smooth >= height - 0.2 * (height - end))
    first, last = int(high[0]), int(high[-1])
    # Slow noise about a level visits both ends again and again; what collapsed stood high for a while and was seldom low meanwhile.
    was_low = float((smooth[first : last + 1] < end + 0.25 * (height - end)).mean())
    if was_low > 0.1 or last - first < few - 1 or last >= value.size - few:
        return float("nan")
    return float(observations.time_M[last])


def explained(observations: Observations, curve_M: FloatArray) -> float:
    """Share of the variance of the running mean that a fitted curve explains."""
    smooth = _running_mean(observations)
    total = float(((smooth - smooth.mean()) ** 2).sum())
    return 1 - float(((smooth - curve_M) ** 2).sum()) / total if total > 0 else 1.0


def wanders(found: LawFit, observations: Observations) -> bool:
    """Whether the noise about a curve is nearly as slow as the log is long, so that the curve means little."""
    shape = found.noise.best_shape
    if shape.share < 0.6 or observations.time_M.size < 20:
        return False
    correlation_time = -shape.gap / np.log(max(shape.correlation, 1e-12))
    return bool(correlation_time > max(observations.span / 8, 8 * shape.gap))
