"""A Hugging Face causal language model, or a LoRA adapter on one, in the policy's place."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from groupwise.errors import InvalidArgumentError, check_installed
from groupwise.gradients.hooks import single_or_better
from groupwise.gradients.language_models import loading, prompt_ids, quiet_transformers
from groupwise.gradients.scores import log_probability, takes_few_logits
from groupwise.prompts import prompt_text
from groupwise_lab.trainer.policy import Decoding, Sampled, uniform

if TYPE_CHECKING:
    from groupwise.gradients.language_models import LanguageModel
    from groupwise.prompts import Prompt
    from groupwise_lab.trainer.rewards import Problem
    from groupwise_lab.trainer.tasks import Task


_WORTH = 0.8  # share of the batch that goes on
_MOST_GROUPS = 10**6
NO_TOKEN = -1  # before a prompt: to be told from every token, the padding token too


def with_new_adapter(loaded: LanguageModel, rank: int, seed: int = 0) -> LanguageModel:
    """Return a model with a new LoRA adapter of a rank, drawn from the seed, on every linear layer
    but the head.
    """
    check_installed("peft")
    from peft import LoraConfig, get_peft_model

    if loaded.adapter:
        raise InvalidArgumentError(
            f"expected a model without an adapter for a new one of rank {rank}, got one with an "
            "adapter: leave one out"
        )
    if rank < 1:
        raise InvalidArgumentError(
            f"expected the rank of a LoRA adapter to be a whole number of at least 1; got {rank}"
        )
    configuration = LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng(), loading("a new LoRA adapter"):
        torch.manual_seed(seed)
        adapted: nn.Module = get_peft_model(loaded.model, configuration)
    return replace(loaded, model=adapted.eval(), adapter=True)


class LanguagePolicy(nn.Module):
    """A language model that samples and scores as `Policy` does, without dropout."""

    def __init__(
        self,
        language_model: LanguageModel,
        *,
        chat: bool = False,
        checkpointing: bool = False,
        memory_limit: float = math.inf,
    ) -> None:
        super().__init__()
        self.model = language_model.model
        self.memory_limit = memory_limit  # bytes of one pass, the weights apart
        self.tokenizer, self.context, self.chat = (
            language_model.tokenizer,
            language_model.context,
            chat,
        )
        if self.tokenizer.eos_token_id is None:
            raise InvalidArgumentError(
                "expected a tokenizer with an end-of-sequence token, got one without: a completion "
                "could never end"
            )
        self.end = int(self.tokenizer.eos_token_id)
        padding = self.tokenizer.pad_token_id
        self.padding = self.end if padding is None else int(padding)
        self._model: Any = self.model
        self.ends = _ends(self._model, self.end)
        self._few = takes_few_logits(self.model)
        self._checkpointing = checkpointing
        if checkpointing:
            _checkpoint_layers(self._model)
        self._one_spelling: dict[str, bool] = {}

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.model.parameters()).device

    @torch.no_grad()
    def sample(
        self, prompt_PL: Tensor, group_size: int, generator: torch.Generator, completion_length: int
    ) -> Sampled:
        """Draw completions at temperature 1 from the whole vocabulary."""
        self._check_length(prompt_PL.shape[1], completion_length)
        uniform_LPG = uniform(completion_length, len(prompt_PL), group_size, generator=generator)
        group = _cache_bytes(self._model, group_size, prompt_PL.shape[1] + completion_length)
        many = max(1, int(min(self.memory_limit / group, _MOST_GROUPS)))
        parts = [
            self._sampled(prompt_PL[at : at + many], uniform_LPG[:, at : at + many])
            for at in range(0, len(prompt_PL), many)
        ]
        return Sampled(
            *(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(Sampled))
        )

    def _sampled(self, prompt_PL: Tensor, uniform_LPG: Tensor) -> Sampled:
        """Draw completions of as many prompts as the memory holds at once."""
        completion_length, prompts, group_size = uniform_LPG.shape
        count, uniform_LN = prompts * group_size, uniform_LPG.flatten(1)
        logits_PV, cache = self._read(prompt_PL)
        drawn = Decoding(
            count,
            completion_length,
            prompt_PL.device,
            ends=self.ends,
            padding=self.padding,
            precision=logits_PV.dtype,
        )
        drawn.add(0, logits_PV, uniform_LPG[0])
        row_R = torch.arange(count, device=prompt_PL.device)
        prompt_R, real_RL = row_R // group_size, self.real(prompt_PL)
        for place in range(1, completion_length):
            going_R = drawn.running_N[row_R]
            many = int(going_R.sum())
            if not many:
                break
            # Completions that have ended leave the batch, once they are enough to be worth a copy
            # of the cache.
            if place == 1 or many <= _WORTH * len(row_R):
                stay = going_R.nonzero().squeeze(1)
                row_R = row_R[stay]
                cache.batch_select_indices(prompt_R[stay] if place == 1 else stay)
                real_RL = real_RL[prompt_R[stay] if place == 1 else stay]
            real_RL = functional.pad(real_RL, (0, 1), value=1)
            last_R1 = drawn.completion_NL[row_R, place - 1 : place]
            out = self._model(
                input_ids=last_R1,
                attention_mask=real_RL,
                position_ids=_places(real_RL)[:, -1:],
                past_key_values=cache,
                use_cache=True,
            )
            cache = out.past_key_values
            drawn.add(
                place,
                single_or_better(out.logits[:, -1]),
                uniform_LN[place, row_R].view(-1, 1),
                row_R,
            )
        return drawn.finished()

    def log_probabilities(self, prompt_PL: Tensor, completion_NL: Tensor) -> Tensor:
        r"""Return $\log \pi(y_t | x, y_{<t})$ of every token up to the end of its completion,
        differentiable; 0 behind it.
        """
        self._check_length(prompt_PL.shape[1], completion_NL.shape[1])
        length_N = self._lengths(completion_NL)
        if self._checkpointing:
            return self._read_whole(prompt_PL, completion_NL, length_N)
        prompt_N = torch.arange(len(completion_NL), device=prompt_PL.device) // (
            len(completion_NL) // len(prompt_PL)
        )
        logits_PV, cache = self._read(prompt_PL)
        first_N = logits_PV[prompt_N, completion_NL[:, 0]] - logits_PV.logsumexp(-1)[prompt_N]
        found_NL = functional.pad(first_N[:, None], (0, completion_NL.shape[1] - 1))
        real_PL = self.real(prompt_PL)
        for row_R, length in _of_like_length(length_N):
            token_RL = completion_NL[row_R, :length]
            real_RL = torch.cat([real_PL[prompt_N[row_R]], torch.ones_like(token_RL[:, 1:])], 1)
            behind = _selected(cache, prompt_N[row_R])
            place_RL = _places(real_RL)[:, -length + 1 :]
            out = self._model(
                input_ids=token_RL[:, :-1],
                attention_mask=real_RL,
                position_ids=place_RL,
                past_key_values=behind,
                use_cache=True,
            )
            later_RL = functional.pad(
                log_probability(out.logits, token_RL[:, 1:]), (1, completion_NL.shape[1] - length)
            )
            found_NL = found_NL.index_add(0, row_R, later_RL)
        return found_NL * _before(length_N, completion_NL.shape[1])

    def rollouts_of_a_pass(
        self,
        group_size: int,
        prompt_length: int,
        completion_length: int,
        *,
        where: str = "the prompt",
    ) -> int:
        """Return how many rollouts, of whole groups, one pass forward and backward takes within
        the memory limit.
        """
        plain, again = (
            _group_bytes(
                self._model, group_size, prompt_length, completion_length, checkpointed=checkpointed
            )
            for checkpointed in (False, True)
        )
        group = again if self._checkpointing else plain
        if group > self.memory_limit:
            least = _group_bytes(self._model, 2, prompt_length, 1, checkpointed=self._checkpointing)
            smaller = (
                ", take smaller groups or shorter completions" if least <= self.memory_limit else ""
            )
            raise InvalidArgumentError(
                f"expected {group_size} completions of {completion_length} tokens behind the "
                f"{prompt_length} of {where} to fit into memory_limit {self.memory_limit / 1e9:g} "
                f"GB, got {group / 1e9:.1f} GB: raise it, take out that prompt{smaller}"
                + (", or set gradient_checkpointing" if again <= self.memory_limit else "")
            )
        return group_size * int(min(self.memory_limit / group, _MOST_GROUPS))

    def _read(self, prompt_PL: Tensor) -> tuple[Tensor, Any]:
        """Return the logits behind each prompt, and the cache of its tokens."""
        real_PL = self.real(prompt_PL)
        # Of a prompt only the last place's logits are wanted: all of them would be the largest
        # tensor here. The place is given by its number: the last 1 would be a slice, whose gradient
        # torch sums over the vocabulary prompt by prompt, ten times less exactly.
        last_1 = torch.tensor([prompt_PL.shape[1] - 1], device=prompt_PL.device)
        few = {"logits_to_keep": last_1} if self._few else {}
        out = self._model(
            input_ids=prompt_PL.clamp(min=0),
            attention_mask=real_PL,
            position_ids=_places(real_PL),
            use_cache=True,
            **few,
        )
        return single_or_better(out.logits[:, -1]), out.past_key_values

    def _read_whole(self, prompt_PL: Tensor, completion_NL: Tensor, length_N: Tensor) -> Tensor:
        """Score completions behind prompts that are read again for each: layers that are run
        twice keep no cache.
        """
        before, length = (
            prompt_PL.repeat_interleave(len(completion_NL) // len(prompt_PL), 0),
            completion_NL.shape[1],
        )
        real_NL = torch.cat([self.real(before), torch.ones_like(completion_NL[:, 1:])], 1)
        read = torch.cat([before.clamp(min=0), completion_NL[:, :-1]], 1)
        few = {"logits_to_keep": length} if self._few else {}
        self.model.train()  # without which the layers do not know that they are to be run twice
        out = self._model(
            input_ids=read,
            attention_mask=real_NL,
            position_ids=_places(real_NL),
            use_cache=False,
            **few,
        )
        self.model.eval()
        return log_probability(out.logits[:, -length:], completion_NL) * _before(length_N, length)

    def _lengths(self, completion_NL: Tensor) -> Tensor:
        """Return the tokens of each completion, its end included."""
        ended_NL = torch.isin(completion_NL, torch.tensor(self.ends, device=completion_NL.device))
        return torch.where(ended_NL.any(1), ended_NL.int().argmax(1) + 1, completion_NL.shape[1])

    def prompt_tokens(self, task: Task, problems: Sequence[Problem]) -> Tensor:
        """Return prompts as the model's own tokens, padded on the left."""
        del task
        return self.padded([self.encoded(problem.prompt) for problem in problems])

    def encoded(self, prompt: Prompt) -> list[int]:
        """Return a prompt as tokens."""
        return prompt_ids(self.tokenizer, self._as_read(prompt))

    def _as_read(self, prompt: Prompt) -> Prompt:
        """Return a prompt as the model reads it: a text that is to be a chat is what the user
        says first.
        """
        return (
            [{"role": "user", "content": prompt}]
            if self.chat and isinstance(prompt, str)
            else prompt
        )

    def shown(self, problem: Problem) -> str:
        """Return a prompt as it is logged: as the model reads it."""
        return prompt_text(self._as_read(problem.prompt))

    def padded(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Return prompts of one length."""
        longest = max(1, *map(len, rows))
        return torch.tensor(
            [[NO_TOKEN] * (longest - len(row)) + list(row) for row in rows], device=self.device
        )

    def real(self, prompt_PL: Tensor) -> Tensor:
        """Return 1 for the tokens of prompts."""
        return (prompt_PL != NO_TOKEN).long()

    def answer_tokens(self, task: Task, problems: Sequence[Problem]) -> tuple[Tensor, Tensor]:
        """Return the right completions as tokens, their end included, and 1 for those that
        count.
        """
        del task
        rows = [
            [*self.tokenizer.encode(problem.answer, add_special_tokens=False), self.end]
            for problem in problems
        ]
        length_N = torch.tensor([len(row) for row in rows], device=self.device)
        longest = int(length_N.max())
        tokens = [row + [self.padding] * (longest - len(row)) for row in rows]
        return torch.tensor(tokens, device=self.device), _before(length_N, longest)

    def texts(
        self, task: Task, completion_NL: Tensor, mask_NL: Tensor
    ) -> tuple[list[str], list[bool]]:
        """Return completions as texts without their end, and whether each ended by itself."""
        del task
        length_N = mask_NL.sum(1).long().tolist()
        rows = [row[:length] for row, length in zip(completion_NL.tolist(), length_N, strict=True)]
        ended = [bool(row) and row[-1] in self.ends for row in rows]
        without = [row[:-1] if end else row for row, end in zip(rows, ended, strict=True)]
        return self.tokenizer.batch_decode(without, clean_up_tokenization_spaces=False), ended

    def one_spelling(self, task: Task) -> bool:
        """Whether every text in the task's symbols is one string of tokens: a token for each
        symbol, no other token of symbols alone.
        """
        symbols = task.vocabulary.symbols
        if symbols not in self._one_spelling:
            alone = [
                text for token, text in enumerate(self._token_texts()) if token not in self.ends
            ]
            made = sorted(text for text in alone if not set(text) - set(symbols))
            row = self.tokenizer.encode(symbols, add_special_tokens=False)
            whole = self.tokenizer.decode(row, clean_up_tokenization_spaces=False) == symbols
            self._one_spelling[symbols] = len(self.ends) == 1 and whole and made == sorted(symbols)
        return self._one_spelling[symbols]

    def end_at_lines(self) -> None:
        """Let a line's end be the completion's end from now on: what a model that knows no chat
        goes on with is no part of its answer.
        """
        lines = [
            token
            for token, text in enumerate(self._token_texts())
            if "\n" in text and not text.strip()
        ]
        self.ends = tuple(dict.fromkeys([*self.ends, *lines]))

    def _token_texts(self) -> list[str]:
        """Return the text of every token by itself."""
        tokens = range(self._model.get_output_embeddings().weight.shape[0])
        return list(
            self.tokenizer.batch_decode(
                [[token] for token in tokens], clean_up_tokenization_spaces=False
            )
        )

    def save(self, folder: Path) -> None:
        """Write the model, or the adapter alone, with its tokenizer, into a folder that is
        there.
        """
        with quiet_transformers():
            self._model.save_pretrained(str(folder), safe_serialization=True)
            self.tokenizer.save_pretrained(str(folder))

    def _check_length(self, prompt: int, completion: int) -> None:
        """Refuse what the context does not hold."""
        if self.context is not None and prompt + completion - 1 > self.context:
            raise InvalidArgumentError(
                f"expected at most {self.context} tokens, the model's context, got {prompt} of "
                f"prompt and {completion} of completion: take shorter ones"
            )


def _ends(model: Any, end: int) -> tuple[int, ...]:
    """Return the tokens that end a completion: the tokenizer's and those of the model's
    generation settings.
    """
    token = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    more = [] if token is None else [token] if isinstance(token, int) else list(token)
    return tuple(dict.fromkeys([end, *map(int, more)]))


def _places(real_NL: Tensor) -> Tensor:
    """Places that count real tokens."""
    return (real_NL.cumsum(1) - 1).clamp(min=0)


def _before(length_N: Tensor, longest: int) -> Tensor:
    """1 for the tokens of completions, 0 behind their ends."""
    return (torch.arange(longest, device=length_N.device) < length_N[:, None]).float()


def _of_like_length(length_N: Tensor) -> Iterator[tuple[Tensor, int]]:
    """Yield the completions of more than one token, those of like length together: padding is
    read like any token.
    """
    longest = 2
    while bool((length_N > longest // 2).any()):
        row_R = ((length_N > longest // 2) & (length_N <= longest)).nonzero().squeeze(1)
        if len(row_R):
            yield row_R, int(length_N[row_R].max())
        longest *= 2


def _selected(cache: Any, prompt_R: Tensor) -> Any:
    """Return the cache of a prompt for each completion; the tensors of the one given stay, for
    the next.
    """
    taken = copy.copy(cache)
    taken.layers = [copy.copy(layer) for layer in cache.layers]
    taken.batch_select_indices(prompt_R)
    return taken


def _checkpoint_layers(model: Any) -> None:
    """Let the layers be run again in the backward pass rather than kept."""
    dropping = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Dropout) and module.p
    ]
    dropping += ["attention_dropout"] if getattr(model.config, "attention_dropout", 0) else []
    if dropping:
        raise InvalidArgumentError(
            f"expected a model without dropout for gradient_checkpointing, got {dropping[0]}: set "
            "its share to 0 in config.json"
        )
    enable = (
        getattr(model, "activation_checkpointing_enable", None)
        or model.gradient_checkpointing_enable
    )
    enable()


def _token_bytes(model: Any, *, checkpointed: bool) -> tuple[float, float]:
    """Return the bytes that a token leaves behind for the backward pass, and those of its
    logits, in single precision.
    """
    configuration = model.config.get_text_config()
    width, layers = configuration.hidden_size, configuration.num_hidden_layers
    inner = getattr(configuration, "intermediate_size", None) or 4 * width
    # Of a layer: norms, query, key, value and the attention's output; gate, up and their product;
    # and the gradients of all of them.
    layer = 4 * (16 * width + 8 * inner)
    kept = 4 * layers * width + layer if checkpointed else layers * layer
    return kept, 4 * 4 * configuration.vocab_size


def _group_bytes(
    model: Any, group_size: int, prompt: int, completion: int, *, checkpointed: bool
) -> float:
    """Return the bytes of a pass forward and backward through one group: its prompt is read
    once, or for each where layers run twice.
    """
    kept, logits = _token_bytes(model, checkpointed=checkpointed)
    read = prompt * (group_size if checkpointed else 1) + group_size * completion
    return kept * read + logits * group_size * completion


def _cache_bytes(model: Any, group_size: int, tokens: int) -> float:
    """Return the bytes that sampling a group holds: keys and values of every token, and the
    logits of one.
    """
    configuration = model.config.get_text_config()
    heads = getattr(configuration, "num_key_value_heads", None) or configuration.num_attention_heads
    head = (
        getattr(configuration, "head_dim", None)
        or configuration.hidden_size // configuration.num_attention_heads
    )
    # The cache is copied when a token is appended; of the logits there are their softmax and its
    # sum in double precision too.
    cache = 2 * 4 * 2 * configuration.num_hidden_layers * heads * head * tokens
    return float(group_size * (cache + 24 * configuration.vocab_size))
