"""Measures the house, both packages: tokens beside their budgets, lines by kind, complexity,
numbers of arguments, words of the documentation, and how calls travel.

    python scripts/measure_house.py [RUN]

With a run, a cold `diagnose` of it is held against the loading of what it loads, in seconds of the
processor with Python's bytecode kept. Then the commands `report`, `diagnose`, `fit` and `stability`
are traced on it, and `components` on gradients in a file: the most modules on one chain of calls,
and how often a chain comes back to a module that it had left. Complexity is radon's. It judges
nothing.
"""

from __future__ import annotations

import _tokenize  # type: ignore[import-not-found]
import ast
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import token
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "groupwise"
PACKAGES = {"groupwise": PACKAGE, "groupwise_lab": ROOT / "lab" / "src" / "groupwise_lab"}
# Python tokens without docstrings and comments, by the tokenizer of Python 3.11. Whoever
# raises one writes a decision that says what was tried (docs/decisions/0014).
BUDGETS = {"src/groupwise": 315_000, "lab/src/groupwise_lab": 110_000, "lab/experiments": 120_000}
LAYOUT = {token.NEWLINE, token.INDENT, token.DEDENT, token.ENDMARKER}
WIDE = 100
MOST_ARGUMENTS, MOST_COMPLEXITY = 8, 15


def kinds_of_lines(path: Path) -> Counter[str]:
    """How many lines of a file are docstring, import, comment, blank and code."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    kind = ["code"] * len(lines)
    for number, line in enumerate(lines):
        if not line.strip():
            kind[number] = "blank"
        elif line.lstrip().startswith("#"):
            kind[number] = "comment"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node, clean=False) is not None:
                mark(kind, node.body[0], "docstring")
        elif isinstance(node, ast.Import | ast.ImportFrom):
            mark(kind, node, "import")
    return Counter(kind) + Counter(wide=sum(len(line) > WIDE for line in lines))


def tokens(path: Path) -> int:
    """Names, operators, numbers and strings of a file, without docstrings."""
    docstrings = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if ast.get_docstring(node, clean=False) is not None and first is not None:
                docstrings.add((first.lineno, first.col_offset))
    return sum(
        kind not in LAYOUT and (line, column) not in docstrings
        for _, kind, line, _, column, *_ in _tokenize.TokenizerIter(path.read_text("utf-8"))
    )


def mark(kind: list[str], node: ast.stmt, name: str) -> None:
    """Name the lines of a statement."""
    for number in range(node.lineno - 1, node.end_lineno or node.lineno):
        kind[number] = name


def print_budgets() -> None:
    """Print the tokens of each folder beside its budget."""
    for folder, budget in BUDGETS.items():
        used = sum(map(tokens, sorted((ROOT / folder).rglob("*.py"))))
        print(f"{folder:24}{used:>9,} of {budget:,} tokens")


def print_sizes() -> None:
    """Print the lines of each room and of the whole."""
    rooms: dict[str, Counter[str]] = {}
    for name, path in modules():
        room = "/".join(name.split("/")[:2])
        rooms.setdefault(room, Counter()).update(kinds_of_lines(path) + Counter(files=1))
    names = ("code", "docstring", "blank", "import", "comment")
    whole: Counter[str] = sum(rooms.values(), Counter())
    print(
        f"{'room':30}{'files':>7}{'lines':>8}"
        + "".join(f"{name:>11}" for name in names)
        + f"{'> 100 wide':>12}"
    )
    for room, counts in [*rooms.items(), ("all", whole)]:
        total = sum(counts[name] for name in names)
        print(
            f"{room:30}{counts['files']:>7}{total:>8}"
            + "".join(f"{counts[name]:>11}" for name in names)
            + f"{counts['wide']:>12}"
        )


def modules() -> list[tuple[str, Path]]:
    """Every module of both packages with its name."""
    return [
        (f"{package}/{path.relative_to(folder)}", path)
        for package, folder in PACKAGES.items()
        for path in sorted(folder.rglob("*.py"))
    ]


def functions() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function with its place."""
    return [
        (f"{name}:{node.lineno} {node.name}", node)
        for name, path in modules()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def print_arguments() -> None:
    """Print the functions with more than eight arguments, the command line's own apart."""
    counts = {
        name: len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs])
        for name, node in functions()
    }
    long = {
        name: count
        for name, count in counts.items()
        if count > MOST_ARGUMENTS and "/cli/" not in name
    }
    print(
        f"\nfunctions with more than {MOST_ARGUMENTS} arguments outside the command line: "
        f"{len(long)}"
    )
    for name, count in sorted(long.items(), key=lambda item: -item[1]):
        print(f"  {count:>3}  {name}")


def print_complexity() -> None:
    """Print the functions above the limit of complexity, by radon's count."""
    try:
        from radon.complexity import cc_visit
    except ImportError:
        print("\ncomplexity: radon is not installed (pip install radon)")
        return
    blocks = [
        (block.complexity, f"{name}:{block.lineno} {block.name}")
        for name, path in modules()
        for block in cc_visit(path.read_text(encoding="utf-8"))
        if type(block).__name__ == "Function"
    ]
    high = sorted((item for item in blocks if item[0] > MOST_COMPLEXITY), reverse=True)
    print(
        f"\nfunctions above complexity {MOST_COMPLEXITY}: {len(high)}; the highest is "
        f"{max(blocks)[0]}"
    )
    for complexity, name in high:
        print(f"  {complexity:>3}  {name}")


