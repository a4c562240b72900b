"""The hidden folders beside a destination: staging, and what interrupted publications left.

    .NAME.<token>.partial    a bundle that is being written; after an exchange, the old one, to be deleted
    .NAME.<token>.old        the old bundle while a publication by two renames is under way

A staging folder is locked (``flock``) for as long as its process lives, and goes with it however that ends.
One that nobody locks was left by a process that had no time to end (SIGKILL), and is rubbish.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gpt_onnx._interrupts import interrupts_held
from gpt_onnx.errors import BundleError

PARTIAL = "partial"
OLD = "old"
_WAIT_S = 5.0

try:
    import fcntl
except ImportError:  # Windows has none: there nothing is locked, and nothing unlocked is taken for rubbish
    fcntl = None  # type: ignore[assignment]


def hidden_name(destination: Path, token: str, kind: str) -> Path:
    """Return the path of a hidden folder beside ``destination``."""
    return destination.parent / f".{destination.name}.{token}.{kind}"


def lock_folder(folder: Path) -> int | None:
    """Lock a folder for this process and return the descriptor of the lock; None where that cannot be.

    Raises:
        BlockingIOError: if a living process has locked it.
    """
    if fcntl is None:
        return None
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    except OSError:  # a file system without locks
        os.close(descriptor)
        return None
    return descriptor


def unlock(descriptor: int | None) -> None:
    """Give a lock back."""
    if descriptor is not None:
        os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """A folder that a bundle is written into, locked for as long as this process lives."""

    path: Path
    token: str
    """Tells it from other stagings of the same destination."""
    mode: int
    """Permissions that the umask left to the folder when it was made."""
    remove: Callable[[], None]
    """Deletes what is left of the folder and unlocks it; at the end of the process, at the latest."""


def _removal(folder: Path, lock: int | None) -> Callable[[], None]:
    """Return what deletes a folder, once and whole; a fork of this process does not."""
    owner = os.getpid()

    def remove() -> None:
        with interrupts_held():
            atexit.unregister(remove)
            if os.getpid() == owner:
                shutil.rmtree(folder, ignore_errors=True)
                unlock(lock)

    atexit.register(remove)
    return remove


def make_staging(destination: Path) -> Staging:
    """Make a locked staging folder beside ``destination``."""
    while True:
        token = secrets.token_hex(6)
        folder = hidden_name(destination, token, PARTIAL)
        folder.mkdir()
        # A cleaner may lock and delete the folder in the moment before it is locked here: then try anew.
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            lock = lock_folder(folder)
            if folder.exists():
                mode = stat.S_IMODE(folder.stat().st_mode)
                return Staging(path=folder, token=token, mode=mode, remove=_removal(folder, lock))
            unlock(lock)


def _leftovers(destination: Path, kind: str) -> Iterator[tuple[Path, str]]:
    """Yield the hidden folders of one kind that belong to ``destination``, with their tokens."""
    pattern = re.compile(rf"\.{re.escape(destination.name)}\.([0-9a-f]{{12}})\.{kind}")
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(destination.parent)):
            if match := pattern.fullmatch(name):
                yield destination.parent / name, match[1]


def _is_alive(folder: Path) -> bool:
    """Whether a living process holds ``folder``; unknown counts as alive."""
    try:
        descriptor = lock_folder(folder)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    unlock(descriptor)
    return descriptor is None


def sweep(destination: Path) -> None:
    """Delete what dead processes left beside ``destination``; never the only copy of a bundle."""
    for folder, _ in _leftovers(destination, PARTIAL):
        with contextlib.suppress(OSError):
            if (descriptor := lock_folder(folder)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                unlock(descriptor)
    if os.path.lexists(destination):
        for folder, token in _leftovers(destination, OLD):
            if not _is_alive(hidden_name(destination, token, PARTIAL)):
                shutil.rmtree(folder, ignore_errors=True)


def recover(destination: Path) -> None:
    """Put the old bundle back if a publication died between its two renames; wait for one that is alive.

    Raises:
        BundleError: if the old bundle is there and cannot be moved back.
    """
    deadline = time.monotonic() + _WAIT_S
    while not os.path.lexists(destination):
        left = next(iter(_leftovers(destination, OLD)), None)
        if left is None:
            return
        folder, token = left
        if _is_alive(hidden_name(destination, token, PARTIAL)) and time.monotonic() < deadline:
            time.sleep(0.02)
            continue
        try:
            folder.rename(destination)
        except OSError as exc:
            if os.path.lexists(destination):
                return
            raise BundleError(
                f"{destination} was being replaced and its old bundle is at {folder}; "
                f"move it back ({exc.strerror})."
            ) from exc
