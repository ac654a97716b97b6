"""Headers of GGUF files: shapes and memory by hand, of a file that the gguf package wrote; what is no such file is one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from groupwise.errors import InvalidArgumentError
from groupwise.scores.gguf_header import UnreadableHeaderError, check_memory, read_gguf_header

gguf = pytest.importorskip("gguf")


def tiny(path: Path, *, tensors: bool = True, template: str | None = "{{ messages }}") -> Path:
    """10 tokens of width 4, two layers of one matrix from 4 to 6 and a norm."""
    writer = gguf.GGUFWriter(str(path), "llama")
    if template is not None:
        writer.add_chat_template(template)
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


def test_shapes_and_memory_by_hand(tmp_path: Path) -> None:
    header = read_gguf_header(tiny(tmp_path / "tiny.gguf"))
    assert header.architecture == "llama"
    assert header.chat_template == "{{ messages }}"
    assert header.shapes["blk.0.ffn_up.weight"] == (4, 6)
    assert header.kinds == {"F32": 3, "F16": 2}
    assert header.vocabulary == 10
    assert header.parameters == 10 * 4 + 2 * (6 * 4 + 4) == 96
    assert header.bytes_to_load() == 4 * 96
    assert header.bytes_to_load("bfloat16") == 2 * 96
    assert header.bytes_to_train() == 16 * 96
    assert header.adapter_parameters(3) == 3 * 2 * (4 + 6) == 60  # no adapter on the embedding nor on what is no matrix
    assert header.bytes_to_train(lora_rank=3) == 4 * 96 + 16 * 60
    assert header.bytes_to_train(lora_rank=3, precision="bfloat16") == 2 * 96 + 16 * 60
    assert header.bytes_of_logits(7) == 3 * 4 * 10 * 7


def test_a_model_without_a_template(tmp_path: Path) -> None:
    assert read_gguf_header(tiny(tmp_path / "tiny.gguf", template=None)).chat_template is None


@pytest.mark.parametrize("content", [b"", b"GG", b"{}", b"PK\x03\x04" * 100], ids=["empty", "short", "json", "zip"])
def test_what_is_no_gguf_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(UnreadableHeaderError, match="begins with"):
        read_gguf_header(tmp_path / "other")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableHeaderError, match="No such file"):
        read_gguf_header(tmp_path / "none.gguf")


@pytest.mark.parametrize("size", [5, 30, 120, 400])
def test_half_a_file_is_refused(tmp_path: Path, size: int) -> None:
    half = tmp_path / "half.gguf"
    half.write_bytes(tiny(tmp_path / "tiny.gguf").read_bytes()[:size])
    with pytest.raises(UnreadableHeaderError, match=r"^expected [^\n]*: fetch it again$"):
        read_gguf_header(half)


def test_a_file_without_tensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableHeaderError, match="tensors of a model"):
        read_gguf_header(tiny(tmp_path / "tiny.gguf", tensors=False))


def test_what_does_not_fit_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    header = read_gguf_header(tiny(tmp_path / "tiny.gguf"))
    check_memory(header.path.name, 100, available=100)
    with pytest.raises(InvalidArgumentError, match=r"at most the 1\.5 GB of memory here, got tiny\.gguf, whose weights take 6\.2 GB"):
        check_memory(header.path.name, 6_200_000_000, available=1_500_000_000)
