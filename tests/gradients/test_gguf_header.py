"""Headers of GGUF files: weights counted by hand, of a file that the gguf package wrote; what is
no such file is one sentence.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.errors import InvalidArgumentError
from groupwise.gradients.language_models import (
    UnreadableModelError,
    check_memory,
    open_gguf,
    parameters_of,
)

gguf = pytest.importorskip("gguf")


def tiny(path: Path, *, tensors: bool = True) -> Path:
    """10 tokens of width 4, two layers of one matrix from 4 to 6 and a norm."""
    writer = gguf.GGUFWriter(str(path), "llama")
    if tensors:
        writer.add_tensor("token_embd.weight", np.zeros((10, 4), dtype=np.float32))
        for layer in range(2):
            writer.add_tensor(f"blk.{layer}.ffn_up.weight", np.zeros((6, 4), dtype=np.float16))
            writer.add_tensor(f"blk.{layer}.norm.weight", np.zeros(4, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_weights_are_counted_by_hand(tmp_path: Path) -> None:
    tiny(tmp_path / "tiny.gguf")
    assert parameters_of(tmp_path, "tiny.gguf") == 10 * 4 + 2 * (6 * 4 + 4) == 96


@each_case("content", [b"", b"GG", b"{}", b"PK\x03\x04" * 100])
def test_what_is_no_gguf_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(UnreadableModelError, match="begins with"):
        open_gguf(tmp_path / "other")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableModelError, match="No such file"):
        open_gguf(tmp_path / "none.gguf")


@each_case("size", [5, 30, 120, 400])
def test_half_a_file_is_refused(tmp_path: Path, size: int) -> None:
    half = tmp_path / "half.gguf"
    half.write_bytes(tiny(tmp_path / "tiny.gguf").read_bytes()[:size])
    with pytest.raises(UnreadableModelError, match=r"^expected [^\n]*: fetch it again$"):
        open_gguf(half)


def test_a_file_without_tensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableModelError, match="tensors of a model"):
        open_gguf(tiny(tmp_path / "tiny.gguf", tensors=False))


def test_what_does_not_fit_is_refused_before_it_is_loaded() -> None:
    check_memory("tiny.gguf", 100, available=100)
    with pytest.raises(
        InvalidArgumentError,
        match=r"at most the 1\.5 GB of memory here, got tiny\.gguf, whose weights take 6\.2 GB",
    ):
        check_memory("tiny.gguf", 6_200_000_000, available=1_500_000_000)
