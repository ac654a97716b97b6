"""What `-o` may name: a new file or a regular one; never a device, a pipe, a socket or a link,
whatever is forced.
"""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest
from tests.cases import each_case
from tests.cli.asked import refused

from groupwise.errors import OverwriteError
from groupwise.files import free_target, write_whole


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "run.csv"
    path.write_text("step,reward\n" + "".join(f"{step},{step / 40}\n" for step in range(1, 31)))
    return path


def strange(folder: Path, kind: str) -> Path:
    path = folder / "out.html"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
    elif kind == "device":
        if os.geteuid() != 0:
            pytest.skip("only root makes a device")
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except OSError as error:
            pytest.skip(f"no device can be made here: {error}")
    else:
        (folder / "kept.txt").write_text("kept")
        path.symlink_to(
            {"link": folder / "kept.txt", "loose": folder / "missing", "null": Path("/dev/null")}[
                kind
            ]
        )
    return path


@each_case("force", [False, True])
@each_case("kind", ["pipe", "socket", "device", "link", "loose", "null"])
def test_only_regular_files_are_replaced(tmp_path: Path, kind: str, force: bool) -> None:
    path = strange(tmp_path, kind)
    before = os.lstat(path)
    with pytest.raises(OverwriteError, match="expected a regular file or a new name"):
        free_target(path, [], force=force)
    with pytest.raises(OverwriteError, match="expected a regular file or a new name"):
        write_whole(path, "content", force=force)
    assert (os.lstat(path).st_mode, os.lstat(path).st_ino) == (before.st_mode, before.st_ino)
    assert not (tmp_path / "missing").exists()
    assert not list(tmp_path.glob(".out*"))


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_the_report_refuses_in_one_line(
    tmp_path: Path, log: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = strange(tmp_path, kind)
    assert "expected a regular file or a new name" in refused(
        capsys, "report", str(log), "-o", str(path), "--force"
    )


def test_a_folder_behind_a_link_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_whole(tmp_path / "link" / "a.txt", "content", force=False)
    assert (tmp_path / "real" / "a.txt").read_text() == "content"
