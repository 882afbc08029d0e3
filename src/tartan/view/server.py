"""Serve the page of a run on the loopback interface, only to the browser of the user who started it.

A request is answered only if its Host header names this server (a page elsewhere may let its own name lead here) and if
it brings the token of the session: once in the URL that was printed, which answers with a redirect and a cookie, and
from then on in that cookie. What is served is made from the files of the run, and drawings of items; no file as it is.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tartan.base.format import format_number
from tartan.base.logs import logger_of
from tartan.errors import ConfigError, TartanError
from tartan.view.live import LiveRun
from tartan.view.page import clip_text, render, resource

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

_log = logger_of(__name__)
HOST: Final = "127.0.0.1"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_MOST_DIGITS: Final = 18
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_FILES: Final = {
    "view.js": "text/javascript",
    "matrix.js": "text/javascript",
    "beside.js": "text/javascript",
    "report.js": "text/javascript",
    "view.css": "text/css",
    "report.css": "text/css",
}
_Answer = Callable[["Request"], "Response"]


class Server:
    """The server of one run, bound to a port of the loopback interface when it is made.

    Parameters
    ----------
    live : LiveRun
    port : int
        0 takes a free one.
    token : str, optional
        Default: a new one.

    Raises
    ------
    ConfigError
        If the port is taken.
    """

    def __init__(self, live: LiveRun, port: int = 0, token: str | None = None) -> None:
        self._live = live
        self._token = token or secrets.token_urlsafe(32)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((HOST, port))
            self._socket.listen(128)  # what comes from here on waits until it is served
        except (OSError, OverflowError) as error:
            self._socket.close()
            raise ConfigError(f"port {port} cannot be used: {error}; name another one (--port)") from error
        self.port = int(self._socket.getsockname()[1])
        self._uvicorn = self._prepare()

    @property
    def url(self) -> str:
        """The address to open in a browser; it has the token in it."""
        return f"http://{HOST}:{self.port}/?token={self._token}"

    def serve(self) -> None:
        """Answer requests until ``stop`` is called or the process is interrupted."""
        _log.info("the page is served on http://%s:%d/", HOST, self.port)
        try:
            self._uvicorn.run(sockets=[self._socket])
        finally:
            self._socket.close()
            _log.info("the page is served no more")

    def stop(self) -> None:
        """End ``serve``, from another thread."""
        self._uvicorn.should_exit = True

    def _prepare(self) -> uvicorn.Server:
        import uvicorn

        config = uvicorn.Config(
            self.application(),
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="none",
            http="h11",
            loop="asyncio",
            server_header=False,
            timeout_graceful_shutdown=1,
        )
        return uvicorn.Server(config)

    def application(self) -> Starlette:
        """Return what answers the requests."""
        from starlette.applications import Starlette
        from starlette.routing import Route

        return Starlette(
            routes=[
                Route("/", self._guard(self._page)),
                Route("/file/{name}", self._guard(self._file)),
                Route("/state", self._guard(lambda request: _json(self._live.state()))),
                Route("/body", self._guard(lambda request: _html(self._live.body()))),
                Route("/beside", self._guard(lambda request: _json(self._live.beside()))),
                Route("/names/{axis}/{first}/{count}", self._guard(self._names)),
                Route("/find", self._guard(self._find)),
                Route("/cell/{row}/{column}", self._guard(self._cell)),
                Route("/item/{item}", self._guard(self._item)),
                Route("/pair/{a}/{b}", self._guard(self._pair)),
                Route("/tile/{level}/{row}/{column}.png", self._guard(self._tile)),
                Route("/drawing/{item}/{number}.png", self._guard(self._serve_drawing)),
                Route("/{path:path}", self._guard(lambda request: _plain(404, "there is no such page"))),
            ]
        )

    def _guard(self, answer: _Answer) -> _Answer:
        """Return an answer that is given only to the browser of the user."""

        def guarded(request: Request) -> Response:
            response = self._refusal(request)
            if response is None:
                response = self._with_cookie(request)
            if response is None:
                try:
                    response = answer(request)
                except ConfigError as error:
                    response = _plain(404, str(error))
                except TartanError as error:
                    _log.warning("%s cannot be answered: %s", request.url.path, error)
                    response = _plain(500, str(error))
            # Without what follows the path: the token may stand there.
            _log.debug("%s %s is answered with status %d", request.method, request.url.path, response.status_code)
            for name, value in _HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return guarded

    def _refusal(self, request: Request) -> Response | None:
        """Refuse other names of this server, other sites, and requests without the token."""
        if request.headers.getlist("host") not in ([f"{HOST}:{self.port}"], [f"localhost:{self.port}"]):
            return _make_refusal(request, "this server answers only under the address that it printed")
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return _make_refusal(request, "other sites get no answer")
        given = request.query_params.get("token") if request.url.path == "/" else None
        given = request.cookies.get(self._cookie, "") if given is None else given
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            return _make_refusal(
                request, "open the address that `tartan view` printed; it has the key to this page in it"
            )
        return None

    def _with_cookie(self, request: Request) -> Response | None:
        """Take the token out of the URL, so that it stays neither in the history nor on the screen."""
        from starlette.responses import RedirectResponse

        if request.url.path != "/" or "token" not in request.query_params:
            return None
        response = RedirectResponse("/", status_code=303)
        response.set_cookie(self._cookie, self._token, httponly=True, samesite="strict", path="/")
        return response

    @property
    def _cookie(self) -> str:
        return f"tartan-{self.port}"  # cookies do not tell ports apart

    def _page(self, request: Request) -> Response:
        return _html(render("view.html", title=self._live.state()["name"]))

    def _file(self, request: Request) -> Response:
        from starlette.responses import Response

        name = str(request.path_params["name"])
        if name not in _FILES:
            return _plain(404, "there is no such file")
        return Response(resource(name), media_type=_FILES[name])

    def _find(self, request: Request) -> Response:
        return _json({"items": self._live.find(request.query_params.get("text", "")[:200])})

    def _names(self, request: Request) -> Response:
        first, count = _numbers(request, "first", "count")
        return _json({"names": self._live.names(str(request.path_params["axis"]), first, count)})

    def _cell(self, request: Request) -> Response:
        return _json(self._live.cell(*_numbers(request, "row", "column")))

    def _item(self, request: Request) -> Response:
        return _json(self._live.item(*_numbers(request, "item")))

    def _pair(self, request: Request) -> Response:
        return _json(self._live.pair(*_numbers(request, "a", "b")))

    def _tile(self, request: Request) -> Response:
        from starlette.responses import Response

        tile = self._live.tile(*_numbers(request, "level", "row", "column"))
        far, near = map(format_number, tile.scale.limits)
        scale = quote(json.dumps({"far": far, "near": near, "name": clip_text(tile.scale.name, 60)}))
        about = {"X-Complete": "1" if tile.complete else "0", "X-Scale": scale}
        return Response(tile.png, media_type="image/png", headers=about)

    def _serve_drawing(self, request: Request) -> Response:
        from starlette.responses import Response

        data = self._live.drawing(*_numbers(request, "item", "number"))
        return Response(data, media_type="image/png", headers={"Cache-Control": "private, max-age=600"})


def _numbers(request: Request, *names: str) -> list[int]:
    texts = [str(request.path_params[name]) for name in names]
    if not all(text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS for text in texts):
        raise ConfigError("there is no such page")
    return [int(text) for text in texts]


def _json(value: Any) -> Response:
    from starlette.responses import Response

    return Response(json.dumps(value, allow_nan=False), media_type="application/json")


def _html(text: str) -> Response:
    from starlette.responses import HTMLResponse

    return HTMLResponse(text)


def _make_refusal(request: Request, reason: str) -> Response:
    _log.info("%s %s is refused: %s", request.method, request.url.path, reason)
    return _plain(403, reason)


def _plain(status: int, text: str) -> Response:
    from starlette.responses import PlainTextResponse

    return PlainTextResponse(text, status_code=status)
