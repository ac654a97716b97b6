"""A Hugging Face model in the policy's place: tiny random models written to disk, held against
plain passes of their own.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from lab.tests.commands import main
from tests.cases import each_case

from groupwise.analysis.components import end_tokens
from groupwise.errors import InvalidArgumentError
from groupwise.prompts import prompt_of
from groupwise.record.run import RunRecord
from groupwise_lab.trainer.settings import TrainSettings
from groupwise_lab.trainer.tasks import Task, Vocabulary, make_task
from groupwise_lab.trainer.text_tasks import in_texts, make_text_task

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from truth import values  # noqa: E402

from groupwise.gradients.language_models import load_language_model, tokens_of  # noqa: E402
from groupwise_lab.trainer.adaptive import probe  # noqa: E402
from groupwise_lab.trainer.checkpoints import save_policy  # noqa: E402
from groupwise_lab.trainer.credit import GradedRollouts  # noqa: E402
from groupwise_lab.trainer.file_task import readable_by  # noqa: E402
from groupwise_lab.trainer.grpo import train  # noqa: E402
from groupwise_lab.trainer.language_policy import LanguagePolicy, with_new_adapter  # noqa: E402
from groupwise_lab.trainer.policy import Policy, policy_size  # noqa: E402
from groupwise_lab.trainer.rows import rollout_rows  # noqa: E402

KINDS = ("gpt2", "llama", "qwen3")
SHAPE = {
    "vocab_size": 20,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


@pytest.fixture(scope="module")
def task() -> Task:
    """Prompts of two lengths, so that there is padding."""
    return make_task("addition", level=[1, 2], problems=100)


@pytest.fixture(scope="module")
def folders(task: Task, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A random model of each architecture, with the tokenizer of our own checkpoints."""
    home = tmp_path_factory.mktemp("models")
    assert isinstance(task.vocabulary, Vocabulary)
    folders = {
        "gpt2": save_policy(
            Policy(policy_size("tiny"), vocabulary_size=len(task.vocabulary), seed=1),
            home / "gpt2",
            task.vocabulary,
        )
    }
    torch.manual_seed(0)
    for kind, make, model in (
        ("llama", "LlamaConfig", "LlamaForCausalLM"),
        ("qwen3", "Qwen3Config", "Qwen3ForCausalLM"),
    ):
        configuration = getattr(transformers, make)(
            **SHAPE,
            head_dim=16,
            max_position_embeddings=64,
            initializer_range=0.3,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=None,
        )
        getattr(transformers, model)(configuration).save_pretrained(home / kind)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (home / kind / name).write_bytes((folders["gpt2"] / name).read_bytes())
        folders[kind] = home / kind
    return folders


