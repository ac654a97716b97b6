"""What the header of a GGUF file says of a model, and the memory that it takes to load and to train, before any weight is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.errors import GroupwiseError, InvalidArgumentError, first_line

BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
_MAGIC = b"GGUF"
# Value, gradient and the two moments of AdamW, each in float32.
_TRAINED = 16


class UnreadableHeaderError(GroupwiseError):
    """A file has no header of a GGUF model."""


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """A model by its header.

    Attributes:
        path: of the file.
        architecture: as llama.cpp names it.
        shapes: of every tensor by name, the widths of inputs before those of outputs.
        kinds: how many tensors are stored in which way, as Q4_1.
        chat_template: the template, or None where it has none.
    """

    path: Path
    architecture: str
    shapes: dict[str, tuple[int, ...]]
    kinds: dict[str, int]
    chat_template: str | None

    @property
    def parameters(self) -> int:
        """The number of weights."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @property
    def vocabulary(self) -> int:
        """The number of tokens, 0 where no tensor embeds them."""
        return self.shapes.get("token_embd.weight", (0,))[-1]

    def adapter_parameters(self, rank: int) -> int:
        """Return the number of weights of a LoRA adapter on every matrix of every layer."""
        return rank * sum(sum(shape) for name, shape in self.shapes.items() if name.startswith("blk.") and len(shape) == 2)

    def bytes_to_load(self, precision: str = "float32") -> int:
        """Return the bytes of the weights once they are no longer quantised."""
        return BYTES[precision] * self.parameters

    def bytes_to_train(self, *, lora_rank: int | None = None, precision: str = "float32") -> int:
        """Return the bytes of weights, gradients and the moments of AdamW; what a pass keeps comes on top.

        All parameters are trained where no rank of an adapter is given.
        """
        if lora_rank is None:
            return _TRAINED * self.parameters
        return self.bytes_to_load(precision) + _TRAINED * self.adapter_parameters(lora_rank)

    def bytes_of_logits(self, tokens: int) -> int:
        """Return the bytes that logits, their log-softmax and their gradient take in a pass over so many tokens."""
        return 3 * BYTES["float32"] * self.vocabulary * tokens


def read_gguf_header(path: str | Path) -> GgufHeader:
    """Read the header of a GGUF file; the weights stay on disk."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise UnreadableHeaderError(f"expected a GGUF file at {path}, got {first_line(error)}: give the path of one") from None
    if magic != _MAGIC:
        raise UnreadableHeaderError(f"expected a GGUF file at {path}, got one that begins with {magic!r}: fetch it again")
    reader = _reader(path)
    shapes = {str(tensor.name): tuple(int(size) for size in tensor.shape) for tensor in reader.tensors}
    kinds: dict[str, int] = {}
    for tensor in reader.tensors:
        kinds[tensor.tensor_type.name] = kinds.get(tensor.tensor_type.name, 0) + 1
    if not shapes:
        raise UnreadableHeaderError(f"expected the tensors of a model in {path}, got none: fetch it again")
    template = _text(reader, "tokenizer.chat_template")
    return GgufHeader(path, _text(reader, "general.architecture") or "", shapes, kinds, template)


def check_memory(name: str, needed: int, *, available: float) -> None:
    """Refuse a model whose weights alone take more memory than is free, before they are loaded."""
    if needed > available:
        raise InvalidArgumentError(
            f"expected a model that takes at most the {available / 1e9:.1f} GB of memory here, got {name}, whose weights take"
            f" {needed / 1e9:.1f} GB: take a smaller model, a lower precision or a larger machine"
        )


def free_memory(device: str) -> float:
    """Return the bytes that are free on a device; infinity where nobody knows."""
    if device.startswith("cuda"):
        import torch

        return float(torch.cuda.mem_get_info(device)[0])
    try:
        import psutil
    except ImportError:
        return math.inf
    return float(psutil.virtual_memory().available)


def _reader(path: Path) -> Any:
    """Open a file with the reader of the gguf package."""
    try:
        from gguf import GGUFReader
    except ImportError:
        raise UnreadableHeaderError("expected gguf to be installed for GGUF files: pip install 'groupwise[hf]'") from None
    try:
        return GGUFReader(str(path))
    except Exception as error:
        raise UnreadableHeaderError(
            f"expected the header of a GGUF file in {path}, got {type(error).__name__} ({first_line(error)}): fetch it again"
        ) from error


def _text(reader: Any, key: str) -> str | None:
    """Return a text of the header."""
    field = reader.get_field(key)
    return None if field is None else str(field.contents())
