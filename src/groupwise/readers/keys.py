"""The table of keys: framework, versions and key, the canonical quantity and exactly what is logged under it there.

Facts about trainers only, as read in their sources or seen in their logs; `semantics.py` applies them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Rule:
    """What one key of one framework holds."""

    framework: str  # who logs it; "" for a log whose framework is unknown, where only the name speaks
    # as it is logged, lower case; `<word>` stands for any text, `<n>` for a number, `{a|b}` for one of several
    key: str
    quantity: str  # the canonical name; `<word>` is filled in, and `min`, `max` and `std` of a choice become its ending
    definition: str  # exactly what is logged; `{}` becomes "mean", "smallest" or "largest"
    since: str = ""  # first version that logs it so, "" where that is not known
    until: str = ""  # last version that logs it so, "" where it still does
    unless: str = ""  # a key beside which this one means something else
    ambiguous: bool = False  # whether the log cannot tell which of several definitions holds
    # whether the log's values and settings decide, in `semantics.py`; the rule then is one of the answers
    judged: bool = False
    framed: bool = False  # whether `train/` in front is a part of the key

    def pattern(self) -> re.Pattern[str]:
        """Return the key as a regular expression."""
        return _pattern(self.key)


@cache
def _pattern(key: str) -> re.Pattern[str]:
    """Return a key of the table as a regular expression with a group for each word and for the choice."""
    parts = re.split(r"(<n>|<\w+>|\{[^{}]+\})", key)
    built = []
    for part in parts:
        if part == "<n>":
            built.append(r"\d{1,9}")
        elif part.startswith("<"):
            built.append(f"(?P<{part[1:-1]}>.+?)")
        elif part.startswith("{"):
            inner = "|".join(re.escape(choice) for choice in part[1:-1].split("|"))
            built.append(f"(?P<part>{inner})" if "(?P<part>" not in "".join(built) else f"(?:{inner})")
        else:
            built.append(re.escape(part))
    return re.compile("".join(built).replace("@", "(?:@|_at_)"), re.IGNORECASE)


def version_of(text: str | None) -> Version | None:
    """Return major and minor version, None where the text holds none."""
    found = re.match(r"v?(\d{1,4})\.(\d{1,4})", text or "")
    return (int(found[1]), int(found[2])) if found else None


_TOTAL = "mean total reward: the weighted sum of the reward functions, averaged over the completions of the row"
_CORRECTED = "before the KL penalty, averaged over the rollouts of the step"
_TOKENS = "{} tokens of a completion"

TRL: tuple[Rule, ...] = (
    Rule("trl", "reward", "reward", _TOTAL),
    Rule("trl", "rewards/<function>/mean", "reward/<function>", "mean of one reward function, before its weight", "0.17"),
    Rule("trl", "rewards/<function>", "reward/<function>", "mean of one reward function, before its weight", "", "0.16"),
    Rule("trl", "rewards/<function>/std", "reward_std_batch/<function>", "standard deviation of one function over the batch, ddof "
         "1", "0.17"),
    Rule("trl", "reward_std", "reward_std_within_group", "mean over groups of the standard deviation in the group, ddof 1", "0.14", "0.26",
         judged=True),
    Rule("trl", "reward_std", "reward_std_batch", "standard deviation of the total reward over the whole batch, within and between "
         "prompts, "
         "ddof 1", "0.27", judged=True),
    Rule("trl", "reward_std", "reward_std_ambiguous", "one of the two, where the version is unknown: an upper bound of the spread in "
         "groups",
         ambiguous=True, judged=True),
    Rule("trl", "frac_reward_zero_std", "dead_group_share", "share of groups whose completions all have the same total reward", "0.18",
         judged=True),
    Rule("trl", "frac_reward_zero_std", "dead_batch_share", 'whether the whole batch has one reward: so with `scale_rewards="batch"` or '
         '`multi_objective_aggregation="normalize_then_sum"`; it reads 0 although groups are dead', "0.22", judged=True),
    Rule("trl", "clip_ratio/<which>", "clip_ratio/<which>", "share of tokens whose importance ratio was clipped; 0 in every row where each "
         "batch is used for one update, which says nothing", "0.15", judged=True),
    Rule("trl", "clip_ratio", "clip_ratio/mean", "the same, both sides together", "", "1.15", judged=True),
    Rule("trl", "completions/{mean|min|max}_length", "completion_length", _TOKENS + ", end-of-sequence included", "0.17"),
    Rule("trl", "completion_length", "completion_length", _TOKENS + ", end-of-sequence included", "", "0.16"),
    Rule("trl", "completions/{mean|min|max}_terminated_length", "terminated_length", "{} tokens of the completions that ended by "
         "themselves",
         "0.17"),
    Rule("trl", "completions/clipped_ratio", "truncated_share", "share of completions cut off at the length limit", "0.17"),
    Rule("trl", "entropy", "entropy", "mean entropy of the policy over tokens, nats; a mean of the ranks' means before 1.9", "0.20"),
    Rule("trl", "kl", "kl", "mean KL divergence to the reference policy, nats a token; TRL logs it where its weight is not 0, Unsloth "
         "always"),
    Rule("trl", "grad_norm", "gradient_norm", "norm of the gradient before clipping"),
    Rule("trl", "{loss|training loss}", "loss", "the policy loss: near 0 on-policy by construction, it says nothing about learning"),
    Rule("trl", "validation loss", "eval/loss", "the policy loss on the evaluation prompts"),
    Rule("trl", "learning_rate", "learning_rate", "learning rate of the last update of the row"),
    Rule("trl", "num_tokens", "tokens", "tokens processed so far, prompts included"),
    Rule("trl", "step_time", "step_time", "seconds a step", "0.26"),
    Rule("trl", "epoch", "epoch", "passes over the prompts so far"),
    Rule("trl", "sampling/sampling_logp_difference/{mean|max}", "sampler_mismatch", "{} difference of log-probability between sampler and "
         "trainer", "0.23"),
    Rule("trl", "sampling/importance_sampling_ratio/{mean|min|max}", "sampler_ratio", "{} importance ratio between trainer and sampler",
         "0.23"),
    Rule("trl", "sample/staleness_{mean|max}", "staleness", "{} policy updates between generation and use of a sample (asynchronous "
         "trainer)",
         "1.10"),
    Rule("trl", "sample/dropped_stale_total", "dropped_samples", "samples dropped so far because they were too old (asynchronous trainer)",
         "1.10"),
    Rule("trl", "tools/failure_frequency", "tool_failure_share", "share of tool calls that failed", "0.26"),
)  # fmt: skip

VERL: tuple[Rule, ...] = (
    Rule("verl", "critic/score/mean", "reward", f"mean score of the reward function {_CORRECTED}"),
    Rule("verl", "critic/score/{min|max}", "reward", f"{{}} score of the step {_CORRECTED.split(',', maxsplit=1)[0]}"),
    Rule("verl", "critic/rewards/{mean|min|max}", "reward_after_kl", "{} reward of a rollout after the KL penalty, where one is "
         "subtracted"),
    Rule("verl", "critic/advantages/{mean|min|max}", "advantage", "{} advantage over tokens: long rollouts count more"),
    Rule("verl", "val-core/<source>/{acc|reward}/mean@<n>", "eval/reward/<source>", "mean over the validation prompts of one data source "
         "and "
         "n samples a prompt", "0.3"),
    Rule("verl", "val/test_score/<source>", "eval/reward/<source>", "mean score over the validation prompts of one data source", "", "0.2"),
    Rule("verl", "val-{core|aux}/<source>/<variable>/best@<n>/mean", "eval/pass_at_k/<source>/<variable>", "best of k samples of a prompt, "
         "bootstrapped, mean over prompts", "0.3"),
    Rule("verl", "actor/entropy", "entropy", "mean entropy of the policy over tokens, nats", "0.4"),
    Rule("verl", "actor/entropy_loss", "entropy", "mean entropy of the policy over tokens, nats, under its older name", "", "0.4",
         unless="actor/entropy"),
    Rule("verl", "actor/kl_loss", "kl", "mean divergence from the reference policy, nats a token, by the estimator that was set"),
    Rule("verl", "{actor/reward_kl_penalty|critic/kl}", "kl_reward", "mean divergence from the reference policy that is subtracted from "
         "rewards"),
    Rule("verl", "actor/ppo_kl", "policy_change", "mean of old minus new log-probability over tokens: how far one batch moved the "
         "policy, or "
         "sampler and trainer differ"),
    Rule("verl", "actor/pg_clipfrac", "clip_ratio", "share of tokens whose importance ratio was clipped; 0 where each batch is used for "
         "one "
         "update", judged=True),
    Rule("verl", "actor/pg_clipfrac_lower", "clip_ratio_lower", "share of tokens clipped by the second, lower clip of negative advantages"),
    Rule("verl", "{actor/pg_loss|actor/loss}", "loss", "the policy loss: near 0 on-policy by construction, it says nothing about learning"),
    Rule("verl", "actor/grad_norm", "gradient_norm", "norm of the policy's gradient before clipping, mean over the updates of the step"),
    Rule("verl", "actor/lr", "learning_rate", "learning rate of the policy"),
    Rule("verl", "response_length/{mean|min|max}", "completion_length", "{} tokens of a response"),
    Rule("verl", "response_length/clip_ratio", "truncated_share", "share of responses cut off at the length limit"),
    Rule("verl", "response/aborted_ratio", "aborted_share", "share of rollouts without a response", "0.6"),
    Rule("verl", "perf/total_num_tokens", "step_tokens", "tokens of the step, prompts included"),
    Rule("verl", "{timing_s/step|perf/time_per_step}", "step_time", "seconds a step", "0.2"),
    Rule("verl", "training/epoch", "epoch", "passes over the prompts so far", "0.4"),
    Rule("verl", "training/off_policy/trajectory_staleness/{mean|min|max}", "staleness", "{} policy versions between the end of a "
         "rollout and "
         "its use", "0.9"),
    Rule("verl", "training/off_policy/evicted_samples", "dropped_samples", "samples dropped in the step because they were too old", "0.9"),
    Rule("verl", "fully_async/count/dropped_stale_samples", "dropped_samples", "samples dropped so far because they were too old"),
    Rule("verl", "training/rollout_probs_diff_{mean|max}", "sampler_probability_gap", "{} absolute difference of token probability between "
         "sampler and trainer", "0.5"),
    Rule("verl", "{rollout_corr|mismatch}/kl", "sampler_mismatch", "mean difference of log-probability between sampler and trainer", "0.6"),
    Rule("verl", "rollout_corr/rollout_is_eff_sample_size", "effective_sample_size", "effective share of samples under the importance "
         "weights "
         "of the sampler's mismatch", "0.6"),
    Rule("verl", "rollout_corr/rollout_is_{mean|min|max}", "sampler_ratio", "{} importance ratio between trainer and sampler", "0.6"),
)  # fmt: skip

OTHERS: tuple[Rule, ...] = (
    Rule("ms-swift", "reward_std", "reward_std_within_group", "mean over groups of the standard deviation in the group, ddof 1; over the "
         "batch "
         "where rewards are scaled by the batch", judged=True),
    Rule("ms-swift", "frac_reward_zero_std", "dead_group_share", "share of groups whose completions all have the same total "
         "reward", judged=True),
    Rule("openrlhf", "reward", "reward", "mean reward of the rollouts of the step"),
    Rule("openrlhf", "group_reward_std", "reward_std_within_group", "mean over groups of the standard deviation in the group, ddof 1"),
    Rule("openrlhf", "dynamic_filtering_pass_rate", "admitted_share", "share of groups that the dynamic filter let pass"),
    Rule("openrlhf", "response_length", "completion_length", "mean tokens of a response"),
    Rule("openrlhf", "policy_loss", "loss", "the policy loss"),
    Rule("openrlhf", "actor_lr", "learning_rate", "learning rate of the policy"),
    Rule("openrlhf", "actor_grad_norm", "gradient_norm", "norm of the policy's gradient before clipping"),
    Rule("openrlhf", "kl", "kl", "mean divergence from the reference policy"),
    Rule("openrlhf", "ppo_kl", "policy_change", "mean of old minus new log-probability over tokens"),
    Rule("openrlhf", "vllm_kl", "sampler_mismatch", "mean divergence between sampler and trainer"),
    Rule("openrlhf", "ppo_clip_ratio", "clip_ratio", "share of tokens whose importance ratio was clipped", judged=True),
    Rule("openrlhf", "entropy_loss", "entropy", "mean entropy of the policy over tokens"),
    Rule("openrlhf", "eval_<source>_pass1", "eval/reward/<source>", "mean over the evaluation prompts of one data source"),
    Rule("openrlhf", "eval_<source>_truncated_rate", "eval/truncated_share/<source>", "share of responses cut off at the length limit"),
    Rule("prime-rl", "train/agg/all/<agent>/reward/{mean|max|min}", "reward", "{} reward of all rollouts, before any was filtered out",
         framed=True),
    Rule("prime-rl", "train/agg/effective/<agent>/reward/mean", "reward_admitted", "mean reward of the rollouts that were trained on",
         framed=True),
    Rule("prime-rl", "train/agg/all/<agent>/solved_none", "all_wrong_share", "share of groups without a success", framed=True),
    Rule("prime-rl", "train/agg/all/<agent>/solved_all", "all_right_share", "share of groups with successes only", framed=True),
    Rule("prime-rl", "train/agg/all/<agent>/is_truncated/mean", "truncated_share", "share of rollouts cut off at the length "
         "limit", framed=True),
    Rule("prime-rl", "train/agg/all/<agent>/num_output_tokens/{mean|max|min}", "completion_length", _TOKENS, framed=True),
    Rule("prime-rl", "train/agg/all/<agent>/is_admitted/mean", "admitted_share", "share of rollouts that were trained on", framed=True),
    Rule("prime-rl", "off_policy/{mean|max}", "staleness", "{} policy updates between generation and use of a rollout"),
    Rule("prime-rl", "off_policy/dropped", "dropped_samples", "rollouts dropped because they were too old"),
    Rule("prime-rl", "optim/lr", "learning_rate", "learning rate"),
    Rule("prime-rl", "optim/grad_norm", "gradient_norm", "norm of the gradient before clipping"),
    Rule("prime-rl", "loss/mean", "loss", "the policy loss"),
    Rule("prime-rl", "entropy/all/mean", "entropy", "mean entropy of the policy over tokens, nats"),
    Rule("prime-rl", "mismatch_kl/all/mean", "sampler_mismatch", "mean divergence between sampler and trainer, nats a token"),
    Rule("slime", "rollout/raw_reward", "reward", "mean reward of the rollouts, before it is normalised within groups"),
    Rule("slime", "rollout/rewards", "reward_normalized", "mean reward after it was normalised within groups: near 0 by construction"),
    Rule("slime", "rollout/response_len/{mean|min|max}", "completion_length", "{} tokens of a response"),
    Rule("slime", "rollout/truncated_ratio", "truncated_share", "share of responses cut off at the length limit"),
    Rule("slime", "train/pg_loss", "loss", "the policy loss", framed=True),
    Rule("slime", "train/entropy_loss", "entropy", "mean entropy of the policy over tokens", framed=True),
    Rule("slime", "train/pg_clipfrac", "clip_ratio", "share of tokens whose importance ratio was clipped", judged=True, framed=True),
    Rule("slime", "train/ppo_kl", "policy_change", "mean of old minus new log-probability over tokens", framed=True),
    Rule("slime", "train/kl_loss", "kl", "mean divergence from the reference policy", framed=True),
    Rule("slime", "train/grad_norm", "gradient_norm", "norm of the gradient before clipping", framed=True),
    Rule("slime", "{train/lr|train/lr-pg_0}", "learning_rate", "learning rate", framed=True),
    Rule("slime", "train/train_rollout_logprob_abs_diff", "sampler_mismatch", "mean absolute difference of log-probability between "
         "sampler and "
         "trainer", framed=True),
    Rule("slime", "eval/<source>{-|/}truncated_ratio", "eval/truncated_share/<source>", "share of responses cut off at the length "
         "limit", framed=True),
    Rule("slime", "eval/<source>-pass@<n>", "eval/pass_at_k/<source>", "share of evaluation prompts with a success among k "
         "responses", framed=True),
    Rule("slime", "eval/<source>/response_len/{mean|min|max}", "eval/completion_length/<source>", "{} tokens of a response", framed=True),
    Rule("slime", "eval/<source>", "eval/reward/<source>", "mean reward on one evaluation set", framed=True),
    Rule("nemo-rl", "reward", "reward", "mean reward of the rollouts of the step"),
    Rule("nemo-rl", "baseline_reward/pct_0", "all_wrong_share", "share of prompts with a mean reward of 0: of rewards 0 or 1 only"),
    Rule("nemo-rl", "baseline_reward/pct_1", "all_right_share", "share of prompts with a mean reward of 1: of rewards 0 or 1 only"),
    Rule("nemo-rl", "loss", "loss", "the policy loss"),
    Rule("nemo-rl", "grad_norm", "gradient_norm", "norm of the gradient before clipping"),
    Rule("nemo-rl", "lr", "learning_rate", "learning rate"),
    Rule("nemo-rl", "approx_entropy", "entropy", "mean of minus the log-probability of the sampled tokens: an estimate of the entropy"),
    Rule("nemo-rl", "kl_penalty", "kl", "mean divergence from the reference policy"),
    Rule("nemo-rl", "gen_kl_error", "sampler_mismatch", "mean divergence between sampler and trainer"),
    Rule("nemo-rl", "mean_gen_tokens_per_sample", "completion_length", "mean tokens of a completion"),
    Rule("nemo-rl", "truncation_rate", "truncated_share", "share of completions cut off at the length limit"),
    Rule("nemo-rl", "validation/accuracy", "eval/reward", "mean reward on the validation prompts"),
    Rule("nemo-rl", "validation/avg_length", "eval/completion_length", "mean tokens of a completion on the validation prompts"),
    Rule("art", "reward", "reward", "mean reward of the trajectories of the step"),
    Rule("art", "reward_std_dev", "reward_std_within_group", "mean over groups of the standard deviation in the group, ddof 0"),
    Rule("art", "exception_rate", "failure_share", "share of trajectories that ended with an exception"),
    Rule("art", "val/reward", "eval/reward", "mean reward of the validation trajectories"),
    Rule("skyrl", "reward/avg_raw_reward", "reward", "mean reward of the rollouts of the step"),
    Rule("skyrl", "reward/avg_pass_at_<n>", "pass_at_k", "share of prompts with a success among their rollouts"),
    Rule("skyrl", "reward/num_zero_variance_filtered", "dropped_samples", "rollouts of dead groups, left out of the loss"),
    Rule("skyrl", "policy/policy_entropy", "entropy", "mean entropy of the policy over tokens"),
    Rule("skyrl", "policy/raw_grad_norm", "gradient_norm", "norm of the gradient before clipping"),
    Rule("skyrl", "eval/<source>/avg_score", "eval/reward/<source>", "mean score on one evaluation set", framed=True),
    Rule("areal", "ppo_actor/task_reward/avg", "reward", "mean reward of the task, before scaling and bias"),
    Rule("areal", "{rollout/reward|rollout/reward/avg}", "reward", "mean reward of the rollouts as the workflow gave it"),
    Rule("areal", "ppo_actor/update/entropy/avg", "entropy", "mean entropy of the policy over tokens"),
    Rule("areal", "ppo_actor/update/actor_loss/avg", "loss", "the policy loss"),
    Rule("areal", "ppo_actor/update/clip_ratio/avg", "clip_ratio", "share of tokens whose importance ratio was clipped", judged=True),
    Rule("areal", "ppo_actor/update/grad_norm", "gradient_norm", "norm of the gradient before clipping"),
    Rule("areal", "ppo_actor/update/lr", "learning_rate", "learning rate"),
    Rule("areal", "ppo_actor/seq_len/{avg|min|max}", "sequence_length", "{} tokens of a sequence, its prompt included"),
    Rule("open-instruct", "scores", "reward", "mean score of the responses of the step"),
    Rule("open-instruct", "val/all_zero_reward_groups_ratio", "all_wrong_share", "share of groups without a success"),
    Rule("open-instruct", "real_batch_size_ratio", "admitted_share", "share of prompts whose group is not dead: those that are trained on"),
    Rule("open-instruct", "unsolved_batch_size_ratio", "unsolved_share", "share of prompts that are not solved in every response"),
    Rule("open-instruct", "val/sequence_lengths", "completion_length", "mean tokens of a response"),
    Rule("open-instruct", "val/stop_rate", "stopped_share", "share of responses that ended by themselves"),
    Rule("open-instruct", "objective/kl<n>_avg", "kl", "mean divergence from the reference policy, by one of several estimators"),
    Rule("open-instruct", "policy/entropy_avg", "entropy", "mean entropy of the policy over tokens"),
    Rule("open-instruct", "policy/clipfrac_avg", "clip_ratio", "share of tokens whose importance ratio was clipped", judged=True),
    Rule("open-instruct", "val/ratio_var", "ratio_variance", "variance of the importance ratio over tokens"),
    Rule("open-instruct", "loss/policy_avg", "loss", "the policy loss"),
    Rule("open-instruct", "optim/grad_norm", "gradient_norm", "norm of the gradient before clipping"),
    Rule("open-instruct", "eval/scores", "eval/reward", "mean score on the evaluation prompts", framed=True),
    Rule("tinker", "env/all/reward/total", "reward", "mean total reward of the trajectories of the step"),
    Rule("tinker", "env/all/by_group/frac_all_good", "all_right_share", "share of groups with the largest reward throughout"),
    Rule("tinker", "env/all/by_group/frac_all_bad", "all_wrong_share", "share of groups with the smallest reward throughout"),
    Rule("tinker", "env/all/ac_tokens_per_turn", "completion_length", "mean tokens of a turn"),
    Rule("tinker", "{optim/entropy|policy/entropy}", "entropy", "mean of minus the log-probability of the sampled tokens: an estimate of "
         "the entropy"),
    Rule("tinker", "optim/kl_sample_train_v1", "sampler_mismatch", "mean divergence between sampler and trainer, first estimator"),
    Rule("tinker", "optim/lr", "learning_rate", "learning rate"),
    Rule("tinker", "time/total", "step_time", "seconds a step"),
)  # fmt: skip

RULES: tuple[Rule, ...] = TRL + VERL + OTHERS

# What every rule's quantity is measured in, and one line for the table of quantities.
QUANTITIES: dict[str, tuple[str, str, str]] = {
    "reward": ("rewards", "reward", "mean total reward of the completions that the row covers"),
    "reward/<function>": ("rewards", "reward", "mean of one reward function, before its weight"),
    "positive_share": ("rewards", "share", "share of positive completions, by its name"),
    "pass_at_k": ("rewards", "share", "prompts with a success among k completions"),
    "reward_after_kl": ("rewards", "reward", "mean reward after the KL penalty"),
    "reward_normalized": ("rewards", "", "mean of rewards that were normalised within groups: near 0 by construction"),
    "reward_admitted": ("rewards", "reward", "mean reward of what was trained on, after filters"),
    "advantage": ("rewards", "", "mean (or `_min`, `_max`) advantage"),
    "failure_share": ("rewards", "share", "rollouts that ended with an exception"),
    "tool_failure_share": ("rewards", "share", "tool calls that failed"),
    "reward_std_within_group": ("spread", "reward", "mean over groups of the standard deviation within the group"),
    "reward_std_batch": ("spread", "reward", "standard deviation over all completions of the step, within and between prompts"),
    "reward_std_ambiguous": ("spread", "reward", "one of the two; read as an upper bound of the spread within groups"),
    "dead_group_share": ("spread", "share", "share of groups whose completions all have the same total reward"),
    "dead_batch_share": ("spread", "share", "unavailable: whether the whole batch has one reward"),
    "all_wrong_share": ("spread", "share", "groups without a success"),
    "all_right_share": ("spread", "share", "groups with successes only"),
    "unsolved_share": ("spread", "share", "prompts that are not solved in every completion"),
    "admitted_share": ("spread", "share", "what a filter left to train on"),
    "dropped_samples": ("spread", "count", "samples that were not trained on: too old, or of dead groups"),
    "completion_length": ("policy", "tokens", "mean (or `_min`, `_max`) length, end of sequence included"),
    "sequence_length": ("policy", "tokens", "the same with the prompt"),
    "terminated_length": ("policy", "tokens", "the same over completions that ended by themselves"),
    "truncated_share": ("policy", "share", "completions cut off at the length limit"),
    "stopped_share": ("policy", "share", "completions that ended by themselves"),
    "aborted_share": ("policy", "share", "rollouts without a completion"),
    "entropy": ("policy", "nats", "mean entropy of the policy over tokens"),
    "kl": ("policy", "nats per token", "mean divergence from the reference policy"),
    "kl_reward": ("policy", "nats", "divergence from the reference policy that is subtracted from the reward"),
    "policy_change": ("policy", "nats", "old minus new log-probability: how far the policy moved on the batch"),
    "clip_ratio": ("policy", "share", "tokens whose importance ratio was clipped"),
    "clip_ratio_lower": ("policy", "share", "tokens clipped by the second, lower clip"),
    "ratio_variance": ("policy", "", "variance of the importance ratio over tokens"),
    "effective_sample_size": ("policy", "share", "effective share of samples under the importance weights"),
    "sampler_mismatch": ("policy", "nats", "difference of log-probability between the engine that sampled and the one that trains"),
    "sampler_probability_gap": ("policy", "probability", "absolute difference of a token's probability between the two"),
    "sampler_ratio": ("policy", "", "importance ratio between the two"),
    "staleness": ("policy", "updates", "policy updates between the generation of a sample and its use"),
    "gradient_norm": ("clock", "", "norm of the gradient before clipping"),
    "loss": ("clock", "", "the policy loss; near 0 on-policy by construction, so it says nothing about learning"),
    "learning_rate": ("clock", "", "of the last update of the row"),
    "tokens": ("clock", "tokens", "processed so far, prompts included"),
    "step_tokens": ("clock", "tokens", "of one step, prompts included"),
    "step_time": ("clock", "seconds", "of one step"),
    "epoch": ("clock", "passes", "over the prompts so far"),
}  # fmt: skip