class Chains:
    """Chains of calls through modules of the package, as a run makes them."""

    def __init__(self) -> None:
        """Begin with no call."""
        self.longest: list[str] = []
        self.returns: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Look at the chain of a call, from the outermost to this one."""
        if event != "call" or not frame.f_code.co_filename.startswith(str(PACKAGE)):
            return
        chain: list[str] = []
        above: FrameType | None = frame
        while above is not None:
            name = above.f_code.co_filename
            # A module that loads, or code made by the library (`__init__` of a dataclass), is no
            # step of the way.
            if name.startswith(str(PACKAGE)) and above.f_code.co_name != "<module>":
                module = str(Path(name).relative_to(PACKAGE))
                if not chain or chain[-1] != module:
                    chain.append(module)
            above = above.f_back
        if len(set(chain)) > len(set(self.longest)):
            self.longest = chain[::-1]
        for module, visits in Counter(chain).items():
            self.returns[module] = max(self.returns[module], visits - 1)


def print_chains(run: str) -> None:
    """Trace the commands on a run."""
    from groupwise.cli.app import main

    with tempfile.TemporaryDirectory() as folder:
        saved = save_made(Path(folder) / "components.json")
        commands = {
            "report": [run, "-o", f"{folder}/page.html", "--json"],
            "diagnose": [run, "--json"],
            "fit": [run, "--json"],
            "stability": [
                run,
                "--json",
                "--set",
                "momentum=0.9",
                "--set",
                "beta1=0.9",
                "--set",
                "lag_kind=none",
            ],
            "components": [saved, "--json"],
        }
        print(f"\n{'command':12}{'modules on the longest chain':>30}{'returns to one module':>24}")
        for command, arguments in commands.items():
            chains = Chains()
            with contextlib.redirect_stdout(io.StringIO()):
                sys.setprofile(chains)
                try:
                    main([command, *arguments])
                finally:
                    sys.setprofile(None)
            module, most = chains.returns.most_common(1)[0]
            print(f"{command:12}{len(set(chains.longest)):>30}{most:>24}  {module}")


def print_cold(run: str, tries: int = 9) -> None:
    """Print what a cold `diagnose` takes, and how often it takes what its imports alone take."""
    loaded = """import sys
from groupwise.cli.app import main
main(["diagnose", sys.argv[1]])
print("LOADED", *(name for name in sys.modules if name != "__main__"))"""
    load = """import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError:
        pass"""
    with tempfile.TemporaryDirectory() as folder:
        own = {"PYTHONPATH": str(PACKAGE.parent), "PYTHONPYCACHEPREFIX": folder}
        environment = {**os.environ, **own}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)

        def seconds(*command: str) -> float:
            times = []
            for _ in range(tries):
                before = os.times()
                subprocess.run(
                    [sys.executable, *command], env=environment, capture_output=True, check=False
                )
                after = os.times()
                times.append(sum(after[2:4]) - sum(before[2:4]))
            return min(times)

        answer = subprocess.run(
            [sys.executable, "-c", loaded, run],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        names = answer.stdout.splitlines()[-1].split()[1:]
        others = [name for name in names if name.partition(".")[0] != "groupwise"]
        cold = seconds("-m", "groupwise", "diagnose", run)
        print(f"\ncold diagnose: {cold:.2f} s of the processor")
        for what, imported in (("all it imports", names), ("others' libraries", others)):
            print(f"    {cold / seconds('-c', load, *imported):.2f} times the load of {what}")


def save_made(path: Path) -> str:
    """A file of components of eight groups of eight."""
    import numpy as np

    import groupwise as gw

    generator = np.random.default_rng(0)
    score_ND, reward_N = generator.normal(size=(64, 6)), generator.integers(0, 2, 64)
    estimate = gw.components(reward_N, np.arange(64) // 8, score_ND=score_ND)
    return str(gw.save_components(estimate, path, provenance={}))


def print_words() -> None:
    """Print the words of the documentation: pages for users, what is generated, and the
    appendix.
    """
    kinds: Counter[str] = Counter()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        place = path.relative_to(ROOT).parts[path != ROOT / "README.md" :]
        generated = place[0] == "reference" or place == ("metrics.md",)
        appendix = place[0] in {"studies", "theory", "decisions", "log.md", "papers.md"}
        kinds["generated" if generated else "appendix" if appendix else "for users"] += len(
            path.read_text(encoding="utf-8").split()
        )
    print("\nwords: " + ", ".join(f"{kind} {count:,}" for kind, count in sorted(kinds.items())))


if __name__ == "__main__":
    print_budgets()
    print_sizes()
    print_words()
    print_arguments()
    print_complexity()
    if sys.argv[1:]:
        print_cold(sys.argv[1])
        print_chains(sys.argv[1])
