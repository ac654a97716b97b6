"""A causal language model or LoRA adapter from disk, and texts as its tokens.

Only safetensors and GGUF files are read, nothing is fetched and no code of the folder is run.
Prompt and completion are encoded apart and joined, so that the boundary between them is exact.
"""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from groupwise.errors import GroupwiseError, InvalidArgumentError, check_installed, one_sentence
from groupwise.parsing import JsonObject, parse_json
from groupwise.plain import frozen
from groupwise.prompts import Prompt, prompt_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

Precision = Literal["float32", "float64", "bfloat16", "float16"]
BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
# bytes of a weight that AdamW trains: value, gradient and two moments, each in float32
TRAINED = 16
_FLOATS = ("F64", "F32", "F16", "BF16")  # as safetensors names them
_MAGIC = b"GGUF"
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")  # of a configuration
_LONGEST_HEADER = 100_000_000  # bytes, of a safetensors file; its format allows no more


class UnreadableModelError(GroupwiseError):
    """No language model can be made of this folder."""


@frozen
class LanguageModel:
    """A model with its tokenizer."""

    model: Module  # in evaluation mode; of an adapter only its own weights require a gradient
    tokenizer: Any  # of the model's folder; that of the base model where an adapter has none
    adapter: bool  # whether it is a base model with a LoRA adapter
    context: int | None  # longest sequence, in tokens; None where the configuration does not say


@frozen
class PolicyTokenizer:
    """What of a language model makes tokens of texts: its weights stay on disk."""

    tokenizer: Any  # of the model's folder; that of the base model where an adapter has none
    context: int | None  # longest sequence, in tokens; None where the configuration does not say


def models_home() -> Path:
    """Return where fetched models are kept."""
    return Path(os.environ.get("GROUPWISE_MODELS") or "~/.cache/groupwise/models").expanduser()


def model_folder(path: str | Path) -> Path:
    """Return the folder of a model, of a GGUF file, or of the model fetched by that name."""
    path = Path(path)
    if path.suffix == ".gguf" and path.is_file():
        return path.parent
    return (
        models_home() / path
        if len(path.parts) == 1 and not path.exists() and (models_home() / path).is_dir()
        else path
    )


def load_reader(folder: str | Path, *, base: str | Path | None = None) -> PolicyTokenizer:
    """Load the tokenizer and the configuration that `load_language_model` would."""
    folder, under, _, gguf = _checked(model_folder(folder), base)
    from transformers import AutoConfig

    kind = {} if gguf is None else {"gguf_file": gguf}
    with loading(f"the configuration in {under}"):
        configuration = AutoConfig.from_pretrained(
            str(under), local_files_only=True, trust_remote_code=False, **kind
        )
    return PolicyTokenizer(_loaded_tokenizer([folder, under], gguf), _context(configuration))


def load_language_model(
    folder: str | Path,
    *,
    base: str | Path | None = None,
    device: str = "cpu",
    precision: Precision = "float32",
    trained: int = 0,
) -> LanguageModel:
    """Load a Hugging Face causal language model or a LoRA adapter with its base model from disk.

    The folder holds safetensors, or one GGUF file, which is turned into weights of the precision
    asked for. `trained` is the bytes that each weight takes where all are to be trained: what does
    not fit is refused before it is loaded. The device `auto` lays its layers one after another on
    all GPUs that this process sees.
    """
    folder, under, adapter, gguf = _checked(model_folder(folder), base)
    whole = bool(trained) and not adapter
    needed = (trained if whole else BYTES[precision]) * parameters_of(under, gguf)
    check_memory(str(gguf or under), needed, available=free_memory(device), trained=whole)
    if device == "auto":
        check_installed("accelerate", what="a model on several devices")
    tokenizer = _loaded_tokenizer([folder, under], gguf)
    model = _loaded_model(under, folder if adapter else None, precision, gguf, device)
    model = model if device == "auto" else model.to(device)
    return LanguageModel(model.eval(), tokenizer, adapter, _context(getattr(model, "config", None)))


