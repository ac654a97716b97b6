"""Every completion a policy can give to a prompt, with its probability: the truth wherever answers are short.

The outcomes of a prompt are all strings of tokens that END closes within `completion_length` tokens, and all that it does not. A `Policy`
reads all of them behind their prompt in one row, as branches of a tree. It knows no reward but the one it is handed, and samples nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from groupwise.errors import InvalidArgumentError
from groupwise.trainer.knowable import is_function
from groupwise.trainer.packing import additive, causal, positions_of
from groupwise.trainer.policy import Policy, task_texts
from groupwise.trainer.rewards import total_reward
from groupwise.trainer.tasks import Problem, Task
from groupwise.trainer.vocabulary import END, PAD

Logits = Callable[[Tensor, Tensor], Tensor]
"""A policy: tokens and attention mask, both N x L, to logits N x L x tokens."""

MOST_OUTCOMES = 200_000
_TOKENS_AT_ONCE = 60_000
_LONGEST_ROW = 800  # tokens of a prompt and all branches: beyond, attention among them costs more than reading the prompt again


@dataclass(frozen=True, slots=True)
class OutcomeTree:
    """All outcomes of one prompt, the same for every prompt."""

    prefix_JL: NDArray[np.int64]  # longest unfinished prefixes, one token fewer than a completion may have
    tokens: int  # number of tokens of the vocabulary, PAD and END included
    completion_length: int  # most tokens of a completion

    @classmethod
    def of(cls, *, tokens: int, completion_length: int) -> OutcomeTree:
        """List the outcomes."""
        going = tokens - 1
        if completion_length < 1 or going**completion_length > MOST_OUTCOMES:
            raise InvalidArgumentError(
                f"expected at most {MOST_OUTCOMES:,} completions to enumerate, got {going}^{completion_length}: "
                "take a task with shorter answers, or sample"
            )
        open_tokens = np.array([token for token in range(tokens) if token != END])
        depth = completion_length - 1
        prefix = np.stack(np.meshgrid(*[open_tokens] * depth, indexing="ij"), axis=-1).reshape(-1, depth) if depth else np.zeros((1, 0))
        return cls(prefix.astype(np.int64), tokens, completion_length)

    @property
    def outcomes(self) -> int:
        """How many there are."""
        going = self.tokens - 1
        return sum(int(going**depth) for depth in range(self.completion_length + 1))

    def rows(self) -> tuple[Tensor, Tensor]:
        """Tokens of each outcome as a policy draws them, END included, and 1 for those that were drawn."""
        length, going = self.completion_length, self.tokens - 1
        token_OL, mask_OL = torch.full((self.outcomes, length), PAD), torch.zeros(self.outcomes, length)
        first = 0
        for depth in range(length):
            prefix = torch.as_tensor(self.prefix_JL[:: going ** (length - 1 - depth), :depth])
            last = first + len(prefix)
            token_OL[first:last, :depth], token_OL[first:last, depth], mask_OL[first:last, : depth + 1] = prefix, END, 1
            first = last
        tails = torch.tensor([token for token in range(self.tokens) if token != END])
        token_OL[first:, :-1] = torch.as_tensor(self.prefix_JL).repeat_interleave(going, 0)
        token_OL[first:, -1], mask_OL[first:] = tails.repeat(len(self.prefix_JL)), 1
        return token_OL, mask_OL

    def completions(self) -> list[tuple[tuple[int, ...], bool]]:
        """Tokens of each outcome without END, and whether it ended."""
        listed: list[tuple[tuple[int, ...], bool]] = []
        for depth in range(self.completion_length):
            rows = self.prefix_JL[:: (self.tokens - 1) ** (self.completion_length - 1 - depth), :depth]
            listed += [(tuple(row), True) for row in rows.tolist()]
        tails = [token for token in range(self.tokens) if token != END]
        return listed + [((*row, tail), False) for row in self.prefix_JL.tolist() for tail in tails]

    @property
    def branches(self) -> int:
        """How many unfinished prefixes there are, the empty one not counted."""
        return sum(int((self.tokens - 1) ** depth) for depth in range(1, self.completion_length))


def outcome_log_probabilities(policy: Logits, prompt_PL: Tensor, tree: OutcomeTree) -> Tensor:
    """Log-probability of every outcome, differentiable in the policy's parameters.

    Source: the chain rule; derived here.
    """
    if isinstance(policy, Policy):
        policy = Branches(policy)
    if isinstance(policy, Branches) and prompt_PL.shape[1] + tree.branches <= _LONGEST_ROW:
        logits_PMV = policy.of_tree(prompt_PL, tree)
    else:
        logits_PMV = _one_by_one(policy, prompt_PL, tree)
    return _along_branches(logits_PMV.log_softmax(-1), tree)


def _one_by_one(policy: Logits, prompt_PL: Tensor, tree: OutcomeTree) -> Tensor:
    """Logits behind every unfinished prefix, each longest one read in a row of its own."""
    prompts, length = prompt_PL.shape
    prefix = torch.as_tensor(tree.prefix_JL, device=prompt_PL.device)
    count, depth = prefix.shape
    ids = torch.cat([prompt_PL.repeat_interleave(count, 0), prefix.repeat(prompts, 1)], dim=1)
    # PAD within a completion is a token like any other; on the left of the prompt it is none.
    real = (prompt_PL != PAD).cumsum(1) > 0
    mask = torch.cat([real.repeat_interleave(count, 0), torch.ones_like(prefix, dtype=torch.bool).repeat(prompts, 1)], dim=1)
    rows = max(1, _TOKENS_AT_ONCE // ids.shape[1])
    parts = [policy(ids[at : at + rows], mask[at : at + rows])[:, length - 1 :] for at in range(0, len(ids), rows)]
    step_PJLV = torch.cat(parts).reshape(prompts, count, depth + 1, tree.tokens)
    going = tree.tokens - 1
    return torch.cat([step_PJLV[:, :: going ** (depth - at), at] for at in range(depth + 1)], dim=1)


class Branches(nn.Module):
    """A policy that reads a prompt with all unfinished prefixes of a tree behind it in one row."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Logits of plain rows."""
        logits: Tensor = self.policy(input_ids, attention_mask)
        return logits

    def of_tree(self, prompt_PL: Tensor, tree: OutcomeTree) -> Tensor:
        """Logits behind the prompt and behind every unfinished prefix, by depth, P x (1 + branches) x tokens."""
        policy, length = self.policy, prompt_PL.shape[1]
        if length + tree.completion_length - 1 > policy.context:
            raise InvalidArgumentError(
                f"expected prompt and completion within the policy's context of {policy.context} tokens, got {length} and"
                f" {tree.completion_length}: make a policy with a longer context"
            )
        last, depth, above = _branch_layout(tree.tokens, tree.completion_length, prompt_PL.device)
        real = (prompt_PL != PAD).cumsum(1) > 0
        if bool(real.all()):
            real = real[:1]
        ids = torch.cat([prompt_PL, last.expand(len(prompt_PL), -1)], dim=1)
        place = torch.cat([positions_of(real), real.sum(1, keepdim=True) + depth - 1], dim=1)
        allowed = torch.zeros(len(real), 1, ids.shape[1], ids.shape[1], dtype=torch.bool, device=ids.device)
        allowed[:, :, :length, :length] = causal(length, ids.device)
        allowed[:, :, length:, :length] = True
        allowed[:, :, length:, length:] = above
        allowed[..., :length] &= real[:, None, None, :] | torch.eye(ids.shape[1], length, dtype=torch.bool, device=ids.device)
        mask = additive(allowed)
        hidden = policy.token(ids) + policy.position(place)
        for number, block in enumerate(policy.blocks):
            hidden, _ = block(hidden, mask, None, first=length - 1 if number == len(policy.blocks) - 1 else 0)
        logits: Tensor = policy.head(policy.norm(hidden))
        return logits


