"""The judgement of a run as alerts of Weights & Biases and trackio and as tags of MLflow.

A tracker that is not imported, or has no run open in this process, is left alone; nothing is
imported and no run is begun here. A link to the page goes along without what opens it.
"""

import os
import re
import sys
from typing import Any
from urllib.parse import urlsplit

from groupwise.diagnostics.judgement import Judgement, State
from groupwise.files import table_column
from groupwise.wording import clean

PAGE = "GROUPWISE_PAGE"  # the environment variable with the address of the page
LEVELS = table_column("states.tsv", "state", "level")
_LONGEST, _LONGEST_TAG = 600, 500
_LOOPBACK = re.compile(r"localhost|::1|127(\.\d+){3}")
# The token of a live page, 32 letters of base64, wherever a proxy puts it; what comes behind goes
# with it.
_TOKEN = re.compile(r"/(?=[^/]*[a-z])(?=[^/]*[A-Z])[\w-]{32}(?![\w-]).*")


def tell(judgement: Judgement, sentence: str = "") -> list[str]:
    """Hand a judgement, or `sentence`, to every open tracker; return what failed."""
    try:
        link = shareable(os.environ.get(PAGE, ""))
    except ValueError:  # no address: the alert goes without it
        link = ""
    text = clean(f"{sentence or judgement} {link}".strip(), longest=_LONGEST)
    faults = []
    for send in (_to_trackio, _to_wandb, _to_mlflow):
        try:
            send(judgement, text, link)
        except Exception as error:  # noqa: BLE001 - a tracker may be offline in any way
            faults.append(
                f"the alert was not delivered to the tracker: {type(error).__name__}: "
                f"{clean(error)}"
            )
    return faults


def facts(judgement: Judgement, link: str, front: str = "") -> dict[str, str]:
    """Return a judgement as short texts, for tags; what it does not say is left out."""
    texts = {
        "state": judgement.state.value,
        "headline": judgement.headline,
        "cause": judgement.cause.words,
        "since_step": "" if judgement.since_step is None else str(judgement.since_step),
        "do": judgement.do,
        "page": link,
    }
    return {front + name: clean(text, longest=_LONGEST_TAG) for name, text in texts.items() if text}


def shareable(page: str) -> str:
    """Return the address of a page without its token, query and user."""
    page = _TOKEN.sub("/", page)
    parts = urlsplit(page)
    if parts.scheme not in ("http", "https"):
        return page
    host = parts.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{shown}{port}{'/' if _LOOPBACK.fullmatch(host) else parts.path}"


def _to_trackio(judgement: Judgement, text: str, _link: str) -> None:
    """Send an alert to trackio where a run of it is open."""
    trackio, variables = sys.modules.get("trackio"), sys.modules.get("trackio.context_vars")
    is_open = not variables or variables.current_run.get() is not None
    if trackio and hasattr(trackio, "alert") and is_open:
        trackio.alert(title=title_of(judgement.state), text=text, level=_level(trackio, judgement))


def _to_wandb(judgement: Judgement, text: str, link: str) -> None:
    """Send an alert to an open run of Weights & Biases, and keep the judgement in its summary."""
    wandb = sys.modules.get("wandb")
    if wandb and getattr(wandb, "run", None) is not None:
        wandb.run.alert(title=title_of(judgement.state), text=text, level=_level(wandb, judgement))
        wandb.run.summary.update(facts(judgement, link, "groupwise/"))


def _to_mlflow(judgement: Judgement, _text: str, link: str) -> None:
    """Tag the run of MLflow that is open."""
    mlflow = sys.modules.get("mlflow")
    if mlflow and hasattr(mlflow, "active_run") and mlflow.active_run() is not None:
        mlflow.set_tags(facts(judgement, link, "groupwise."))


def title_of(state: State) -> str:
    """Return a state as a person says it."""
    return state.value.replace("_", " ")


def _level(tracker: Any, judgement: Judgement) -> Any:
    """Return how grave a judgement is, as a tracker names it."""
    return getattr(tracker.AlertLevel, LEVELS[judgement.state])
