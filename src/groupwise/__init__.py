"""groupwise, the instrument panel of GRPO training: what a run's log says, with honest intervals.

The public names, each loaded when it is first asked for: importing the package imports no other.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.analysis.compare import RunComparison, compare
    from groupwise.analysis.component_file import load_components, save_components
    from groupwise.analysis.fitted import Outlook
    from groupwise.analysis.plan import RunPlan, plan
    from groupwise.api.calls import fit, forecast, judge, report
    from groupwise.api.run import Run, open_run
    from groupwise.diagnostics.judgement import Finding, Judgement, State
    from groupwise.edge.mode import Stability, stability
    from groupwise.errors import GroupwiseError, GroupwiseWarning
    from groupwise.estimators.baseline_errors import compare_baselines
    from groupwise.estimators.best_group_size import GroupSizePlan, plan_group_size
    from groupwise.estimators.components import Components, components
    from groupwise.estimators.rewards_alone import reward_statistics
    from groupwise.forecasting.results import FitResult
    from groupwise.integrations.trl import GroupwiseCallback
    from groupwise.intervals import Interval
    from groupwise.record.run import RecordWriter, RunRecord

__version__ = "0.2.0"

_HOME = {
    name: module
    for module, names in {
        "analysis.compare": "RunComparison compare",
        "analysis.component_file": "load_components save_components",
        "analysis.fitted": "Outlook",
        "analysis.plan": "RunPlan plan",
        "api.calls": "fit forecast judge report",
        "api.run": "Run open_run",
        "diagnostics.judgement": "Finding Judgement State",
        "edge.mode": "Stability stability",
        "errors": "GroupwiseError GroupwiseWarning",
        "estimators.baseline_errors": "compare_baselines",
        "estimators.best_group_size": "GroupSizePlan plan_group_size",
        "estimators.components": "Components components",
        "estimators.rewards_alone": "reward_statistics",
        "forecasting.results": "FitResult",
        "integrations.trl": "GroupwiseCallback",
        "intervals": "Interval",
        "record.run": "RecordWriter RunRecord",
    }.items()
    for name in names.split()
}
__all__ = [
    "Components",
    "Finding",
    "FitResult",
    "GroupSizePlan",
    "GroupwiseCallback",
    "GroupwiseError",
    "GroupwiseWarning",
    "Interval",
    "Judgement",
    "Outlook",
    "RecordWriter",
    "Run",
    "RunComparison",
    "RunPlan",
    "RunRecord",
    "Stability",
    "State",
    "__version__",
    "compare",
    "compare_baselines",
    "components",
    "fit",
    "forecast",
    "judge",
    "load_components",
    "open_run",
    "plan",
    "plan_group_size",
    "report",
    "reward_statistics",
    "save_components",
    "stability",
]
# Names of version 0.1 -> where they are now. They answer with a warning until version 0.3.
_FORMERLY = {
    "ADVANTAGES": "groupwise_lab.trainer.advantages.ADVANTAGES",
    "Backtest": "groupwise_lab.forecasts.results.Backtest",
    "Budget": "groupwise.estimators.best_group_size.Budget",
    "CHECKS": "groupwise.diagnostics.judge.CHECKS",
    "Diagnosis": "groupwise.diagnostics.judgement.Judgement",
    "Forecast": "groupwise.forecasting.results.Forecast",
    "LAWS": "groupwise.forecasting.laws.LAWS",
    "Law": "groupwise.forecasting.laws.Law",
    "Meaning": "groupwise.record.run.Meaning",
    "MetricSeries": "groupwise.series.metric.MetricSeries",
    "READERS": "groupwise.readers.READERS",
    "RunConfig": "groupwise.record.settings.RunConfig",
    "Setting": "groupwise.record.settings.Setting",
    "Source": "groupwise.record.run.Source",
    "Summary": "groupwise.analysis.summary.Summary",
    "backtest": "groupwise_lab.forecasts.backtest.backtest",
    "diagnose": "groupwise.api.calls.judge",
    "law_by_name": "groupwise.forecasting.laws.law_by_name",
    "metric_series": "groupwise.series.metric.metric_series",
    "plan_from_components": "groupwise.estimators.best_group_size.plan_from_components",
    "preset": "groupwise_lab.trainer.presets.preset",
    "render": "groupwise.pages.html.render",
    "score_sums": "groupwise.estimators.moments.moments_of_scores",
    "summarise": "groupwise.analysis.summary.summarise",
    "wilson": "groupwise.intervals.wilson",
}


def __getattr__(name: str) -> Any:
    """Load a public name from the module that defines it."""
    if name in _HOME:
        return getattr(import_module(f"groupwise.{_HOME[name]}"), name)
    if name not in _FORMERLY:
        raise AttributeError(f"module 'groupwise' has no attribute {name!r}")
    place = _FORMERLY[name]
    module, _, attribute = place.rpartition(".")
    if module.startswith("groupwise_lab"):
        raise AttributeError(
            f"groupwise.{name} is {place} since version 0.2: pip install groupwise-lab"
        )
    message = f"groupwise.{name} is {place} since version 0.2, and goes from groupwise in 0.3"
    warnings.warn(message, DeprecationWarning, stacklevel=2)
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted(__all__)
