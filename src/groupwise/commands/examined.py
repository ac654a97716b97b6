"""What an evaluation came to: answers of models, with the scores and comparisons that are asked of them, as plain data too.

It asks no model and prints nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupwise.trainer.evaluation import Answers, Comparison, Score
    from groupwise.trainer.transfer import TransferRow


@dataclass(frozen=True, slots=True)
class Examination:
    """What came out.

    Args:
        labels: of the models, a run's checkpoints by their step.
        answers: of each model, by benchmark.
        k: of pass@k.
        level: of the intervals.
        transfer: over checkpoints, where it was asked for.
        trained_on: benchmark that they were trained on, where named.
        notes: what is to be known.
    """

    labels: tuple[str, ...]
    answers: tuple[Mapping[str, Answers], ...]
    k: int
    level: float
    transfer: tuple[TransferRow, ...]
    trained_on: str | None
    notes: tuple[str, ...]

    def scores(self, model: int, benchmark: str) -> tuple[Score, Score]:
        """Return mean@n and pass@k of one model on one benchmark."""
        from groupwise.trainer.evaluation import mean_at, pass_at

        answers = self.answers[model][benchmark]
        return mean_at(answers, level=self.level), pass_at(answers, self.k, level=self.level)

    def comparisons(self) -> tuple[Comparison, ...]:
        """Return the second model against the first, where there are two."""
        from groupwise.trainer.evaluation import compare

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
