"""What an evaluation came to: answers of models, with the scores and comparisons that are asked of them, as plain data too.

It asks no model and prints nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.trainer.accuracy import Answers, Comparison, Score, TransferRow


@dataclass(frozen=True, slots=True)
class Examination:
    """What came out."""

    labels: tuple[str, ...]  # of the models, a run's checkpoints by their step
    answers: tuple[Mapping[str, Answers], ...]  # of each model, by benchmark
    k: int  # of pass@k
    level: float  # of the intervals
    transfer: tuple[TransferRow, ...]  # over checkpoints, where it was asked for
    trained_on: str | None  # benchmark that they were trained on, where named
    notes: tuple[str, ...]  # what is to be known

    def scores(self, model: int, benchmark: str) -> tuple[Score, Score]:
        """Return mean@n and pass@k of one model on one benchmark."""
        from groupwise.trainer.accuracy import mean_at, pass_at

        answers = self.answers[model][benchmark]
        return mean_at(answers, level=self.level), pass_at(answers, self.k, level=self.level)

    def comparisons(self) -> tuple[Comparison, ...]:
        """Return the second model against the first, where there are two."""
        from groupwise.trainer.accuracy import compare

        if len(self.answers) != 2:
            return ()
        first, second = self.answers
        return tuple(compare(first[name], second[name], level=self.level) for name in first)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        models = []
        for place, label in enumerate(self.labels):
            rows = []
            for name, answers in self.answers[place].items():
                mean, passed = self.scores(place, name)
                counts = {field: getattr(answers, field) for field in ("problems", "samples", "undecided", "cut", "too_long")}
                right = answers.right_P.tolist()
                rows.append({"benchmark": name, **counts, "mean": mean.as_dict(), f"pass@{self.k}": passed.as_dict(), "right": right})
            models.append({"model": label, "benchmarks": rows})
        found: dict[str, Any] = {"models": models, "k": self.k, "level": self.level, "notes": self.notes}
        found["comparisons"] = [comparison.as_dict() for comparison in self.comparisons()]
        return found | {"trained_on": self.trained_on, "transfer": [row.as_dict() for row in self.transfer]}
