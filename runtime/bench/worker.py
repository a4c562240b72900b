"""The measuring side: a contender's process, awake only in its turns.

    with Worker(Program(module="gpt_onnx.runtime.bench.bundle_contender")) as worker:
        worker.ask({"do": "load", "source": "bundle", "device": "cpu", "threads": 2})

Between two orders the process is stopped with SIGSTOP where the system has it: pools of threads that spin
after their last task, as those of ONNX Runtime and OpenMP do, would take cores from the next contender.
Where there is no SIGSTOP (Windows) the process merely waits.

The program may run under another Python than this one, which lends it the package gpt_onnx (_boot.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from gpt_onnx import errors

from .entrant import Program

BOOT = Path(__file__).with_name("_boot.py")
LAST_WORDS = 500  # bytes of stderr in an error
PATIENCE_S = 5.0  # how long a process may take to end by itself


def _package() -> str:
    """Return the folder of the package gpt_onnx."""
    assert errors.__file__ is not None
    return str(Path(errors.__file__).resolve().parent)


class Worker:
    """One process; see the module. ``seconds`` since its start are the caller's to measure."""

    def __init__(self, program: Program) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        self._name = program.name
        self._process = subprocess.Popen(
            [program.python, "-P", str(BOOT), _package(), *program.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, **program.environment},
            start_new_session=True,  # Ctrl-C is this process's business, which then closes that one
        )

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """Wake the process, give it an order, wait for the answer and stop it again.

        Raises:
            GptOnnxError: of the class that the process raised; or if it ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._signal("SIGCONT")
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise errors.GptOnnxError(self._obituary())
        self._signal("SIGSTOP")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise getattr(errors, answer["error"], errors.GptOnnxError)(answer["message"])
        return answer

    def _signal(self, name: str) -> None:
        number = getattr(signal, name, None)
        if number is not None:
            self._process.send_signal(number)

    def _obituary(self) -> str:
        code = self._process.wait()
        self._stderr.seek(0)
        said = self._stderr.read()[-LAST_WORDS:].decode(errors="replace").strip().splitlines()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        words = said[-1] if said else "none"
        return f"the process of {self._name} {how} instead of answering; its last words: {words}"

    def close(self, *, kill: bool = False) -> None:
        """End the process: by the end of its orders, or at once."""
        self._signal("SIGKILL" if kill else "SIGCONT")
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close(kill=exc_info[0] is not None)
