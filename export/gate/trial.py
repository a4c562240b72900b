"""What a reference makes the cases of that are its own, and how it runs another bundle beside this one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gpt_onnx.runtime import OnnxGPT

from .case import Engine, Setting
from .original_file import Original
from .turns import Turn, TurnEngine, Turns

NOT_CHECKED: Mapping[str, bool] = {"checked": False, "compared_with_original": False}
"""What the manifest of a bundle that is made to run beside says: it has no evidence of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """See the module and Reference."""

    setting: Setting
    bundle: OnnxGPT
    """The bundle, loaded."""
    original: Original | None
    """Numbers that the original program wrote."""
    turns: Turns
    """Who is loaded."""
    stack: ExitStack
    """Closed after the last case."""

    def beside(self, folder: Path) -> Engine:
        """Return another bundle as an engine that runs as this one does."""
        provider, threads = self.bundle.provider, self.bundle.threads
        load = partial(OnnxGPT.load, folder, provider, threads, check_hashes=False)
        return TurnEngine(self.turns, Turn(open=load))