def _checked(folder: Path, base: str | Path | None) -> tuple[Path, Path, bool, str | None]:
    """Check a model; return its folder, its base's, whether it is an adapter, its GGUF file."""
    if not folder.is_dir():
        raise UnreadableModelError(
            f"expected a folder with a language model, got {folder}, which is none: give the path "
            "of a checkpoint on disk"
        )
    adapter = (folder / "adapter_config.json").is_file()
    if base is not None and not adapter:
        raise UnreadableModelError(
            f"expected a LoRA adapter in {folder} to put on {base}, got no adapter_config.json "
            "there: give the folder of the adapter"
        )
    under = Path(base) if base is not None else _base_of(folder) if adapter else folder
    gguf = _gguf_of(under)
    if gguf is None:
        _check_weights(under, "model")
        _check_layers(under)
    if adapter:
        _check_weights(folder, "adapter")
    needed = "peft" if adapter else "gguf" if gguf is not None else "transformers"
    check_installed("torch", "safetensors", "transformers", needed)
    return folder, under, adapter, gguf


def tokens_of(
    reader: PolicyTokenizer | LanguageModel,
    prompts: Iterable[Prompt],
    completions: Sequence[str],
    *,
    ends: Sequence[int | None],
    read: Iterable[float | None] = (),
) -> tuple[list[list[int]], list[list[int]]]:
    """Return the tokens of prompts and of completions, with the token that ended each.

    The texts are encoded anew: where the sampler's tokens are not those that the tokenizer makes of
    its text, the score is of the latter. Refused are completions of several messages, and prompts
    of more or fewer tokens than the model is said to have read.
    """
    tokenizer = reader.tokenizer
    with one_sentence(
        "prompts and completions that the model's tokenizer can encode",
        "give the model that sampled them",
        raised=Exception,  # the libraries raise a kind of their own
        kind=InvalidArgumentError,
    ):
        before = [prompt_ids(tokenizer, prompt) for prompt in prompts]
        after: list[list[int]] = [
            tokenizer.encode(text, add_special_tokens=False) for text in completions
        ]
    turns = sum(prompt_of(text) is not text for text in completions)
    other = sum(length not in (None, len(ids)) for length, ids in zip(read, before, strict=False))
    if turns or other:
        raise InvalidArgumentError(
            "expected prompts as long as the model read them and completions of one message, got "
            f"{other:,} other prompts and {turns:,} completions of several messages: give a run "
            "without tools, settings of the chat template or truncated prompts"
        )
    return before, [
        ids if end is None else [*ids, end] for ids, end in zip(after, ends, strict=True)
    ]


def end_of(reader: PolicyTokenizer | LanguageModel) -> int:
    """Return the end-of-sequence token."""
    if reader.tokenizer.eos_token_id is None:
        raise InvalidArgumentError(
            "expected a tokenizer with an end-of-sequence token, got one without: complete the "
            "tokenizer's configuration"
        )
    return int(reader.tokenizer.eos_token_id)


def batch_of(
    language_model: LanguageModel, before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]
) -> dict[str, Tensor]:
    """Return prompts and completions as a batch for `score_gram`, padded on the right."""
    import torch

    for number, prompt in enumerate(before):
        if not prompt:
            raise InvalidArgumentError(
                f"expected at least one token of prompt, got none in rollout {number}: leave its "
                "group out"
            )
    longest = max(
        2,
        *(len(prompt) + len(completion) for prompt, completion in zip(before, after, strict=True)),
    )
    batch = torch.zeros(3, len(before), longest, dtype=torch.long)
    ids, attention, mask = batch
    for row, (prompt, completion) in enumerate(zip(before, after, strict=True)):
        stop = len(prompt) + len(completion)
        ids[row, :stop] = torch.tensor([*prompt, *completion])
        attention[row, :stop] = mask[row, len(prompt) : stop] = 1
    names = ("input_ids", "attention_mask", "completion_mask")
    device = next(language_model.model.parameters()).device
    return dict(zip(names, batch.to(device), strict=True))


def _base_of(folder: Path) -> Path:
    """Return the folder of an adapter's base model."""
    named = _json(folder / "adapter_config.json").get("base_model_name_or_path")
    for candidate in (Path(str(named)), folder / str(named)):
        if named and candidate.is_dir():
            return candidate
    raise UnreadableModelError(
        f"expected the base model of {folder} as a folder on disk, got {named!r}: write its path "
        "as base_model_name_or_path"
    )


