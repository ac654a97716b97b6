r"""What a trainer computes as an advantage, as data: baseline, degrees of freedom, epsilon, level of the scale, whitening, odd groups.

An `AdvantageSpec` says it and computes it, in the precision of what it is given and in the trainer's own order of operations, so that a
float32 tensor gives the trainer's float32 numbers. NumPy adds in another order than torch: there the last digit of a mean may differ.
The specs of the trainers are in `trainer_presets`; clipping, KL terms, length penalties and loss weights are not advantages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.estimators.rollout_groups import Array, RolloutGroups, as_floats, as_kind, is_tensor, module_of, rollout_groups, to_numpy
from groupwise.estimators.spec_arithmetic import Reduction, count_of_rewards, mean_of, std_of, sum_of

Baseline = Literal["none", "group_mean", "leave_one_out", "length_weighted_mean", "second_best"]
Scale = Literal["none", "group_std", "batch_std", "leave_one_out_std", "group_mean"]


@dataclass(frozen=True, slots=True)
class Whitening:
    """A second standardisation, over the whole batch, of advantages that are already there."""

    weights: Literal["token", "rollout"]  # "token" counts a rollout once for each of its tokens, "rollout" once
    ddof: int  # 1 divides by the number minus 1, 0 by the number
    epsilon: float  # a small number against division by zero
    # "outside" is s + eps, "inside" is sqrt(s^2 + eps), "floor" is sqrt(max(s^2, eps))
    place: Literal["outside", "inside", "floor"]


@dataclass(frozen=True, slots=True)
class AdvantageSpec:
    r"""How a framework turns rewards into advantages.

    $A = f\,(z - b)/(s + \epsilon)$, then perhaps whitened

    Example:
        >>> AdvantageSpec("custom", "mine", baseline="leave_one_out").advantages([[1.0, 0.0, 0.0]]).tolist()
        [[1.0, -0.5, -0.5]]
    """

    framework: str  # its name, such as "trl"; "custom" for one of your own
    estimator: str  # the name it has there, or nearly
    baseline: Baseline = "group_mean"  # b; "second_best" keeps only the best rollout of a group, above the second best
    scale: Scale = "none"  # s. "leave_one_out_std" comes without the rollout itself, "group_mean" is that of max-RL
    ddof: int = 1  # 1 divides a sum of squares by n - 1, 0 by n
    epsilon: float = 0.0  # added to s
    variance_floor: float = 0.0  # s^2 is at least this
    # whether s is that of the rewards, or of the rewards above their baseline, which rounds differently
    scale_of: Literal["reward", "advantage"] = "reward"
    # "one", or "batch_over_nonzero", the rollouts of the batch over those with a reward that is not 0
    factor: Literal["one", "batch_over_nonzero"] = "one"
    whitening: Whitening | None = None  # a second standardisation, or None
    # a group of one is "refused", gets its reward ("raw": b = 0, s = 1), or "zero"
    singleton: Literal["refused", "raw", "zero"] = "refused"
    # a NaN reward is "refused", gets advantage "zero" and leaves the group's statistics, or "counts_as_zero"
    missing: Literal["refused", "zero", "counts_as_zero"] = "refused"
    all_equal: str = "zero up to rounding"  # what a group of equal rewards gets, in words
    # order in which a group is summed: "row" (the library's mean and std of rows), "group" (of one group at a
    # time), "nan" (mean and squares that skip NaN) or "sequential" (one after the other)
    reduction: Reduction = "row"
    # of the algebraically equal forms the one that is coded: z - (S - z)/(n-1), z n/(n-1) - m n/(n-1), (n z -
    # S)/(n-1), or (z - m) (n/(n-1))
    leave_one_out_form: Literal["difference", "split", "product", "scaled"] = "difference"
    # how several rewards become one: weighted sum before ("sum_first") or after each is standardised
    # ("standardise_first")
    several: Literal["sum_first", "standardise_first"] = "sum_first"
    since: str = ""  # first version, "" where nothing older was looked at; for GitHub-only projects the version read
    until: str = ""  # first version that does something else, or ""
    # "called" where the framework's own function gave the same digits in our tests, "read" where its source was
    # read
    evidence: Literal["called", "read"] = "read"
    note: str = ""  # what else there is to know

    @property
    def needs_mask(self) -> bool:
        """Whether it depends on the number of tokens of a rollout."""
        return self.baseline == "length_weighted_mean" or (self.whitening is not None and self.whitening.weights == "token")

    def advantages(self, reward: Array, prompt: Any = None, *, mask_NL: Any = None) -> Array:
        """Return what the framework would give each rollout."""
        groups = rollout_groups(reward, prompt, missing=self.missing != "refused")
        mask = self._mask(groups, mask_NL)
        if self.missing == "counts_as_zero":
            filled = groups.module.nan_to_num(groups.reward, nan=0.0)
            groups = RolloutGroups(filled, groups.rows, groups.label_N)
        return self._finish(self._standardised(groups, mask), groups, mask)

    def several_advantages(self, reward_F: Array, weight_F: Any, prompt: Any = None, *, mask_NL: Any = None) -> Array:
        """Return what the framework would give each rollout that has several rewards."""
        stacked = as_floats(reward_F)
        weight = as_kind(weight_F, stacked)
        module = module_of(stacked)
        if tuple(weight.shape) != (len(stacked),) or not bool(module.isfinite(weight).all()):
            raise InvalidArgumentError(
                f"expected {len(stacked)} finite weights, one a reward, got {weight_F!r}: weight_F goes with reward_F"
            )
        absent = module.isnan(stacked).all(0)
        parts = [rollout_groups(part, prompt, missing=self.missing != "refused") for part in stacked]
        if self.several == "sum_first":
            total = self._weighted_sum(stacked, weight)
            if self.missing == "zero":
                total[absent] = np.nan
            return self.advantages(total, prompt, mask_NL=mask_NL)
        mask = self._mask(parts[0], mask_NL)
        shape = parts[0].reward.shape
        if self.reduction == "nan":
            # These trainers keep the rewards of a rollout side by side, and sums over a group then run in another order.
            standard = module.moveaxis(self._standardised_together(_innermost(stacked.reshape(len(stacked), -1)), parts[0]), -1, 0)
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
        """Sum of the parts times their weights, a missing one counting 0; the rewards lie innermost, as in the trainers."""
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
                f"{self.framework} {self.estimator} weighs rollouts by their tokens: give mask_NL, such as np.arange(L) < length_N[:, None]"
            )
        count = len(groups.label_N)
        mask = as_kind(mask_NL, groups.reward)
        if mask.ndim < 2 or tuple(mask.shape[:-1]) not in {(count,), tuple(groups.reward.shape)} or bool((mask.sum(-1) <= 0).any()):
            raise InvalidArgumentError(
                f"expected a mask of {count} rows with a token in each, got shape {tuple(mask.shape)}: one row a rollout, 1 for its tokens"
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
            deviation = std_of(base.reshape(1, -1), self.ddof, self.reduction) if len(base) > 1 else base * 0
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
            return module_of(block).where(usable, above, 0) / module_of(block).where(usable, mean, 1)
        return self._over_leave_one_out_std(block, above) if self.scale == "leave_one_out_std" else above

    def _reduction_of(self, block: Array) -> Reduction:
        """The order of summation; where a reward is missing, one that skips it."""
        return "nan" if self.missing == "zero" and bool(module_of(block).isnan(block).any()) else self.reduction

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
        """Divided by the standard deviation of the others, from their squares; not where that is 0 or, in groups of two, undefined."""
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
                return (above - mean) / (std_of(flat, how.ddof, self.reduction).reshape(()) + how.epsilon)
            variance = std_of(flat, how.ddof, self.reduction).reshape(()) ** 2
        else:
            assert mask is not None
            token_NL = above.reshape(-1, 1) * mask
            count = mask.sum()
            if float(count) <= how.ddof:
                raise InsufficientDataError(f"{self.framework} {self.estimator} needs more than {how.ddof} token, got {int(count)}")
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
