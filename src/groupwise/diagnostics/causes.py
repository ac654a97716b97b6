"""From what moved to why: the causes, the evidence that each must show, and what to do about it.

A cause whose own evidence is missing is never named. Where two are left, both are named with what
to log to tell them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from groupwise.diagnostics.judgement import Cause, Certainty, Finding, Learning, Sign, Status
from groupwise.diagnostics.signals import Evidence, gained_since, stands_since
from groupwise.diagnostics.verifier import who_fails

LENGTH = "the policy ran away in length"
UNSTABLE = "the policy came apart (instability)"
SHORT = "the policy came apart (instability): its answers shrank"
NUMERICS = "numerics"
VERIFIER = "a broken verifier"
HARDER = "harder data"
HACKING = "reward hacking"
OVERFITTING = "overfitting"
TRUNCATION = "truncation: most completions hit the limit"
CONCENTRATION = "policy concentration: the entropy is spent"
SAMPLER = "the sampler does not match the trainer"
SMALL_GROUP = "the group is too small for these prompts"
FORMAT = "the format alone earns the reward"
AGAINST = "the reward functions pull against each other"
ALIKE = "zero-variance groups: hardly any group teaches"
NO_RATE = "the learning rate is 0"
NO_GRADIENT = "no gradient reaches the policy"
TOO_HARD = "the task is too hard"
REPETITION = "completions repeat themselves"
PAID = "truncated answers are paid"
STALE = "rollouts are older than the settings say"
FAR = "the policy is far from its reference (KL)"
TOOLS = "tool calls fail"
ROUTER = "the load of the experts drifts"
RESTART = "a restart that lost state"
DISCARDS = "discards starve slow, hard prompts"

# Quantities of the sampler beside the trainer.
SAMPLED = ("sampler_mismatch", "effective_sample_size", "importance_ratio", "staleness")

LOG_BEHAVIOUR = "entropy and completion length"
LOG_LENGTH = "completion length"
LOG_REWARDS = "completions with their rewards"
LOG_HELD_OUT = "a held-out reward"

# Times its usual height at which a gradient before a fall is no gradient any more.
_EXPLODED = 1e4

# Times their length before at which answers ran away, and shrank.
_MUCH_LONGER, _SHRANK = 1.5, 0.6

# Rows that two changes may be apart and be about one.
_ABOUT = 6

# What to do about a cause, a line; {step} is the last step before the first sign.
DO: Mapping[str, str] = {
    LENGTH: "restart from step {step}; mask truncated completions; lr ÷ 3",
    UNSTABLE: "restart from step {step}; lr ÷ 3, or fewer updates a generation",
    SHORT: "restart from step {step}; lr ÷ 3, or fewer updates a generation",
    NUMERICS: "restart from step {step}; clip the gradient; lr ÷ 3; look for empty masks",
    VERIFIER: "run the reward function by hand on completions of step {onset}; restart from step {step}",
    HARDER: "see what changed in the prompts at step {onset} before you stop",
    HACKING: "read the completions with the highest reward; close the loophole; restart from step {step}",
    OVERFITTING: "evaluate on fresh prompts; keep the checkpoint with the best held-out reward",
    TRUNCATION: "raise the completion limit, or mask truncated completions",
    CONCENTRATION: "restart from step {step}; keep entropy: clip higher, a KL or entropy term, new prompts",
    SAMPLER: "restart from step {step}; sample and train in one precision; truncate importance weights",
    SMALL_GROUP: "raise the group size, or drop prompts that are always right or always wrong",
    FORMAT: "weigh correctness above format; grade some completions by hand",
    AGAINST: "weigh them anew: what one earns another takes back",
    ALIKE: (
        "look at two completions of one prompt; filter prompts by pass rate, or raise the group "
        "size"
    ),
    NO_RATE: "set a learning rate above 0; check the schedule and its number of steps",
    NO_GRADIENT: "look at advantages and loss mask of one batch: the rewards differ and nothing moves",
    REPETITION: "read some completions; penalise repetition, or lower the temperature",
    PAID: "pay no truncated answer",
    STALE: "check the queue between sampler and trainer",
    FAR: "restart from step {step}; lr ÷ 3, or a KL term",
    TOOLS: "read failing tool calls; check the environment before the policy",
    ROUTER: "raise the balance loss of the router, or replay its routes in training",
    RESTART: "resume with optimizer state, weights of the sampler and data order",
    DISCARDS: "keep partial rollouts, or raise the allowed age; log the pass rate of what is dropped",
    TOO_HARD: "grade some completions by hand; take easier prompts",
}


@dataclass(frozen=True, slots=True)
class Case:
    """What is known of a failure."""

    evidence: Evidence
    answers: Mapping[str, Finding]  # of the checks, by name
    signs: Mapping[str, Sign]  # signals that moved about it, by quantity
    onset: int | None  # step of the failure
    abrupt: bool = True  # whether the reward fell within a few rows
    slow: bool = False  # whether it took a good part of the log
    learning: Learning = Learning.UNKNOWN

    def fact(self, name: str) -> str:
        """Return what the checks say of a fact, the first that says anything."""
        return next(
            (one.evidence[name] for one in self.answers.values() if one.evidence.get(name)), ""
        )

    def ratio(self, quantity: str) -> float:
        """Return the level after over that before of a signal that moved; 1 where it did not."""
        sign = self.signs.get(quantity)
        if sign is None or not sign.before or sign.at_change is None:
            return 1.0
        return sign.at_change / sign.before

    def gained(self, quantity: str) -> float:
        """Return the level after less that before of a signal that moved; 0 where it did not."""
        sign = self.signs.get(quantity)
        return (
            0.0
            if sign is None or sign.before is None or sign.at_change is None
            else sign.at_change - sign.before
        )

    @property
    def sampler_first(self) -> bool:
        """Whether sampler and trainer came apart before anything else moved: a policy that
        breaks takes them apart as well.
        """
        found = next(
            (one for one in self.answers.values() if one.evidence.get("sampler") == "mismatch"),
            None,
        )
        if found is not None and found.evidence.get("rate") == "zero":
            return True  # nothing is learnt, so that the engines themselves differ
        mine = [sign.step for sign in (*(found.signs if found else ()), *self._of_sampler)]
        others = [
            sign.step for name, sign in self.signs.items() if name not in (*SAMPLED, "reward")
        ]
        # Of a slow fall the first rows are hard to tell from noise: the reward moved where it was
        # halfway down.
        others += [self.onset] if "reward" in self.signs and self.onset is not None else []
        return bool(mine) and min(mine) < min(others, default=min(mine) + 1)

    @property
    def _of_sampler(self) -> list[Sign]:
        """The signs of the sampler about the change."""
        return [
            sign for name, sign in self.signs.items() if name in SAMPLED and self.ratio(name) >= 5
        ]

    @property
    def fell_at_restart(self) -> bool:
        """Whether the reward is among what jumped as the run was restarted."""
        jumps = next(
            (one.signs for one in self.answers.values() if one.evidence.get("restart") == "jump"),
            (),
        )
        return any(sign.signal == "reward" for sign in jumps)

    @property
    def shrank(self) -> bool:
        """Whether answers got shorter about the change, and the last ones are much shorter than
        before it.
        """
        length, sign = (
            self.evidence.quantity("completion_length"),
            self.signs.get("completion_length"),
        )
        if (
            length is None
            or sign is None
            or not sign.before
            or self.ratio("completion_length") >= 1
        ):
            return False
        return float(length.value_T[-max(3, len(length) // 10) :].mean()) <= _SHRANK * sign.before

    @property
    def tools_failed(self) -> bool:
        """Whether tool calls have come to fail about the change."""
        found = next(
            (one for one in self.answers.values() if one.evidence.get("tools") == "fail"), None
        )
        reward = self.evidence.reward
        if found is None or found.step is None or reward is None or self.onset is None:
            return False
        return abs(reward.at(found.step) - reward.at(self.onset)) <= max(_ABOUT, len(reward) // 16)

    @property
    def watched(self) -> bool:
        """Whether entropy or length is logged, so that a policy that came apart would show."""
        return any(
            self.evidence.quantity(name) is not None for name in ("entropy", "completion_length")
        )


# What the verifier's check saw of grades alone, and how surely it is the verifier.
_OF_VERIFIER = {
    "failures logged": Certainty.LIKELY,
    "outages": Certainty.POSSIBLE,
    "frozen": Certainty.POSSIBLE,
}


def cause_of_fall(case: Case) -> Cause:
    """Say why a reward fell, or never rose from 0."""
    if case.fact("numbers") == "not finite":  # where the rewards alone are no numbers, they come so
        first = case.fact("first_column")
        return (
            Cause(Certainty.POSSIBLE, (VERIFIER,))
            if "reward" in case.signs
            else _likely(f"{NUMERICS} ({first} first)")
        )
    if case.fact("gradient") == "exploded" or case.ratio("gradient_norm") >= _EXPLODED:
        return _likely(f"{NUMERICS} (the gradient exploded)")
    if case.fact("sampler") == "mismatch" and case.sampler_first:
        return _likely(SAMPLER)
    if case.fact("rate") == "likely":
        return _likely(NO_RATE)
    standing = cause_of_standing(case) if case.fact("fall") == "answers" else Cause()
    if (
        standing.names
    ):  # the reward goes on: a policy that gives one short answer has not come apart
        return standing
    if case.fact("drop") in _OF_VERIFIER:
        return Cause(_OF_VERIFIER[case.fact("drop")], (VERIFIER,))
    if case.fact("drop") == "nothing":
        standing = cause_of_standing(case)
        return (
            standing
            if standing.names
            else Cause(Certainty.CANNOT_TELL, (TOO_HARD, VERIFIER), (LOG_REWARDS,))
        )
    if case.sampler_first:
        return _likely(SAMPLER)
    # A policy that answers what is held out as before has not come apart, whatever it does on other
    # prompts.
    return _graded_down(case) if "of training alone" in case.fact("fall") else _of_behaviour(case)


def _of_behaviour(case: Case) -> Cause:
    """Say what the policy did as the reward fell, or that it went on as before."""
    length, entropy = case.ratio("completion_length"), case.ratio("entropy")
    # Answers of a policy that comes apart grow a little with its entropy, and those to harder
    # prompts without it.
    if length >= _MUCH_LONGER or case.gained("truncated_share") >= 0.15:
        return _likely(LENGTH)
    if length <= _SHRANK:
        # What concentrates as its answers shrink may do what it is paid for.
        return _likely(SHORT) if entropy >= 1 else Cause(Certainty.POSSIBLE, (SHORT,))
    apart = (
        case.fact("swings") == "oscillate"
        or case.ratio("gradient_norm") >= 10
        or case.fact("weights")
    )
    if entropy >= 1.4 or apart:
        if not any(
            case.evidence.quantity(name) for name in ("completion_length", "truncated_share")
        ):
            return Cause(Certainty.CANNOT_TELL, (UNSTABLE, LENGTH), (LOG_LENGTH,))
        return _likely(SHORT if case.shrank else UNSTABLE)
    if entropy <= 0.5 and (case.fact("drop"), case.fact("behaviour")) != (
        "constant at once",
        "unchanged",
    ):
        return Cause(Certainty.POSSIBLE, (CONCENTRATION,))
    # A slow decline, or that of one function, is no verifier's.
    slow = case.slow or case.fact("fall").startswith(("function", "partial"))
    return (
        cause_of_standing(case)
        if slow and case.fact("drop") not in ("part at once", "constant at once")
        else _graded_down(case)
    )


def _graded_down(case: Case) -> Cause:
    """Say why a reward fell while the answers stayed as they were, as far as is logged."""
    if not case.watched and case.tools_failed:
        return Cause(Certainty.POSSIBLE, (TOOLS,))
    if not case.watched:
        return Cause(Certainty.CANNOT_TELL, (VERIFIER, UNSTABLE), (LOG_BEHAVIOUR,))
    if case.fact("drop") == "constant at once":
        return _likely(VERIFIER)
    if case.tools_failed:
        return _likely(TOOLS)
    prompts = case.fact("prompts") or (
        "" if case.onset is None else who_fails(case.evidence, case.onset)
    )
    if prompts == "whole prompts fail":
        return _likely(HARDER)
    if prompts == "scattered answers fail" or case.fact("held_out_drop") == "dropped":
        return _likely(VERIFIER) if case.abrupt else Cause(Certainty.POSSIBLE, (VERIFIER,))
    if case.fact("truncation") == "likely" and case.gained("truncated_share") > 0:
        return _likely(TRUNCATION)  # few answers end, and as their share moves so does the reward
    if case.fell_at_restart:
        return Cause(Certainty.POSSIBLE, (RESTART,))
    if not case.abrupt and "of training alone" not in case.fact("fall"):
        return Cause(Certainty.CANNOT_TELL, (HARDER, UNSTABLE), (LOG_REWARDS, LOG_HELD_OUT))
    return Cause(Certainty.CANNOT_TELL, (VERIFIER, HARDER), (LOG_REWARDS,))


def _likely(name: str) -> Cause:
    """A likely cause."""
    return Cause(Certainty.LIKELY, (name,))


# What a check says, the cause it speaks for, and how sure that is.
_STANDING = (
    ("rate", "likely", NO_RATE, Certainty.LIKELY),
    ("gradient", "lost", NO_GRADIENT, Certainty.LIKELY),
    ("truncation", "likely", TRUNCATION, Certainty.LIKELY),
    ("truncation", "possible", TRUNCATION, Certainty.POSSIBLE),
    ("reward", "format alone", FORMAT, Certainty.LIKELY),
    ("reward", "against each other", AGAINST, Certainty.LIKELY),
    ("entropy", "gone", CONCENTRATION, Certainty.LIKELY),
    ("entropy", "low", CONCENTRATION, Certainty.POSSIBLE),
    ("small_group", "likely", SMALL_GROUP, Certainty.LIKELY),
    ("zero_variance", "above expectation", ALIKE, Certainty.LIKELY),
    ("sampler", "mismatch", SAMPLER, Certainty.POSSIBLE),
    ("components", "part", HACKING, Certainty.POSSIBLE),
    ("texts", "repeat", REPETITION, Certainty.POSSIBLE),
    ("truncated", "paid", PAID, Certainty.POSSIBLE),
    ("staleness", "beyond the settings", STALE, Certainty.POSSIBLE),
    ("kl", "huge", FAR, Certainty.POSSIBLE),
    ("tools", "fail", TOOLS, Certainty.LIKELY),
    ("router", "load", ROUTER, Certainty.POSSIBLE),
    ("restart", "jump", RESTART, Certainty.POSSIBLE),
    ("discards", "stale", DISCARDS, Certainty.POSSIBLE),
    ("swings", "oscillate", UNSTABLE, Certainty.LIKELY),
    ("small_group", "possible", SMALL_GROUP, Certainty.POSSIBLE),
)


def cause_of_standing(case: Case) -> Cause:
    """Say why a reward stands still, or what else is wrong, from the facts of the checks."""
    if (case.fact("cut_off"), case.fact("truncated")) == ("in mid-run", "paid"):
        return Cause(
            Certainty.POSSIBLE, (PAID,)
        )  # the policy has learnt to be cut off, since that pays better than an end
    for name, value, cause, certainty in _STANDING:
        found = next(
            (answer for answer in case.answers.values() if answer.evidence.get(name) == value), None
        )
        if found is not None:
            rises = cause in (CONCENTRATION, ALIKE) and _rises(case, found)
            return Cause(Certainty.POSSIBLE if rises else certainty, (cause,))
    return Cause()


def _rises(case: Case, found: Finding) -> bool:
    """Whether a policy that concentrates may still be learning what pays: its reward rose, and goes
    on, or is not shown to stand.

    Of groups that broke at once, or of which hardly any teaches a policy without entropy, only a
    reward that rises since says so.
    """
    if case.learning is not Learning.LEARNING or stands_since(case.evidence, found.step):
        return False
    lost = found.evidence.get("groups") == "at once" or (
        "entropy" in found.evidence and case.fact("zero_variance") == "above expectation"
    )
    return not lost or gained_since(case.evidence, found.step)


def advice_for(
    cause: Cause, finding: Finding | None, *, step: int | None, onset: int | None
) -> str:
    """Return the line that says what to do: of the cause, or else of the check."""
    known = [DO[name] for full in cause.names for name in DO if full.startswith(name)]
    if cause.certainty is Certainty.CANNOT_TELL and len(known) > 1:
        known = [f"log {cause.log[0]}", known[0]] if cause.log else known[:1]
        line = "; ".join(known)
    elif known:
        line = known[0]
    else:
        line = "" if finding is None else finding.advice
    if step is None:
        line = "; ".join(part for part in line.split("; ") if "{step}" not in part)
    if onset is None:
        line = line.replace(" at step {onset}", "").replace(" of step {onset}", "")
    return line.format(
        step=f"{step:,}" if step is not None else "",
        onset=f"{onset:,}" if onset is not None else "",
    )


def is_serious(finding: Finding) -> bool:
    """Whether a finding asks for a look or more."""
    return finding.status in (Status.WARNING, Status.CRITICAL)
