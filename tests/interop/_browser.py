"""Pages in a headless Chromium.

    with page("http://127.0.0.1:8000/") as p:
        p.evaluate("document.title")                     # any expression; a promise is awaited
        p.wait_for("document.title === 'ready'", seconds=10)
        p.screenshot(tmp_path / "page.png")
        assert not p.errors and not p.failed

Pages on files of this machine: ``serving`` in _served.py. Tests are skipped where Chromium is not installed.
"""

from __future__ import annotations

import base64
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.interop._devtools import DevTools, DevToolsError, browser

DOMAINS = ("Runtime.enable", "Network.enable", "Log.enable")
WORKERS = {"autoAttach": True, "waitForDebuggerOnStart": False, "flatten": True}
KEYS = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), "Space": (32, " ")}
"""Name of a key to its code, and the text that it writes."""


class PageError(AssertionError):
    """A page threw, or what was waited for did not come."""


class Page:
    """One page, its workers, and what they said."""

    def __init__(self, tools: DevTools, session: str) -> None:
        self._tools, self._session = tools, session
        self._sessions = {session}
        self._urls: dict[str, str] = {}
        self._offline = False
        self.console: list[str] = []
        """Messages as ``level: text``, those of the browser too."""
        self.errors: list[str] = []
        """Exceptions that nothing caught."""
        self.failed: list[str] = []
        """Requests that got no answer or a refusal, as ``url: reason``."""
        tools.listen(self._hear)
        for answer in self._prepare(session):
            answer.result(timeout=60)
        tools.send("Page.enable", session)

    def goto(self, url: str, *, seconds: float = 60) -> None:
        """Open a page and wait until it is loaded.

        Raises:
            PageError: If it cannot be loaded.
        """
        failure = self._send("Page.navigate", url=url).get("errorText")
        if failure is not None:
            raise PageError(f"{url} cannot be loaded: {failure}")
        self.wait_for("document.readyState === 'complete'", seconds=seconds)

    def reload(self, *, seconds: float = 60) -> None:
        """Load the page again, and wait for it."""
        self.evaluate("window.isTheOldPage = true")
        self._send("Page.reload")
        self.wait_for("!window.isTheOldPage && document.readyState === 'complete'", seconds=seconds)

    def evaluate(self, js: str, *, seconds: float = 120) -> Any:
        """Return the JSON value of an expression, which may use ``await``.

        Raises:
            PageError: If it throws; says what.
        """
        said = self._send(
            "Runtime.evaluate",
            expression=js,
            awaitPromise=True,
            replMode=True,
            userGesture=True,
            seconds=seconds,
        )
        if "objectId" in said["result"] and "exceptionDetails" not in said:
            said = self._send(
                "Runtime.callFunctionOn",
                functionDeclaration="function() { return this; }",
                objectId=said["result"]["objectId"],
                awaitPromise=True,
                returnByValue=True,
                seconds=seconds,
            )
        if "exceptionDetails" in said:
            raise PageError(_exception_text(said["exceptionDetails"]))
        return said["result"].get("value")

    def wait_for(self, js: str, seconds: float = 30) -> Any:
        """Return the value of an expression as soon as it is true.

        Raises:
            PageError: If it is not within ``seconds``; says what the page said last.
        """
        return self.wait_until(lambda: self._evaluate_while_loading(js), seconds, js)

    def wait_until(self, happened: Callable[[], Any], seconds: float = 30, told: str = "it") -> Any:
        """Return what a function of the test's returns as soon as that is true.

        Raises:
            PageError: If it is not within ``seconds``; says what the page said last.
        """
        end = time.monotonic() + seconds
        while not (value := happened()):
            if time.monotonic() > end:
                last = [*self.console[-3:], *self.errors[-3:], *self.failed[-3:]]
                raise PageError(f"{told} was not true within {seconds} s; last heard: {last}")
            time.sleep(0.05)
        return value

    def click(self, selector: str) -> None:
        """Click in the middle of an element, as a mouse does.

        Raises:
            PageError: If there is no such element.
        """
        spot = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        where = {"x": spot[0], "y": spot[1], "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            self._send("Input.dispatchMouseEvent", type=kind, **where)

    def type(self, text: str) -> None:
        """Write into the element that has the focus."""
        self._send("Input.insertText", text=text)

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key of KEYS."""
        code, text = KEYS[key]
        said: dict[str, Any] = {
            "key": text if key == "Space" else key,
            "code": key,
            "windowsVirtualKeyCode": code,
        }
        said["modifiers"] = 8 if shift else 0
        self._send("Input.dispatchKeyEvent", type="keyDown", **said | ({"text": text} if text else {}))
        self._send("Input.dispatchKeyEvent", type="keyUp", **said)

    def offline(self, on: bool = True) -> None:
        """Cut the page and its workers off from every server, or connect them again.

        Those of the page's own process refuse the command, and share the page's connection.
        """
        self._offline = on
        wait([self._cut_off(session) for session in tuple(self._sessions)], timeout=60)

    def look(self, *, width: int = 1000, height: int = 800, dark: bool = False) -> None:
        """Set the size of the window in pixels, and whether the user likes it dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._send("Emulation.setDeviceMetricsOverride", **size)
        wish = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._send("Emulation.setEmulatedMedia", features=[wish])

    def screenshot(self, path: Path) -> Path:
        """Write what is seen as a PNG file."""
        path.write_bytes(base64.b64decode(self._send("Page.captureScreenshot", format="png")["data"]))
        return path

    def _send(self, method: str, *, seconds: float = 60, **said: Any) -> Any:
        return self._tools.send(method, self._session, seconds=seconds, **said)

    def _evaluate_while_loading(self, js: str) -> Any:
        """Evaluate; nothing where a page that comes or goes throws."""
        try:
            return self.evaluate(js)
        except (PageError, DevToolsError):
            return None

    def _prepare(self, session: str) -> list[Future[Any]]:
        """Have a page or a worker tell what happens in it, and start its own workers watched too."""
        answers = [self._tools.post(domain, session) for domain in DOMAINS]
        answers.append(self._tools.post("Target.setAutoAttach", session, **WORKERS))
        return [*answers, self._cut_off(session)] if self._offline else answers

    def _cut_off(self, session: str) -> Future[Any]:
        limits = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        return self._tools.post("Network.emulateNetworkConditions", session, offline=self._offline, **limits)

    def _hear(self, session: str, event: str, said: dict[str, Any]) -> None:
        if session in self._sessions and event in self._EVENTS:
            self._EVENTS[event](self, said)

    def _on_worker(self, said: dict[str, Any]) -> None:
        self._sessions.add(said["sessionId"])
        self._prepare(said["sessionId"])

    def _on_worker_end(self, said: dict[str, Any]) -> None:
        self._sessions.discard(said["sessionId"])

    def _on_console(self, said: dict[str, Any]) -> None:
        words = [str(part.get("value", part.get("description", ""))) for part in said["args"]]
        self.console.append(f"{said['type']}: {' '.join(words)}")

    def _on_log(self, said: dict[str, Any]) -> None:
        self.console.append(f"{said['entry']['level']}: {said['entry']['text']}")

    def _on_exception(self, said: dict[str, Any]) -> None:
        self.errors.append(_exception_text(said["exceptionDetails"]))

    def _on_request(self, said: dict[str, Any]) -> None:
        self._urls[said["requestId"]] = said["request"]["url"]

    def _on_response(self, said: dict[str, Any]) -> None:
        if said["response"]["status"] >= 400:
            self.failed.append(f"{said['response']['url']}: {said['response']['status']}")

    def _on_failure(self, said: dict[str, Any]) -> None:
        self.failed.append(f"{self._urls.get(said['requestId'], '?')}: {said['errorText']}")

    _EVENTS = {  # noqa: RUF012 - a table of this class's own methods
        "Target.attachedToTarget": _on_worker,
        "Target.detachedFromTarget": _on_worker_end,
        "Runtime.consoleAPICalled": _on_console,
        "Runtime.exceptionThrown": _on_exception,
        "Log.entryAdded": _on_log,
        "Network.requestWillBeSent": _on_request,
        "Network.responseReceived": _on_response,
        "Network.loadingFailed": _on_failure,
    }


def _exception_text(details: dict[str, Any]) -> str:
    thrown = details.get("exception", {})
    return str(thrown.get("description", thrown.get("value", details["text"])))


@contextmanager
def page(url: str = "about:blank", *, flags: Sequence[str] = ()) -> Iterator[Page]:
    """Open a page in a Chromium of its own, which ends with the block; skips the test where there is none.

    Args:
        url: What to open.
        flags: Flags of Chromium beyond those of _devtools.py.
    """
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        browser(Path(profile), flags) as tools,
    ):
        target = tools.send("Target.createTarget", url="about:blank")["targetId"]
        session = tools.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        opened = Page(tools, session)
        opened.look()
        opened.goto(url)
        yield opened
