"""Changes of a run's state sent to a webhook: Slack, Discord, or signed JSON.

Whoever reports a change only adds it to a queue; a thread sends and retries it. The address is a
secret: of it only the host is ever shown.
"""

import atexit
import hashlib
import hmac
import html
import os
import re
import threading
import time
from collections import deque
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from groupwise.diagnostics.judgement import Judgement, State
from groupwise.errors import InvalidArgumentError
from groupwise.parsing import JsonObject, JsonView
from groupwise.plain import to_json
from groupwise.record.recorder import Say, each_once, guarded, to_terminal
from groupwise.wording import clean, count

ADDRESS, SECRET = "GROUPWISE_WEBHOOK", "GROUPWISE_WEBHOOK_SECRET"
SIGNATURE = "X-Groupwise-Signature"
_MOST_WAITING = 10_000  # alerts; the oldest makes room
# seconds: of a request, between two requests (what Slack takes), between two attempts at most, and
# at the end, in which one alert at least must arrive
_TIMEOUT, _APART, _LONGEST_PAUSE, _PATIENCE = 10.0, 1.0, 5.0, 60.0
_LONGEST, _TEXTS = 600, ("headline", "cause", "do")
_MARKED = re.compile(r"[\\*_~`|>#\[\]<:@]")  # what Discord takes for more than a letter
_DISCORD_HOSTS = ("discord.com", "discordapp.com")


class Webhook:
    """Sends every change of a run's state until it arrives, by a thread of its own that lives while
    it has anything to send.
    """

    def __init__(
        self, address: str, *, say: Say = to_terminal, apart: float = _APART, pause: float = 0.5
    ) -> None:
        self._address, self.host = address, _host_of(address)
        self._secret = os.environ.get(SECRET, "").encode()
        self._say, self._pause = guarded(say), pause
        self._say_once = each_once(self._say)
        self._waiting: deque[JsonObject] = deque(maxlen=_MOST_WAITING)
        self._apart, self._next = apart, 0.0  # seconds; when a request may go out
        self.states: dict[str, tuple[str, int | str | None]] = {}  # place -> state, since
        self._lock, self.lost, self._sent = threading.Lock(), 0, 0
        self._thread: threading.Thread | None = None
        self._opener = build_opener(_NoRedirect)
        atexit.register(self.close)

    def judged(self, judgement: Judgement, place: str = "") -> None:
        """Send a judgement where the state changed."""
        facts = {
            name: getattr(judgement, name) for name in ("state", "since_step", "headline", "do")
        }
        self.change(judgement.run, facts | {"cause": judgement.cause.words}, place)

    def change(self, run: str, judged: JsonView, place: str = "") -> None:
        """Send how a run stands where that changed; a first state that is ok is no change.

        `place` tells runs of one name apart.
        """
        state, place = str(judged["state"]), place or run
        was, since = self.states.get(place, (None, None))
        # A run that recovered has no step of its own: it is told apart by that of its failure.
        since = judged["since_step"] if judged["since_step"] is not None else since
        self.states[place] = state, since
        if state == (was or State.OK):
            return
        texts = {name: clean(judged[name], longest=_LONGEST) for name in _TEXTS}
        mark = judged["headline"] if since is None else since
        digest = hashlib.sha256(f"{place}\0{state}\0{mark}".encode(errors="replace"))
        alert = {"id": digest.hexdigest()[:32], "run": clean(run), "state": state, "was": was}
        with self._lock:
            self.lost += len(self._waiting) == _MOST_WAITING
            self._waiting.append(alert | {"since_step": judged["since_step"]} | texts)
            if self._thread is None:
                self._thread = threading.Thread(target=self._send, daemon=True)
                self._thread.start()

    def close(self, seconds: float = _PATIENCE) -> int:
        """Wait while alerts arrive, so long for each, and return and say how many did not."""
        atexit.unregister(self.close)
        sent = -1
        while (thread := self._thread) and sent != self._sent:
            sent = self._sent
            thread.join(seconds)
        with self._lock:
            lost = self.lost + len(self._waiting) + (self._thread is not None)
            self._waiting.clear()
        if lost:
            self._say(f"{count(lost, 'alert was', 'alerts were')} not delivered to {self.host}")
        return lost

    def _send(self) -> None:
        """Send what waits, oldest first, and end."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                alert = self._waiting.popleft()
            self._deliver(alert)
            self._sent += 1

    def _deliver(self, alert: JsonView) -> None:
        """Send one alert until it arrives or is refused for good."""
        body, pause = to_json(payload(self.host, alert)).encode(), self._pause
        headers = {"Content-Type": "application/json"}
        if self._secret:
            headers[SIGNATURE] = f"sha256={hmac.new(self._secret, body, 'sha256').hexdigest()}"
        while True:
            time.sleep(max(0.0, self._next - time.monotonic()))
            self._next = time.monotonic() + self._apart
            try:
                with self._opener.open(Request(self._address, body, headers), timeout=_TIMEOUT):  # noqa: S310 - http alone
                    return
            except HTTPError as error:
                error.close()
                reason = f"HTTP {error.code}"
                asked = _seconds_until(error.headers.get("Retry-After") or "")
                pause = max(pause, min(asked, _PATIENCE / 2))
                if error.code < 500 and error.code not in (408, 425, 429):
                    self.lost += 1
                    self._say_once(f"{self.host} rejects alerts: {reason}")
                    return
            except (OSError, HTTPException, ValueError) as error:
                cause = getattr(error, "reason", error)  # never a text with the address
                reason = getattr(cause, "strerror", None) or type(cause).__name__
            self._say_once(
                f"an alert was not delivered to {self.host} ({reason}); it will be sent again"
            )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


class _NoRedirect(HTTPRedirectHandler):
    """Goes nowhere that a server points to."""

    def redirect_request(self, *_: Any) -> None:
        """Refuse."""


def _seconds_until(asked: str) -> float:
    """Return how long a server asks to wait, in seconds or until a date; 0 for neither."""
    try:
        return (
            float(asked)
            if asked.isdecimal()
            else parsedate_to_datetime(asked).timestamp() - time.time()
        )
    except (ValueError, OverflowError):
        return 0.0


def webhook_of(address: str | None, say: Say = to_terminal) -> Webhook | None:
    """Return the webhook of an address, by default of the environment's; None without one."""
    address = address or os.environ.get(ADDRESS)
    return Webhook(address, say=say) if address else None


def payload(host: str, alert: JsonView) -> JsonObject:
    """Return an alert as a host takes it, its texts as plain text."""
    was = f" (was {alert['was']})" if alert["was"] else ""
    text = clean(
        f"{alert['run']}: {alert['state'].replace('_', ' ')}{was}: "
        f"{'; '.join(alert[name].rstrip('.') for name in _TEXTS if alert[name])}",
        longest=_LONGEST,
    )
    if host == "hooks.slack.com":
        escaped = html.escape(text, quote=False)
        return {"text": escaped, "mrkdwn": False, "unfurl_links": False}
    if host in _DISCORD_HOSTS:
        escaped = _MARKED.sub(r"\\\g<0>", text)
        return {"content": escaped, "allowed_mentions": {"parse": []}, "flags": 4}  # no embeds
    return {"schema": 1, **alert, "text": text}


def _host_of(address: str) -> str:
    """Return the host of an address, and refuse one that is none."""
    try:
        parts = urlsplit(address if re.fullmatch("[!-~]+", address) else "")
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        parts, host = urlsplit(""), ""
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc:
        raise InvalidArgumentError(
            "expected an address as https://HOST/... for the webhook, got another (not shown: "
            "it may be a secret)"
        )
    return host
