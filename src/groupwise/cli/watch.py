"""The command `groupwise watch`: a page on runs that go on, or one look at them."""

from functools import partial
from pathlib import Path

from groupwise.cli import app as cli
from groupwise.errors import InvalidArgumentError, check_installed

_MOST_RUNS = 100


def watch(
    runs: list[Path],
    *,
    port: int | None = None,
    metric: str = "reward",
    level: float = 0.9,
    once: bool = False,
    running: bool = False,
    gpus: int | None = None,
    price: float | None = None,
    fail_on: str = "warning",
    opening: cli.Opening,
    as_json: bool = False,
    webhook: str | None = None,
) -> int | None:
    """Follow runs that are being written, on a page that this machine serves to itself."""
    from groupwise.diagnostics.judge import judge
    from groupwise.integrations.alerts import webhook_of
    from groupwise.pages.screen import print_judgement
    from groupwise.record.run import named_apart

    opening = opening.with_settings(gpus=gpus, gpu_price=price)
    if len(runs) > _MOST_RUNS:
        raise InvalidArgumentError(
            f"expected at most {_MOST_RUNS} runs on a page, got {len(runs)}: watch fewer"
        )
    hook = webhook_of(webhook)
    if once:
        records = named_apart([opening.open(path) for path in runs])
        judged = [judge(record, ended=False if running else None) for record in records]
        if hook:
            for path, judgement in zip(runs, judged, strict=True):
                hook.judged(judgement, str(path.resolve()))
        if as_json:
            several = {"runs": [{"run": each.run, **each.as_dict()} for each in judged]}
            cli.print_json(judged[0].as_dict() if len(judged) == 1 else several)
        else:
            for judgement in judged:
                print_judgement(judgement, cli.out_console())
        return cli.exit_code([judgement.state for judgement in judged], fail_on=fail_on)
    for name, given in (("--json", as_json), ("--running", running)):
        if given:
            raise InvalidArgumentError(
                f"{name} expects --once, got a page to serve: add --once, or leave {name} out"
            )
    from groupwise.pages.live import HOST, bound_socket, new_token, serve
    from groupwise.pages.live_hub import Hub, followers_of
    from groupwise.readers.follow import Follower
    from groupwise.wording import count

    check_installed("starlette", "uvicorn", what="the live page")
    followers = followers_of(runs, partial(Follower, **opening.asked))
    bound, token = bound_socket(port), new_token()
    try:
        print(
            f"Watching {count(len(runs), 'run')} at "
            f"http://{HOST}:{bound.getsockname()[1]}/{token}/ (Ctrl-C stops)",
            flush=True,
        )
        on_change = hook.change if hook else None
        serve(Hub(followers, metric=metric, level=level, tell=on_change), bound, token)
    finally:
        bound.close()
    print("Watching has stopped; it changed nothing in the runs.")
    return None
