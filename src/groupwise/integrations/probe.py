r"""Score sketches of a few groups while a run trains, and the components that they give.

The tokens that were sampled are scored under the parameters that sampled them, before the update.
The training is not touched: no random number is drawn and no gradient is left behind.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from groupwise.arrays import Float
from groupwise.errors import InsufficientDataError, InvalidArgumentError
from groupwise.estimators.components import Components, components_of_moments
from groupwise.estimators.moments import GroupMoments, moments_of_scores

if TYPE_CHECKING:
    import torch

WIDTH = 512
_AGGREGATION = {
    "grpo": "sequence_mean",
    "sapo": "sequence_mean",
    "bnpo": "batch_token_mean",
    "dapo": "batch_token_mean",
}


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """What is probed, how often, and how closely."""

    every: int = 10  # steps between two probes, where the callback is given no `sketch_every`
    groups: int | None = 8  # groups of a probe; all where None
    width: int = WIDTH  # numbers in a sketch
    window: int = 8  # number of latest probes that an estimate rests on
    parameters: tuple[str, ...] | None = (
        None  # patterns of parameter names; those that are trained where None
    )
    micro_batch: int | None = None  # rollouts of one pass; the trainer's own number where None

    def __post_init__(self) -> None:
        for name in ("every", "groups", "width", "window", "micro_batch"):
            value = getattr(self, name)
            if value is None and name in ("groups", "micro_batch"):
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidArgumentError(
                    f"expected a whole number of at least 1 for {name} of ProbeSettings, got "
                    f"{str(value)[:40]}: give one"
                )
        if isinstance(self.parameters, str):
            raise InvalidArgumentError(
                "expected a tuple of patterns for parameters of ProbeSettings, got "
                f"{self.parameters[:40]!r}: write parameters=(pattern,)"
            )


class Probe:
    """Sums over the latest probes."""

    def __init__(self, settings: ProbeSettings) -> None:
        self.settings = settings
        self.components: Components | None = None
        self._fresh = False  # whether a probe has come that no row has yet
        self._latest: deque[GroupMoments] = deque(maxlen=settings.window)

    def add(self, score_NK: Float, reward_N: Float, prompt_N: NDArray[np.int64]) -> None:
        """Take in one probe and estimate anew; a probe without a usable group changes nothing."""
        missing = np.unique(prompt_N[~np.isfinite(reward_N)])
        kept = ~np.isin(prompt_N, missing)
        try:
            self._latest.append(moments_of_scores(score_NK[kept], reward_N[kept], prompt_N[kept]))
            self.components = components_of_moments(GroupMoments.joined(self._latest))
            self._fresh = True
        except (InsufficientDataError, InvalidArgumentError):
            return

    def row(self, *, prompts: float, group_size: float) -> dict[str, float | None]:
        """Return the columns of a step."""
        estimate = self.components
        if estimate is None or not self._fresh:
            return {}
        self._fresh = False
        (vp, t, r), best = estimate.vtr.tolist(), estimate.group_size
        rollouts = prompts * group_size
        noise = (
            vp / prompts
            + t / rollouts
            + (r / (rollouts * (group_size - 1)) if group_size > 1 else math.inf)
        )
        row = {
            "gradient/vp": vp,
            "gradient/t": t,
            "gradient/r": r,
            "gradient/norm2": estimate.gradient_norm2.value,
            "gradient/group_size": best.value,
            "gradient/group_size_low": best.low,
            "gradient/group_size_high": best.high,
            "gradient/noise": noise,
            "gradient/prompts": float(estimate.prompts),
        }
        return {name: value if math.isfinite(value) else None for name, value in row.items()}


def chosen_groups(prompts: int, groups: int | None) -> NDArray[np.int64]:
    """Return which groups of a step are probed: evenly spaced over the processes."""
    count = prompts if groups is None else min(groups, prompts)
    return np.unique(np.linspace(0, prompts - 1, count).round().astype(np.int64))


def aggregation_of(loss: str | None) -> Any:
    """Return how the trainer's loss weighs the tokens of a completion, for the scores."""
    return _AGGREGATION.get(str(loss), "sum")


def sketched(
    model: torch.nn.Module,
    output: Mapping[str, Any],
    row_n: NDArray[np.int64],
    settings: ProbeSettings,
    *,
    aggregation: Any,
    temperature: float,
    micro_batch: int,
) -> Float:
    """Return the sketches of some rollouts of a generation."""
    import torch

    from groupwise.scores.scores import score_sketch

    index = torch.as_tensor(row_n, device=output["completion_ids"].device)
    prompt, prompt_mask = output["prompt_ids"][index], output["prompt_mask"][index]
    completion, mask = output["completion_ids"][index], output["completion_mask"][index]
    scored = mask * output["tool_mask"][index] if "tool_mask" in output else mask
    batch = {
        "input_ids": torch.cat([prompt, completion], dim=1),
        "attention_mask": torch.cat([prompt_mask, mask], dim=1),
        "completion_mask": torch.cat([torch.zeros_like(prompt_mask), scored], dim=1),
    }
    with torch.enable_grad():
        scores = score_sketch(
            model,
            batch,
            width=settings.width,
            aggregation="sum" if aggregation == "batch_token_mean" else aggregation,
            temperature=temperature,
            parameters=settings.parameters,
            micro_batch=min(settings.micro_batch or micro_batch, len(row_n)),
        )
    return scores.sketch_NK.astype(np.float64)
