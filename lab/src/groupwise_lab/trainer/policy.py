"""The policy: a small decoder-only transformer that samples groups quickly and knows the exact
probability of what it sampled.

GPT-2's architecture (layer norm first, learned positions, exact GELU), so that a checkpoint opens
as one. The completions of a group share their prompt: it is run once, and all of them stand behind
it in one row, each seeing the prompt and itself. It is not trained here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from groupwise.errors import InvalidArgumentError, named
from groupwise.gradients.hooks import single_or_better
from groupwise.plain import frozen
from groupwise_lab.trainer.rewards import exact, is_function
from groupwise_lab.trainer.tasks import DRAWN_PAD, END, PAD

if TYPE_CHECKING:
    from groupwise_lab.trainer.rewards import Problem
    from groupwise_lab.trainer.tasks import Task


# tokens of a row of one prompt and its completions: beyond, attention costs more than reading the
# prompt again
_LONGEST_ROW = 128


@frozen
class Packing:
    """How the completions of a prompt lie behind it in one row: first the first tokens of all,
    then the second ones, and so on.
    """

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
        width = next(
            width for width in range(min(group_size, fitting), 0, -1) if group_size % width == 0
        )
        real = (prompt_PL != PAD).cumsum(1) > 0
        if bool(real.all()):
            return cls(
                width,
                group_size // width,
                steps,
                length,
                None,
                torch.arange(length, device=device),
                None,
                device,
            )
        many = group_size // width
        return cls(
            width,
            many,
            steps,
            length,
            real.repeat_interleave(many, 0),
            positions_of(real),
            prompt_mask_of(real),
            device,
        )

    def rows(self, prompt_PL: Tensor, completion_NL: Tensor) -> Tensor:
        """Return prompts with their completions behind them."""
        prompt = (
            prompt_PL.repeat_interleave(self.rows_per_prompt, 0)
            if self.rows_per_prompt > 1
            else prompt_PL
        )
        read = (
            completion_NL[:, : self.steps]
            .reshape(-1, self.width, self.steps)
            .transpose(1, 2)
            .reshape(len(prompt), -1)
        )
        return torch.cat([prompt, read], 1)

    def position(self, step: int) -> Tensor:
        """Return the place of one token of every completion."""
        if self.real_RL is None:
            return torch.full((self.width,), self.prompt_length + step, device=self.device)
        return (self.real_RL.sum(1, keepdim=True) + step).expand(-1, self.width)

    @property
    def whole_mask(self) -> Tensor:
        """Mask of whole rows."""
        rows = _row_mask(self.prompt_length, self.width, self.steps, self.device)
        if self.real_RL is None:
            return rows
        real = functional.pad(self.real_RL, (0, self.width * self.steps), value=True)
        return rows & (
            real[:, None, None, :] | torch.eye(real.shape[1], dtype=torch.bool, device=self.device)
        )

    @property
    def all_positions(self) -> Tensor:
        """Places of all tokens of a row."""
        step = torch.arange(self.steps, device=self.device).repeat_interleave(self.width)
        if self.real_RL is None:
            return torch.cat([self.prompt_position, self.prompt_length + step])
        return torch.cat([positions_of(self.real_RL), self.real_RL.sum(1, keepdim=True) + step], 1)


@lru_cache(maxsize=16)
def _row_mask(prompt_length: int, width: int, steps: int, device: torch.device) -> Tensor:
    """Who sees whom in a row without padding: the prompt causally, a completion the prompt and
    its own earlier tokens.
    """
    total = prompt_length + width * steps
    place = torch.arange(total, device=device)
    owner = torch.where(place < prompt_length, -1, (place - prompt_length) % width)
    earlier = place[:, None] >= place[None, :]
    return (earlier & ((owner[None, :] == -1) | (owner[:, None] == owner[None, :])))[None, None]


def positions_of(real_RL: Tensor) -> Tensor:
    """Return places that count real tokens; padding has place 0, where nothing looks."""
    return (real_RL.long().cumsum(-1) - 1).clamp(min=0)


def prompt_mask_of(real_RL: Tensor) -> Tensor:
    """Return the causal mask over real tokens; padding sees itself, so that no row of attention
    is empty.
    """
    length = real_RL.shape[-1]
    return causal(length, real_RL.device) & (
        real_RL[:, None, None, :] | torch.eye(length, dtype=torch.bool, device=real_RL.device)
    )


def causal(length: int, device: torch.device) -> Tensor:
    """Return which tokens see which: each itself and those before it."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


