"""The documentation says what the program does: everything is mentioned, every example runs, every
link leads somewhere.
"""

from __future__ import annotations

import doctest
import importlib.util
import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cases import each_case

from groupwise import examples

ROOT = Path(__file__).resolve().parent.parent
DOCS, LAB_DOCS = ROOT / "docs", ROOT / "lab" / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "lab" / "README.md",
    *sorted(DOCS.rglob("*.md")),
    *sorted(LAB_DOCS.rglob("*.md")),
]
WRITTEN = [page for page in PAGES if "reference" not in page.parts]
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SKILL = ROOT / "SKILL.md"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(
    r"(?<![\w/.<{*-])(?:lab/)?(?:tests|benchmarks|experiments|scripts|src)/[\w./-]*\w"
)
CITED = re.compile(r"((?:lab/)?tests/[\w/]+\.py)::(test_\w+)")
# What `make reference` writes: whole pages, and the tables that stand below a comment.
MADE = re.compile(r"<!-- table \w+ -->.*?<!-- end -->", re.DOTALL)


SLOW_PAGES = {"evaluate.md", "sweep.md", "backtest.md", "train.md"}  # they train or backtest
# Words that are written by hand, of the instrument's pages and of the laboratory's.
MOST_WORDS = {DOCS: 18_000, LAB_DOCS: 45_000}


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def with_examples() -> list[Path]:
    return [
        page
        for page in [*WRITTEN, SKILL]
        if {"python", "console"}
        & {language for language, _ in FENCE.findall(page.read_text(encoding="utf-8"))}
    ]


def programs() -> dict[Path, Any]:
    """The program that each tree of pages is about."""
    from groupwise.cli.app import PROGRAM
    from groupwise_lab.cli.app import PROGRAM as LABORATORY

    return {DOCS: PROGRAM, LAB_DOCS: LABORATORY}


def words(text: str) -> int:
    """The words of a page: what holds a letter or a digit, figures of tables included."""
    return sum(re.search(r"\w", word) is not None for word in MADE.sub("", text).split())


def test_what_is_written_by_hand_keeps_its_budget() -> None:
    made = set(script("make_reference").pages())
    for docs, most in MOST_WORDS.items():
        count = sum(
            words(page.read_text(encoding="utf-8"))
            for page in docs.rglob("*.md")
            if page not in made
        )
        assert count <= most, f"{name_of(docs)} has {count:,} words: cut what only narrates"


def test_every_page_is_linked_from_the_first_or_from_the_list_of_decisions() -> None:
    lists = (DOCS / "index.md", DOCS / "decisions" / "index.md")
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in lists
        for target in LINK.findall(page.read_text(encoding="utf-8"))
    }
    assert set(DOCS.rglob("*.md")) - linked - {DOCS / "index.md"} == set()


def test_what_did_not_work_is_a_page_and_no_diary() -> None:
    assert words((LAB_DOCS / "log.md").read_text(encoding="utf-8")) <= 1500


@each_case("page", sorted([*DOCS.glob("how-to/*.md"), *LAB_DOCS.glob("how-to/*.md")]))
def test_a_page_of_how_to_is_read_at_one_sitting(page: Path) -> None:
    assert 150 <= words(page.read_text(encoding="utf-8")) <= 550


@each_case("page", [*PAGES, SKILL])
def test_paths_and_tests_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    home = page.parent if page.name == "README.md" else ROOT
    missing = [
        path
        for path in PATH.findall(text)
        if not (home / path).exists() and not list(home.glob(f"{path}*"))
    ]
    assert missing == []
    cited = [
        f"{path}::{name}"
        for path, name in CITED.findall(text)
        if f"def {name}(" not in (ROOT / path).read_text(encoding="utf-8")
    ]
    assert cited == []


