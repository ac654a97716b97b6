"""What a check can state, as data: no module of this room reads the wording of another.

A fact holds from the step of its finding on; the signs of the finding are its levels before and
after.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Seen(Enum):
    """What a log says of a fact."""

    SEEN = "seen"
    ABSENT = "absent"
    NOT_LOGGED = "not logged"


class Fact(Enum):
    """One fact each; the value is how `--why` writes it."""

    # collapse: what the reward, one of its functions or the answers lost
    FALL_AT_ONCE = "fall: lasting"
    FALL_BY_AND_BY = "fall: lasting, by and by"
    FUNCTION_FALL_AT_ONCE = "fall: function"
    FUNCTION_FALL_BY_AND_BY = "fall: function, by and by"
    TRAINING_FALLS_ALONE = "fall: of training alone"
    FUNCTION_FALLS_ALONE = "fall: of a function alone"
    DECLINE = "fall: partial"
    TRAINING_DECLINES_ALONE = "fall: partial, of training alone"
    ANSWERS_SHRANK = "fall: answers"
    # what entropy, length and the held-out reward did as the reward fell, and who fails since
    BEHAVIOUR_CHANGED = "behaviour: changed"
    BEHAVIOUR_UNCHANGED = "behaviour: unchanged"
    HELD_OUT_DROPPED = "held out drop: dropped"
    HELD_OUT_STAYED = "held out drop: stayed"
    PROMPTS_FAIL = "prompts: whole prompts fail"
    ANSWERS_FAIL = "prompts: scattered answers fail"
    # verifier: how the rewards themselves moved
    NOTHING_EARNED = "drop: nothing"
    REWARD_FROZEN = "drop: frozen"
    REWARD_CONSTANT_AT_ONCE = "drop: constant at once"
    FUNCTION_CONSTANT_AT_ONCE = "drop: function at once"
    PART_LOST_AT_ONCE = "drop: part at once"
    FAILURES_LOGGED = "drop: failures logged"
    OUTAGES = "drop: outages"
    TIES_BROKEN = "drop: ties broken"
    # reward_hacking: the held-out reward beside the training reward
    LOOPHOLE = "held out: gain not shared, beyond doubt"
    HELD_OUT_STANDS_AFTER_GAIN = "held out: stands after a gain"
    HELD_OUT_FALLS_AS_TRAINING_RISES = "held out: falls as training rises"
    HELD_OUT_FALLS_ALONE = "held out: falls alone"
    OVERFITTING = "held out: overfitting"
    COLUMNS_PART = "components: part"
    GROUPS_OF_ONE = "groups: of one"
    ADVANTAGES_ZERO = "groups: of one, or of equal rewards"
    # reward_functions
    FORMAT_ALONE_EARNS = "reward: format alone"
    FUNCTIONS_OPPOSED = "reward: against each other"
    # numbers, gradient and learning rate
    NOT_FINITE = "numbers: not finite"
    REWARD_NOT_FINITE_AT_TIMES = "numbers: the reward is not finite in some rows"
    GRADIENT_EXPLODED = "gradient: exploded"
    GRADIENT_LOST = "gradient: lost"
    RATE_ZERO = "rate: likely"
    CRASHED = "crash: the log ends in an error"
    # sampler and trainer
    SAMPLER_MISMATCH = "sampler: mismatch"
    MISMATCH_AT_RATE_ZERO = "rate: zero"
    ROLLOUTS_STALE = "staleness: beyond the settings"
    KL_HUGE = "kl: huge"
    STALE_DISCARDED = "discards: stale"
    # by which signature they differ
    SAMPLING_TRUNCATED = "sampler: truncated"
    RATIO_SUMMED = "sampler: ratio summed"
    RATIO_CAPPED = "sampler: ratio at its cap"
    CORRELATION_LOW = "sampler: correlation of probabilities"
    GAP_FOLLOWS_KL = "sampler: gap follows the KL"
    GAP_FOLLOWS_AGE = "sampler: gap follows the age"
    GAP_FOLLOWS_TURNS = "sampler: gap follows the turns"
    GAP_GROWS_AS_ENTROPY_FALLS = "sampler: gap grows as entropy falls"
    GAP_FOLLOWS_GRADIENT = "sampler: gap follows the gradient"
    # the update against its settings
    ADVANTAGE_IMPOSSIBLE = "update: advantage that no group has"
    ADVANTAGE_OFF_CENTRE = "update: mean advantage far from 0"
    GRADIENT_ABOVE_USUAL = "update: norm above the usual"
    GRADIENT_BELOW_USUAL = "update: norm below the usual"
    # how fast the policy moves
    DESTROYED_AT_ONCE = "pace: destroyed at once"
    POLICY_UNMOVED = "pace: unmoved"
    FEW_PROMPTS = "pace: few prompts"
    # environments, tools, infrastructure
    ENVIRONMENT_FELL = "environment: fell"
    INFRASTRUCTURE_FAILS = "environment: infrastructure"
    TOOLS_STOPPED = "tools: stopped"
    ROUTER_DRIFTS = "router: load"
    TOOLS_FAIL = "tools: fail"
    RESTART_JUMP = "restart: jump"
    # instability
    REWARD_OSCILLATES = "swings: oscillate"
    FEW_WEIGHTS_COUNT = "weights: few count"
    # completions
    TRUNCATED_LIKELY = "truncation: likely"
    TRUNCATED_POSSIBLE = "truncation: possible"
    CUT_OFF_IN_MID_RUN = "cut off: in mid-run"
    TRUNCATED_PAID = "truncated: paid"
    TEXTS_REPEAT = "texts: repeat"
    # concentration
    ENTROPY_SPENT_AT_TOP = "entropy: spent at the top"
    ENTROPY_GONE = "entropy: gone"
    ENTROPY_LOW = "entropy: low"
    # groups whose rewards are all equal
    GROUPS_ALIKE = "zero variance: above expectation"
    GROUPS_ALL_WRONG = "zero variance: all wrong"
    GROUPS_ALIKE_AT_ONCE = "groups: at once"
    SMALL_GROUP_LIKELY = "small group: likely"
    SMALL_GROUP_POSSIBLE = "small group: possible"
    # what an experiment of ours showed
    GRADES_CHANGED = "probe: grades changed"
    ANSWERS_CHANGED = "probe: answers changed"
    GRADES_STAND = "probe: grades stand"
    SAMPLED_BY_REFERENCE = "probe: sampled by the reference"
    SAMPLED_BETWEEN = "probe: sampled on the way from the reference"
    SAMPLED_ALIKE = "probe: sampled by the checkpoint, but for small errors"
    SAMPLED_TRUNCATED = "probe: sampled by a truncated distribution"
    GAP_AFTER_TURN = "probe: the gap begins behind the first turn"
    ANSWERS_ALIKE = "probe: answers are one"
    ANSWERS_VARIED = "probe: answers vary and are wrong"
    PROMPTS_STAND = "probe: the prompts of before are answered as then"
    PROMPTS_LOST = "probe: the prompts of before are answered worse"
    EDGE_CROSSED = "probe: a step overshoots"
    EDGE_FAR = "probe: a step does not overshoot"
    # what is to be explained
    FELL = "to explain: the reward fell, or its numbers ended"
    FELL_BY_AND_BY = "fall: took rows"
    FELL_SLOWLY = "fall: took a good part of the log, or is partial"
    POLICY_MAY_FAIL = "fall: may be the policy's own"
    STANDS = "to explain: the reward stands, fell slowly, or nothing is earned"
    PARTED = "to explain: training and held-out reward parted"
    ROSE = "to explain: the reward rose, or is at its top"
    # what signals did about a change
    LENGTH_RAN_AWAY = "length: x 1.5, or 15 % more truncated"
    LENGTH_SHRANK = "length: x 0.6"
    LENGTH_ENDS_SHORT = "length: the last answers x 0.6"
    TRUNCATED_MORE = "truncation: rose at the change"
    ENTROPY_ROSE = "entropy: x 1.4"
    ENTROPY_FELL = "entropy: fell at the change"
    ENTROPY_HALVED = "entropy: halved"
    GRADIENT_GREW = "gradient: x 10 at the change"
    GRADIENT_BROKE = "gradient: x 10,000 at the change"
    REWARD_NOT_FINITE = "numbers: the reward's own"
    SAMPLER_MOVED = "sampler: x 5 at the change"
    REWARD_JUMPED_AT_RESTART = "restart: the reward jumped"
    WATCHED = "behaviour: entropy or length is logged"
    GAINS_AS_ENTROPY_FALLS = "reward: rises as entropy is spent"
    GAINS_AS_GROUPS_ALIKE = "reward: rises as groups become alike"
    FIRST = "order: the cause's own quantity moved first, or with the reward"


# The quantities of which one must be logged for a fact to be shown absent.
NEEDED: Mapping[Fact, tuple[str, ...]] = {
    Fact.LENGTH_RAN_AWAY: ("completion_length", "truncated_share"),
    Fact.LENGTH_SHRANK: ("completion_length",),
    Fact.LENGTH_ENDS_SHORT: ("completion_length",),
    Fact.TRUNCATED_MORE: ("truncated_share",),
    Fact.ENTROPY_ROSE: ("entropy",),
    Fact.ENTROPY_FELL: ("entropy",),
    Fact.ENTROPY_HALVED: ("entropy",),
    Fact.GRADIENT_GREW: ("gradient_norm",),
    Fact.GRADIENT_BROKE: ("gradient_norm",),
    Fact.GRADIENT_LOST: ("gradient_norm",),
    Fact.RATE_ZERO: ("learning_rate",),
    Fact.KL_HUGE: ("kl",),
    Fact.ROLLOUTS_STALE: ("staleness",),
    Fact.TRUNCATED_LIKELY: ("truncated_share", "completion_length"),
    Fact.TOOLS_FAIL: ("tool_failure_share",),
}


def stated(*facts: Fact | None) -> tuple[Fact, ...]:
    """Return the facts that hold, of some of which nothing may be known."""
    return tuple(fact for fact in facts if fact is not None)
