r"""From what the checks saw to the cause: probabilities, or the two that cannot be told apart and what to log to tell them.

The five causes by the table of the theory page, each cell a probability; what is not logged drops out. $P(c \mid e) \propto \prod_f
P(e_f \mid c)$ with equal priors. The cells are judgements, stated here, and checked by the confusion matrix of experiments/diagnosis.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from groupwise.diagnostics.former.findings import SEVERITIES, Cause, Diagnosis, Finding, Healthy, Outcome, Unavailable
from groupwise.wording import capital

CAUSES = ("verifier_failure", "reward_hacking", "advantage_degeneracy", "policy_concentration", "dynamical_instability")
# Below this the two most probable causes are named and none is chosen.
SURE = 0.8

_OTHER = "none of these"
# P(value | cause), in the order of CAUSES and then of none of them. A value of 0.02 says "hardly ever"; only ratios within a row count.
FEATURES: Mapping[str, Mapping[str, tuple[float, float, float, float, float, float]]] = {
    "drop": {
        "none": (0.10, 0.9, 0.9, 0.9, 0.7, 0.9),
        "constant at once": (0.70, 0.01, 0.01, 0.01, 0.02, 0.02),
        "constant throughout": (0.50, 0.05, 0.50, 0.10, 0.02, 0.1),
        "part at once": (0.40, 0.02, 0.02, 0.02, 0.10, 0.40),
        "failures logged": (0.50, 0.05, 0.02, 0.02, 0.02, 0.05),
        "ties broken": (0.20, 0.05, 0.05, 0.01, 0.01, 0.05),
    },
    "fall": {
        "none": (0.15, 0.85, 0.9, 0.85, 0.35, 0.9),
        "lasting": (0.60, 0.03, 0.02, 0.03, 0.40, 0.02),
        "lasting, by and by": (0.15, 0.03, 0.02, 0.03, 0.40, 0.02),
        "of training alone": (0.60, 0.03, 0.02, 0.03, 0.05, 0.40),
        "recovered": (0.10, 0.03, 0.02, 0.02, 0.20, 0.05),
        "partial": (0.20, 0.05, 0.05, 0.05, 0.20, 0.1),
        "function": (0.20, 0.30, 0.03, 0.10, 0.20, 0.05),
        "function, by and by": (0.08, 0.30, 0.03, 0.10, 0.20, 0.05),
        "answers": (0.02, 0.15, 0.05, 0.60, 0.15, 0.02),
    },
    "behaviour": {"unchanged": (0.90, 0.5, 0.7, 0.3, 0.15, 0.5), "changed": (0.10, 0.5, 0.3, 0.7, 0.85, 0.5)},
    "held_out": {
        "follows": (0.5, 0.03, 0.8, 0.7, 0.7, 0.8),
        "flat": (0.2, 0.60, 0.2, 0.3, 0.1, 0.1),
        "falls": (0.1, 0.50, 0.02, 0.05, 0.15, 0.05),
    },
    "components": {"part": (0.05, 0.60, 0.05, 0.10, 0.05, 0.1)},
    "zero_variance": {
        "as expected": (0.6, 0.85, 0.05, 0.25, 0.7, 0.8),
        "explained by the reward": (0.7, 0.15, 0.05, 0.25, 0.5, 0.3),
        "above expectation": (0.1, 0.03, 0.90, 0.60, 0.05, 0.03),
        "all wrong": (0.5, 0.02, 0.60, 0.02, 0.05, 0.05),
    },
    "zero_variance_onset": {
        "throughout": (0.1, 0.1, 0.5, 0.2, 0.1, 0.3),
        "jump": (0.5, 0.1, 0.6, 0.1, 0.3, 0.1),
        "rising": (0.1, 0.1, 0.2, 0.7, 0.1, 0.1),
    },
    "gradient": {
        "gone": (0.3, 0.05, 0.9, 0.6, 0.1, 0.1),
        "normal": (0.3, 0.9, 0.1, 0.3, 0.4, 0.8),
        "spikes": (0.1, 0.05, 0.02, 0.02, 0.6, 0.1),
    },
    "entropy": {
        "normal": (0.9, 0.7, 0.9, 0.05, 0.4, 0.8),
        "spent at the top": (0.1, 0.2, 0.1, 0.1, 0.05, 0.3),
        "gone": (0.05, 0.2, 0.05, 0.90, 0.05, 0.1),
        "rises": (0.05, 0.05, 0.02, 0.02, 0.55, 0.1),
    },
    "swings": {
        "none": (0.8, 0.9, 0.9, 0.9, 0.3, 0.9),
        "grow": (0.2, 0.1, 0.05, 0.05, 0.5, 0.1),
        "oscillate": (0.03, 0.03, 0.02, 0.02, 0.6, 0.02),
    },
    "trend": {"up": (0.3, 0.8, 0.2, 0.3, 0.3, 0.5), "flat": (0.2, 0.1, 0.8, 0.6, 0.3, 0.5), "down": (0.6, 0.05, 0.1, 0.1, 0.5, 0.2)},
    "numbers": {"not finite": (0.02, 0.02, 0.02, 0.02, 0.9, 0.02)},
    "length": {"runaway": (0.1, 0.3, 0.1, 0.2, 0.4, 0.3)},
}
# What a check says where its cause holds, and where another does.
OWN: Mapping[str, tuple[float, float]] = {"critical": (0.7, 0.05), "warning": (0.5, 0.1), "info": (0.3, 0.3), "healthy": (0.2, 0.8)}
LOG_FOR = {
    "behaviour": "entropy and completion length (TRL: entropy, completions/mean_length; verl: actor/entropy, response_length/mean)",
    "held_out": 'a reward on held-out prompts (TRL: eval_strategy="steps"; verl: trainer.test_freq)',
    "zero_variance": "the share of groups whose rewards are all equal (TRL: frac_reward_zero_std), or the completions with their rewards "
    "(TRL: log_completions=True; verl: trainer.rollout_data_dir)",
    "entropy": "the entropy of the policy (TRL: entropy; verl: actor/entropy)",
    "gradient": "the gradient norm (TRL: grad_norm; verl: actor/grad_norm)",
    "components": "each reward function by itself (TRL: rewards/NAME/mean; verl: reward_extra_info of the reward function)",
}
# What follows from a cause and is no second one.
_FOLLOWS: Mapping[str, frozenset[str]] = {
    "verifier_failure": frozenset({"advantage_degeneracy", "dynamical_instability"}),
    "policy_concentration": frozenset({"advantage_degeneracy"}),
    "dynamical_instability": frozenset({"advantage_degeneracy", "policy_concentration"}),
    "reward_hacking": frozenset(),
    "advantage_degeneracy": frozenset(),
}


# Columns that several features are read off: together they count as one.
SOURCES: Mapping[str, str] = {
    "drop": "reward",
    "fall": "reward",
    "swings": "reward",
    "trend": "reward",
    "zero_variance": "groups",
    "zero_variance_onset": "groups",
}
# Fewer answers than this, or no usable reward, and nothing is said.
FEWEST_CHECKS = 3
NO_SIGNAL = (
    "Cannot tell between verifier failure and advantage degeneracy (the task is too hard, or all rollouts of a prompt are the same): log "
    "the completions with their rewards, and grade some by hand."
)


def enough(outcomes: Sequence[Outcome]) -> bool:
    """Return whether enough could be looked at to call a run healthy: a usable reward, and three checks."""
    looked = [outcome for outcome in outcomes if not isinstance(outcome, Unavailable)]
    return len(looked) >= FEWEST_CHECKS and any(outcome.check == "verifier_failure" for outcome in looked)


def conclude(run: str, outcomes: Sequence[Outcome], logged: Collection[str] = ()) -> Diagnosis:
    """Put outcomes together."""
    found = [o for o in outcomes if isinstance(o, Finding)]
    findings = tuple(sorted(found, key=lambda finding: (-SEVERITIES.index(finding.severity), finding.since_step or 0)))
    healthy = tuple(o for o in outcomes if isinstance(o, Healthy))
    missing = tuple(o for o in outcomes if isinstance(o, Unavailable))
    serious = [finding for finding in findings if finding.severity != "info"]
    if serious:
        verdict, sentence, causes, advice = _judge(serious, healthy, outcomes, logged)
        findings = (replace(findings[0], advice=f"{findings[0].advice} {advice}".rstrip()), *findings[1:])
    elif enough(outcomes):
        verdict, sentence, causes = "healthy", _calm(healthy, missing), ()
    else:
        verdict, sentence, causes = "undetermined", _too_little(outcomes, missing), ()
    return Diagnosis(run, verdict, sentence, causes, findings, healthy, missing)


def _judge(
    serious: Sequence[Finding], healthy: Sequence[Healthy], outcomes: Sequence[Outcome], logged: Collection[str]
) -> tuple[str, str, tuple[Cause, ...], str]:
    """The verdict on a run with findings, its sentence, the causes, and what would settle the cause where it is open."""
    if any(finding.evidence.get("drop") == "constant throughout" for finding in serious):
        return "undetermined", NO_SIGNAL, probabilities({"drop": "constant throughout"}), NO_SIGNAL
    facts = facts_of(outcomes)
    causes = probabilities(facts, outcomes)
    own = _independent(serious)
    if len(own) > 1:
        return "several", f"Several things are wrong: {' and '.join(_words(finding.check) for finding in own)}.", causes, ""
    if facts.pop("rate", "") == "zero":
        return "undetermined", "Nothing is learnt: the learning rate is 0.", (), ""
    first = causes[0]
    if first.probability >= SURE and _pointed(serious, healthy, first.cause):
        return first.cause, f"Most probably {_words(first.cause)} ({chance_in_words(first.probability)}).", causes, ""
    told = _cannot_tell(causes, {*facts, *logged}, pointed=any(finding.check in (*CAUSES, "collapse") for finding in serious))
    return "undetermined", told, causes, told


def facts_of(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Collect the facts of all checks; of one feature the first that is no "normal" or "none" stands."""
    facts: dict[str, str] = {}
    order = {"entropy": ("rises", "gone", "spent at the top", "normal"), "gradient": ("spikes", "gone", "normal")}
    for outcome in outcomes:
        for feature, value in outcome.evidence.items():
            if not value:
                continue
            rank = order.get(feature, ())
            if feature not in facts or (value in rank and rank.index(value) < rank.index(facts[feature])):
                facts[feature] = value
    return facts


