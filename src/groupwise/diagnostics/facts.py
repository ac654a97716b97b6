"""What a check can state, as data: no module of this room reads the wording of another.

A fact holds from the step of its finding on; the signs of the finding are its levels before and
after.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from groupwise.files import table_rows


class Seen(Enum):
    """What a log says of a fact."""

    SEEN = "seen"
    ABSENT = "absent"
    NOT_LOGGED = "not logged"


class Fact(Enum):
    """One fact each; the value is how `--why` writes it."""

    # collapse: what the reward, one of its functions or the answers lost
    FALL_AT_ONCE = "the reward fell at once, for good"
    FALL_BY_AND_BY = "the reward fell over some rows, for good"
    FUNCTION_FALL_AT_ONCE = "a reward function fell at once, for good"
    FUNCTION_FALL_BY_AND_BY = "a reward function fell over some rows, for good"
    TRAINING_FALLS_ALONE = "the training reward fell and the held-out reward did not"
    FUNCTION_FALLS_ALONE = "a reward function fell and the held-out reward did not"
    DECLINE = "the reward lost a part of its level"
    TRAINING_DECLINES_ALONE = (
        "the training reward lost a part of its level and the held-out reward did not"
    )
    ANSWERS_SHRANK = "completions shrank to almost nothing"
    # what entropy, length and the held-out reward did as the reward fell, and who fails since
    BEHAVIOUR_CHANGED = "entropy or length changed with the reward"
    BEHAVIOUR_STEPPED = "entropy or length stepped a little with the reward"
    BEHAVIOUR_UNCHANGED = "neither entropy nor length changed with the reward"
    HELD_OUT_DROPPED = "the held-out reward dropped too"
    HELD_OUT_STAYED = "the held-out reward stayed"
    PROMPTS_FAIL = "all completions of some prompts fail"
    ANSWERS_FAIL = "some completions of every prompt fail"
    # verifier: how the rewards themselves moved
    NOTHING_EARNED = "the reward is 0 in every row since"
    REWARD_FROZEN = "the reward is one number in all rows since"
    REWARD_CONSTANT_AT_ONCE = "the reward became one number at once"
    FUNCTION_CONSTANT_AT_ONCE = "a reward function became one number at once"
    PART_LOST_AT_ONCE = "a part of the reward was lost at once"
    FAILURES_LOGGED = "the verifier's failures are in the log"
    OUTAGES = "the reward is 0 in single rows, and back in the next"
    TIES_BROKEN = "groups of equal rewards get advantages"
    # reward_hacking: the held-out reward beside the training reward
    LOOPHOLE = "the training reward gained and the held-out reward did not, beyond doubt"
    HELD_OUT_STANDS_AFTER_GAIN = (
        "the held-out reward gained and stands while the training reward rises"
    )
    HELD_OUT_FALLS_AS_TRAINING_RISES = "the held-out reward falls while the training reward rises"
    HELD_OUT_FALLS_ALONE = "the held-out reward falls while the training reward stands"
    OVERFITTING = "the training reward rises and the held-out reward stands, as in overfitting"
    LEARNT_BY_HEART = (
        "the held-out reward falls slowly while the training reward rises no faster than before"
    )
    SELECTED_BY_LENGTH = "trained answers got shorter than held-out ones of the same policy"
    MORE_LEFT_OUT = "ever more rollouts are left out of what is logged or trained on"
    COLUMNS_PART = "one reward column rises while another falls or stays at 0"
    GROUPS_OF_ONE = "groups have one completion"
    ADVANTAGES_ZERO = "advantages are 0 in all rows"
    # reward_functions
    FORMAT_ALONE_EARNS = "the reward for the format rose alone"
    FUNCTIONS_OPPOSED = "one reward function rose while another fell"
    # numbers, gradient and learning rate
    NOT_FINITE = "a number of the log became nan or infinite"
    REWARD_NOT_FINITE_AT_TIMES = "the reward is nan or infinite in some rows"
    GRADIENT_EXPLODED = "the gradient norm exploded"
    GRADIENT_LOST = "the gradient norm is 0"
    RATE_ZERO = "the learning rate is 0"
    RATE_ROSE = "the learning rate trebled from one row to the next, in mid-run"
    CRASHED = "the log ends in an error"
    # sampler and trainer
    SAMPLER_MISMATCH = "sampler and trainer give unlike probabilities"
    MISMATCH_AT_RATE_ZERO = "sampler and trainer differ although the learning rate is 0"
    ROLLOUTS_STALE = "rollouts are older than the settings allow"
    KL_HUGE = "the KL to the reference is huge"
    STALE_DISCARDED = "many rollouts are discarded as stale"
    # by which signature they differ
    SAMPLING_TRUNCATED = "the gap has the signature of top-p, top-k or min-p"
    RATIO_SUMMED = "the importance ratio has the size of a sum over tokens"
    RATIO_CAPPED = "the importance ratio sits at its cap"
    CORRELATION_LOW = "the token probabilities of sampler and trainer hardly correlate"
    GAP_FOLLOWS_KL = "the gap grows with the KL to the reference"
    GAP_FOLLOWS_AGE = "the gap grows with the age of the rollouts"
    GAP_FOLLOWS_TURNS = "the gap grows with the number of turns"
    GAP_GROWS_AS_ENTROPY_FALLS = "the gap grows as entropy falls"
    GAP_FOLLOWS_GRADIENT = "the gap follows the gradient norm"
    # the update against its settings
    ADVANTAGE_IMPOSSIBLE = "an advantage is larger than any group of this size can have"
    ADVANTAGE_OFF_CENTRE = "the mean advantage is far from 0"
    GRADIENT_ABOVE_USUAL = "the gradient norm is far above the usual"
    GRADIENT_BELOW_USUAL = "the gradient norm is far below the usual"
    # how fast the policy moves
    DESTROYED_AT_ONCE = "the reward was gone within the first ten updates"
    POLICY_UNMOVED = "the policy has hardly moved from its reference"
    FEW_PROMPTS = "large groups of few prompts learn nothing"
    # environments, tools, infrastructure
    ENVIRONMENT_FELL = "the reward of one environment fell"
    INFRASTRUCTURE_FAILS = "episodes fail for reasons of the infrastructure"
    TIMED_OUT = "a time stands at its ceiling, as at a time limit"
    TOOLS_STOPPED = "the policy stopped calling tools"
    ROUTER_DRIFTS = "the load of the experts drifts"
    TOOLS_FAIL = "tool calls fail"
    RESTART_JUMP = "a column jumped at a restart"
    # instability
    REWARD_OSCILLATES = "the reward oscillates"
    FEW_WEIGHTS_COUNT = "few importance weights carry the update"
    # completions
    TRUNCATED_LIKELY = "more than half of the completions are truncated"
    TRUNCATED_POSSIBLE = "truncation rises as the reward falls, or the mean length is at the limit"
    CUT_OFF_IN_MID_RUN = "completions began to hit the limit in mid-run"
    TRUNCATED_PAID = "truncated completions earn reward"
    TEXTS_REPEAT = "completions repeat themselves"
    # concentration
    ENTROPY_SPENT_AT_TOP = "entropy is spent and the reward is at its top"
    ENTROPY_GONE = "entropy is spent and the reward stands or fell"
    ENTROPY_LOW = "entropy is spent and the reward still moves"
    # groups whose rewards are all equal
    GROUPS_ALIKE = "more groups have zero variance than chance explains"
    GROUPS_ALL_WRONG = "nearly all groups are all wrong"
    GROUPS_ALIKE_AT_ONCE = "the share of zero-variance groups jumped"
    GROUPS_ALIKE_TREBLED = "three times as many groups have equal rewards as at first"
    SMALL_GROUP_LIKELY = "most groups have zero variance, and larger ones would not"
    SMALL_GROUP_POSSIBLE = "larger groups would halve the share of zero-variance groups"
    # what an experiment of ours showed
    GRADES_CHANGED = "graded anew, the answers earn what was lost"
    ANSWERS_CHANGED = "fresh grades of the probe fall as those of the log do"
    GRADES_STAND = "fresh grades of the probe give these answers nothing either"
    SAMPLED_BY_REFERENCE = "the probe found the reference's weights in the sampler"
    SAMPLED_BETWEEN = "the probe found older weights in the sampler"
    SAMPLED_ALIKE = "the probe found the checkpoint's weights in the sampler, with small errors"
    SAMPLED_TRUNCATED = "the probe found a truncated distribution in the sampler"
    ANSWERS_ALIKE = "the probe drew one and the same answer"
    ANSWERS_VARIED = "the probe drew answers that vary and are wrong"
    GAP_AFTER_TURN = "the probe found the gap behind the first turn alone"
    PROMPTS_STAND = "the probe's answers to the prompts of before earn as much as then"
    PROMPTS_LOST = "the probe's answers to the prompts of before earn less"
    GAIN_STANDS = "fresh grades of the probe rise as those of the log do"
    GAIN_GONE = "fresh grades of the probe do not rise as those of the log do"
    EDGE_CROSSED = "the probe's step overshot"
    EDGE_FAR = "the probe's step did not overshoot"
    # what is to be explained
    FELL = "to explain: the reward fell, or its numbers ended"
    FELL_BY_AND_BY = "the fall took more than a few rows"
    FELL_SLOWLY = "the fall took a good part of the log, or is partial"
    FELL_SOON = "the reward fell within its first ten rows"
    POLICY_MAY_FAIL = "the fall may be the policy's own"
    STANDS = "to explain: the reward stands, fell slowly, or nothing is earned"
    PARTED = "to explain: training and held-out reward parted"
    ROSE = "to explain: the reward rose, or is at its top"
    # what signals did about a change
    LENGTH_RAN_AWAY = "length grew by half, or 15 % more completions were truncated"
    LENGTH_SHRANK = "length fell to .6"
    LENGTH_ENDS_SHORT = "the last completions are 0.6 times as long"
    TRUNCATED_MORE = "truncation rose at the change"
    LIMIT_FELL = "length over the truncated share is below the length before: a lower limit"
    ENTROPY_ROSE = "entropy rose by 40 % at the change"
    ENTROPY_FELL = "entropy fell at the change"
    ENTROPY_HALVED = "entropy halved at the change"
    GRADIENT_GREW = "the gradient norm grew tenfold at the change"
    GRADIENT_BROKE = "the gradient norm grew 10,000-fold at the change"
    REWARD_NOT_FINITE = "the reward itself became nan or infinite"
    SAMPLER_MOVED = "the sampler's gap grew fivefold at the change"
    REWARD_JUMPED_AT_RESTART = "the reward jumped at a restart"
    GAP_JUMPED_AT_RESTART = "the gap of sampler and trainer jumped at a restart"
    WATCHED = "entropy or length is logged"
    GAINS_AS_ENTROPY_FALLS = "the reward rises while entropy falls"
    GAINS_AS_GROUPS_ALIKE = "the reward rises as groups become alike"
    FIRST = "the cause's own quantity moved first, or with the reward"


# The quantities of which one must be logged for a fact to be shown absent.
NEEDED: Mapping[Fact, tuple[str, ...]] = {
    Fact[row["fact"]]: tuple(row["quantities"].split())
    for row in table_rows("diagnostics/facts.tsv")
}


def stated(*facts: Fact | None) -> tuple[Fact, ...]:
    """Return the facts that hold, of some of which nothing may be known."""
    return tuple(fact for fact in facts if fact is not None)
