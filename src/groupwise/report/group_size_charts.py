"""Two charts over the group size: the error of the gradient relative to the best size, and the share of dead groups.

Plain data from a plan or from reward statistics. They estimate nothing and draw nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from groupwise.estimators.components import contrast_quantile
from groupwise.estimators.plan import GroupSizePlan, weights_of
from groupwise.estimators.rewards_alone import DeadShare, RewardStatistics
from groupwise.intervals import percent
from groupwise.report.charts import Chart, Line, Mark, Role, smooth_line, useful_range
from groupwise.report.wording import count, number

FloatArray = NDArray[np.float64]
SIZE = "group size"
_SPACING = 1.06
_HIGHEST = 100.0  # beyond it a size is out of the question, and would only crush the others


def error_chart(plan: GroupSizePlan) -> Chart:
    """Chart the error at each group size over that of the best, with the band that the components leave."""
    size = _drawn_sizes(plan)
    ratio, low, high = _relative(plan, size)
    drawn = ratio <= _HIGHEST
    size, ratio = size[drawn], ratio[drawn]
    low, high = (None if end is None else np.minimum(end[drawn], 10 * _HIGHEST) for end in (low, high))
    level = 0.95 if plan.components is None else plan.components.level
    band = f"{percent(level)} band"
    line = smooth_line("error over that of the best", "law", size, ratio, low_T=low, high_T=high, band=band, points=len(size))
    marks = [Mark(plan.group_size, f"best {plan.group_size}")]
    if plan.present is not None and plan.present.group_size == plan.group_size:
        marks = [Mark(plan.group_size, f"best and in use {plan.group_size}")]
    elif plan.present is not None and plan.present.group_size in size:
        marks = sorted([*marks, Mark(plan.present.group_size, f"in use {plan.present.group_size}")], key=lambda mark: mark.x)
    elsewhere = plan.present is not None and plan.present.group_size not in size
    near = (size >= min(marks[0].x, plan.group_size / 4)) & (size <= max(marks[-1].x, 4 * plan.group_size))
    budget = plan.budget
    caption = f"Each size with as many prompts as {number(budget.amount, digits=6)} {budget.unit} pay for."
    if low is not None:
        caption += " The band is that of the ratio, so it closes at the best size."
    if elsewhere and plan.present is not None:
        caption += f" The size in use, {plan.present.group_size:,}, is more than {_HIGHEST:.0f} times as bad as the best and not drawn."
    parts = () if low is None or high is None else (low, high)
    return Chart(
        "error_over_size",
        "Error of the gradient over group size",
        f"{SIZE}, rollouts of one prompt",
        "mean squared error, best = 1",
        (line,),
        tuple(marks),
        caption,
        wide=True,
        y_range=useful_range(*parts, ratio, shown=np.append(ratio[near], [1.0, 1.1]), reach=0.5),
        x_scale="log2",
    )


def _drawn_sizes(plan: GroupSizePlan) -> NDArray[np.int64]:
    """Sizes that leave nothing of the budget unused, thinned to equal steps of the logarithm, and those that the plan speaks of."""
    present = plan.group_size if plan.present is None else plan.present.group_size
    most = max(64, 8 * plan.group_size, 4 * present)
    size = np.array([point.group_size for point in plan.curve if point.group_size <= most], dtype=np.int64)
    thrifty = plan.budget.prompts_of(size + 1) < plan.budget.prompts_of(size)
    spoken = np.isin(size, [plan.group_size, present, size[0], size[-1]])
    kept: list[int] = []
    for value, wanted, must in zip(size.tolist(), thrifty, spoken, strict=True):
        if must or (wanted and (not kept or value >= kept[-1] * _SPACING)):
            kept.append(value)
    return np.array(kept, dtype=np.int64)


def _relative(plan: GroupSizePlan, size: NDArray[np.int64]) -> tuple[FloatArray, FloatArray | None, FloatArray | None]:
    """The error over that of the best, and its band by the delta method on the logarithm, as the plan's regret has it."""
    mse = {point.group_size: point.mse for point in plan.curve}
    error = np.array([mse[value] for value in size.tolist()])
    ratio = np.divide(error, plan.mse, out=np.where(error > 0, np.inf, 1.0), where=plan.mse > 0)
    components = plan.components
    if components is None or components.prompts < 3 or plan.mse == 0:
        return ratio, None, None
    values = np.maximum(components.estimate_C[:3], 0.0)
    weight, best = weights_of(size, plan.budget), weights_of(np.array([plan.group_size]), plan.budget)
    contrast = weight / (values @ weight) - best / (values @ best)
    deviation = np.sqrt(np.maximum(np.einsum("cm,cd,dm->m", contrast, components.covariance_CC[:3, :3], contrast), 0.0))
    quantile = np.array([contrast_quantile(components.pseudo_PC, column, components.prompts, components.level) for column in contrast.T])
    factor = np.exp(np.minimum(np.where(deviation > 0, quantile * deviation, 0.0), 50.0))
    return ratio, ratio / factor, ratio * factor


def dead_share_chart(statistics: RewardStatistics, present: int | None) -> Chart | None:
    """Chart the share of dead groups at other group sizes."""
    rows = statistics.dead_shares
    if len(rows) < 2:
        return None
    seen, beyond = [row for row in rows if not row.extrapolated], [row for row in rows if row.extrapolated]
    lines = [_share_line("dead groups", "law", seen, f"{percent(rows[0].share.level)} band")] if seen else []
    if beyond:
        # The extrapolated part begins where the seen one ends, so that the line has no gap.
        lines.append(_share_line("if pass rates follow a beta law", "forecast", [*seen[-1:], *beyond], "what it could be"))
    marks = () if present is None or not rows[0].group_size <= present <= rows[-1].group_size else (Mark(present, f"in use {present}"),)
    tops = [row.share.value for row in rows if math.isfinite(row.share.value)]
    caption = (
        f"From the rewards of {count(statistics.prompts, 'group')}. This is not the gradient's variance: no group size follows from it."
    )
    return Chart(
        "dead_share_over_size",
        "Dead groups over group size",
        f"{SIZE}, rollouts of one prompt",
        "share of groups",
        tuple(lines),
        marks,
        caption,
        y_range=useful_range([value for line in lines for value in line.high if value is not None], shown=[0.0, 0.1, *tops], reach=0.15),
        x_scale="log2",
    )


def _share_line(name: str, role: Role, rows: Sequence[DeadShare], band: str) -> Line:
    """Return shares over the group size, with their band."""
    low, high = ([getattr(row.share, end) for row in rows] for end in ("low", "high"))
    size, value = [row.group_size for row in rows], [row.share.value for row in rows]
    return smooth_line(name, role, size, value, low_T=low, high_T=high, band=band, points=len(rows))
