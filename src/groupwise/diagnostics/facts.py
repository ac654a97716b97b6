"""What a check can state, as data: no module of this room reads the wording of another.

A fact holds from the step of its finding on; the signs of the finding are its levels before and
after.
"""

from __future__ import annotations

from enum import Enum


class Fact(Enum):
    """One fact each; the value is how a page writes it."""

    # collapse: what the reward, one of its functions or the answers lost
    NO_FALL = "fall: none"
    FALL_AT_ONCE = "fall: lasting"
    FALL_BY_AND_BY = "fall: lasting, by and by"
    FUNCTION_FALL_AT_ONCE = "fall: function"
    FUNCTION_FALL_BY_AND_BY = "fall: function, by and by"
    TRAINING_FALLS_ALONE = "fall: of training alone"
    FUNCTION_FALLS_ALONE = "fall: of a function alone"
    DECLINE = "fall: partial"
    TRAINING_DECLINES_ALONE = "fall: partial, of training alone"
    FALL_RECOVERED = "fall: recovered"
    ANSWERS_SHRANK = "fall: answers"
    # what entropy, length and the held-out reward did as the reward fell, and who fails since
    BEHAVIOUR_CHANGED = "behaviour: changed"
    BEHAVIOUR_UNCHANGED = "behaviour: unchanged"
    HELD_OUT_DROPPED = "held out drop: dropped"
    HELD_OUT_STAYED = "held out drop: stayed"
    PROMPTS_FAIL = "prompts: whole prompts fail"
    ANSWERS_FAIL = "prompts: scattered answers fail"
    # verifier: how the rewards themselves moved
    NO_DROP = "drop: none"
    NOTHING_EARNED = "drop: nothing"
    REWARD_FROZEN = "drop: frozen"
    REWARD_CONSTANT_AT_ONCE = "drop: constant at once"
    FUNCTION_CONSTANT_AT_ONCE = "drop: function at once"
    PART_LOST_AT_ONCE = "drop: part at once"
    FAILURES_LOGGED = "drop: failures logged"
    OUTAGES = "drop: outages"
    TIES_BROKEN = "drop: ties broken"
    # reward_hacking: the held-out reward beside the training reward
    HELD_OUT_FOLLOWS = "held out: follows"
    HELD_OUT_FALLS = "held out: falls"
    HELD_OUT_FLAT = "held out: flat"
    HELD_OUT_STANDS_AFTER_GAIN = "held out: stands after a gain"
    HELD_OUT_FALLS_AS_TRAINING_RISES = "held out: falls as training rises"
    HELD_OUT_FALLS_ALONE = "held out: falls alone"
    OVERFITTING = "held out: overfitting"
    COLUMNS_PART = "components: part"
    # reward_functions
    FORMAT_ALONE_EARNS = "reward: format alone"
    FUNCTIONS_OPPOSED = "reward: against each other"
    # numbers, gradient and learning rate
    NOT_FINITE = "numbers: not finite"
    GRADIENT_EXPLODED = "gradient: exploded"
    GRADIENT_DRIFTS = "gradient: drift"
    GRADIENT_SPIKES = "gradient: spikes"
    GRADIENT_LOST = "gradient: lost"
    GRADIENT_ZERO = "gradient: zero"
    RATE_ZERO = "rate: likely"
    # sampler and trainer
    SAMPLER_MISMATCH = "sampler: mismatch"
    MISMATCH_AT_RATE_ZERO = "rate: zero"
    ROLLOUTS_STALE = "staleness: beyond the settings"
    KL_HUGE = "kl: huge"
    STALE_DISCARDED = "discards: stale"
    FEW_ADMITTED = "discards: filter"
    # by which signature they differ
    SAMPLING_TRUNCATED = "sampler: truncated"
    RATIO_SUMMED = "sampler: ratio summed"
    GAP_FOLLOWS_KL = "sampler: gap follows the KL"
    GAP_FOLLOWS_AGE = "sampler: gap follows the age"
    GAP_FOLLOWS_TURNS = "sampler: gap follows the turns"
    GAP_GROWS_AS_ENTROPY_FALLS = "sampler: gap grows as entropy falls"
    GAP_FOLLOWS_GRADIENT = "sampler: gap follows the gradient"
    # the update against its settings
    ADVANTAGE_IMPOSSIBLE = "update: advantage"
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
    NO_SWING = "swings: none"
    REWARD_OSCILLATES = "swings: oscillate"
    SCATTER_GROWS = "swings: grow"
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
    GROUPS_AS_EXPECTED = "zero variance: as expected"
    GROUPS_EXPLAINED = "zero variance: explained by the reward"
    GROUPS_ALIKE = "zero variance: above expectation"
    GROUPS_ALL_WRONG = "zero variance: all wrong"
    GROUPS_ALIKE_AT_ONCE = "groups: at once"
    SMALL_GROUP_LIKELY = "small group: likely"
    SMALL_GROUP_POSSIBLE = "small group: possible"


def stated(*facts: Fact | None) -> tuple[Fact, ...]:
    """Return the facts that hold, of some of which nothing may be known."""
    return tuple(fact for fact in facts if fact is not None)
