"""The command `groupwise watch`: a page on runs that are still being written.

What the page shows is decided in `groupwise.report`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from groupwise.cli.options import Opening, checked_share
from groupwise.errors import GroupwiseError, InvalidArgumentError

_HIGHEST_PORT = 65535
_MOST_RUNS = 100


def run(paths: Sequence[Path], opening: Opening, *, port: int | None, metric: str, level: float) -> None:
    """Look at the logs once, then serve the page until Ctrl-C or SIGTERM."""
    checked_share("--level", level)
    if port is not None and not 0 <= port <= _HIGHEST_PORT:
        raise InvalidArgumentError(f"--port expects a number from 0 to {_HIGHEST_PORT}; got {port}")
    if len(paths) > _MOST_RUNS:
        raise InvalidArgumentError(f"expected at most {_MOST_RUNS} runs on a page, got {len(paths)}: watch fewer")
    if any(find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise GroupwiseError("expected starlette and uvicorn for the live page, got none: pip install 'groupwise[live]'")
    from groupwise.readers.follow import Follower
    from groupwise.report.live import HOST, bound_socket, serve
    from groupwise.report.live_hub import Hub, followers_of

    def follower(path: Path) -> Follower:
        return Follower(path, columns=opening.columns or None, settings=opening.settings or None, config=opening.config)

    followers = followers_of(paths, follower)
    bound = bound_socket(port)
    try:
        what = "1 run" if len(paths) == 1 else f"{len(paths)} runs"
        print(f"Watching {what} at http://{HOST}:{bound.getsockname()[1]}/ (Ctrl-C stops)", flush=True)
        serve(Hub(followers, metric=metric, level=level), bound)
    finally:
        bound.close()
    print("Stopped; nothing was written to the runs.")
