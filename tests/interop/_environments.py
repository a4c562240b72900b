"""A virtual environment for each client and version, made when it is missing.

    python_of("openvino")                               # requirements-openvino.txt
    python_of("onnxruntime", "onnxruntime==1.20.1")     # the same file, and this version of the client

They lie under ~/.cache/gpt-onnx/interop, and are brought up to date when their requirements change. A test
whose environment pip cannot make is skipped with pip's last words.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
STAMP = "requirements.installed"
LAST_WORDS = 300  # characters of what an installer says at its end


def cache_folder() -> Path:
    """Where environments lie: GPT_ONNX_INTEROP_CACHE, or a folder of the user's cache."""
    chosen = os.environ.get("GPT_ONNX_INTEROP_CACHE")
    return Path(chosen) if chosen else Path("~/.cache/gpt-onnx/interop").expanduser()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process at a time work in a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    if os.name == "nt":
        yield
        return
    import fcntl

    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def install(command: Sequence[str], what: str, folder: Path | None = None) -> None:
    """Run an installer; skip the test with its last words where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode:
        words = " ".join((done.stderr.strip() or done.stdout.strip())[-LAST_WORDS:].split())
        pytest.skip(f"{what} cannot be installed; the last words of {Path(command[0]).name}: {words}")


def _interpreter(environment: Path) -> Path:
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def python_of(name: str, *pins: str) -> Path:
    """Return the interpreter of a client's environment.

    Args:
        name: Its file is requirements-NAME.txt, beside this one.
        pins: Further requirements, "package==version", each with an environment of its own.
    """
    environment = cache_folder() / "-".join([name, *(pin.replace("==", "-") for pin in pins)])
    file, stamp, python = HERE / f"requirements-{name}.txt", environment / STAMP, _interpreter(environment)
    wanted = file.read_text(encoding="utf-8") + "".join(f"{pin}\n" for pin in pins)
    with locked(environment):
        if not (stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted):
            install([sys.executable, "-m", "venv", "--without-pip", str(environment)], name)
            pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
            install([*pip, "--disable-pip-version-check", "-r", str(file), *pins], " ".join([name, *pins]))
            stamp.write_text(wanted, encoding="utf-8")
    return python
