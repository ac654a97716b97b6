"""From what moved to why: the causes, the evidence that each must show, and what to do about it.

A cause whose own evidence is missing is never named. Where two are left, both are named with what
to log to tell them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from groupwise.diagnostics.facts import Fact, stated
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
TRUNCATED_SAMPLING = "the sampler draws from a truncated distribution (top-p, top-k or min-p)"
SUMMED = "a ratio is summed over tokens, not averaged"
NEVER_SYNCED = "the trained weights never reach the sampler"
OLD = "the rollouts wait in a stale queue"
RETOKENISED = "the history is tokenised again between turns"
DRIFTING = "the optimisation itself drives sampler and trainer apart"
ADVANTAGES = "advantages are divided by a deviation near 0"
TOO_LONG = "the update is far longer than the settings say"
TOO_SHORT = "hardly any of the policy's gradient arrives"
ENVIRONMENT = "one environment loses what the others hide"
INFRASTRUCTURE = "environments or infrastructure fail"
PRECISION = "the engines compute in unlike precision"
TOO_FAST = "the learning rate is too large from the start"
TOO_SLOW = "the learning rate is far too small"
FEW_PROMPTS = "too few prompts a step"
NO_CALLS = "the policy stops calling its tools"

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
    VERIFIER: (
        "run the reward function by hand on completions of step {onset}; restart from step {step}"
    ),
    HARDER: "see what changed in the prompts at step {onset} before you stop",
    HACKING: (
        "read the completions with the highest reward; close the loophole; restart from step {step}"
    ),
    OVERFITTING: "evaluate on fresh prompts; keep the checkpoint with the best held-out reward",
    TRUNCATION: "raise the completion limit, or mask truncated completions",
    CONCENTRATION: (
        "restart from step {step}; keep entropy: clip higher, a KL or entropy term, new prompts"
    ),
    SAMPLER: (
        "restart from step {step}; sample and train in one precision; truncate importance weights"
    ),
    SMALL_GROUP: "raise the group size, or drop prompts that are always right or always wrong",
    FORMAT: "weigh correctness above format; grade some completions by hand",
    AGAINST: "weigh them anew: what one earns another takes back",
    ALIKE: (
        "look at two completions of one prompt; filter prompts by pass rate, or raise the group "
        "size"
    ),
    NO_RATE: "set a learning rate above 0; check the schedule and its number of steps",
    NO_GRADIENT: (
        "look at advantages and loss mask of one batch: the rewards differ and nothing moves"
    ),
    REPETITION: "read some completions; penalise repetition, or lower the temperature",
    PAID: "pay no truncated answer",
    STALE: "check the queue between sampler and trainer",
    FAR: "restart from step {step}; lr ÷ 3, or a KL term",
    TOOLS: "read failing tool calls; check the environment before the policy",
    ROUTER: "raise the balance loss of the router, or replay its routes in training",
    RESTART: "resume with optimizer state, weights of the sampler and data order",
    DISCARDS: (
        "keep partial rollouts, or raise the allowed age; log the pass rate of what is dropped"
    ),
    TOO_HARD: "grade some completions by hand; take easier prompts",
    TRUNCATED_SAMPLING: (
        "sample at top_p 1 without top-k and min-p, or renormalise the trainer's probabilities over "
        "the kept tokens"
    ),
    SUMMED: "average the log-ratio over the tokens of an answer",
    NEVER_SYNCED: (
        "check the synchronisation of weights or adapter: rollouts seem to come from the first "
        "policy"
    ),
    OLD: "fewer updates a generation, or a bound on the age of rollouts",
    RETOKENISED: "train on the sampled tokens; do not tokenise the history again",
    DRIFTING: "restart from step {step}; lr ÷ 3: the gap grows with the gradient",
    ADVANTAGES: "leave out groups of near ties, or add an epsilon to the deviation",
    TOO_LONG: "compare the loss of one batch with a hand-written one; check what is summed",
    TOO_SHORT: (
        "check that the loss holds the policy term: without it a higher lr only follows the KL"
    ),
    ENVIRONMENT: "evaluate that environment alone; weigh it up, or restart from step {step}",
    INFRASTRUCTURE: (
        "mask episodes that fail by their environment; look at its log of step {onset}"
    ),
    PRECISION: "one precision and deterministic kernels in both, or truncate importance weights",
    TOO_FAST: "start anew with lr ÷ 10 and a warm-up of 20 updates",
    TOO_SLOW: "lr × 10 (LoRA takes ten times the rate of all weights)",
    FEW_PROMPTS: "smaller groups of more prompts: G = 8 at the same number of rollouts",
    NO_CALLS: "read answers without calls; restart from step {step}; reward the use of tools",
}


@dataclass(frozen=True)
class Case:
    """What is known of a failure."""

    evidence: Evidence
    answers: Mapping[str, Finding]  # of the checks, by name
    signs: Mapping[str, Sign]  # signals that moved about it, by quantity
    onset: int | None  # step of the failure
    abrupt: bool = True  # whether the reward fell within a few rows
    slow: bool = False  # whether it took a good part of the log
    learning: Learning = Learning.UNKNOWN

    @cached_property
    def facts(self) -> frozenset[Fact]:
        """What the checks state."""
        return frozenset(fact for answer in self.answers.values() for fact in answer.facts)

    def finding(self, fact: Fact) -> Finding | None:
        """Return the answer that states a fact, or None."""
        return next((answer for answer in self.answers.values() if fact in answer.facts), None)

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
        if Fact.MISMATCH_AT_RATE_ZERO in self.facts:
            return True  # nothing is learnt, so that the engines themselves differ
        mismatch = self.finding(Fact.SAMPLER_MISMATCH)
        own = [sign.step for sign in (*(mismatch.signs if mismatch else ()), *self._of_sampler)]
        others = [
            sign.step for name, sign in self.signs.items() if name not in (*SAMPLED, "reward")
        ]
        # Of a slow fall the first rows are hard to tell from noise: the reward moved where it was
        # halfway down.
        others += [self.onset] if "reward" in self.signs and self.onset is not None else []
        return bool(own) and min(own) < min(others, default=min(own) + 1)

    @property
    def _of_sampler(self) -> list[Sign]:
        """The signs of the sampler about the change."""
        return [
            sign for name, sign in self.signs.items() if name in SAMPLED and self.ratio(name) >= 5
        ]

    @property
    def fell_at_restart(self) -> bool:
        """Whether the reward is among what jumped as the run was restarted."""
        jump = self.finding(Fact.RESTART_JUMP)
        return jump is not None and any(sign.signal == "reward" for sign in jump.signs)

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
        found = self.finding(Fact.TOOLS_FAIL)
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
    Fact.FAILURES_LOGGED: Certainty.LIKELY,
    Fact.OUTAGES: Certainty.POSSIBLE,
    Fact.REWARD_FROZEN: Certainty.POSSIBLE,
}
DECLINES = {Fact.DECLINE, Fact.TRAINING_DECLINES_ALONE}
# The held-out reward did not fall with the training reward.
_OF_TRAINING = {Fact.TRAINING_FALLS_ALONE, Fact.TRAINING_DECLINES_ALONE}
# A slow decline, or that of one function, is no verifier's, unless it came at once.
_SLOW = {*DECLINES, Fact.FUNCTION_FALL_AT_ONCE, Fact.FUNCTION_FALL_BY_AND_BY}
_AT_ONCE = {Fact.PART_LOST_AT_ONCE, Fact.REWARD_CONSTANT_AT_ONCE}


def cause_of_fall(case: Case) -> Cause:
    """Say why a reward fell, or never rose from 0."""
    broken = case.finding(Fact.NOT_FINITE)
    if broken is not None:  # where the rewards alone are no numbers, they come so
        return (
            Cause(Certainty.POSSIBLE, (VERIFIER,))
            if "reward" in case.signs
            else _likely(f"{NUMERICS} ({broken.column} first)")
        )
    if Fact.GRADIENT_EXPLODED in case.facts or case.ratio("gradient_norm") >= _EXPLODED:
        return _likely(f"{NUMERICS} (the gradient exploded)")
    if Fact.SAMPLER_MISMATCH in case.facts and case.sampler_first:
        return _likely(SAMPLER)
    if Fact.RATE_ZERO in case.facts:
        return _likely(NO_RATE)
    standing = cause_of_standing(case) if Fact.ANSWERS_SHRANK in case.facts else Cause()
    if (
        standing.names
    ):  # the reward goes on: a policy that gives one short answer has not come apart
        return standing
    for fact, certainty in _OF_VERIFIER.items():
        if fact in case.facts:
            return Cause(certainty, (VERIFIER,))
    if Fact.NOTHING_EARNED in case.facts:
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
    return _graded_down(case) if _OF_TRAINING & case.facts else _of_behaviour(case)


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
        Fact.REWARD_OSCILLATES in case.facts
        or case.ratio("gradient_norm") >= 10
        or Fact.FEW_WEIGHTS_COUNT in case.facts
    )
    if entropy >= 1.4 or apart:
        if not any(
            case.evidence.quantity(name) for name in ("completion_length", "truncated_share")
        ):
            return Cause(Certainty.CANNOT_TELL, (UNSTABLE, LENGTH), (LOG_LENGTH,))
        return _likely(SHORT if case.shrank else UNSTABLE)
    as_before = {Fact.REWARD_CONSTANT_AT_ONCE, Fact.BEHAVIOUR_UNCHANGED} <= case.facts
    if entropy <= 0.5 and (not as_before or Fact.BEHAVIOUR_CHANGED in case.facts):
        return Cause(Certainty.POSSIBLE, (CONCENTRATION,))
    slow = case.slow or _SLOW & case.facts
    return cause_of_standing(case) if slow and not _AT_ONCE & case.facts else _graded_down(case)


def _graded_down(case: Case) -> Cause:
    """Say why a reward fell while the answers stayed as they were, as far as is logged."""
    if not case.watched and case.tools_failed:
        return Cause(Certainty.POSSIBLE, (TOOLS,))
    if not case.watched:
        return Cause(Certainty.CANNOT_TELL, (VERIFIER, UNSTABLE), (LOG_BEHAVIOUR,))
    if Fact.REWARD_CONSTANT_AT_ONCE in case.facts:
        return _likely(VERIFIER)
    if case.tools_failed:
        return _likely(TOOLS)
    for fact, cause in ((Fact.INFRASTRUCTURE_FAILS, INFRASTRUCTURE), (Fact.TOOLS_STOPPED, NO_CALLS)):
        if case.finding(fact) is not None:
            return _likely(cause)
    failing = case.facts & {Fact.PROMPTS_FAIL, Fact.ANSWERS_FAIL}
    if not failing and case.onset is not None:
        failing = frozenset(stated(who_fails(case.evidence, case.onset)))
    if Fact.PROMPTS_FAIL in failing:
        return _likely(HARDER)
    if Fact.ANSWERS_FAIL in failing or Fact.HELD_OUT_DROPPED in case.facts:
        return _likely(VERIFIER) if case.abrupt else Cause(Certainty.POSSIBLE, (VERIFIER,))
    if Fact.TRUNCATED_LIKELY in case.facts and case.gained("truncated_share") > 0:
        return _likely(TRUNCATION)  # few answers end, and as their share moves so does the reward
    if case.fell_at_restart:
        return Cause(Certainty.POSSIBLE, (RESTART,))
    if not case.abrupt and not _OF_TRAINING & case.facts:
        return Cause(Certainty.CANNOT_TELL, (HARDER, UNSTABLE), (LOG_REWARDS, LOG_HELD_OUT))
    return Cause(Certainty.CANNOT_TELL, (VERIFIER, HARDER), (LOG_REWARDS,))


def _likely(name: str) -> Cause:
    """A likely cause."""
    return Cause(Certainty.LIKELY, (name,))


# What a check says, the cause it speaks for, and how sure that is.
_STANDING = (
    (Fact.RATE_ZERO, NO_RATE, Certainty.LIKELY),
    (Fact.DESTROYED_AT_ONCE, TOO_FAST, Certainty.LIKELY),
    (Fact.POLICY_UNMOVED, TOO_SLOW, Certainty.POSSIBLE),
    (Fact.FEW_PROMPTS, FEW_PROMPTS, Certainty.POSSIBLE),
    (Fact.GRADIENT_LOST, NO_GRADIENT, Certainty.LIKELY),
    (Fact.TRUNCATED_LIKELY, TRUNCATION, Certainty.LIKELY),
    (Fact.TRUNCATED_POSSIBLE, TRUNCATION, Certainty.POSSIBLE),
    (Fact.FORMAT_ALONE_EARNS, FORMAT, Certainty.LIKELY),
    (Fact.FUNCTIONS_OPPOSED, AGAINST, Certainty.LIKELY),
    (Fact.ENTROPY_GONE, CONCENTRATION, Certainty.LIKELY),
    (Fact.ENTROPY_LOW, CONCENTRATION, Certainty.POSSIBLE),
    (Fact.SMALL_GROUP_LIKELY, SMALL_GROUP, Certainty.LIKELY),
    (Fact.GROUPS_ALIKE, ALIKE, Certainty.LIKELY),
    (Fact.SAMPLING_TRUNCATED, TRUNCATED_SAMPLING, Certainty.LIKELY),
    (Fact.RATIO_SUMMED, SUMMED, Certainty.LIKELY),
    (Fact.GAP_FOLLOWS_KL, NEVER_SYNCED, Certainty.LIKELY),
    (Fact.GAP_FOLLOWS_AGE, OLD, Certainty.POSSIBLE),
    (Fact.GAP_FOLLOWS_TURNS, RETOKENISED, Certainty.POSSIBLE),
    (Fact.GAP_GROWS_AS_ENTROPY_FALLS, PRECISION, Certainty.POSSIBLE),
    (Fact.GAP_FOLLOWS_GRADIENT, DRIFTING, Certainty.POSSIBLE),
    (Fact.SAMPLER_MISMATCH, SAMPLER, Certainty.POSSIBLE),
    (Fact.ADVANTAGE_IMPOSSIBLE, ADVANTAGES, Certainty.LIKELY),
    (Fact.GRADIENT_ABOVE_USUAL, TOO_LONG, Certainty.POSSIBLE),
    (Fact.GRADIENT_BELOW_USUAL, TOO_SHORT, Certainty.POSSIBLE),
    (Fact.INFRASTRUCTURE_FAILS, INFRASTRUCTURE, Certainty.LIKELY),
    (Fact.ENVIRONMENT_FELL, ENVIRONMENT, Certainty.LIKELY),
    (Fact.TOOLS_STOPPED, NO_CALLS, Certainty.LIKELY),
    (Fact.COLUMNS_PART, HACKING, Certainty.POSSIBLE),
    (Fact.TEXTS_REPEAT, REPETITION, Certainty.POSSIBLE),
    (Fact.TRUNCATED_PAID, PAID, Certainty.POSSIBLE),
    (Fact.ROLLOUTS_STALE, STALE, Certainty.POSSIBLE),
    (Fact.KL_HUGE, FAR, Certainty.POSSIBLE),
    (Fact.TOOLS_FAIL, TOOLS, Certainty.LIKELY),
    (Fact.ROUTER_DRIFTS, ROUTER, Certainty.POSSIBLE),
    (Fact.RESTART_JUMP, RESTART, Certainty.POSSIBLE),
    (Fact.STALE_DISCARDED, DISCARDS, Certainty.POSSIBLE),
    (Fact.REWARD_OSCILLATES, UNSTABLE, Certainty.LIKELY),
    (Fact.SMALL_GROUP_POSSIBLE, SMALL_GROUP, Certainty.POSSIBLE),
)


def cause_of_standing(case: Case) -> Cause:
    """Say why a reward stands still, or what else is wrong, from the facts of the checks."""
    if {Fact.CUT_OFF_IN_MID_RUN, Fact.TRUNCATED_PAID} <= case.facts:
        return Cause(
            Certainty.POSSIBLE, (PAID,)
        )  # the policy has learnt to be cut off, since that pays better than an end
    for fact, cause, certainty in _STANDING:
        found = case.finding(fact)
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
    lost = Fact.GROUPS_ALIKE_AT_ONCE in found.facts or (
        {Fact.ENTROPY_GONE, Fact.ENTROPY_LOW} & {*found.facts} and Fact.GROUPS_ALIKE in case.facts
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