Cache = list[tuple[Tensor, Tensor]]


@frozen
class PolicySize:
    """Width and depth of a policy."""

    name: str  # of the size
    width: int  # of a token's vector
    layers: int  # blocks of attention and feed-forward
    heads: int  # of attention; they divide the width


SIZES: tuple[PolicySize, ...] = (
    PolicySize("tiny", 32, 2, 2),
    PolicySize("small", 64, 2, 4),
    PolicySize("medium", 128, 4, 4),
    PolicySize("large", 256, 4, 8),
)


def policy_size(name: str) -> PolicySize:
    """Return an entry of `SIZES`."""
    return named(name, SIZES, "a size")


@frozen
class Sampled:
    """Completions, group after group in the order of the prompts."""

    completion_NL: Tensor  # tokens, PAD behind END
    mask_NL: Tensor  # 1 for each token that was sampled, END included
    log_probability_NL: (
        Tensor  # of each, at temperature 1 over the whole vocabulary, nats; 0 outside the mask
    )
    entropy_NL: Tensor  # of the distribution that it was drawn from, nats; 0 outside the mask


class Actor(Protocol):
    """What the training loop needs of a policy; a language model from disk is another one."""

    def sample(
        self, prompt_PL: Tensor, group_size: int, generator: torch.Generator, completion_length: int
    ) -> Sampled:
        """Draw completions of every prompt."""

    def log_probabilities(self, prompt_PL: Tensor, completion_NL: Tensor) -> Tensor:
        """Return the log-probability of every token of completions, differentiable."""

    def prompt_tokens(self, task: Task, problems: Sequence[Problem]) -> Tensor:
        """Return prompts as tokens on the policy's device, padded on the left."""

    def real(self, prompt_PL: Tensor) -> Tensor:
        """Return 1 for the tokens of prompts that are no padding."""

    def answer_tokens(self, task: Task, problems: Sequence[Problem]) -> tuple[Tensor, Tensor]:
        """Return the right completions as tokens, their end included, and 1 for those that
        count.
        """

    def texts(
        self, task: Task, completion_NL: Tensor, mask_NL: Tensor
    ) -> tuple[list[str], list[bool]]:
        """Return completions as texts, and whether each ended by itself."""

    def shown(self, problem: Problem) -> str:
        """Return a prompt as it is logged: as the policy reads it."""


