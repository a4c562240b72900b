"""A client's program that is started once and answers orders, one after another: a line of JSON each way.

with started([python, "programs/onnxruntime_loop.py"]) as worker:
    worker.ask({"bundle": ...})         # {"ids": ...}

A program that ends is started anew by the next order.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SECONDS = 600
"""What an answer may take."""


class ClientFailed(Exception):  # noqa: N818  # it is what happened, to the client
    """A client's program had an error: what it says, or its last line."""


class Worker:
    """See the module."""

    def __init__(self, command: Sequence[str | Path], stderr: Path) -> None:
        self._command, self._stderr = command, stderr
        self._process: subprocess.Popen[str] | None = None

    def ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to an order.

        Raises:
            ClientFailed: if the program has none, or ends, or takes longer than SECONDS.
        """
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(SECONDS, process.kill)
        timer.start()
        try:
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            self.close()
            raise ClientFailed(self._last_line())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ClientFailed(answer["error"])
        return answer

    def close(self) -> None:
        """End the program."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _start(self) -> subprocess.Popen[str]:
        with self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                encoding="utf-8",
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        return self._process

    def _last_line(self) -> str:
        lines = self._stderr.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


@contextmanager
def started(command: Sequence[str | Path]) -> Iterator[Worker]:
    """Have a worker, which ends with the block."""
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(command, Path(folder) / "stderr")
        try:
            yield worker
        finally:
            worker.close()
