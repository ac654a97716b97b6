"""`groupwise-lab evaluate` from end to end on tiny models written to disk: files of mathematics,
tasks, two models, a run's checkpoints.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab.tests.commands import main
from tests.cases import each_case

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from groupwise_lab.trainer.benchmarks import BENCHMARKS, BenchmarkQuestion  # noqa: E402
from groupwise_lab.trainer.checkpoints import policy_vocabulary, save_policy  # noqa: E402
from groupwise_lab.trainer.evaluate import (  # noqa: E402
    Paper,
    Sampling,
    ask_problems,
    ask_questions,
    cooled,
    examine,
    open_model,
    papers_of,
    transfer_papers,
)
from groupwise_lab.trainer.policy import Policy, Sampled, policy_size  # noqa: E402
from groupwise_lab.trainer.tasks import Vocabulary, make_task, write_task  # noqa: E402
from groupwise_lab.trainer.warm_up import right_probability, warm_up  # noqa: E402

SYMBOLS = ["<pad>", "<eos>", *[chr(code) for code in range(32, 127)]]
CHAT = (
    "{% for message in messages %}Q{{ message['content'] }}{% endfor %}{% if add_generation_prompt "
    "%}A{% endif %}"
)


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("COLUMNS", "160")
    with torch.random.fork_rng():
        torch.manual_seed(3)
        yield


def language_model(
    folder: Path, *, chat: bool = False, positions: int = 512, context: bool = True
) -> Path:
    """A random model of letters, as save_pretrained leaves it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    made = Tokenizer(
        models.WordLevel(
            {symbol: number for number, symbol in enumerate(SYMBOLS)}, unk_token="<pad>"
        )
    )
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.decoder = decoders.Fuse()
    tokens = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )
    if chat:
        tokens.chat_template = CHAT
    config = transformers.Qwen3Config(
        vocab_size=len(SYMBOLS),
        pad_token_id=0,
        eos_token_id=1,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=positions,
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        model.lm_head.weight.add_(0.3 * torch.randn_like(model.lm_head.weight))
    model.save_pretrained(folder)
    tokens.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three policies of rising accuracy on addition of one digit, as checkpoints of a run."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("trained") / "run"
    task = make_task("addition", level=1)
    policy = Policy(policy_size("tiny"), vocabulary_size=len(task.vocabulary))
    for step, accuracy in ((2, 0.02), (9, 0.05), (10, 0.1)):
        warm_up(policy, task, accuracy=accuracy)
        save_policy(policy, folder / "checkpoints" / f"step-{step}", task.vocabulary)
    (folder / "record.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return language_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    """A benchmark that a random model cannot fail altogether: every digit is the answer of some
    problem.
    """
    path = tmp_path / "data" / "gsm8k.test.jsonl"
    path.parent.mkdir()
    rows = [{"question": f"{n} ?", "answer": f"work\n#### {n % 10}"} for n in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    capsys.readouterr()  # what was printed while models were made
    status = main(["evaluate", *map(str, arguments)])
    captured = capsys.readouterr()
    assert status == code, captured.err
    return captured.out if code == 0 else captured.err


def as_json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return dict(json.loads(printed([*arguments, "--json"], capsys)))


def test_a_language_model_is_scored_on_a_file(
    model: Path, sums: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        str(model),
        "--benchmark",
        f"gsm8k={sums}",
        "-k",
        "4",
        "-n",
        "6",
        "--max-tokens",
        "8",
    ]
    document = as_json(arguments, capsys)
    (row,) = document["models"][0]["benchmarks"]
    assert (row["benchmark"], row["problems"], row["samples"]) == ("gsm8k", 40, 6)
    assert 0 < row["mean"]["value"] < row["pass@4"]["value"] < 1
    assert row["mean"]["value"] == pytest.approx(sum(row["right"]) / 240)
    assert row["mean"]["low"] < row["mean"]["value"] < row["mean"]["high"]
    text = printed(arguments, capsys)
    assert f"{row['mean']['value']:.3f}" in text
    assert "mean@6" in text
    assert "pass@4" in text
    assert "published it has 1319" in text


@pytest.mark.slow
def test_the_same_seed_gives_the_same_answers_and_another_gives_others(
    model: Path, sums: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        str(model),
        "--benchmark",
        "gsm8k",
        "--data",
        str(sums.parent),
        "--max-tokens",
        "8",
        "-n",
        "4",
    ]
    first, two, other = (
        as_json([*arguments, "--seed", seed], capsys)["models"] for seed in ("1", "1", "2")
    )
    assert first == two != other


@pytest.mark.slow
def test_every_benchmark_file_is_asked_of_a_tiny_model(
    model: Path, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shared_data / "benchmarks"
    files = {
        "gsm8k": "qwen_gsm8k.test.jsonl",
        "math500": "fireopd_math500.test.jsonl",
        "math": "verl_math_test.parquet",
        "aime24": "qwen_aime24.test.jsonl",
        "amc23": "qwen_amc23.test.jsonl",
        "svamp": "qwen_svamp.test.jsonl",
        "asdiv": "qwen_asdiv.test.jsonl",
        "mawps": "qwen_mawps.test.jsonl",
    }
    named = ",".join(f"{name}={folder / file}" for name, file in files.items())
    document = as_json(
        [str(model), "--benchmark", named, "--problems", "4", "--max-tokens", "6", "-n", "2"],
        capsys,
    )
    assert [row["benchmark"] for row in document["models"][0]["benchmarks"]] == list(files)
    assert all(row["problems"] == 4 for row in document["models"][0]["benchmarks"])


def test_two_models_are_compared_problem_by_problem(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    worse, better = (run_folder / "checkpoints" / f"step-{step}" for step in (2, 10))
    arguments = [
        str(worse),
        str(better),
        "--benchmark",
        "addition/1,modular_addition/1",
        "-n",
        "4",
    ]
    document = as_json(arguments, capsys)
    first = {row["benchmark"]: row for row in document["models"][0]["benchmarks"]}
    second = {row["benchmark"]: row for row in document["models"][1]["benchmarks"]}
    for row in document["comparisons"]:
        name = row["benchmark"]
        assert row["value"] == pytest.approx(
            second[name]["mean"]["value"] - first[name]["mean"]["value"]
        )
        assert row["better"] == sum(
            a < b for a, b in zip(first[name]["right"], second[name]["right"], strict=True)
        )
    text = printed(arguments, capsys)
    assert "step-10 minus step-2" in text
    assert "Better" in text


@pytest.mark.slow
def test_one_command_gives_the_table_of_transfer(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(run_folder), "--trained-on", "addition/1", "-n", "4", "--problems", "30"]
    document = as_json(arguments, capsys)
    assert [point["model"] for point in document["models"]] == [
        "step 2",
        "step 9",
        "step 10",
    ]  # by number, not by letter
    assert document["transfer"][0]["benchmark"] == "addition/1"
    assert len(document["transfer"]) > 8
    for row in document["transfer"]:
        assert len(row["scores"]) == 3
        assert (row["ratio"] is None) == (row["benchmark"] == "addition/1")
    text = printed(arguments, capsys)
    assert all(
        word in text
        for word in (
            "Gain",
            "Share of the gain trained for",
            "Correlation",
            "step 9",
            "subtraction/1",
        )
    )


def test_transfer_to_files_over_the_checkpoints_of_a_language_model(
    tmp_path: Path, sums: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = language_model(
        tmp_path / "run"
    )  # the last model lies in the run's own folder, as trainers leave it
    for step in (100, 20):
        language_model(home / f"checkpoint-{step}")
    other = sums.with_name("svamp.jsonl")
    other.write_text(json.dumps({"Body": "A", "Question": "B?", "Answer": 1.0}) + "\n")
    arguments = [
        str(home),
        "--checkpoints",
        "--benchmark",
        "gsm8k,svamp",
        "--data",
        str(sums.parent),
        "--max-tokens",
        "5",
    ]
    document = as_json([*arguments, "--trained-on", "gsm8k"], capsys)
    assert [point["model"] for point in document["models"]] == ["step 20", "step 100"]
    assert [row["benchmark"] for row in document["transfer"]] == ["gsm8k", "svamp"]
    assert as_json(arguments[:1] + arguments[2:], capsys)["transfer"] == []


def test_what_is_sampled_has_the_accuracy_that_can_be_computed(run_folder: Path) -> None:
    """The exact probability of the right answers against 512 samples each; 5 standard errors,
    false alarms below 1e-6.
    """
    task = make_task("addition", level=1)
    model = open_model(run_folder / "checkpoints" / "step-10")
    answered = ask_problems(model, task, task.train, Sampling(samples=512, batch_size=4096))
    share = sum(
        (text, ended) == (problem.answer, True)
        for problem, rows in zip(task.train, answered, strict=True)
        for text, ended in rows or ()
    )
    truth = right_probability(model.actor, task, task.train)
    count = 512 * len(task.train)
    assert abs(share / count - truth) < 5 * (truth * (1 - truth) / count) ** 0.5


@pytest.mark.parametrize("kind", ["policy", "language"])
def test_the_temperature_divides_logits_and_leaves_the_model_as_it_was(
    kind: str, run_folder: Path, model: Path
) -> None:
    actor = open_model(run_folder / "checkpoints" / "step-10" if kind == "policy" else model).actor
    prompt, completion = torch.tensor([[3, 12, 3, 18]]), torch.tensor([[2, 4, 1]])
    with torch.no_grad():
        plain = actor.log_probabilities(prompt, completion)
        every = torch.stack(
            [
                actor.log_probabilities(prompt, torch.tensor([[token, 4, 1]]))[0, 0]
                for token in range(20 if kind == "policy" else 97)
            ]
        )
        with cooled(actor, 0.5):
            cold = actor.log_probabilities(prompt, completion)
        assert torch.equal(actor.log_probabilities(prompt, completion), plain)
    expected = (every * 2).log_softmax(0)[2]
    assert cold[0, 0] == pytest.approx(float(expected), abs=1e-4)


def test_without_temperature_the_likeliest_answer_comes_every_time(run_folder: Path) -> None:
    task = make_task("addition", level=1)
    model = open_model(run_folder / "checkpoints" / "step-10")
    answered = ask_problems(model, task, task.train[:20], Sampling(samples=8, temperature=0.0))
    assert all(rows is not None and len(set(rows)) == 1 for rows in answered)


def test_more_samples_than_a_batch_are_drawn_in_parts(run_folder: Path) -> None:
    task = make_task("addition", level=1)
    model = open_model(run_folder / "checkpoints" / "step-10")
    answered = ask_problems(model, task, task.train[:3], Sampling(samples=10, batch_size=4))
    assert [len(rows or ()) for rows in answered] == [10, 10, 10]
    assert len({text for rows in answered for text, _ in rows or ()}) > 3


def test_questions_that_do_not_fit_are_told_and_answers_are_shortened(
    tmp_path: Path, sums: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    narrow = language_model(tmp_path / "narrow", positions=24)
    sums.write_text(
        json.dumps({"question": "1 ?", "answer": "1"})
        + "\n"
        + json.dumps({"question": "x" * 50, "answer": "1"})
        + "\n"
    )
    arguments = [
        str(narrow),
        "--benchmark",
        f"gsm8k={sums}",
        "--template",
        "{question}",
        "--max-tokens",
        "500",
    ]
    (row,) = as_json(arguments, capsys)["models"][0]["benchmarks"]
    assert row["too_long"] == 1
    assert "1 of 2 problems do not fit" in printed(arguments, capsys)


@pytest.mark.slow
@each_case("positions", [1, 5, 6, 64])
def test_problems_of_a_task_that_do_not_fit_are_told_and_answers_are_shortened(
    positions: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A context far below --max-tokens as it is by itself: prompts of four tokens fit into more
    than that, answers get the rest.
    """
    narrow = language_model(tmp_path / "narrow", positions=positions)
    arguments = [str(narrow), "--benchmark", "modular_addition/1", "-n", "2", "--problems", "7"]
    (row,) = as_json(arguments, capsys)["models"][0]["benchmarks"]
    assert (row["problems"], row["too_long"]) == (7, 7 if positions < 4 else 0)
    said = printed(arguments, capsys)
    assert ("7 of 7 problems do not fit into the model's context" in said) == (positions < 4)
    assert "lower level" not in said


@pytest.mark.slow
def test_problems_of_a_task_keep_their_places_among_prompts_of_any_length(model: Path) -> None:
    opened, task = open_model(model), make_task("addition", level=[1, 3], problems=40)
    sampling = Sampling(samples=2, temperature=0.0, max_tokens=5, batch_size=6)
    together = ask_problems(opened, task, task.train, sampling)
    assert len({len(problem.prompt) for problem in task.train}) > 1
    assert together == [
        ask_problems(opened, task, [problem], sampling)[0] for problem in task.train
    ]


def test_questions_of_any_length_share_a_batch_and_keep_their_places(model: Path) -> None:
    opened = open_model(model)
    questions = ["abc " * (1 + 3 * n % 5) for n in range(12)]
    sampling = Sampling(
        samples=2, temperature=0.0, max_tokens=6, template="{question}", batch_size=8
    )
    together = ask_questions(opened, questions, sampling)
    assert together == [ask_questions(opened, [question], sampling)[0] for question in questions]
    actor: Any = opened.actor
    actor.sample = lambda prompt, size, *rest: Sampled(
        *(prompt.repeat_interleave(size, 0) for _ in range(4))
    )  # it says what it was asked
    actor.texts = lambda task, rows, mask: (
        [actor.tokenizer.decode(row[row > 0]).replace(" ", "") for row in rows],
        [True] * len(rows),
    )
    assert ask_questions(opened, questions, sampling) == [
        [(question.replace(" ", ""), True)] * 2 for question in questions
    ]


def test_a_chat_template_is_used_unless_told_otherwise(tmp_path: Path) -> None:
    chat = open_model(language_model(tmp_path / "chat", chat=True))
    actor: Any = chat.actor
    asked: list[str] = []
    sample = actor.sample

    def listening(prompt: Any, *rest: Any) -> Any:
        asked.append(actor.tokenizer.decode(prompt[0]).replace(" ", ""))
        return sample(prompt, *rest)

    actor.sample = listening
    for use in (True, False):
        ask_questions(chat, ["1+1?"], Sampling(max_tokens=2, chat=use, template="{question}"))
    assert asked == ["Q1+1?A", "1+1?"]


def test_a_chat_template_that_fails_is_one_sentence(
    tmp_path: Path, sums: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = language_model(tmp_path / "chat", chat=True)
    for template in (
        "{{ raise_exception('no\\nsuch role') }}",
        "{% for",
        "{{ messages.__class__.__mro__ }}{{ 1 / 0 }}",
    ):
        (folder / "chat_template.jinja").write_text(template)
        said = printed(
            [str(folder), "--benchmark", f"gsm8k={sums}", "--max-tokens", "2"], capsys, code=2
        )
        assert said.startswith("groupwise-lab: expected a chat template")
        assert "--no-chat" in said
        assert said.count("\n") == 1


def test_too_little_memory_and_a_missing_torch_are_one_sentence(
    model: Path, sums: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    def out_of_memory(*_given: Any, **_named: Any) -> Any:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    arguments = [str(model), "--benchmark", f"gsm8k={sums}"]
    monkeypatch.setattr("groupwise_lab.trainer.evaluate.ask_questions", out_of_memory)
    assert "lower --batch-size" in printed(arguments, capsys, code=2)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, *rest: None if name == "torch" else find(name, *rest),
    )
    assert "for evaluation: pip install torch\n" in printed(arguments, capsys, code=2)


def test_a_question_that_asks_for_a_box_is_not_told_twice() -> None:
    sampling = Sampling()
    assert sampling.prompt("x \\boxed{} y") == "x \\boxed{} y"
    assert sampling.prompt("x").count("\\boxed") == 1


def test_an_answer_ends_before_a_stop(model: Path) -> None:
    opened = open_model(model)
    plain, stopped = (
        ask_questions(
            opened, ["a"], Sampling(samples=40, max_tokens=20, template="{question}", stop=stop)
        )[0]
        or []
        for stop in ((), ("e",))
    )
    assert [text.split("e")[0] for text, _ in plain] == [text for text, _ in stopped]
    assert all(ended for (text, _), (_, ended) in zip(plain, stopped, strict=True) if "e" in text)


def test_undecided_answers_are_told(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, *rest: None if name == "math_verify" else find(name, *rest),
    )
    path = tmp_path / "math500.jsonl"
    path.write_text(json.dumps({"problem": "a", "answer": "x+1"}) + "\n")
    arguments = [
        str(model),
        "--benchmark",
        f"math500={path}",
        "-n",
        "40",
        "--max-tokens",
        "20",
        "--problems",
        "1",
    ]
    text = printed(arguments, capsys)
    assert re.search(
        r"[0-9]+ of 40 answers count as wrong because math-verify, which is not installed", text
    )


def test_a_policy_with_broken_weights_is_not_scored(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from safetensors.torch import load_file, save_file

    broken = tmp_path / "broken"
    shutil.copytree(sorted((run_folder / "checkpoints").iterdir())[-1], broken)
    tensors = load_file(broken / "model.safetensors")
    tensors["lm_head.weight"][5, 3] = float("nan")
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    assert main(["evaluate", str(broken), "--benchmark", "addition/1", "-n", "2"]) == 2
    assert "expected a model with finite logits, got NaN or infinity" in capsys.readouterr().err


def test_answers_of_a_task_that_were_cut_off_are_told(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    last = sorted((run_folder / "checkpoints").iterdir())[-1]
    assert (
        main(["evaluate", str(last), "--benchmark", "addition/1", "-n", "2", "--max-tokens", "1"])
        == 0
    )
    assert re.search(
        r"answers were cut off at 1 token or the end of the\s+context; raise\s+--max-tokens",
        capsys.readouterr().out,
    )


def test_papers_hold_what_was_held_out() -> None:
    task = make_task("addition", level=2)
    trained = {problem.prompt for problem in task.train}
    papers = transfer_papers(task, problems=50)
    assert all(
        not trained & {problem.prompt for problem in paper.task.held_out}
        for paper in papers
        if paper.task is not None
    )
    assert len(papers[0].task.held_out) == 50  # type: ignore[union-attr]
    (paper,) = papers_of(["addition"])
    assert len(paper.task.held_out) == 200  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_checkpoint_that_says_what_it_was_trained_on_is_never_asked_that(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = make_task(
        "addition", level=2, seed=5, held_out_share=0.01
    )  # another seed: what others hold out was trained on here
    trained = {problem.prompt for problem in task.train}
    rows = make_task("sorting", level=4, problems=10_000, held_out_share=0.5)
    (in_order,) = papers_of(["sorting_sorted/4"], trained=rows, problems=10_000)
    assert in_order.task is not None
    assert 250 < len(in_order.task.held_out) < 460  # about half of the 715 rows that are in order
    assert not {problem.prompt for problem in rows.train} & {
        problem.prompt for problem in in_order.task.held_out
    }
    (own, other) = papers_of(["addition/2", "sorting"], trained=task)
    assert own.task is not None
    assert own.task.held_out == task.held_out
    assert other.name == "sorting"
    run = tmp_path / "run"
    shutil.copytree(run_folder, run)
    for folder in (run / "checkpoints").iterdir():
        write_task(task, folder)
    document = as_json([str(run), "-n", "2", "--problems", "20"], capsys)
    assert document["trained_on"] == document["transfer"][0]["benchmark"] == "addition/2"
    asked = papers_of(["modular_addition/2", "addition/3"], trained=task)
    assert all(
        not trained & {problem.prompt for problem in paper.task.held_out}
        for paper in asked
        if paper.task is not None
    )
    (run / "checkpoints" / "step-2" / "task.json").write_text('{"name": "addition", "seed": "x"}')
    assert "task.json" in printed([str(run)], capsys, code=2)


def test_models_trained_on_several_tasks_are_refused(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = []
    for seed in (1, 2):
        folders.append(tmp_path / str(seed))
        shutil.copytree(run_folder / "checkpoints" / "step-2", folders[-1])
        write_task(make_task("addition", level=1, seed=seed), folders[-1])
    assert "one by one" in printed(
        [*map(str, folders), "--benchmark", "addition/1"], capsys, code=2
    )


def test_a_policy_is_told_from_a_language_model(
    run_folder: Path, model: Path, tmp_path: Path
) -> None:
    own = run_folder / "checkpoints" / "step-2"
    assert policy_vocabulary(own) == make_task("addition").vocabulary
    assert policy_vocabulary(model) is None
    other = save_policy(
        Policy(policy_size("tiny"), vocabulary_size=4), tmp_path / "other", Vocabulary("ab")
    )
    assert policy_vocabulary(other) is None
    (own_paper,) = papers_of(["addition/1"], problems=5)
    assert examine(open_model(own), own_paper, Sampling(samples=2)).problems == 5


def test_a_language_model_may_be_asked_a_task(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = as_json(
        [str(model), "--benchmark", "addition/1", "--problems", "5", "--max-tokens", "4"], capsys
    )["models"][0]["benchmarks"]
    assert row["problems"] == 5


REFUSED: dict[str, list[str]] = {
    "no such folder": ["none", "--benchmark", "addition"],
    "empty folder": ["EMPTY", "--benchmark", "addition"],
    "pickled weights": ["PICKLED", "--benchmark", "addition"],
    "broken configuration": ["BROKEN", "--benchmark", "addition"],
    "no benchmark": ["OWN"],
    "no benchmark of a language model": ["MODEL", "--trained-on", "addition/1"],
    "unknown benchmark": ["OWN", "--benchmark", "gsm9k"],
    "a file of a task": ["OWN", "--benchmark", "addition=FILE"],
    "no file": ["MODEL", "--benchmark", "gsm8k"],
    "missing file": ["MODEL", "--benchmark", "gsm8k=none.jsonl"],
    "missing folder of files": ["MODEL", "--benchmark", "gsm8k", "--data", "none"],
    "twice": ["OWN", "--benchmark", "addition/1,addition/1"],
    "only commas": ["OWN", "--benchmark", ","],
    "level too high": ["OWN", "--benchmark", "addition/99"],
    "level no number": ["OWN", "--benchmark", "addition/x"],
    "level minus": ["OWN", "--benchmark", "addition/-1"],
    "words for a policy": ["OWN", "--benchmark", "gsm8k=SUMS"],
    "other symbols": ["OWN", "--benchmark", "sorting"],
    "k over samples": ["OWN", "--benchmark", "addition/1", "-k", "4", "-n", "2"],
    "k of zero": ["OWN", "--benchmark", "addition/1", "-k", "0"],
    "no samples": ["OWN", "--benchmark", "addition/1", "-n", "0"],
    "negative temperature": ["OWN", "--benchmark", "addition/1", "--temperature", "-1"],
    "temperature nan": ["OWN", "--benchmark", "addition/1", "--temperature", "nan"],
    "no tokens": ["OWN", "--benchmark", "addition/1", "--max-tokens", "0"],
    "no batch": ["OWN", "--benchmark", "addition/1", "--batch-size", "0"],
    "negative seed": ["OWN", "--benchmark", "addition/1", "--seed", "-1"],
    "no problems": ["OWN", "--benchmark", "addition/1", "--problems", "0"],
    "template": ["MODEL", "--benchmark", "gsm8k=SUMS", "--template", "hello"],
    "device": ["OWN", "--benchmark", "addition/1", "--device", "toaster"],
    "precision": ["OWN", "--benchmark", "addition/1", "--precision", "int3"],
    "level of intervals": ["OWN", "--benchmark", "addition/1", "--level", "1"],
    "time limit": ["MODEL", "--benchmark", "math500=MATH", "--time-limit", "0"],
    "trained on another": ["OWN", "--benchmark", "addition/1", "--trained-on", "addition/2"],
    "checkpoints of two": ["OWN", "OWN", "--checkpoints", "--benchmark", "addition/1"],
    "no checkpoints": ["OWN", "--checkpoints", "--benchmark", "addition/1"],
}


@each_case("case", REFUSED)
def test_what_cannot_be_used_is_one_sentence(
    case: str,
    run_folder: Path,
    model: Path,
    sums: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    places = {"OWN": run_folder / "checkpoints" / "step-2", "MODEL": model, "SUMS": sums}
    for name in ("EMPTY", "PICKLED", "BROKEN"):
        places[name] = tmp_path / name.lower()
        places[name].mkdir()
    (places["PICKLED"] / "config.json").write_text('{"model_type": "gpt2"}')
    (places["PICKLED"] / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    (places["BROKEN"] / "config.json").write_text("[" * 100_000)
    places["MATH"] = tmp_path / "math500.jsonl"
    places["MATH"].write_text(json.dumps({"problem": "a", "answer": "x+1"}) + "\n")
    arguments = [
        re.sub("|".join(places), lambda match: str(places[match[0]]), argument)
        for argument in REFUSED[case]
    ]
    said = printed(arguments, capsys, code=2)
    assert said.startswith("groupwise-lab: ")
    assert said.count("\n") == 1
    assert "defect" not in said


@pytest.mark.slow
@pytest.mark.parametrize("chat", [True, False])
def test_tasks_in_words_are_asked_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any, chat: bool
) -> None:
    """A model made to give one answer is right where that is; without a template the answer ends
    with its line.
    """
    model = open_model(language_model(tmp_path / "model", chat=chat))
    paper = papers_of(["larger_of_two/3"], problems=40)[0]
    assert paper.task is not None
    said = paper.task.held_out[0].answer
    monkeypatch.setattr(
        type(model.actor),
        "texts",
        lambda _self, _task, token_NL, _mask: (
            [f"{said}\nQ: 3"] * len(token_NL),
            [False] * len(token_NL),
        ),
    )
    answers = examine(model, paper, Sampling(max_tokens=3))
    right = sum(problem.answer == said for problem in paper.task.held_out)
    assert (int(answers.right_P.sum()), answers.cut) == (right, 40 if chat else 0)
    assert len(paper.task.held_out[0].prompt) == 7
    assert main(["evaluate", str(tmp_path / "model"), "--benchmark", "sort_three/4"]) == 2
    assert "expected from 0 to 3 examples" in capsys.readouterr().err


def test_questions_of_one_wording_are_one_cluster_unless_the_file_names_templates(
    monkeypatch: Any,
) -> None:
    """Errors are clustered by what the components leave out together."""
    texts = [
        *(
            f"{name} has {pens} pens and loses two of them"
            for name in ("Ann", "Bo")
            for pens in "34"
        ),
        "How many legs has a spider",
        "What is the area of a field of 3 by 5",
        "Which of these words is the longest one",
        "Say when the train from there arrives",
        "Count how often a letter comes in a word",
    ]
    monkeypatch.setattr(
        "groupwise_lab.trainer.evaluate.ask_questions",
        lambda _, questions, *__, **___: [[("1", True)]] * len(questions),
    )
    own = [BenchmarkQuestion(number, text, "1", str(number)) for number, text in enumerate(texts)]
    given = [replace(question, cluster=f"template {question.number // 3}") for question in own]
    entry = next(entry for entry in BENCHMARKS if entry.name == "gsm8k")
    model: Any = None
    for questions, clusters in ((own, 6), (given, 3)):
        answers = examine(model, Paper("gsm8k", entry, tuple(questions)), Sampling())
        assert len(set(answers.cluster_P.tolist())) == clusters
