"""Install the wheel into a fresh environment, without the repository, and run the README's lines
there: what a newcomer gets.

    python scripts/try_wheel.py WHEEL [--most-megabytes 400] [--most-seconds 30]

Says how large the base install is (du, without the environment's own files), as uv leaves it and
with the bytecode that pip compiles, and how long it took, and fails beyond either limit, or where
a line of README.md does not print what stands below it. It needs uv beside this Python; the runs
that the README names are made here.
"""

from __future__ import annotations

import argparse
import doctest
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
UV = Path(sys.executable).parent / "uv"
# A line for the published package, and the same for a wheel.
BUILT = {
    "uvx groupwise": "uvx --from {} groupwise",
    "pipx run groupwise": "pipx run --spec {} groupwise",
    "pip install groupwise\n": "pip install {}\n",
}
ANSWERED = (0, 1, 3)  # of a command that judges


def main() -> None:
    """Install, measure, run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--most-megabytes", type=int, default=400)
    parser.add_argument("--most-seconds", type=float, default=30)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        megabytes, seconds = install(asked.wheel.resolve(), home / "fresh")
        compiled = megabytes + bytecode(home / "fresh")
        print(
            f"The base install: {megabytes} MB, with bytecode {compiled} MB; {seconds:.1f} s of a "
            "processor.",
            flush=True,
        )
        if megabytes > asked.most_megabytes or seconds > asked.most_seconds:
            raise SystemExit(
                f"expected at most {asked.most_megabytes} MB and {asked.most_seconds:g} s, got "
                f"{megabytes} MB, {seconds:.1f} s"
            )
        tried = [
            try_line(command, shown, home)
            for command, shown in lines(prepare(asked.wheel.resolve(), home))
        ]
        print(f"{len(tried)} lines of README.md ran without the repository.")


def install(wheel: Path, fresh: Path) -> tuple[int, float]:
    """Install into a new environment with nothing downloaded before; return what that added in
    MB, and the processor seconds.
    """
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, fresh], check=True)
    before, start = size_of(fresh), os.times()
    subprocess.run(
        [
            UV,
            "pip",
            "install",
            "--quiet",
            "--no-cache",
            "--python",
            fresh / "bin" / "python",
            wheel,
        ],
        check=True,
    )
    spent = os.times()
    used = spent.children_user + spent.children_system - start.children_user - start.children_system
    return size_of(fresh) - before, used


def bytecode(fresh: Path) -> int:
    """Compile an environment as pip does, and return what that added in MB."""
    before = size_of(fresh)
    subprocess.run(
        [fresh / "bin" / "python", "-m", "compileall", "-qq", fresh / "lib"], check=False
    )
    return size_of(fresh) - before


def size_of(folder: Path) -> int:
    """What du says of a folder, in MB."""
    return int(
        subprocess.run(
            ["du", "-sm", folder], check=True, capture_output=True, text=True
        ).stdout.split()[0]
    )


def prepare(wheel: Path, home: Path) -> str:
    """Make the run that the README calls RUN; return its text with the wheel in place of the
    published package.
    """
    (home / "work").mkdir()
    subprocess.run(
        [home / "fresh" / "bin" / "groupwise", "example", "healthy"],
        check=True,
        cwd=home / "work",
        env=alone(home),
    )
    (home / "work" / "trl_run").rename(home / "work" / "RUN")
    text, place = (ROOT / "README.md").read_text(encoding="utf-8"), shlex.quote(str(wheel))
    for published, built in BUILT.items():
        text = text.replace(published, built.format(place))
    return text


def lines(text: str) -> Iterator[tuple[str, str]]:
    """Each command of the README's blocks of a shell or of Python with the output shown below
    it.
    """
    for language, body in FENCE.findall(text):
        if language == "sh":
            yield from (
                (line.partition("  #")[0].strip(), "") for line in body.splitlines() if line.strip()
            )
        elif language == "console":
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, shown = part.partition("\n")
                yield command, shown
        elif language == "python":
            yield f"python -c {shlex.quote(body)}", ""


def try_line(command: str, shown: str, home: Path) -> str:
    """Run a command as a newcomer would, and hold what it prints against what the README shows."""
    if command == "echo $?" or command.startswith("pipx "):
        return command
    command = (
        command.replace("pip install", "uv pip install") if command.startswith("pip ") else command
    )  # made by uv, it has no pip
    print(f"$ {command if len(command) < 100 else command[:99] + '…'}", flush=True)
    start = time.perf_counter()
    done = subprocess.run(
        command,
        shell=True,
        cwd=home / "work",
        env=alone(home),
        capture_output=True,
        text=True,
        timeout=300,
    )
    printed = done.stdout + done.stderr
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if done.returncode not in ANSWERED or (
        shown and not doctest.OutputChecker().check_output(shown, printed, flags)
    ):
        raise SystemExit(f"{command} ended with {done.returncode}:\n{printed}")
    print(f"  {time.perf_counter() - start:.1f} s, ends with {done.returncode}", flush=True)
    for page in (home / "work").glob("*.html"):
        page.unlink()  # two lines may write the same page
    return command


def alone(home: Path) -> dict[str, str]:
    """The environment of somebody who has the fresh install and uv, and nothing of the
    repository.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    path = os.pathsep.join([str(home / "fresh" / "bin"), str(UV.parent), os.environ["PATH"]])
    return kept | {
        "PATH": path,
        "HOME": str(home),
        "COLUMNS": "120",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "VIRTUAL_ENV": str(home / "fresh"),
    }


if __name__ == "__main__":
    main()
