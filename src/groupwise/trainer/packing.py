"""How the completions of a group lie behind their prompt in one row, and the masks of attention that keep them apart.

The prompt is read once for all of them. No weight is here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from groupwise.trainer.vocabulary import PAD

_LONGEST_ROW = 128  # tokens of a row of one prompt and its completions: beyond, attention costs more than reading the prompt again


@dataclass(frozen=True, slots=True)
class Packing:
    """How the completions of a prompt lie behind it in one row: first the first tokens of all, then the second ones, and so on."""

    width: int  # completions of a row
    rows_per_prompt: int  # rows that the completions of a prompt take
    steps: int  # tokens of each completion that are read
    prompt_length: int  # tokens of a prompt, padding included
    real_RL: Tensor | None  # which tokens of the prompt are real, a row a row; None where all are
    prompt_position: Tensor  # places of the prompt's tokens
    prompt_mask: Tensor | None  # for the prompt alone; None for plain causal attention
    device: torch.device  # of everything

    @classmethod
    def of(cls, prompt_PL: Tensor, group_size: int, steps: int) -> Packing:
        """Return the packing of some prompts."""
        length, device = prompt_PL.shape[1], prompt_PL.device
        fitting = max(1, (_LONGEST_ROW - length) // max(1, steps))
        width = next(width for width in range(min(group_size, fitting), 0, -1) if group_size % width == 0)
        real = (prompt_PL != PAD).cumsum(1) > 0
        if bool(real.all()):
            return cls(width, group_size // width, steps, length, None, torch.arange(length, device=device), None, device)
        many = group_size // width
        return cls(width, many, steps, length, real.repeat_interleave(many, 0), positions_of(real), prompt_mask_of(real), device)

    def rows(self, prompt_PL: Tensor, completion_NL: Tensor) -> Tensor:
        """Return prompts with their completions behind them."""
        prompt = prompt_PL.repeat_interleave(self.rows_per_prompt, 0) if self.rows_per_prompt > 1 else prompt_PL
        read = completion_NL[:, : self.steps].reshape(-1, self.width, self.steps).transpose(1, 2).reshape(len(prompt), -1)
        return torch.cat([prompt, read], 1)

    def position(self, step: int) -> Tensor:
        """Return the place of one token of every completion."""
        if self.real_RL is None:
            return torch.full((self.width,), self.prompt_length + step, device=self.device)
        return (self.real_RL.sum(1, keepdim=True) + step).expand(-1, self.width)

    def step_mask(self, step: int) -> Tensor:
        """Return the mask of one token of every completion."""
        start = self.prompt_length + step * self.width
        rows, columns = slice(start, start + self.width), slice(0, start + self.width)
        return self.whole_mask[:, :, rows, columns]

    @property
    def whole_mask(self) -> Tensor:
        """Mask of whole rows."""
        allowed = _row_mask(self.prompt_length, self.width, self.steps, self.device)
        if self.real_RL is not None:
            real = functional.pad(self.real_RL, (0, self.width * self.steps), value=True)
            allowed = allowed & (real[:, None, None, :] | torch.eye(real.shape[1], dtype=torch.bool, device=self.device))
        return additive(allowed)

    @property
    def all_positions(self) -> Tensor:
        """Places of all tokens of a row."""
        step = torch.arange(self.steps, device=self.device).repeat_interleave(self.width)
        if self.real_RL is None:
            return torch.cat([self.prompt_position, self.prompt_length + step])
        return torch.cat([positions_of(self.real_RL), self.real_RL.sum(1, keepdim=True) + step], 1)


@lru_cache(maxsize=16)
def _row_mask(prompt_length: int, width: int, steps: int, device: torch.device) -> Tensor:
    """Who sees whom in a row without padding: the prompt causally, a completion the prompt and its own earlier tokens."""
    total = prompt_length + width * steps
    place = torch.arange(total, device=device)
    owner = torch.where(place < prompt_length, -1, (place - prompt_length) % width)
    earlier = place[:, None] >= place[None, :]
    return (earlier & ((owner[None, :] == -1) | (owner[:, None] == owner[None, :])))[None, None]


def positions_of(real_RL: Tensor) -> Tensor:
    """Return places that count real tokens; padding has place 0, where nothing looks."""
    return (real_RL.long().cumsum(-1) - 1).clamp(min=0)


def prompt_mask_of(real_RL: Tensor) -> Tensor:
    """Return the causal mask over real tokens; padding sees itself, so that no row of attention is empty."""
    length = real_RL.shape[-1]
    return additive(
        causal(length, real_RL.device) & (real_RL[:, None, None, :] | torch.eye(length, dtype=torch.bool, device=real_RL.device))
    )


def causal(length: int, device: torch.device) -> Tensor:
    """Return which tokens see which: each itself and those before it."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def additive(allowed: Tensor) -> Tensor:
    """Return 0 where attention may look and minus infinity elsewhere."""
    return torch.zeros(allowed.shape, device=allowed.device).masked_fill(~allowed, float("-inf"))
