"""The worker's side of a measurement: a process that answers orders, one JSON object a line.

    {"do": "load", "source": ..., "device": "cpu", "threads": 2, "options": {}}
                                                                  ->  {"load_ms": ..., "resident_bytes": ...}
    {"do": "answer", "rows": [[...]], "new_tokens": 64}           ->  an Answer
    {"do": "burst", "rows": [[...]], "new_tokens": 64}            ->  a Burst
    {"do": "facts"}                                               ->  the contender's facts, as they are now
    {"do": "memory"}                                              ->  {"peak_resident_bytes": ...}

A program of anybody's is one call, ``serve(make)``, where ``make`` gets the order to load and returns a
Contender or a WholeContender; this module and what it imports need numpy only.
What fails is answered with {"error": class, "message": text}. Orders come on stdin, answers go to what was
stdout; whatever a library prints to stdout goes to stderr, where it does no harm.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from gpt_onnx.errors import GptOnnxError

from .contender import Contender, WholeContender, run_answer, run_burst
from .memory import peak_resident_bytes, resident_bytes

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>

Make = Callable[[Mapping[str, Any]], Contender | WholeContender]
"""Loads what an order to load asks for."""


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends: a stopped process would not notice by itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _private_stdout() -> TextIO:
    """Return a stream to what stdout was, and let stdout go where stderr goes."""
    private = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return private


class Server:
    """Answers orders; ``make`` loads the contender."""

    def __init__(self, make: Make) -> None:
        self._make = make
        self._contender: Contender | WholeContender | None = None
        self._table: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
            "load": self._load,
            "answer": self._answer,
            "burst": self._burst,
            "facts": self._facts,
            "memory": self._memory,
        }

    def handle(self, order: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the answer to one order; an exception becomes an answer too."""
        try:
            return self._table[order["do"]](order)
        except GptOnnxError as exc:
            return {"error": type(exc).__name__, "message": str(exc)}
        except Exception as exc:  # torch and ONNX Runtime raise many kinds
            return {"error": "GptOnnxError", "message": f"{type(exc).__name__}: {exc}"}

    @property
    def _loaded(self) -> Contender | WholeContender:
        assert self._contender is not None
        return self._contender

    def _load(self, order: Mapping[str, Any]) -> Mapping[str, Any]:
        start = time.perf_counter()
        self._contender = self._make(order)
        load_ms = 1e3 * (time.perf_counter() - start)
        return {"load_ms": load_ms, "resident_bytes": resident_bytes()}

    def _answer(self, order: Mapping[str, Any]) -> Mapping[str, Any]:
        return dataclasses.asdict(run_answer(self._loaded, order["rows"], order["new_tokens"]))

    def _burst(self, order: Mapping[str, Any]) -> Mapping[str, Any]:
        return dataclasses.asdict(run_burst(self._loaded, order["rows"], order["new_tokens"]))

    def _facts(self, order: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._loaded.facts

    def _memory(self, order: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"peak_resident_bytes": peak_resident_bytes()}


def serve(make: Make) -> None:
    """Answer orders until stdin ends."""
    die_with_parent()
    warnings.simplefilter("ignore")  # lengths beyond those of training are measured on purpose
    answers, server = _private_stdout(), Server(make)
    for line in sys.stdin:
        answers.write(json.dumps(server.handle(json.loads(line))) + "\n")
        answers.flush()
