"""Tables and phrases that page and terminal share, as plain texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from groupwise.files import table_rows
from groupwise.intervals import Interval, percent
from groupwise.plain import Words, frozen
from groupwise.wording import (
    alike,
    capital,
    count,
    decimals_of,
    law_name,
    limits,
    number,
    ranged,
    share_ranged,
)

if TYPE_CHECKING:
    from groupwise.analysis.fitted import Outlook
    from groupwise.analysis.replay import RunReplay
    from groupwise.analysis.rollouts import PromptTable
    from groupwise.analysis.stability import StabilityEvidence
    from groupwise.diagnostics.judgement import Cost, Judgement
    from groupwise.edge.mode import Stability
    from groupwise.estimators.best_group_size import GroupSizePlan
    from groupwise.estimators.components import Components
    from groupwise.estimators.zero_variance import ZeroVarianceOutlook
    from groupwise.forecasting.results import FitResult

# How a parameter is shown: its name with its usual symbol, its unit ("" where it has that of the
# metric, or none), and a clause.
_PARAMETERS = {key: words for key, *words in map(dict.values, table_rows("pages/parameters.tsv"))}


@frozen
class Grid:
    """A table of texts."""

    head: Words  # names of the columns
    rows: Sequence[Words]  # their cells
    numbers: tuple[int, ...]  # columns set flush right
    best: int = -1  # the row that is set off, or -1
    bold: frozenset[tuple[int, int]] = frozenset()  # cells that are set off, by row and column


def parameter_grid(fit: FitResult) -> Grid:
    """Return the parameters with their intervals, units and meanings."""
    level = next((interval.level for interval in fit.parameters.values()), 0.95)
    rows = []
    for name, interval in fit.parameters.items():
        label, unit, meaning = _PARAMETERS.get(name, (capital(name.replace("_", " ")), "", ""))
        value = number(interval.value) if interval.bounded else "–"
        rows.append((label, value, limits(interval), unit, meaning))
    return Grid(("Parameter", "Value", f"{percent(level)} interval", "Unit", ""), rows, (1, 2))


def candidate_grid(fit: FitResult) -> Grid:
    """Return the laws with their Akaike weights, best first."""
    rows = [
        (
            law_name(c.law),
            "< 0.01" if c.weight < 0.005 else f"{c.weight:.2f}",
            number(c.aicc, digits=4),
            number(round(c.r_squared, 3)),
        )
        for c in fit.candidates
    ]
    laws = [candidate.law for candidate in fit.candidates]
    best = laws.index(fit.law) if fit.law in laws else -1
    return Grid(("Law", "Weight", "AICc", "R²"), rows, (1, 2, 3), best)


def forecast_grid(outlook: Outlook) -> Grid:
    """Return the forecast: step, mean, and bands of the mean and of a row.

    Decimals agree down each column.
    """
    level = percent(outlook.result.level)
    mean_places = _decimals((row.mean_low, row.mean_high) for row in outlook.rows)
    row_places = _decimals((row.low, row.high) for row in outlook.rows)
    rows = []
    for row in outlook.rows:
        low, mean, high = alike(row.mean_low, row.mean, row.mean_high, decimals=mean_places)
        first, last = alike(row.low, row.high, decimals=row_places)
        rows.append((f"{row.step:,.0f}", mean, f"{low} to {high}", f"{first} to {last}"))
    return Grid(("Step", "Expected", f"Mean, {level}", f"Single row, {level}"), rows, (0, 1, 2, 3))


def _decimals(bands: Iterable[tuple[float, float]]) -> int | None:
    """Return the decimals that tell all ends of bands apart; None where none suit one."""
    places = [decimals_of(band) for band in bands]
    plain = [place for place in places if place is not None]
    return max(plain) if len(plain) == len(places) else None


def component_grid(components: Components) -> Grid:
    """Return Vp, T, R, |g|² and the size of least error with their intervals."""
    estimates = (components.vp, components.t, components.r, components.gradient_norm2)
    rows = [
        (
            e.symbol.replace("^2", "²"),
            number(e.value),
            between(e.interval),
            e.meaning.replace("^2", "²").replace("sigma2", "σ²"),
        )
        for e in estimates
    ]
    size = components.group_size
    rows.append(
        (
            "G*",
            number(size.value),
            between(size),
            "group size with the smallest error of the next update, 1 + √(R/Vp)",
        )
    )
    return Grid(("", "Value", f"{percent(components.level)} interval", "Meaning"), rows, (1, 2))


def between(interval: Interval) -> str:
    """Write the ends of an interval."""
    if interval.low == interval.high:
        return "–"
    # Ends of one size look alike; ends of different sizes, as a variance's are, each keep their
    # digits.
    near = interval.low > 0 and interval.high < 2 * interval.low
    low, high = (
        alike(interval.low, interval.high)
        if near
        else (number(interval.low), number(interval.high))
    )
    return f"{low} to {high}"


def plan_grid(plan: GroupSizePlan, sizes: Sequence[int]) -> Grid:
    """Return group sizes with their prompts, and their error over the best one's."""
    points = [point for point in plan.curve if point.group_size in set(sizes)]
    least = min(point.mse for point in plan.curve)
    low, high = plan.safe_sizes
    words = {size: ["safest"] for size in range(low, high + 1) if not plan.named}
    words.setdefault(plan.group_size, ["safe"])
    if plan.present:
        words.setdefault(plan.present.group_size, []).append("in use")
    rows = [
        (
            f"{point.group_size:,}",
            f"{point.prompts:,}",
            percent(point.mse / least - 1) if least > 0 else number(point.mse),
            percent(point.excess) if math.isfinite(point.excess) else "∞",
            ", ".join(words.get(point.group_size, ())),
        )
        for point in points
    ]
    shown = [point.group_size for point in points]
    best = shown.index(plan.group_size) if plan.group_size in shown else -1
    return Grid(
        ("Group size", "Prompts", "Extra error now", "Extra error at most", ""),
        rows,
        (0, 1, 2, 3),
        best,
    )


