"""What computes the logits of a window: a bundle, or anything else of the same form.

for logits in BundlePredictor(engine)(window): ...        # (S, V), a block of rows at a time
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from numpy.typing import NDArray

from gpt_onnx.runtime.engine import OnnxGPT

from .windows import Window

Logits = NDArray[Any]
Predict = Callable[[Window], Iterator[Logits]]
"""Gives the logits at the positions of a window from its first on, (S, V) in all, in blocks of rows."""

BLOCK_BYTES = 2**25
"""Of logits of one model at once."""


def rows_at_once(vocab_size: int) -> int:
    """Return how many rows of logits a block has."""
    return max(1, BLOCK_BYTES // (4 * vocab_size))


class BundlePredictor:
    """The logits of a bundle; see Predict. Its cache is that of one window, and is used again.

    Args:
        engine: Of the bundle.
    """

    def __init__(self, engine: OnnxGPT) -> None:
        self._decoder = engine.decoder(1)
        self._rows = rows_at_once(engine.vocab_size)
        # The other graphs compute a sequence whole, and once more for every part that comes later.
        self._in_parts = engine.bundle.manifest.graph.layout == "dynamic"

    def __call__(self, window: Window) -> Iterator[Logits]:
        """See Predict."""
        self._decoder.rewind([0])
        if window.first == window.ids.size - 1:  # a graph may give no others
            yield self._decoder.append([window.ids])[0][None]
        elif self._in_parts:
            yield from self._parts(window)
        else:
            yield self._decoder.append([window.ids], keep="all")[0][window.first :]

    def _parts(self, window: Window) -> Iterator[Logits]:
        if window.first:
            self._decoder.append([window.ids[: window.first]])
        for low in range(window.first, window.ids.size, self._rows):
            yield self._decoder.append([window.ids[low : low + self._rows]], keep="all")[0]


def in_step(*streams: Iterator[Logits]) -> Iterator[tuple[Logits, ...]]:
    """Cut streams of rows at the same places, wherever they are cut now; the first one ends them."""
    held = [next(stream, None) for stream in streams]
    while (first := held[0]) is not None:
        parts = [first if part is None else part for part in held]
        count = min(len(part) for part in parts)
        yield tuple(part[:count] for part in parts)
        held = [
            part[count:] if len(part) > count else next(stream, None)
            for part, stream in zip(parts, streams, strict=True)
        ]
