"""The commands as root, as root without its rights and as an ordinary user; HOME is not
writable, paths hold a space and an umlaut.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import groupwise

NOBODY, DROP_BOUND, CAPABILITIES = 65534, 24, 41
SOURCES = Path(groupwise.__file__).parent.parent
RECORD = """
from groupwise.record.run import RecordWriter, RunRecord
with RecordWriter("Aufnahme ü", name="x") as writer:
    for step in range(1, 6):
        writer.append({"step": step, "reward": step / 10})
assert len(RunRecord.load("Aufnahme ü").steps) == 5
"""


def without_rights() -> None:
    """Drop root's rights from what the next program may have: the modes of files count for it as
    for anybody.
    """
    for right in range(CAPABILITIES):
        ctypes.CDLL(None).prctl(DROP_BOUND, right, 0, 0, 0)


@dataclass(frozen=True)
class Asker:
    """Runs Python as somebody, in a folder of his."""

    place: Path
    env: dict[str, str]
    user: int | None = None  # to become
    prepare: Callable[[], None] | None = None

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python."""
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.place,
            env=self.env,
            user=self.user,
            preexec_fn=self.prepare,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(params=["this user", "root without rights", "an ordinary user"])
def ask(request: pytest.FixtureRequest) -> Iterator[Asker]:
    root = os.geteuid() == 0
    if request.param != "this user" and not root:
        pytest.skip("only root can become another user; this one is ordinary already")
    user = NOBODY if request.param == "an ordinary user" else None
    home = Path(tempfile.mkdtemp(prefix="groupwise für alle "))
    place, closed = home / "Läufe hier", home / "home"
    place.mkdir()
    (place / "ein Lauf.csv").write_text(
        "step,reward\n" + "".join(f"{step},{step / 80}\n" for step in range(1, 61))
    )
    closed.mkdir()
    closed.chmod(0o555)
    if user is not None:
        home.chmod(0o755)
        for path in (place, place / "ein Lauf.csv"):
            os.chown(path, user, user)
    # Root writes wherever it likes but in /proc.
    unwritable = (
        "/proc"
        if root and request.param == "this user" and Path("/proc/self").exists()
        else str(closed)
    )
    kept = {
        name: os.environ[name]
        for name in ("PATH", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
        if name in os.environ
    }
    env = kept | {
        "HOME": unwritable,
        "PYTHONPATH": str(SOURCES),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": "C.UTF-8",
    }
    asker = Asker(
        place, env, user, without_rights if request.param == "root without rights" else None
    )
    try:
        readable = asker("-c", READ).returncode == 0
    except PermissionError:
        readable = False
    if readable:
        yield asker
    closed.chmod(0o755)
    shutil.rmtree(home)
    if not readable:
        pytest.skip(f"{request.param} cannot read this installation")


# That each library may be read says that all may, and to load them takes longer.
READ = """
from importlib.util import find_spec
import groupwise
for name in ("numpy", "polars"):
    open(find_spec(name).origin)
"""
COMMANDS = (
    ["diagnose", "ein Lauf.csv"],
    ["fit", "ein Lauf.csv", "--json"],
    ["report", "ein Lauf.csv", "-o", "Bericht ä.html"],
)
# One process, as a new one takes seconds: each command says its exit code.
EACH = "import sys\nfrom groupwise.cli.app import main\n" + "".join(
    f"print('code', main({words!r}), file=sys.stderr)\n"
    for words in (*COMMANDS, ["report", "fehlt.csv"])
)
EACH += RECORD
REFUSED = """
import os
from groupwise.cli.app import main
os.chmod("ein Lauf.csv", 0)
print(main(["diagnose", "ein Lauf.csv"]))
os.chmod("ein Lauf.csv", 0o644)
os.chmod(".", 0o555)
print(main(["report", "ein Lauf.csv", "-o", "Bericht.html"]))
os.chmod(".", 0o755)
"""


@pytest.mark.slow
def test_a_sample_of_commands(ask: Asker) -> None:
    ran = ask("-c", EACH)
    codes = [int(line.split()[1]) for line in ran.stderr.splitlines() if line.startswith("code ")]
    assert all(code in (0, 1, 3) for code in codes[:-1]), ran.stderr
    assert (len(codes), codes[-1], ran.returncode) == (4, 2, 0), ran.stderr
    assert "Traceback" not in ran.stderr
    assert (ask.place / "Bericht ä.html").stat().st_uid == (
        os.geteuid() if ask.user is None else ask.user
    )


@pytest.mark.thinned(1)
def test_what_may_not_be_read_or_written_is_said(ask: Asker) -> None:
    if os.geteuid() == 0 and ask.user is None and ask.prepare is None:
        pytest.skip("root may read and write everything")
    ran = ask("-c", REFUSED)
    codes, said = ran.stdout.split(), ran.stderr.splitlines()
    assert (codes, len(said), ran.returncode) == (["2", "2"], 2, 0), ran.stderr
    assert "is not readable" in said[0]
    assert "cannot be written to" in said[1]
