"""Symbols as token numbers and back: one character a token.

Token 0 pads, token 1 ends a completion, the symbols follow. It knows no task and learns nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from groupwise.errors import InvalidArgumentError

PAD = 0
END = 1
DRAWN_PAD = "\ufffd"  # how a verifier sees a PAD that a policy drew: no symbol, and not nothing
_SPECIAL = 2


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The symbols of a task, each one token."""

    symbols: str  # different characters; the first has token 2
    _number: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Number the symbols."""
        if not self.symbols or len(set(self.symbols)) != len(self.symbols):
            raise InvalidArgumentError(f"expected different symbols, got {self.symbols!r}: name each once")
        object.__setattr__(self, "_number", {symbol: place + _SPECIAL for place, symbol in enumerate(self.symbols)})

    def __len__(self) -> int:
        """Number of tokens, PAD and END included."""
        return len(self.symbols) + _SPECIAL

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without END."""
        try:
            return [self._number[symbol] for symbol in text]
        except KeyError as missing:
            raise InvalidArgumentError(f"expected symbols of {self.symbols!r}, got {missing.args[0]!r} in {text!r}: leave it out") from None

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of some tokens up to the first END; PAD is left out."""
        text = []
        for number in map(int, ids):
            if number == END:
                break
            if not 0 <= number < len(self):
                raise InvalidArgumentError(
                    f"expected tokens from 0 to {len(self) - 1}, got {number}: decode with the vocabulary of the task"
                )
            if number != PAD:
                text.append(self.symbols[number - _SPECIAL])
        return "".join(text)
