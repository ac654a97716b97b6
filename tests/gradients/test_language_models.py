"""Language models from disk: scores of tiny random checkpoints against autograd, where the
prompt ends, and what is refused.
"""

from __future__ import annotations

import json
import logging
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import each_case

from groupwise.errors import GroupwiseError, InvalidArgumentError
from groupwise.gradients import language_models
from groupwise.gradients.language_models import (
    UnreadableModelError,
    batch_of,
    end_of,
    head_alone,
    load_language_model,
    load_reader,
    model_folder,
    models_home,
    parameters_of,
    tokens_of,
)

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from safetensors.torch import load_file, save_file  # noqa: E402

from groupwise.gradients.scores import score_gram, score_sketch  # noqa: E402

SYMBOLS = ["<pad>", "<eos>", "<bos>", *"0123456789+=ab"]
PROMPTS, COMPLETIONS = ["1+2=", "3+44=", "9=", "1+2="], ["3", "47a", "9bb0", "12"]
TINY = {"vocab_size": len(SYMBOLS), "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
NARROW = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 24,
}


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with torch.random.fork_rng():
        torch.manual_seed(11)
        yield


def tokenizer() -> Any:
    """One token a symbol, made in code."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    made = Tokenizer(
        models.WordLevel(
            {symbol: number for number, symbol in enumerate(SYMBOLS)}, unk_token="<pad>"
        )
    )
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.decoder = decoders.Fuse()
    made.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", 2)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<pad>",
        eos_token="<eos>",
        bos_token="<bos>",
        padding_side="left",
    )


def config(kind: str) -> Any:
    if kind == "gpt2":
        return transformers.GPT2Config(**TINY, n_embd=16, n_layer=2, n_head=2, n_positions=24)
    if kind == "llama":
        return transformers.LlamaConfig(
            **TINY, **NARROW, attention_bias=True, mlp_bias=True, tie_word_embeddings=False
        )
    return transformers.Qwen3Config(
        **TINY, **NARROW, num_key_value_heads=1, head_dim=8, tie_word_embeddings=True
    )


def checkpoint(folder: Path, kind: str = "qwen3", *, tokens: bool = True) -> Path:
    """A random model on disk, as save_pretrained leaves it."""
    model = transformers.AutoModelForCausalLM.from_config(config(kind))
    with torch.no_grad():
        for (
            parameter
        ) in model.parameters():  # far from the start, where biases are zero and norms are one
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    if tokens:
        tokenizer().save_pretrained(folder)
    return folder


def adapter(folder: Path, base: Path) -> Path:
    """A LoRA adapter on disk."""
    peft = pytest.importorskip("peft")
    model = transformers.AutoModelForCausalLM.from_pretrained(base, local_files_only=True)
    lora = peft.LoraConfig(
        r=3,
        lora_alpha=6,
        target_modules=["q_proj", "down_proj"],
        init_lora_weights=False,
        lora_dropout=0.1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", FutureWarning
        )  # peft asks transformers in a way that is on its way out
        peft.get_peft_model(model, lora).save_pretrained(folder)
    return folder


def by_hand(loaded: Any, *, ended: bool = True, temperature: float = 1.0) -> np.ndarray:
    """The judge: ids written down symbol by symbol, a forward pass a rollout without padding,
    autograd.
    """
    wanted = [p for p in loaded.model.parameters() if p.requires_grad]
    rows = []
    for prompt, completion in zip(PROMPTS, COMPLETIONS, strict=True):
        before = [2, *(SYMBOLS.index(c) for c in prompt)]
        ids = torch.tensor(
            [*before, *(SYMBOLS.index(c) for c in completion), *([1] if ended else [])]
        )
        log_prob = (loaded.model(input_ids=ids[None]).logits[0] / temperature).log_softmax(-1)
        total = sum(log_prob[t - 1, ids[t]] for t in range(len(before), len(ids)))
        gradients = torch.autograd.grad(total, wanted, allow_unused=True)
        rows.append(
            torch.cat(
                [
                    (torch.zeros_like(p) if g is None else g).flatten()
                    for p, g in zip(wanted, gradients, strict=True)
                ]
            )
        )
    score = torch.stack(rows)
    return np.asarray((score @ score.T).numpy())


def ends(loaded: Any, ended: list[bool]) -> list[int | None]:
    """The tokens that end completions."""
    return [end_of(loaded) if end else None for end in ended]


def encoded(
    loaded: Any,
    prompts: Any = PROMPTS,
    completions: list[str] = COMPLETIONS,
    *,
    ended: list[bool] | None = None,
) -> Any:
    """The batch of prompts and completions, which ended unless it is said otherwise."""
    return batch_of(
        loaded,
        *tokens_of(loaded, prompts, completions, ends=ends(loaded, ended or [True] * len(prompts))),
    )


@each_case("kind", ["qwen3", "llama", "gpt2"])
@each_case("method", ["auto", "loop"])
def test_scores_of_a_checkpoint_are_exact(tmp_path: Path, kind: str, method: str) -> None:
    loaded = load_language_model(checkpoint(tmp_path / "model", kind), precision="float64")
    truth = by_hand(loaded, temperature=0.8)
    gram = score_gram(loaded.model, encoded(loaded), temperature=0.8, method=method)  # type: ignore[arg-type]
    assert np.abs(gram.gram_NN - truth).max() < 1e-10 * truth.max()
    assert gram.source.method == method.replace("auto", "hooks")
    assert gram.source.coordinates == sum(p.numel() for p in loaded.model.parameters())


@pytest.mark.parametrize("method", ["auto", "loop"])
def test_scores_of_an_adapter_are_those_of_its_own_weights(tmp_path: Path, method: str) -> None:
    base = checkpoint(tmp_path / "base", tokens=False)
    tokenizer().save_pretrained(adapter(tmp_path / "adapter", base))
    loaded = load_language_model(tmp_path / "adapter", precision="float64")
    assert loaded.adapter
    truth = by_hand(loaded)
    gram = score_gram(loaded.model, encoded(loaded), method=method)  # type: ignore[arg-type]
    assert np.abs(gram.gram_NN - truth).max() < 1e-10 * truth.max()
    assert all("lora_" in name for name in gram.source.parameters)
    assert gram.source.method == method.replace("auto", "hooks")
    assert len(gram.source.parameters) == 8  # two matrices for two layers of two blocks
    adapter_gram = score_gram(loaded.model, encoded(loaded), parameters="*layers.1*lora_A*")
    assert len(adapter_gram.source.parameters) == 2


def test_single_precision_and_padding_on_either_side(tmp_path: Path) -> None:
    """GPT-2 counts positions from the first column, so that padding on the left would move them."""
    loaded = load_language_model(checkpoint(tmp_path / "model", "gpt2"))
    batch = encoded(loaded)
    right = score_gram(loaded.model, batch).gram_NN
    longest = batch["input_ids"].shape[1]
    shifts = longest - batch["attention_mask"].sum(1)
    left = {
        name: torch.stack([row.roll(int(by)) for row, by in zip(item, shifts, strict=True)])
        for name, item in batch.items()
    }
    np.testing.assert_allclose(score_gram(loaded.model, left).gram_NN, right, rtol=1e-12)
    np.testing.assert_allclose(
        score_gram(loaded.model.double(), batch).gram_NN, right, atol=1e-4 * right.max()
    )
    sketch = score_sketch(loaded.model, left, width=1 << 18, micro_batch=2).sketch_NK
    np.testing.assert_allclose(sketch @ sketch.T, right, atol=0.05 * right.max())


def test_the_boundary_is_where_the_prompt_ends(tmp_path: Path) -> None:
    loaded = load_language_model(checkpoint(tmp_path / "model"))
    batch = encoded(loaded)
    assert loaded.tokenizer.decode(batch["input_ids"][1]) == "<bos>3+44=47a<eos>"
    assert batch["completion_mask"][1].tolist() == [0] * 6 + [1] * 4
    assert batch["attention_mask"].sum(1).tolist() == [7, 10, 8, 8]
    cut_off = encoded(loaded, ended=[True, False, False, True])
    assert cut_off["completion_mask"].sum(1).tolist() == [2, 3, 4, 3]
    assert cut_off["attention_mask"].sum(1).tolist() == [7, 9, 7, 8]
    numbers = batch_of(loaded, [[2, 5]], [[7, 8, 1]])
    assert numbers["input_ids"].tolist() == [[2, 5, 7, 8, 1]]
    assert numbers["completion_mask"].tolist() == [[0, 0, 1, 1, 1]]


def test_messages_go_through_the_chat_template(tmp_path: Path) -> None:
    loaded = load_language_model(checkpoint(tmp_path / "model"))
    talk = [{"role": "user", "content": "1+2="}]
    with pytest.raises(InvalidArgumentError, match="chat template"):
        encoded(loaded, [talk], ["3"])
    loaded.tokenizer.chat_template = (
        "{% for m in messages %}a{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}b{% "
        "endif %}"
    )
    for asked in (talk, json.dumps(talk)):
        batch = encoded(loaded, [asked], ["3"])
        assert loaded.tokenizer.decode(batch["input_ids"][0]) == "a1+2=b3<eos>"
        assert batch["completion_mask"][0].tolist() == [0] * 6 + [1] * 2


def test_what_the_model_did_not_read_so_is_refused(tmp_path: Path) -> None:
    loaded = load_language_model(checkpoint(tmp_path / "model"))
    before, _ = tokens_of(loaded, ["1+2=", "9="], ["3", ""], ends=[None, 1], read=[None, 3.0])
    assert list(map(len, before)) == [5, 3]
    with pytest.raises(InvalidArgumentError, match="got 1 other prompts and 0 completions of"):
        tokens_of(loaded, ["1+2=", "9="], ["3", ""], ends=[None, 1], read=[5.0, 4.0])
    turns = json.dumps([{"role": "assistant", "content": "3"}, {"role": "tool", "content": "4"}])
    with pytest.raises(InvalidArgumentError, match="got 0 other prompts and 1 completions of sev"):
        tokens_of(loaded, PROMPTS[:2], ["3", turns], ends=[None, None])


def test_texts_that_do_not_fit(tmp_path: Path) -> None:
    loaded = load_language_model(checkpoint(tmp_path / "model"))
    assert loaded.context == 24
    with pytest.raises(
        InvalidArgumentError, match="at least one token of prompt, got none in rollout 0"
    ):
        batch_of(loaded, [[]], [[3]])
    loaded.tokenizer.eos_token = None
    with pytest.raises(InvalidArgumentError, match="end-of-sequence token, got one without"):
        encoded(loaded, ["1"], ["1"])


def test_folders_that_are_no_model(tmp_path: Path) -> None:
    good = checkpoint(tmp_path / "good")

    def refused(message: str, folder: Path) -> None:
        with pytest.raises(UnreadableModelError, match=message) as caught:
            load_language_model(folder)
        assert "\n" not in str(caught.value)

    def changed(name: str) -> Path:
        return Path(shutil.copytree(good, tmp_path / name))

    refused("which is none", tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    refused("expected config.json in .*empty, got none", tmp_path / "empty")
    pickled = changed("pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    refused(
        "got only pytorch_model.bin, which may run code when read: save with "
        "safe_serialization=True",
        pickled,
    )
    (pickled / "pytorch_model.bin").unlink()
    refused("got no weights", pickled)
    code = changed("code")
    (code / "config.json").write_text(
        json.dumps({"auto_map": {"AutoModelForCausalLM": "mine.Model"}})
    )
    refused("code of a checkpoint is never run", code)
    (code / "config.json").write_text("{")
    refused("expected JSON in .*config.json, got Expecting", code)
    silent = changed("silent")
    for path in silent.glob("*token*"):
        path.unlink()
    refused("expected a tokenizer in .*silent, got none", silent)
    short = changed("short")
    (short / "model.safetensors").write_bytes(b"not weights")
    refused("expected to load the model in .*short, got ", short)


def test_an_adapter_needs_its_base_on_disk(tmp_path: Path) -> None:
    base = checkpoint(tmp_path / "base")
    folder = adapter(tmp_path / "adapter", base)
    settings = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(
        json.dumps(settings | {"base_model_name_or_path": "someone/model"})
    )
    with pytest.raises(
        UnreadableModelError,
        match=r"expected the base model of .* as a folder on disk, got 'someone/model'",
    ):
        load_language_model(folder)


def test_the_extra_is_named_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    folder = checkpoint(tmp_path / "model")
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "transformers" else there(name, *rest),
    )
    with pytest.raises(
        GroupwiseError,
        match=r"^expected transformers to be installed for .*: pip install transformers$",
    ):
        load_language_model(folder)


def gguf_folder(folder: Path) -> Path:
    """A random llama of one block in single precision, as llama.cpp's converter lays it down,
    with a tokenizer of one merge.
    """
    gguf = pytest.importorskip("gguf")
    folder.mkdir()
    writer = gguf.GGUFWriter(str(folder / "tiny.gguf"), "llama")
    for name, value in {
        "block_count": 1,
        "context_length": 64,
        "embedding_length": 16,
        "feed_forward_length": 24,
        "head_count": 2,
        "head_count_kv": 1,
        "layer_norm_rms_eps": 1e-5,
        "rope_dimension_count": 8,
        "vocab_size": 20,
        "tokenizer_model": "gpt2",
        "eos_token_id": 1,
        "token_list": ["<pad>", "<end>", *"0123456789+-*/()=", "12"],
        "token_merges": ["1 2"],
        "token_types": [3, 3] + [1] * 18,
        "pad_token_id": 0,
        "bos_token_id": 1,
    }.items():
        getattr(writer, f"add_{name}")(value)
    draw = np.random.default_rng(0)
    matrices = {
        "attn_q": (16, 16),
        "attn_k": (8, 16),
        "attn_v": (8, 16),
        "attn_output": (16, 16),
        "ffn_gate": (24, 16),
        "ffn_up": (24, 16),
    }
    shapes: dict[str, tuple[int, ...]] = {
        f"blk.0.{name}": shape for name, shape in matrices.items()
    }
    shapes |= {
        "token_embd": (20, 16),
        "blk.0.ffn_down": (16, 24),
        "blk.0.attn_norm": (16,),
        "blk.0.ffn_norm": (16,),
        "output_norm": (16,),
    }
    for name, shape in shapes.items():
        writer.add_tensor(f"{name}.weight", (0.3 * draw.standard_normal(shape)).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder


def test_a_folder_with_a_gguf_file_opens_and_is_saved_as_what_it_is_now(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from groupwise_lab.trainer.language_policy import LanguagePolicy

    opened: Any = load_language_model(gguf_folder(tmp_path / "gguf"))
    assert capfd.readouterr().err == ""
    assert (opened.context, opened.tokenizer.eos_token_id) == (64, 1)
    assert opened.tokenizer.encode("12+3=") == [19, 12, 5, 18]
    embedding, gate = (
        opened.model.get_input_embeddings().weight.detach(),
        opened.model.model.layers[0].mlp.gate_proj.weight.detach(),
    )
    draw = np.random.default_rng(0)
    by_hand = [
        0.3 * draw.standard_normal(shape)
        for shape in ((16, 16), (8, 16), (8, 16), (16, 16), (24, 16), (24, 16), (20, 16))
    ]
    np.testing.assert_allclose(gate, by_hand[4], rtol=1e-6)
    np.testing.assert_allclose(embedding, by_hand[6], rtol=1e-6)
    (tmp_path / "saved").mkdir()
    LanguagePolicy(opened).save(tmp_path / "saved")
    again, ids = load_language_model(tmp_path / "saved"), torch.arange(2, 9)[None]
    assert torch.equal(again.model(ids).logits, opened.model(ids).logits)
    assert again.tokenizer.encode("12+3=") == [19, 12, 5, 18]
    (tmp_path / "gguf" / "other.gguf").write_bytes((tmp_path / "gguf" / "tiny.gguf").read_bytes())
    with pytest.raises(
        UnreadableModelError,
        match=r"expected one GGUF file in .*, got 2: join its parts, or keep one",
    ):
        load_language_model(tmp_path / "gguf")


def test_a_model_is_found_by_its_file_or_by_the_name_that_it_was_fetched_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GROUPWISE_MODELS", raising=False)
    assert models_home() == Path.home() / ".cache" / "groupwise" / "models"
    monkeypatch.setenv("GROUPWISE_MODELS", str(tmp_path / "home"))
    checkpoint(tmp_path / "home" / "small")
    (tmp_path / "here" / "other").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert load_reader("small").context == load_reader(tmp_path / "home" / "small").context
    assert model_folder("small") == tmp_path / "home" / "small"
    assert model_folder("other") == Path("other")  # one that is here comes first
    (tmp_path / "home" / "other").mkdir()
    assert model_folder("other") == Path("other")
    assert model_folder("a/small") == Path("a/small")
    (tmp_path / "here" / "one.gguf").write_bytes(b"GGUF")
    assert model_folder("one.gguf") == Path()
    with pytest.raises(
        UnreadableModelError,
        match="expected a folder with a language model, got neither, which is none",
    ):
        load_reader("neither")


def test_what_cannot_be_trained_or_held_is_refused_before_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoint(tmp_path / "model", "llama")
    assert parameters_of(folder, None) == sum(
        parameter.numel() for parameter in load_language_model(folder).model.parameters()
    )
    monkeypatch.setattr(
        language_models, "free_memory", lambda _device: 4 * parameters_of(folder, None) - 1
    )
    load_language_model(folder, precision="bfloat16")
    with pytest.raises(
        InvalidArgumentError,
        match=r"of memory here, got .*model, whose weights take 0\.0 GB: take a smaller model",
    ):
        load_language_model(folder)
    monkeypatch.setattr(
        language_models, "free_memory", lambda _device: 16 * parameters_of(folder, None) - 1
    )
    with pytest.raises(
        InvalidArgumentError,
        match=r"weights take 0\.0 GB to train all of them: take a smaller model, --lora 16 or",
    ):
        load_language_model(folder, trained=16)
    load_language_model(folder, trained=12)
    header = json.dumps(
        {
            "__metadata__": {"of": "1"},
            "w": {"dtype": "F32", "shape": [10**6, 10**6], "data_offsets": [0, 4 * 10**12]},
        }
    )
    (tmp_path / "large").mkdir()  # four terabytes by the header, which is all that is read
    (tmp_path / "large" / "model.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header.encode()
    )
    assert parameters_of(tmp_path / "large", None) == 10**12
    whole = load_file(folder / "model.safetensors")
    whole["model.layers.0.mlp.up_proj.weight"] = (
        100 * whole["model.layers.0.mlp.up_proj.weight"]
    ).to(torch.int8)
    save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        UnreadableModelError,
        match=r"in floating point in .*model, got model.layers.0.mlp.up_proj.weight in I8: give the",
    ):
        load_language_model(folder)
    about = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps(about | {"quantization_config": {"quant_method": "gptq"}})
    )
    with pytest.raises(
        UnreadableModelError,
        match=r"expected weights in floating point in .*, got them quantised by gptq: give the model",
    ):
        load_language_model(folder)


def test_a_model_laid_over_the_devices_has_the_same_scores(tmp_path: Path) -> None:
    """Without a GPU all layers lie in one place, but every one of them fetches its inputs as it
    would from another.
    """
    accelerate = pytest.importorskip("accelerate")
    folder = checkpoint(tmp_path / "model")
    whole, laid = (
        load_language_model(folder, device=device, precision="float64")
        for device in ("cpu", "auto")
    )
    layers = [name for name, module in laid.model.named_modules() if name and module._parameters]
    accelerate.dispatch_model(laid.model, dict.fromkeys(layers, "cpu"), force_hooks=True)
    assert all(
        hasattr(module, "_hf_hook")
        for module in laid.model.modules()
        if isinstance(module, torch.nn.Linear)
    )
    given = batch_of(
        whole, *tokens_of(whole, PROMPTS, COMPLETIONS, ends=ends(whole, [True, False, True, True]))
    )
    gram, other = (score_gram(loaded.model, given) for loaded in (whole, laid))
    np.testing.assert_array_equal(other.gram_NN, gram.gram_NN)
    assert other.source.method == "hooks"


def test_layers_for_which_there_is_no_device_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoint(tmp_path / "model")
    load = transformers.AutoModelForCausalLM.from_pretrained

    def with_a_rest(*given: Any, device_map: str, **named: Any) -> Any:
        assert device_map == "auto"
        model, message = load(*given, **named)
        model.hf_device_map = {"model": 0, "lm_head": "disk"}
        return model, message

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", with_a_rest)
    with pytest.raises(
        InvalidArgumentError,
        match=r"expected GPUs that hold .*, got 0, and some layers are left to the disk: give each "
        r"worker more GPUs",
    ):
        load_language_model(folder, device="auto")


@pytest.mark.parametrize("kind", ["qwen3", "llama", "gpt2"])
def test_the_head_alone_has_the_scores_that_a_forward_pass_tells(kind: str, tmp_path: Path) -> None:
    loaded = load_language_model(checkpoint(tmp_path / "model", kind), precision="float64")
    given = batch_of(
        loaded,
        *tokens_of(loaded, PROMPTS, COMPLETIONS, ends=ends(loaded, [True, False, True, True])),
    )
    name = head_alone(loaded.model)
    gram = score_gram(loaded.model, given, parameters=[name])
    with torch.no_grad():
        output = loaded.model(input_ids=given["input_ids"], output_hidden_states=True)
    error = torch.nn.functional.one_hot(given["input_ids"][:, 1:], len(SYMBOLS)) - output.logits[
        :, :-1
    ].softmax(-1)
    error = error * given["completion_mask"][:, 1:, None]
    score = torch.einsum("nlv,nlh->nvh", error, output.hidden_states[-1][:, :-1]).flatten(1)
    np.testing.assert_allclose(gram.gram_NN, (score @ score.T).numpy(), rtol=1e-9, atol=1e-12)
    assert gram.source.parameters == (name,)


@each_case(
    ("change", "words"),
    [
        (
            "missing",
            (
                r"got a checkpoint in which model\.layers\.1\.mlp\.up_proj\.weight is missing \(1 "
                r"such\)"
            ),
        ),
        ("broken", r"up_proj\.weight is not finite \(1 such\)"),
        (
            "unexpected",
            (
                r"got a checkpoint in which model\.layers\.2\.mlp\.up_proj\.weight has no place in "
                r"the model \(1 such\)"
            ),
        ),
        (
            "another vocabulary",
            (
                r"expected .*embed_tokens\.weight of shape \[50000000, 16\] by the configuration "
                r"in .*, got \[17, 16\]"
            ),
        ),
        (
            "attention by name",
            (
                r"expected an attention of transformers in .*, got 'evil/evil-attn': code for "
                r"it is never fetched"
            ),
        ),
    ],
)
def test_a_checkpoint_that_is_not_what_its_configuration_says_is_refused(
    change: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoint(tmp_path / "model")
    weights, about = (
        load_file(folder / "model.safetensors"),
        json.loads((folder / "config.json").read_text()),
    )
    if change == "missing":
        del weights["model.layers.1.mlp.up_proj.weight"]
    elif change == "broken":
        weights["model.layers.1.mlp.up_proj.weight"][0, 0] = float("nan")
    elif change == "unexpected":
        weights["model.layers.2.mlp.up_proj.weight"] = weights[
            "model.layers.1.mlp.up_proj.weight"
        ].clone()
    elif change == "another vocabulary":
        about["vocab_size"] = 50_000_000
    else:
        about["attn_implementation"] = "evil/evil-attn"
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(about))
    reported: list[Any] = []
    monkeypatch.setattr(logging.getLogger("transformers"), "handle", reported.append)
    monkeypatch.setattr(logging.getLogger("transformers.modeling_utils"), "handle", reported.append)
    with pytest.raises(UnreadableModelError, match=words):
        load_language_model(folder)
    assert not reported  # the one line is the command's


@pytest.mark.parametrize("change", [{"model_type": "nonsense"}, {"num_attention_heads": 0}])
def test_a_configuration_that_no_model_can_be_laid_out_by_is_one_sentence(
    change: dict[str, Any], tmp_path: Path
) -> None:
    folder = checkpoint(tmp_path / "model")
    about = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(about))
    with pytest.raises(
        UnreadableModelError,
        match=r"expected to load the (model|tokenizer) in .*, got .*: copy the checkpoint again",
    ):
        load_language_model(folder)


def test_the_memory_of_a_device_is_what_is_free_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"cuda:1": (5, 80), 0: (3, 80), 1: (5, 80)}
    monkeypatch.setattr(torch.cuda, "mem_get_info", sizes.__getitem__)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert (language_models.free_memory("cuda:1"), language_models.free_memory("auto")) == (5, 8)


def test_more_layers_than_weights_are_refused_before_they_are_laid_out(tmp_path: Path) -> None:
    """To lay out so many takes for ever."""
    folder = checkpoint(tmp_path / "model")
    about = json.loads((folder / "config.json").read_text())
    about |= {"num_hidden_layers": 10**5, "layer_types": None}
    (folder / "config.json").write_text(json.dumps(about))
    with pytest.raises(UnreadableModelError, match=r"expected at most .* layers.* 100,000"):
        load_language_model(folder)