def explained(fit: FitResult) -> str:
    """Say how much of the metric's variance a law explains."""
    noise = fit.r_squared_explainable
    left = f" ({number(round(noise, 3))} of the variation beyond sampling noise)"
    return f"R² is {number(round(fit.r_squared, 3))}{left * math.isfinite(noise)}"


def outlook_grid(outlook: ZeroVarianceOutlook) -> Grid:
    """Return the share of zero-variance groups at the size in use and at the powers of two.

    And how many more would be informative at larger ones.
    """
    rows = []
    sizes = {row.group_size: row for row in (*outlook.powers, outlook.shares[0])}
    for _, row in sorted(sizes.items()):
        gained = "" if row.gained is None else share_ranged(row.gained)
        ends = f"{percent(row.share.low)} to {percent(row.share.high)}"
        rows.append(
            (
                str(row.group_size),
                percent(row.share.value),
                ends,
                gained,
                "in use"
                if row.group_size == outlook.group_size
                else "extrapolated" * row.extrapolated,
            )
        )
    level = percent(outlook.now.level)
    return Grid(
        ("Group size", "Zero-variance", f"{level} interval", "More mixed groups", ""),
        rows,
        (0, 1, 2, 3),
    )


_COSTS = {
    "rollouts": "Rollouts",
    "tokens": "Tokens",
    "seconds": "Time",
    "gpu_hours": "GPU-hours",
    "money": "Money",
}


def cost_grid(judged: Judgement) -> Grid:
    """Return what was spent, what of it since the first sign, and what is to come."""
    costs = {
        "Used so far": judged.spent,
        "Since the first sign": judged.cost,
        "Remaining, as planned": judged.to_come,
    }
    spent = {name: cost for name, cost in costs.items() if cost is not None}
    units = [
        unit for unit in _COSTS if any(getattr(cost, unit) is not None for cost in spent.values())
    ]
    rows = [
        (name, f"{cost.steps:,}", *(_amount(cost, unit) for unit in units))
        for name, cost in spent.items()
    ]
    return Grid(
        ("", "Steps", *(_COSTS[unit] for unit in units)), rows, tuple(range(1, 2 + len(units)))
    )


def _amount(cost: Cost, unit: str) -> str:
    """Write an amount of a unit without its name."""
    value = getattr(cost, unit)
    if value is None:
        return "–"
    if unit in ("seconds", "tokens"):
        return cost.amounts[unit].removesuffix(" tokens")
    if unit == "gpu_hours":
        return number(value)
    return f"{value:,.2f}" if unit == "money" else f"{value:,}"


