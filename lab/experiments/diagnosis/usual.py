"""What is usual: entropy, KL, gradient norm, clip share, growth of length and gap of the sampler in
public healthy runs, by trainer, size of the model and LoRA.

    python lab/experiments/diagnosis/usual.py [FOLDER]

Writes src/groupwise/analysis/usual.tsv: 5 %, the median and 95 % over the rows, where each source
counts as much as another and so does each run of a source. No band rests on fewer than five runs
or three sources. FOLDER and labels are those of labels.py; the file holds no number of a log but
these.
"""

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path

import numpy as np
from labels import HEALTHY, arguments, data_folder, labels_in, opened

import groupwise
from groupwise.analysis.summary import LENGTH, kind_of, unit_of
from groupwise.diagnostics.signals import Evidence
from groupwise.errors import GroupwiseError

TABLE = Path(groupwise.__file__).parent / "analysis" / "usual.tsv"
MEASURES = ("entropy", "kl", "gradient_norm", "clip_ratio", LENGTH, "sampler_mismatch")
FEWEST_RUNS, FEWEST_SOURCES = 5, 3
SHARES = np.linspace(0.005, 0.995, 100)
UsualKey = tuple[str, str, str]


def sources(home: Path) -> Mapping[str, tuple[str, str]]:
    """The repository of each file, and what is said of its model."""
    origin_of = {}
    for line in (home / "MANIFEST.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 5 and " @ " in cells[2]:
            origin_of[cells[1]] = cells[2].split(" @ ")[0], f"{cells[5]} {cells[4]}"
    with (home / "hard" / "LABELS.tsv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            origin_of.setdefault(
                f"hard/{row['file']}", (row["repo"], f"{row['path']} {row['note']}")
            )
    return origin_of


def measured(home: Path) -> Iterator[tuple[str, UsualKey, str, np.ndarray]]:
    """Yield of each healthy run and quantity its source, kind, and quantiles over its rows."""
    origins = sources(home)
    for label in labels_in(home):
        file = label.file.split("#")[0]
        if label.label not in HEALTHY or file not in origins:
            continue
        try:
            record = opened(home, label.file)
        except GroupwiseError:
            continue
        repository, model = origins[file]
        kind = kind_of(record, f"{label.file} {model}")
        if repository == "unslothai/notebooks":  # all of them train an adapter
            kind = (kind[0], kind[1], "lora")
        for measure in MEASURES:
            signal = Evidence(record).quantity(measure)
            if signal is not None and len(signal) >= 10:
                value = np.abs(signal.value_T) / unit_of(measure, signal.value_T)
                yield repository, kind, measure, np.quantile(value, SHARES)


def bands(home: Path) -> Iterator[list[str]]:
    """Yield the rows of the table: of each kind of run and each wider one."""
    held = defaultdict(list)
    for repository, kind, measure, values in measured(home):
        for wide in product((True, False), repeat=3):
            wider = tuple("" if share else part for share, part in zip(wide, kind, strict=True))
            if all(share or part for share, part in zip(wide, kind, strict=True)):
                held[(measure, *wider)].append((repository, values))
    for key, runs in sorted(held.items()):
        each = {repository for repository, _ in runs}
        if len(runs) < FEWEST_RUNS or len(each) < FEWEST_SOURCES:
            continue
        count = {name: sum(repository == name for repository, _ in runs) for name in each}
        value = np.concatenate([values for _, values in runs])
        weight = np.repeat([1 / count[name] for name, _ in runs], len(SHARES))
        order = np.argsort(value)
        share = (np.cumsum(weight[order]) - weight[order] / 2) / weight.sum()
        ends = np.interp([0.05, 0.5, 0.95], share, value[order])
        yield [*key, *(f"{end:.3g}" for end in ends), str(len(runs)), str(len(each))]


def main() -> None:
    """Write the table."""
    rows = list(bands(data_folder(arguments(__doc__, "folder").folder)))
    head = ["quantity", "trainer", "size", "adapter", "low", "median", "high", "runs", "sources"]
    with TABLE.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows([head, *rows])
    print(f"{len(rows)} bands")


if __name__ == "__main__":
    main()