def probabilities(facts: Mapping[str, str], outcomes: Sequence[Outcome] = ()) -> tuple[Cause, ...]:
    """Return the five causes with their probabilities, most probable first."""
    names = (*CAUSES, _OTHER)
    logs = [0.0] * len(names)
    for cells in _telling_cells(facts):
        logs = [total + math.log(cell) for total, cell in zip(logs, cells, strict=True)]
    for outcome in outcomes:
        if outcome.check in CAUSES and not isinstance(outcome, Unavailable):
            own, other = OWN["healthy" if isinstance(outcome, Healthy) else outcome.severity]
            logs = [total + math.log(own if name == outcome.check else other) for name, total in zip(names, logs, strict=True)]
    top = max(logs)
    weights = [math.exp(total - top) for total in logs]
    causes = [Cause(name, weight / sum(weights)) for name, weight in zip(CAUSES, weights, strict=False)]
    return tuple(sorted(causes, key=lambda cause: -cause.probability))


def _telling_cells(facts: Mapping[str, str]) -> list[tuple[float, ...]]:
    """Of each source the cells of the fact that tells most, so that one column counts once."""
    chosen: dict[str, tuple[float, ...]] = {}
    for feature, value in facts.items():
        cells = FEATURES.get(feature, {}).get(value)
        source = SOURCES.get(feature, feature)
        if cells is not None and (source not in chosen or max(cells) / min(cells) > max(chosen[source]) / min(chosen[source])):
            chosen[source] = cells
    return list(chosen.values())


