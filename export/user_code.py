"""``FILE.py:NAME``: a torch.nn.Module out of a file of the user's own code.

Importing the file runs it; nothing else in the toolkit runs code that a file brings. What it prints goes to
stderr, since stdout is for answers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from gpt_onnx.errors import ExportError, InputError


def names_code(source: str) -> bool:
    """Whether a source has the form FILE.py:NAME."""
    return re.fullmatch(r".+\.py:[A-Za-z_][A-Za-z0-9_]*", source) is not None


def load_module(source: str) -> nn.Module:
    """Import FILE.py and return the module that NAME is or makes.

    Raises:
        InputError: if there is no such file or name.
        ExportError: if the file cannot be run, or NAME gives something else.
    """
    file, _, name = source.rpartition(":")
    path = Path(file)
    if not path.is_file():
        raise InputError(f"{file} does not exist; FILE.py:NAME needs a file of Python code.")
    with _at_home(path):
        found = getattr(_imported(path), name, None)
        if found is None:
            raise InputError(f"{file} has no {name}; name a torch.nn.Module or a function that returns one.")
        made = found if isinstance(found, nn.Module) else _called(found, source)
    if not isinstance(made, nn.Module):
        raise ExportError(f"{source} gave a {type(made).__name__}; a torch.nn.Module is needed.")
    return made


@contextlib.contextmanager
def _at_home(path: Path) -> Iterator[None]:
    """Let the file import its neighbours, as ``python FILE.py`` would, and keep its prints off stdout."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        with contextlib.suppress(ValueError):  # the file may have removed it
            sys.path.remove(folder)


def _imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_gpt_onnx_source_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickling look the module up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as exc:  # a script may end the process where it expects arguments
        raise ExportError(f"{path} could not be run: {told(exc)}.") from exc
    return module


def _called(found: Any, source: str) -> Any:
    if not callable(found):
        return found
    try:
        return found()
    except (Exception, SystemExit) as exc:
        raise ExportError(
            f"{source}() raised {told(exc)}; NAME must be a module, or a function without arguments."
        ) from exc


def told(exc: BaseException) -> str:
    """Return an exception's kind and the first line of what it says, without a full stop."""
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return f"{type(exc).__name__}: {lines[0].rstrip('.')}" if lines else type(exc).__name__
