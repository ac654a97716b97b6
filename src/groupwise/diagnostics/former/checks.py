"""The list of checks, and how they are asked: one check a failure, each healthy, a finding, or unavailable with what to log.

`CHECKS` is the registry, `diagnose` asks all of them and concludes; the numbers beside them raise no alarm. It mends nothing.
"""

from __future__ import annotations

from dataclasses import replace

from groupwise.diagnostics.former import (
    collapse,
    concentration,
    diversity,
    hacking,
    instability,
    length,
    margin,
    no_learning,
    verdict,
    verifier,
    zero_variance,
)
from groupwise.diagnostics.former.findings import Check, Diagnosis
from groupwise.diagnostics.signals import Evidence
from groupwise.record.run import RunRecord

# The verifier first: its failure looks like all the others.
CHECKS = (
    Check("verifier_failure", "The verifier", verifier.check),
    Check("reward_hacking", "Training against held-out reward", hacking.check, (hacking.measures,)),
    Check("advantage_degeneracy", "Groups that teach", zero_variance.check, (zero_variance.measures,)),
    Check("policy_concentration", "Diversity of the policy", concentration.check, (diversity.measures,)),
    Check("dynamical_instability", "Swings and breakdown", instability.check, (margin.measures, instability.measures)),
    Check("collapse", "Height of the reward", collapse.check),
    Check("no_learning", "Movement", no_learning.check),
    Check("length_runaway", "Length of the completions", length.check),
)


def diagnose(record: RunRecord, *, measured: bool = False) -> Diagnosis:
    """Ask every check and conclude.

    Args:
        record: a run.
        measured: whether to add the numbers beside the checks, which may take a fit of the reward; they change nothing else.

    Returns:
        Verdict, causes with probabilities, findings, and what could not be looked at.

    Example:
        >>> from groupwise.record.table import steps_table
        >>> reward = [0.8 + 0.01 * (-1) ** t for t in range(40)] + [0.0] * 20
        >>> diagnose(RunRecord("demo", steps_table(range(60), {"reward": reward}))).findings[0].since_step
        40
    """
    return diagnosis_of(Evidence(record), measured=measured)


def diagnosis_of(evidence: Evidence, *, measured: bool) -> Diagnosis:
    """Ask every check about evidence that is at hand, and conclude."""
    found = verdict.conclude(evidence.record.name, [check.run(evidence) for check in CHECKS], evidence.logged)
    if not measured:
        return found
    return replace(found, measures=tuple(one for check in CHECKS for measure in check.measures for one in measure(evidence)))
