"""The command `groupwise watch`: a page on runs that are still being written."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from groupwise.cli.shared import BandLevel, Column, Config, Metric, Opening, Runs, Settings, option, whole
from groupwise.errors import GroupwiseError, InvalidArgumentError

_port = whole(0, 65535)
_MOST_RUNS = 100


def watch(
    runs: Runs,
    *,
    port: Annotated[
        int | None,
        option("N", "The port to serve at; 0 for any that is free. By default 8750, or the next one that is free.", check=_port),
    ] = None,
    metric: Metric = "reward",
    level: BandLevel = 0.9,
    settings: Settings = None,
    config: Config = None,
    column: Column = None,
) -> None:
    """Follow runs that are being written, on a page that this machine serves to itself."""
    from groupwise.readers.follow import Follower
    from groupwise.report.live import HOST, bound_socket, serve
    from groupwise.report.live_hub import Hub, followers_of

    opening = Opening.parse(column=column, settings=settings, config=config)
    if len(runs) > _MOST_RUNS:
        raise InvalidArgumentError(f"expected at most {_MOST_RUNS} runs on a page, got {len(runs)}: watch fewer")
    if any(find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise GroupwiseError("expected starlette and uvicorn for the live page, got none: pip install 'groupwise[live]'")

    def follower(path: Path) -> Follower:
        return Follower(path, columns=opening.columns or None, settings=opening.settings or None, config=opening.config)

    followers = followers_of(runs, follower)
    bound = bound_socket(port)
    try:
        what = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
        print(f"Watching {what} at http://{HOST}:{bound.getsockname()[1]}/ (Ctrl-C stops)", flush=True)
        serve(Hub(followers, metric=metric, level=level), bound)
    finally:
        bound.close()
    print("Stopped; nothing was written to the runs.")