def quantities() -> set[str]:
    """The canonical names of what a log can hold: those in the readers' rules, and those found in
    the embedded run.
    """
    from groupwise.readers import run_record
    from groupwise.readers.keys import known_quantities

    names = set(known_quantities())
    names |= {meaning.quantity for meaning in run_record(examples.trl_run()).meanings}
    return {re.sub(r"_(min|max)$", "", name.removeprefix("eval/").split("/")[0]) for name in names}


def test_every_command_has_a_page_that_mentions_every_option() -> None:
    shared = (DOCS / "how-to" / "reading-a-log.md").read_text(encoding="utf-8")
    for docs, program in programs().items():
        for name in program.commands:
            page = docs / "how-to" / f"{name}.md"
            assert page.exists(), f"`{program.name} {name}` needs {name_of(page)}"
            text = page.read_text(encoding="utf-8") + shared
            for parameter in program.command(name).params:
                if parameter.param_type_name == "option" and not parameter.hidden:
                    assert any(
                        f"`{option}" in text or f" {option}" in text for option in parameter.opts
                    ), f"{name}: {parameter.opts} is on no page"


def test_the_options_of_the_program_itself_are_in_the_tutorial() -> None:
    import typer

    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    assert [
        option
        for parameter in typer.main.get_command(programs()[DOCS].group()).params
        for option in parameter.opts
        if option not in text
    ] == []


def test_every_law_is_explained() -> None:
    from groupwise.forecasting.laws import LAWS

    text = (DOCS / "theory" / "laws.md").read_text(encoding="utf-8")
    for law in LAWS:
        assert f"## {law.name}" in text
        section = text.split(f"## {law.name}")[1].split("\n## ")[0]
        assert [name for name in law.parameters if f"`{name}`" not in section] == [], law.name


def test_every_cause_says_what_it_must_show_and_has_one_page_with_what_to_do() -> None:
    from groupwise.diagnostics.causes import CAUSES

    overview = (DOCS / "causes.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^Must show: \S.*\.$", overview, re.MULTILINE)) == len(CAUSES)
    playbook = {
        page.stem: page.read_text(encoding="utf-8") for page in (DOCS / "playbook").glob("*.md")
    }
    assert {row.page for row in CAUSES.values()} == set(playbook)
    for row in CAUSES.values():
        cause = re.escape(row.label.format(column="a column"))
        figures = re.findall(rf"^- \*{cause}\*: (.*)$", playbook[row.page], re.MULTILINE)
        assert figures == [
            row.do.format(
                back="restart from step N", onset=" of step N", reward="reward", weight=""
            )
        ], cause


@each_case("page", sorted((DOCS / "playbook").glob("*.md")))
def test_a_page_of_the_playbook_is_short_and_says_what_why_what_to_do_and_what_to_log(
    page: Path,
) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 40
    assert re.findall(r"^\*\*(What you see|Why|Do first|Log)\.\*\*", text, re.MULTILINE) == [
        "What you see",
        "Why",
        "Do first",
        "Log",
    ]
    # The first action is that of the judgement, which the table below has.
    first = re.search(r"^\*\*Do first\.\*\* (.*)\n\n<!-- table causes -->$", text, re.MULTILINE)
    assert first is not None
    assert first[1].lower().endswith("what the cause asks for:")


def test_every_check_is_named() -> None:
    from groupwise.diagnostics.judge import CHECKS

    overview = (DOCS / "theory" / "judgement.md").read_text(encoding="utf-8")
    assert [name for name in CHECKS if f"`{name}`" not in overview] == []


def test_every_reader_is_explained() -> None:
    from groupwise.readers import READERS

    text = (DOCS / "reference" / "formats.md").read_text(encoding="utf-8")
    assert [reader.name for reader in READERS if f"`{reader.name}`" not in text] == []


def test_every_metric_is_explained() -> None:
    text = (DOCS / "metrics.md").read_text(encoding="utf-8")
    assert [name for name in sorted(quantities()) if f"`{name}`" not in text] == []


