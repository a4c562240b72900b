"""The forms of the weights, each made once: by ourselves, or by the script of the peer that reads it.

A form appears whole or not at all, so that what was interrupted goes on where it stopped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.peers.contenders import FORMS, GPT2, OURS, Form
from benchmarks.peers.environments import HERE
from gpt_onnx.errors import GptOnnxError

LAST_WORDS = 300
Make = Callable[[Path, Path, str], None]


def _bundle(source: Path, made: Path, argument: str) -> None:
    """Export; the argument is a precision and, perhaps, another one for the head."""
    from gpt_onnx.export import export_bundle

    precision, _, head = argument.partition(" ")
    options: dict[str, Any] = {"precision": precision} | ({"head_precision": head} if head else {})
    export_bundle(source, made, target="cpu", check="none", overwrite=True, **options)


def _portable(source: Path, made: Path, argument: str) -> None:
    from gpt_onnx.export import export_bundle

    export_bundle(source, made, target="portable", check="none", overwrite=True)


def _gguf(source: Path, made: Path, argument: str) -> None:
    from benchmarks.peers.gguf_file import write_gguf

    staging = made.with_name(f".{made.name}.part")
    write_gguf(source, staging, two_tables=argument == "two tables")
    os.replace(staging, made)


MAKERS: Mapping[str, Make] = {"bundle": _bundle, "portable": _portable, "gguf": _gguf}
"""What we make ourselves."""


class Forms:
    """The forms in one folder.

    Args:
        folder: With the checkpoint in both layouts.
        python_of: Returns the interpreter of a peer.
        told: Told what is being done.
    """

    def __init__(self, folder: Path, python_of: Callable[[str], Path], told: Callable[[str], None]) -> None:
        self._folder, self._python_of, self._told = folder, python_of, told

    def path(self, name: str) -> Path:
        """Return a form, which is made first if it is not there.

        Raises:
            GptOnnxError: if it cannot be made.
        """
        path = self._folder / name
        if name not in (OURS, GPT2) and not path.exists():
            form = FORMS[name]
            source = self.path(form.source)
            self._told(f"making {name}")
            self._make(form, source, path)
        return path

    def _make(self, form: Form, source: Path, path: Path) -> None:
        if form.maker in MAKERS:
            MAKERS[form.maker](source, path, form.argument)
            return
        python, script = self._python_of(form.maker), HERE / f"{form.maker}_peer.py"
        command = [str(python), str(script), "prepare", str(source), str(path), form.argument]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            words = " ".join(done.stderr.strip()[-LAST_WORDS:].split())
            raise GptOnnxError(f"{form.maker} cannot make {path.name} of {source.name}: {words}")

    def remove(self) -> None:
        """Remove all forms, and the checkpoint."""
        shutil.rmtree(self._folder, ignore_errors=True)
