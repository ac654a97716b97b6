"""What the keys of a log mean, by framework and version; where the log cannot tell, the safe reading and the word ambiguous.

Facts about log keys only: no values are changed here.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from groupwise.readers.keys import QUANTITIES, RULES, Rule, Version, version_of
from groupwise.readers.rows import plain
from groupwise.readers.step_keys import is_counter
from groupwise.record.run import Meaning, RunConfig

Columns = Mapping[str, NDArray[np.float64]]
_NEWEST: Version = (99, 99)

_PLAIN_RULES: tuple[tuple[str, str], ...] = (
    (r"((train|rollouts?|env|critic)/)?((mean_|avg_|raw_)?rewards?|reward_mean|rewards?/mean|score/mean|reward_(trace|history))", "reward"),
    (r"(train/)?(reward_std|std_reward|reward_std_dev)|reward/std", "reward_std_ambiguous"),
    (
        r"((train|rollout|advantage(_done)?)/)?(frac_reward_zero_std|zvf|zero_advantage_group_ratio|zero_variance_fraction)",
        "dead_group_share",
    ),
    (
        r"(rollout(_partition_done|_done)?/)?(avg_|mean_)?(response|completion|generation)s?(_token)?_length(/mean|_mean)?",
        "completion_length",
    ),
    (
        r"response_length/clip_ratio|((train|rollout(_partition_done|_done)?)/)?(completion_)?truncat(ed|ion)_(ratio|share|rate)",
        "truncated_share",
    ),
    (r"(token_|policy_)?entropy|(actor|policy|train)/entropy", "entropy"),
    (r"(approx_|reference_|ppo_)?kl|actor/(ppo_kl|kl_loss)|train/kl", "kl"),
    (r"((actor|train|optim)/)?(grad_norm|gradient_norm|total_grad_norm)", "gradient_norm"),
    (r"((actor|train)/)?(loss|pg_loss|policy_loss|training loss)", "loss"),
    (r"learning_rate|lr|(actor|optim|train)/(lr|learning_rate)", "learning_rate"),
    (r"clip_fraction|clip_frac|actor/pg_clipfrac|train/pg_clipfrac", "clip_ratio"),
    (r"step_time|step_seconds|time_per_step|perf/time_per_step|timing_s/step", "step_time"),
    (r"num_tokens|tokens|total_tokens|perf/total_num_tokens", "tokens"),
)
_ALWAYS_FROM: tuple[tuple[str, Version], ...] = (("frac_reward_zero_std", (0, 18)), ("entropy", (0, 20)), ("step_time", (0, 26)))
_SOMETIMES_FROM: tuple[tuple[str, Version], ...] = (("policy_loss", (1, 8)), ("aux_loss", (1, 7)), ("entropy_coef", (1, 8)))
# Only TRL's asynchronous trainer logs these; its reward_std never became the batch's.
_ASYNCHRONOUS = re.compile(
    r"sample/(staleness_|dropped_stale|rollout_queue_size|time_in_queue).*|perf/(rollout_wait_s|weight_sync_s|fwd_bwd_s)"
    r"|rollout/(inflight|generated_tok_s|score_queue_size|backpressure_s|fork_frac)|weight_sync_time_s|queue_wait_time_s|training_tok/s"
)
_AGGREGATION_FROM: Version = (0, 27)
TRL_FAMILY = frozenset({"trl", "unsloth", "ms-swift"})
# A framework is known by any one of these keys; the first that fits counts.
_MARKS: tuple[tuple[str, str], ...] = (
    ("verl", r"critic/(score|rewards)/mean|actor/pg_clipfrac|val-core/.+"),
    ("prime-rl", r"train/agg/(all|effective)/.+|mismatch_kl/all/mean|entropy/all/mean"),
    ("slime", r"rollout/raw_reward|train/train_rollout_logprob_abs_diff"),
    ("nemo-rl", r"(train/)?(baseline_reward/pct_[01]|token_mult_prob_error|probs_ratio_clamped)"),
    ("skyrl", r"reward/avg_raw_reward|policy/policy_entropy"),
    ("areal", r"ppo_actor/.+"),
    ("open-instruct", r"(val/)?(all_zero_reward_groups_ratio|stop_rate)|unsolved_batch_size_ratio|objective/kl\d?_avg"),
    ("tinker", r"env/all/(reward/total|by_group/frac_mixed)"),
    ("openrlhf", r"(train/)?(group_reward_std|vllm_kl|dynamic_filtering_pass_rate|actor_grad_norm)"),
    ("art", r"train/(exception_rate|reward_std_dev)"),
)
_FRAMEWORKS = tuple((name, re.compile(pattern)) for name, pattern in _MARKS)
_NO_FUNCTION = frozenset({"mean", "std", "max", "min", "total", "sum", "count", "var", "median", "advantage", "advantages"})
_PLAIN = tuple((re.compile(pattern), quantity) for pattern, quantity in _PLAIN_RULES)


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The TRL versions that can have written a log, both ends included."""

    low: Version
    high: Version

    def words(self) -> str:
        """Return the range for a sentence."""
        if self.low == self.high:
            return f"TRL {self.low[0]}.{self.low[1]}"
        if self.high == _NEWEST:
            return f"TRL {self.low[0]}.{self.low[1]} or newer" if self.low > (0, 14) else "TRL of unknown version"
        return f"TRL {self.low[0]}.{self.low[1]} to {self.high[0]}.{self.high[1]}"