def test_every_setting_is_explained() -> None:
    from groupwise.record.run import RULES

    text = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")
    assert [name for name in RULES if f"`{name}`" not in text] == []


def script(name: str) -> Any:
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_up_to_date() -> None:
    for page, text in script("make_reference").pages().items():
        assert page.read_text(encoding="utf-8") == text, (
            f"run `make reference`: {name_of(page)} is out of date"
        )


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, judged_once: None) -> Path:
    """An empty folder of a reader of the docs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    return tmp_path


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page.name in SLOW_PAGES else [])
        for page in with_examples()
    ],
    ids=name_of,
)
@pytest.mark.usefixtures("workplace", "forked", "read_once")
def test_examples_run(page: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """All examples of a page run in order, as one would type them, and print what the page shows,
    with `...` for what it leaves out.
    """
    namespace: dict[str, Any] = {"__name__": "__docs__"}
    for language, body in FENCE.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            exec(compile(body, name_of(page), "exec"), namespace)
            capfd.readouterr()
        elif language == "console":
            run_console(body, name_of(page), capfd)


def run_console(body: str, where: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Run the commands of both programs in a block; a failing one needs `$ echo $?` below it, and
    a crash is never right.
    """
    mains = {program.name: program.run for program in programs().values()}
    code = 0
    for command, shown in console(body):
        if command == "echo $?":
            printed = f"{code}\n"
        elif (name := command.partition(" ")[0]) in mains:
            code = mains[name](shlex.split(command)[1:])
            captured = capfd.readouterr()
            printed = captured.out + captured.err
            assert code in (0, 1, 2, 3), f"{where}: `{command}` ended with {code}\n{printed}"
            assert code == 0 or "echo $?" in body, f"{where}: `{command}` failed\n{printed}"
        else:
            continue  # the installing of things, and other programs
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert not shown or doctest.OutputChecker().check_output(shown, printed, flags), (
            f"{where}: $ {command}\n{printed}"
        )


def console(body: str) -> list[tuple[str, str]]:
    """Commands of a console block, each with the output shown below it."""
    pairs: list[tuple[str, str]] = []
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, shown = re.sub(r"\\\n\s*", "", part).partition("\n")
        pairs.append((command.strip(), shown.strip() and shown))
    return pairs


# Programs that lines of `sh` begin with beside groupwise, and why a block with one is not run here.
ELSEWHERE = {
    "uvx": "it fetches from the network",
    "pipx": "it fetches from the network",
    "pip": "it fetches from the network",
    "ssh": "it needs another machine",
    "export": "its address is the reader's own",
    "claude": "it is another program",
    "python": "it trains",
    "make": "it trains",
    "groupwise-lab": "it trains",
}
SHELL = [
    pytest.param(body, id=f"{name_of(page)}-{number}")
    for page in [*PAGES, SKILL]
    for number, (language, body) in enumerate(FENCE.findall(page.read_text(encoding="utf-8")), 1)
    if language in ("sh", "bash")
]


@pytest.mark.parametrize("body", SHELL)
@pytest.mark.usefixtures("workplace", "forked", "read_once")
def test_lines_of_a_shell_run_as_printed_from_an_empty_folder(body: str) -> None:
    """Up to the first line of another program; what serves until it is stopped looks once."""
    run = programs()[DOCS].run
    for line in re.split(r" && |\n", re.sub(r"\\\n\s*", "", body).strip()):
        name, *words = shlex.split(line, comments=True)
        if name != "groupwise":
            pytest.skip(f"{name}: {ELSEWHERE[name]}")
        code = run([*words, "--once"] if words[0] == "watch" else words)
        assert code in ((0, 1, 3) if words[0] in ("diagnose", "watch", "fleet") else (0,)), line


@each_case(
    "page",
    [*PAGES, SKILL, *(ROOT / name for name in ("VISION.md", "CHANGELOG.md", "llms.txt"))],
)
def test_internal_links_resolve(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in LINK.findall(text):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{name_of(page)} links to {target}"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{name_of(page)} links to {target}: no such heading"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and mkdocs make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip())
        for heading in headings
    }


