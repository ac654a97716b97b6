r"""What a trainer computes as an advantage, as data: baseline, degrees of freedom, epsilon, level
of the scale, whitening, odd groups.

An `AdvantageSpec` says it and computes it, in the precision of what it is given and in the
trainer's own order of operations, so that a float32 tensor gives the trainer's float32 numbers.
NumPy adds in another order than torch: there the last digit of a mean may differ. A version is the
first in which we saw the definition, among those that we looked at, not necessarily the first that
has it. "called" says that the framework's own function gave the same digits
(tests/optional/test_trainer_presets.py), "read" that its source was read. Estimators that need a
critic, log-probabilities or turns are left out; clipping, KL terms, length penalties and loss
weights are no advantages.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.estimators.rollout_groups import (
    Array,
    RolloutGroups,
    as_floats,
    as_kind,
    is_tensor,
    module_of,
    rollout_groups,
    to_numpy,
)

Baseline = Literal["none", "group_mean", "leave_one_out", "length_weighted_mean", "second_best"]
Scale = Literal["none", "group_std", "batch_std", "leave_one_out_std", "group_mean"]


@dataclass(frozen=True, slots=True)
class Whitening:
    """A second standardisation, over the whole batch, of advantages that are already there."""

    weights: Literal[
        "token", "rollout"
    ]  # "token" counts a rollout once for each of its tokens, "rollout" once
    ddof: int  # 1 divides by the number minus 1, 0 by the number
    epsilon: float  # a small number against division by zero
    # "outside" is s + eps, "inside" is sqrt(s^2 + eps), "floor" is sqrt(max(s^2, eps))
    place: Literal["outside", "inside", "floor"]


@dataclass(frozen=True, slots=True)
class AdvantageSpec:
    r"""How a framework turns rewards into advantages.

    $A = f\,(z - b)/(s + \epsilon)$, then perhaps whitened
    """

    framework: str  # its name, such as "trl"; "custom" for one of your own
    estimator: str  # the name it has there, or nearly
    # b; "second_best" keeps only the best rollout of a group, above the second best
    baseline: Baseline = "group_mean"
    # s. "leave_one_out_std" comes without the rollout itself, "group_mean" is that of max-RL
    scale: Scale = "none"
    ddof: int = 1  # 1 divides a sum of squares by n - 1, 0 by n
    epsilon: float = 0.0  # added to s
    variance_floor: float = 0.0  # s^2 is at least this
    # whether s is that of the rewards, or of the rewards above their baseline, which rounds
    # differently
    scale_of: Literal["reward", "advantage"] = "reward"
    # "one", or "batch_over_nonzero", the rollouts of the batch over those with a reward that is not
    # 0
    factor: Literal["one", "batch_over_nonzero"] = "one"
    whitening: Whitening | None = None  # a second standardisation, or None
    # a group of one is "refused", gets its reward ("raw": b = 0, s = 1), or "zero"
    singleton: Literal["refused", "raw", "zero"] = "refused"
    # a NaN reward is "refused", gets advantage "zero" and leaves the group's statistics, or
    # "counts_as_zero"
    missing: Literal["refused", "zero", "counts_as_zero"] = "refused"
    all_equal: str = "zero up to rounding"  # what a group of equal rewards gets, in words
    # order in which a group is summed: "row" (the library's mean and std of rows), "group" (of one
    # group at a time), "nan" (mean and squares that skip NaN) or "sequential" (one after the other)
    reduction: Reduction = "row"
    # of the algebraically equal forms the one that is coded: z - (S - z)/(n-1), z n/(n-1) - m
    # n/(n-1), (n z - S)/(n-1), or (z - m) (n/(n-1))
    leave_one_out_form: Literal["difference", "split", "product", "scaled"] = "difference"
    # how several rewards become one: weighted sum before ("sum_first") or after each is
    # standardised ("standardise_first")
    several: Literal["sum_first", "standardise_first"] = "sum_first"
    # first version, "" where nothing older was looked at; for GitHub-only projects the version read
    since: str = ""
    until: str = ""  # first version that does something else, or ""
    # "called" where the framework's own function gave the same digits in our tests, "read" where
    # its source was read
    evidence: Literal["called", "read"] = "read"
    note: str = ""  # what else there is to know

    @property
    def needs_mask(self) -> bool:
        """Whether it depends on the number of tokens of a rollout."""
        return self.baseline == "length_weighted_mean" or (
            self.whitening is not None and self.whitening.weights == "token"
        )

    def covers(self, version: str) -> bool:
        """Whether this version of the framework computes it, as far as we looked."""
        return _numbers(self.since) <= _numbers(version) and not (
            self.until and _numbers(self.until) <= _numbers(version)
        )

    def advantages(self, reward: Array, prompt: Any = None, *, mask_NL: Any = None) -> Array:
        """Return what the framework would give each rollout."""
        groups = rollout_groups(reward, prompt, missing=self.missing != "refused")
        mask = self._mask(groups, mask_NL)
        if self.missing == "counts_as_zero":
            filled = groups.module.nan_to_num(groups.reward, nan=0.0)
            groups = RolloutGroups(filled, groups.rows, groups.label_N)
        return self._finish(self._standardised(groups, mask), groups, mask)

    def several_advantages(
        self, reward_F: Array, weight_F: Any, prompt: Any = None, *, mask_NL: Any = None
    ) -> Array:
        """Return what the framework would give each rollout that has several rewards."""
        stacked = as_floats(reward_F)
        weight = as_kind(weight_F, stacked)
        module = module_of(stacked)
        if tuple(weight.shape) != (len(stacked),) or not bool(module.isfinite(weight).all()):
            raise InvalidArgumentError(
                f"expected {len(stacked)} finite weights, one a reward, got {weight_F!r}: weight_F "
                "goes with reward_F"
            )
        absent = module.isnan(stacked).all(0)
        parts = [
            rollout_groups(part, prompt, missing=self.missing != "refused") for part in stacked
        ]
        if self.several == "sum_first":
            total = self._weighted_sum(stacked, weight)
            if self.missing == "zero":
                total[absent] = np.nan
            return self.advantages(total, prompt, mask_NL=mask_NL)
        mask = self._mask(parts[0], mask_NL)
        shape = parts[0].reward.shape
        if self.reduction == "nan":
            # These trainers keep the rewards of a rollout side by side, and sums over a group then
            # run in another order.
            standard = module.moveaxis(
                self._standardised_together(
                    _innermost(stacked.reshape(len(stacked), -1)), parts[0]
                ),
                -1,
                0,
            )
        else:
            standard = module.stack([self._standardised(part, mask).reshape(-1) for part in parts])
        total = self._weighted_sum(standard, weight).reshape(shape)
        if self.missing == "zero":
            total[absent] = np.nan
        return self._finish(total, RolloutGroups(total, parts[0].rows, parts[0].label_N), mask)

    def _standardised_together(self, inner_NF: Array, groups: RolloutGroups) -> Array:
        """Every reward standardised in its groups, all of them in one block."""
        if self.singleton == "refused":
            groups.at_least(2, f"{self.framework} {self.estimator}")
        result = groups.module.empty_like(inner_NF)
        for rows in groups.rows:
            result[rows] = self._group(inner_NF[rows])
        return result

    def _weighted_sum(self, part_F: Array, weight_F: Array) -> Array:
        """Sum of the parts times their weights, a missing one counting 0; the rewards lie
        innermost, as in the trainers.
        """
        module = module_of(part_F)
        inner = _innermost(part_F) * weight_F
        if self.missing == "refused":
            total = inner[..., 0]
            for f in range(1, len(part_F)):
                total = total + inner[..., f]
            return total
        return module.nansum(inner, -1)

    def _mask(self, groups: RolloutGroups, mask_NL: Any) -> Array | None:
        """The tokens as a matrix with a row a rollout, where the spec needs them."""
        if not self.needs_mask:
            return None
        if mask_NL is None:
            raise InvalidArgumentError(
                f"{self.framework} {self.estimator} weighs rollouts by their tokens: give mask_NL, "
                "such as np.arange(L) < length_N[:, None]"
            )
        count = len(groups.label_N)
        mask = as_kind(mask_NL, groups.reward)
        if (
            mask.ndim < 2
            or tuple(mask.shape[:-1]) not in {(count,), tuple(groups.reward.shape)}
            or bool((mask.sum(-1) <= 0).any())
        ):
            raise InvalidArgumentError(
                f"expected a mask of {count} rows with a token in each, got shape "
                f"{tuple(mask.shape)}: one row a rollout, 1 for its tokens"
            )
        return mask.reshape(count, -1)

    def _standardised(self, groups: RolloutGroups, mask: Array | None) -> Array:
        """Rewards above their baselines, over their scale."""
        if self.singleton == "refused":
            groups.at_least(2, f"{self.framework} {self.estimator}")
        others = () if mask is None else (mask.sum(-1),)
        above = groups.apply(self._group, *others)
        if self.scale == "batch_std":
            base = groups.flat if self.scale_of == "reward" else above.reshape(-1)
            deviation = (
                std_of(base.reshape(1, -1), self.ddof, self.reduction)
                if len(base) > 1
                else base * 0
            )
            above = above / (deviation.reshape(-1)[0] + self.epsilon)
        return above

    def _group(self, block: Array, length: Array | None = None) -> Array:
        """The advantages of groups of one size, but for what concerns the batch."""
        if block.shape[1] == 1:
            unit = 1 + self.epsilon if self.scale in {"group_std", "leave_one_out_std"} else 1
            return block / as_kind(unit, block) if self.singleton == "raw" else block * 0
        if self.baseline == "second_best":
            return self._second_best(block)
        mean = mean_of(block, self._reduction_of(block))
        if self.baseline == "leave_one_out":
            above = self._leave_one_out(block, mean)
        elif self.baseline == "length_weighted_mean":
            assert length is not None
            above = block - (length * block).sum(1, keepdims=True) / length.sum(1, keepdims=True)
        else:
            above = block - mean if self.baseline == "group_mean" else block
        if self.scale == "group_std":
            deviation = self._deviation(block if self.scale_of == "reward" else above)
            return above / (deviation + self.epsilon)
        if self.scale == "group_mean":
            usable = mean > 0
            return module_of(block).where(usable, above, 0) / module_of(block).where(
                usable, mean, 1
            )
        return (
            self._over_leave_one_out_std(block, above)
            if self.scale == "leave_one_out_std"
            else above
        )

    def _reduction_of(self, block: Array) -> Reduction:
        """The order of summation; where a reward is missing, one that skips it."""
        return (
            "nan"
            if self.missing == "zero" and bool(module_of(block).isnan(block).any())
            else self.reduction
        )

    def _deviation(self, block: Array) -> Array:
        """Standard deviation of each group, with its floor."""
        return std_of(block, self.ddof, self._reduction_of(block), floor=self.variance_floor)

    def _leave_one_out(self, block: Array, mean: Array) -> Array:
        """Rewards above the mean of the others, in the form that the framework codes."""
        size = count_of_rewards(block)
        if self.leave_one_out_form == "difference":
            with np.errstate(invalid="ignore", divide="ignore"):
                return block - (sum_of(block, self.reduction) - block) / (size - 1)
        if self.leave_one_out_form == "split":
            return block * size / (size - 1) - mean * size / (size - 1)
        if self.leave_one_out_form == "product":
            return (size * block - sum_of(block, self.reduction)) / (size - 1)
        return (block - mean) * (size / (size - 1))

    def _over_leave_one_out_std(self, block: Array, above: Array) -> Array:
        """Divided by the standard deviation of the others, from their squares; not where that is
        0 or, in groups of two, undefined.
        """
        size = block.shape[1]
        if size < 3:
            return above
        mean = (sum_of(block, self.reduction) - block) / (size - 1)
        square = (sum_of(block**2, self.reduction) - block**2) / (size - 1)
        deviation = module_of(block).sqrt(((square - mean**2) * ((size - 1) / (size - 2))).clip(0))
        return above / module_of(block).where(deviation > 0, deviation + self.epsilon, 1)

    def _second_best(self, block: Array) -> Array:
        """The best of each group above the second best; nothing for all others."""
        module = module_of(block)
        order = to_numpy(block).argsort(1)
        above = module.zeros_like(block)
        row = np.arange(len(block))
        best, second = order[:, -1], order[:, -2]
        above[row, best] = block[row, best] - block[row, second]
        if self.scale == "group_std":
            above = above / (std_of(block, self.ddof, self.reduction) + self.epsilon)
        return above

    def _finish(self, above: Array, groups: RolloutGroups, mask: Array | None) -> Array:
        """Factor, whitening, and zeros for rollouts without a reward."""
        if self.factor == "batch_over_nonzero":
            nonzero = max(int((groups.flat != 0).sum()), 1)
            # torch divides a number by a tensor as number x reciprocal: two roundings.
            above = as_kind(1 / nonzero, above) * len(groups.flat) * above
        if self.whitening is not None:
            above = self._whitened(above, self.whitening, mask)
        return groups.module.nan_to_num(above, nan=0.0) if self.missing == "zero" else above

    def _whitened(self, above: Array, how: Whitening, mask: Array | None) -> Array:
        """Standardised over the batch."""
        if how.weights == "rollout":
            flat = above.reshape(1, -1)
            mean = mean_of(flat, self.reduction).reshape(())
            if how.place == "outside":
                return (above - mean) / (
                    std_of(flat, how.ddof, self.reduction).reshape(()) + how.epsilon
                )
            variance = std_of(flat, how.ddof, self.reduction).reshape(()) ** 2
        else:
            assert mask is not None
            token_NL = above.reshape(-1, 1) * mask
            count = mask.sum()
            if float(count) <= how.ddof:
                raise InsufficientDataError(
                    f"{self.framework} {self.estimator} needs more than {how.ddof} token, got "
                    f"{int(count)}"
                )
            mean = token_NL.sum() / count
            variance = ((token_NL - mean) ** 2 * mask).sum() / count
            if how.ddof:
                variance = variance * (count / (count - 1))
        if how.place == "outside":
            return (above - mean) / (module_of(above).sqrt(variance) + how.epsilon)
        safe = variance + how.epsilon if how.place == "inside" else variance.clip(how.epsilon)
        return (above - mean) * (safe.rsqrt() if is_tensor(safe) else 1 / np.sqrt(safe))


def _innermost(part_F: Array) -> Array:
    """The first axis moved to the end, in memory too."""
    inner = module_of(part_F).moveaxis(part_F, 0, -1)
    return inner.contiguous() if is_tensor(inner) else np.ascontiguousarray(inner)


Reduction = Literal["row", "group", "nan", "sequential"]


def mean_of(block: Array, reduction: Reduction) -> Array:
    """Return the mean of each row as a column."""
    if reduction == "nan":
        return _nanmean(block)
    return (
        block.mean(1, keepdims=True)
        if reduction in {"row", "group"}
        else _one_by_one(block) / block.shape[1]
    )


def sum_of(block: Array, reduction: Reduction) -> Array:
    """Return the sum of each row as a column."""
    if reduction == "nan":
        return module_of(block).nansum(block, 1, keepdims=True)
    return block.sum(1, keepdims=True) if reduction in {"row", "group"} else _one_by_one(block)


def std_of(block: Array, ddof: int, reduction: Reduction, *, floor: float = 0.0) -> Array:
    """Return the standard deviation of each row as a column."""
    module = module_of(block)
    if reduction == "row":
        return (
            block.std(1, correction=ddof, keepdim=True)
            if is_tensor(block)
            else block.std(1, ddof=ddof, keepdims=True)
        )
    if reduction == "group":
        above = _doubled(block) - _doubled(block.mean(1, keepdims=True))
        deviation = module.sqrt((above * above).sum(1, keepdims=True) / (block.shape[1] - ddof))
        return deviation.to(block.dtype) if is_tensor(block) else deviation.astype(block.dtype)
    if reduction == "sequential":
        above = block - mean_of(block, reduction)
        variance = _one_by_one(above * above) / max(block.shape[1] - ddof, 1)
        return module.sqrt(variance.clip(floor) if floor else variance)
    variance = _nanmean((block - _nanmean(block)) ** 2)
    count = count_of_rewards(block)
    if ddof:
        # A count of one has no standard deviation: NaN, which the caller turns into advantage 0.
        variance = variance * module.where(count > 1, count / (count - 1).clip(1), np.nan)
    return module.sqrt(variance)


def count_of_rewards(block: Array) -> Array:
    """Return how many entries of each row are not NaN, as a column in the block's precision."""
    module = module_of(block)
    count = (~module.isnan(block)).sum(1, keepdims=True)
    return count.to(block.dtype) if is_tensor(block) else count.astype(block.dtype)


