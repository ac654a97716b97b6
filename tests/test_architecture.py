"""The house: who may import whom, what loads at start, how large a function may be, what a
docstring must say.
"""

from __future__ import annotations

import ast
import inspect
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest
from scripts.measure_house import BUDGETS, tokens
from tests.cases import each_case
from tests.processes import run_forked
from tests.sources import nodes, statements, tree

import groupwise

PACKAGE = Path(groupwise.__file__).parent
HEAVY = {
    "torch",
    "trl",
    "transformers",
    "datasets",
    "verl",
    "ray",
    "submitit",
    "wandb",
    "tensorboard",
    "starlette",
    "uvicorn",
}
SLOW_TO_LOAD = HEAVY | {"matplotlib", "scipy", "polars", "pandas", "numpy"}

ROOT = Path(__file__).resolve().parent.parent
LABORATORY = ROOT / "lab"
COLUMNS = 100
PRAGMA = re.compile(r"  # (noqa|type: ignore)\b.*")

RUN_MAIN = "from groupwise.cli.app import main\ntry: main()\nexcept SystemExit: pass"
COMMANDS = {"cli", "__main__"}

# What each room may import, besides itself: data goes down, from a record to arrays to results to
# pages. A room that is not listed may import nothing: a new one is entered here with its reason.
FOUNDATION = {
    "errors",
    "arrays",
    "intervals",
    "limits",
    "parsing",
    "plain",
    "prompts",
    "wording",
    "files",
    "processes",
    "threads",
}
SERIES = FOUNDATION | {"record", "series"}
MATHEMATICS = {
    "forecasting",
    "edge",
    "estimators",
}  # arrays in, results out: they know no record
COMPUTING = {
    "forecasting",
    "edge",
    "estimators",
    "comparison",
    "diagnostics",
    "series",
}  # what a page shows and does not compute
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "limits": set(),  # numbers alone: readers and records keep the same ones
    "parsing": {
        "limits"
    },  # JSON of strangers: readers, records, models and prompts bound alike what a text makes
    "plain": set(),  # what a result is
    "prompts": {
        "parsing"
    },  # readers, scores and the trainer write and read the messages of a chat alike
    "arrays": {"errors", "plain"},
    "intervals": {"errors", "arrays", "plain"},
    "engine": {
        "errors",
        "plain",
        "processes",
    },  # any function on any shards: it knows nothing of what they are
    "threads": set(),  # of BLAS
    "processes": set(),  # workers of an engine and the page's own end with what started them
    "files": {"errors"},  # written whole, by commands and from Python
    "wording": {
        "intervals",
        "files",
    },  # numbers and texts as people read them: results and pages write them alike
    "examples": {"errors", "files", "plain"},
    "record": FOUNDATION,
    "readers": FOUNDATION | {"record"},
    # which groups are scored: of the estimators the smallest group; the lag of a record: of
    # edge what a lag is
    "series": FOUNDATION | {"record", "estimators", "edge"},
    "forecasting": FOUNDATION,
    "edge": FOUNDATION | {"forecasting"},  # the force is read off a fitted curve
    "estimators": FOUNDATION,
    "gradients": FOUNDATION | {"estimators"},  # sums of scores become components
    "comparison": FOUNDATION | {"forecasting"},  # curves are fitted by one engine
    "diagnostics": SERIES | {"forecasting", "edge"},  # a record -> findings
    # a record in, plain results out
    "analysis": SERIES
    | MATHEMATICS
    | {"readers", "gradients", "diagnostics", "comparison", "engine"},
    # pages of results; of the rooms that compute only the classes of results, and of the readers
    # the log that the live page follows
    "pages": FOUNDATION | {"record", "analysis", "readers"} | COMPUTING,
    # a run as an object asks what the commands ask: it stands above all rooms and computes nothing;
    # the budget of a plan is of estimators
    "api": FOUNDATION
    | {"record", "readers", "series", "forecasting", "estimators"}
    | {"diagnostics", "analysis", "pages"},
    # trainers write a record as they go: what their settings and keys mean is in readers, scores
    # and components in estimators
    "integrations": FOUNDATION | {"record", "readers", "estimators", "gradients", "diagnostics"},
}


@cache
def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def all_sources() -> list[Path]:
    """The modules of the instrument, of the laboratory and of its experiments."""
    return sorted(path for folder in BUDGETS for path in (ROOT / folder).rglob("*.py"))