class TransformerBlock(nn.Module):
    """Attention, then feed-forward, each behind a layer norm and beside the residual."""

    def __init__(self, size: PolicySize) -> None:
        super().__init__()
        width = size.width
        self.heads = size.heads
        self.norm_attention, self.norm_feed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(
        self,
        hidden: Tensor,
        mask: Tensor | None,
        past: tuple[Tensor, Tensor] | None,
        *,
        first: int = 0,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run some tokens of every row."""
        rows, tokens, width = hidden.shape
        parts = (
            self.query_key_value(self.norm_attention(hidden))
            .view(rows, tokens, 3, self.heads, -1)
            .permute(2, 0, 3, 1, 4)
        )
        query, key, value = parts.unbind(0)
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        if first:
            query, hidden = query[:, :, first:], hidden[:, first:]
            mask = causal(tokens, hidden.device)[None, None] if mask is None else mask
            mask = mask[:, :, first:]
        # A boolean mask fits queries of any precision: torch takes a float mask of another one in
        # silence, and is wrong on some processors.
        seen = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None
        )
        hidden = hidden + self.project(seen.transpose(1, 2).reshape(rows, tokens - first, width))
        return hidden + self.down(functional.gelu(self.up(self.norm_feed(hidden)))), (key, value)


class Policy(nn.Module):
    """A decoder-only transformer over the tokens of a `Vocabulary`."""

    def __init__(
        self, size: PolicySize, *, vocabulary_size: int, context: int = 32, seed: int = 0
    ) -> None:
        super().__init__()
        self.size, self.vocabulary_size, self.context = size, vocabulary_size, context
        self.token, self.position = (
            nn.Embedding(vocabulary_size, size.width),
            nn.Embedding(context, size.width),
        )
        self.blocks = nn.ModuleList(TransformerBlock(size) for _ in range(size.layers))
        self.norm, self.head = (
            nn.LayerNorm(size.width),
            nn.Linear(size.width, vocabulary_size, bias=False),
        )
        self._initialise(seed)

    def _initialise(self, seed: int) -> None:
        """Weights of standard deviation 1/sqrt(inputs), those that add to the residual smaller
        by sqrt(2 layers); biases 0.
        """
        draw = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, module in self.named_modules():
                if isinstance(module, nn.Linear):
                    share = (
                        (2 * self.size.layers) ** -0.5
                        if name.endswith(("project", "down"))
                        else 1.0
                    )
                    module.weight.normal_(0, share * module.in_features**-0.5, generator=draw)
                    if module.bias is not None:
                        module.bias.zero_()
                elif isinstance(module, nn.Embedding):
                    module.weight.normal_(0, 0.3, generator=draw)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the logits of the next token at every place."""
        real = (
            torch.ones_like(input_ids, dtype=torch.bool)
            if attention_mask is None
            else attention_mask.bool()
        )
        return self._logits(self._run(input_ids, positions_of(real), prompt_mask_of(real))[0])

    def _run(
        self,
        input_ids: Tensor,
        position: Tensor,
        mask: Tensor | None,
        past: Cache | None = None,
        *,
        first: int = 0,
    ) -> tuple[Tensor, Cache]:
        """Return the last vectors of the tokens from `first` on, and the cache with all in it."""
        hidden = self.token(input_ids) + self.position(position)
        cache: Cache = []
        for number, block in enumerate(self.blocks):
            last = (
                number == len(self.blocks) - 1
            )  # what no other token looks at any more need not be finished
            hidden, kept = block(
                hidden, mask, None if past is None else past[number], first=first if last else 0
            )
            cache.append(kept)
        return hidden, cache

    def _logits(self, hidden: Tensor) -> Tensor:
        """Return logits in single precision or better, whatever the pass ran in."""
        return single_or_better(self.head(self.norm(hidden)))

    @torch.no_grad()
    def sample(
        self, prompt_PL: Tensor, group_size: int, generator: torch.Generator, completion_length: int
    ) -> Sampled:
        """Draw completions at temperature 1 from the whole vocabulary."""
        return self.sample_with_graph(prompt_PL, group_size, generator, completion_length)

    def sample_with_graph(
        self, prompt_PL: Tensor, group_size: int, generator: torch.Generator, completion_length: int
    ) -> Sampled:
        """Draw completions whose log-probabilities are differentiable: on policy that saves
        reading them again.
        """
        prompts, prompt_length = prompt_PL.shape
        self._check_length(prompt_length, completion_length)
        packing = Packing.of(prompt_PL, group_size, completion_length - 1)
        uniform_LPG = uniform(completion_length, prompts, group_size, generator=generator)
        hidden, cache = self._run(
            prompt_PL, packing.prompt_position, packing.prompt_mask, first=prompt_length - 1
        )
        drawn = Decoding(
            prompts * group_size,
            completion_length,
            prompt_PL.device,
            precision=self.norm.weight.dtype,
        )
        running = drawn.add(0, self._logits(hidden[:, -1]), uniform_LPG[0])
        if packing.rows_per_prompt > 1:
            cache = [
                (
                    key.repeat_interleave(packing.rows_per_prompt, 0),
                    value.repeat_interleave(packing.rows_per_prompt, 0),
                )
                for key, value in cache
            ]
        for place in range(1, completion_length):
            if not running:
                break
            last = (
                drawn.completion_NL[:, place - 1].clone().view(-1, packing.width)
            )  # what a gradient needs must not be written to
            read = prompt_length + (place - 1) * packing.width
            mask = packing.whole_mask[:, :, read : read + packing.width, : read + packing.width]
            hidden, cache = self._run(last, packing.position(place - 1), mask, cache)
            running = drawn.add(
                place,
                self._logits(hidden).reshape(prompts * group_size, 1, -1),
                uniform_LPG[place].view(-1, 1),
            )
        return drawn.finished()

    def log_probabilities(self, prompt_PL: Tensor, completion_NL: Tensor) -> Tensor:
        r"""Return $\log \pi(y_t | x, y_{<t})$ of every token, differentiable."""
        count, length = completion_NL.shape
        self._check_length(prompt_PL.shape[1], length)
        packing = Packing.of(prompt_PL, count // len(prompt_PL), length - 1)
        input_ids = packing.rows(prompt_PL, completion_NL)
        hidden, _ = self._run(
            input_ids, packing.all_positions, packing.whole_mask, first=prompt_PL.shape[1] - 1
        )
        # The first token of all completions of a row is foretold by the prompt's last one.
        first = self._logits(hidden[:, 0]).log_softmax(-1)
        token_RGL = completion_NL.view(-1, packing.width, length)
        parts = [first.gather(1, token_RGL[:, :, 0]).unsqueeze(-1)]
        if length > 1:
            later = (
                self._logits(hidden[:, 1:])
                .log_softmax(-1)
                .view(len(first), length - 1, packing.width, -1)
                .transpose(1, 2)
            )
            parts.append(later.gather(-1, token_RGL[:, :, 1:, None]).squeeze(-1))
        return torch.cat(parts, -1).view(count, length)

    def prompt_tokens(self, task: Task, problems: Sequence[Problem]) -> Tensor:
        """Return prompts as tokens on the policy's device, padded on the left."""
        return torch.from_numpy(task.prompt_tokens(problems)).to(self.token.weight.device)

    def real(self, prompt_PL: Tensor) -> Tensor:
        """Return 1 for the tokens of prompts that are no padding."""
        return ((prompt_PL != PAD).cumsum(1) > 0).long()

    def answer_tokens(self, task: Task, problems: Sequence[Problem]) -> tuple[Tensor, Tensor]:
        """Return the right completions as tokens, END included, and 1 for those that count."""
        answer_PL = torch.from_numpy(task.answer_tokens(problems)).to(self.token.weight.device)
        length_P = torch.tensor(
            [len(problem.answer) + 1 for problem in problems], device=answer_PL.device
        )
        return answer_PL, (
            torch.arange(answer_PL.shape[1], device=answer_PL.device) < length_P[:, None]
        ).to(torch.float32)

    def texts(
        self, task: Task, completion_NL: Tensor, mask_NL: Tensor
    ) -> tuple[list[str], list[bool]]:
        """Return completions as texts without END, and whether each ended by itself."""
        return task_texts(task, completion_NL, mask_NL)

    def shown(self, problem: Problem) -> str:
        """Return a prompt as it is logged."""
        return problem.text

    def _check_length(self, prompt: int, completion: int) -> None:
        """Refuse what the positions do not reach."""
        if prompt + completion - 1 > self.context:
            raise InvalidArgumentError(
                f"expected at most {self.context + 1} tokens, the policy's context, got {prompt} "
                f"of prompt and {completion} of completion: make a policy with a longer context"
            )


def task_texts(task: Task, completion_NL: Tensor, mask_NL: Tensor) -> tuple[list[str], list[bool]]:
    """Return completions in a task's symbols, and whether each ended by itself."""
    import numpy as np

    # Fixed-width text drops the empty symbols at its end, so whole rows turn into texts without a
    # loop over tokens.
    symbols = np.array([DRAWN_PAD, "", *task.vocabulary.symbols])
    ids_NL, sampled_NL = completion_NL.cpu().numpy(), mask_NL.cpu().numpy() > 0
    letters = np.where(sampled_NL, symbols[ids_NL], "")
    ended_N = ((ids_NL == END) & sampled_NL).any(1)
    return np.ascontiguousarray(letters).view(f"<U{letters.shape[1]}")[
        :, 0
    ].tolist(), ended_N.tolist()


def uniform(*shape: int, generator: torch.Generator) -> Tensor:
    """Return numbers in [0, 1) on the generator's device, in steps of 2**-48: those of 2**-24
    are not fair to rare tokens.
    """
    coarse, fine = (
        torch.rand(*shape, generator=generator, device=generator.device) for _ in range(2)
    )
    return coarse.double() + fine.double() * 2.0**-24


class Decoding:
    """Completions as they are drawn, a token of each at a time."""

    def __init__(
        self,
        count: int,
        length: int,
        device: torch.device,
        *,
        ends: Sequence[int] = (END,),
        padding: int = PAD,
        precision: torch.dtype = torch.float32,
    ) -> None:
        self._ends = torch.tensor(list(ends), device=device)
        self.completion_NL = torch.full((count, length), padding, dtype=torch.long, device=device)
        # Three tensors of their own: only one of them may carry a gradient.
        zeros = (torch.zeros(count, length, device=device, dtype=precision) for _ in range(3))
        self.mask_NL, self.log_probability_NL, self.entropy_NL = zeros
        self.running_N = torch.ones(count, dtype=torch.bool, device=device)

    def add(
        self, place: int, logits_RV: Tensor, uniform_RG: Tensor, row_R: Tensor | None = None
    ) -> bool:
        """Draw the token at one place of every completion, or of those in some rows."""
        row: Tensor | slice = slice(None) if row_R is None else row_R
        differentiable_RV = logits_RV.log_softmax(-1).squeeze(1)
        log_RV = differentiable_RV.detach()
        probability_RV = log_RV.exp()
        # Inversion: one uniform number a token, so that a token depends on its own number alone. In
        # single precision the sum over a large vocabulary ends away from 1, and whatever lies
        # behind its end would become the last token. What is not finite is clamped.
        sum_RV = probability_RV.cumsum(-1, dtype=torch.float64)
        token_RG = torch.searchsorted(sum_RV, uniform_RG * sum_RV[:, -1:], right=True).clamp_(
            max=log_RV.shape[-1] - 1
        )
        going = self.running_N[row].clone()
        entropy_R = (
            -(probability_RV * log_RV.clamp(min=-1e4)).sum(-1, keepdim=True).expand_as(uniform_RG)
        )
        for kept, values in (
            (self.completion_NL, token_RG),
            (self.log_probability_NL, differentiable_RV.gather(1, token_RG)),
            (self.entropy_NL, entropy_R),
        ):
            kept[row, place] = torch.where(going, values.reshape(-1), kept[row, place])
        self.mask_NL[row, place] = going.to(self.mask_NL.dtype)
        self.running_N[row] = going & ~torch.isin(self.completion_NL[row, place], self._ends)
        return bool(self.running_N.any())

    def finished(self) -> Sampled:
        """Return what was drawn."""
        return Sampled(self.completion_NL, self.mask_NL, self.log_probability_NL, self.entropy_NL)


def answer_weight(actor: Actor, task: Task) -> float | None:
    """Return what the one right completion of a problem earns, where nothing else earns anything
    and it has one spelling in tokens.
    """
    if not is_function(task.verifier):
        return None
    functions = {
        name: function
        for name, function in task.verifier.functions.items()
        if task.verifier.weights.get(name)
    }
    if (
        not functions
        or any(function is not exact for function in functions.values())
        or not one_spelling(actor, task)
    ):
        return None
    return float(sum(task.verifier.weights[name] for name in functions))


def one_spelling(actor: Actor, task: Task) -> bool:
    """Whether every text in the task's symbols is one string of the actor's tokens."""
    return isinstance(actor, Policy) or bool(
        getattr(actor, "one_spelling", lambda _task: False)(task)
    )