def telling(first: str, second: str, known: Collection[str]) -> str | None:
    """Return the feature not yet known that tells two causes apart best, by the expected log likelihood ratio."""
    one, other = CAUSES.index(first), CAUSES.index(second)

    def gain(feature: str) -> float:
        return sum((cell[one] - cell[other]) * math.log(cell[one] / cell[other]) for cell in FEATURES[feature].values())

    return max((feature for feature in LOG_FOR if feature not in known), key=gain, default=None)


def _independent(serious: Sequence[Finding]) -> list[Finding]:
    """Critical findings of different causes, without those that follow from another that came no later than a little after."""
    own = [finding for finding in serious if finding.check in CAUSES and finding.severity == "critical"]
    return [
        finding
        for finding in own
        if not any(finding.check in _FOLLOWS[other.check] and _before(other, finding) for other in own if other is not finding)
    ]


def _before(cause: Finding, finding: Finding) -> bool:
    """Whether one came no later than another, or a little after: onsets are known to a tenth."""
    since = finding.since_step or 0
    return (cause.since_step or 0) <= since + max(10, since // 10)


def _too_little(outcomes: Sequence[Outcome], missing: Sequence[Unavailable]) -> str:
    """Say that too little could be looked at, and why."""
    reasons = "; ".join(dict.fromkeys(item.reason for item in missing))
    looked = f"{len(outcomes) - len(missing)} of {len(outcomes)} checks could"
    return f"Too little can be looked at: {looked}. {capital(reasons)}."


def _pointed(serious: Sequence[Finding], healthy: Sequence[Healthy], cause: str) -> bool:
    """Whether a finding speaks of the cause itself, or of a collapse that it explains and its own check does not speak against."""
    checks = {finding.check for finding in serious}
    return cause in checks or ("collapse" in checks and cause not in {outcome.check for outcome in healthy})


def _cannot_tell(causes: Sequence[Cause], known: Collection[str], *, pointed: bool) -> str:
    """Say what remains, two causes or one and none of the five, and what would tell them apart."""
    first, second, *_ = causes
    if not pointed or first.probability + second.probability < 0.5:
        return "None of the five causes explains it: what was found stands by itself."
    none = 1 - sum(cause.probability for cause in causes)
    other, chance = (_words(second.cause), second.probability) if second.probability >= none else ("none of the five causes", none)
    feature = telling(first.cause, second.cause, known)
    log = f": log {LOG_FOR[feature]}" if feature is not None else ": read the completions from before and after"
    return f"Cannot tell between {_words(first.cause)} ({chance_in_words(first.probability)}) and {other} ({chance_in_words(chance)}){log}."


def chance_in_words(probability: float) -> str:
    """Write a probability of a cause: never as a certainty."""
    return "more than 99 %" if probability > 0.99 else f"{100 * probability:.0f} %"


def _calm(healthy: Sequence[Healthy], missing: Sequence[Unavailable]) -> str:
    """Say that nothing was found, and how much was looked at."""
    looked = f"{len(healthy)} of {len(healthy) + len(missing)} checks could look" if missing else "all checks could look"
    return f"No failure found; {looked}."


def _words(cause: str) -> str:
    """A check's name as words."""
    return cause.replace("_", " ")
