"""What is usual of a quantity in public healthy runs, for the eye alone: no rule asks it.

The table is made by `lab/experiments/diagnosis/usual.py`.
"""

from __future__ import annotations

import math
import re

import numpy as np

from groupwise.analysis.charts import Line
from groupwise.arrays import Float
from groupwise.files import table_rows
from groupwise.record.run import RunRecord

_BANDS = list(table_rows("analysis/usual.tsv"))
LENGTH = "completion_length"  # in times that of the first rows
_SIZE = re.compile(r"(?<![\d.])(\d{1,4}(?:\.\d{1,3})?) ?b(?![a-z])", re.IGNORECASE)
_CLASSES = {1.0: "up to 1B", 4.0: "1B to 4B", 15.0: "4B to 15B", math.inf: "above 15B"}
_FIRST = 5  # rows whose median is the first length


def kind_of(record: RunRecord, name: str = "") -> tuple[str, str, str]:
    """Return trainer, class of size and adapter of a run, each "" where it is not known."""
    config = record.config
    model = f"{config.value('model') or ''} {name}"
    sizes = _SIZE.findall(model)
    size = (
        next(label for most, label in _CLASSES.items() if float(sizes[0]) <= most) if sizes else ""
    )
    lora = bool(config.value("lora_rank")) or "lora" in model.lower()
    return str(config.value("framework") or ""), size, "lora" if lora else ""


def unit_of(quantity: str, value_T: Float) -> float:
    """Return what the table's numbers of a quantity are multiples of in a run."""
    return float(np.median(value_T[:_FIRST])) or 1.0 if quantity == LENGTH else 1.0


def _parts(row: dict[str, str]) -> list[str]:
    """The kind of run that a row is of."""
    return [row[name] for name in ("trainer", "size", "adapter") if row[name]]


def usual_line(record: RunRecord, quantity: str, step_T: Float, value_T: Float) -> Line | None:
    """Return 5 to 95 % of the rows of healthy runs of the narrowest kind as a band.

    None where too few runs are known.
    """
    kind = {*kind_of(record, record.name)}
    fitting = [
        row for row in _BANDS if row["quantity"] == quantity and kind.issuperset(_parts(row))
    ]
    if not fitting:
        return None
    row = max(fitting, key=lambda candidate: len(_parts(candidate)))
    parts = ", ".join(_parts(row))
    low, high = (float(row[end]) * unit_of(quantity, value_T) for end in ("low", "high"))
    band = f"5 to 95 % of the rows of {row['runs']} healthy runs{parts and f' ({parts})'}"
    ends = float(step_T[0]), float(step_T[-1])
    return Line("usual", "usual", ends, (), (low, low), (high, high), band)
