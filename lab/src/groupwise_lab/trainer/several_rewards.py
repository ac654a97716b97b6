"""Advantages of rollouts that have several rewards, as a trainer weighs them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from groupwise.errors import InvalidArgumentError
from groupwise_lab.trainer.presets import AdvantageSpec
from groupwise_lab.trainer.rollout_groups import Array, as_floats, rollout_groups, to_numpy


def several_advantages(
    spec: AdvantageSpec, reward_F: Array, weight_F: Any, prompt: Any = None, *, mask_NL: Any = None
) -> Array:
    """Return what the framework would give each rollout that has several rewards."""
    stacked, weight = as_floats(reward_F), to_numpy(weight_F).astype(np.float64)
    if weight.shape != (len(stacked),) or not np.isfinite(weight).all():
        raise InvalidArgumentError(
            f"expected {len(stacked)} finite weights, one a reward, got {weight_F!r}: weight_F "
            "goes with reward_F"
        )
    parts = [rollout_groups(part, prompt, missing=spec.missing != "refused") for part in stacked]
    token_N = spec.tokens(parts[0], mask_NL)
    part_FN = reward_FN = np.stack([part.reward_N for part in parts])
    if spec.several == "standardise_first":
        part_FN = np.stack([spec.standardised(part, token_N) for part in parts])
    total_N = np.nansum(weight[:, None] * part_FN, axis=0)
    if spec.missing == "zero":
        total_N[np.isnan(reward_FN).all(axis=0)] = np.nan
    groups = replace(parts[0], reward_N=total_N)
    if spec.several == "sum_first":
        total_N = spec.standardised(groups, token_N)
    return spec.finish(total_N, groups, token_N)