def test_every_page_is_in_the_navigation() -> None:
    yaml_load = pytest.importorskip("mkdocs.utils.yaml").yaml_load
    place = script("both_trees").place
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert len(yaml_load(navigation)["nav"]) > 3
    assert [name_of(page) for page in PAGES[2:] if f": {place(page)}\n" not in navigation] == []


def test_a_link_between_the_trees_leads_on_the_site_where_it_leads_on_disk() -> None:
    pytest.importorskip("mkdocs")
    hook = script("both_trees")
    for source, written, on_site in (
        (DOCS / "index.md", "[a](../lab/docs/log.md#speed)", "[a](lab/log.md#speed)"),
        (LAB_DOCS / "how-to" / "x.md", "[a](../../../docs/lags.md)", "[a](../../lags.md)"),
        (DOCS / "how-to" / "x.md", "[a](https://x.org/a.md)", "[a](https://x.org/a.md)"),
        (DOCS / "index.md", "[a](../VISION.md)", "a (`VISION.md`)"),
    ):
        file = SimpleNamespace(abs_src_path=str(source), src_uri=hook.place(source))
        page = SimpleNamespace(file=file)
        assert hook.on_page_markdown(written, page=page, config=None, files=None) == on_site


def test_the_readme_names_the_files_that_exist() -> None:
    """Every path in the file map of the README is there."""
    text = (
        (ROOT / "README.md").read_text(encoding="utf-8").split("## File map")[1].split("\n## ")[0]
    )
    for path in re.findall(r"^\s*(?:\| )?`([\w./-]+)`", text, re.MULTILINE):
        assert (ROOT / path).exists(), f"README.md names {path}"


def test_the_first_screen_of_the_readme_has_a_picture_a_line_to_try_and_three_sentences() -> None:
    """Its links: how far to trust it, and the questions."""
    screen = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## ")[0]
    assert screen.index("![") < screen.index("```sh")
    assert len(re.findall(r"^uvx", screen, re.MULTILINE)) == 1
    name = screen.rpartition("```")[2]
    assert len(re.findall(r"\.(?=\s)", name)) == 3
    assert {"docs/trust.md", "docs/faq.md"} == {*LINK.findall(name)}
    assert len(screen.split()) < 150


def test_one_sentence_says_everywhere_what_it_does() -> None:
    from groupwise.cli.app import PROGRAM

    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    sentence = next(line for line in lines if line and not line.startswith("#"))
    assert sentence.endswith("what to change.")
    assert PROGRAM.about == sentence
    for name in ("VISION.md", "pyproject.toml", "mkdocs.yml", "docs/index.md", "llms.txt"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert sentence in re.sub(r" \([^)]*\)", "", text), name  # llms.txt names formats within


def test_a_coding_agent_finds_every_command_of_the_skill_and_its_header() -> None:
    text = SKILL.read_text(encoding="utf-8")
    header = re.match(r"---\nname: groupwise\ndescription: (.{80,600})\n---\n", text)
    assert header is not None
    body = text.split("---", 2)[2]
    for program in programs().values():
        assert set(re.findall(rf"{program.name} (\w+)", body)) <= set(program.commands)


def test_the_notebook_prints_what_it_keeps() -> None:
    module = script("make_notebook")
    for cell, outputs in module.executed(json.loads(module.NOTEBOOK.read_text(encoding="utf-8"))):
        kept, came = (
            [_text(output) for output in outputs_of_cell]
            for outputs_of_cell in (cell["outputs"], outputs)
        )
        assert came == kept, f"run scripts/make_notebook.py: {''.join(cell['source'])}"


def _text(output: dict[str, Any]) -> list[str]:
    """The text of an output; how a library draws is its own."""
    return list(output["text"] if "text" in output else output["data"]["text/plain"])
