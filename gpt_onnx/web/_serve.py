"""A server of one site on this machine, with the headers that it wants.

    with serving(Path("site"), port=8000) as url: ...
    serve(Path("site"), port=8000, tell=print)          # until ctrl-C

It listens on 127.0.0.1 alone and answers requests that name this machine: a page of another host cannot read
it by a name that leads here. It sends what the site lists, and nothing else.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from gpt_onnx.errors import InputError
from gpt_onnx.web._listing import LISTING, WORKER, read_listing
from gpt_onnx.web._policy import HEADERS

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
PORT = 8000
MIME_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".md": "text/markdown; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
OTHER = "application/octet-stream"


class _Server(ThreadingHTTPServer):
    """Knows the site that it serves."""

    daemon_threads = True

    def __init__(self, site: Path, port: int) -> None:
        self.site = site
        self.listed = {*read_listing(site)["files"], LISTING, WORKER}
        super().__init__((HOST, port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD."""

    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a request is no news."""

    def _answer(self, *, with_body: bool) -> None:
        try:
            path = unquote(urlsplit(self.path).path).removeprefix("/") or "index.html"
        except ValueError:  # it is no address
            self._refuse(HTTPStatus.BAD_REQUEST)
            return
        if self._host() not in NAMES:
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
        elif path not in self.server.listed:
            self._refuse(HTTPStatus.NOT_FOUND)
        else:
            self._send(self.server.site / path, with_body=with_body)

    def _host(self) -> str | None:
        """Return the name that was asked for, without its port; None for none, and for what is no name."""
        try:
            return urlsplit(f"//{self.headers.get('Host', '')}").hostname
        except ValueError:
            return None

    def _refuse(self, status: HTTPStatus) -> None:
        self._begin(status, "text/plain", 0)

    def _begin(self, status: HTTPStatus, kind: str, size: int) -> None:
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        self.end_headers()

    def _send(self, path: Path, *, with_body: bool) -> None:
        try:
            file = path.open("rb")
        except OSError:  # it was deleted, or the site is being replaced
            return self._refuse(HTTPStatus.NOT_FOUND)
        with file:
            self._begin(HTTPStatus.OK, MIME_TYPES.get(path.suffix, OTHER), path.stat().st_size)
            if with_body:
                self._copy(file)
        return None

    def _copy(self, file: IO[bytes]) -> None:
        try:
            shutil.copyfileobj(file, self.wfile)
        except (BrokenPipeError, ConnectionResetError):  # the page was closed
            self.close_connection = True


def _listening(site: Path, port: int) -> _Server:
    if not read_listing(site):
        raise InputError(f"{site} is no site; build one with gpt-onnx web.")
    try:
        return _Server(site, port)
    except OSError as exc:
        raise InputError(
            f"port {port} is not to be had ({exc.strerror}); choose another with --port."
        ) from exc


@contextmanager
def serving(site: Path, port: int = 0) -> Iterator[str]:
    """Serve a site as long as the block runs; yields its address. Port 0: a free one.

    Raises:
        InputError: if there is no site, or the port is taken.
    """
    server = _listening(site, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://localhost:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def serve(site: Path, port: int, tell: Callable[[str], None]) -> None:
    """Serve a site until ctrl-C.

    Args:
        site: The folder.
        port: 0: a free one.
        tell: Called with the address as soon as it answers.

    Raises:
        InputError: if there is no site, or the port is taken.
        KeyboardInterrupt: at ctrl-C.
    """
    with _listening(site, port) as server:
        tell(f"http://localhost:{server.server_address[1]}/")
        server.serve_forever()
