"""Build what is published, and try it: both packages, twice, with equal hashes, each installed
alone by uv and by pip.

    python scripts/release.py [--folder build/release]

The version stands in both packages, on top of CHANGELOG.md and, where the commit has one, in its
tag. Nothing is signed and nothing uploaded: `.github/workflows/publish.yml` does that.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import groupwise
import groupwise_lab

ROOT = Path(__file__).resolve().parent.parent
PROJECTS = {"groupwise": ROOT, "groupwise-lab": ROOT / "lab"}
UV = Path(sys.executable).parent / "uv"
NEWEST = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - (\S+)$", re.MULTILINE)


def main() -> None:
    """Check the version, build, compare, install."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "release")
    folder = parser.parse_args().folder
    version = agreed_version()
    shutil.rmtree(folder, ignore_errors=True)
    hashes = build(folder)
    with tempfile.TemporaryDirectory() as second:
        again = build(Path(second))
    if hashes != again:
        different = sorted(name for name, _ in hashes.items() ^ again.items())
        raise SystemExit(f"expected two builds with equal hashes, got others of {different}")
    files = sorted(folder.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    wheels = {
        name: next(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl")) for name in PROJECTS
    }
    for installer in ("uv", "pip"):
        for name in PROJECTS:
            try_install(installer, name, wheels, version)
    run(sys.executable, ROOT / "scripts" / "try_wheel.py", wheels["groupwise"])
    for file in files:
        print(f"{hashes[file.name]}  {file.stat().st_size:>9,} bytes  {file.name}")


def agreed_version() -> str:
    """The one version of both packages, the changelog and the commit's tag."""
    newest = NEWEST.search((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    versions = {
        "groupwise": groupwise.__version__,
        "groupwise-lab": groupwise_lab.__version__,
        "CHANGELOG.md": newest.group(1) if newest else "none",
    }
    tags = subprocess.run(
        ["git", "tag", "--points-at", "HEAD", "v*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split()
    versions |= {f"tag {tag}": tag.removeprefix("v") for tag in tags}
    if len(set(versions.values())) > 1:
        raise SystemExit(f"expected one version, got {versions}")
    check_day(newest.group(2) if newest else "", tags)
    return groupwise.__version__


def check_day(day: str, tags: list[str]) -> None:
    """Refuse a tag whose version has no day in the changelog yet."""
    if tags and not re.fullmatch(r"\d{4}-\d\d-\d\d", day):
        raise SystemExit(f"expected the day of the release in CHANGELOG.md, got {day or 'none'}")


def build(folder: Path) -> dict[str, str]:
    """Build both packages, and the wheel from the source archive; return the hash of each file."""
    epoch = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    for project in PROJECTS.values():
        run(
            sys.executable,
            "-m",
            "build",
            "--outdir",
            folder,
            project,
            environment={"SOURCE_DATE_EPOCH": epoch},
        )
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.iterdir())
    }


def try_install(installer: str, name: str, wheels: dict[str, Path], version: str) -> None:
    """Install a package into an environment of its own and ask it for its version."""
    needed = [wheels["groupwise"]] if name == "groupwise" else list(wheels.values())
    with tempfile.TemporaryDirectory() as home:
        python = Path(home) / "fresh" / "bin" / "python"
        run(UV, "venv", "--quiet", "--python", sys.executable, "--seed", python.parent.parent)
        if installer == "uv":
            run(UV, "pip", "install", "--quiet", "--python", python, *needed)
        else:
            run(python, "-m", "pip", "install", "--quiet", *needed)
        printed = subprocess.run(
            [python.parent / name, "--version"],
            cwd=home,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    if version not in printed:
        raise SystemExit(f"expected {name} {version} from {installer}, got {printed!r}")
    print(f"{installer} installs {name} {version} alone", flush=True)


def run(*command: str | Path, environment: dict[str, str] | None = None) -> None:
    """Run a command, and show what it printed where it fails."""
    done = subprocess.run(
        command,
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
