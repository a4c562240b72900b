"""A virtual environment for each peer, made when it is missing: its requirements file and nothing else.

    python_of("openvino", Path("~/.cache/gpt-onnx/peers/environments").expanduser())

An environment whose requirements changed is brought up to date; one that pip cannot make says why.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from gpt_onnx.errors import GptOnnxError

HERE = Path(__file__).parent
STAMP = "requirements.installed"
LAST_WORDS = 300  # characters of pip's message

VARIABLES: Mapping[str, Mapping[str, str]] = {
    "llama_cpp": {
        "CMAKE_ARGS": "-DGGML_NATIVE=ON",
        # GCC 12 takes the stores into AMX's tile configuration for dead ones, and products of quantised
        # weights then end in an illegal instruction: the passes that remove dead stores are left out.
        "CXXFLAGS": "-fno-tree-dse -fno-dse",
    },
}
"""What a peer that is compiled is compiled with."""


class PeerMissingError(GptOnnxError):
    """A peer cannot be installed."""


def _run(command: list[str], name: str, variables: Mapping[str, str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables})
    if done.returncode:
        words = " ".join((done.stderr.strip() or done.stdout.strip())[-LAST_WORDS:].split())
        raise PeerMissingError(f"{name} cannot be installed; the last words of {command[0]}: {words}")


def python_of(name: str, folder: Path, told: Callable[[str], None] = lambda text: None) -> Path:
    """Return the interpreter of a peer's environment, which is made first if need be.

    Args:
        name: Of the peer: its file is requirements-NAME.txt.
        folder: Where all environments lie.
        told: Told what is being done.

    Raises:
        PeerMissingError: if it cannot be made.
    """
    environment = folder / name
    bin_folder = "Scripts" if os.name == "nt" else "bin"
    python, stamp = environment / bin_folder / "python", environment / STAMP
    file = HERE / f"requirements-{name}.txt"
    wanted = file.read_text(encoding="utf-8")
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    if not python.exists():
        told(f"making the environment of {name}")
        _run([sys.executable, "-m", "venv", str(environment)], name, {})
    told(f"installing {name}; what is compiled takes a quarter of an hour")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "-r", str(file)], name, VARIABLES.get(name, {}))
    stamp.write_text(wanted, encoding="utf-8")
    return python