def looks_like_trl(keys: Iterable[str]) -> bool:
    """Return whether the keys are those of TRL's GRPO trainers."""
    names = {_evaluated(key)[0] for key in keys}
    marks = {"completions/mean_length", "completion_length", "frac_reward_zero_std", "completions/clipped_ratio", "clip_ratio/region_mean"}
    return {"reward", "reward_std"} <= names and bool(marks & names)


def framework_of(keys: Iterable[str]) -> str:
    """Return the framework whose keys these are, "" where none is known by them."""
    names = [plain(key).rsplit(" - ", 1)[-1] for key in keys]
    if looks_like_trl(names):
        return "ms-swift" if any(name.startswith(("memory(gib)", "train_speed(", "global_step/max_steps")) for name in names) else "trl"
    return next((framework for framework, mark in _FRAMEWORKS if any(mark.fullmatch(name) for name in names)), "")


def trl_versions(keys: Iterable[str], stated: str | None, *, complete: bool) -> VersionRange:
    """Return the versions of TRL that log these keys."""
    found = re.match(r"v?(\d+)\.(\d+)", stated or "")
    if found:
        exact = (int(found[1]), int(found[2]))
        return VersionRange(exact, exact)
    names = {plain(key).removeprefix("train/") for key in keys}
    low, high = (0, 14), _NEWEST
    complete = complete and {"epoch", "learning_rate", "completions/mean_length"} <= names
    if any(_ASYNCHRONOUS.fullmatch(name) for name in names):
        return VersionRange((1, 10) if any(name.startswith("sample/") for name in names) else (1, 0), _NEWEST)
    functions = [name for name in names if name.startswith("rewards/")]
    old = ("completion_length" in names and "completions/mean_length" not in names) or (
        bool(functions) and not any(name.endswith(("/mean", "/std")) for name in functions)
    )
    if old:
        return VersionRange(low, (0, 16))
    if "completions/mean_length" in names or functions:
        low = (0, 17)
    for key, version in _ALWAYS_FROM:
        if key in names:
            low = max(low, version)
        elif complete:
            high = min(high, (version[0], version[1] - 1))
    low = max([low, *(version for key, version in _SOMETIMES_FROM if key in names)])
    if any(name.startswith("sampling/") for name in names):
        low = max(low, (0, 23))
    if any(name.startswith("vespo/") for name in names):
        low = max(low, (1, 0))
    return VersionRange(low, high if high >= low else _NEWEST)


