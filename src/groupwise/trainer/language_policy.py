"""A Hugging Face causal language model, or a LoRA adapter on one, in the policy's place.

Prompts are texts that its own tokenizer encodes; the prompt is run once and its cache repeated for the group. It loads no model:
`groupwise.scores.language_models` does.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from groupwise.errors import InvalidArgumentError
from groupwise.scores.language_models import silent_bars
from groupwise.trainer.policy import Drawn, Sampled, uniform

if TYPE_CHECKING:
    from groupwise.scores.language_models import LanguageModel
    from groupwise.trainer.rewards import Problem
    from groupwise.trainer.tasks import Task


NO_TOKEN = -1  # before a prompt: to be told from every token, the padding token too


class LanguagePolicy(nn.Module):
    """A language model that samples and scores as `Policy` does, in evaluation mode throughout (no dropout)."""

    def __init__(self, language_model: LanguageModel) -> None:
        super().__init__()
        self.model = language_model.model
        self.tokenizer, self.context = language_model.tokenizer, language_model.context
        if self.tokenizer.eos_token_id is None:
            raise InvalidArgumentError("expected a tokenizer with an end-of-sequence token, got one without: a completion could never end")
        self.end = int(self.tokenizer.eos_token_id)
        padding = self.tokenizer.pad_token_id
        self.padding = self.end if padding is None else int(padding)
        self._model: Any = self.model
        self.ends = _ends(self._model, self.end)
        self._few = _takes_few_logits(self.model)
        self._one_spelling: dict[str, bool] = {}

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    @torch.no_grad()
    def sample(self, prompt_PL: Tensor, group_size: int, generator: torch.Generator, completion_length: int) -> Sampled:
        """Draw completions at temperature 1 from the whole vocabulary."""
        self._check_length(prompt_PL.shape[1], completion_length)
        prompts, count = len(prompt_PL), len(prompt_PL) * group_size
        real_PL = self.real(prompt_PL)
        uniform_LN = uniform(completion_length, count, generator=generator)
        # Of a prompt only the last place's logits are wanted: all of them would be the largest tensor here.
        few = {"logits_to_keep": 1} if self._few else {}
        out = self._model(input_ids=prompt_PL.clamp(min=0), attention_mask=real_PL, position_ids=_places(real_PL), use_cache=True, **few)
        drawn = Drawn(count, completion_length, prompt_PL.device, ends=self.ends, padding=self.padding)
        running = drawn.add(0, out.logits[:, -1].float(), uniform_LN[0].view(prompts, group_size))
        cache = out.past_key_values
        cache.batch_repeat_interleave(group_size)
        real_NL = real_PL.repeat_interleave(group_size, 0)
        for place in range(1, completion_length):
            if not running:
                break
            real_NL = torch.cat([real_NL, torch.ones_like(real_NL[:, :1])], 1)
            last = drawn.completion_NL[:, place - 1 : place]
            out = self._model(
                input_ids=last, attention_mask=real_NL, position_ids=_places(real_NL)[:, -1:], past_key_values=cache, use_cache=True
            )
            cache = out.past_key_values
            running = drawn.add(place, out.logits[:, -1].float(), uniform_LN[place].view(-1, 1))
        return drawn.finished()

    def log_probabilities(self, prompt_PL: Tensor, completion_NL: Tensor) -> Tensor:
        r"""Return $\log \pi(y_t | x, y_{<t})$ of every token, differentiable."""
        before = prompt_PL.repeat_interleave(len(completion_NL) // len(prompt_PL), 0)
        length = completion_NL.shape[1]
        self._check_length(prompt_PL.shape[1], length)
        real_NL = torch.cat([self.real(before), torch.ones_like(completion_NL[:, 1:])], 1)
        read = torch.cat([before.clamp(min=0), completion_NL[:, :-1]], 1)
        few = {"logits_to_keep": length} if self._few else {}
        logits = self._model(input_ids=read, attention_mask=real_NL, position_ids=_places(real_NL), **few).logits[:, -length:].float()
        found: Tensor = logits.log_softmax(-1).gather(-1, completion_NL[..., None]).squeeze(-1)
        return found

    def prompt_tokens(self, task: Task, problems: Sequence[Problem]) -> Tensor:
        """Return prompts as the model's own tokens, padded on the left."""
        del task
        return self.padded([self.tokenizer.encode(problem.prompt) for problem in problems])

    def padded(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Return prompts of one length."""
        longest = max(1, *map(len, rows))
        return torch.tensor([[NO_TOKEN] * (longest - len(row)) + list(row) for row in rows], device=self.device)

    def real(self, prompt_PL: Tensor) -> Tensor:
        """Return 1 for the tokens of prompts."""
        return (prompt_PL != NO_TOKEN).long()

    def answer_tokens(self, task: Task, problems: Sequence[Problem]) -> tuple[Tensor, Tensor]:
        """Return the right completions as tokens, their end included, and 1 for those that count."""
        del task
        rows = [[*self.tokenizer.encode(problem.answer, add_special_tokens=False), self.end] for problem in problems]
        longest = max(len(row) for row in rows)
        mask = [[1.0] * len(row) + [0.0] * (longest - len(row)) for row in rows]
        tokens = [row + [self.padding] * (longest - len(row)) for row in rows]
        return torch.tensor(tokens, device=self.device), torch.tensor(mask, device=self.device)

    def texts(self, task: Task, completion_NL: Tensor, mask_NL: Tensor) -> tuple[list[str], list[bool]]:
        """Return completions as texts without their end, and whether each ended by itself."""
        del task
        length_N = mask_NL.sum(1).long().tolist()
        rows = [row[:length] for row, length in zip(completion_NL.tolist(), length_N, strict=True)]
        ended = [bool(row) and row[-1] in self.ends for row in rows]
        without = [row[:-1] if end else row for row, end in zip(rows, ended, strict=True)]
        return self.tokenizer.batch_decode(without, clean_up_tokenization_spaces=False), ended

    def one_spelling(self, task: Task) -> bool:
        """Whether every text in the task's symbols is one string of tokens: a token for each symbol, no other token of symbols alone."""
        symbols = task.vocabulary.symbols
        if symbols not in self._one_spelling:
            tokens = [token for token in range(self._model.get_output_embeddings().weight.shape[0]) if token not in self.ends]
            alone = self.tokenizer.batch_decode([[token] for token in tokens], clean_up_tokenization_spaces=False)
            made = sorted(text for text in alone if not set(text) - set(symbols))
            row = self.tokenizer.encode(symbols, add_special_tokens=False)
            whole = self.tokenizer.decode(row, clean_up_tokenization_spaces=False) == symbols
            self._one_spelling[symbols] = len(self.ends) == 1 and whole and made == sorted(symbols)
        return self._one_spelling[symbols]

    def save(self, folder: Path) -> None:
        """Write the model, or the adapter alone, with its tokenizer, into a folder that is there."""
        with silent_bars():
            self._model.save_pretrained(str(folder), safe_serialization=True)
            self.tokenizer.save_pretrained(str(folder))

    def _check_length(self, prompt: int, completion: int) -> None:
        """Refuse what the context does not hold."""
        if self.context is not None and prompt + completion - 1 > self.context:
            raise InvalidArgumentError(
                f"expected at most {self.context} tokens, the model's context, got {prompt} of prompt and {completion} of completion: take"
                " an easier level"
            )


def _ends(model: Any, end: int) -> tuple[int, ...]:
    """Return the tokens that end a completion: the tokenizer's and those of the model's generation settings."""
    found = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    more = [] if found is None else [found] if isinstance(found, int) else list(found)
    return tuple(dict.fromkeys([end, *map(int, more)]))


def _takes_few_logits(model: Any) -> bool:
    """Whether the model can be told to compute the logits of the last places alone; of an adapter, the model beneath it."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return "logits_to_keep" in inspect.signature(base.forward).parameters


def _places(real_NL: Tensor) -> Tensor:
    """Places that count real tokens."""
    return (real_NL.cumsum(1) - 1).clamp(min=0)
