"""What a user is told, sentence by sentence: `sentences.tsv` has a key, the input and the sentence.

A test makes the input and hands over what came of it; `make sentences` writes the table anew.
"""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path

TABLE = Path(__file__).with_name("sentences.tsv")
COLUMNS = ("key", "input", "sentence")


def read() -> dict[str, dict[str, str]]:
    """Return the rows of the table by their keys."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    table = {row["key"]: row for row in rows}
    assert len(table) == len(rows), "two rows have one key"
    return table


def write(table: dict[str, dict[str, str]]) -> None:
    """Write the table, sorted by key."""
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(table[key] for key in sorted(table))


_TABLE = read()


def says(key: str, text: str, /, **given: object) -> None:
    """Compare a text with the sentence of a key; write it there where the table is made anew.

    In the table a name between angle brackets stands for what the test gives under that name.
    """
    values = {f"<{name}>": str(value) for name, value in given.items()}
    if "WRITE_SENTENCES" in os.environ:
        table = read()
        test = os.environ["PYTEST_CURRENT_TEST"].partition("::")[2]
        title = test.partition(" ")[0].partition("[")[0].removeprefix("test_")
        for name, value in sorted(values.items(), key=lambda entry: -len(entry[1])):
            text = re.sub(rf"(?<![\w<.]){re.escape(value)}(?![\w>])", name, text)
        table[key] = {"key": key, "input": title.replace("_", " "), "sentence": text}
        write(table)
        return
    sentence = _TABLE[key]["sentence"]
    assert all(name in sentence for name in values), f"{key}: a value stands in no sentence"
    for name, value in values.items():
        sentence = sentence.replace(name, value)
    assert text == sentence, f"{key}: see the sentence in {TABLE.name}"