@cache
def all_tests() -> list[Path]:
    """The tests of the instrument and of the laboratory."""
    return sorted(path for home in (ROOT, LABORATORY) for path in (home / "tests").rglob("*.py"))


def dotted(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def module_names() -> frozenset[str]:
    return frozenset(map(dotted, modules()))


def part(module: str) -> str:
    """The first name under the package: `groupwise.forecasting.fit` belongs to `dynamics`."""
    return module.split(".")[1] if "." in module else ""


@cache
def imports(path: Path, *, whole: bool = True) -> tuple[str, ...]:
    """The modules that a file imports anywhere, or only those that load with it."""
    return tuple(imported(path, whole=whole))


def imported(path: Path, *, whole: bool) -> Iterator[str]:
    for node in nodes(path) if whole else loaded_with(tree(path).body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            module = node.module or ""
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                yield inner if inner in module_names() else module


def loaded_with(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when the module loads: not those of functions, nor those that only a
    type checker sees.
    """
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        for field in ("body", "orelse", "finalbody"):
            yield from loaded_with(getattr(node, field, []))


def functions() -> Iterator[tuple[Path, ast.FunctionDef]]:
    for path in modules():
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef):
                yield path, node


def code_lines(node: ast.FunctionDef) -> int:
    """Lines of the body of a function without its docstring, and one for its `def`: options of a
    command are declared in between.
    """
    first = (
        node.body[1]
        if ast.get_docstring(node, clean=False) is not None and len(node.body) > 1
        else node.body[0]
    )
    return (node.end_lineno or node.lineno) - first.lineno + 2


def test_imports_point_downwards() -> None:
    wrong = []
    for path in modules():
        here = part(dotted(path))
        if here in COMMANDS | {""}:
            continue
        assert here in MAY_IMPORT, (
            f"{here} is new: enter it in MAY_IMPORT of {Path(__file__).name} with what it may "
            "import"
        )
        allowed = MAY_IMPORT[here] | {here}
        wrong += [
            f"{dotted(path)} imports {name}"
            for name in imports(path)
            if name.split(".")[0] == "groupwise" and part(name) not in allowed | {""}
        ]
    assert not wrong


def test_simulated_worlds_share_no_code_with_what_they_judge() -> None:
    """A record is only data."""
    worlds = LABORATORY / "src" / "groupwise_lab" / "worlds"
    named = [worlds / f"{world}.py" for world in ("bandit", "logs", "runs", "strange")]
    taken = {
        part(name) for world in named for name in imports(world) if name.startswith("groupwise.")
    }
    assert taken == {"arrays", "errors", "record"}


def test_pictures_are_small_and_each_folder_of_experiments_has_one_file_of_results() -> None:
    """At most 60 kB a picture; results of the trial of advice are lines that runs append to."""
    pictures = (LABORATORY / "docs" / "img").glob("*")
    assert [path.name for path in pictures if path.stat().st_size > 60_000] == []
    kept = {
        str(path.relative_to(LABORATORY / "experiments"))
        for path in (LABORATORY / "experiments").rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    }
    written = {name for name in kept if not name.startswith("advice/")} - {
        "diagnosis/labels.tsv",
        "pictures.tsv",
    }
    assert {Path(name).name for name in written} == {"results.txt"}
    assert len(written) == len({Path(name).parent for name in written})


def test_pages_compute_nothing() -> None:
    """Of the rooms that compute, pages take the classes of results and constants, and no
    function.
    """
    wrong = [
        f"{dotted(path)} imports {alias.name} from {node.module}"
        for path in modules()
        if part(dotted(path)) == "pages"
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and part(node.module or "") in COMPUTING | {"readers"}
        for alias in node.names
        if not alias.name[0].isupper()
    ]
    assert not wrong


def test_modules_import_in_no_circle() -> None:
    graph = {
        dotted(path): {
            name for name in imports(path) if name in module_names() and name != dotted(path)
        }
        - {"groupwise"}
        for path in modules()
    }
    graph.pop("groupwise")  # it resolves its names when they are asked for
    assert len(list(TopologicalSorter(graph).static_order())) >= len(graph)


def test_nothing_heavy_is_imported_when_a_module_loads() -> None:
    loading = [(dotted(path), name) for path in modules() for name in imports(path, whole=False)]
    assert not [(module, name) for module, name in loading if name.split(".")[0] in HEAVY]


def test_the_instrument_never_imports_the_laboratory() -> None:
    used = [(dotted(path), name) for path in modules() for name in imports(path)]
    assert not [(module, name) for module, name in used if name.split(".")[0] == "groupwise_lab"]


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="budgets are in tokens of Python 3.11")
@pytest.mark.parametrize(("folder", "budget"), BUDGETS.items())
def test_tokens_stay_within_the_budget(folder: str, budget: int) -> None:
    assert sum(map(tokens, sorted((ROOT / folder).rglob("*.py")))) <= budget


def test_no_line_is_longer_than_a_hundred_columns() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in BUDGETS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(PRAGMA.sub("", line)) > COLUMNS
    ]
    assert long == []


@pytest.mark.parametrize(
    "code",
    [
        "import groupwise",
        "import sys; sys.argv = ['groupwise', '--help']\n" + RUN_MAIN,
        "import sys; sys.argv = ['groupwise', 'report', '--help']\n" + RUN_MAIN,
    ],
    ids=["import", "help", "report"],
)
def test_start_loads_no_library_that_is_slow(code: str) -> None:
    script = (
        f"{code}\nimport sys\nprint('LOADED', *sorted({{name.split('.')[0] for name in "
        f"sys.modules}}))"
    )
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    loaded = set(out.splitlines()[-1].split()[1:])
    assert "groupwise" in loaded
    assert not loaded & SLOW_TO_LOAD


@pytest.mark.parametrize(("command", "most"), [("diagnose", 31), ("plan", 35), ("report", 54)])
def test_a_command_calls_few_modules(command: str, most: int, tmp_path: Path) -> None:
    """Whoever follows a command through a trainer's folder reads so many files at most
    (docs/decisions/0015).
    """
    script = (
        "import sys\nfrom groupwise.cli.app import main\nentered = set()\n"
        "def see(frame, *_):\n"
        "    if frame.f_code.co_flags & 2:  # of a function, not of a class\n"
        "        entered.add(frame.f_code.co_filename)\n"
        "sys.settrace(see)\nmain(sys.argv[2:])\nsys.settrace(None)\n"
        "print(sum(name.startswith(sys.argv[1]) for name in entered))"
    )
    output = ["-o", str(tmp_path / "page.html")] if command == "report" else []
    given = [str(PACKAGE), command, str(PACKAGE / "examples" / "trl_run"), *output]
    answer = run_forked(script, given)
    assert answer.returncode == 0, answer.stderr
    assert int(answer.stdout.split()[-1]) <= most


def test_no_module_is_longer_than_thirteen_hundred_lines() -> None:
    lines = {dotted(path): len(path.read_text("utf-8").splitlines()) for path in modules()}
    assert {name: count for name, count in lines.items() if count > 1300} == {}


def test_every_module_says_its_job() -> None:
    for path in modules():
        docstring = ast.get_docstring(tree(path))
        if path.name == "__main__.py":
            continue
        assert docstring, f"{dotted(path)} has no docstring"
        paragraph = docstring.split("\n\n")[0]
        assert paragraph.endswith((".", ":", "?")), (
            f"{dotted(path)}: the first paragraph of the docstring says the job in a sentence"
        )


def types_in(path: Path) -> Iterator[str]:
    """Names of the classes and type aliases that a module defines, without their underscore."""
    for node in statements(tree(path)):
        if isinstance(node, ast.ClassDef):
            yield node.name.lstrip("_")
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id.lstrip("_")
            if re.fullmatch(r"[A-Z]+[a-z]\w*", name):
                yield name


def test_no_two_types_share_a_name() -> None:
    """A reader who meets a name in two files may take it for one thing: in the instrument, the
    laboratory and its experiments.
    """
    places: dict[str, set[str]] = {}
    for path in all_sources():
        for name in types_in(path):
            places.setdefault(name, set()).add(path.relative_to(ROOT).as_posix())
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


# Functions that may share a name, by where they are: a command and a call of the public API carry
# the name of what they call.
NAMESAKES = {
    ("groupwise.cli.", "groupwise.api.calls"): {
        "compare",
        "components",
        "fit",
        "forecast",
        "judge",
        "plan",
        "replay",
        "report",
        "stability",
    },
}


def test_no_two_public_functions_share_a_name() -> None:
    """A reader who meets a call in two files may take it for one function."""
    places: dict[str, set[str]] = {}
    for path in modules():
        module = dotted(path)
        for node in tree(path).body:
            if (
                isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                and not node.name.startswith("_")
                and not any(
                    module.startswith(where) and node.name in names
                    for where, names in NAMESAKES.items()
                )
            ):
                places.setdefault(node.name, set()).add(module)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


# What says no more than that something is there; `known` stays a question to a setting.
BLANK = {"found", "one", "told", "mine"}


def identifiers(node: ast.AST) -> Iterator[str]:
    """The names that a statement gives: of variables, arguments, functions and fields."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name


def test_a_name_says_what_a_thing_is() -> None:
    blank = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (*all_sources(), *all_tests(), *(ROOT / "scripts").rglob("*.py"))
        for node in nodes(path)
        for name in identifiers(node)
        if name.strip("_") in BLANK or (name.strip("_") == "known" and isinstance(node, ast.Name))
    }
    assert blank == set()


def test_functions_are_short() -> None:
    sizes = {f"{dotted(path)}.{node.name}": code_lines(node) for path, node in functions()}
    assert {name: size for name, size in sizes.items() if size > 60} == {}
    assert statistics.median(sizes.values()) < 12


def public(path: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    """Functions and classes at the top of a module whose names, and whose module's names, have
    no underscore in front.
    """
    if any(
        name.startswith("_") and name != "__init__"
        for name in path.relative_to(PACKAGE).with_suffix("").parts
    ):
        return
    for node in tree(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            if any(ast.unparse(decorator) == "overload" for decorator in node.decorator_list):
                continue  # the function itself explains them
            yield f"{dotted(path)}.{node.name}", node
            if isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
                        yield f"{dotted(path)}.{node.name}.{inner.name}", inner


def exported() -> set[str]:
    """The names that `groupwise` itself offers."""
    return set(groupwise.__all__) - {"__version__"}


@each_case("name", sorted(exported()))
def test_exported_names_and_their_methods_are_documented(name: str) -> None:
    item = getattr(groupwise, name)
    methods = vars(item).items() if isinstance(item, type) else ()
    documented = [(name, item), *((f"{name}.{key}", value) for key, value in methods)]
    for key, value in documented:
        own = not key.rpartition(".")[2].startswith("_") and callable(value)
        assert not own or inspect.getdoc(value), f"{key} has no docstring"


def sections(docstring: str) -> list[str]:
    heads = {"Args:", "Returns:", "Raises:", "Example:", "Examples:", "Yields:"}
    return [line.strip() for line in docstring.splitlines() if line.strip() in heads]


@each_case("name", sorted(exported()))
def test_exported_functions_explain_themselves(name: str) -> None:
    """A name offered at the top has, where it is a function, its arguments, its result and an
    example that runs as a doctest.
    """
    item = getattr(groupwise, name)
    docstring = item.__doc__ or ""
    assert docstring.strip(), f"{name} has no docstring"
    if isinstance(item, type) and issubclass(item, Exception | Warning):
        return
    if callable(item) and not isinstance(item, type):
        headings = sections(docstring)
        assert ">>>" in docstring, f"{name} has no example"
        assert "Args:" in headings, f"{name} does not say what it takes"
        assert "Returns:" in headings or "return" not in str(item.__annotations__), (
            f"{name} does not say what it returns"
        )
        order = ["Args:", "Returns:", "Raises:"]
        positions = [headings.index(section) for section in order if section in headings]
        assert all(first < second for first, second in pairwise(positions)), (
            f"{name}: sections come in the order {order}"
        )


def test_documented_arguments_are_those_of_the_signature() -> None:
    """Wherever a docstring lists arguments, it lists all of them and no other."""
    wrong = []
    for path in modules():
        for name, node in public(path):
            docstring = ast.get_docstring(node) or ""
            if (
                isinstance(node, ast.FunctionDef)
                and "Args:" in sections(docstring)
                and documented(docstring) != taken(node)
            ):
                wrong.append(
                    f"{name}: documents {sorted(documented(docstring))}, takes "
                    f"{sorted(taken(node))}"
                )
    assert not wrong


def taken(node: ast.FunctionDef) -> set[str]:
    """Names of a function's arguments."""
    arguments = node.args
    stars = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return {
        argument.arg
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *stars]
    } - {"self", "cls"}


def documented(docstring: str) -> set[str]:
    """Argument names in the Args section."""
    names: set[str] = set()
    inside, indent = False, None
    for line in docstring.splitlines():
        if line.strip() == "Args:":
            inside = True
        elif inside and line.strip():
            margin = len(line) - len(line.lstrip())
            if margin == 0:
                break
            indent = margin if indent is None else indent
            if margin == indent:
                names |= {name.strip(" `*") for name in line.split(":")[0].split(",")}
    return names
