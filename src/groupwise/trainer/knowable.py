"""What can be known of a reward without sampling: by the verifier itself and the policy's tokens, never by a reward's name.

One right completion, so that its probability is the value; a function of the completion, so that completions can be enumerated; or
neither. It computes no value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from groupwise.trainer.rewards import TaskVerifier, Verifier, exact

if TYPE_CHECKING:
    from groupwise.trainer.policy import Actor
    from groupwise.trainer.tasks import Task


def answer_weight(actor: Actor, task: Task) -> float | None:
    """Return what the one right completion of a problem earns, where nothing else earns anything and it has one spelling in tokens."""
    if not is_function(task.verifier):
        return None
    functions = {name: function for name, function in task.verifier.functions.items() if task.verifier.weights.get(name)}
    if not functions or any(function is not exact for function in functions.values()) or not one_spelling(actor, task):
        return None
    return float(sum(task.verifier.weights[name] for name in functions))


def is_function(verifier: Verifier) -> TypeGuard[TaskVerifier]:
    """Whether a reward depends on problem and completion alone, as that of reward functions does: else no list of completions tells it."""
    return type(verifier) is TaskVerifier and all(name in verifier.functions for name in verifier.weights)


def one_spelling(actor: Actor, task: Task) -> bool:
    """Whether every text in the task's symbols is one string of the actor's tokens."""
    from groupwise.trainer.policy import Policy

    return isinstance(actor, Policy) or bool(getattr(actor, "one_spelling", lambda _task: False)(task))
