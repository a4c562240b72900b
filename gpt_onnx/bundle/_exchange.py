"""Exchange two folders in one step, where the system can: Linux's ``renameat2`` with RENAME_EXCHANGE."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_CANNOT = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM})
"""What the kernel or a file system says that has no exchange (a seccomp filter says EPERM)."""


def exchange(first: Path, second: Path) -> bool:
    """Give each of two paths the other's folder, in one step that no reader sees half done.

    Returns:
        False if the system or the file system cannot; then nothing was changed.

    Raises:
        OSError: if it can and the renaming failed.
    """
    if not sys.platform.startswith("linux"):
        return False
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    arguments = (
        _AT_FDCWD,
        os.fsencode(first),
        _AT_FDCWD,
        os.fsencode(second),
        ctypes.c_uint(_RENAME_EXCHANGE),
    )
    if renameat2(*arguments) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code), str(first), None, str(second))
