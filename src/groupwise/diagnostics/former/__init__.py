"""Why a run is flat, falls or swings: the list of checks is in `checks`, each check in a file of its own, the cause in `verdict`."""

from groupwise.diagnostics.former.checks import CHECKS, diagnose
from groupwise.diagnostics.former.findings import Cause, Check, Diagnosis, Finding, Healthy, Measure, Outcome, Unavailable
from groupwise.diagnostics.signals import Evidence

__all__ = ["CHECKS", "Cause", "Check", "Diagnosis", "Evidence", "Finding", "Healthy", "Measure", "Outcome", "Unavailable", "diagnose"]
