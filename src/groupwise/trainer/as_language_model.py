"""A checkpoint opened as a language model with its tokenizer: a policy of ours, which needs no transformers, or a model of Hugging Face.

The policy's vocabulary stands in for a tokenizer. It samples nothing and measures nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from groupwise.scores.language_models import LanguageModel
    from groupwise.trainer.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class SymbolTokenizer:
    """The part of a tokenizer that scores ask of one, over a policy's vocabulary."""

    vocabulary: Vocabulary  # of the policy
    eos_token_id: int  # the number of the end
    pad_token_id: int  # the number of what fills up; one that a policy drew is logged as U+FFFD
    chat_template: None = None  # none

    def __call__(self, texts: Sequence[str], *, add_special_tokens: bool = False) -> dict[str, list[list[int]]]:
        """The tokens of several texts."""
        return {"input_ids": [self.encode(text, add_special_tokens=add_special_tokens) for text in texts]}

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """The tokens of a text."""
        from groupwise.trainer.vocabulary import DRAWN_PAD

        del add_special_tokens
        return [self.pad_token_id if symbol == DRAWN_PAD else self.vocabulary.encode(symbol)[0] for symbol in text]


def open_model(model: Path, adapter: Path | None = None) -> LanguageModel:
    """Open a checkpoint of `groupwise train`, or a model or adapter of Hugging Face."""
    from groupwise.scores.language_models import LanguageModel, load_language_model
    from groupwise.trainer.sampling import policy_vocabulary

    if adapter is not None:
        return load_language_model(adapter, base=model)
    vocabulary = policy_vocabulary(model)
    if vocabulary is None:
        return load_language_model(model)
    _check_installed()
    from groupwise.trainer.checkpoints import load_policy
    from groupwise.trainer.vocabulary import END, PAD

    policy = load_policy(model, vocabulary_size=len(vocabulary)).eval()
    return LanguageModel(policy, SymbolTokenizer(vocabulary, END, PAD), adapter=False, context=policy.context)


def _check_installed() -> None:
    """Refuse where what opens a policy of ours is missing."""
    missing = [name for name in ("torch", "safetensors") if find_spec(name) is None]
    if missing:
        from groupwise.scores.language_models import UnreadableModelError

        raise UnreadableModelError(f"expected {missing[0]} to be installed for a policy of groupwise: pip install 'groupwise[train]'")
