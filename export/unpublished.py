"""What fails in a bundle that is not published yet: said of its graph, not of a folder that will be gone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from gpt_onnx.errors import BundleError, ExportError


@contextlib.contextmanager
def told_of_the_graph(staging: Path) -> Iterator[None]:
    """Let faults of a bundle be faults of the export that makes it.

    Raises:
        ExportError: in place of a BundleError.
    """
    try:
        yield
    except BundleError as exc:
        raise ExportError(str(exc).replace(f"{staging}{os.sep}", "")) from exc
