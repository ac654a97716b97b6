"""A causal language model or LoRA adapter from a folder on this machine, and prompts with completions as its tokens.

Only safetensors are read, nothing is fetched and no code of the folder is run. Prompt and completion are encoded apart and joined, so that
the boundary between them is exact. It computes no score.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from groupwise.errors import GroupwiseError, InsufficientDataError, InvalidArgumentError

if TYPE_CHECKING:
    import torch

Precision = Literal["float32", "float64", "bfloat16", "float16"]
Text = str | Sequence[int] | Sequence[Mapping[str, Any]]


class UnreadableModelError(GroupwiseError):
    """No language model can be made of this folder."""


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A model with its tokenizer."""

    model: torch.nn.Module  # in evaluation mode; of an adapter only its own weights require a gradient
    tokenizer: Any  # of the model's folder; that of the base model where an adapter has none
    adapter: bool  # whether it is a base model with a LoRA adapter
    context: int | None  # longest sequence, in tokens; None where the configuration does not say


def load_language_model(
    folder: str | Path, *, base: str | Path | None = None, device: str = "cpu", precision: Precision = "float32"
) -> LanguageModel:
    """Load a Hugging Face causal language model, or a LoRA adapter with its base model, from disk."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UnreadableModelError(
            f"expected a folder with a language model, got {folder}, which is none: give the path of a checkpoint on disk"
        )
    adapter = (folder / "adapter_config.json").is_file()
    if base is not None and not adapter:
        raise UnreadableModelError(f"expected a LoRA adapter in {folder} to put on {base}, got no adapter_config.json there")
    under = Path(base) if base is not None else _base_of(folder) if adapter else folder
    _check_weights(under, "model")
    if adapter:
        _check_weights(folder, "adapter")
    _check_installed("peft" if adapter else "transformers")
    model = _loaded_model(under, folder if adapter else None, precision).to(device)
    tokenizer = _loaded_tokenizer([folder, under])
    return LanguageModel(model.eval(), tokenizer, adapter, _context(model))


def encode(
    language_model: LanguageModel,
    prompts: Sequence[Text],
    completions: Sequence[Text],
    *,
    ended: bool | Sequence[bool] = True,
    special_tokens: bool = True,
) -> dict[str, torch.Tensor]:
    """Return prompts and completions as one batch for `groupwise.scores.scores.score_gram`.

    A text is encoded anew: where a sampler's tokens are not those that the tokenizer makes of the text, the score is that of the latter.
    Hand over the sampled tokens themselves where they were logged.
    """
    before, after = tokens_of(language_model, prompts, completions, ended=ended, special_tokens=special_tokens)
    for number, (prompt, completion) in enumerate(zip(before, after, strict=True)):
        _check_lengths(number, len(prompt), len(completion), language_model.context)
    return _padded(before, after, next(language_model.model.parameters()).device)


def tokens_of(
    language_model: LanguageModel,
    prompts: Sequence[Text],
    completions: Sequence[Text],
    *,
    ended: bool | Sequence[bool] = True,
    special_tokens: bool = True,
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the tokens of prompts and of completions, however many they are; `encode` takes both as they come from here."""
    if len(prompts) != len(completions):
        raise InvalidArgumentError(
            f"expected a completion a prompt, got {len(prompts)} prompts and {len(completions)} completions: pair them"
        )
    if not len(prompts):
        raise InsufficientDataError("expected at least one prompt with its completion, got none")
    ends = [ended] * len(prompts) if isinstance(ended, bool) else list(ended)
    if len(ends) != len(prompts):
        raise InvalidArgumentError(
            f"expected `ended` once a completion, got {len(ends)} for {len(prompts)}: give one bool, or {len(prompts)}"
        )
    tokenizer = language_model.tokenizer
    before = [_ids(tokenizer, prompt, special_tokens=special_tokens) for prompt in prompts]
    answers = [_content(completion) for completion in completions]
    after = [_ids(tokenizer, text, special_tokens=False) for text in answers]
    for text, ids, end in zip(answers, after, ends, strict=True):
        if end and isinstance(text, str):
            ids.append(_end_token(tokenizer))
    return before, after


def _base_of(folder: Path) -> Path:
    """Return the folder of an adapter's base model."""
    named = _json(folder / "adapter_config.json").get("base_model_name_or_path")
    for candidate in (Path(str(named)), folder / str(named)):
        if named and candidate.is_dir():
            return candidate
    raise UnreadableModelError(
        f"expected the base model of {folder} as a folder on disk, got {named!r}: write its path as base_model_name_or_path"
    )