def _doubled(block: Array) -> Array:
    """The same numbers in float64."""
    return block.double() if is_tensor(block) else block.astype(np.float64)


def _nanmean(block: Array) -> Array:
    """Mean of what is not NaN; NaN where nothing is left, without a warning."""
    if is_tensor(block):
        return module_of(block).nanmean(block, 1, keepdim=True)
    with np.errstate(invalid="ignore"):
        return np.nansum(block, 1, keepdims=True) / count_of_rewards(block)


def _one_by_one(block: Array) -> Array:
    """Sum of each row, added from left to right."""
    total = block[:, :1] + 0
    for column in range(1, block.shape[1]):
        total = total + block[:, column : column + 1]
    return total


_TRL = AdvantageSpec(
    "trl",
    "grpo",
    scale="group_std",
    epsilon=1e-4,
    reduction="nan",
    missing="zero",
    since="1.6.0",
    evidence="called",
    note="GRPOTrainer, scale_rewards='group', the default.",
)
_TRL_OLD = replace(
    _TRL,
    reduction="row",
    missing="counts_as_zero",
    since="0.16.1",
    until="1.6.0",
    evidence="read",
    note="A reward of None counts as 0 and moves the group's mean.",
)
_TRL_RLOO = replace(
    _TRL,
    estimator="rloo",
    baseline="leave_one_out",
    scale="none",
    epsilon=0.0,
    note="RLOOTrainer; the KL term of the reward comes before.",
)
_TRL_WHITENED = Whitening("rollout", ddof=1, epsilon=1e-4, place="outside")
_TRL_GDPO = replace(
    _TRL,
    estimator="gdpo",
    several="standardise_first",
    whitening=_TRL_WHITENED,
    all_equal="not zero in general: the mean of the batch moves",
    note="GRPOTrainer, multi_objective_aggregation='normalize_then_sum'.",
)
_TRL_ASYNC = AdvantageSpec(
    "trl",
    "async_grpo",
    scale="group_std",
    ddof=0,
    epsilon=1e-8,
    singleton="zero",
    missing="zero",
    since="1.6.0",
    evidence="called",
    note="AsyncGRPOTrainer computes in float64 with NumPy.",
)


