"""Divergence from the reference policy: a KL that is huge and stays so. What moved the policy is not judged here."""

from __future__ import annotations

import numpy as np

from groupwise.diagnostics.judgement import Finding, Sign, Status
from groupwise.diagnostics.numerics import beyond, fell_since, rose_since
from groupwise.diagnostics.signals import FEWEST_ROWS, Evidence, counted
from groupwise.intervals import Interval

NAME = "divergence"
LOG = "the mean KL divergence to the reference policy, nats a token (TRL: beta above 0; verl: actor.use_kl_loss=True)"
# At 3 nats the mean token is e^3 = 20 times as likely as under the reference; trained policies stay below 1 or so. Beyond the logarithm
# of a vocabulary, 12.5 for 270,000 tokens, the reference would have fared better by drawing tokens at random.
FAR, BEYOND_CHANCE = 3.0, 12.5


def check(evidence: Evidence) -> Finding:
    """Look for a KL to the reference that has come to be huge."""
    kl = evidence.quantity("kl")
    if kl is None:
        return Finding(NAME, Status.NOT_LOGGED, "The KL to the reference policy is not in the log.", log=LOG)
    if len(kl) < FEWEST_ROWS:
        return Finding(NAME, Status.NONE, f"No sign of it in {counted(len(kl), 'row')} of KL.")
    row = beyond(kl, kl.value_T > FAR)
    if row is None:
        return _none(kl.value_T, kl.step_T)
    step, late = int(kl.step_T[row]), float(np.median(kl.value_T[row:]))
    top = float(kl.value_T[row:].max())
    before = float(np.median(kl.value_T[max(0, row - 20) : row])) if row else None
    # Some trainers sum the KL over an answer: where the reward rises it has done no harm.
    lost = fell_since(evidence, step) or (late > BEYOND_CHANCE and not rose_since(evidence, step))
    grew = "is" if before is None else f"grew from {before:.2g} to"
    message = f"The KL to the reference {grew} {late:.3g} nats a token since step {step:,}, at most {top:.3g}."
    return Finding(
        NAME,
        Status.CRITICAL if lost else Status.WARNING,
        message,
        step,
        Interval(late, late, late),
        FAR,
        advice="restart before it; lower the learning rate; weigh the KL more",
        signs=(Sign("kl", step, before, late, f"KL {'' if before is None else f'{before:.2g} → '}{late:.3g}"),),
        evidence={"kl": "huge"},
        what="median KL since, nats a token",
    )


def _none(value_T: np.ndarray, step_T: np.ndarray) -> Finding:
    """Report a KL that is not huge to the end; rows far above are worth knowing."""
    few = max(3, value_T.size // 10)
    early, late = float(np.median(value_T[:few])), float(np.median(value_T[-few:]))
    spikes = np.flatnonzero(value_T > BEYOND_CHANCE)
    if not spikes.size:
        return Finding(NAME, Status.NONE, f"No sign of it: KL {early:.2g} → {late:.2g} nats a token.")
    first, rows = int(step_T[spikes[0]]), counted(int(spikes.size), "row")
    message = f"The KL leapt to {value_T.max():.3g} in {rows}, first at step {first:,}, and is {late:.2g} at the end."
    return Finding(NAME, Status.INFO, message, first)
