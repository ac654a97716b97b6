"""What the commands print of the runs that travel with the package, and what their pages show.

`answers.txt` has each command line and its answer, to be read; `make sentences` writes it anew. Words
are compared exactly, numbers to within one and a half of their last digit: processors round apart.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from groupwise.cli.app import main
from groupwise.examples import EXAMPLES, copy_example

TABLE = Path(__file__).with_name("answers.txt")
PROMPT = "$ groupwise "
SETTINGS = "--set momentum=0.9 --set learning_rate=1e-5 --set lag_kind=refresh"
COMMANDS = (
    *(f"diagnose {example.path} --why" for example in EXAMPLES.values()),
    "fit trl_run",
    "fit runs/verifier_broken",
    "forecast trl_run",
    "forecast runs/length_runaway",
    f"stability trl_run {SETTINGS} --set refresh_interval=4",
    "plan trl_run",
    "replay trl_run",
    "probe runs/sampler_mismatch",
    "compare runs/length_runaway runs/hacking_true_logged",
    "fleet runs",
    "watch runs/cut_off --once",
    "report trl_run -o healthy.html",
    "report runs/length_runaway -o failing.html",
)
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.(\d+))?(?:e([-+]?\d+))?")
DATE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC|[\d.]+ seconds")


class Shown(HTMLParser):
    """The text of a page, without scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.hidden = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.hidden = tag if tag in ("script", "style") else self.hidden

    def handle_endtag(self, tag: str) -> None:
        self.hidden = "" if tag == self.hidden else self.hidden

    def handle_data(self, data: str) -> None:
        if not self.hidden and data.strip():
            self.texts.append(" ".join(data.split()))


def answered(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints, with the page that it writes."""
    code = main(command.split())
    printed = capsys.readouterr()
    text = printed.out + printed.err
    for page in re.findall(r"-o (\S+)", command):
        shown = Shown()
        shown.feed(Path(page).read_text(encoding="utf-8"))
        text += "\n".join(shown.texts) + "\n"
    return f"{DATE.sub('DATE', text)}ends with {code}\n"


def parts(text: str) -> tuple[list[str], list[tuple[float, float]]]:
    """The words of a text, and its numbers with the size of their last digit."""
    numbers = [
        (
            float(match[0].replace(",", "")),
            10.0 ** (int(match[2] or 0) - len(match[1] or "")),
        )
        for match in NUMBER.finditer(text)
    ]
    return NUMBER.sub("#", text).splitlines(), numbers


def differences(text: str, other: str) -> Iterator[str]:
    """Lines whose words differ, and numbers that differ by more than rounding."""
    (words, numbers), (other_words, other_numbers) = parts(text), parts(other)
    lines = zip(words, other_words, strict=False)
    yield from (f"{old!r} is {new!r}" for old, new in lines if old != new)
    if len(words) != len(other_words):
        yield f"{len(words)} lines are {len(other_words)}"
    for (value, digit), (new, _) in zip(numbers, other_numbers, strict=False):
        if abs(value - new) > 1.5 * digit:
            yield f"{value:g} is {new:g}"


def kept() -> dict[str, str]:
    """The answers of the table."""
    pieces = TABLE.read_text(encoding="utf-8").split(PROMPT)[1:] if TABLE.exists() else []
    return dict(piece.split("\n", 1) for piece in pieces)


def test_the_examples_are_answered_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("sys.argv", ["groupwise"])  # a page says what it was made by
    for name in EXAMPLES:
        copy_example(name, tmp_path)
    answers = {command: answered(command, capsys) for command in COMMANDS}
    if "WRITE_SENTENCES" in os.environ:
        texts = (f"{PROMPT}{command}\n{answer}" for command, answer in answers.items())
        TABLE.write_text("".join(texts), encoding="utf-8")
    table = kept()
    assert [*table] == [*answers]
    different = {
        command: [*differences(table[command], answer)] for command, answer in answers.items()
    }
    assert {command: lines for command, lines in different.items() if lines} == {}


def test_words_numbers_and_lines_that_differ_are_said() -> None:
    text = "reward 0.79 → 0.06\nof 1,200 steps, lr 1e-5\n"
    assert [*differences(text, text)] == []
    assert [*differences(text, text.replace("0.06", "0.07"))] == []  # rounded otherwise
    assert [*differences(text, text.replace("0.06", "0.08"))] == ["0.06 is 0.08"]
    assert [*differences(text, text.replace("1,200", "1,203"))] == ["1200 is 1203"]
    assert [*differences(text, text.replace("1e-5", "3e-5"))] == ["1e-05 is 3e-05"]
    assert [*differences(text, text.replace("steps", "rows"))]
    assert [*differences(text, text + "more\n")] == ["2 lines are 3"]