def meanings_of(columns: Columns, config: RunConfig, *, framework: str, complete: bool, window: float) -> tuple[Meaning, ...]:
    """Return what each column means."""
    if framework in TRL_FAMILY:
        versions = trl_versions(columns, config.value("framework_version") if framework == "trl" else None, complete=complete)
        found = [_trl_meaning(key, columns, config, versions, window, framework) for key in columns]
    else:
        version = version_of(config.value("framework_version"))
        found = [_ruled(key, columns, framework, version) or _plain_meaning(key, columns) for key in columns]
    meanings = [meaning for meaning in found if meaning is not None and not is_counter(meaning.column)]
    sources = {meaning.quantity for meaning in meanings if meaning.quantity.startswith("eval/reward")}
    if framework not in TRL_FAMILY and len(sources) == 1:
        meanings = [replace(meaning, quantity="eval/reward") if meaning.quantity in sources else meaning for meaning in meanings]
    return tuple(meanings)


@cache
def _rules_of(framework: str) -> tuple[Rule, ...]:
    """Return the rules of one framework."""
    return tuple(rule for rule in RULES if rule.framework == framework)


def _ruled(key: str, columns: Columns, framework: str, version: Version | None) -> Meaning | None:
    """Return the meaning of a key by the table, None where the table does not have it in that version."""
    whole = re.sub(r"\s*/\s*", "/", key.strip()).rsplit(" - ", 1)[-1]
    bare, evaluated = re.sub(r"^(train|eval)/", "", whole, flags=re.IGNORECASE), whole.lower().startswith("eval/")
    present = {plain(name) for name in columns}
    for rule in _rules_of(framework):
        since, until = version_of(rule.since), version_of(rule.until)
        if version and ((since and version < since) or (until and version > until)):
            continue
        if rule.unless and rule.unless in present:
            continue
        match, prefix = rule.pattern().fullmatch(whole), ""
        if match is None and not rule.framed and bare != whole:
            match, prefix = rule.pattern().fullmatch(bare), "eval/" if evaluated and not rule.quantity.startswith("eval/") else ""
        if match is not None and not (rule.quantity == "eval/reward/<source>" and _is_part(plain(whole), present)):
            return _by_rule(key, columns[key], rule, match, prefix)
    return None


def _is_part(key: str, present: Container[str]) -> bool:
    """Return whether a key is that of something else that was measured on a source, whose reward is under a shorter key."""
    shorter = key.rpartition("/")[0]
    return bool(shorter) and (shorter in present or _is_part(shorter, present))


def _by_rule(key: str, values: NDArray[np.float64], rule: Rule, match: re.Match[str], prefix: str) -> Meaning:
    """Return the meaning that a rule gives a key."""
    groups = {name: text for name, text in match.groupdict().items() if text is not None}
    quantity = re.sub(r"<(\w+)>", lambda word: groups.get(word[1], word[0]), rule.quantity)
    part = groups.get("part", "").lower()
    quantity += f"_{part}" if part in ("min", "max") else ""
    text = rule.definition.replace("{}", {"min": "smallest", "max": "largest"}.get(part, "mean"))
    text += ", on the evaluation prompts" if prefix else ""
    if rule.judged and rule.quantity.startswith("clip_ratio") and not np.isfinite(values[np.nonzero(values)]).any():
        nothing = "0 in every row, as it must be when every batch is used for one update, so it says nothing"
        return Meaning(key, prefix + quantity, f"{text.split(';')[0]}: {nothing}", unavailable=True)
    return Meaning(key, prefix + quantity, text, ambiguous=rule.ambiguous)


def known_quantities() -> tuple[str, ...]:
    """Return the canonical quantities that a column can be said to hold; "<function>" stands for any name."""
    listed = [*QUANTITIES, *(quantity for _, quantity in _PLAIN_RULES)]
    return tuple(dict.fromkeys(listed))


