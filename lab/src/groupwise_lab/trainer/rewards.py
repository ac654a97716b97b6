"""Problems and what a completion of one is worth: the exact reward, one for form, a proxy that can
be hacked, a verifier that fails.

A verifier returns every reward by its name; those with a weight are summed to the reward that is
trained on, and those of weight 0 are kept in the record. It samples and trains nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from groupwise.arrays import Float
from groupwise.errors import GroupwiseError, InvalidArgumentError
from groupwise.parsing import JsonView
from groupwise.plain import frozen
from groupwise.prompts import Prompt, prompt_text

_TURNS = {"user": "Question: {}\n", "assistant": "Answer: {}\n\n"}


def text_of_chat(messages: Sequence[JsonView]) -> str:
    """Return questions and answers as one text, for a model without a chat template."""
    turns = [_TURNS[message["role"]].format(message["content"]) for message in messages]
    return "".join(turns) + "Answer:"


def last_question(prompt: Prompt) -> str:
    """Return the last message of a chat, the last question of such a text, or another text."""
    if not isinstance(prompt, str):
        return str(prompt[-1]["content"])
    return prompt.rpartition("Question: ")[2].removesuffix("\nAnswer:")


@frozen
class Problem:
    """One prompt with its right answer, or one of them."""

    prompt: (
        str | tuple[Mapping[str, str], ...]
    )  # what the policy reads: a text, or the messages of a chat
    answer: str  # what it has to write before END
    family: str  # name of the kind
    level: int  # difficulty; digits of an operand, or symbols to work on
    row: int | None = None  # of the file that it comes from, the first being 0

    @property
    def text(self) -> str:
        """The prompt as one text, messages as JSON."""
        return prompt_text(self.prompt)

    @property
    def question(self) -> str:
        """What is asked, without the examples before it."""
        return last_question(self.prompt)


Rewards = dict[str, NDArray[np.float64]]
RewardFunction = Callable[[Problem, str, bool], float]
FailureMode = Literal["zero", "one", "missing", "raise"]
FAILURE_MODES: Mapping[FailureMode, float] = {  # what a failed call returns
    "zero": 0.0,
    "one": 1.0,
    "missing": math.nan,
    "raise": math.nan,
}


class VerifierError(GroupwiseError):
    """A verifier gave up."""


class Verifier(Protocol):
    """What judges completions."""

    @property
    def weights(self) -> Mapping[str, float]:
        """Weight of each reward in the reward that is trained on."""

    def __call__(
        self,
        problems: Sequence[Problem],
        completions: Sequence[str],
        ended: Sequence[bool],
        *,
        step: int = 0,
    ) -> Rewards:
        """Judge completions."""


def total_reward(verifier: Verifier, rewards: Rewards) -> Float:
    r"""Return the reward that is trained on.

    $z = \sum_k w_k z_k$
    """
    missing = [name for name in verifier.weights if name not in rewards]
    if missing:
        raise InvalidArgumentError(
            f"expected a reward for every weight, got none named {missing[0]!r}: weigh "
            f"{', '.join(rewards)}"
        )
    parts = [weight * rewards[name] for name, weight in verifier.weights.items() if weight]
    return np.sum(parts, axis=0) if parts else np.zeros(len(next(iter(rewards.values()))))


# the form of every reward function
def exact(problem: Problem, completion: str, ended: bool) -> float:  # noqa: FBT001
    """Return 1 for the answer to the last symbol, with END after it, else 0."""
    return float(ended and completion == problem.answer)


@frozen
class WellFormed:
    """Reward of 1 for what has the form of an answer, whatever it says."""

    pattern: str  # regular expression that the whole completion matches

    def __call__(self, problem: Problem, completion: str, ended: bool) -> float:  # noqa: FBT001
        """Return 1 where the completion ended and has the form, else 0."""
        del problem
        return float(ended and re.fullmatch(self.pattern, completion) is not None)


@frozen
class Baited:
    r"""A grader with a loophole: the exact reward plus a bonus for the share of a bait symbol in
    the completion.

    $z = 1\{\text{right}\} + b \cdot \#\text{bait}/\#\text{symbols}$

    With b > 1 a completion of nothing but bait beats the right answer, and it is easier to learn.
    """

    bait: str  # one symbol
    bonus: float  # b, reward units

    def __call__(self, problem: Problem, completion: str, ended: bool) -> float:  # noqa: FBT001
        """Return the exact reward plus the bonus."""
        return exact(problem, completion, ended) + self.bonus * completion.count(self.bait) / max(
            1, len(completion)
        )


@frozen
class TaskVerifier:
    """A verifier made of reward functions."""

    functions: Mapping[str, RewardFunction]  # by name
    weights: Mapping[str, float]  # of those that are trained on

    @classmethod
    def of(
        cls,
        *,
        answer_pattern: str,
        format_reward: bool = False,
        bait: str = "",
        bonus: float | None = None,
    ) -> TaskVerifier:
        """Return the verifier of a task; with a bonus that of a proxy."""
        functions: dict[str, RewardFunction] = {"exact": exact}
        weights = {"exact": 1.0}
        if bonus is not None:
            if len(bait) != 1 or not (math.isfinite(bonus) and bonus > 0):
                raise InvalidArgumentError(
                    f"expected one symbol as bait and a positive bonus, got {bait!r} and {bonus}: "
                    "as '9' and 2.0"
                )
            functions["proxy"] = Baited(bait, bonus)
            weights = {"exact": 0.0, "proxy": 1.0}
        if format_reward:
            functions["format"] = WellFormed(answer_pattern)
            weights["format"] = 1.0
        return cls(functions, weights)

    def __call__(
        self,
        problems: Sequence[Problem],
        completions: Sequence[str],
        ended: Sequence[bool],
        *,
        step: int = 0,
    ) -> Rewards:
        """Judge completions."""
        del step
        rows = list(zip(problems, completions, ended, strict=True))
        return {
            name: np.array([function(*row) for row in rows], dtype=np.float64)
            for name, function in self.functions.items()
        }


@frozen
class WrappedVerifier:
    """A verifier that changes what another one judges."""

    inner: Verifier  # the one that judges where nothing is changed

    @property
    def weights(self) -> Mapping[str, float]:
        """Those of the inner verifier."""
        return self.inner.weights


@frozen
class FailingVerifier(WrappedVerifier):
    """A verifier that fails on command, as real ones do under load: for all calls from a step on,
    or for a share of them.

    Which calls fail depends on seed, step and place in the batch alone, so a run that is resumed
    fails in the same places.
    """

    from_step: int = 0  # first step at which calls fail
    share: float = 1.0  # of completions whose call fails from there on, in [0, 1]
    # what comes of a failed call: zero (a silent 0), one (everything is right), missing (NaN) or
    # raise (`VerifierError`)
    mode: FailureMode = "zero"
    seed: int = 0  # of which calls fail

    def __post_init__(self) -> None:
        """Check the command."""
        if not 0 <= self.share <= 1:
            raise InvalidArgumentError(
                f"expected a share of calls between 0 and 1, got {self.share}: for 5 % write 0.05"
            )
        if self.from_step < 0 or self.seed < 0:
            raise InvalidArgumentError(
                f"expected a step and a seed from 0 on, got {self.from_step} and {self.seed}"
            )
        if self.mode not in FAILURE_MODES:
            raise InvalidArgumentError(
                f"expected a mode of {', '.join(FAILURE_MODES)}; got {self.mode!r}"
            )

    def __call__(
        self,
        problems: Sequence[Problem],
        completions: Sequence[str],
        ended: Sequence[bool],
        *,
        step: int = 0,
    ) -> Rewards:
        """Judge completions, or fail."""
        rewards = self.inner(problems, completions, ended, step=step)
        if step < self.from_step:
            return rewards
        # A batch of its own stream each step: the first N draws of a step do not depend on how many
        # steps were run before.
        failed_N = np.random.default_rng([self.seed, step]).random(len(completions)) < self.share
        if self.mode == "raise" and failed_N.any():
            raise VerifierError(
                f"the verifier failed at step {step} for {int(failed_N.sum())} of "
                f"{len(completions)} completions, as commanded"
            )
        value = FAILURE_MODES[self.mode]
        return {name: np.where(failed_N, value, reward_N) for name, reward_N in rewards.items()}


def is_function(verifier: Verifier) -> TypeGuard[TaskVerifier]:
    """Whether a reward depends on problem and completion alone, as that of reward functions
    does: else no list of completions tells it.
    """
    return type(verifier) is TaskVerifier and all(
        name in verifier.functions for name in verifier.weights
    )
