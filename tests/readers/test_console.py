"""What TRL prints, with and without progress bars."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cases import each_case
from tests.golden.sentences import says

from groupwise.errors import UnreadableRunError
from groupwise.readers import console, run_record
from groupwise.record.run import RunRecord


def values(record: RunRecord, column: str) -> list[float | None]:
    """One column of the steps."""
    return record.steps[column].to_list()


def printed(row: dict[str, float], **changes: object) -> str:
    """A row as TRL prints it: without its step."""
    return str({key: value for key, value in (row | changes).items() if key != "step"})


Row = Callable[..., dict[str, float]]


def test_the_bar_before_a_row_is_its_step(tmp_path: Path, make_row: Row) -> None:
    text = "Loading weights: 100%|####| 2/2 [00:01<00:00]\n"
    for step in (10, 20, 30):
        text += (
            "".join(
                f"\r {at}%|#  | {at}/100 [00:01<00:09, 1.0s/it]" for at in range(step - 9, step + 1)
            )
            + "\r   \r\x1b[32m"
        )
        text += (
            printed(make_row(step), kl=float("nan")).replace("'kl': nan", "'kl': nan, 'name': 'a'")
            + "\x1b[0m\n"
        )
    text += "{'train_runtime': 9.0, 'train_loss': 0.1}\n"
    (tmp_path / "train.log").write_text(text)
    record = run_record(tmp_path / "train.log")
    assert values(record, "step") == [10, 20, 30]
    assert values(record, "window") == [10.0, 10.0, 10.0]
    assert values(record, "reward") == [0.1, 0.2, 0.3]
    says("readers/console/1", record.notes[0])
    (note,) = record.notes[1:]
    says("readers/console/3", note)


def test_rows_collected_after_all_bars_are_spaced_evenly(tmp_path: Path, make_row: Row) -> None:
    bars = "".join(f"\r{at}%|#| {at}/20 [00:01<00:09]" for at in range(21))
    rows = "\n".join(printed(make_row(step)) for step in (5, 10, 15, 20))
    (tmp_path / "train.log").write_text(
        f"Total train batch size (w. parallel, distributed & accumulation) = 8\n{bars}\n{rows}\n"
    )
    record = run_record(tmp_path / "train.log", settings={"group_size": "4"})
    assert values(record, "step") == [5, 10, 15, 20]
    assert "one every 5" in record.notes[0]
    assert (record.config.value("prompts_per_step"), record.config.prompts_per_step.source) == (
        2,
        "the printed output",
    )


def test_no_bar_at_all_counts_the_rows(tmp_path: Path, make_row: Row) -> None:
    (tmp_path / "train.log").write_text(
        "start\n" + "\n".join(printed(make_row(step)) for step in (5, 10))
    )
    record = run_record(tmp_path / "train.log")
    assert values(record, "step") == [1, 2]
    assert "rows are counted" in record.notes[0]


def test_a_step_in_the_row_wins(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(
        "go\n{'loss': '-0.03', 'reward': '0.5', 'step': 7}\n{'loss': '0.1', 'reward': '0.6', "
        "'step': 9}\n"
    )
    record = run_record(tmp_path / "train.log")
    assert (values(record, "step"), values(record, "loss")) == ([7, 9], [-0.03, 0.1])


def test_damaged_rows_are_counted(tmp_path: Path, make_row: Row) -> None:
    damaged = ["{'loss': 0.1, 'reward': }", "{'loss': __import__('os')}"]
    (tmp_path / "train.log").write_text(
        "\n".join(["x", printed(make_row(1)), *damaged, printed(make_row(2)), ""])
    )
    record = run_record(tmp_path / "train.log")
    assert len(record.steps) == 2
    says("readers/console/2", record.notes[0])


@pytest.mark.parametrize(
    "text",
    ["10%|# | 1/10 [00:01<00:09]\nGSM8K accuracy: 0.9\n", "INFO nothing here\n{'accuracy': 0.5}\n"],
)
def test_output_without_rows(tmp_path: Path, text: str) -> None:
    (tmp_path / "eval.log").write_text(text)
    with pytest.raises(UnreadableRunError, match="give the log of the training itself"):
        run_record(tmp_path / "eval.log")


def test_verls_output_is_read_by_its_own_reader(tmp_path: Path) -> None:
    (tmp_path / "verl.log").write_text(
        "(TaskRunner pid=1) step:1 - actor/entropy:0.1 - critic/score/mean:0.5\n"
    )
    record = run_record(tmp_path / "verl.log")
    assert (record.sources[0].reader, record.column("reward")) == (
        "verl_console",
        "critic/score/mean",
    )


def again(rows: int, last: int, offset: float = 0.0, first: int = 1, *, bars: bool = True) -> str:
    """Rows as they are printed after each of so many steps, with the bar of the training or
    without.
    """
    text = ""
    for step in range(first, rows + 1):
        text += f"\r {step}%|#  | {step}/{last} [00:01<00:09, 1.0s/it]\n" if bars else ""
        text += (
            str({"loss": 0.1, "reward": offset + step / 100, "epoch": round(step / last, 4)}) + "\n"
        )
    return text


@pytest.mark.parametrize("bars", [True, False])
def test_a_resumed_run_is_no_longer_run(tmp_path: Path, *, bars: bool) -> None:
    (tmp_path / "train.log").write_text(
        "start\n" + again(40, 60, bars=bars) + "resumed\n" + again(60, 60, 1.0, 31, bars=bars)
    )
    record = run_record(tmp_path / "train.log")
    assert values(record, "step") == list(range(1, 61))
    assert values(record, "reward") == [step / 100 + (step > 30) for step in range(1, 61)]
    assert any("restarted 1 time" in note for note in record.notes)


@pytest.mark.parametrize("bars", [True, False])
def test_a_run_that_was_begun_again_is_read_alone(tmp_path: Path, *, bars: bool) -> None:
    (tmp_path / "train.log").write_text(
        "start\n" + again(30, 60, bars=bars) + "again\n" + again(30, 60, 1.0, bars=bars)
    )
    record = run_record(tmp_path / "train.log")
    assert len(record.steps) == 30
    assert values(record, "reward")[0] == 1.01
    assert any("second run in the same log" in note for note in record.notes)


def test_the_bar_of_an_evaluation_is_no_step(tmp_path: Path) -> None:
    text = ""
    for step in range(1, 31):
        text += again(step, 30, first=step)
        if step % 10 == 0:
            text += (
                "".join(f"\r {at}%|#| {at}/7 [00:01<00:01]" for at in range(1, 8))
                + str({"eval_loss": 0.1, "eval_reward": 0.5})
                + "\n"
            )
    (tmp_path / "train.log").write_text(text)
    record = run_record(tmp_path / "train.log")
    seen = dict(zip(values(record, "step"), values(record, "eval_reward"), strict=True))
    assert [step for step, value in seen.items() if value is not None] == [10, 20, 30]


def test_a_step_that_is_printed_over_the_last_one_is_read(tmp_path: Path) -> None:
    rows = [
        str({"loss": 0.1, "reward": 0.5, "global_step/max_steps": f"{5 * step}/300"})
        for step in range(1, 5)
    ]
    (tmp_path / "train.log").write_text("start\n" + "\n".join(rows))
    assert values(run_record(tmp_path / "train.log"), "step") == [5, 10, 15, 20]


def test_two_runs_of_verl_in_one_output_are_told_apart(tmp_path: Path) -> None:
    rows = [
        f"(TaskRunner pid={pid}) step:{step} - critic/score/mean:{pid + step}"
        for step in range(1, 9)
        for pid in (11, 22)
    ]
    (tmp_path / "verl.log").write_text("\n".join(rows))
    with pytest.raises(UnreadableRunError, match="2 runs: add one of #11, #22"):
        run_record(tmp_path / "verl.log")
    assert values(run_record(f"{tmp_path / 'verl.log'}#22"), "critic/score/mean") == [
        22.0 + step for step in range(1, 9)
    ]


@pytest.mark.parametrize("second", ["(TaskRunner pid=22)", "(Trainer pid=22)"])
def test_one_run_of_verl_by_several_processes(tmp_path: Path, second: str) -> None:
    first = "(TaskRunner pid=11)"
    turns = [first] * 4 + [second] * 4 if "TaskRunner" in second else [first, second] * 4
    (tmp_path / "verl.log").write_text(
        "\n".join(f"{who} step:{step} - critic/score/mean:0.5" for step, who in enumerate(turns))
    )
    assert len(run_record(tmp_path / "verl.log").steps) == 8


ROWS = {
    "an epoch in front": "Epoch:[1/2]({step}/9), Reward: {reward}, KL_ref: 0.1\n",
    "no sign between": "Iter {step}: Train loss 0.1, Total rewards mean {reward}, Peak mem 3.5 GB\n",
    "parts of a step": (
        "Step {step}/9 | Pass 0 | reward: 0.9\nStep {step}/9 | Pass 1 | reward: 0.1\nStep {step}/9 "
        "| reward: {reward}\n"
    ),
    "an object behind a logger": '2026-01-01T00:00:00Z stdout F {{"msg": "row", "step": {step}, "reward": {reward}}}\n',
    "an object with a wrapper": '[INFO] metrics_tag: {{"step": {step}, "metrics": {{"reward": {reward}}}}}\n',
    "nested names": (
        "(Runner pid=7) Step {step}\n(Runner pid=7) reward:\n(Runner pid=7)   max: 1.0\n(Runner "
        "pid=7)   mean: {reward}\n"
    ),
    "a panel": (
        "╭─ Metrics ─╮\n│ objective   scores: {reward} | kl: 0.1 │\n│ other       training_step: "
        "{step} │\n╰──╯\n"
    ),
    "a class": "INFO StepMetrics(step={step}, mean_reward={reward})\n",
    "a dictionary behind words": "step {step} metrics: {{'reward_mean': {reward}, 'kl': 0.1}}\n",
    "behind a bar": (
        " 3%|# | {step}/9 [00:01<00:09,  2.0s/it, reward=0.9]\r 3%|# | {step}/9 [00:01<00:09,  "
        "2.0s/it, reward={reward}]\n"
    ),
    "a fraction in brackets": "[{step}/9] reward: {reward} | kl: 0.1\n[eval @ step {step}] accuracy: 0.75\n",
    "a spread behind a number": "Iteration {step} complete: avg reward {reward} (± 0.02), kl 0.1\n",
    "a sign of a spread": "Step {step}: reward={reward}±0.02 kl=0.1\n",
    "blanks alone": "step {step}: reward {reward} loss 0.001 len 201\n",
    "many blanks behind a logger": "2026-01-01 10:00:00 INFO [train] step   {step}   reward  {reward}   kl 0.01\n",
    "blanks and units": "INFO:root:step {step}: time 3.5 s mean reward {reward} speed 12.5 tok/s\n",
    "an epoch is the step": "Epoch {step} mean reward: {reward}\n",
    "epochs besides steps": "Epoch {step} mean reward: 0.9\nstep {step}: reward {reward} loss 0.1\n",
    "the step amid words": "returns of step {step}: {reward}\n",
    "signs within one cell": "step {step} | reward {reward} | data  64 | gap mean=0.01 max=0.3 | 41.2s\n",
    "a loss in a room": (
        "INFO 11-02 10:00:07 [monitor.py:113] Step {step}: {{'rollout/reward/mean': {reward}, "
        "'actor/pg_loss': 0.1}}\n"
    ),
}


@each_case("form", ROWS.values())
def test_rows_of_other_loops(tmp_path: Path, form: str) -> None:
    rewards = [0.125, 0.25, 0.375, 0.5]
    (tmp_path / "run.log").write_text(
        "start\n"
        + "".join(form.format(step=step, reward=reward) for step, reward in enumerate(rewards))
    )
    record = run_record(tmp_path / "run.log")
    assert (record.steps["step"].to_list(), values(record, record.column("reward"))) == (
        [0, 1, 2, 3],
        rewards,
    )


@each_case(
    "line",
    [
        "Step {step}: the total is 12 and the loss of weight 5 kg",
        "Then step {step}: reward 0.5 loss 0.1",
        "Step {step}: take 3 apples",
        "In epoch {step} the reward: 0.5",
        "Epoch 1 reward: 0.5, loss: 0.{step}",
    ],
)
def test_prose_and_parts_of_an_epoch_are_no_rows(tmp_path: Path, line: str) -> None:
    (tmp_path / "run.log").write_text(
        "".join(line.format(step=step) + "\n" for step in range(1, 9))
    )
    with pytest.raises(UnreadableRunError, match="expected rows such as"):
        run_record(tmp_path / "run.log")


def test_words_beside_a_sign_are_no_names(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(
        "".join(f"step {step}: reward=0.5, took 5 s, 3 of 4 are done\n" for step in range(1, 5))
    )
    assert run_record(tmp_path / "run.log").metrics() == ("reward",)


def test_an_evaluation_that_trl_prints_is_no_row_of_another_loop(tmp_path: Path) -> None:
    rows = "".join(
        f"{{'eval_loss': 0.5, 'eval_reward': 0.{step}, 'step': {step}}}\n" for step in range(1, 5)
    )
    (tmp_path / "run.log").write_text(rows)
    assert run_record(tmp_path / "run.log").sources[0].reader == "trl_console"


def test_a_percentage_among_blanks_is_a_share(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(
        "".join(f"step {step}: acc {20 + step}.0% len 201\n" for step in range(1, 5))
    )
    record = run_record(tmp_path / "run.log")
    assert (values(record, "acc"), values(record, "len")) == ([0.21, 0.22, 0.23, 0.24], [201.0] * 4)


def test_steps_that_start_anew_with_each_epoch_are_counted_on(tmp_path: Path) -> None:
    rows = [
        f"Epoch:[{epoch}/2]({step}/3), Reward: {epoch}.{step}"
        for epoch in (1, 2)
        for step in (1, 2, 3)
    ]
    (tmp_path / "run.log").write_text("\n".join(rows))
    record = run_record(tmp_path / "run.log")
    assert (record.steps["step"].to_list(), values(record, "Reward")) == (
        [1, 2, 3, 4, 5, 6],
        [1.1, 1.2, 1.3, 2.1, 2.2, 2.3],
    )


def test_an_evaluation_printed_after_a_row_is_of_its_step(tmp_path: Path) -> None:
    rows = [
        f"Step {step}, mean_reward: 0.{step}" + ("\nEval success rate: 0.75" if step == 2 else "")
        for step in (1, 2, 3)
    ]
    (tmp_path / "run.log").write_text("\n".join(rows))
    record = run_record(tmp_path / "run.log")
    assert values(record, record.column("eval/reward")) == [None, 0.75, None]


def test_a_program_that_says_that_it_resumes_did(tmp_path: Path) -> None:
    rows = [f"step:{step} - critic/score/mean:0.5 - actor/entropy:0.4\n" for step in range(1, 9)]
    says = "(TaskRunner pid=7) Resuming from checkpoints/global_step_4\n"
    (tmp_path / "run.log").write_text("".join([*rows[:4], says, *rows[4:]]))
    assert "the program resumed after step 4" in run_record(tmp_path / "run.log").notes
    (tmp_path / "run.log").write_text(
        "".join([says, *rows, says.replace("Resuming", "It is resuming")])
    )
    assert not any("resumed" in note for note in run_record(tmp_path / "run.log").notes)
    raised = 'Traceback (most recent call last):\n  File "a.py", line 1\nOSError: gone\n'
    (tmp_path / "run.log").write_text("".join([*rows[:4], raised, says, *rows[4:]]))
    notes = run_record(tmp_path / "run.log").notes
    assert [note for note in notes if "step 4" in note] == ["the program resumed after step 4"]
    (tmp_path / "run.log").write_text("".join(row + says for row in rows * 4))
    assert sum("resumed" in note for note in run_record(tmp_path / "run.log").notes) <= 10


@pytest.mark.parametrize(
    "row",
    [
        'INFO:root:{{"step": {step}, "reward": 0.{step}}}',
        "global_step={step}, reward=0.{step}",
        "global_step: {step}, reward: 0.{step}, loss: 0.1",
        "INFO - train_step={step} | reward=0.{step}",
        "reward=0.{step}, global_step={step}",
    ],
)
def test_a_step_may_stand_behind_a_logger_or_have_an_underscore(row: str, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text("\n".join(row.format(step=step) for step in (1, 2, 3)))
    record = run_record(tmp_path / "run.log")
    assert values(record, "step") == [1, 2, 3]
    assert values(record, "reward") == [0.1, 0.2, 0.3]


@pytest.mark.parametrize(
    "beside",
    [
        'completion:{{"step": 9{step}, "reward": 0.9}}',
        "global_step: 9{step}\nloss: 0.1",
        "Timing: train_step=1{step}, rollout=20",
        "Saving checkpoint: global_step_9{step}, reward=0.9",
        "warmup_step=9{step}, reward=0.9",
    ],
)
def test_what_only_resembles_a_step_is_none(beside: str, tmp_path: Path) -> None:
    rows = [f"Step {step} | reward=0.{step}\n{beside.format(step=step)}" for step in (1, 2, 3)]
    (tmp_path / "run.log").write_text("\n".join(rows))
    record = run_record(tmp_path / "run.log")
    assert values(record, "step") == [1, 2, 3]
    assert values(record, "reward") == [0.1, 0.2, 0.3]


def verl_row(step: int) -> str:
    return f"step:{step} - critic/rewards/mean:0.5 - actor/entropy:0.4"


@pytest.mark.parametrize(
    "later",
    [
        "Step {step}/40 | reward=0.5 | kl=0.1",
        'INFO:train:{{"step": {step}, "reward": 0.5}}',
        "{{'loss': 0.1, 'reward': 0.5, 'epoch': 0.1}}",
    ],
)
def test_rows_of_another_form_before_the_first_and_behind_the_last_are_counted(
    later: str, tmp_path: Path
) -> None:
    is_trls = later.startswith("{{'")  # a file that begins so is read as TRL's
    for name, before in (("run.log", 0), *([] if is_trls else [("upgraded.log", 15)])):
        rows = [later.format(step=step) for step in range(before)]
        rows += [verl_row(step) for step in range(21, 41)]
        rows += [] if before else [later.format(step=step) for step in range(41, 61)]
        (tmp_path / name).write_text("\n".join(rows))
        record = run_record(tmp_path / name)
        assert len(record.steps) == 20
        where = "15 lines before the first row" if before else "20 lines behind the last row"
        (note,) = [note for note in record.notes if "name a reward" in note]
        says("readers/console/4", note, where=where)


def test_rewards_of_samples_around_every_row_are_no_other_form(tmp_path: Path) -> None:
    samples = [f"[sample {number}] reward: 1.0" for number in range(16)]
    rows = [line for step in range(1, 21) for line in (*samples, verl_row(step), *samples)]
    (tmp_path / "run.log").write_text("\n".join(rows))
    record = run_record(tmp_path / "run.log")
    assert len(record.steps) == 20
    assert not any("name a reward" in note for note in record.notes)


def test_a_line_of_two_numbers_is_no_row_of_verl() -> None:
    cells = " - actor/kl:0.5 - actor/entropy:0.1 - step:3"
    assert console._is_headless(f"pid 7{cells}")
    assert not console._is_headless(f"pid 7{cells.rpartition(' - ')[0]}")


def test_a_mean_reward_stands_beside_its_smallest_and_largest(tmp_path: Path) -> None:
    """A full stop behind a word is that of an abbreviation."""
    line = "Iteration {}/50 min. reward: 0.000 max. reward: 1.000 mean reward: {:.3f}\n"
    path = tmp_path / "train.log"
    path.write_text("".join(line.format(at, at / 64) for at in range(1, 51)))
    record = run_record(path)
    reward = record.steps[record.column("reward")].to_list()
    assert reward == pytest.approx([at / 64 for at in range(1, 51)], abs=1e-3)