def is_quantity(name: str) -> bool:
    """Return whether a name is that of a canonical quantity, perhaps on the evaluation prompts or of one part (`_max`)."""
    bare = name.removeprefix("eval/")
    if re.fullmatch(r"(reward|reward_std_batch|clip_ratio)/\S(.*\S)?", bare):
        return True
    return bare in known_quantities() or re.sub(r"_(min|max)$", "", bare) in known_quantities()


def _evaluated(key: str) -> tuple[str, bool]:
    """Return the key without an evaluation's prefix, and whether it had one."""
    name = plain(key).rsplit(" - ", 1)[-1]
    for prefix in ("eval_", "eval/"):
        if name.startswith(prefix):
            return name.removeprefix(prefix), True
    return name.removeprefix("train/"), False


def _trl_meaning(key: str, columns: Columns, config: RunConfig, versions: VersionRange, window: float, framework: str) -> Meaning | None:
    """Return the meaning of one key of a TRL log."""
    name, evaluated = _evaluated(key)
    prefix, where = ("eval/", ", on the evaluation prompts") if evaluated else ("", "")
    if name == "reward":
        text = f"mean total reward: the weighted sum of the reward functions, averaged over the completions of the row{where}"
        return Meaning(key, f"{prefix}reward", text)
    if framework == "ms-swift" and name in ("reward_std", "frac_reward_zero_std"):
        return _swift(key, name, config, prefix)
    if name == "reward_std":
        return _reward_std(key, columns, config, versions, prefix)
    if name == "frac_reward_zero_std":
        several = len(_reward_functions(columns, prefix)) > 1 and versions.high >= _AGGREGATION_FROM
        return _dead_groups(key, columns[key], config, window, prefix, several=several)
    if name.startswith("clip_ratio/") or name == "clip_ratio":
        return _clip_ratio(key, columns[key], prefix)
    function = re.fullmatch(r"rewards/(.+?)(/mean|/std)?", name)
    if function:
        original = re.sub(r"\s*/\s*", "/", key).split("rewards/", 1)[1]
        title = re.sub(r"/(mean|std)$", "", original)
        if function[2] == "/std":
            text = f"standard deviation of {title} over all completions of a step{where}"
            return Meaning(key, f"{prefix}reward_std_batch/{title}", text)
        return Meaning(key, f"{prefix}reward/{title}", f"mean of the reward function {title}, unweighted{where}")
    for rule in _rules_of("trl"):
        match = None if rule.judged or rule.quantity.startswith("reward") else rule.pattern().fullmatch(name)
        if match:
            return _by_rule(key, columns[key], rule, match, prefix)
    return None


def _swift(key: str, name: str, config: RunConfig, prefix: str) -> Meaning:
    """Return the meaning of the two keys that ms-swift took over from TRL with a meaning of its own."""
    if name == "frac_reward_zero_std":
        return Meaning(key, f"{prefix}dead_group_share", "share of groups whose completions all have the same total reward (ms-swift)")
    if config.value("scale_rewards") == "batch":
        text = "standard deviation of the total reward over the whole batch (ms-swift, rewards scaled by the batch)"
        return Meaning(key, f"{prefix}reward_std_batch", text)
    text = "mean over groups of the standard deviation of the total reward within the group, ddof 1 (ms-swift)"
    if config.value("scale_rewards") is None:
        return Meaning(key, f"{prefix}reward_std_within_group", f"{text}; of the batch if rewards were scaled by it", ambiguous=True)
    return Meaning(key, f"{prefix}reward_std_within_group", text)


