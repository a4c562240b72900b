"""Contenders of anybody's: programs under a Python of their own, named in a file.

    # peers.toml
    ["llama.cpp q4_0"]
    python = "venvs/llama/bin/python"      # default: the Python that runs this
    script = "llama_cpp_contender.py"      # or: module = "..."
    source = "gpt2-q4_0.gguf"              # handed to the program as it is, like everything in options
    options = { flash_attn_type = 1 }
    environment = { OMP_WAIT_POLICY = "passive" }

Paths of ``python`` and ``script`` are relative to the file. See docs/benchmarking.md for the program.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpt_onnx._user_text import read_toml
from gpt_onnx.errors import InputError

from .entrant import PEER, Entrant, Program

KEYS: Mapping[str, type] = {
    "python": str,
    "script": str,
    "module": str,
    "source": str,
    "options": dict,
    "environment": dict,
}


def _tables(path: Path) -> Mapping[str, Any]:
    try:
        return read_toml(path)
    except OSError as exc:
        raise InputError(f"{path} cannot be read: {exc.strerror}; name a file of contenders.") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise InputError(f"{path} is no TOML: {exc}.") from exc


def _check(path: Path, name: str, table: object) -> Mapping[str, Any]:
    if not isinstance(table, dict):
        raise InputError(f"{path}: {name} is {table!r}; it must be a table with {', '.join(KEYS)}.")
    for key, value in table.items():
        if not isinstance(value, KEYS.get(key, ())):
            raise InputError(f"{path}: {name}.{key} is {value!r}; a contender has {', '.join(KEYS)}.")
    return table


def _beside(path: Path, file: str | None) -> str | None:
    # not resolved: the python of a virtual environment is a link, which must stay one
    return None if file is None else str((path.parent / file).absolute())


def _peer(path: Path, name: str, table: Mapping[str, Any]) -> Entrant:
    program = Program(
        module=table.get("module"),
        script=_beside(path, table.get("script")),
        python=_beside(path, table.get("python")) or sys.executable,
        environment={key: str(value) for key, value in table.get("environment", {}).items()},
    )
    return Entrant(
        name=name,
        kind=PEER,
        program=program,
        source=table.get("source", ""),
        options=table.get("options", {}),
    )


def read_peers(path: str | Path) -> list[Entrant]:
    """Read a file of contenders, in its order.

    Raises:
        InputError: if it cannot be read, a key is unknown, or a program does not exist.
    """
    file = Path(path)
    return [_peer(file, name, _check(file, name, table)) for name, table in _tables(file).items()]
