"""All completions with their probabilities, held against the policy's own sampling code and
against plain rows without branches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from groupwise.errors import InvalidArgumentError
from groupwise_lab.trainer.tasks import END, PAD, Task, make_task

torch = pytest.importorskip("torch")

from truth import OutcomeTree, outcome_log_probabilities, outcome_rewards

from groupwise_lab.trainer.policy import Policy, policy_size
from groupwise_lab.trainer.warm_up import right_probability


def tree_of(task: Task) -> OutcomeTree:
    return OutcomeTree.of(tokens=len(task.vocabulary), completion_length=task.completion_length)


def completions(tree: OutcomeTree) -> list[tuple[tuple[int, ...], bool]]:
    """Tokens of each outcome without END, and whether it ended."""
    token_OL, mask_OL = tree.rows()
    rows = [
        row[: int(length)].tolist() for row, length in zip(token_OL, mask_OL.sum(1), strict=True)
    ]
    return [(tuple(row[:-1]), True) if row[-1] == END else (tuple(row), False) for row in rows]


def test_outcomes_are_all_different_and_as_many_as_said() -> None:
    for tokens, length in ((4, 1), (4, 2), (3, 4), (5, 3)):
        tree = OutcomeTree.of(tokens=tokens, completion_length=length)
        listed = completions(tree)
        assert len(set(listed)) == len(listed) == tree.outcomes
        assert all(END not in row for row, _ in listed)
        assert all(len(row) == length for row, ended in listed if not ended)
        assert tree.branches == len({row for row, ended in listed if ended and row})


def test_probabilities_sum_to_one_also_of_untrained_policies_and_padded_prompts() -> None:
    task = make_task("addition", level=1)
    policy = Policy(policy_size("tiny"), vocabulary_size=len(task.vocabulary), seed=3).double()
    prompt_PL = policy.prompt_tokens(task, task.train[:3])
    prompt_PL = torch.cat([torch.full((3, 2), PAD), prompt_PL], dim=1)
    for tree in (
        OutcomeTree.of(tokens=len(task.vocabulary), completion_length=length)
        for length in (1, 2, 3)
    ):
        log_PO = outcome_log_probabilities(policy, prompt_PL, tree)
        assert log_PO.shape == (3, tree.outcomes)
        np.testing.assert_allclose(log_PO.exp().sum(1).detach().numpy(), 1.0, atol=1e-12)


def test_branches_in_one_row_give_what_rows_of_their_own_give(
    make_policy: Callable[[], Any], small_task: Task
) -> None:
    policy = make_policy().double()
    prompt_PL = policy.prompt_tokens(small_task, small_task.train[:2])
    padded = torch.cat([torch.full((2, 3), PAD), prompt_PL], dim=1)
    padded[0] = torch.cat([torch.full((2,), PAD), prompt_PL[0], prompt_PL[0, :1]])
    for prompts, length in ((prompt_PL, 2), (padded, 1), (padded, 2)):
        tree = OutcomeTree.of(tokens=len(small_task.vocabulary), completion_length=length)
        together = outcome_log_probabilities(policy, prompts, tree)
        alone = outcome_log_probabilities(policy.forward, prompts, tree)
        np.testing.assert_allclose(together.detach().numpy(), alone.detach().numpy(), atol=1e-10)


def test_each_outcome_has_the_probability_the_policy_itself_gives_it(
    make_policy: Callable[[], Any], small_task: Task
) -> None:
    policy, tree = make_policy().double(), tree_of(small_task)
    problems = small_task.train[:2]
    prompt_PL = policy.prompt_tokens(small_task, problems)
    listed = completions(tree)
    row = torch.zeros(len(listed), small_task.completion_length, dtype=torch.long)
    counts = torch.zeros(len(listed), small_task.completion_length, dtype=torch.float64)
    for place, (tokens, ended) in enumerate(listed):
        whole = [*tokens, END] if ended else list(tokens)
        row[place, : len(whole)], counts[place, : len(whole)] = torch.tensor(whole), 1.0
    own = (
        (policy.log_probabilities(prompt_PL, row.repeat(2, 1)) * counts.repeat(2, 1))
        .sum(1)
        .reshape(2, -1)
    )
    log_probability = outcome_log_probabilities(policy, prompt_PL, tree)
    np.testing.assert_allclose(log_probability.detach().numpy(), own.detach().numpy(), atol=1e-10)


def test_value_by_enumeration_is_the_probability_of_the_right_answer(
    make_policy: Callable[[], Any], small_task: Task
) -> None:
    policy, tree = make_policy().double(), tree_of(small_task)
    problems = small_task.train[:30]
    with torch.no_grad():
        share = (
            outcome_log_probabilities(policy, policy.prompt_tokens(small_task, problems), tree)
            .exp()
            .numpy()
        )
    value = float((share * outcome_rewards(small_task, problems, tree)).sum(1).mean())
    assert value == pytest.approx(right_probability(policy, small_task, problems), abs=1e-12)


def test_every_problem_has_one_right_outcome_and_padding_inside_an_answer_is_none(
    small_task: Task,
) -> None:
    tree = tree_of(small_task)
    reward_PO = outcome_rewards(small_task, small_task.train, tree)
    assert (reward_PO.sum(1) == 1).all()
    listed = completions(tree)
    for problem, row in zip(small_task.train, reward_PO, strict=True):
        tokens, ended = listed[int(row.argmax())]
        assert ended
        assert PAD not in tokens
        assert (
            "".join(small_task.vocabulary.symbols[token - 2] for token in tokens if token > END)
            == problem.answer
        )
    longer = OutcomeTree.of(tokens=len(small_task.vocabulary), completion_length=3)
    assert (outcome_rewards(small_task, small_task.train[:2], longer).sum(1) == 1).all()


def test_too_many_outcomes_are_refused_in_one_sentence() -> None:
    with pytest.raises(InvalidArgumentError, match="completions to enumerate, got 19"):
        OutcomeTree.of(tokens=20, completion_length=6)
    with pytest.raises(InvalidArgumentError):
        OutcomeTree.of(tokens=20, completion_length=0)


def test_a_prompt_beyond_the_context_is_refused(small_task: Task) -> None:
    policy = Policy(policy_size("tiny"), vocabulary_size=len(small_task.vocabulary), context=5)
    policy_prompts = torch.full((1, 5), 3)
    with pytest.raises(InvalidArgumentError, match="context of 5 tokens"):
        outcome_log_probabilities(policy, policy_prompts, tree_of(small_task))