def _json(path: Path) -> JsonObject:
    """Return the object of a JSON file."""
    again = "copy the checkpoint again"
    with one_sentence(
        f"JSON in {path}", again, raised=(OSError, ValueError), kind=UnreadableModelError
    ):
        value = parse_json(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise UnreadableModelError(
            f"expected a JSON object in {path}, got {type(value).__name__}: {again}"
        )
    return value


def _gguf_of(folder: Path) -> str | None:
    """Return the GGUF file of a folder without a configuration; None where there is none."""
    files = [] if (folder / "config.json").is_file() else sorted(folder.glob("*.gguf"))
    if len(files) > 1:
        raise UnreadableModelError(
            f"expected one GGUF file in {folder}, got {len(files)}: join its parts, or keep one"
        )
    return files[0].name if files else None


def _check_layers(folder: Path) -> None:
    """Refuse more layers than weights, before a configuration lays them out."""
    about = _json(folder / "config.json")
    most = len(shapes_in(folder))
    layers = [about[key] for key in _LAYERS if isinstance(about.get(key), int)]
    if layers and max(layers) > most:
        raise UnreadableModelError(
            f"expected at most {most:,} layers, as many as the weights in {folder}, got "
            f"{max(layers):,} by its configuration: copy the checkpoint again"
        )


def parameters_of(folder: Path, gguf: str | None) -> int:
    """Return the number of weights by the headers of their files."""
    if gguf is not None:
        return sum(math.prod(map(int, tensor.shape)) for tensor in open_gguf(folder / gguf).tensors)
    return sum(map(math.prod, shapes_in(folder).values()))


def shapes_in(folder: Path) -> dict[str, list[int]]:
    """Return the shapes of the weights of a folder by the headers of its safetensors files."""
    return {
        name: shape
        for path in sorted(folder.glob("*.safetensors"))
        for name, shape in _header_of(path).items()
    }


def _header_of(path: Path) -> dict[str, list[int]]:
    """Return the shapes in a safetensors file by its header, without mapping the file."""
    with loading(f"the model in {path.parent}"), path.open("rb") as file:
        header = parse_json(file.read(min(int.from_bytes(file.read(8), "little"), _LONGEST_HEADER)))
        tensors = {name: tensor for name, tensor in header.items() if name != "__metadata__"}
        for name, tensor in tensors.items():
            if "weight" in name and tensor["dtype"] not in _FLOATS:
                raise _quantised(path.parent, f"{name[:80]} in {str(tensor['dtype'])[:20]}")
        return {name: list(map(int, tensor["shape"])) for name, tensor in tensors.items()}


def _quantised(folder: Path, got: str) -> UnreadableModelError:
    """Return what is said of weights that nothing can be learnt by."""
    return UnreadableModelError(
        f"expected weights in floating point in {folder}, got {got}: give the model as it was "
        "before quantisation"
    )


def open_gguf(path: Path) -> Any:
    """Open a GGUF file by its header; the weights stay on disk."""
    with (
        one_sentence(f"a GGUF file at {path}", "give the path of one", kind=UnreadableModelError),
        path.open("rb") as file,
    ):
        magic = file.read(len(_MAGIC))
    if magic != _MAGIC:
        raise UnreadableModelError(
            f"expected a GGUF file at {path}, got one that begins with {magic!r}: fetch it again"
        )
    check_installed("gguf")
    from gguf import GGUFReader

    with one_sentence(
        f"the header of a GGUF file in {path}",
        "fetch it again",
        raised=Exception,
        kind=UnreadableModelError,
    ):
        reader = GGUFReader(str(path))
    if not reader.tensors:
        raise UnreadableModelError(
            f"expected the tensors of a model in {path}, got none: fetch it again"
        )
    return reader


def check_memory(name: str, needed: int, *, available: float, trained: bool = False) -> None:
    """Refuse a model whose weights take more memory than is free."""
    if needed > available:
        what, instead = (
            (" to train all of them", "--lora 16") if trained else ("", "a lower precision")
        )
        raise InvalidArgumentError(
            f"expected a model that takes at most the {available / 1e9:.1f} GB of memory here, got "
            f"{name}, whose weights take {needed / 1e9:.1f} GB{what}: take a smaller model, "
            f"{instead} or a larger machine"
        )


def free_memory(device: str) -> float:
    """Return the bytes that are free on a device; infinity where nobody knows."""
    import torch

    if device.startswith("cuda"):
        return float(torch.cuda.mem_get_info(device)[0])
    if device == "auto" and torch.cuda.is_available():
        return float(
            sum(torch.cuda.mem_get_info(number)[0] for number in range(torch.cuda.device_count()))
        )
    try:
        import psutil
    except ImportError:
        return math.inf
    return float(psutil.virtual_memory().available)


def _check_weights(folder: Path, kind: str) -> None:
    """Refuse folders without configuration, and weights that could run code when they are read."""
    configuration = "config.json" if kind == "model" else "adapter_config.json"
    if not (folder / configuration).is_file():
        raise UnreadableModelError(
            f"expected {configuration} in {folder}, got none: give the folder that save_pretrained "
            "wrote"
        )
    about = _json(folder / configuration)
    if "auto_map" in about:
        raise UnreadableModelError(
            "expected an architecture that transformers has, got one with code of its own in "
            f"{folder}: code of a checkpoint is never run"
        )
    named = [
        str(about[key]) for key in about if "attn_implementation" in key and "/" in str(about[key])
    ]
    if named:
        raise UnreadableModelError(
            f"expected an attention of transformers in {folder}, got {named[0][:60]!r}: code for "
            "it is never fetched"
        )
    quantised = about.get("quantization_config")
    if isinstance(quantised, dict):
        raise _quantised(folder, f"them quantised by {str(quantised.get('quant_method'))[:40]}")
    if any(folder.glob("*.safetensors" if kind == "model" else "adapter_model.safetensors")):
        return
    pickled = sorted(
        path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern)
    )
    came = f"only {pickled[0]}, which may run code when read" if pickled else "no weights"
    raise UnreadableModelError(
        f"expected *.safetensors in {folder}, got {came}: save with safe_serialization=True"
    )


