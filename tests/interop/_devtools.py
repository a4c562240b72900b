"""A Chromium of our own, spoken to by the DevTools protocol over two pipes: no driver and no socket.

Messages are JSON with a zero byte after each, on the browser's file descriptors 3 (to it) and 4 (from it).
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
LAUNCHER = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3), os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Moves the two ends to where Chromium looks for them; a fork with code of ours in it would warn."""

Listener = Callable[[str, str, dict[str, Any]], None]
"""Called with a session's id, an event's name and what it says."""


class DevToolsError(Exception):
    """The browser refused a command, or went away."""


def chromium() -> str:
    """Return the path of Chromium; skips the test where there is none."""
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("Chromium is not installed here (Debian: apt-get install chromium)")
    return found


class DevTools:
    """Commands to a browser, and its events."""

    def __init__(self, commands: int, messages: int) -> None:
        self._commands, self._messages = commands, messages
        self._waiting: dict[int, Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._listeners: list[Listener] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def listen(self, listener: Listener) -> None:
        """Hear every event from now on, on a thread of its own: commands may be posted there, not sent."""
        self._listeners.append(listener)

    def post(self, method: str, session: str | None = None, **said: Any) -> Future[Any]:
        """Send a command and return its answer to come."""
        number, answer = next(self._numbers), Future[Any]()
        self._waiting[number] = answer
        message = {"id": number, "method": method, "params": said}
        whole = json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0"
        while whole:
            whole = whole[os.write(self._commands, whole) :]
        return answer

    def send(self, method: str, session: str | None = None, *, seconds: float = 60, **said: Any) -> Any:
        """Send a command and wait for its answer.

        Raises:
            DevToolsError: If the browser refuses it.
            TimeoutError: If nothing comes within ``seconds``.
        """
        return self.post(method, session, **said).result(timeout=seconds)

    def close(self) -> None:
        """Close our ends, once the browser has ended."""
        self._reader.join(timeout=10)
        os.close(self._commands)
        os.close(self._messages)

    def _read(self) -> None:
        rest = b""
        while piece := os.read(self._messages, 1 << 20):
            *whole, rest = (rest + piece).split(b"\0")
            for message in whole:
                self._take(json.loads(message))
        for answer in self._waiting.values():
            answer.set_exception(DevToolsError("Chromium ended before it answered"))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" not in message:
            for listener in tuple(self._listeners):
                listener(message.get("sessionId", ""), message["method"], message.get("params", {}))
            return
        answer = self._waiting.pop(message["id"])
        if "error" in message:
            answer.set_exception(DevToolsError(message["error"]["message"]))
        else:
            answer.set_result(message["result"])


@contextmanager
def browser(profile: Path, flags: Sequence[str] = ()) -> Iterator[DevTools]:
    """Start Chromium with an empty profile, and end it with the block.

    Args:
        profile: An empty folder for it.
        flags: Flags beyond FLAGS.
    """
    (to_it, commands), (messages, from_it) = os.pipe(), os.pipe()
    launcher = [sys.executable, "-c", LAUNCHER, str(to_it), str(from_it)]
    command = [*launcher, chromium(), *FLAGS, *flags, f"--user-data-dir={profile}"]
    with (profile / "stderr.txt").open("wb") as log:
        process = subprocess.Popen(command, pass_fds=(to_it, from_it), stderr=log, stdout=log)
    os.close(to_it)
    os.close(from_it)
    tools = DevTools(commands, messages)
    try:
        tools.send("Browser.getVersion")
        yield tools
    finally:
        _end(tools, process)


def _end(tools: DevTools, process: subprocess.Popen[bytes]) -> None:
    try:
        tools.post("Browser.close")
        process.wait(timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        process.kill()
        process.wait()
    tools.close()
