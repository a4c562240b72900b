"""``FILE.py:NAME``: a torch.nn.Module out of a file of the user's own code, and how such code is run.

Importing the file runs it; nothing else in the toolkit runs code that a file brings. What it prints goes to
stderr, since stdout is for answers; whatever it raises becomes one sentence, and ctrl-C stays ctrl-C.
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

from gpt_onnx._paths import real_path
from gpt_onnx.errors import ExportError, GptOnnxError, InputError

from .code_names import offer

_FORM = re.compile(r"(.+\.py):([A-Za-z_][A-Za-z0-9_]*)")


def names_code(source: str) -> bool:
    """Whether a source has the form FILE.py:NAME."""
    return _FORM.fullmatch(source) is not None


def code_file(source: str) -> Path | None:
    """Return the FILE.py of FILE.py:NAME if there is one, which taking the source will run."""
    match = _FORM.fullmatch(source)
    return Path(match[1]) if match and Path(match[1]).is_file() else None


def refuse_code_without_name(source: str) -> None:
    """Say what is missing where a file of code is named, and nothing in it.

    Raises:
        InputError: if it is ``FILE.py``, or its part behind the colon is no name.
    """
    file, colon, _ = source.partition(".py:")
    path = Path(f"{file}.py") if colon else Path(source)
    if colon or (path.suffix == ".py" and not path.is_dir()):
        raise InputError(
            f"{source} does not say what to take out of {path.name}; name it as FILE.py:NAME, a "
            f"torch.nn.Module or a function that returns one{offer(path)}."
        )


class LeftError(Exception):
    """The user's code raised what is no Exception, such as SystemExit; the cause is what it raised."""


def told(exc: BaseException) -> str:
    """Return an exception's kind and the first line of what it says, without a full stop."""
    if isinstance(exc, LeftError) and exc.__cause__ is not None:
        exc = exc.__cause__
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return f"{type(exc).__name__}: {lines[0].rstrip('.')}" if lines else type(exc).__name__


@contextlib.contextmanager
def user_code() -> Iterator[None]:
    """Run the user's code: its prints go to stderr, and it cannot end the process.

    Raises:
        LeftError: in place of what is neither an Exception nor ctrl-C.
    """
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as exc:
        raise LeftError from exc


@contextlib.contextmanager
def module_code(doing: str) -> Iterator[None]:
    """Run a module's own code, of which anything may come.

    Args:
        doing: What for, after "while".

    Raises:
        ExportError: in place of whatever it raises, but for errors of ours.
    """
    try:
        with user_code():
            yield
    except GptOnnxError:
        raise
    except Exception as exc:
        raise ExportError(
            f"the module's own code raised {told(exc)} while {doing}; see that it works in PyTorch first."
        ) from exc


@contextlib.contextmanager
def _at_home(path: Path) -> Iterator[None]:
    """Let the file import its neighbours, as ``python FILE.py`` would."""
    folder = str(real_path(path).parent)
    sys.path.insert(0, folder)
    try:
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
        with user_code():  # a script may end the process where it expects arguments
            spec.loader.exec_module(module)
    except Exception as exc:
        raise ExportError(f"{path} could not be run: {told(exc)}.") from exc
    return module


def _called(found: Any, source: str) -> Any:
    if not callable(found):
        return found
    try:
        with user_code():
            return found()
    except Exception as exc:
        raise ExportError(
            f"{source}() raised {told(exc)}; NAME must be a module, or a function without arguments."
        ) from exc


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
            raise InputError(
                f"{file} has no {name}; name a torch.nn.Module or a function that returns one{offer(path)}."
            )
        made = found if isinstance(found, nn.Module) else _called(found, source)
    if not isinstance(made, nn.Module):
        raise ExportError(f"{source} gave a {type(made).__name__}; a torch.nn.Module is needed.")
    return made
