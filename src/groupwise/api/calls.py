"""Functions that take a run, a path or arrays: `fit`, `forecast`, `judge`, `replay`, `report`.

Arrays go to the mathematics as they are; everything else becomes a run, which answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from groupwise.api.run import in_memory, run_of, write_page
from groupwise.errors import InvalidArgumentError
from groupwise.record.run import RunRecord

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from groupwise.analysis.fitted import Outlook
    from groupwise.analysis.plan import RunPlan
    from groupwise.analysis.replay import RunReplay
    from groupwise.arrays import Ends
    from groupwise.diagnostics.judgement import Judgement
    from groupwise.estimators.best_group_size import Budget
    from groupwise.forecasting.results import FitResult, Forecast

    RunOrArrays = RunRecord | str | Path | Mapping[str, Any] | list[Any] | ArrayLike


def fit(
    run: RunOrArrays,
    value_T: ArrayLike | None = None,
    *,
    metric: str = "reward",
    law: str | None = None,
    level: float = 0.95,
    variance_T: ArrayLike | None = None,
    window: float | None = None,
    smoothing: int | None = None,
) -> FitResult:
    """Fit the laws to one metric of a run, or to arrays.

    Args:
        run: a run, a path, or increasing times, shape (T,).
        value_T: the metric at those times, shape (T,), nan where missing; not with a run.
        metric: of a run, the log's own key or a canonical quantity.
        law: the one law to fit; None lets all compete.
        level: nominal coverage of the intervals.
        variance_T: of arrays, the variance of each value; None: it is estimated.
        window: of arrays, the updates that each value averages; None: 1.
        smoothing: of arrays, the rows over which they were smoothed; None: it is estimated.

    Returns:
        The fit; `print` shows it in a sentence.

    Raises:
        InsufficientDataError: steps and values are too few; a run returns a result that says so.
        InvalidArgumentError: an argument is outside its domain.

    Example:
        >>> steps = range(300)
        >>> print(
        ...     fit(
        ...         steps,
        ...         [0.8 - 0.6 * 0.98**t + 0.01 * (-1) ** t for t in steps],
        ...         law="exponential",
        ...     )
        ... )
        The single exponential fits: the metric rises from 0.200 (0.195 to 0.206) to a
            plateau of 0.8000 (0.7981 to 0.8019); 99 to 100 % of this change is done.
    """
    if value_T is None or isinstance(run, RunRecord | str | Path | Mapping):
        _refuse(variance_T=variance_T, window=window, smoothing=smoothing)
        return run_of(run, value_T, metric=metric).fit(metric=metric, law=law, level=level)
    from groupwise.forecasting.fit import fit as fit_arrays

    return fit_arrays(
        run,
        value_T,
        variance_T=variance_T,
        window=1.0 if window is None else window,
        smoothing=smoothing,
        law=law,
        level=level,
    )


@overload  # the first that fits counts
def forecast(  # type: ignore[overload-overlap]
    run: ArrayLike,
    value_T: ArrayLike,
    at_S: ArrayLike,
    *,
    level: float = 0.9,
    bounds: Ends | None = None,
) -> Forecast: ...
@overload
def forecast(
    run: RunOrArrays,
    value_T: ArrayLike | None = None,
    at_S: Sequence[float] | None = None,
    *,
    to: float | None = None,
    metric: str = "reward",
    level: float = 0.9,
) -> Outlook: ...
def forecast(
    run: RunOrArrays,
    value_T: ArrayLike | None = None,
    at_S: Any = None,
    *,
    to: float | None = None,
    metric: str = "reward",
    level: float = 0.9,
    bounds: Ends | None = None,
) -> Forecast | Outlook:
    """Forecast one metric of a run, or of arrays.

    Args:
        run: a run, a path, increasing times, or whole steps where `to` is given, shape (T,).
        value_T: the metric there, shape (T,), nan where missing; not with a run.
        at_S: the times to forecast, shape (S,); of a run, steps.
        to: the last step to forecast, instead of `at_S`.
        metric: of a run, the log's own key or a canonical quantity.
        level: nominal coverage of the bands.
        bounds: of arrays with `at_S`, the range that the metric cannot leave.

    Returns:
        Of a run, and of arrays with `to`, an `Outlook`, whose `rows` have whole steps; of arrays
        with `at_S` a `Forecast`. `print` shows either in a sentence.

    Raises:
        InsufficientDataError: steps and values are too few; a run returns a result that says so.
        InvalidArgumentError: an argument is outside its domain.

    Example:
        >>> steps = range(1, 201)
        >>> ahead = forecast(steps, [0.8 - 0.6 * 0.98**t + 0.01 * (-1) ** t for t in steps], to=400)
        >>> ahead.rows[-1].step, round(ahead.rows[-1].mean, 2)
        (400, 0.81)
    """
    if value_T is None or at_S is None or isinstance(run, RunRecord | str | Path | Mapping):
        _refuse(bounds=bounds)
        return run_of(run, value_T, metric=metric).forecast(
            to=to, at=at_S, metric=metric, level=level
        )
    if to is not None:
        raise InvalidArgumentError("expected to= or at_S, got both: leave one of them out")
    from groupwise.forecasting.forecast import forecast as forecast_arrays

    return forecast_arrays(run, value_T, at_S, level=level, bounds=bounds)


def judge(
    run: RunOrArrays, value_T: ArrayLike | None = None, *, ended: bool | None = None
) -> Judgement:
    """Judge a run: how it stands, and why.

    Args:
        run: a run, a path, rewards (at steps 1, 2, ...), or whole steps, shape (T,).
        value_T: the rewards at those steps, shape (T,); not with a run.
        ended: whether the run is over; None: unless a process holds its journal to write it.

    Returns:
        The judgement that every command shows; `print` shows it in sentences.

    Raises:
        UnreadableRunError: the path holds no log that can be read.
        InvalidArgumentError: neither a run nor numbers.

    Example:
        >>> print(judge([0.5] * 30 + [0.0] * 30).state)
        failed
    """
    record = run_of(run, value_T)
    if ended is None:
        return record.judgement
    from groupwise.diagnostics.judge import judge as judge_record

    return judge_record(record, ended=ended)


def plan(run: RunOrArrays, *, budget: Budget | float | None = None) -> RunPlan:
    """Return what a run says of its group size, as `groupwise plan` does.

    From components that lie beside the run (`groupwise components RUN --model CHECKPOINT`) the safe
    size for the budget and the price of the one in use; without them what rewards alone say, and
    what the budget buys at the usual safe size.

    Args:
        run: a run or a path.
        budget: of one step, a number of rollouts or a `Budget`; by default the run's own.

    Returns:
        The plan; `print` shows the answer.

    Raises:
        GroupwiseError: a path that is no run, damaged components, or components without a budget
            where the batch is not known.

    Example:
        >>> from groupwise.examples import trl_run
        >>> outlook = plan(trl_run()).zero_variance
        >>> outlook.group_size, [row.group_size for row in outlook.shares]
        (8, [8, 16, 32])
    """
    return run_of(run).plan(budget=budget)


def replay(run: RunOrArrays, *, seed: int = 0) -> RunReplay:
    """Replay a run under other choices, as `groupwise replay` does.

    Args:
        run: a run or a path, with rollouts or the share of zero-variance groups.
        seed: of the order in which a conformal stop sees a group's rollouts.

    Returns:
        The choices with intervals over prompts; `print` shows the answer. Where no whole groups
        with rewards that differ are logged, `unavailable` says so.

    Raises:
        UnreadableRunError: the path holds no log that can be read.

    Example:
        >>> from groupwise.examples import trl_run
        >>> replay(trl_run()).replay.group_size
        8
    """
    return run_of(run).replay(seed=seed)


def report(
    runs: RunOrArrays | Iterable[RunOrArrays],
    path: str | Path = "groupwise-report.html",
    *,
    metric: str = "reward",
    force: bool = False,
) -> Path:
    """Write one page on a run, or on several, as `groupwise report` does.

    Args:
        runs: a run or a path, or a list of them.
        path: of the page.
        metric: what to fit and to draw.
        force: whether to replace a file that is there.

    Returns:
        The path of the page.

    Raises:
        OverwriteError: a file is there already.
        GroupwiseError: it cannot be written.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as home:
        ...     page = report(run_of([0.5] * 30 + [0.0] * 30), home + "/page.html")
        ...     "FAILED" in page.read_text(encoding="utf-8")
        True
    """
    single = isinstance(runs, str) or in_memory(runs)
    given = runs if isinstance(runs, Iterable) and not single else [runs]
    return write_page([run_of(run) for run in given], path, metric=metric, force=force)


def _refuse(**options: Any) -> None:
    """Refuse beside a run what only arrays need."""
    for name, value in options.items():
        if value is not None:
            raise InvalidArgumentError(f"expected {name} only with arrays, got a run: leave it out")
