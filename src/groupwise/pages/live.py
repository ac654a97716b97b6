"""Serve the live page on loopback, to those who have its address.

Whatever a log holds reaches the page as JSON and is shown as text. What is shown is decided in
`live_hub`. The token stands in the address and not in a cookie: cookies know no ports, so that a
browser would show one to every other server of this machine.
"""

from __future__ import annotations

import asyncio
import html
import re
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from groupwise.analysis.rollouts import VIEWS
from groupwise.errors import GroupwiseError
from groupwise.files import table_column
from groupwise.pages.live_hub import Hub
from groupwise.pages.markup import FILES, filled, page_file
from groupwise.wording import clean

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.datastructures import Headers
    from starlette.requests import Request
    from starlette.responses import Response

    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
    Application = Callable[[Scope, Receive, Send], Awaitable[None]]

HOST, PORT, PORTS = "127.0.0.1", 8750, 10
_MOST_CONNECTIONS, _MOST_HEAD = (
    512,
    8192,
)  # connections at a time; bytes of a request's line and headers
# connections that have not asked yet: the oldest makes room, so that those with the token find it
_MOST_WAITING = 128
_PATIENCE = 10.0  # seconds in which a connection must have asked
_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
_HEADERS = table_column("pages/headers.tsv", "header", "value")
_META = re.compile(rb'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')


def allowed_host(host: str) -> bool:
    """Return whether a Host header names this machine's loopback.

    Any other name was made to point here by somebody else.
    """
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host, "0"
    return name.lower() in _NAMES and port.isascii() and port.isdigit()


def new_token() -> str:
    """Return what nobody guesses, for an address."""
    return secrets.token_urlsafe(24)


class Guard:
    """Refuses requests that lack the token or that another site made; sends the headers.

    The headers keep a page in. A request for another machine is refused too.
    """

    def __init__(self, application: Application, token: str) -> None:
        self._application, self._token = application, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through or refuse it."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        from starlette.datastructures import Headers, MutableHeaders
        from starlette.responses import PlainTextResponse

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        inner: Application = self._application
        if refusal := self._refusal(scope["path"], Headers(scope=scope)):
            words, status = refusal
            # no connection is kept for more
            inner = PlainTextResponse(words, status, {"connection": "close"})
        await inner({**scope, "root_path": f"/{self._token}"}, receive, guarded)

    def _refusal(self, path: str, headers: Headers) -> tuple[str, int] | None:
        """Return the sentence and the status of the answer to a request that is not let through."""
        hosts, site = headers.getlist("host"), headers.get("sec-fetch-site", "none")
        navigates = (
            headers.get("sec-fetch-mode") == "navigate"
            and headers.get("sec-fetch-dest") == "document"
        )
        if len(path) + sum(len(name) + len(value) for name, value in headers.raw) > _MOST_HEAD:
            return f"A request has at most {_MOST_HEAD:,} bytes before its body.\n", 431
        if len(hosts) != 1 or not allowed_host(hosts[0]):
            return "This page answers only requests to 127.0.0.1 and localhost.\n", 421
        if site not in ("none", "same-origin") and not navigates:
            return "This page answers only requests that it sends itself.\n", 403
        if path == "/favicon.ico":  # which browsers ask for without the token
            return "", 204
        given = path.removeprefix("/").partition("/")[0].encode(errors="replace")
        # compared in a time that says nothing of how much is right
        if not secrets.compare_digest(given, self._token.encode()):
            words = "This page opens only with the whole address that groupwise watch printed.\n"
            return words, 403
        return None


def _index_of(hub: Hub, request: Request) -> int:
    """Return the place of the run that is asked for."""
    from starlette.exceptions import HTTPException

    number = request.path_params["number"]
    if not re.fullmatch("[0-9]{1,9}", number) or not 1 <= int(number) <= len(hub.runs):
        raise HTTPException(404, "This page has no such run.")
    return int(number) - 1


async def _report(hub: Hub, request: Request) -> Response:
    """Answer with the report of a run, under its own policy."""
    from starlette.exceptions import HTTPException
    from starlette.responses import Response

    try:
        made = await hub.report(_index_of(hub, request))
    except GroupwiseError as error:
        raise HTTPException(503, clean(error, longest=600)) from None
    if made is None:
        raise HTTPException(503, "This run has no rows yet.")
    policy_tag = _META.search(made)
    assert policy_tag  # every page of ours says what it may load
    policy = f"{html.unescape(policy_tag[1].decode())}; frame-ancestors 'none'"
    return Response(made, media_type="text/html", headers={"content-security-policy": policy})


