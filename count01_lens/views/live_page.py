"""A training on a page of this machine while it runs: `cl.LivePage()`, `count01-lens train --live`.

A small server, which only this machine can reach and only those who know the address can read: it
listens on the loopback, on a port and under a path that nobody can guess, and answers requests for
two paths under it. Whatever asks under another host name, as a page of another site would that
has its name point here, is refused. What is new is pushed as server-sent events.
"""

import contextlib
import hmac
import json
import re
import secrets
import sys
import time
import webbrowser
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from typing import Any

from count01_lens.common.validation import check_int
from count01_lens.training.live import LiveTraining

HOST = "127.0.0.1"
# What this machine is called here; the port may be one of another machine that is forwarded.
_HERE = re.compile(r"(127\.0\.0\.1|localhost)(:\d+)?", re.IGNORECASE)
_PAUSE = 0.5  # seconds between two pieces of news: more often, nobody can read it
_STILL = 10.0  # after so many without news the connection is tried
_FAREWELL = 2.0  # seconds that pages have to take in the end
_MOST_PAGES = 8  # at a time
_SLOW = 10.0  # seconds within which somebody who connects has to ask
_KINDS = ("lines", "heads")
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'none'",
}


class LivePage:
    """Serves a page on which a training can be watched, to browsers on this machine only.

    The address is printed as soon as training begins. When training ends, pages that are open have
    all of it and stay readable; the server ends with the program.

    Args:
        port: where to listen; by default any that is free.
        open_browser: show the page in the browser of this machine.

    Attributes:
        address: of the page; None before training begins.

    Example:
        >>> config = cl.TrainConfig(model=cl.ModelConfig(d_embed=8, n_heads=2), epochs=1)
        >>> page = cl.LivePage()
        >>> result = cl.train(config, progress=False, live=page)
        >>> page.address.startswith("http://127.0.0.1:")
        True
    """

    def __init__(self, *, port: int = 0, open_browser: bool = False):
        self.port, self.open_browser = check_int("port", port, at_least=0), open_browser
        if self.port > 65535:
            raise ValueError(f"port: expected at most 65535, got {port}")
        self.training: LiveTraining | None = None
        self.address: str | None = None
        self._server: _Server | None = None

    def __repr__(self) -> str:
        return f"LivePage({self.address or 'nothing is trained yet'})"

    def follow(self, training: LiveTraining) -> None:
        """Begin to serve, and say where."""
        self.close()
        self.training = training
        server = self._server = _Server((HOST, self.port), training)
        Thread(target=server.serve_forever, name="live page", daemon=True).start()
        self.address = f"http://{HOST}:{server.server_port}/{server.token}/"
        print(f"watch it live: {self.address}", file=sys.stderr, flush=True)
        if self.open_browser:
            webbrowser.open(self.address)

    def changed(self) -> None:
        """Wait at the end, a moment, until pages that are open have all of it.

        Before, pages look for news by themselves: to wake them would take time from training.
        """
        server, training = self._server, self.training
        if server is None or training is None or not training.ended:
            return
        with server.news:
            server.news.notify_all()
            server.news.wait_for(lambda: server.pages == 0, timeout=_FAREWELL)

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Server(ThreadingHTTPServer):
    """Knows what is trained; each request has a thread, which does not keep the program alive."""

    daemon_threads = True

    def __init__(self, place: tuple[str, int], training: LiveTraining):
        self.training, self.token = training, secrets.token_urlsafe(18)
        self.news, self.pages = Condition(), 0  # open ones
        super().__init__(place, _Handler)

    @cached_property
    def page(self) -> bytes:
        """The page, without any data."""
        # Templates are loaded when somebody looks.
        from count01_lens.views.live_module import live_page

        return live_page().encode()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: whatever a browser does is no concern of who trains."""


class _Handler(BaseHTTPRequestHandler):
    """Answers GET for the page and for its events, and nothing else."""

    server: _Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "count01-lens", ""
    timeout = _SLOW

    def do_GET(self) -> None:
        """Answer, after a look at who asks under which name for what."""
        if not _HERE.fullmatch(self.headers.get("Host", "")):
            self._refuse(HTTPStatus.FORBIDDEN)
            return
        token, _, path = self.path.removeprefix("/").partition("/")
        known = hmac.compare_digest(token.encode("utf-8", "replace"), self.server.token.encode())
        if not known or path not in ("", "events"):
            self._refuse(HTTPStatus.NOT_FOUND)
        elif path == "":
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", self.server.page)
        else:
            self._push()

    def _push(self) -> None:
        """Send what is new as long as somebody reads it."""
        with self._a_page() as admitted:
            if not admitted:
                self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
                return
            self._begin(
                HTTPStatus.OK,
                {"Content-Type": "text/event-stream; charset=utf-8", "Connection": "close"},
            )
            training, news, seen = self.server.training, self.server.news, [0, 0]
            self._send("about", lambda: training.about)
            told_last = time.monotonic()
            while True:
                ended = training.ended  # before news are taken: they are all then
                if ended or [len(training.lines), len(training.heads)] != seen:
                    told = self._send("news", partial(training.news, *seen))
                    seen = [n + len(told[name]) for n, name in zip(seen, _KINDS, strict=True)]
                    told_last = time.monotonic()
                elif time.monotonic() - told_last > _STILL:
                    self.wfile.write(b": still there\n\n")
                    told_last = time.monotonic()
                if ended:
                    return
                with news:
                    news.wait_for(lambda: training.ended, _PAUSE)

    @contextlib.contextmanager
    def _a_page(self) -> Iterator[bool]:
        server = self.server
        with server.news:
            admitted = server.pages < _MOST_PAGES
            server.pages += admitted
        try:
            yield admitted
        finally:
            with server.news:
                server.pages -= admitted
                server.news.notify_all()

    def _send(self, event: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Make an event and send it; the time that this takes is not training's."""
        start = time.thread_time()
        content = make()
        text = json.dumps(content, separators=(",", ":"), allow_nan=False)
        self.wfile.write(f"event: {event}\ndata: {text}\n\n".encode())
        self.server.training.budget.spend(time.thread_time() - start)
        return content

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse what is no GET, or no HTTP, in a word."""
        self._refuse(HTTPStatus(code))

    def _refuse(self, status: HTTPStatus) -> None:
        self._answer(status, "text/plain; charset=utf-8", f"{status.phrase}\n".encode())

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        length = str(len(body))
        self._begin(status, {"Content-Type": kind, "Content-Length": length, "Connection": "close"})
        self.wfile.write(body)

    def _begin(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, **_HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Write nothing: the terminal shows training."""