def _trl() -> tuple[AdvantageSpec, ...]:
    """TRL: GRPO in its scales, GDPO, RLOO and the asynchronous trainer."""
    return (
        _TRL,
        replace(
            _TRL,
            estimator="grpo_batch",
            scale="batch_std",
            note="GRPOTrainer, scale_rewards='batch'.",
        ),
        replace(
            _TRL,
            estimator="grpo_none",
            scale="none",
            epsilon=0.0,
            note="GRPOTrainer, scale_rewards='none' or False: Dr. GRPO.",
        ),
        _TRL_OLD,
        replace(_TRL_OLD, estimator="grpo_batch", scale="batch_std", since="0.22.2"),
        replace(_TRL_OLD, estimator="grpo_none", scale="none", epsilon=0.0, since="0.18.2"),
        _TRL_GDPO,
        replace(
            _TRL_GDPO, missing="counts_as_zero", since="0.28.0", until="1.6.0", evidence="read"
        ),
        _TRL_RLOO,
        replace(
            _TRL_RLOO,
            estimator="rloo_normalised",
            whitening=_TRL_WHITENED,
            note="RLOOTrainer, normalize_advantages=True.",
        ),
        replace(
            _TRL_RLOO,
            reduction="row",
            missing="counts_as_zero",
            since="0.22.2",
            until="1.6.0",
            evidence="read",
        ),
        _TRL_ASYNC,
        replace(
            _TRL_ASYNC, missing="counts_as_zero", since="1.0.0", until="1.6.0", evidence="read"
        ),
    )


