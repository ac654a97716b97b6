"""Checkpoints: a policy as a GPT-2 folder that Hugging Face opens, and a run's state beside it.

Both are safetensors and JSON: nothing pickled is written or read. A folder appears whole or not at
all.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.errors import GroupwiseError, first_line, one_sentence
from groupwise.parsing import JsonObject, JsonView
from groupwise_lab.trainer.tasks import DRAWN_PAD, END, PAD, TASKS, Vocabulary

if TYPE_CHECKING:
    from torch import Tensor

    from groupwise_lab.trainer.policy import Policy, PolicySize


WEIGHTS, CONFIG, STATE, STATE_ABOUT, NOTE = (
    "model.safetensors",
    "config.json",
    "state.safetensors",
    "state.json",
    "note.json",
)
_STATE_FORMAT = 1
_MOST_SYMBOLS = 64


class UnreadableCheckpointError(GroupwiseError):
    """A folder holds no checkpoint that fits."""


# Our names and GPT-2's; the latter keeps the weights of linear layers transposed.
_BLOCK = {
    "norm_attention": "ln_1",
    "query_key_value": "attn.c_attn",
    "project": "attn.c_proj",
    "norm_feed": "ln_2",
    "up": "mlp.c_fc",
    "down": "mlp.c_proj",
}
_TRANSPOSED = ("query_key_value.weight", "project.weight", "up.weight", "down.weight")


def _names(layers: int) -> dict[str, str]:
    """Our names of the weights -> GPT-2's."""
    names = {
        "token.weight": "transformer.wte.weight",
        "position.weight": "transformer.wpe.weight",
        "head.weight": "lm_head.weight",
    }
    for kind in ("weight", "bias"):
        names[f"norm.{kind}"] = f"transformer.ln_f.{kind}"
        for layer in range(layers):
            names |= {
                f"blocks.{layer}.{ours}.{kind}": f"transformer.h.{layer}.{theirs}.{kind}"
                for ours, theirs in _BLOCK.items()
            }
    return names


def save_policy(policy: Policy, folder: str | Path, vocabulary: Vocabulary) -> Path:
    """Write a policy as a folder that `load_policy` and transformers open."""
    with whole_folder(Path(folder)) as partial:
        write_policy(policy, partial, vocabulary)
    return Path(folder)


def write_policy(policy: Policy, folder: Path, vocabulary: Vocabulary) -> None:
    """Write the files of a policy."""
    from safetensors.torch import save_file

    own = policy.state_dict()
    tensors = {}
    for ours, theirs in _names(policy.size.layers).items():
        tensor = own[ours].detach().float().cpu()
        tensors[theirs] = (tensor.T if ours.endswith(_TRANSPOSED) else tensor).contiguous().clone()
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    write_json(folder / CONFIG, _configuration(policy))
    write_json(folder / "tokenizer.json", _tokenizer(vocabulary))
    names = {
        "pad_token": "<pad>",
        "eos_token": "<end>",
        "padding_side": "left",
        "clean_up_tokenization_spaces": False,
    }
    write_json(
        folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    )


def load_policy(
    folder: str | Path,
    *,
    size: PolicySize | None = None,
    vocabulary_size: int | None = None,
    device: str = "cpu",
) -> Policy:
    """Read a policy."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from groupwise_lab.trainer.policy import SIZES, Policy

    home = Path(folder)
    configuration = read_json(home / CONFIG)
    stored, tokens, context = _size_of(configuration, home)
    if size is not None and _shape(stored) != _shape(size):
        raise UnreadableCheckpointError(
            f"expected a policy of size {size.name} ({_shape(size)}) in {home}, got {stored.name} "
            f"({_shape(stored)}): take another checkpoint"
            + (f", or --size {stored.name}" if stored in SIZES else "")
        )
    if vocabulary_size is not None and tokens != vocabulary_size:
        raise UnreadableCheckpointError(
            f"expected a policy of {vocabulary_size} tokens in {home}, got one of {tokens}: it was "
            "trained on a task with other symbols"
        )
    with _loading(
        f"weights in {home / WEIGHTS}", "take another checkpoint", OSError, SafetensorError
    ):
        tensors = load_file(home / WEIGHTS)
    policy = Policy(stored, vocabulary_size=tokens, context=context)
    expected = policy.state_dict()
    state = {}
    for ours, theirs in _names(stored.layers).items():
        tensor = tensors.get(theirs)
        tensor = tensor.T if tensor is not None and ours.endswith(_TRANSPOSED) else tensor
        if tensor is None or tensor.shape != expected[ours].shape:
            came = "none" if tensor is None else str(tuple(tensor.shape))
            raise UnreadableCheckpointError(
                f"expected {theirs} of shape {tuple(expected[ours].shape)} in {home}, got {came}: "
                "the weights are not of this configuration"
            )
        state[ours] = tensor
    policy.load_state_dict(state)
    return policy.to(device)


def _shape(size: PolicySize) -> str:
    return f"width {size.width}, {size.layers} layers, {size.heads} heads"


def _size_of(configuration: JsonView, home: Path) -> tuple[PolicySize, int, int]:
    """Return size, tokens and context that a configuration tells of."""
    from groupwise_lab.trainer.policy import SIZES, PolicySize

    try:
        if configuration["model_type"] != "gpt2" or configuration["activation_function"] != "gelu":
            raise KeyError("model_type")
        width, layers, heads = (
            int(configuration[name]) for name in ("n_embd", "n_layer", "n_head")
        )
        tokens, context = int(configuration["vocab_size"]), int(configuration["n_positions"])
        if min(width, layers, heads, tokens, context) < 1 or width % heads:
            raise ValueError("n_embd")
    except (KeyError, TypeError, ValueError):
        raise UnreadableCheckpointError(
            f"expected the configuration of a policy in {home / CONFIG}, got something else: give "
            "a folder that groupwise-lab train wrote"
        ) from None
    sizes = (
        size for size in SIZES if (size.width, size.layers, size.heads) == (width, layers, heads)
    )
    return next(sizes, PolicySize("another", width, layers, heads)), tokens, context


def _configuration(policy: Policy) -> JsonObject:
    """What transformers needs to know to build the same network."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": policy.size.width,
        "n_layer": policy.size.layers,
        "n_head": policy.size.heads,
        "n_positions": policy.context,
        "vocab_size": policy.vocabulary_size,
        "activation_function": "gelu",
        "layer_norm_epsilon": 1e-5,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": END,
        "pad_token_id": PAD,
        "dtype": "float32",
    }


