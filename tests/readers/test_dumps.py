"""Dumps of completions: what each trainer's shape of a row says of its completions, and the words
that logs have for it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cases import each_case

from groupwise.readers import run_record
from groupwise.readers.dumps import DUMPS, dump_of
from groupwise.readers.source import vocabulary

DIALOGUE = [
    {"role": "user", "content": "2+3?"},
    {"role": "assistant", "content": "let me see"},
    {"role": "user", "content": "go on"},
    {"role": "assistant", "content": [{"text": "5"}]},
]
PARTED = {"prompt": "2+3?", "completion": 'let me see\ngo on\n[{"text": "5"}]'}
SPOKEN = {"prompt": None, "completion": "2+3=5"}


@each_case(
    ("dump", "row", "rollouts"),
    [
        (
            "ms-swift",
            {
                "step": [4, 5],
                "prompt": ["p", "q"],
                "completion": ["a", "b"],
                "advantages": [-0.5, 0.5],
                "accuracy": [0.0, 1.0],
                "solution": ["3", "4"],
                "solution_number": [3, 4],
            },
            [
                {
                    "step": 4 + row,
                    "prompt": "pq"[row],
                    "completion": "ab"[row],
                    "advantages": row - 0.5,
                    "rewards/accuracy": float(row),
                    "rewards/solution_number": 3 + row,
                }
                for row in range(2)
            ],
        ),
        (
            "wandb",
            {
                "columns": ["step", "question", "response", "score"],
                "data": [[3, "p", "a", 0.0], [4, "q", "b", 1.0]],
            },
            [
                {"step": 3, "prompt": "p", "completion": "a", "reward": 0.0},
                {"step": 4, "prompt": "q", "completion": "b", "reward": 1.0},
            ],
        ),
        (
            "art",
            {"group_index": 7, "reward": 0.25, "messages": DIALOGUE},
            [PARTED | {"reward": 0.25, "group_index": 7}],
        ),
        # The last advantage that is not 0 is that of the last turn.
        (
            "nemo-rl",
            {"rewards": 0.5, "content": DIALOGUE, "advantages": [0.0, 0.25, 0.75, 0.0]},
            [PARTED | {"reward": 0.5, "advantage": 0.75}],
        ),
        (
            "nemo-rl",
            {"rewards": 0.5, "content": "2+3=5", "advantages": [0.0, 0.0]},
            [SPOKEN | {"reward": 0.5, "advantage": 0.0}],
        ),
        ("nemo-rl", {"rewards": 0.5, "content": "2+3=5"}, [SPOKEN | {"reward": 0.5}]),
        (
            "prime-rl",
            {
                "group": {"id": 12},
                "step": 3,
                "traces": [
                    {
                        "rewards": {"right": {"score": 1.0, "weight": 0.5}, "brief": 0.25},
                        "nodes": [{"advantages": [0.5]}, {"advantages": [0.75, 0.0]}, {}],
                    },
                    {"rewards": {"right": 1.0}, "reward": 0.125},
                    {"rewards": 2.0},
                    {"nodes": []},
                ],
            },
            [
                {"group": "12", "step": 3} | trace
                for trace in (
                    {
                        "rewards/right": 1.0,
                        "rewards/brief": 0.25,
                        "reward": 0.75,
                        "advantage": 0.75,
                    },
                    {"rewards/right": 1.0, "reward": 0.125},
                    {"reward": 2.0},
                    {"reward": None},
                )
            ],
        ),
        (
            "groups",
            {"group": "g", "rewards": [[0.0, 1.0], [0.5]], "step": 3},
            [
                {"group": group, "step": 3, "reward": reward}
                for group, reward in (("g/0", 0.0), ("g/0", 1.0), ("g/1", 0.5))
            ],
        ),
        (
            "groups",
            {"prompt": "p", "rewards": [0.0, 1.0], "outputs": ["a", "b"], "truncated": [1, 0]},
            [
                {"prompt": "p", "reward": 0.0, "completion": "a", "truncated": 1},
                {"prompt": "p", "reward": 1.0, "completion": "b", "truncated": 0},
            ],
        ),
    ],
)
def test_a_row_of_a_dump_has_its_completions(
    dump: str, row: dict[str, Any], rollouts: list[dict[str, Any]]
) -> None:
    assert dump_of([row, row]) == dump
    assert list(DUMPS[dump][1](row)) == rollouts


# How logs spell what the record keeps of a completion: the likeliest first.
SPELT = {
    "prompt": "prompt input question problem query instruction messages",
    "completion": "completion output response generation text",
    "reward": "reward score total_reward rewards/total reward/total rewards acc accuracy correct",
    "group": "group group_id group_index prompt_id prompt_index uid problem_id question_id "
    "question_index id",
    "rollout_step": "step global_step training_step train_step grpo_step iteration",
    "function_prefix": "reward/ rewards/ reward_fns/ reward_functions/ reward_funcs/ "
    "reward_components/",
    "advantage": "advantage advantages",
    "length": "length completion_length response_length completion_len response_token_length "
    "completion_tokens response_tokens num_tokens lengths completion_lengths response_lengths",
    "entropy": "entropy token_entropy entropies token_entropies",
    "log_probability": "log_probability logprob log_prob logprobs log_probs token_logprobs",
    "truncated": "truncated is_truncated finish_reason finish_reasons",
}
SPELLINGS = {name: words.split() for name, words in SPELT.items()}


def test_the_words_of_a_completion_are_those_that_are_read_here() -> None:
    assert {name: list(vocabulary(name)) for name in SPELLINGS} == SPELLINGS


@each_case("turn", range(max(map(len, SPELLINGS.values()))))
def test_a_completion_is_read_however_a_log_spells_it(turn: int, tmp_path: Path) -> None:
    """Both groups have one prompt, so that only their names tell them apart."""
    key = {name: words[turn % len(words)] for name, words in SPELLINGS.items()}
    reasons = ("stop", "length") if "reason" in key["truncated"] else (False, True)
    rows = [
        {
            key["prompt"]: "p",
            key["completion"]: "ab"[late],
            key["reward"]: late / 4,
            key["group"]: f"{step} {group}",
            key["rollout_step"]: step,
            f"{key['function_prefix']}brief": late / 8,
            key["advantage"]: late - 0.5,
            key["length"]: late + 2,
            key["entropy"]: late + 0.25,
            key["log_probability"]: -1.0 - late,
            key["truncated"]: reasons[late],
        }
        for step in (3, 4)
        for group in range(2)
        for late in range(2)
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(map(json.dumps, rows)))
    read = run_record(log).rollouts
    assert read is not None
    assert read.to_dicts() == [
        {
            "step": step,
            "prompt_id": group,
            "prompt": "p",
            "completion": "ab"[late],
            "reward": late / 4,
            "reward/brief": late / 8,
            "advantage": late - 0.5,
            "length": late + 2,
            "entropy": late + 0.25,
            "log_probability": -1.0 - late,
            "ended": 1.0 - late,
        }
        for step in (3, 4)
        for group in range(2)
        for late in range(2)
    ]


@each_case(
    ("rewards", "completions"),
    [
        ("rewards", "completions"),
        ("reward", "completion"),
        ("group_rewards", "responses"),
        ("scores", "outputs"),
        ("total_rewards", "texts"),
        ("reward_list", "completions"),
    ],
)
def test_a_group_on_one_line_is_read_however_a_log_spells_it(
    rewards: str, completions: str
) -> None:
    row = {rewards: [0.0, 1.0], completions: ["a", "b"]}
    assert dump_of([row, row]) == "groups"
    assert list(DUMPS["groups"][1](row)) == [
        {"reward": 0.0, "completion": "a"},
        {"reward": 1.0, "completion": "b"},
    ]


@each_case("key", ["loss", "learning_rate", "lr", "grad_norm", "reward_std"])
def test_a_step_of_training_is_no_group_on_one_line(key: str) -> None:
    row = {"rewards": [0.0, 1.0], key: 0.5}
    assert dump_of([row, row]) == ""