_VERL = AdvantageSpec(
    "verl",
    "grpo",
    scale="group_std",
    epsilon=1e-6,
    singleton="raw",
    reduction="group",
    since="0.2.0",
    evidence="called",
    note="norm_adv_by_std_in_grpo=True, the default. A group of one gets its reward over 1 + 1e-6.",
)
_VERL_WHITENED = Whitening("token", ddof=1, epsilon=1e-8, place="inside")


def _verl() -> tuple[AdvantageSpec, ...]:
    """verl: `algorithm.adv_estimator`."""
    plain = replace(_VERL, scale="none", epsilon=0.0, note="")
    vectorised = replace(
        _VERL, estimator="grpo_vectorized", reduction="sequential", since="0.8.0", note=""
    )
    loose = "not zero in general: the mean of the batch moves"
    return (
        _VERL,
        replace(
            plain,
            estimator="grpo_none",
            since="0.4.1",
            note="adv_estimator=grpo, norm_adv_by_std_in_grpo=False: Dr. GRPO.",
        ),
        vectorised,
        replace(
            vectorised,
            since="0.6.1",
            until="0.8.0",
            variance_floor=1e-6,
            evidence="read",
            note=(
                "Squares were summed in one pass and the variance had a floor of 1e-6: small "
                "spreads came out too small. To rounding."
            ),
        ),
        replace(
            plain,
            estimator="rloo",
            baseline="leave_one_out",
            leave_one_out_form="split",
            since="0.4.1",
        ),
        replace(
            plain,
            estimator="rloo_vectorized",
            baseline="leave_one_out",
            leave_one_out_form="product",
            reduction="sequential",
            singleton="zero",
            since="0.6.1",
        ),
        replace(
            plain,
            estimator="reinforce_plus_plus_baseline",
            whitening=_VERL_WHITENED,
            all_equal=loose,
            since="0.4.1",
        ),
        replace(
            _VERL,
            estimator="gdpo",
            several="standardise_first",
            whitening=_VERL_WHITENED,
            all_equal=loose,
            since="0.8.0",
            note="algorithm.gdpo_reward_keys and gdpo_reward_weights.",
        ),
        replace(plain, estimator="opo", baseline="length_weighted_mean", since="0.4.1"),
        replace(
            plain,
            estimator="gpg",
            factor="batch_over_nonzero",
            since="0.5.0",
            note="With f_norm = 1.",
        ),
        replace(
            _VERL,
            estimator="grpo_passk",
            baseline="second_best",
            singleton="refused",
            since="0.4.1",
            note="One rollout of a group gets an advantage; of equal bests none does.",
        ),
    )