def _reward_functions(columns: Columns, prefix: str) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Return what is logged of each reward function: "mean" and "std" where it is there."""
    found: dict[str, dict[str, NDArray[np.float64]]] = {}
    for key, values in columns.items():
        name, evaluated = _evaluated(key)
        match = re.fullmatch(r"rewards/(.+?)(?:/(mean|std))?", name)
        if match and evaluated == bool(prefix):
            found.setdefault(match[1], {})[match[2] or "mean"] = values
    return found


def _weight(columns: Columns, mean: NDArray[np.float64] | None, prefix: str) -> float | None:
    """Return the weight of the only reward function, reward over its mean, or None where that is not one number."""
    total = next((values for key, values in columns.items() if _evaluated(key) == ("reward", bool(prefix))), None)
    if mean is None or total is None:
        return None
    both = np.isfinite(mean) & np.isfinite(total)
    moves = both & (np.abs(mean) > 1e-3)
    if moves.sum() < 3:
        return None
    weight = float(np.median(total[moves] / mean[moves]))
    alike = np.allclose(total[both], weight * mean[both], rtol=1e-3, atol=1e-4 * max(1.0, abs(weight)))
    return weight if alike else None


def _judged_by_function(columns: Columns, std: NDArray[np.float64], prefix: str) -> str:
    """Return "batch", "within" or "" from reward_std over the batch spread of the only reward function.

    Proportional to it with the weight that the means tell, it is the batch's; not proportional at all, it is not the batch's.
    """
    functions = list(_reward_functions(columns, prefix).values())
    if len(functions) != 1 or "std" not in functions[0]:
        return ""
    twin = functions[0]["std"]
    moves = np.isfinite(twin) & np.isfinite(std) & (twin > 1e-3)
    if moves.sum() < 3:
        return ""
    twin, std = twin[moves], std[moves]
    ratio = float(np.median(std / twin))
    if not np.allclose(std, ratio * twin, rtol=1e-3, atol=1e-4 * max(1.0, ratio)):
        return "within"
    weight = _weight(columns, functions[0].get("mean"), prefix)
    expected = 1.0 if weight is None else abs(weight)
    return "batch" if np.allclose(std, expected * twin, rtol=1e-3, atol=1e-4 * min(1.0, expected)) else ""


def _reward_std(key: str, columns: Columns, config: RunConfig, versions: VersionRange, prefix: str) -> Meaning:
    """Return the meaning of reward_std: within groups up to TRL 0.26 and in its asynchronous trainer, else over the whole batch."""
    if any(_ASYNCHRONOUS.fullmatch(_evaluated(name)[0]) for name in columns):
        text = "mean over groups of the standard deviation of the total reward within the group, with G and not G - 1 in the denominator"
        return Meaning(key, f"{prefix}reward_std_within_group", f"{text} (TRL's asynchronous trainer)")
    within = f"mean over groups of the standard deviation of the total reward within the group ({versions.words()})"
    batch = f"standard deviation of the total reward over the whole batch, within and between prompts ({versions.words()})"
    if versions.high <= (0, 26):
        return Meaning(key, f"{prefix}reward_std_within_group", within)
    if versions.low >= (0, 27):
        return Meaning(key, f"{prefix}reward_std_batch", batch)
    if config.value("prompts_per_step") == 1:
        return Meaning(key, f"{prefix}reward_std_within_group", "standard deviation of the total reward within the one group of the step")
    judged = _judged_by_function(columns, columns[key], prefix)
    if judged == "batch":
        text = "standard deviation of the total reward over the whole batch: in every row that of its only function times its weight"
        return Meaning(key, f"{prefix}reward_std_batch", text)
    if judged == "within":
        text = "mean over groups of the standard deviation within the group: it is not proportional to the batch's in the log"
        return Meaning(key, f"{prefix}reward_std_within_group", text)
    text = (
        "within-group standard deviation up to TRL 0.26, of the whole batch from 0.27, and the log does not say which "
        f"({versions.words()}): read as an upper bound of the spread within groups"
    )
    return Meaning(key, f"{prefix}reward_std_ambiguous", text, ambiguous=True)


def _dead_groups(key: str, values: NDArray[np.float64], config: RunConfig, window: float, prefix: str, *, several: bool) -> Meaning:
    """Return the meaning of frac_reward_zero_std: of groups, but of the whole batch where advantages are scaled by the batch.

    `several`: whether the version can normalise each of several reward functions before it sums them.
    """
    groups = "share of groups whose completions all have the same total reward"
    scaling, aggregation = config.value("scale_rewards"), config.value("multi_objective_aggregation")
    if scaling == "batch" or aggregation == "normalize_then_sum":
        why = "each function is normalised before the sum" if aggregation == "normalize_then_sum" else "rewards are scaled by the batch"
        text = f"whether the whole batch has one reward ({why}): it does not count dead groups"
        return Meaning(key, f"{prefix}dead_batch_share", text, unavailable=True)
    open_order = several and aggregation is None
    if scaling in ("group", "none") and not open_order:
        return Meaning(key, f"{prefix}dead_group_share", groups)
    finite = values[np.isfinite(values)]
    counts = finite * max(1.0, window)
    if len(finite) and bool((np.abs(counts - np.round(counts)) > 0.01).any()):
        return Meaning(key, f"{prefix}dead_group_share", f"{groups}: its values are finer than the batch as a whole could give")
    causes = ["rewards were scaled by the batch"] if scaling is None else []
    causes += ["each function was normalised before the sum (multi_objective_aggregation)"] if open_order else []
    text = f"{groups}, unless {' or '.join(causes)}, when it reads 0 although groups are dead: a lower bound"
    return Meaning(key, f"{prefix}dead_group_share", text, ambiguous=True)


def _clip_ratio(key: str, values: NDArray[np.float64], prefix: str) -> Meaning:
    """Return the meaning of a clip ratio: identically 0 on-policy, where it carries nothing."""
    part = plain(key).split("/", 1)[-1] if "/" in key else "mean"
    finite = values[np.isfinite(values)]
    if not finite.any():
        text = "share of tokens clipped: 0 in every row, as it must be when every batch is used for one update, so it says nothing"
        return Meaning(key, f"{prefix}clip_ratio/{part}", text, unavailable=True)
    return Meaning(key, f"{prefix}clip_ratio/{part}", "share of tokens whose importance ratio was clipped")


def _plain_meaning(key: str, columns: Columns) -> Meaning | None:
    """Return the meaning of a key of an unknown log, from its name alone."""
    name, evaluated = _evaluated(key)
    prefix, name = "eval/" if evaluated else "", re.sub(r"(?<!training) +", "_", name)
    if name == "p" and "reward_mean" in columns:
        return Meaning(key, "positive_share", "share of positive completions among those that the log counted (by its name)")
    for pattern, quantity in _PLAIN:
        if not pattern.fullmatch(name):
            continue
        if name == "reward_mean" and "p" in columns and _constant(columns[key]) and not _constant(columns["p"]):
            text = "mean reward by its name, but one constant while p moves: it was not written"
            return Meaning(key, f"{prefix}{quantity}", text, unavailable=True)
        ambiguous = quantity == "reward_std_ambiguous"
        text = f"{quantity.replace('_ambiguous', '').replace('_', ' ')}, judged by its name alone"
        if ambiguous:
            text += ": within groups or over the batch is not said, so it is read as an upper bound of the spread within groups"
        return Meaning(key, f"{prefix}{quantity}", text, ambiguous=ambiguous)
    function = re.fullmatch(r"rewards?/([^/]{1,80})(/mean)?", name)
    if function and function[1] not in _NO_FUNCTION and not function[1].startswith(("avg_", "mean_", "std_")):
        return Meaning(key, f"{prefix}reward/{function[1]}", f"mean of the reward function {function[1]}, judged by its name alone")
    return None


def _constant(values: NDArray[np.float64]) -> bool:
    """Return whether all finite values are equal."""
    finite = values[np.isfinite(values)]
    return len(finite) == 0 or bool((finite == finite[0]).all())