def _numbers(vocabulary: Vocabulary) -> dict[str, int]:
    """The number of every token."""
    return {"<pad>": PAD, "<end>": END} | {
        symbol: vocabulary.encode(symbol)[0] for symbol in vocabulary.symbols
    }


def _tokenizer(vocabulary: Vocabulary) -> JsonObject:
    """The tokens as a tokenizer file: one a character; one without a token is an error."""
    special = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": PAD, "content": "<pad>", **special},
            {"id": END, "content": "<end>", **special},
        ],
        "normalizer": {"type": "Replace", "pattern": {"String": DRAWN_PAD}, "content": "<pad>"},
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": "<pad>|<end>|."},
            "behavior": "Isolated",
            "invert": False,
        },
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": _numbers(vocabulary), "unk_token": "<none>"},
    }


def write_state(folder: Path, tensors: Mapping[str, Tensor], about: JsonView) -> None:
    """Write the state of a run."""
    from safetensors.torch import save_file

    save_file(
        {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()},
        folder / STATE,
    )
    write_json(folder / STATE_ABOUT, {"format": _STATE_FORMAT, **about})


def mark_state(folder: Path, about: JsonView) -> None:
    """Add to what the state of a run tells, whole or not at all."""
    new = folder / f".{STATE_ABOUT}.new"
    write_json(new, {**read_json(folder / STATE_ABOUT), **about})
    new.replace(folder / STATE_ABOUT)


def read_state(folder: Path) -> tuple[dict[str, Tensor], JsonObject]:
    """Read what `write_state` wrote."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    about = read_json(folder / STATE_ABOUT)
    if about.get("format") != _STATE_FORMAT:
        raise UnreadableCheckpointError(
            f"expected the state of a run in format {_STATE_FORMAT} in {folder}, got "
            f"{str(about.get('format'))[:20]}: use the groupwise that wrote it"
        )
    with _loading(
        f"the state of a run in {folder / STATE}",
        "go back to an older checkpoint",
        OSError,
        SafetensorError,
    ):
        return load_file(folder / STATE), about


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Give a folder that takes the name of the target when the block ends without an error."""
    partial = target.parent / f".{target.name}.partial-{os.getpid()}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
        _rename_whole(partial, target)
    except Exception as error:
        failure = _failed_write(error)
        if failure is None:
            raise
        raise GroupwiseError(
            f"expected to write {target}, got {failure}: make room, or choose a folder that you "
            "can write; what was there before stays"
        ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _rename_whole(partial: Path, target: Path) -> None:
    """Wait until the files are on the disk and give their folder its name."""
    for path in partial.rglob("*"):
        if path.is_file():
            with path.open("r+b") as file:
                os.fsync(file.fileno())
    _sync(partial)
    retired = target.parent / f".{target.name}.retired-{os.getpid()}"
    if target.exists():
        target.rename(retired)
    partial.rename(target)
    shutil.rmtree(retired, ignore_errors=True)
    _sync(target.parent)


def _failed_write(error: Exception) -> str | None:
    """Return the system's message where a write failed, else None.

    Safetensors and tokenizers have no OSError for it.
    """
    if isinstance(error, OSError):
        return first_line(error)
    message, mark, _ = str(error).partition(" (os error ")
    return message.rpartition(":")[2].strip() if mark else None


def _sync(folder: Path) -> None:
    """Wait until the names in a folder are on the disk, where a folder can be opened."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _loading(expected: str, advice: str, *raised: type[Exception]) -> AbstractContextManager[None]:
    """Turn what is raised in the block into one sentence on a checkpoint."""
    return one_sentence(expected, advice, raised=raised, kind=UnreadableCheckpointError)


def write_json(path: Path, content: JsonView) -> None:
    """Write one JSON file."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")


def read_json(path: Path) -> JsonObject:
    """Read one JSON object."""
    with _loading(
        f"a checkpoint with {path}", "give the folder of one", OSError, ValueError, RecursionError
    ):
        content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise UnreadableCheckpointError(
            f"expected an object in {path}, got {type(content).__name__}: give the folder of a "
            "checkpoint"
        )
    return content


def policy_vocabulary(folder: Path) -> Vocabulary | None:
    """Return the vocabulary of a policy of ours, or None where the folder holds something else."""
    try:
        configuration = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if (
            configuration.get("model_type") != "gpt2"
            or not 0 < int(configuration.get("vocab_size", 0)) <= _MOST_SYMBOLS
        ):
            return None
        numbers = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"][
            "vocab"
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return next(
        (family.vocabulary for family in TASKS if numbers == _numbers(family.vocabulary)), None
    )
