"""What a file of Python code defines at its top level that could be named as FILE.py:NAME; nothing is run."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

MAX_BYTES = 1_000_000
OFFERED = 8


def _needs_nothing(function: ast.FunctionDef) -> bool:
    """Whether a function can be called without arguments."""
    given = function.args
    positional = len(given.posonlyargs) + len(given.args) - len(given.defaults)
    return positional == 0 and None not in given.kw_defaults


def _bases(kind: ast.ClassDef) -> Iterator[str]:
    """Yield the names of the classes that a class derives from, without their modules."""
    for base in kind.bases:
        if isinstance(base, ast.Attribute):
            yield base.attr
        elif isinstance(base, ast.Name):
            yield base.id


def _makes(value: ast.expr, modules: set[str]) -> bool:
    """Whether an expression calls one of the classes."""
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in modules


def nameable(code: str) -> list[str]:
    """Return the functions without arguments, the classes of modules and the modules made of them.

    Raises:
        SyntaxError, ValueError, RecursionError: if it is no Python code.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the user's literals and the like
        body = ast.parse(code).body
    modules = {"Module"}
    found: list[str] = []
    for part in body:
        if isinstance(part, ast.ClassDef) and modules.intersection(_bases(part)):
            modules.add(part.name)
            found.append(part.name)
        elif isinstance(part, ast.FunctionDef) and _needs_nothing(part):
            found.append(part.name)
        elif isinstance(part, ast.Assign) and _makes(part.value, modules):
            found += [target.id for target in part.targets if isinstance(target, ast.Name)]
    return [name for name in dict.fromkeys(found) if name.isascii() and not name.startswith("_")]


def offer(path: Path) -> str:
    """Return the end of a sentence that lists what could be named; empty where the file cannot be read."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return ""
        names = nameable(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    if not names:
        return f"; {path.name} defines none: add a function without arguments that returns yours"
    more = "" if len(names) <= OFFERED else f" and {len(names) - OFFERED} more"
    return f"; {path.name} defines {', '.join(names[:OFFERED])}{more}"
