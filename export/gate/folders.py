"""Findings without the folders of the machine on which they were found.

>>> without_folders("/home/me/bundle/onnx/model.onnx: no such operator")
'model.onnx: no such operator'
"""

from __future__ import annotations

import re

_POSIX = r"(?<![\w./:])(?:~|\.{1,2})?/(?:[^\s/'\":;,()]+/)*(?=[^\s/'\":;,()])"
_WINDOWS = r"(?<!\w)[A-Za-z]:\\(?:[^\s\\'\":;,()]+\\)*"
_FOLDERS = re.compile(f"{_POSIX}|{_WINDOWS}")


def without_folders(text: str, *known: str) -> str:
    """Return a text whose absolute paths are file names alone.

    Args:
        text: What an engine or a program said.
        known: Folders that may hold blanks, which nothing else tells from the words around them.
    """
    for folder in known:
        text = text.replace(f"{folder}/", "").replace(f"{folder}\\", "").replace(folder, "the bundle")
    return _FOLDERS.sub("", text)
