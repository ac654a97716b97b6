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
    from groupwise.language_models import LanguageModel
    from groupwise.trainer.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class SymbolTokenizer:
    """The part of a tokenizer that scores ask of one, over a policy's vocabulary.

    Args:
        vocabulary: of the policy.
        eos_token_id: the number of the end.
        pad_token_id: the number of what fills up; one that a policy drew is logged as U+FFFD.
        chat_template: none.

    Example:
        >>> from groupwise.trainer.vocabulary import Vocabulary
        >>> SymbolTokenizer(Vocabulary("01+="), 1, 0)(["1+1="])
        {'input_ids': [[3, 4, 3, 5]]}
    """

    vocabulary: Vocabulary
    eos_token_id: int
    pad_token_id: int
    chat_template: None = None

    def __call__(self, texts: Sequence[str], *, add_special_tokens: bool = False) -> dict[str, list[list[int]]]:
        """The tokens of several texts."""
        return {"input_ids": [self.encode(text, add_special_tokens=add_special_tokens) for text in texts]}

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """The tokens of a text."""
        from groupwise.trainer.vocabulary import DRAWN_PAD

        del add_special_tokens
        return [self.pad_token_id if symbol == DRAWN_PAD else self.vocabulary.encode(symbol)[0] for symbol in text]


def open_model(model: Path, adapter: Path | None = None) -> LanguageModel:
    """Open a checkpoint of `groupwise train`, or a model or adapter of Hugging Face.

    Args:
        model: its folder.
        adapter: folder of a LoRA adapter to put on it.

    Returns:
        The model with its tokenizer.

    Raises:
        UnreadableModelError: it cannot be read safely, or what opens it is not installed.

    Example:
        >>> open_model(Path("no-such-folder"))
        Traceback (most recent call last):
        groupwise.language_models.UnreadableModelError: expected a folder with a language model, got no-such-folder, which is none: ...
    """
    from groupwise.language_models import LanguageModel, load_language_model
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
        from groupwise.language_models import UnreadableModelError

        raise UnreadableModelError(f"expected {missing[0]} to be installed for a policy of groupwise: pip install 'groupwise[train]'")