def _others() -> tuple[AdvantageSpec, ...]:
    """Frameworks whose source was read."""
    openrlhf = AdvantageSpec("openrlhf", "dr_grpo", since="0.11.2")
    swift = AdvantageSpec(
        "ms-swift",
        "grpo",
        scale="group_std",
        epsilon=1e-4,
        missing="counts_as_zero",
        singleton="zero",
        since="4.6.0",
    )
    slime = AdvantageSpec(
        "slime",
        "grpo",
        scale="group_std",
        scale_of="advantage",
        epsilon=1e-6,
        note="Also gspo and cispo.",
    )
    nemo = AdvantageSpec(
        "nemo-rl",
        "grpo",
        baseline="leave_one_out",
        scale="leave_one_out_std",
        epsilon=1e-6,
        singleton="zero",
        note=(
            "Groups of two are not divided. The variance comes from squares: where all are nearly "
            "equal, rounding decides."
        ),
    )
    return (
        replace(openrlhf, estimator="group_norm", scale="group_std", epsilon=1e-9),
        openrlhf,
        replace(openrlhf, estimator="rloo", baseline="leave_one_out"),
        replace(
            openrlhf,
            estimator="reinforce_baseline",
            whitening=Whitening("token", ddof=0, epsilon=1e-8, place="floor"),
            all_equal="not zero in general: the mean of the batch moves",
            note="With gamma = 1 and no KL term in the reward.",
        ),
        AdvantageSpec(
            "prime-rl",
            "grpo",
            singleton="zero",
            note="Groups of equal rewards are filtered out before training.",
        ),
        AdvantageSpec(
            "prime-rl",
            "max_rl",
            scale="group_mean",
            singleton="zero",
            note="0 where the group's mean is 0 or less.",
        ),
        slime,
        replace(
            slime,
            estimator="grpo_none",
            scale="none",
            epsilon=0.0,
            note="--disable-grpo-std-normalization.",
        ),
        nemo,
        swift,
        replace(swift, estimator="grpo_batch", scale="batch_std", note="scale_rewards batch."),
        replace(
            swift, estimator="grpo_none", scale="none", epsilon=0.0, note="scale_rewards none."
        ),
        replace(
            swift,
            estimator="rloo",
            baseline="leave_one_out",
            leave_one_out_form="split",
            scale="none",
            epsilon=0.0,
        ),
        replace(swift, estimator="reinforce_plus_plus", scale="batch_std", scale_of="advantage"),
        AdvantageSpec(
            "simple_grpo",
            "grpo",
            scale="group_std",
            epsilon=1e-4,
            all_equal="dropped: max - min below 1e-4",
            note="By the notes of others.",
        ),
        AdvantageSpec(
            "skyrl",
            "grpo",
            scale="group_std",
            epsilon=1e-6,
            singleton="raw",
            reduction="group",
            since="0.3.0",
        ),
        AdvantageSpec(
            "skyrl", "grpo_none", singleton="raw", since="0.3.0", note="grpo_norm_by_std: false."
        ),
        AdvantageSpec(
            "skyrl",
            "rloo",
            baseline="leave_one_out",
            leave_one_out_form="scaled",
            singleton="zero",
            since="0.3.0",
        ),
        AdvantageSpec(
            "art",
            "grpo",
            scale="group_std",
            ddof=0,
            epsilon=1e-6,
            reduction="sequential",
            singleton="zero",
            all_equal="dropped where it is exactly 0",
            since="0.5.18",
            note="scale_rewards=True, the default; in Python's own floats, so give float64.",
        ),
    )


