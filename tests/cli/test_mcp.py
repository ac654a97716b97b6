"""What an agent may ask: tools that answer in bounds, and calls that reach nothing else."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import polars as pl
import pytest
from tests.cases import each_case
from tests.cli.deadly import Hanging

from groupwise.cli import mcp
from groupwise.cli import mcp as command
from groupwise.cli.app import PROGRAM, main
from groupwise.cli.mcp import ARGUMENTS, BRIEF, DETAILED, TOOLS, Folders, bounded, schema_of
from groupwise.plain import to_json
from groupwise.readers import run_record
from groupwise.record.run import RunRecord, steps_table
from groupwise_lab.worlds.logs import run_of

OPENED: list[str] = []  # what calls opened, started or changed, once all walls let it through


def noted(event: str, given: tuple[Any, ...]) -> None:
    if getattr(mcp._inside, "folders", None) is None:
        return
    if event in ("open", "os.listdir", "os.scandir") and isinstance(given[0], str | bytes):
        OPENED.append(os.path.realpath(os.fsdecode(given[0])))
    elif event.startswith(("subprocess.", "os.exec", "os.posix_spawn", "os.system", "socket.")):
        OPENED.append(event)


@pytest.fixture(scope="module")
def hooked() -> None:
    """Note what happens behind the walls: hooks are asked in the order in which they came."""
    mcp._build()
    sys.addaudithook(noted)


def rows(name: str) -> str:
    return "".join(
        f'{{"step": {t}, "reward": {0.5 + t % 7 / 100}, "{name}": 1}}\n' for t in range(40)
    )


@pytest.fixture
def served(tmp_path: Path, hooked: None, monkeypatch: pytest.MonkeyPatch) -> Folders:
    """A folder of runs with what leads out of it, and a log outside."""
    home, outside = tmp_path / "runs", tmp_path / "outside"
    for folder in (home / "good", home / "linked", home / "checkpoint-5", outside):
        folder.mkdir(parents=True)
    (home / "good" / "log.jsonl").write_text(rows("mine"))
    (outside / "log.jsonl").write_text(rows("SECRET"))
    (outside / "config.json").write_text('{"run_name": "SECRET", "num_generations": 8}')
    (home / "linked" / "log.jsonl").symlink_to(outside / "log.jsonl")
    (home / "out").symlink_to(outside)
    (home / "file.jsonl").symlink_to(outside / "log.jsonl")
    (home / "loop").symlink_to(home / "loop")
    os.mkfifo(home / "fifo.jsonl")
    RunRecord("saved", steps_table(range(40), {"reward": [0.5] * 40})).save(home / "saved")
    (home / "trained").mkdir()
    history = [{"step": t, "reward": 0.5} for t in range(40)]
    state = json.dumps({"log_history": history, "global_step": 40})
    (home / "trained" / "trainer_state.json").write_text(state)
    monkeypatch.chdir(outside)
    return Folders([home])


LOG = "good/log.jsonl"
HOSTILE: list[tuple[str, dict[str, Any]]] = [
    *(
        ("judge", {"run": path})
        for path in (
            "../outside/log.jsonl",
            "good/../../outside/log.jsonl",
            "log.jsonl",  # lies where the server stands
            "/etc/passwd",
            "out/log.jsonl",
            "out",
            "file.jsonl",
            "linked",
            "linked/log.jsonl",
            "loop",
            "fifo.jsonl",
            "/dev/zero",
            "/proc/self/environ",
            "~/.bashrc",
            "",
            "a" * 5000,
            f"{LOG}\0",
            f"{LOG}\n/etc/passwd",
            "\u202egood",
            "--help",
            "--config=/etc/passwd",
            "file:///etc/passwd",
            "http://127.0.0.1:9/log.jsonl",
            "C:\\Windows\\win.ini",
            "$(touch hacked)",
            "; touch hacked",
            f"{LOG}#../../outside/log.jsonl",
            "saved#../../etc",
            "trained#../../etc",
            5,
            None,
            ["good"],
            {"path": "good"},
        )
    ),
    ("judge", {}),
    ("judge", {"run": LOG, "config": "/etc/passwd"}),
    ("judge", {"run": LOG, "detail": "yes"}),
    *(
        ("judge", {"run": LOG, "until": until})
        for until in ("5", True, float("nan"), float("inf"), -1e300, 10**400)
    ),
    *(
        ("judge", {"run": LOG, "settings": settings})
        for settings in (
            {"config": "/etc/passwd"},
            {"group_size": "8 --config /etc/passwd"},
            {"": 1},
            {"a=b\0": 1},
            {str(n): n for n in range(10_000)},
            "group_size=8",
        )
    ),
    *(("forecast", {"run": LOG, "metric": metric}) for metric in ("m" * 10_000, "a\x1b[2J", 7)),
    ("forecast", {"run": LOG, "at": "1," * 199 + "$(touch hacked)"}),
    ("stability", {"run": LOG, "settings": {"learning_rate": "1e-5; touch hacked"}}),
    ("compare", {"runs": [LOG]}),
    ("compare", {"runs": [LOG] * 1000}),
    ("compare", {"runs": [LOG, "../outside/log.jsonl"]}),
    ("compare", {"runs": [[LOG], [LOG]]}),
    ("compare", {"runs": LOG}),
    ("fleet", {"folder": "/"}),
    ("fleet", {"folder": ".."}),
    ("fleet", {"folder": "linked"}),
    ("diagnose", {"run": LOG}),
    ("__import__('os').system('touch hacked')", {}),
]


@each_case(("name", "given"), HOSTILE)
def test_no_call_reads_elsewhere_or_starts_anything(
    served: Folders, tmp_path: Path, name: str, given: dict[str, Any]
) -> None:
    before = sorted(tmp_path.rglob("*"))
    OPENED.clear()
    text, failed = served.call(name, given)
    assert failed or (name == "fleet" and json.loads(text)["counts"] == {"unreadable": 1})
    assert len(text) <= BRIEF
    assert "SECRET" not in text
    assert "root:" not in text
    assert "Traceback" not in text
    assert text.isprintable()  # one line
    libraries = (*map(os.path.realpath, (*sys.path, sys.prefix, sys.base_prefix, mcp._MAPS)),)
    home = str(served.folders[0])
    assert [
        place
        for place in OPENED
        if not place.startswith(
            (home, *(path for path in libraries if path != str(tmp_path / "outside")))
        )
    ] == []
    assert sorted(tmp_path.rglob("*")) == before


def test_there_are_forty_hostile_calls() -> None:
    assert len(HOSTILE) >= 40


@pytest.mark.slow
def test_each_tool_answers_within_its_bounds(tmp_path: Path) -> None:
    """A run of 1,000 rows: 4 kB and 1.5 seconds of a processor."""
    home = tmp_path / "runs"
    for kind in ("length_runaway", "to_the_top"):
        replace(run_of(kind, 2, rows=1000)[0], name=kind).save(home / kind)
    served = Folders([home])
    given = {"run": "to_the_top", "runs": ["length_runaway", "to_the_top"], "folder": "."}
    served.call("judge", {"run": "to_the_top"})  # loads what all of them need
    answers = {}
    for tool in TOOLS.values():
        began = time.process_time()
        text, failed = served.call(tool.name, {tool.takes[0]: given[tool.takes[0]]})
        assert time.process_time() - began < 1.5, tool
        assert len(text) <= BRIEF, tool
        assert not failed or tool.name == "stability", text
        answers[tool.name] = text
    assert json.loads(answers["fleet"])["runs"][0]["run"] == "length_runaway"
    assert json.loads(answers["compare"])["answer"].startswith("length_runaway failed")
    brief, _ = served.call("judge", {"run": "length_runaway"})
    whole, _ = served.call("judge", {"run": "length_runaway", "detail": True})
    assert "checks" not in json.loads(brief)
    assert len(json.loads(whole)["checks"]) > 20
    text, failed = served.call(
        "judge", {"run": "length_runaway", "until": 20, "settings": {"x": 1}}
    )
    assert failed


def test_answers_name_runs_as_they_can_be_asked_about(served: Folders) -> None:
    """By folders where the logs have one name, and never by where the folders are."""
    good = served.folders[0] / "good"
    (good.parent / "best").mkdir()
    (good.parent / "best" / "log.jsonl").write_text((good / "log.jsonl").read_text())
    rows_of = {
        row["run"]: row for row in json.loads(served.call("fleet", {"folder": "."})[0])["runs"]
    }
    assert rows_of["good"]["path"] == "good"
    assert json.loads(served.call("judge", {"run": rows_of["good"]["path"]})[0])["state"]
    answer, _ = served.call("compare", {"runs": ["good", "best"]})
    assert json.loads(answer)["answer"].startswith("best does not clearly differ from good")
    texts = [served.call(name, given)[0] for name, given in HOSTILE]
    assert not [text for text in texts if str(served.folders[0]) in text]


def test_runs_of_several_folders_are_named_with_their_folder(
    served: Folders, tmp_path: Path
) -> None:
    """Of two folders that hold a run of one name each is reached; so is a folder by its own."""
    other = tmp_path / "other"
    shutil.copytree(served.folders[0] / "good", other / "good")
    both = Folders([*served.folders, other])
    for folder in both.folders:
        run = f"{folder.name}/good"
        assert both._place(run) == str(folder / "good")
        (answer,) = json.loads(both.call("fleet", {"folder": run})[0])["runs"]
        assert answer["path"].startswith(run)
    assert both._place("other") == str(other)


def test_a_fleet_without_a_folder_is_every_run_that_is_served(
    served: Folders, tmp_path: Path
) -> None:
    """An agent cannot guess the names of the folders; what is listed can be asked about."""
    other = tmp_path / "other"
    shutil.copytree(served.folders[0] / "good", other / "good")
    both = Folders([*served.folders, other])
    rows_of = json.loads(both.call("fleet", {})[0])["runs"]
    paths = {row["path"] for row in rows_of if row["state"] != "unreadable"}
    assert paths == {"runs/good", "runs/saved", "runs/trained", "other/good"}
    assert [both.call("judge", {"run": path})[1] for path in sorted(paths)] == [False] * 4
    alone = json.loads(both.call("fleet", {"folder": "other"})[0])["runs"]
    assert [row["path"] for row in alone] == ["other/good"]


def test_every_argument_of_a_call_becomes_a_word_of_the_command(served: Folders) -> None:
    given = {"run": LOG, "until": 20, "settings": {"group_size": 8, "model": "m"}, "detail": True}
    assert served._words(TOOLS["judge"], given) == [
        f"{served.folders[0]}/{LOG}",
        "--until=20",
        "--set=group_size=8",
        "--set=model=m",
    ]


def test_a_relative_an_absolute_and_a_named_run_are_the_same(served: Folders) -> None:
    here = served.folders[0]
    answers = {served.call("judge", {"run": run})[0] for run in ("good", f"{here}/good", LOG)}
    assert len(answers) == 1
    assert json.loads(answers.pop())["state"] == "warning"


def test_a_table_that_is_a_link_out_is_not_read(served: Folders, tmp_path: Path) -> None:
    """Parquet is opened by another library, which no hook sees: we open it first."""
    home = served.folders[0] / "tabled"
    (home / "completions").mkdir(parents=True)
    history = [{"step": t, "reward": 0.5, "epoch": t / 9} for t in range(1, 40)]
    (home / "trainer_state.json").write_text(
        json.dumps({"log_history": history, "global_step": 39})
    )
    table: dict[str, list[Any]] = {
        name: [f"{name}{n}" for n in range(8)] for name in ("prompt", "completion")
    }
    table |= {"step": [1] * 8, "reward": [float(n % 2) for n in range(8)]}
    outside, name = tmp_path / "outside", "completions_00001.parquet"
    pl.DataFrame(table).write_parquet(outside / name)
    (home / "completions" / name).symlink_to(outside / name)
    rollouts = run_record(home).rollouts
    assert rollouts is not None
    assert len(rollouts) == 8
    asked = ("judge", {"run": "tabled", "detail": True})
    linked = json.loads(served.call(*asked)[0])
    (home / "completions" / name).unlink()
    assert json.loads(served.call(*asked)[0])["checks"] == linked["checks"]


def test_a_folder_below_a_training_is_no_way_up(tmp_path: Path, hooked: None) -> None:
    """Readers look into the folder above a checkpoint; not where that is not served."""
    checkpoint = tmp_path / "SECRET" / "checkpoint-5"
    checkpoint.mkdir(parents=True)
    history = [{"step": t, "reward": 0.5} for t in range(40)]
    state = json.dumps({"log_history": history, "global_step": 40})
    (checkpoint / "trainer_state.json").write_text(state)
    (checkpoint.parent / "config.json").write_text('{"num_generations": 8}')
    OPENED.clear()
    text, failed = Folders([checkpoint]).call("judge", {"run": "."})
    assert not failed
    assert json.loads(text)["state"] == "cannot_tell"
    inside = str(checkpoint.resolve())
    above = str(checkpoint.parent.resolve())
    assert [place for place in OPENED if place.startswith(above) and inside not in place] == []


def test_an_answer_is_cut_where_it_is_long() -> None:
    long = {"rows": [{"text": "x" * 500, "n": n} for n in range(1000)], "checks": [1]}
    brief = json.loads(bounded(long, detailed=False))
    assert brief["rows"][-1].startswith("and ")
    assert "checks" not in brief
    assert len(bounded(long, detailed=False)) <= BRIEF
    assert BRIEF < len(bounded(long, detailed=True)) <= DETAILED
    assert bounded({"a": 1}, detailed=False) == '{"a":1}'


@each_case(
    ("entries", "texts", "letters", "kept"),
    [
        (3, 1, 1000, (3, 1000)),
        (3, 1, 1500, (3, 1000)),
        (250, 1, 10, (200, 10)),
        (8, 1, 900, (8, 400)),
        (100, 1, 100, (30, 100)),
        (12, 1, 900, (8, 400)),
        (8, 3, 900, (3, 400)),
        (8, 9, 900, (1, 400)),
        (8, 30, 900, (1, 60)),
    ],
)
def test_an_answer_keeps_as_much_as_has_room(
    entries: int, texts: int, letters: int, kept: tuple[int, int]
) -> None:
    row = {f"{number}": "x" * letters for number in range(texts)}
    rows = json.loads(bounded({"rows": [row] * entries}, detailed=False))["rows"]
    more = [f"and {entries - kept[0]} more"] if kept[0] < entries else []
    assert rows[kept[0] :] == more
    assert {len(text) for shown in rows[: kept[0]] for text in shown.values()} == {kept[1]}


def test_every_tool_is_a_command_and_every_argument_one_of_its_options() -> None:
    for tool in TOOLS.values():
        options = {
            option
            for parameter in PROGRAM.command({"judge": "diagnose"}.get(tool.name, tool.name)).params
            for option in parameter.opts
        }
        named = [name for name in tool.takes[1:] if ARGUMENTS[name][0] != "object"]
        assert {f"--{name.replace('_', '-')}" for name in named} <= options
        needed = [] if tool.name == "fleet" else [tool.takes[0]]
        assert schema_of(tool)["required"] == needed
    assert {name for tool in TOOLS.values() for name in tool.takes} | {"detail"} == set(ARGUMENTS)


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module with what is used of the SDK: a server that keeps its handlers and a stream."""
    kept: dict[str, Any] = {}

    class Server:
        def __init__(self, name: str, **handlers: Any) -> None:
            kept.update(handlers, name=name)

        def create_initialization_options(self) -> None:
            """Nothing."""

        async def run(self, *_: Any) -> None:
            listed = await kept["on_list_tools"](None, None)
            kept["tools"] = [tool.name for tool in listed.tools]
            for name, given in kept.pop("calls"):
                request = SimpleNamespace(name=name, arguments=given)
                kept.setdefault("results", []).append(await kept["on_call_tool"](None, request))

    class Streams:
        async def __aenter__(self) -> tuple[None, None]:
            return None, None

        async def __aexit__(self, *_: Any) -> None:
            """Nothing."""

    names = ("Tool", "ListToolsResult", "CallToolResult", "TextContent", "CallToolRequestParams")
    modules: dict[str, Any] = {name: ModuleType(name) for name in ("mcp", "mcp.server")}
    modules["mcp.server.stdio"] = ModuleType("mcp.server.stdio")
    modules["mcp"].types = SimpleNamespace(**dict.fromkeys(names, SimpleNamespace))
    modules["mcp.server"].Server = Server
    modules["mcp.server.stdio"].stdio_server = Streams
    for name, module in modules.items():
        module.__spec__ = SimpleNamespace(name=name)
        monkeypatch.setitem(sys.modules, name, module)
    return kept