def prompt_grid(table: PromptTable) -> Grid:
    """Return prompts: how they stand, visits that taught, newest pass rate."""
    rows = []
    for row in table.rows:
        rate = number(row.mean) if row.now is None else share_ranged(row.now)
        rows.append(
            (row.prompt, row.standing, f"{row.teaching} of {row.visits}", rate, f"{row.rollouts}")
        )
    now = "Pass rate now" if table.binary else "Mean reward now"
    return Grid(("Prompt", "Stands", "Visits with a gradient", now, "Rollouts"), rows, (2, 3, 4))


def evidence_grid(evidence: StabilityEvidence) -> Grid:
    """Return where the mode of a run stands, without what no margin can be promised for."""
    from groupwise.analysis.stability import margin_alone, ranged_force, ranged_margin

    mode, margin = evidence.mode, evidence.margin
    assert mode
    updates = count(mode.refresh_interval, "update")
    words = {"none": "no lag", "fixed": f"fixed lag of {updates}"}
    interval = words.get(mode.lag, f"{mode.lag}, {updates}")
    value = number(mode.force) if evidence.force is None else ranged_force(evidence.force.force)
    threshold = (
        "Its limit",
        number(mode.threshold),
        f"momentum {number(mode.momentum)}, {interval}",
    )
    if evidence.doubts:
        read = "Learning rate × curvature", value, "per update; not reliable here"
        return Grid(("", "Value", ""), (read, threshold), (1,))
    rows = [
        ("Learning rate × curvature", value, "the force, per update"),
        threshold,
        (
            "Margin",
            ranged_margin(margin) if margin else margin_alone(mode.margin),
            "limit divided by force; above 1 is stable",
        ),
        (
            "Limit of arXiv 2606.30789",
            number(mode.rule_threshold),
            "(1 − momentum) / interval",
        ),
    ]
    if mode.bounds[0] != mode.bounds[1] or mode.bounds[0] != mode.threshold:
        ends = " to ".join(map(number, dict.fromkeys(mode.bounds)))
        rows.append(("Possible limits", ends, "limits that the unknown settings allow"))
    if evidence.knows_rate and mode.max_learning_rate is not None:
        rows.append(
            ("Largest learning rate", number(mode.max_learning_rate), "by what the reward shows")
        )
    if mode.lag != "none":
        rows.append(("Longest refresh interval", _longest(mode), "updates at this force"))
    return Grid(("", "Value", ""), rows, (1,))


def _longest(mode: Stability) -> str:
    """The longest interval in words."""
    if math.isinf(mode.max_refresh_interval):
        return "any"
    at_least = "at least " if mode.max_refresh_status == "at least" else ""
    return (
        "none" if mode.max_refresh_interval < 1 else f"{at_least}{mode.max_refresh_interval:,.0f}"
    )


def replay_grids(run: RunReplay) -> list[Grid]:
    """Return the choices of a replay, and what denominators of the loss do."""
    if run.replay is None:
        return []
    made, hours, rows = run.replay, run.gpu_hours, []
    for row in made.rows:
        same = row.group_size == made.group_size and abs(row.live.value - made.live.value) < 1e-9
        logged = "As logged, " if same else ""
        saved = share_ranged(row.saved())
        cells = (
            f"{logged}G = {row.group_size}" if row.group_size else capital(row.choice),
            share_ranged(row.live),
            f"{row.rollouts.value * made.rollouts:,.0f}",
            saved if hours is None else f"{saved}, {ranged(row.saved(hours))} GPU-hours",
            "–" if row.variance is None else ranged(row.variance),
            row.status,
        )
        rows.append(cells)
    head = ("", "Mixed groups", "Rollouts", "Rollouts saved", "Gradient variance", "")
    grids = [Grid(head, rows, tuple(range(1, 5)))]
    if made.denominators:
        parts = [
            (capital(row.name), share_ranged(row.rate), share_ranged(row.longest))
            for row in made.denominators
        ]
        names = ("Loss divided by", "Effective learning rate", "Weight of the longest quarter")
        grids.append(Grid(names, parts, (1, 2)))
    return grids
