"""slime's debug dumps, which PyTorch pickled: read by an unpickler that knows plain data and inert stand-ins for tensors, nothing else.

A pickle that asks for any other class or function is refused before it is called, as `torch.load(weights_only=True)` does.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from groupwise.errors import UnreadableRunError
from groupwise.readers.source import peek, shown

_ZIP = b"PK\x03\x04"
_LARGEST = 1 << 30
_PLAIN: dict[tuple[str, str], Any] = {("collections", "OrderedDict"): OrderedDict}
_TENSORS = {
    ("torch._utils", "_rebuild_tensor_v2"), ("torch._utils", "_rebuild_tensor"), ("torch._utils", "_rebuild_parameter"),
    ("torch", "FloatStorage"), ("torch", "DoubleStorage"), ("torch", "HalfStorage"), ("torch", "BFloat16Storage"),
    ("torch", "LongStorage"), ("torch", "IntStorage"), ("torch", "ShortStorage"), ("torch", "CharStorage"), ("torch", "ByteStorage"),
    ("torch", "BoolStorage"), ("torch", "Size"), ("torch", "float32"), ("torch", "float16"), ("torch", "bfloat16"), ("torch", "int64"),
    ("torch", "device"), ("torch.serialization", "_get_layout"),
}  # fmt: skip


class _Tensor:
    """Stands for a tensor, a storage or a type of numbers: it takes any arguments and holds nothing."""

    def __init__(self, *_: Any) -> None:
        """Take whatever the pickle gives."""

    def __setstate__(self, _: Any) -> None:
        """Keep no state."""


class _Plain(pickle.Unpickler):
    """An unpickler for which only plain data and tensors exist."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a stand-in; raise for whatever could do something."""
        if (module, name) in _TENSORS:
            return _Tensor
        if (module, name) in _PLAIN:
            return _PLAIN[(module, name)]
        raise pickle.UnpicklingError(f"it asks for {module[:40]}.{name[:40]}")

    def persistent_load(self, pid: Any) -> Any:  # noqa: ARG002
        """Return a stand-in for a tensor's storage."""
        return _Tensor()


def sniff_slime(path: Path) -> float:
    """Return the confidence that the file is a PyTorch archive with slime's samples in it."""
    if not peek(path).head.startswith(_ZIP):
        return 0.0
    try:
        with zipfile.ZipFile(path) as archive:
            name = _pickled(archive)
            return 0.9 if name and b"samples" in archive.open(name).read(1 << 16) else 0.4 if name else 0.0
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, EOFError, ValueError):
        return 0.0


def _pickled(archive: zipfile.ZipFile) -> str:
    """Return the name of the pickle inside a PyTorch archive, "" where there is none."""
    return next((name for name in archive.namelist()[:10_000] if name.endswith("/data.pkl") or name == "data.pkl"), "")


def slime_samples(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the samples of one of slime's dumps (`--save-debug-rollout-data`)."""
    try:
        with zipfile.ZipFile(path) as archive:
            name = _pickled(archive)
            if not name:
                raise UnreadableRunError(f"expected a PyTorch file in {shown(path)}, got another archive: give the log itself")
            if archive.getinfo(name).file_size > _LARGEST:
                raise UnreadableRunError(f"expected at most 1 GB of samples in {shown(path)}, got more: dump fewer of them")
            whole = _Plain(io.BytesIO(archive.read(name))).load()
    except UnreadableRunError:
        raise
    except pickle.UnpicklingError as error:
        reason = "".join(letter if letter.isprintable() else "?" for letter in str(error))[:120]
        raise UnreadableRunError(
            f"expected plain data and tensors in {shown(path)}, got a pickle that is not: {reason}, so it is not opened; export the samples"
        ) from None
    except Exception as error:  # noqa: BLE001  a damaged pickle can raise anything, but nothing in it was called
        kind = type(error).__name__
        raise UnreadableRunError(f"expected a sound PyTorch file, got {shown(path)}, which is damaged ({kind}): copy it again") from None
    samples = whole.get("samples") if isinstance(whole, dict) else None
    if not isinstance(samples, list):
        raise UnreadableRunError(f"expected slime's samples in {shown(path)}, got another PyTorch file: give the log itself")
    number = whole.get("rollout_id")
    for sample in samples:
        if isinstance(sample, dict):
            yield {**sample, "rollout_id": number if isinstance(number, int) else sample.get("rollout_id", 0)}