def _json(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableModelError(f"expected JSON in {path}, got {type(error).__name__}: copy the checkpoint again") from error
    if not isinstance(found, dict):
        raise UnreadableModelError(f"expected a JSON object in {path}, got {type(found).__name__}: copy the checkpoint again")
    return found


def _check_weights(folder: Path, kind: str) -> None:
    """Refuse folders without configuration, and weights that could run code when they are read."""
    configuration = "config.json" if kind == "model" else "adapter_config.json"
    if not (folder / configuration).is_file():
        raise UnreadableModelError(f"expected {configuration} in {folder}, got none: give the folder that save_pretrained wrote")
    if "auto_map" in _json(folder / configuration):
        raise UnreadableModelError(
            f"expected an architecture that transformers has, got one with code of its own in {folder}: code of a checkpoint is never run"
        )
    if any(folder.glob("*.safetensors" if kind == "model" else "adapter_model.safetensors")):
        return
    pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
    came = f"only {pickled[0]}, which may run code when read" if pickled else "no weights"
    raise UnreadableModelError(f"expected *.safetensors in {folder}, got {came}: save with safe_serialization=True")


def _check_installed(module: str) -> None:
    """Refuse where the extra is missing."""
    from importlib.util import find_spec

    missing = [name for name in ("torch", "safetensors", "transformers", module) if find_spec(name) is None]
    if missing:
        raise UnreadableModelError(f"expected {missing[0]} to be installed for language models: pip install 'groupwise[hf]'")


@contextmanager
def _one_sentence(what: str) -> Iterator[None]:
    """Say in one line what a library could not do, and keep its bars and its remarks on its own future off the terminal."""
    import warnings

    try:
        with silent_bars(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    except GroupwiseError:
        raise
    except Exception as error:  # the libraries raise a dozen kinds for a broken folder
        first = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
        raise UnreadableModelError(f"expected to load {what}, got {type(error).__name__} ({first}): copy the checkpoint again") from error


@contextmanager
def silent_bars() -> Iterator[None]:
    """Keep the progress bars of transformers off the terminal."""
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _loaded_model(base: Path, adapter: Path | None, precision: Precision) -> torch.nn.Module:
    """Return the model, with the adapter on it where there is one."""
    import torch
    from transformers import AutoModelForCausalLM

    with _one_sentence(f"the model in {base}"):
        model = AutoModelForCausalLM.from_pretrained(
            str(base), dtype=getattr(torch, precision), local_files_only=True, use_safetensors=True, trust_remote_code=False
        )
    if adapter is None:
        result: torch.nn.Module = model
        return result
    from peft import PeftModel

    with _one_sentence(f"the adapter in {adapter}"):
        adapted: torch.nn.Module = PeftModel.from_pretrained(
            model, str(adapter), is_trainable=True, use_safetensors=True, local_files_only=True
        )
    return adapted.to(getattr(torch, precision))


def _loaded_tokenizer(folders: Sequence[Path]) -> Any:
    """Return the tokenizer of the first folder that has one."""
    from transformers import AutoTokenizer

    for folder in folders:
        if any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")):
            with _one_sentence(f"the tokenizer in {folder}"):
                return AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    raise UnreadableModelError(f"expected a tokenizer in {folders[0]}, got none: copy tokenizer.json and tokenizer_config.json there")


def _context(model: torch.nn.Module) -> int | None:
    """Return the longest sequence that the configuration allows."""
    configuration: Any = getattr(model, "config", None)
    for name in ("max_position_embeddings", "n_positions", "max_sequence_length"):
        length = getattr(configuration, name, None)
        if isinstance(length, int) and length > 0:
            return length
    return None


def _ids(tokenizer: Any, text: Text, *, special_tokens: bool) -> list[int]:
    """Return the tokens of a text or of messages; numbers are taken as they are."""
    if not isinstance(text, str) and len(text) and isinstance(text[0], Mapping):
        if tokenizer.chat_template is None:
            raise InvalidArgumentError(
                "expected a tokenizer with a chat template for prompts of messages, got one without: give texts or tokens"
            )
        found = tokenizer.apply_chat_template(list(text), add_generation_prompt=True, tokenize=True, return_dict=True)
        return [int(number) for number in found["input_ids"]]
    if not isinstance(text, str):
        return [int(number) for number in cast("Sequence[int]", text)]
    return [int(number) for number in tokenizer.encode(text, add_special_tokens=special_tokens)]


def _content(completion: Text) -> str | Sequence[int]:
    """Return a completion that is one message as its text."""
    if not isinstance(completion, str) and len(completion) and isinstance(completion[0], Mapping):
        if len(completion) > 1:
            raise InvalidArgumentError(f"expected a completion of one message, got {len(completion)}: hand over the sampled tokens instead")
        return str(completion[0]["content"])
    return cast("str | Sequence[int]", completion)


def _end_token(tokenizer: Any) -> int:
    """Return the end-of-sequence token."""
    if tokenizer.eos_token_id is None:
        raise InvalidArgumentError(
            "expected a tokenizer with an end-of-sequence token, got one without: pass ended=False, or token numbers"
        )
    return int(tokenizer.eos_token_id)


def _check_lengths(number: int, prompt: int, completion: int, context: int | None) -> None:
    """Refuse what the model cannot score."""
    if not prompt:
        raise InvalidArgumentError(
            f"expected at least one token of prompt, got none in rollout {number}: pass special_tokens=True where BOS begins it"
        )
    if context is not None and prompt + completion > context:
        raise InvalidArgumentError(
            f"expected at most {context} tokens, the model's context, got {prompt} of prompt and {completion} of completion in rollout"
            f" {number}: leave its group out"
        )


def _padded(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]], device: torch.device) -> dict[str, torch.Tensor]:
    """Return ids and masks, padded on the right with token 0, which no mask lets in."""
    import torch

    longest = max(2, *(len(prompt) + len(completion) for prompt, completion in zip(before, after, strict=True)))
    ids = torch.zeros(len(before), longest, dtype=torch.long)
    attention, mask = torch.zeros_like(ids), torch.zeros_like(ids)
    for row, (prompt, completion) in enumerate(zip(before, after, strict=True)):
        stop = len(prompt) + len(completion)
        ids[row, :stop] = torch.tensor([*prompt, *completion])
        attention[row, :stop] = 1
        mask[row, len(prompt) : stop] = 1
    return {"input_ids": ids.to(device), "attention_mask": attention.to(device), "completion_mask": mask.to(device)}