@lru_cache(maxsize=8)
def _branch_layout(tokens: int, completion_length: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Last token and depth of every unfinished prefix but the empty one, shortest first, and which prefix begins which."""
    going = tokens - 1
    open_tokens = torch.tensor([token for token in range(tokens) if token != END], device=device)
    size = [going**depth for depth in range(1, completion_length)]
    last = torch.cat([open_tokens.repeat(count // going) for count in size] or [open_tokens[:0]])
    depth = torch.repeat_interleave(torch.arange(1, completion_length, device=device), torch.tensor(size, dtype=torch.long, device=device))
    number = torch.cat([torch.arange(count, device=device) for count in size] or [open_tokens[:0]])
    # A prefix's number at its depth, written in base `going`, begins with the number of every prefix it begins with.
    deeper = (depth[:, None] - depth[None, :]).clamp(min=0)
    above = (depth[:, None] >= depth[None, :]) & (number[:, None] // going**deeper == number[None, :])
    return last, depth, above


def _along_branches(step_PMV: Tensor, tree: OutcomeTree) -> Tensor:
    """Sum the steps of every outcome."""
    prompts, going = len(step_PMV), tree.tokens - 1
    so_far, first, found = step_PMV.new_zeros(prompts, 1), 0, []
    for depth in range(tree.completion_length):
        step_PJV = step_PMV[:, first : first + going**depth]
        first += going**depth
        found.append(so_far + step_PJV[..., END])
        # Slices: picking by a list of places has a slow derivative.
        onward_PJV = torch.cat([step_PJV[..., :END], step_PJV[..., END + 1 :]], dim=-1)
        so_far = (so_far.unsqueeze(-1) + onward_PJV).reshape(prompts, -1)
    return torch.cat([*found, so_far], dim=1)


def outcome_rewards(task: Task, problems: Sequence[Problem], tree: OutcomeTree) -> NDArray[np.float64]:
    """Reward of every outcome of every problem, by the task's own verifier."""
    if not is_function(task.verifier):
        raise InvalidArgumentError(
            f"expected a verifier made of reward functions to judge every completion, got {type(task.verifier).__name__}: make it a"
            " TaskVerifier, or sample"
        )
    text, ended = task_texts(task, *tree.rows())  # as a verifier sees them in training
    reward = np.zeros((len(problems), len(text)))
    for place, problem in enumerate(problems):
        reward[place] = total_reward(task.verifier, task.verifier([problem] * len(text), text, ended))
    return reward