@contextmanager
def loading(what: str) -> Iterator[None]:
    """Turn what a library raises into one line, and keep its warnings off the terminal."""
    import warnings

    # The libraries raise a dozen kinds for a broken folder.
    sentence = one_sentence(
        f"to load {what}", "copy the checkpoint again", raised=Exception, kind=UnreadableModelError
    )
    with sentence, quiet_transformers(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep the progress bars and reports of transformers off the terminal."""
    from transformers.utils import logging

    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _loaded_model(
    base: Path, adapter: Path | None, precision: Precision, gguf: str | None, device: str
) -> Module:
    """Return the model, with the adapter on it where there is one."""
    import torch
    from transformers import AutoModelForCausalLM

    kind: JsonObject = {"use_safetensors": True} if gguf is None else {"gguf_file": gguf}
    kind |= {"device_map": "auto"} if device == "auto" else {}
    # The bar of turning a GGUF file into weights obeys no setting.
    with (
        loading(f"the model in {base}"),
        redirect_stderr(sys.stderr if gguf is None else io.StringIO()),
    ):
        if gguf is None:
            kind["attn_implementation"] = _attention_of(base)
        loader: Any = AutoModelForCausalLM
        model, loaded = loader.from_pretrained(
            str(base),
            dtype=getattr(torch, precision),
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            **kind,
        )
    broken = [name for name, weight in model.named_parameters() if not weight.isfinite().all()]
    for problem, names in (
        ("is missing", loaded["missing_keys"]),
        ("has no place in the model", loaded["unexpected_keys"]),
        ("is not finite", broken),
    ):
        if names:
            raise UnreadableModelError(
                f"expected the weights of {type(model).__name__} in {base}, got a checkpoint in "
                f"which {min(names)[:80]} {problem} ({len(names)} such): copy the checkpoint again"
            )
    if gguf is not None:
        _forget_quantisation(model)
    left = set(map(str, getattr(model, "hf_device_map", {}).values())) & (
        {"cpu", "disk"} if torch.cuda.is_available() else {"disk"}
    )
    if left:
        raise InvalidArgumentError(
            f"expected GPUs that hold {base}, got {torch.cuda.device_count()}, and some layers "
            f"are left to the {left.pop()}: give each worker more GPUs"
        )
    if adapter is None:
        result: Module = model
        return result
    from peft import PeftModel

    with loading(f"the adapter in {adapter}"):
        adapted: Module = PeftModel.from_pretrained(
            model, str(adapter), is_trainable=True, use_safetensors=True, local_files_only=True
        )
    return adapted.to(getattr(torch, precision))


def _attention_of(folder: Path) -> str:
    """Return the attention to use; refuse weights of other shapes than the configuration's.

    The model is built without allocating weights, so that a hostile configuration cannot exhaust
    memory.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    configuration = AutoConfig.from_pretrained(
        str(folder), local_files_only=True, trust_remote_code=False
    )
    maker: Any = AutoModelForCausalLM
    with torch.device("meta"):
        try:
            attention, model = "sdpa", maker.from_config(configuration, attn_implementation="sdpa")
        except ValueError:  # an architecture without it
            attention, model = (
                "eager",
                maker.from_config(configuration, attn_implementation="eager"),
            )
    wanted = {name: list(weight.shape) for name, weight in model.state_dict().items()}
    for name, shape in shapes_in(folder).items():
        if wanted.get(name, shape) != shape:
            expected = (
                f"expected {name[:80]} of shape {wanted[name]} by the configuration in {folder}"
            )
            raise UnreadableModelError(f"{expected}, got {shape}: copy the checkpoint again")
    return attention


def _forget_quantisation(model: Any) -> None:
    """Let a model whose weights were quantised in its file be saved as what it is now."""
    for configuration in (model.config, model.config.get_text_config()):
        if hasattr(configuration, "quantization_config"):
            del configuration.quantization_config
    model.hf_quantizer, model.is_quantized = None, False


def _loaded_tokenizer(folders: Sequence[Path], gguf: str | None) -> Any:
    """Return the tokenizer of the first folder that has one."""
    from transformers import AutoTokenizer

    holding = [
        folder for folder in folders if any((folder / name).is_file() for name in _TOKENIZERS)
    ]
    if not holding and gguf is None:
        raise UnreadableModelError(
            f"expected a tokenizer in {folders[0]}, got none: copy tokenizer.json and "
            "tokenizer_config.json there"
        )
    folder = holding[0] if holding else folders[-1]
    kind = {} if holding else {"gguf_file": gguf}
    with loading(f"the tokenizer in {folder if holding else folder / str(gguf)}"):
        return AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False, **kind
        )


