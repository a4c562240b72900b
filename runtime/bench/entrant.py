"""Who takes part in a measurement, before any process is started.

Program(python="venvs/llama/bin/python", script="llama_cpp_contender.py")
Entrant(name="llama.cpp q4_0", kind=PEER, program=..., source="q4_0.gguf", options={"flash": True})
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpt_onnx.errors import InputError

BUNDLE, EAGER, COMPILED, PEER, MEMORY = "bundle", "eager", "compiled", "peer", "memory"
"""Kinds of contenders; MEMORY is the machine's own, which only reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a contender's process runs: a module with a function ``main``, or a script.

    Raises:
        InputError: if it is neither or both, or a file does not exist.
    """

    module: str | None = None
    script: str | None = None
    """A file; modules beside it can be imported."""
    python: str = sys.executable
    """The interpreter, 3.11 or later, with numpy; gpt_onnx need not be installed there."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of its process beside those of this one."""

    def __post_init__(self) -> None:
        if (self.module is None) == (self.script is None):
            raise InputError(
                f"module is {self.module!r} and script is {self.script!r}; a program is exactly one of them."
            )
        for what, file in (("python", self.python), ("script", self.script)):
            if file is not None and not Path(file).is_file():
                raise InputError(f"{what} is {file}, which is no file; name one that exists.")

    @property
    def arguments(self) -> tuple[str, str]:
        """What _boot.py takes: the kind and the name."""
        return ("script", self.script) if self.module is None else ("module", self.module)  # type: ignore[return-value]

    @property
    def name(self) -> str:
        """The module or the script, for messages."""
        return self.arguments[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """One contender to be."""

    name: str
    """As the report calls it."""
    kind: str
    """BUNDLE, EAGER, COMPILED, PEER or MEMORY."""
    program: Program
    source: str = ""
    """What it loads."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that its program gets as ``order["options"]`` when it is to load."""