@pytest.mark.parametrize("kind", KINDS)
def test_sampling_and_scoring_agree_with_plain_passes(
    kind: str, folders: dict[str, Path], task: Task
) -> None:
    policy = LanguagePolicy(load_language_model(folders[kind]))
    by_length = sorted(task.train, key=lambda problem: len(problem.prompt))
    problems = by_length[:3] + by_length[-3:]
    prompt = policy.prompt_tokens(task, problems)
    assert bool((policy.real(prompt) == 0).any())
    sampled = policy.sample(prompt, 5, torch.Generator().manual_seed(0), task.completion_length)
    scored = policy.log_probabilities(prompt, sampled.completion_NL).detach() * sampled.mask_NL
    np.testing.assert_allclose(sampled.log_probability_NL, scored, atol=1e-4)
    for n in range(0, 30, 3):
        length = int(sampled.mask_NL[n].sum())
        real = policy.tokenizer.encode(problems[n // 5].prompt)
        sequence = torch.tensor([real + sampled.completion_NL[n, :length].tolist()])
        log = policy.model(input_ids=sequence).logits[0].detach().log_softmax(-1)
        plain = [float(log[len(real) - 1 + t, sequence[0, len(real) + t]]) for t in range(length)]
        np.testing.assert_allclose(scored[n, :length], plain, atol=1e-4)


def test_our_own_checkpoint_as_a_language_model_is_the_same_policy(
    folders: dict[str, Path], task: Task
) -> None:
    own = Policy(policy_size("tiny"), vocabulary_size=len(task.vocabulary), seed=1)
    other = LanguagePolicy(load_language_model(folders["gpt2"]))
    prompt = own.prompt_tokens(task, task.train[:8])
    sampled = own.sample(prompt, 4, torch.Generator().manual_seed(3), 4)
    theirs = other.sample(
        other.prompt_tokens(task, task.train[:8]), 4, torch.Generator().manual_seed(3), 4
    )
    assert (
        float((sampled.completion_NL == theirs.completion_NL).float().mean()) > 0.99
    )  # other rounding may turn a draw at a boundary
    assert (
        own.texts(task, sampled.completion_NL, sampled.mask_NL)[1]
        == other.texts(task, sampled.completion_NL, sampled.mask_NL)[1]
    )
    np.testing.assert_allclose(
        other.log_probabilities(
            other.prompt_tokens(task, task.train[:8]), sampled.completion_NL
        ).detach()
        * sampled.mask_NL,
        own.log_probabilities(prompt, sampled.completion_NL).detach() * sampled.mask_NL,
        atol=1e-4,
    )


@pytest.fixture(scope="module")
def merged(folders: dict[str, Path], task: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose tokenizer has a token for "12" beside those of its digits, as every
    tokenizer of a real model has.
    """
    home = tmp_path_factory.mktemp("merged") / "llama"
    torch.manual_seed(1)
    configuration = transformers.LlamaConfig(
        **{**SHAPE, "vocab_size": 21},
        max_position_embeddings=64,
        initializer_range=0.3,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    model = transformers.LlamaForCausalLM(configuration)
    model.save_pretrained(home)
    tokenizer = json.loads((folders["gpt2"] / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["12"] = 20
    (home / "tokenizer.json").write_text(json.dumps(tokenizer))
    (home / "tokenizer_config.json").write_bytes(
        (folders["gpt2"] / "tokenizer_config.json").read_bytes()
    )
    return home


def test_one_spelling_of_an_answer_is_known_from_the_tokens(
    folders: dict[str, Path], merged: Path, task: Task
) -> None:
    for kind in KINDS:
        assert LanguagePolicy(load_language_model(folders[kind])).one_spelling(task)
    assert not LanguagePolicy(load_language_model(merged)).one_spelling(task)
    two_ends: Any = load_language_model(folders["llama"])
    two_ends.model.generation_config.eos_token_id = [1, 4]
    assert not LanguagePolicy(two_ends).one_spelling(task)
    unseen: Any = load_language_model(folders["llama"])
    unseen.model.resize_token_embeddings(22)  # tokens that no text shows
    assert not LanguagePolicy(unseen).one_spelling(task)


def test_a_value_counts_every_spelling_of_the_answer(
    folders: dict[str, Path], merged: Path, task: Task
) -> None:
    """The truth by hand: "12" comes as two tokens or as one."""
    problems = [problem for problem in (*task.train, *task.held_out) if problem.answer == "12"]
    assert len(problems) == 2
    policy = LanguagePolicy(load_language_model(merged))
    prompt = policy.prompt_tokens(task, problems)
    first_token, two = task.vocabulary.encode("12")
    by_hand_P, apart_P = np.zeros(2), np.zeros(2)
    for row in ([first_token, two, 1], [20, 1]):
        log = policy.log_probabilities(prompt, torch.tensor([row] * 2)).detach().sum(1)
        by_hand_P += log.exp().numpy()
        apart_P += log.exp().numpy() if len(row) == 3 else 0
    estimate = values(
        policy, task, problems, rollouts=4000, generator=torch.Generator().manual_seed(0)
    )
    assert estimate.method == "rollouts"
    # Two values beyond 4 standard errors one time in 8,000; an error that no draw showed is that of
    # one draw.
    np.testing.assert_array_less(
        np.abs(estimate.value_P - by_hand_P), 4 * np.maximum(estimate.error_P, 1 / 4000)
    )
    assert (
        np.abs(estimate.value_P - apart_P) > 4 * estimate.error_P
    ).any()  # which one spelling alone is not
    own = LanguagePolicy(load_language_model(folders["gpt2"]))
    assert values(own, task, problems).method == "answer"


def test_an_oracle_of_a_model_with_several_spellings_is_refused(
    merged: Path, task: Task, tmp_path: Path
) -> None:
    settings = TrainSettings(
        group_size=4, rollouts_per_step=32, steps=1, advantage="oracle", learning_rate=1e-3
    )
    with pytest.raises(
        InvalidArgumentError, match="where the policy can spell an answer in one way"
    ):
        train(LanguagePolicy(load_language_model(merged)), task, settings, output=tmp_path / "run")


def test_a_prompt_may_begin_with_the_padding_token(folders: dict[str, Path], task: Task) -> None:
    """Many tokenizers pad with the token that begins every text."""
    policy = LanguagePolicy(load_language_model(folders["llama"]))
    rows = [[policy.padding, 5, 6], [policy.padding, policy.padding, 7, 8, 9]]
    prompt = policy.padded(rows)
    assert policy.real(prompt).tolist() == [[0, 0, 1, 1, 1], [1] * 5]
    completion = torch.tensor([[3, 4], [5, 2]])
    log_probability = policy.log_probabilities(prompt, completion).detach()
    sampled = policy.sample(prompt, 3, torch.Generator().manual_seed(0), 2)
    scored = policy.log_probabilities(prompt, sampled.completion_NL).detach() * sampled.mask_NL
    np.testing.assert_allclose(sampled.log_probability_NL, scored, atol=1e-4)
    for row, tokens, seen in zip(rows, completion.tolist(), log_probability, strict=True):
        log = (
            policy.model(input_ids=torch.tensor([row + tokens])).logits[0].detach().log_softmax(-1)
        )
        np.testing.assert_allclose(
            seen, [float(log[len(row) - 1 + t, tokens[t]]) for t in range(2)], atol=1e-4
        )


def test_every_end_of_the_generation_settings_ends_a_completion(
    folders: dict[str, Path], task: Task
) -> None:
    model: Any = load_language_model(folders["llama"])
    model.model.generation_config.eos_token_id = [1, 4]
    policy = LanguagePolicy(model)
    assert policy.ends == (1, 4)
    sampled = policy.sample(
        policy.prompt_tokens(task, task.train[:4]), 50, torch.Generator().manual_seed(0), 6
    )
    written, ended = policy.texts(task, sampled.completion_NL, sampled.mask_NL)
    ends = 0
    for row, mask, end in zip(
        sampled.completion_NL.tolist(), sampled.mask_NL.tolist(), ended, strict=True
    ):
        tokens = row[: int(sum(mask))]
        assert not {1, 4} & set(tokens[:-1])
        assert end == (tokens[-1] in {1, 4})
        ends += tokens[-1] == 4
    assert ends > 5
    assert not any(policy.tokenizer.decode([4]) in text for text in written)


def test_saving_a_language_model_is_silent(
    folders: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    policy = LanguagePolicy(load_language_model(folders["llama"]))
    capfd.readouterr()
    policy.save(tmp_path)
    assert capfd.readouterr() == ("", "")


@pytest.mark.thinned(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_language_model_trains_and_its_checkpoint_opens(
    kind: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    task = make_task("addition", level=1, format_reward=True)
    settings = TrainSettings(
        group_size=4,
        rollouts_per_step=16,
        steps=3,
        checkpoint_every=1,
        evaluate_every=2,
        evaluation_problems=4,
        rollouts_every=1,
    )
    first = LanguagePolicy(load_language_model(folders[kind]))
    record = train(first, task, settings, output=tmp_path / "run")
    assert len(record.steps) == 3
    assert record.rollouts is not None
    saved = load_language_model(tmp_path / "run" / "checkpoints" / "checkpoint-3")
    for own, theirs in zip(first.model.parameters(), saved.model.parameters(), strict=True):
        assert torch.equal(own, theirs)
    again = LanguagePolicy(load_language_model(folders[kind]))
    train(
        again,
        task,
        TrainSettings(**{**settings.as_dict(), "steps": 4}),
        output=tmp_path / "run",
        resume=True,
    )
    assert RunRecord.load(tmp_path / "run").steps["step"].to_list() == [1, 2, 3, 4]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of transformers, on its own future
def test_of_an_adapter_only_its_own_weights_move(folders: dict[str, Path], tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    base = transformers.AutoModelForCausalLM.from_pretrained(folders["qwen3"])
    configuration = peft.LoraConfig(
        r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False
    )
    peft.get_peft_model(base, configuration).save_pretrained(tmp_path / "adapter")
    policy = LanguagePolicy(load_language_model(tmp_path / "adapter", base=folders["qwen3"]))
    before = {
        name: parameter.detach().clone() for name, parameter in policy.model.named_parameters()
    }
    task = make_task("addition", level=1, format_reward=True)
    settings = TrainSettings(
        group_size=4,
        rollouts_per_step=32,
        steps=3,
        evaluate_every=0,
        advantage="vanilla",
        learning_rate=0.01,
    )
    train(policy, task, settings, output=tmp_path / "run")
    moved = {
        name
        for name, parameter in policy.model.named_parameters()
        if not torch.equal(parameter, before[name])
    }
    assert moved
    assert all("lora" in name for name in moved)
    assert (
        tmp_path / "run" / "checkpoints" / "checkpoint-3" / "adapter_model.safetensors"
    ).exists()


def test_a_tokenizer_without_an_end_is_refused(folders: dict[str, Path]) -> None:
    model: Any = load_language_model(folders["llama"])
    model.tokenizer.eos_token = None
    with pytest.raises(
        InvalidArgumentError, match="expected a tokenizer with an end-of-sequence token"
    ):
        LanguagePolicy(model)


@pytest.mark.parametrize("kind", KINDS)
def test_of_a_prompt_only_the_last_places_logits_are_computed_and_once_a_group(
    kind: str, folders: dict[str, Path], task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = LanguagePolicy(load_language_model(folders[kind]))
    shapes: list[tuple[int, int]] = []
    model: Any = policy.model
    model.get_output_embeddings().register_forward_hook(
        lambda module, given, out: shapes.append(tuple(out.shape[:2]))
    )
    prompt = policy.prompt_tokens(task, task.train[:3])
    sampled = policy.sample(prompt, 2, torch.Generator().manual_seed(0), task.completion_length)
    assert shapes[0] == (3, 1)
    assert {length for _, length in shapes} == {1}
    shapes.clear()
    scored = policy.log_probabilities(prompt, sampled.completion_NL)
    assert shapes[0] == (3, 1)
    assert sum(rows for rows, _ in shapes[1:]) == int((sampled.mask_NL.sum(1) > 1).sum())
    monkeypatch.setattr(policy, "_few", False)
    np.testing.assert_allclose(
        policy.log_probabilities(prompt, sampled.completion_NL).detach(), scored.detach(), atol=1e-5
    )
    assert shapes[-1][1] < task.completion_length


def _plain(policy: LanguagePolicy, prompts: list[list[int]], completion_NL: Any) -> Any:
    """Log-probabilities of completions by one pass each over prompt and completion, without a
    cache or a batch.
    """
    rows, group = [], len(completion_NL) // len(prompts)
    model: Any = policy.model
    for number, tokens in enumerate(completion_NL.tolist()):
        before = prompts[number // group]
        log = model(input_ids=torch.tensor([before + tokens])).logits[0].log_softmax(-1)
        rows.append(
            torch.stack([log[len(before) - 1 + place, token] for place, token in enumerate(tokens)])
        )
    return torch.stack(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_of_a_group_that_shares_its_prompt_is_that_of_plain_passes(
    kind: str, folders: dict[str, Path], task: Task
) -> None:
    """Prompts of two lengths, completions that end at every place and one that does not."""
    policy = LanguagePolicy(load_language_model(folders[kind], precision="float64"))
    problems = [
        min(task.train, key=lambda problem: len(problem.prompt)),
        max(task.train, key=lambda problem: len(problem.prompt)),
    ]
    completion = torch.tensor(
        [
            [1, 0, 0, 0, 0],
            [5, 1, 0, 0, 0],
            [4, 3, 1, 0, 0],
            [7, 8, 3, 1, 0],
            [3, 4, 5, 6, 1],
            [9, 9, 9, 9, 9],
        ]
    )
    mask = torch.tensor(
        [[place < length for place in range(5)] for length in (1, 2, 3, 4, 5, 5)]
    ).double()
    weight = torch.linspace(-1, 2, 6).double()[:, None] * mask
    parameters = [parameter for parameter in policy.model.parameters() if parameter.requires_grad]

    def gradient(log_NL: Any) -> Any:
        gradient = torch.autograd.grad((weight * log_NL).sum(), parameters, allow_unused=True)
        return torch.cat(
            [
                torch.zeros_like(parameter).flatten() if part is None else part.flatten()
                for parameter, part in zip(parameters, gradient, strict=True)
            ]
        )

    ours = policy.log_probabilities(policy.prompt_tokens(task, problems), completion)
    assert not (ours * (1 - mask)).any()
    theirs = (
        _plain(
            policy, [policy.tokenizer.encode(problem.prompt) for problem in problems], completion
        )
        * mask
    )
    np.testing.assert_allclose(ours.detach(), theirs.detach(), atol=1e-5)
    finding, wanted = gradient(ours), gradient(theirs)
    assert float((finding - wanted).norm() / wanted.norm()) < 1e-6
    checkpointed = LanguagePolicy(
        load_language_model(folders[kind], precision="float64"), checkpointing=True
    )
    parameters = [
        parameter for parameter in checkpointed.model.parameters() if parameter.requires_grad
    ]
    again = gradient(
        checkpointed.log_probabilities(checkpointed.prompt_tokens(task, problems), completion)
    )
    assert float((again - wanted).norm() / wanted.norm()) < 1e-6


def test_a_text_becomes_what_the_user_says_in_a_chat(folders: dict[str, Path], task: Task) -> None:
    loaded = load_language_model(folders["llama"])
    loaded.tokenizer.chat_template = (
        "{% for message in messages %}{{ '(' + message['content'] + ')' }}{% endfor %}{{ '=' }}"
    )
    problems = [replace(task.train[0], prompt="1+2")]
    plain, chat = (
        LanguagePolicy(loaded, chat=chat).prompt_tokens(task, problems)[0].tolist()
        for chat in (False, True)
    )
    assert plain == task.vocabulary.encode("1+2")
    assert chat == task.vocabulary.encode("(1+2)=")


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of letters, with a line's end among them and without a chat template."""
    vocabulary = Vocabulary("".join(map(chr, range(32, 127))) + "\n")
    policy = Policy(policy_size("tiny"), vocabulary_size=len(vocabulary), context=256, seed=1)
    folder = save_policy(policy, tmp_path_factory.mktemp("letters") / "gpt2", vocabulary)
    # As a real model's tokenizer, it has a token for whatever else a text holds.
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["unk_token"] = "<pad>"
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


@pytest.mark.slow
def test_a_model_without_a_chat_template_is_asked_in_texts_and_answers_in_a_line(
    letters: Path,
) -> None:
    policy, chat = (
        LanguagePolicy(load_language_model(letters)),
        make_text_task("letters", examples=1),
    )
    task = readable_by(policy, replace(chat, completion_length=150))
    assert task.completion_length == 150
    assert str(task.train[0].prompt).startswith(
        'Question: Letters in "dog"?\nAnswer: 3\n\nQuestion: Letters in "'
    )
    prompt = policy.prompt_tokens(task, task.train[:4])
    sampled = policy.sample(prompt, 8, torch.Generator().manual_seed(0), task.completion_length)
    texts, ended = policy.texts(task, sampled.completion_NL, sampled.mask_NL)
    assert not any("\n" in text for text in texts)
    line = policy.tokenizer.encode("\n")[0]
    lines = [
        int(mask.sum())
        for mask, tokens in zip(sampled.mask_NL, sampled.completion_NL, strict=True)
        if line in tokens
    ]
    assert lines
    assert sum(ended) >= len(lines)
    scored = policy.log_probabilities(prompt, sampled.completion_NL).detach()
    np.testing.assert_allclose(scored, sampled.log_probability_NL, atol=1e-4)
    policy.tokenizer.chat_template = "{{ messages[-1]['content'] }}"
    assert readable_by(policy, chat) is chat


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["a chat", "lines"])
def test_what_is_logged_is_scored_as_it_was_sampled(kind: str, letters: Path) -> None:
    """A text that was read as a chat, and answers that a line ended: the log tells both, and
    their tokens are those of the sampler.
    """
    loaded = load_language_model(letters)
    loaded.tokenizer.chat_template = (
        "{% for message in messages %}{{ '(' + message['content'] + ')' }}{% endfor %}{{ '=' }}"
    )
    policy, chat = (
        LanguagePolicy(loaded, chat=kind == "a chat"),
        make_text_task("letters", examples=1),
    )
    task = replace(in_texts(chat), completion_length=150)
    if kind == "lines":
        policy.end_at_lines()
    problems, generator = task.train[:3], torch.Generator().manual_seed(0)
    prompt = policy.prompt_tokens(task, problems)
    sampled = policy.sample(prompt, 4, generator, task.completion_length)
    texts, ended = policy.texts(task, sampled.completion_NL, sampled.mask_NL)
    assert 0 < sum(ended) < len(ended)
    reward = np.zeros(12)
    rows = rollout_rows(
        GradedRollouts(problems, np.arange(3), 1, sampled, texts, ended, reward, {}, {}),
        torch.zeros(12),
        policy.shown,
    )
    filled = pl.DataFrame(rows).with_columns((pl.col("ended") == 0).alias("full"))
    before, after = tokens_of(
        loaded, [prompt_of(row["prompt"]) for row in rows], texts, ends=end_tokens(loaded, filled)
    )
    length = sampled.mask_NL.sum(1).long().tolist()
    assert after == [
        row[:size] for row, size in zip(sampled.completion_NL.tolist(), length, strict=True)
    ]
    assert before[::4] == [[token for token in row if token >= 0] for row in prompt.tolist()]
    assert str(rows[0]["prompt"]).startswith(
        '[{"role": "user"' if kind == "a chat" else "Question: "
    )
    # What is no token of the model's is that of a sequence, as where the log tells none.
    for odd in (math.nan, math.inf, -1.0, 1e300, float(len(loaded.tokenizer))):
        foreign = filled.with_columns(pl.lit(odd).alias("end_token"))
        assert end_tokens(loaded, foreign) == end_tokens(loaded, filled.drop("end_token"))
    # Where every end is told none is looked up.
    loaded.tokenizer.eos_token = None
    assert end_tokens(loaded, filled).count(None) == ended.count(False)
    loaded.tokenizer.eos_token = loaded.tokenizer.decode([policy.end])
    # Without them every end is that of a sequence.
    assert (end_tokens(loaded, filled.drop("end_token")) == end_tokens(loaded, filled)) is (
        kind == "a chat"
    )


@pytest.mark.slow
def test_the_command_trains_a_model_without_a_chat_template_on_a_task_in_words(
    letters: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [
        "train",
        "letters",
        "--model",
        str(letters),
        "-G",
        "2",
        "-N",
        "4",
        "--steps",
        "1",
        "--set",
        "rollouts_every=1",
    ]
    assert (
        main([*words, "--set", "evaluate_every=0", "--device", "cpu", "-o", str(tmp_path / "run")])
        == 0
    )
    document = json.loads(
        (tmp_path / "run" / "checkpoints" / "checkpoint-1" / "task.json").read_text()
    )
    assert document["chat"] is False
    rollouts = RunRecord.load(tmp_path / "run").rollouts
    assert rollouts is not None
    assert rollouts["end_token"].is_not_null().to_list() == (rollouts["ended"] == 1).to_list()
    assert main([*words, "--chat-template", "-o", str(tmp_path / "chat")]) == 2
    assert (
        "--chat-template expects a tokenizer with a chat template, got none in"
        in capfd.readouterr().err
    )


def test_memory_is_kept_by_smaller_passes_that_draw_the_same(
    folders: dict[str, Path], task: Task
) -> None:
    """By hand: 16 keys and values of 2 layers in two copies, and 20 logits; 16 times the width
    and 8 times the inner width of a layer.
    """
    loaded = load_language_model(folders["llama"])
    prompt = LanguagePolicy(loaded).prompt_tokens(task, task.train[:6])
    tokens = prompt.shape[1] + task.completion_length
    group = 5 * (2 * 4 * 2 * 2 * 16 * tokens + 24 * 20)
    shapes: list[int] = []
    model: Any = loaded.model
    model.get_output_embeddings().register_forward_hook(
        lambda module, given, out: shapes.append(out.shape[0])
    )
    drawn = []
    for limit, prompts in ((math.inf, 6), (2 * group + 1, 2), (1.0, 1)):
        shapes.clear()
        drawn.append(
            LanguagePolicy(loaded, memory_limit=limit).sample(
                prompt, 5, torch.Generator().manual_seed(0), task.completion_length
            )
        )
        assert shapes[0] == prompts
    assert all(torch.equal(drawn[0].completion_NL, other.completion_NL) for other in drawn[1:])
    layer, logits = 4 * (16 * 32 + 8 * 48), 4 * 4 * 20
    kept = 2 * layer * (7 + 4 * 3) + logits * 4 * 3
    assert LanguagePolicy(loaded, memory_limit=2.5 * kept).rollouts_of_a_pass(4, 7, 3) == 8
    again = (2 * 4 * 32 + layer) * (4 * 7 + 4 * 3) + logits * 4 * 3
    assert (
        LanguagePolicy(loaded, memory_limit=1.5 * again, checkpointing=True).rollouts_of_a_pass(
            4, 7, 3
        )
        == 4
    )
    with pytest.raises(
        InvalidArgumentError,
        match=(
            r"3 tokens behind the 7 of the prompt to fit into memory_limit 1e-09 GB, got 0\.0 GB: "
            r"raise it"
        ),
    ):
        LanguagePolicy(loaded, memory_limit=1.0).rollouts_of_a_pass(4, 7, 3)
    with pytest.raises(
        InvalidArgumentError, match=r"or set gradient_checkpointing$"
    ):  # where that is enough
        LanguagePolicy(
            loaded, memory_limit=(2 * 4 * 32 + layer) * (4 + 4 * 3) + logits * 4 * 3
        ).rollouts_of_a_pass(4, 1, 3)


@pytest.mark.slow
def test_the_command_trains_an_adapter_and_goes_on_with_it(
    folders: dict[str, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "addition", "--level", "1", "--model", str(folders["llama"]), "--lora", "2"]
    words += ["--max-completion-length", "5", "-G", "4"]
    words += [
        "-N",
        "32",
        "--set",
        "format_reward=true",
        "--set",
        "evaluation_problems=4",
        "--set",
        "rollouts_every=1",
        "--device",
        "cpu",
    ]
    words += ["--set", "memory_limit=0.0008", "-o", str(tmp_path / "run")]
    assert main([*words, "--steps", "2"]) == 0
    assert main([*words, "--steps", "3", "--resume"]) == 0
    assert main([*words, "--steps", "4", "--resume", "--lora", "3"]) == 2
    said = capfd.readouterr()
    assert "3 of 3 steps" in said.out
    assert "to go on as it began, with lora 2; got 3" in said.err
    record = RunRecord.load(tmp_path / "run")
    assert record.config.max_completion_length is not None
    assert record.config.max_completion_length.value == 5
    assert (
        tmp_path / "run" / "checkpoints" / "checkpoint-3" / "adapter_model.safetensors"
    ).exists()
    about = json.loads(
        (tmp_path / "run" / "checkpoints" / "checkpoint-3" / "state.json").read_text()
    )
    assert 4 <= about["settings"]["micro_batch"] < 32


@each_case(
    "words",
    [
        ["--lora", "4"],
        ["--chat-template"],
        ["--max-completion-length", "9"],
        ["--set", "memory_limit=1"],
    ],
)
def test_what_a_language_model_alone_has_is_refused_without_one(
    words: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "addition", *words, "-o", str(tmp_path / "run")]) == 2
    assert "expects --model, the folder of a language model; got none" in capfd.readouterr().err


@pytest.mark.slow
def test_a_probe_keeps_the_memory_limit_and_takes_sketches_then(folders: dict[str, Path]) -> None:
    task = make_task("addition", level=1, format_reward=True)
    loaded, passes = load_language_model(folders["llama"]), []
    model: Any = loaded.model
    asked: dict[str, Any] = {"problems": task.train[:6], "rollouts": 8}
    exact = probe(LanguagePolicy(loaded), task, **asked, generator=torch.Generator().manual_seed(0))
    limit = 300_000  # some of the 48 rollouts at a time
    model.get_input_embeddings().register_forward_hook(
        lambda module, given, out: passes.append(len(out))
    )
    sketched = probe(
        LanguagePolicy(loaded, memory_limit=limit),
        task,
        **asked,
        generator=torch.Generator().manual_seed(0),
    )
    at_once = passes[
        len(passes) - passes[::-1].index(1) :
    ]  # behind the one rollout by which the memory is known
    assert sum(at_once) == 48
    assert len(at_once) > 1
    assert sketched.t.value == pytest.approx(exact.t.value, rel=0.2)
    assert sketched.t.value != exact.t.value > 0


def test_a_new_adapter_changes_nothing_at_first_and_is_drawn_from_its_seed(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    folder, ids = folders["llama"], torch.arange(3, 9)[None]
    plain = load_language_model(folder)
    first, again, other = (
        with_new_adapter(load_language_model(folder), 2, seed) for seed in (0, 0, 1)
    )
    assert first.adapter
    model, base, third = cast("Any", (first.model, plain.model, other.model))
    assert torch.equal(model(ids).logits, base(ids).logits)
    assert not any(module.training for module in model.modules())
    own = {name: value for name, value in model.named_parameters() if value.requires_grad}
    linear = [module for module in base.model.modules() if isinstance(module, torch.nn.Linear)]
    # A rank of 2 for each input and each output of each matrix.
    assert sum(value.numel() for value in own.values()) == 2 * sum(
        module.in_features + module.out_features for module in linear
    )
    same, others = dict(again.model.named_parameters()), dict(third.named_parameters())
    assert all(torch.equal(value, same[name]) for name, value in own.items())
    assert not all(torch.equal(value, others[name]) for name, value in own.items())
    half = with_new_adapter(load_language_model(folder, precision="bfloat16"), 2)
    assert {value.dtype for value in half.model.parameters() if value.requires_grad} == {
        torch.float32
    }
    with pytest.raises(InvalidArgumentError, match="a model without an adapter for a new one of"):
        with_new_adapter(first, 2)
    with pytest.raises(InvalidArgumentError, match="a whole number of at least 1; got 0"):
        with_new_adapter(plain, 0)
