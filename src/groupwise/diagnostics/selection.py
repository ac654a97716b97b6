"""Whether the rewards that are logged are of a selection: where what is slow or fails is left out,
they rise and the policy does not.

Who leaves it out is not judged here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from groupwise.diagnostics.facts import Fact
from groupwise.diagnostics.falls import end_levels
from groupwise.diagnostics.judgement import Finding, Sign, Status
from groupwise.diagnostics.signals import Evidence, ends_of
from groupwise.diagnostics.signs import arrow
from groupwise.wording import clean

# Lengths of trained over held-out answers, last over first; what is left out, or was kept, over
# what it was; standard errors of that.
SHORTER, MORE, SURELY = 0.75, 1.5, 5.0
_LEFT_OUT = (
    r"(?!.*total).*(filtered_?out|num_filtered|discard|drop(s|ped)?([/_]|$)|reject|requeue"
    r"|num_gen_batches).*"
)


def beside_selection(finding: Finding, evidence: Evidence) -> Finding:
    """Add what is known of a selection to a finding of a reward that rose alone."""
    for fact, words in _selections(evidence):
        if finding.status is Status.INFO:
            break
        sign = Sign("selection", finding.step or 0, None, None, words)
        return replace(
            finding,
            status=Status.WARNING,
            message=f"{finding.message.removesuffix('.')}; {words}.",
            signs=(sign, *finding.signs),
            facts=(*finding.facts, fact),
        )
    return finding


def _selections(evidence: Evidence) -> Iterator[tuple[Fact, str]]:
    """Yield what speaks for a selection: trained answers that got shorter than the held-out ones of
    the same policy, or ever more that is left out of the only reward.
    """
    length = evidence.quantity("completion_length")
    for _, held in evidence.named("eval/completion_length"):
        (first, last), others = end_levels(length or held), end_levels(held)
        if last * others[0] < SHORTER * first * others[1]:
            words = f"trained length {arrow(first, last)}, held-out {arrow(*others)}"
            yield Fact.SELECTED_BY_LENGTH, words
    kept = list(map(evidence.quantity, ("admitted_share", "trained_samples")))
    left_out = map(evidence.quantity, ("dropped_samples", "stale_samples"))
    for signal in filter(None, (*kept, *left_out, *evidence.matching(_LEFT_OUT))):
        ends = end_levels(signal)
        rises = signal.score(*ends_of(signal)) * (-1 if signal in kept else 1)
        if evidence.quantity("reward_admitted"):
            break
        if rises > SURELY and max(ends) > MORE * min(ends):
            yield Fact.MORE_LEFT_OUT, f"{clean(signal.column, longest=40)} {arrow(*ends)}"