def _context(configuration: Any) -> int | None:
    """Return the longest sequence that a configuration allows."""
    for name in ("max_position_embeddings", "n_positions", "max_sequence_length"):
        length = getattr(configuration, name, None)
        if isinstance(length, int) and length > 0:
            return length
    return None


def head_alone(model: Any) -> str:
    """Give a model an output head with weights of its own, and return their name.

    Scores of the head alone cost forward passes: nothing is differentiated through the layers
    below.
    """
    import torch

    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    head = base.get_output_embeddings() if hasattr(base, "get_output_embeddings") else base.head
    head.weight = torch.nn.Parameter(head.weight.detach().clone())
    return next(
        str(name) for name, parameter in model.named_parameters() if parameter is head.weight
    )


def prompt_ids(tokenizer: Any, prompt: Prompt) -> list[int]:
    """Return the tokens of a prompt; messages go through the chat template."""
    prompt = prompt_of(prompt)
    if isinstance(prompt, str):
        ids: list[int] = tokenizer.encode(prompt, add_special_tokens=True)
    elif tokenizer.chat_template is None:
        raise InvalidArgumentError(
            "expected a tokenizer with a chat template for prompts of messages, got one without: "
            "give texts"
        )
    else:
        ids = tokenizer.apply_chat_template(
            list(prompt), add_generation_prompt=True, tokenize=True, return_dict=True
        )["input_ids"]
    return ids