PRESETS: tuple[AdvantageSpec, ...] = (*_trl(), *_verl(), *_others())


def preset(framework: str, *, estimator: str = "grpo", version: str | None = None) -> AdvantageSpec:
    """Return what a framework computes.

    Args:
        framework: such as "trl" or "verl", capitals or not.
        estimator: its name there; `PRESETS` lists them.
        version: of the framework, such as "1.16.0"; the newest that we know by default.

    Returns:
        The spec.

    Raises:
        InvalidArgumentError: no such framework, estimator or version; the message lists what there
            is.

    Example:
        >>> preset("trl").epsilon, preset("trl", estimator="async_grpo").ddof
        (0.0001, 0)

    Source: docs/advantages.md.
    """
    mine = [spec for spec in PRESETS if spec.framework == framework.lower()]
    if not mine:
        known = ", ".join(sorted({spec.framework for spec in PRESETS}))
        raise InvalidArgumentError(
            f"no presets for {framework!r}: choose one of {known}, or make an AdvantageSpec"
        )
    named = [spec for spec in mine if spec.estimator == estimator]
    if not named:
        known = ", ".join(dict.fromkeys(spec.estimator for spec in mine))
        raise InvalidArgumentError(
            f"no preset of {framework} is called {estimator!r}: choose one of {known}"
        )
    if version is None:
        return named[0]
    for spec in named:
        if spec.covers(version):
            return spec
    known = ", ".join(f"{spec.since} to {spec.until or 'now'}" for spec in named)
    raise InvalidArgumentError(
        f"{framework} {version} was not looked at for {estimator!r}: known are {known}"
    )


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: "1.16.0.dev0" is (1, 16, 0)."""
    numbers: list[int] = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