async def _rollouts(hub: Hub, request: Request) -> Response:
    """Answer with a bounded part of a run's completions."""
    from starlette.exceptions import HTTPException
    from starlette.responses import Response

    index, query = _index_of(hub, request), request.query_params
    view, first, most = query.get("view", VIEWS[0]), query.get("from", "0"), query.get("most", "0")
    if view not in VIEWS or not all(re.fullmatch("[0-9]{1,9}", number) for number in (first, most)):
        raise HTTPException(
            400,
            f"The request needs a view ({', '.join(VIEWS)}) and whole numbers for from and most.",
        )
    try:
        answer = await asyncio.to_thread(
            hub.rollouts, index, view, int(first), int(most), whole="whole" in query
        )
    except GroupwiseError as error:  # the file that the texts stay in is another by now
        raise HTTPException(409, str(error)) from None
    return Response(answer, media_type="application/json")


def application(hub: Hub, token: str) -> Application:
    """Return the application that serves a hub, and follows the logs while it runs."""
    from starlette.applications import Starlette
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    async def page(_request: Request) -> Response:
        name = hub.runs[0].name if len(hub.runs) == 1 else f"{len(hub.runs)} runs"
        return Response(str(filled("live.html", name=name)), media_type="text/html")

    async def events(request: Request) -> Response:
        return StreamingResponse(
            hub.messages(request.headers.get("last-event-id", "")), media_type="text/event-stream"
        )

    async def file(request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]
        kind = "text/css" if name.endswith(".css") else "text/javascript"
        return Response("\n".join(map(page_file, FILES[name])), media_type=kind)

    @asynccontextmanager
    async def lifespan(_application: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(hub.follow())
        try:
            yield
        finally:
            hub.stop()
            task.cancel()
            try:
                with suppress(asyncio.CancelledError):
                    await task
            finally:
                hub.close()

    routes = [
        Route("/", page),
        Route("/live.css", file),
        Route("/live.js", file),
        Route("/events", events),
        Route("/report/{number}", partial(_report, hub)),
        Route("/rollouts/{number}", partial(_rollouts, hub)),
    ]
    return Guard(Starlette(routes=routes, lifespan=lifespan), token)


def bound_socket(port: int | None) -> socket.socket:
    """Return a socket on the loopback address."""
    wanted = range(PORT, PORT + PORTS) if port is None else (port,)
    reason = ""
    for number in wanted:
        taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind((HOST, number))
            taken.listen(128)  # two watchers may both bind a port that neither listens on yet
        except OSError as error:
            taken.close()
            reason = error.strerror or str(error)
            continue
        return taken
    tried = (
        f"a free port from {PORT} to {PORT + PORTS - 1}, got none"
        if port is None
        else f"a free port, got {port}"
    )
    raise GroupwiseError(
        f"expected {tried} ({reason}): stop another watcher, or choose another --port (0 for any)"
    )


def serve(hub: Hub, bound: socket.socket, token: str) -> None:
    """Serve until Ctrl-C or SIGTERM; no request is logged, since an address holds the token."""
    import h11
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    waiting: list[Connection] = []

    class Connection(H11Protocol):
        """Ends where its client does not come to ask.

        That needs no token, and would keep others out.
        """

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's own
            """Begin to wait for a request."""
            super().connection_made(transport)
            waiting[:] = [
                other
                for other in waiting
                if other.conn.their_state is h11.IDLE and not other.transport.is_closing()
            ]
            waiting.append(self)
            if len(waiting) > _MOST_WAITING:
                waiting.pop(0).transport.close()
            self.loop.call_later(_PATIENCE, self._look, self.cycle)

        def _look(self, before: object) -> None:
            """End the connection where it waits for the request of the last look."""
            if self.conn.their_state is h11.IDLE and self.cycle is before:
                self.transport.close()
            elif not self.transport.is_closing():
                self.loop.call_later(_PATIENCE, self._look, self.cycle)

    class Server(uvicorn.Server):
        """Ends the streams first, so that stopping does not wait for pages that stay open."""

        def handle_exit(self, sig: int, frame: Any) -> None:  # noqa: ARG002 - as uvicorn calls it
            """Stop, at once when asked twice.

            Uvicorn's own would send the signal again after the end and so end the command.
            """
            hub.stop()
            self.force_exit = self.should_exit
            self.should_exit = True

    config = uvicorn.Config(
        application(hub, token),
        http=Connection,
        ws="none",
        log_level="error",
        access_log=False,
        timeout_graceful_shutdown=2,
        lifespan="on",
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        h11_max_incomplete_event_size=_MOST_HEAD,
    )
    with suppress(KeyboardInterrupt):
        Server(config).run(sockets=[bound])
