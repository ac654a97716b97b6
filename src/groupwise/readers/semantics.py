"""What the keys of a log mean, by framework and version; where the log cannot tell, the safe reading and the word ambiguous.

Facts about log keys only: no values are changed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from groupwise.record import Meaning, RunConfig

Version = tuple[int, int]
Columns = Mapping[str, NDArray[np.float64]]
_NEWEST: Version = (99, 99)

_TRL_RULES: tuple[tuple[str, str, str], ...] = (
    (r"completions/(mean|min|max)_length|completion_length", "completion_length", "{} tokens of a completion, end-of-sequence included"),
    (r"completions/(mean|min|max)_terminated_length", "terminated_length", "{} tokens of the completions that ended by themselves"),
    (r"completions/clipped_ratio", "truncated_share", "share of completions cut off at the length limit"),
    (r"entropy", "entropy", "mean entropy of the policy over tokens, nats"),
    (r"kl", "kl", "mean KL divergence to the reference policy, nats a token; logged only where its weight is not 0"),
    (r"grad_norm", "gradient_norm", "norm of the gradient before clipping"),
    (r"loss|training loss", "loss", "the policy loss: near 0 on-policy by construction, it says nothing about learning"),
    (r"learning_rate", "learning_rate", "learning rate of the last update of the row"),
    (r"num_tokens", "tokens", "tokens processed so far, prompts included"),
    (r"step_time", "step_time", "seconds a step"),
    (r"epoch", "epoch", "passes over the prompts so far"),
    (r"validation loss", "eval/loss", "the policy loss on the evaluation prompts"),
    (r"sampling/sampling_logp_difference/(mean|max)", "sampler_mismatch", "{} difference of log-probability between sampler and trainer"),
    (r"sampling/importance_sampling_ratio/(mean|min|max)", "sampler_ratio", "{} importance ratio between trainer and sampler"),
    (r"sample/staleness_(mean|max)", "staleness", "{} policy updates between generation and use of a sample"),
)

_PLAIN_RULES: tuple[tuple[str, str], ...] = (
    (r"((train|rollouts?|env|critic)/)?((mean_|avg_|raw_)?rewards?|reward_mean|rewards?/mean|score/mean|reward_(trace|history))", "reward"),
    (r"(train/)?(reward_std|std_reward|reward_std_dev)|reward/std", "reward_std_ambiguous"),
    (r"(train/)?(frac_reward_zero_std|zvf|zero_advantage_group_ratio|zero_variance_fraction)", "dead_group_share"),
    (r"(avg_|mean_)?(response|completion)s?(_token)?_length(/mean|_mean)?|(response|completion)_length/mean", "completion_length"),
    (r"response_length/clip_ratio|(train/)?truncat(ed|ion)_(ratio|share|rate)|completion_truncated_ratio", "truncated_share"),
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
_TRL = tuple((re.compile(pattern), quantity, words) for pattern, quantity, words in _TRL_RULES)
_PLAIN = tuple((re.compile(pattern), quantity) for pattern, quantity in _PLAIN_RULES)


def plain(key: str) -> str:
    """Return a key as the rules see it: lower case, without blanks around "/", without a tracker's prefix.

    Example:
        >>> plain("rewards / Check / mean")
        'rewards/check/mean'
    """
    return re.sub(r"\s*/\s*", "/", key.strip().lower())


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
    """Return whether the keys are those of TRL's GRPO trainers.

    Example:
        >>> looks_like_trl(["reward", "reward_std", "completions/mean_length"])
        True
    """
    names = {plain(key) for key in keys}
    marks = {"completions/mean_length", "completion_length", "frac_reward_zero_std", "completions/clipped_ratio", "clip_ratio/region_mean"}
    return {"reward", "reward_std"} <= names and bool(marks & names)


def trl_versions(keys: Iterable[str], stated: str | None, *, complete: bool) -> VersionRange:
    """Return the versions of TRL that log these keys.

    Args:
        keys: of the log.
        stated: the version where it is known, for example "1.16.0".
        complete: whether the log may hold all keys (a notebook's table does not): where it has the trainer's own keys too,
            a missing one says something.

    Returns:
        The range.

    Example:
        >>> keys = ["reward", "reward_std", "completions/mean_length", "entropy", "frac_reward_zero_std"]
        >>> keys += ["epoch", "learning_rate"]
        >>> trl_versions(keys, None, complete=True).words()
        'TRL 0.20 to 0.25'
    """
    found = re.match(r"v?(\d+)\.(\d+)", stated or "")
    if found:
        exact = (int(found[1]), int(found[2]))
        return VersionRange(exact, exact)
    names = {plain(key) for key in keys}
    low, high = (0, 14), _NEWEST
    complete = complete and {"epoch", "learning_rate", "completions/mean_length"} <= names
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
    """Return what each column means.

    Args:
        columns: key -> T values.
        config: the settings; a stated framework version decides.
        framework: "trl", or "" for any other.
        complete: whether a TRL log holds all keys of its version.
        window: steps that a row averages over.

    Returns:
        One meaning a column whose key is known.

    Example:
        >>> meanings_of({"kl": np.zeros(1)}, RunConfig(), framework="trl", complete=True, window=1.0)[0].quantity
        'kl'
    """
    if framework == "trl":
        versions = trl_versions(columns, config.value("framework_version"), complete=complete)
        found = [_trl_meaning(key, columns, config, versions, window) for key in columns]
    else:
        found = [_plain_meaning(key, columns) for key in columns]
    return tuple(meaning for meaning in found if meaning is not None)


def _evaluated(key: str) -> tuple[str, bool]:
    """Return the key without an evaluation's prefix, and whether it had one."""
    name = plain(key).rsplit(" - ", 1)[-1]
    for prefix in ("eval_", "eval/"):
        if name.startswith(prefix):
            return name.removeprefix(prefix), True
    return name.removeprefix("train/"), False


def _trl_meaning(key: str, columns: Columns, config: RunConfig, versions: VersionRange, window: float) -> Meaning | None:
    """Return the meaning of one key of a TRL log."""
    name, evaluated = _evaluated(key)
    prefix, where = ("eval/", ", on the evaluation prompts") if evaluated else ("", "")
    if name == "reward":
        text = f"mean total reward: the weighted sum of the reward functions, averaged over the completions of the row{where}"
        return Meaning(key, f"{prefix}reward", text)
    if name == "reward_std":
        return _reward_std(key, columns, config, versions, prefix)
    if name == "frac_reward_zero_std":
        return _dead_groups(key, columns[key], config, window, prefix)
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
    for pattern, quantity, words in _TRL:
        match = pattern.fullmatch(name)
        if match:
            part = match[1] if match.groups() and match[1] else "mean"
            suffix = "" if part == "mean" else f"_{part}"
            text = words.format({"min": "smallest", "max": "largest"}.get(part, "mean")) + where
            return Meaning(key, f"{prefix}{quantity}{suffix}", text)
    return None


def _function_std(columns: Columns, prefix: str) -> NDArray[np.float64] | None:
    """Return the batch spread of the only reward function, or None where there are several or none."""
    wanted = ((values, *_evaluated(key)) for key, values in columns.items())
    found = [values for values, name, evaluated in wanted if evaluated == bool(prefix) and re.fullmatch(r"rewards/[^/]+/std", name)]
    return found[0] if len(found) == 1 else None


def _reward_std(key: str, columns: Columns, config: RunConfig, versions: VersionRange, prefix: str) -> Meaning:
    """Return the meaning of reward_std: within groups up to TRL 0.26, over the whole batch from 0.27."""
    within = f"mean over groups of the standard deviation of the total reward within the group ({versions.words()})"
    batch = f"standard deviation of the total reward over the whole batch, within and between prompts ({versions.words()})"
    if versions.high <= (0, 26):
        return Meaning(key, f"{prefix}reward_std_within_group", within)
    if versions.low >= (0, 27):
        return Meaning(key, f"{prefix}reward_std_batch", batch)
    if config.value("prompts_per_step") == 1:
        return Meaning(key, f"{prefix}reward_std_within_group", "standard deviation of the total reward within the one group of the step")
    twin = _function_std(columns, prefix)
    if twin is not None:
        both = np.isfinite(twin) & np.isfinite(columns[key])
        moves = both & (twin > 1e-3)
        if moves.sum() >= 3:
            equal = bool(np.allclose(twin[moves], columns[key][moves], rtol=1e-3, atol=1e-4))
            if equal:
                text = "standard deviation of the total reward over the whole batch: equal to that of its only reward function in every row"
                return Meaning(key, f"{prefix}reward_std_batch", text)
            text = "mean over groups of the standard deviation within the group: it differs from the batch's in the log"
            return Meaning(key, f"{prefix}reward_std_within_group", text)
    text = (
        "within-group standard deviation up to TRL 0.26, of the whole batch from 0.27, and the log does not say which "
        f"({versions.words()}): read as an upper bound of the spread within groups"
    )
    return Meaning(key, f"{prefix}reward_std_ambiguous", text, ambiguous=True)


def _dead_groups(key: str, values: NDArray[np.float64], config: RunConfig, window: float, prefix: str) -> Meaning:
    """Return the meaning of frac_reward_zero_std: of groups, but of the whole batch where rewards are scaled by the batch."""
    groups = "share of groups whose completions all have the same total reward"
    scaling = config.value("scale_rewards")
    if scaling in ("group", "none"):
        return Meaning(key, f"{prefix}dead_group_share", groups)
    if scaling == "batch":
        text = "whether the whole batch has one reward (rewards are scaled by the batch): it does not count dead groups"
        return Meaning(key, f"{prefix}dead_batch_share", text, unavailable=True)
    finite = values[np.isfinite(values)]
    counts = finite * max(1.0, window)
    if len(finite) and bool((np.abs(counts - np.round(counts)) > 0.01).any()):
        return Meaning(key, f"{prefix}dead_group_share", f"{groups}: its values are finer than the batch as a whole could give")
    text = f"{groups}, unless rewards were scaled by the batch, when it reads 0 although groups are dead: a lower bound"
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
    prefix = "eval/" if evaluated else ""
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
    return None


def _constant(values: NDArray[np.float64]) -> bool:
    """Return whether all finite values are equal."""
    finite = values[np.isfinite(values)]
    return len(finite) == 0 or bool((finite == finite[0]).all())