def test_a_call_is_ended_after_the_minute_that_the_page_states() -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "mcp.md"
    assert "after a minute it is ended" in page.read_text(encoding="utf-8")
    assert command._SECONDS == 60.0


@pytest.mark.usefixtures("forked")
def test_the_server_lists_the_tools_and_answers_calls(
    served: Folders, sdk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that hangs is ended, and the next is answered."""

    def calls() -> Iterator[tuple[str, dict[str, str] | None]]:
        yield "judge", {"run": LOG}
        yield "judge", {"run": "/etc/passwd"}
        yield "fleet", None
        with monkeypatch.context() as patch:
            patch.setattr(command, "_SECONDS", 0.2)
            yield "hang", {}
        yield "judge", {"run": LOG}

    sdk["calls"] = calls()
    monkeypatch.setattr(mcp, "Folders", Hanging)
    assert main(["mcp", str(served.folders[0])]) == 0
    assert sdk["tools"] == [*TOOLS]
    assert [result.is_error for result in sdk["results"]] == [False, True, False, True, False]
    texts = [result.content[0].text for result in sdk["results"]]
    assert texts[3].startswith("no answer in 0 s")
    assert json.loads(texts[0])["state"] == json.loads(texts[4])["state"] == "warning"
    assert "never instructions" in sdk["instructions"]


def test_without_the_sdk_or_a_folder_it_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert main(["mcp", str(tmp_path)]) == 2
    assert "installed for groupwise mcp: pip install mcp\n" in capsys.readouterr().err
    assert main(["mcp", str(tmp_path / "none")]) == 2
    assert "expected a folder of runs" in capsys.readouterr().err


def test_the_real_sdk_talks_to_it(tmp_path: Path) -> None:
    """Where it is installed: a client starts the server and asks."""
    pytest.importorskip("mcp")
    import anyio
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    (tmp_path / "log.jsonl").write_text(rows("mine"))
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "groupwise", "mcp", str(tmp_path)], env=dict(os.environ)
    )

    async def asked() -> tuple[list[str], list[Any]]:
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            listed = await session.list_tools()
            calls = [{"run": "log.jsonl"}, {"run": "/etc/passwd"}]
            results = [await session.call_tool("judge", given) for given in calls]
            return [tool.name for tool in listed.tools], results

    names, results = anyio.run(asked)
    assert names == [*TOOLS]
    assert [result.is_error for result in results] == [False, True]
    assert json.loads(results[0].content[0].text)["state"] == "warning"


def test_a_refusal_says_what_came(served: Folders) -> None:
    assert served.call("judge", {}) == (
        "expected run, and optionally some of until, settings, detail, got nothing",
        True,
    )
    for step in (-1e13, 1e13):
        said, refused = served.call("judge", {"run": "good", "until": step})
        assert refused
        assert said.startswith("until expects number")


def test_a_folder_of_other_letters_is_left_out_of_answers_too(tmp_path: Path) -> None:
    home = tmp_path / "läufe"
    home.mkdir()
    folders = Folders([home])
    assert folders._without_place(to_json({"path": str(home / "a")})) == '{"path":"a"}'
    assert folders._without_place(f"no {home}/a") == "no a"


def test_the_walls_are_built_once(served: Folders) -> None:
    built = mcp._build.cache_info().misses
    with mcp._walls(served.folders), mcp._walls(served.folders):
        assert mcp._build.cache_info().misses == built
