"""The server of a site: its headers, its files and nothing else, for this machine alone."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gpt_onnx.errors import InputError
from gpt_onnx.web._policy import HEADERS
from gpt_onnx.web._serve import serving


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    (folder / "page").mkdir(parents=True)
    files = {"index.html": "<p>hello", "page/app.js": "1", "a.wasm.gz": "2", "sw.js": "3"}
    for name, content in files.items():
        (folder / name).write_text(content)
    listed: dict[str, object] = {name: {} for name in files if name != "sw.js"}
    (folder / "site.json").write_text(json.dumps({"format": "gpt-onnx site", "files": listed}))
    (folder / "secret.txt").write_text("not of the site")
    (tmp_path / "outside.txt").write_text("not of the site")
    return folder


@pytest.fixture
def port(site: Path) -> Iterator[int]:
    with serving(site) as url:
        yield urlsplit(url).port or 0


def _ask(
    port: int, path: str, method: str = "GET", host: str = "localhost"
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers={"Host": f"{host}:{port}"})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.headers, content


def test_every_answer_has_the_headers(port: int) -> None:
    for path in ("/", "/page/app.js", "/nothing"):
        _, headers, _ = _ask(port, path)
        assert {name: headers[name] for name in HEADERS} == dict(HEADERS)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/index.html?threads=2", "text/html; charset=utf-8"),
        ("/page/app.js", "text/javascript; charset=utf-8"),
        ("/a.wasm.gz", "application/octet-stream"),
        ("/site.json", "application/json"),
        ("/sw.js", "text/javascript; charset=utf-8"),
    ],
)
def test_files_come_with_their_types(port: int, path: str, kind: str) -> None:
    status, headers, content = _ask(port, path)
    assert (status, headers["Content-Type"]) == (200, kind)
    assert len(content) == int(headers["Content-Length"])
    assert headers["Content-Encoding"] is None


@pytest.mark.parametrize(
    "path",
    [
        "/secret.txt",
        "/../outside.txt",
        "/%2e%2e/outside.txt",
        "/page/../../outside.txt",
        "/page",
        "//etc/passwd",
    ],
)
def test_what_is_not_listed_is_not_there(port: int, path: str) -> None:
    status, _, content = _ask(port, path)
    assert (status, content) == (404, b"")


@pytest.mark.parametrize("host", ["example.org", "localhost.example.org", ""])
def test_other_hosts_names_are_refused(port: int, host: str) -> None:
    assert _ask(port, "/", host=host)[0] == 421


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [(b"/", b"[", 421), (b"http://[/index.html", b"localhost", 400), (b"/", b"[::1", 421)],
)
def test_what_is_no_address_is_answered(port: int, path: bytes, host: bytes, status: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
        assert connection.recv(4096).split()[1] == str(status).encode()


def test_head_has_no_content(port: int) -> None:
    status, headers, content = _ask(port, "/", "HEAD")
    assert (status, headers["Content-Length"], content) == (200, "8", b"")


def test_file_that_is_gone_is_not_there(port: int, site: Path) -> None:
    (site / "page/app.js").unlink()
    assert _ask(port, "/page/app.js")[0] == 404


def test_taken_port_is_one_sentence(port: int, site: Path) -> None:
    with pytest.raises(InputError, match=rf"^port {port} is not to be had .*--port\.$"), serving(site, port):
        pass


def test_folder_that_is_no_site_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is no site; build one with gpt-onnx web\.$"), serving(tmp_path):
        pass
