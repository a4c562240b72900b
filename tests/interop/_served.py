"""A server of folders on this machine, for pages that tests open.

with serving({"/": site, "/bundle/": bundle}) as server:
    server.url                      # http://127.0.0.1:40321
    server.requests                 # paths asked for, in order
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

MIME_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".css": "text/css",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
ISOLATION = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""What lets a page share memory between threads."""
NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Served:
    """A running server."""

    url: str
    """Without a slash at its end."""
    requests: list[str] = field(default_factory=list)
    """Paths asked for, in the order in which they came."""


@dataclass(frozen=True, slots=True)
class _Plan:
    folders: Mapping[str, Path]
    headers: Mapping[str, str]
    cut: Mapping[str, int]
    half: Mapping[str, int]

    def file_of(self, path: str) -> Path | None:
        """Return the file that a path means, by the longest prefix; None for no such file."""
        prefix = max((prefix for prefix in self.folders if path.startswith(prefix)), key=len, default=None)
        if prefix is None:
            return None
        found = self.folders[prefix] / path.removeprefix(prefix)
        found = found / "index.html" if found.is_dir() else found
        return found if found.is_file() else None


def _handler(plan: _Plan, requests: list[str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._begin()

        def do_GET(self) -> None:
            requests.append(self._path())
            self.wfile.write(self._begin()[: plan.cut.get(self._path())])

        def _path(self) -> str:
            return unquote(urlsplit(self.path).path)

        def _begin(self) -> bytes:
            """Send all but the content, and return that."""
            file = plan.file_of(self._path())
            if file is None:
                self.send_error(HTTPStatus.NOT_FOUND)
                return b""
            content = file.read_bytes()[: plan.half.get(self._path())]
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", MIME_TYPES.get(file.suffix, "application/octet-stream"))
            self.send_header("Content-Length", str(len(content)))
            for name, value in plan.headers.items():
                self.send_header(name, value)
            self.end_headers()
            return content

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@contextmanager
def serving(
    folders: Mapping[str, Path],
    *,
    isolated: bool = True,
    cut: Mapping[str, int] = NOTHING,
    half: Mapping[str, int] = NOTHING,
) -> Iterator[Served]:
    """Serve folders on a free port of 127.0.0.1.

    Args:
        folders: Prefix of a path, with a slash at its end, to folder.
        isolated: Whether pages are cross-origin isolated, and so may use threads.
        cut: Path to the number of bytes after which its connection breaks off, though more were promised.
        half: Path to the number of bytes that its file seems to have.
    """
    requests: list[str] = []
    plan = _Plan(folders, ISOLATION if isolated else NOTHING, cut, half)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(plan, requests))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield Served(f"http://127.0.0.1:{server.server_address[1]}", requests)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
