"""Dumps of completions: what each trainer's shape of a row says of its completions."""

from __future__ import annotations

from typing import Any

from tests.cases import each_case

from groupwise.readers.dumps import DUMPS, dump_of

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
