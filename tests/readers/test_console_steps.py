"""Printed rows without a step: which dictionaries are rows, which step they are of, and whose
they are.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.errors import UnreadableRunError
from groupwise.readers import run_record
from groupwise.readers.console import _STEP_WORDS
from groupwise.readers.rows import STEP_KEYS
from groupwise.record.run import RunRecord

HEAD = (
    "***** Running training *****\n  Num examples = 2,000\n  Num Epochs = {epochs}\n  Total "
    "optimization steps = {total}\n"
)
SUMMARY = (
    "{'train_runtime': 900.0, 'train_steps_per_second': 0.2, 'train_loss': 0.1, 'epoch': 1.0}\n"
)


def row(step: float, steps_of_an_epoch: float = 125, *, times: float = 1.0, places: int = 4) -> str:
    """A row as transformers prints it."""
    values = {
        "loss": 0.01 * step,
        "grad_norm": 0.2,
        "learning_rate": 1e-6,
        "reward": times * step / 1000,
        "reward_std": 0.3,
    }
    return (
        str(
            values
            | {
                "completions/mean_length": 300.0 * times,
                "epoch": round(step / steps_of_an_epoch, places),
            }
        )
        + "\n"
    )


def bar(step: int, total: int = 200, title: str = "") -> str:
    """A progress bar."""
    return (
        f"{title}{step * 100 // total:3d}%|#         | {step}/{total} [00:12<11:03:00, 12.1s/it]   "
        "\n"
    )


def read(folder: Path, text: str, name: str = "train.log") -> RunRecord:
    """The record of a printed output."""
    (folder / name).write_text("start\n" + text)
    return run_record(folder / name)


def steps(record: RunRecord) -> list[int]:
    """The steps of a record."""
    return record.steps["step"].to_list()


def test_the_steps_of_an_unfinished_run_are_not_stretched(tmp_path: Path) -> None:
    record = read(
        tmp_path, HEAD.format(epochs=1, total=200) + "".join(row(step) for step in range(1, 21))
    )
    assert steps(record) == list(range(1, 21))
    assert any("rows are counted" in note for note in record.notes)


@each_case(
    ("epochs", "of_an_epoch", "end"),
    [(1, 200, ""), (1, 200, SUMMARY), (2, 125, SUMMARY), (None, 125, SUMMARY)],
)
def test_a_run_that_ended_goes_up_to_the_stated_total(
    tmp_path: Path, epochs: int | None, of_an_epoch: int, end: str
) -> None:
    head = HEAD.format(epochs=epochs, total=200) if epochs else "  Total optimization steps = 200\n"
    record = read(tmp_path, head + "".join(row(10 * at, of_an_epoch) for at in range(1, 21)) + end)
    assert steps(record) == list(range(10, 201, 10))
    assert any("one every 10" in note for note in record.notes)


@pytest.mark.parametrize(
    ("epochs", "of_an_epoch", "end"), [(2, 125, ""), (2, 250, SUMMARY), (1, 2500, "")]
)
def test_what_the_epochs_contradict_is_no_end(
    tmp_path: Path, epochs: int, of_an_epoch: int, end: str
) -> None:
    record = read(
        tmp_path,
        HEAD.format(epochs=epochs, total=200)
        + "".join(row(10 * at, of_an_epoch) for at in range(1, 21))
        + end,
    )
    assert steps(record) == list(range(1, 21))


def test_a_summary_before_the_last_row_ends_an_earlier_run(tmp_path: Path) -> None:
    text = (
        "  Total optimization steps = 200\n" + SUMMARY + "".join(row(step) for step in range(1, 21))
    )
    assert steps(read(tmp_path, text)) == list(range(1, 21))


@each_case("lost", [(0,), (7,), (19,), (7, 8), (3, 11)])
@each_case("spacing", [1, 10])
def test_a_lost_bar_is_put_between_its_neighbours(
    tmp_path: Path, lost: tuple[int, ...], spacing: int
) -> None:
    text = HEAD.format(epochs=1, total=200)
    for at in range(20):
        step = spacing * (at + 1)
        text += (
            ("" if at in lost else bar(step)) + row(step) + "\n" + ("" if at in lost else bar(step))
        )
    record = read(tmp_path, text)
    assert steps(record) == [spacing * at for at in range(1, 21)]
    words = "1 row has no bar of its own" if len(lost) == 1 else "2 rows have no bar of their own"
    assert any(words in note for note in record.notes)


def test_an_evaluation_stays_with_the_row_whose_bar_was_lost(tmp_path: Path) -> None:
    text = (
        "".join(("" if step == 12 else bar(step)) + row(step) for step in range(1, 13))
        + "{'eval_loss': 0.1, 'eval_reward': 0.5}\n"
    )
    text += "".join(bar(step) + row(step) for step in range(13, 21))
    record = read(tmp_path, text)
    assert steps(record) == list(range(1, 21))
    assert [
        step
        for step, value in record.steps.select("step", "eval_reward").iter_rows()
        if value is not None
    ] == [12]


def test_a_bar_lost_beside_a_restart_leaves_its_row_out(tmp_path: Path) -> None:
    text = (
        "".join(bar(step) + row(step) for step in range(1, 21))
        + row(11, times=2)
        + "".join(bar(at) + row(at) for at in range(12, 31))
    )
    record = read(tmp_path, text)
    assert steps(record) == list(range(1, 31))
    assert record.steps["reward"].to_list()[10] == pytest.approx(0.011)
    assert any("without a step was left out" in note for note in record.notes)


@pytest.mark.parametrize("reached", [20, 200])
def test_bars_collected_apart_say_how_far_the_rows_go(tmp_path: Path, reached: int) -> None:
    bars = "".join(bar(step) for step in range(1, reached + 1))
    record = read(
        tmp_path,
        HEAD.format(epochs=1, total=200)
        + bars
        + "".join(row(reached // 20 * at) for at in range(1, 21)),
    )
    assert steps(record) == [reached // 20 * at for at in range(1, 21)]


def test_bars_that_stop_early_do_not_space_the_rows(tmp_path: Path) -> None:
    text = "".join((bar(10 * at) if at < 11 else "") + row(10 * at) for at in range(1, 21))
    assert steps(read(tmp_path, text)) == list(range(1, 21))


def test_the_bar_of_a_data_set_is_no_clock(tmp_path: Path) -> None:
    text = bar(2000, 2000, "Map: ") + "".join(row(step) for step in range(1, 21))
    assert steps(read(tmp_path, text)) == list(range(1, 21))


FOREIGN = [
    "What is 2+2? {'reward': 99}\n",
    "{'reward': 99} is what I would print\n",
    "{'reward': 99}\n",
    "I log {'loss': 9, 'reward': 99} then\n",
]


@each_case("foreign", FOREIGN)
@each_case("first", [True, False])
def test_a_dictionary_of_a_completion_is_no_row(
    tmp_path: Path, foreign: str, *, first: bool
) -> None:
    text = (foreign if first else "") + "".join(
        bar(at) + row(at) + (foreign if at % 4 == 0 else "") for at in range(1, 21)
    )
    record = read(tmp_path, text + "<reasoning> 'loss': 3 </reasoning>\n")
    assert steps(record) == list(range(1, 21))
    assert record.steps["reward"].to_list() == pytest.approx([step / 1000 for step in range(1, 21)])
    (note,) = [note for note in record.notes if "left out" in note]
    says("readers/console_steps/3", note, count=5 + first)


@each_case(
    "before",
    [
        bar(3).strip(),
        "Train:   1%|#  | 3/200 [00:12<11:03:00, 12.1s/it]",
        "(PPOTrainer pid=7731, ip=10.0.0.7) ",
        "2025-08-01 12:03:11.123 INFO     \u2728 Global step 3: ",
        "[rank0]: ",
        "\x1b[36m[2025-08-01 12:03:11,123] [INFO] \x1b[0m",
        "[INFO|trainer.py:2519] 2025-08-01 12:03:11,123 >> ",
        "2025-08-01 12:03:11 | INFO | trl.trainer.grpo_trainer:log:812 - ",
        "0: ",
        "2025-08-01T12:03:11.123456Z stdout ",
    ],
)
def test_what_stands_in_front_of_a_row_is_not_text(tmp_path: Path, before: str) -> None:
    record = read(tmp_path, "\n".join([before + "{'loss': 0.1, 'reward': 0.3}"] * 3))
    assert not [note for note in record.notes if "left out" in note]
    assert sum(source.rows for source in record.sources) == 3


def test_a_row_amid_text_counts_by_its_keys(tmp_path: Path) -> None:
    record = read(tmp_path, "".join(f"logged: {row(step)}" for step in range(1, 11)))
    assert len(record.steps) == 10


def test_a_row_that_was_cut_off_counts_as_damaged(tmp_path: Path) -> None:
    text = "".join(row(step) for step in range(1, 11)) + row(11)[:60] + "\n" + row(12)[60:]
    record = read(tmp_path, text)
    assert len(record.steps) == 10
    says("readers/console_steps/1", record.notes[0])


@each_case(
    ("took", "counts"),
    [
        ("1.2s", True),
        ("0:00:41", True),
        ("0:01:07.125000", True),
        ("1 day, 2:00:41", True),
        ("my essay of 0:00:41", False),
    ],
)
def test_openrlhfs_evaluations_belong_to_their_step(
    took: str, counts: bool, tmp_path: Path
) -> None:
    text = ""
    for step in range(1, 7):
        text += (
            f"2025-08-01 12:03:11.123 INFO \u2728 Global step {step}: {{'policy_loss': 0.1, "
            f"'reward': {step / 10}, 'kl': 0.1}}\n"
        )
        if step % 3 == 0:
            text += (
                f"\u2728 Evaluation completed in {took}, global_step {step}, eval_metrics: "
                f"{{'eval_gsm8k_pass1': {step / 10}}}\n"
            )
    scores = read(tmp_path, text).steps.get_column("eval_gsm8k_pass1", default=None)
    expected = [None, None, 0.3, None, None, 0.6] if counts else None
    assert (scores if scores is None else scores.to_list()) == expected


@each_case("bars", [True, False])
@each_case("turns", ["ab", "ab ba", "aab abb"])
def test_two_runs_that_print_by_turns_are_refused(
    tmp_path: Path, turns: str, *, bars: bool
) -> None:
    at, text = {"a": 0, "b": 0}, ""
    for who in (turns.replace(" ", "") * 40)[:80]:
        at[who] += 1
        text += (bar(at[who]) if bars else "") + row(at[who], times=1.0 if who == "a" else 0.5)
    with pytest.raises(
        UnreadableRunError, match=r"expected one run, got .* 2 programs print alternately"
    ):
        read(tmp_path, text)


def test_epochs_that_are_equal_by_rounding_are_one_run(tmp_path: Path) -> None:
    record = read(tmp_path, "".join(row(step + 0.5, 200, places=2) for step in range(1, 41)))
    assert steps(record) == list(range(1, 41))


def test_rows_that_several_processes_print_are_taken_once(tmp_path: Path) -> None:
    record = read(tmp_path, "".join(2 * row(step) for step in range(1, 21)))
    assert steps(record) == list(range(1, 21))
    assert "20 rows were printed again with the same values and left out" in record.notes
    odd = "".join(row(step) + row(step, times=1.0 if step != 9 else 0.5) for step in range(1, 21))
    assert (
        "19 rows were printed again with the same values and left out" in read(tmp_path, odd).notes
    ), "one row that differs makes no second run"


def test_two_runs_one_after_the_other_are_no_turns(tmp_path: Path) -> None:
    slow, two = ("".join(row(step, times=times) for step in range(1, 21)) for times in (1.0, 0.5))
    record = read(tmp_path, slow + SUMMARY + two)
    assert record.steps["reward"].to_list() == pytest.approx(
        [0.5 * step / 1000 for step in range(1, 21)]
    )


def test_bars_and_rows_that_come_in_lumps(tmp_path: Path) -> None:
    text = HEAD.format(epochs=1, total=200)
    for lump in range(5):
        text += "".join(bar(step) for step in range(40 * lump + 1, 40 * lump + 41))
        text += "".join(row(5 * at, 4000) for at in range(max(8 * lump - 3, 1), 8 * lump + 5))
    record = read(tmp_path, text + "".join(row(5 * at, 4000) for at in range(37, 41)) + SUMMARY)
    assert steps(record) == list(range(5, 201, 5))


def test_bars_that_share_the_line_of_a_row(tmp_path: Path) -> None:
    bars = [
        f"{step * 100 // 200:3d}%|#  | {step}/200 [00:12<11:03:00, 12.1s/it]"
        for step in range(1, 41)
    ]
    text = "".join(
        "".join(bars[4 * at : 4 * at + 4])
        + f"{{'loss': 0.1, 'reward': {at / 10}}}"
        + bars[4 * at + 3]
        + "\n"
        for at in range(10)
    )
    record = read(tmp_path, text)
    assert steps(record) == list(range(4, 41, 4))
    assert not [note for note in record.notes if "left out" in note]


def test_a_part_of_a_step_is_no_step_and_a_bar_without_rewards_no_second_clock(
    tmp_path: Path,
) -> None:
    blocks = [
        f"10:00:0{row} StatsLogger INFO: Epoch 1/1 Step {row}/4 Train step {row}/4 done.\n"
        f"10:00:0{row} StatsLogger INFO: Stats (1/1):\n"
        f"│ ppo_actor/task_reward/avg │ {row / 10:.4e} │\n"
        for row in range(1, 5)
    ]
    (tmp_path / "areal.log").write_text("".join(blocks), encoding="utf-8")
    record = run_record(tmp_path / "areal.log")
    assert record.steps["step"].to_list() == [1, 2, 3, 4]
    assert record.steps[record.column("reward")].to_list() == pytest.approx([0.1, 0.2, 0.3, 0.4])

    reports = [
        f"{'=' * 80}\nIter {step}:\n{'-' * 80}\nLoss: 0.010\n"
        f"Total Rewards:  μ={step / 100:.3f}, σ=0.250\nGroup Rewards:  μ=0.100, σ=0.125\n"
        f"Individual Reward Functions:\n  • accuracy: μ=0.150, σ=0.200, cov=100.00%\n"
        f"  • int: μ=0.050, σ=0.100, cov=50.00%\n  • Avg tokens: 4.3\n"
        f"  • Max tokens: 6 (limit: 6)\n  • Hit limit: 62.5%\n{'=' * 80}\n"
        f"Training:  9%|█         | {step - 1}/40 [00:10<00:30, 1.2it/s, loss=0.010]\n"
        for step in (10, 20, 30, 40)
    ]
    first = "Training:   0%|          | 0/40 [00:51<?, ?it/s, loss=-0.000, it/s=0.019]\n"
    (tmp_path / "mlx.log").write_text(first + "".join(reports), encoding="utf-8")
    record = run_record(tmp_path / "mlx.log")
    assert record.steps["step"].to_list() == [10, 20, 30, 40]
    assert record.steps[record.column("reward")].to_list() == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert record.steps[record.column("reward_std_within_group")].to_list() == [0.125] * 4
    assert record.steps["int"].to_list() == [0.05] * 4
    assert record.steps[record.column("completion_length")].to_list() == [4.3] * 4
    assert record.steps[record.column("truncated_share")].to_list() == [0.625] * 4

    short = [
        f"Iter {step}: loss 0.000, total_r_mean {step / 100:.3f}, total_r_std 0.471, "
        f"group_r_mean 0.333, group_r_std 0.239, kl 0.004, lr 1.000e-05, it/s 0.088\n\n"
        for step in (10, 20, 30, 40)
    ]
    (tmp_path / "short.log").write_text("".join(short))
    record = run_record(tmp_path / "short.log")
    assert record.steps[record.column("reward")].to_list() == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert record.steps[record.column("reward_std_within_group")].to_list() == [0.239] * 4


def console(tmp_path: Path, line: str, rows: int = 20, head: str = "") -> RunRecord:
    """A console of lines that hold a row each, or its parts."""
    lines = [
        line.format(at=at, reward=f"{at / 32:.5f}", epoch=at // 10 + 1, part=at % 10 + 1)
        for at in range(rows)
    ]
    (tmp_path / "run.log").write_text(f"Loading the model\n{head}" + "\n".join(lines))
    return run_record(tmp_path / "run.log")


@each_case(
    ("line", "first"),
    [
        ("rollout:{at}/20 reward_mean:{reward} time:1.2s gpu_mem:9.1/24.0GB", 0),
        ("rollout:{at}/20 reward:{reward}\n  iter_num:{at} epoch:0/1 episodes:0/8 loss:0.1", 0),
        ("Batch {at}/20 - loss: 0.1 reward: {reward}", 0),
        ("Epoch {epoch}/2, Batch {part}/10, loss = 0.1, reward = {reward}", 1),
        ("Epoch {epoch}/2 Batch {part}/10 reward: {reward} loss: 0.1", 1),
        ("training episode {at}/20 reward: {reward}, loss: 0.1", 0),
        ("step:{at} reward:{reward} loss:0.1", 0),
        ("rollout q='1+1', a='2', returns=3.00\nreturns of step {at}: {reward}\n0: kl= 0.01", 0),
    ],
)
def test_a_counter_of_rollouts_batches_or_episodes_is_the_step(
    line: str, first: int, tmp_path: Path
) -> None:
    record = console(tmp_path, line)
    assert record.steps["step"].to_list() == list(range(first, first + 20))
    assert record.steps[record.column("reward")].to_list() == [at / 32 for at in range(20)]


def test_what_a_completion_says_between_rows_of_rollouts_is_no_step(tmp_path: Path) -> None:
    said = "== Example ==\nStep 1: add 3 and 4\n**Step 2:** so 3/20 is it\n== end =="
    record = console(tmp_path, f"rollout:{{at}}/20 reward_mean:{{reward}}\n{said}")
    assert record.steps["step"].to_list() == list(range(20))
    assert record.steps[record.column("reward")].to_list() == [at / 32 for at in range(20)]


def test_a_counter_of_rollouts_below_a_step_is_no_step(tmp_path: Path) -> None:
    rows = "\n".join(f"  rollout {part}/4 reward: 0.5" for part in range(1, 5))
    record = console(tmp_path, f"Step {{at}}/20\n{rows}\nmean reward: {{reward}}")
    assert record.steps["step"].to_list() == list(range(20))
    assert record.steps["mean reward"].to_list() == [at / 32 for at in range(20)]


@each_case(
    "line",
    [
        "Downloading: {at}/20 files, reward.json: 3.2MB/s",
        "Rollout: 45%|###   | {at}/20 [00:10<00:12, 1.2it/s]",
        "Evaluating batch {at}/20 reward: {reward}",
        "eval episode {at}/20 reward: {reward} loss: 0.1",
        "eval batch {at}/20 | reward: {reward}",
        "sample {at}: reward: {reward}, length: 3",
        "[eval] loss: 0.1, reward: {reward}",
        "reward_weight: 0.5",
    ],
)
def test_what_counts_something_else_is_no_row(line: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadableRunError, match="got none in"):
        console(tmp_path, line)


@each_case("line", ["Batch {at}/20 loss: {reward} lr: 0.1", "Epoch 1 Batch {at}/20 loss: {reward}"])
def test_batches_of_a_loss_alone_are_fine_tuning(line: str, tmp_path: Path) -> None:
    with pytest.raises(UnreadableRunError, match="no reward and looks like fine-tuning"):
        console(tmp_path, line)


@each_case("line", ["loss: 0.1 | mean reward: {reward}", "[12:00:01] reward={reward} kl=0.1"])
def test_rows_without_a_step_are_counted_until_a_line_names_one(line: str, tmp_path: Path) -> None:
    record = console(tmp_path, line)
    assert record.steps["step"].to_list() == list(range(1, 21))
    assert record.steps[record.column("reward")][-1] == 19 / 32
    says("readers/console_steps/2", record.notes[-1])
    head = f"{line.format(reward=0.5)}\n" * 12
    record = console(tmp_path, "Step {at} | reward={reward} | loss=0.1", head=head)
    assert record.steps["step"].to_list() == list(range(20))
    assert not any("no steps" in note for note in record.notes)
    assert any(note.startswith("12 lines before the first row name") for note in record.notes)


@each_case(
    ("head", "line"),
    [
        ("step reward loss\n", "{at} {reward} 0.1"),
        (" Step | Avg reward | Loss |\n------|------|------|\n", " {at} | {reward} | 0.1 |"),
        ("iteration,loss,reward\n", "{at},0.1,{reward}"),
    ],
)
def test_numbers_below_a_line_of_as_many_names_are_its_rows(
    head: str, line: str, tmp_path: Path
) -> None:
    record = console(tmp_path, line, head=head)
    assert record.steps["step"].to_list() == list(range(20))
    assert record.steps[record.column("reward")].to_list() == [at / 32 for at in range(20)]
    for other in (f"{line} 0.1", "the end"):  # of more cells, or of words
        with pytest.raises(UnreadableRunError, match="got none in"):
            console(tmp_path, other, head=head)


def test_every_name_of_a_step_has_a_word_by_which_lines_without_any_are_passed_over() -> None:
    assert all(any(word in key for word in _STEP_WORDS) for key in STEP_KEYS)


def numbers(record: RunRecord, *names: str) -> list[list[float]]:
    return [record.steps[name].to_list() for name in ("step", *names)]


@each_case("other", ["iter_num: {at} loss: 0.{at:02d}", "n_iter={at}, policy_loss = 0.{at:02d}"])
@each_case("is_first", [True, False])
def test_lines_of_another_counter_are_rows_of_their_step(
    other: str, is_first: bool, tmp_path: Path
) -> None:
    parts = [f"[12:00:01] INFO {other}", "step {at} | reward={reward}"]
    record = console(tmp_path, "\n".join(parts if is_first else parts[::-1]))
    assert numbers(record, record.column("reward"), record.column("loss")) == [
        list(range(20)),
        [at / 32 for at in range(20)],
        [at / 100 for at in range(20)],
    ]
    assert not any("another name" in note for note in record.notes)


@each_case("counter", ["update {update}:", "iter_num: {update} |", "n_iter={part},"])
@each_case("is_first", [True, False])
def test_a_counter_of_another_time_is_no_step(counter: str, is_first: bool, tmp_path: Path) -> None:
    """Four updates to a step: their mean is that of the step."""
    lines = []
    for at in range(1, 21):
        row = f"step {at} | reward={at / 32}"
        updates = [
            f"{counter.format(update=4 * at + part, part=part)} loss: {at + part / 2} kl: 0.1"
            for part in range(4)
        ]
        lines += [*updates, row] if is_first else [row, *updates]
    (tmp_path / "run.log").write_text("\n".join(lines))
    record = run_record(tmp_path / "run.log")
    assert numbers(record, "reward", "loss") == [
        list(range(1, 21)),
        [at / 32 for at in range(1, 21)],
        [at + 0.75 for at in range(1, 21)],
    ]
    says("readers/console_steps/4", record.notes[1])


def test_a_counter_that_an_upgrade_renames_goes_on(tmp_path: Path) -> None:
    old = "".join(f"step {at} | reward={at / 32}\n" for at in range(10))
    new = "".join(f"iteration {at} | reward={at / 32} | loss=0.1\n" for at in range(10, 30))
    (tmp_path / "run.log").write_text(old + new)
    assert numbers(run_record(tmp_path / "run.log"), "reward") == [
        list(range(30)),
        [at / 32 for at in range(30)],
    ]


@each_case("line", ["max_step: 40, loss: 0.5", "eval_iter: 3 loss: 0.5", "step_time: 4 loss: 0.5"])
def test_what_only_holds_the_word_step_is_no_counter(line: str, tmp_path: Path) -> None:
    record = console(tmp_path, f"step {{at}} | reward={{reward}}\n{line}")
    assert numbers(record) == [list(range(20))]
    assert "loss" not in record.metrics()


@each_case(
    "row", ["step {at} | reward={reward}", "{{'loss': 0.1, 'reward': {reward}, 'epoch': 0.1}}"]
)
def test_lines_with_a_loss_that_are_of_no_row_are_counted(row: str, tmp_path: Path) -> None:
    record = console(tmp_path, f"{row}\nround {{at}}: loss: 0.5 kl: 0.1")
    note = "20 lines beside the rows name a loss and were not read"
    assert any(words.startswith(note) for words in record.notes)
    record = console(tmp_path, f"{row}\nthe loss of weight is 5 kg: {{at}}")
    assert not any("name a loss" in words for words in record.notes)
