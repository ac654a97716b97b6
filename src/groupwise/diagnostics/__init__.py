"""Why a run is flat, falls or swings: one check a failure, each healthy, a finding, or unavailable with what to log.

`CHECKS` is the registry, `diagnose` asks all of them and concludes. It mends nothing.
"""

from __future__ import annotations

from groupwise.diagnostics import collapse, concentration, degeneracy, hacking, instability, length, no_learning, verdict, verifier
from groupwise.diagnostics.findings import Cause, Check, Diagnosis, Finding, Healthy, Outcome, Unavailable
from groupwise.diagnostics.signals import Evidence
from groupwise.record import RunRecord

__all__ = ["CHECKS", "Cause", "Check", "Diagnosis", "Evidence", "Finding", "Healthy", "Outcome", "Unavailable", "diagnose"]

# The verifier first: its failure looks like all the others.
CHECKS = (
    Check("verifier_failure", "The verifier", verifier.check),
    Check("reward_hacking", "Training against held-out reward", hacking.check),
    Check("advantage_degeneracy", "Groups that teach", degeneracy.check),
    Check("policy_concentration", "Variety of the policy", concentration.check),
    Check("dynamical_instability", "Swings and breakdown", instability.check),
    Check("collapse", "Height of the reward", collapse.check),
    Check("no_learning", "Movement", no_learning.check),
    Check("length_runaway", "Length of the completions", length.check),
)


def diagnose(record: RunRecord) -> Diagnosis:
    """Ask every check and conclude.

    Args:
        record: a run.

    Returns:
        Verdict, causes with probabilities, findings, and what could not be looked at.

    Example:
        >>> from groupwise.tables import steps_table
        >>> reward = [0.8 + 0.01 * (-1) ** t for t in range(40)] + [0.0] * 20
        >>> diagnose(RunRecord("demo", steps_table(range(60), {"reward": reward}))).findings[0].since_step
        40
    """
    evidence = Evidence(record)
    return verdict.conclude(record.name, [check.run(evidence) for check in CHECKS])
