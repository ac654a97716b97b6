r"""What a trainer computes as an advantage, as data: `presets.tsv`.

A spec says baseline, degrees of freedom, epsilon, level of the scale, whitening and odd groups, and
computes them in float64, so that a trainer's own float32 numbers differ from it by their rounding
alone. A version is the first in which we saw the definition, among those that we looked at, not
necessarily the first that has it. "called" says that the framework's own function gave the same
numbers (lab/tests/optional/test_trainer_presets.py), "read" that its source was read. Estimators
that need a critic, log-probabilities or turns are left out; clipping, KL terms, length penalties
and loss weights are no advantages.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

import numpy as np

from groupwise.arrays import Float
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.files import table_rows
from groupwise.plain import frozen
from groupwise_lab.trainer.rollout_groups import (
    Array,
    RolloutGroups,
    rollout_groups,
    to_numpy,
)

BaselineName = Literal["none", "group_mean", "leave_one_out", "length_weighted_mean", "second_best"]
ScaleName = Literal["none", "group_std", "batch_std", "leave_one_out_std", "group_mean"]


@frozen
class Whitening:
    """A second standardisation, over the whole batch, of advantages that are already there."""

    weights: Literal["token", "rollout"]  # "token" counts a rollout once for each of its tokens
    ddof: int  # 1 divides by the number minus 1, 0 by the number
    epsilon: float  # a small number against division by zero
    # "outside" is s + eps, "inside" is sqrt(s^2 + eps), "floor" is sqrt(max(s^2, eps))
    place: Literal["outside", "inside", "floor"]


@frozen
class AdvantageSpec:
    r"""How a framework turns rewards into advantages.

    $A = f\,(z - b)/(s + \epsilon)$, then perhaps whitened
    """

    framework: str  # its name, such as "trl"; "custom" for a spec of your own
    estimator: str  # the name it has there, or nearly
    # b; "second_best" keeps only the best rollout of a group, above the second best
    baseline: BaselineName = "group_mean"
    # s. "leave_one_out_std" comes without the rollout itself, "group_mean" is that of max-RL
    scale: ScaleName = "none"
    ddof: int = 1  # 1 divides a sum of squares by n - 1, 0 by n
    epsilon: float = 0.0  # added to s
    variance_floor: float = 0.0  # s^2 of a group is at least this
    # whether the deviation of the batch is that of the rewards, or of the rewards above their
    # baseline
    scale_of: Literal["reward", "advantage"] = "reward"
    # f: 1, or the rollouts of the batch over those with a reward that is not 0
    factor: Literal["one", "batch_over_nonzero"] = "one"
    whitening: Whitening | None = None  # a second standardisation, or None
    # a group of one is "refused", gets its reward ("raw": b = 0, s = 1), or "zero"
    singleton: Literal["refused", "raw", "zero"] = "refused"
    # a NaN reward is "refused", gets advantage "zero" and leaves the group's statistics, or
    # "counts_as_zero"
    missing: Literal["refused", "zero", "counts_as_zero"] = "refused"
    all_equal: str = "zero up to rounding"  # what a group of equal rewards gets, in words
    # how several rewards become one: weighted sum before ("sum_first") or after each is
    # standardised ("standardise_first")
    several: Literal["sum_first", "standardise_first"] = "sum_first"
    # first version, "" where nothing older was looked at; for GitHub-only projects the version read
    since: str = ""
    until: str = ""  # first version that does something else, or ""
    # "called" where the framework's own function gave the same numbers in our tests, "read" where
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
        token_N = self.tokens(groups, mask_NL)
        if self.missing == "counts_as_zero":
            groups = replace(groups, reward_N=np.nan_to_num(groups.reward_N, nan=0.0))
        return self.finish(self.standardised(groups, token_N), groups, token_N)

    def tokens(self, groups: RolloutGroups, mask_NL: Any) -> Float:
        """The tokens of each rollout, where the spec weighs by them; else 1."""
        count = len(groups.label_N)
        if not self.needs_mask:
            return np.ones(count)
        if mask_NL is None:
            raise InvalidArgumentError(
                f"{self.framework} {self.estimator} weighs rollouts by their tokens: give mask_NL, "
                "such as np.arange(L) < length_N[:, None]"
            )
        mask = to_numpy(mask_NL)
        token: Float = mask.sum(-1, dtype=np.float64)
        if token.shape not in {(count,), groups.shape} or (token <= 0).any():
            raise InvalidArgumentError(
                f"expected a mask of {count} rows with a token in each, got shape {mask.shape}: "
                "one row a rollout, 1 for its tokens"
            )
        return token.reshape(-1)

    def standardised(self, groups: RolloutGroups, token_N: Float) -> Float:
        """Rewards above their baselines, over their scale."""
        if self.singleton == "refused":
            groups.at_least(2, f"{self.framework} {self.estimator}")
        above_N = groups.apply(self._group, token_N)
        if self.scale != "batch_std":
            return above_N
        batch_N = groups.reward_N if self.scale_of == "reward" else above_N
        return above_N / (float(_deviation(batch_N[None], self.ddof)[0, 0]) + self.epsilon)

    def _group(self, block: Float, token: Float) -> Float:
        """The advantages of groups of one size, but for what concerns the batch."""
        size = block.shape[1]
        if size == 1:
            unit = 1 + self.epsilon if self.scale in {"group_std", "leave_one_out_std"} else 1.0
            return block / unit if self.singleton == "raw" else 0 * block
        above = self._above_baseline(block, token)
        if self.scale == "group_std":
            variance = _deviation(block, self.ddof) ** 2
            return above / (np.sqrt(np.maximum(variance, self.variance_floor)) + self.epsilon)
        if self.scale == "group_mean":
            mean = _mean(block)
            return np.where(mean > 0, above / np.where(mean > 0, mean, 1), 0)
        # The others of a group of two have no deviation, and equal others none to divide by.
        if self.scale == "leave_one_out_std" and size > 2:
            others = [_deviation(np.delete(block, place, 1), 1) for place in range(size)]
            deviation = np.concatenate(others, axis=1)
            return above / np.where(deviation > 0, deviation + self.epsilon, 1)
        return above

    def _above_baseline(self, block: Float, token: Float) -> Float:
        """The rewards of groups of two and more above their baselines."""
        if self.baseline == "none":
            return block
        if self.baseline == "length_weighted_mean":
            share: Float = token / token.sum(1, keepdims=True)
            return np.asarray(block - (share * block).sum(1, keepdims=True))
        if self.baseline == "second_best":
            above, order = np.zeros_like(block), block.argsort(1)
            second, best = np.take_along_axis(block, order[:, -2:], 1).T
            np.put_along_axis(above, order[:, -1:], (best - second)[:, None], 1)
            return above
        above = block - _mean(block)
        if self.baseline == "leave_one_out":
            count = _count(block)
            above *= count / np.maximum(count - 1, 1)
        return above

    def finish(self, above_N: Float, groups: RolloutGroups, token_N: Float) -> Array:
        """Factor, whitening, and zeros for rollouts without a reward."""
        if self.factor == "batch_over_nonzero":
            above_N = above_N * len(above_N) / max(int(np.count_nonzero(groups.reward_N)), 1)
        if self.whitening is not None:
            above_N = self._whitened(above_N, self.whitening, token_N)
        if self.missing == "zero":
            above_N = np.nan_to_num(above_N, nan=0.0)
        return groups.like_source(above_N)

    def _whitened(self, above_N: Float, whitening: Whitening, token_N: Float) -> Float:
        """Standardised over the batch."""
        weight_N = np.where(np.isnan(above_N), 0, token_N if whitening.weights == "token" else 1)
        count = weight_N.sum()
        if whitening.weights == "token" and count <= whitening.ddof:
            raise InsufficientDataError(
                f"{self.framework} {self.estimator} needs more than {whitening.ddof} token, got "
                f"{int(count)}"
            )
        above_N = above_N - np.nansum(weight_N * above_N) / max(count, 1)
        variance = np.nansum(weight_N * above_N**2) / max(count - whitening.ddof, 1)
        if whitening.place == "outside":
            return np.asarray(above_N / (np.sqrt(variance) + whitening.epsilon))
        inside = whitening.place == "inside"
        safe = variance + whitening.epsilon if inside else max(float(variance), whitening.epsilon)
        return np.asarray(above_N / np.sqrt(safe))


def _count(block: Float) -> Float:
    """How many entries of each row are there, as a column."""
    return np.asarray((~np.isnan(block)).sum(1, keepdims=True, dtype=np.float64))


def _mean(block: Float) -> Float:
    """Mean of each row as a column."""
    return np.asarray(np.nansum(block, 1, keepdims=True) / np.maximum(_count(block), 1))


def _deviation(block: Float, ddof: int) -> Float:
    """Standard deviation of each row as a column; exactly 0 for equal numbers."""
    block = block - np.fmin.reduce(block, axis=1, keepdims=True)
    squares = np.nansum((block - _mean(block)) ** 2, 1, keepdims=True)
    return np.asarray(np.sqrt(squares / np.maximum(_count(block) - ddof, 1)))


def _spec(row: dict[str, str]) -> AdvantageSpec:
    """A line of the table; an empty cell stands for the default."""
    cells: dict[str, Any] = {name: text for name, text in row.items() if text}
    for name, kind in (("ddof", int), ("epsilon", float), ("variance_floor", float)):
        if name in cells:
            cells[name] = kind(cells[name])
    if "whitening" in cells:
        weights, ddof, epsilon, place = cells["whitening"].split()
        cells["whitening"] = Whitening(weights, int(ddof), float(epsilon), place)
    return AdvantageSpec(**cells)


PRESETS: tuple[AdvantageSpec, ...] = tuple(
    map(_spec, table_rows(Path(__file__).with_name("presets.tsv")))
)


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
    of_framework = [spec for spec in PRESETS if spec.framework == framework.lower()]
    if not of_framework:
        names = ", ".join(sorted({spec.framework for spec in PRESETS}))
        raise InvalidArgumentError(
            f"no presets for {framework!r}: choose one of {names}, or make an AdvantageSpec"
        )
    versions = [spec for spec in of_framework if spec.estimator == estimator]
    if not versions:
        names = ", ".join(dict.fromkeys(spec.estimator for spec in of_framework))
        raise InvalidArgumentError(
            f"no preset of {framework} is called {estimator!r}: choose one of {names}"
        )
    for spec in versions:
        if version is None or spec.covers(version):
            return spec
    spans = ", ".join(f"{spec.since} to {spec.until or 'now'}" for spec in versions)
    raise InvalidArgumentError(
        f"{framework} {version} was not looked at for {estimator!r}: the presets are of {spans}"
    )


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: "1.16.0.dev0" is (1, 16, 0)."""
    return tuple(map(int, takewhile(str.isdigit, version.split("."))))
