"""groupwise, the instrument panel of GRPO training: what a run's log says about it, with intervals
that mean what they say.

The public names, each loaded when it is first asked for. Nothing is computed here, and importing
the package imports nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.analysis.compare import RunComparison, compare
    from groupwise.analysis.component_file import load_components, save_components
    from groupwise.analysis.fitted import Outlook
    from groupwise.analysis.plan import RunPlan, plan
    from groupwise.analysis.summary import Summary, summarise
    from groupwise.api.calls import fit, forecast, judge, report
    from groupwise.api.calls import judge as diagnose
    from groupwise.api.run import Run, open_run
    from groupwise.diagnostics.judge import CHECKS
    from groupwise.diagnostics.judgement import Finding, Judgement, State
    from groupwise.diagnostics.judgement import Judgement as Diagnosis
    from groupwise.errors import GroupwiseError, GroupwiseWarning
    from groupwise.estimators.baseline_errors import compare_baselines
    from groupwise.estimators.best_group_size import (
        Budget,
        GroupSizePlan,
        plan_from_components,
        plan_group_size,
    )
    from groupwise.estimators.components import Components, components
    from groupwise.estimators.presets import preset
    from groupwise.estimators.rewards_alone import reward_statistics
    from groupwise.forecasting.laws import LAWS, Law, law_by_name
    from groupwise.forecasting.results import FitResult, Forecast
    from groupwise.intervals import Interval, wilson
    from groupwise.pages.html import render
    from groupwise.readers import READERS
    from groupwise.record.run import Meaning, RecordWriter, RunRecord, Source
    from groupwise.record.settings import RunConfig, Setting
    from groupwise.scores.sums import score_sums
    from groupwise.series.metric import MetricSeries, metric_series

__version__ = "0.2.0"

_HOME = {
    name: module
    for module, names in {
        "analysis.compare": "RunComparison compare",
        "analysis.component_file": "load_components save_components",
        "analysis.fitted": "Outlook",
        "analysis.plan": "RunPlan plan",
        "analysis.summary": "Summary summarise",
        "api.calls": "diagnose fit forecast judge report",
        "api.run": "Run open_run",
        "diagnostics.judge": "CHECKS",
        "diagnostics.judgement": "Diagnosis Finding Judgement State",
        "errors": "GroupwiseError GroupwiseWarning",
        "estimators.baseline_errors": "compare_baselines",
        "estimators.best_group_size": "Budget GroupSizePlan plan_from_components plan_group_size",
        "estimators.components": "Components components",
        "estimators.presets": "preset",
        "estimators.rewards_alone": "reward_statistics",
        "forecasting.laws": "LAWS Law law_by_name",
        "forecasting.results": "FitResult Forecast",
        "intervals": "Interval wilson",
        "readers": "READERS",
        "record.run": "Meaning RecordWriter RunRecord Source",
        "record.settings": "RunConfig Setting",
        "pages.html": "render",
        "scores.sums": "score_sums",
        "series.metric": "MetricSeries metric_series",
    }.items()
    for name in names.split()
}
# Names of before that are still answered, and what they are called today.
_FORMERLY = {"Diagnosis": "Judgement", "diagnose": "judge"}

__all__ = [
    "CHECKS",
    "LAWS",
    "READERS",
    "Budget",
    "Components",
    "Diagnosis",
    "Finding",
    "FitResult",
    "Forecast",
    "GroupSizePlan",
    "GroupwiseError",
    "GroupwiseWarning",
    "Interval",
    "Judgement",
    "Law",
    "Meaning",
    "MetricSeries",
    "Outlook",
    "RecordWriter",
    "Run",
    "RunComparison",
    "RunConfig",
    "RunPlan",
    "RunRecord",
    "Setting",
    "Source",
    "State",
    "Summary",
    "__version__",
    "compare",
    "compare_baselines",
    "components",
    "diagnose",
    "fit",
    "forecast",
    "judge",
    "law_by_name",
    "load_components",
    "metric_series",
    "open_run",
    "plan",
    "plan_from_components",
    "plan_group_size",
    "preset",
    "render",
    "report",
    "reward_statistics",
    "save_components",
    "score_sums",
    "summarise",
    "wilson",
]


def __getattr__(name: str) -> Any:
    """Load a public name from the module that defines it."""
    if name not in _HOME:
        raise AttributeError(f"module 'groupwise' has no attribute {name!r}")
    return getattr(import_module(f"groupwise.{_HOME[name]}"), _FORMERLY.get(name, name))


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted(__all__)
