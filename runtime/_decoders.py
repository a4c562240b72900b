"""Which decoder drives which graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gpt_onnx.errors import BundleError

from ._concat_cache import ConcatCacheDecoder
from ._recompute import RecomputeDecoder
from ._shared_cache import SharedCacheDecoder
from ._static_cache import StaticCacheDecoder
from .decoder import Decoder, Graphs


class DecoderClass(Protocol):
    """Makes a decoder."""

    def __call__(self, graphs: Graphs, batch_size: int, capacity: int | None = None) -> Decoder:
        """Return a decoder of empty rows."""
        ...


DECODERS: Mapping[tuple[str, str], DecoderClass] = {
    ("dynamic", "gqa"): SharedCacheDecoder,
    ("dynamic", "decomposed"): ConcatCacheDecoder,
    ("static", "gqa"): StaticCacheDecoder,
    ("static", "decomposed"): StaticCacheDecoder,
    ("plain", "gqa"): RecomputeDecoder,
    ("plain", "decomposed"): RecomputeDecoder,
    ("plain", "traced"): RecomputeDecoder,
}
"""By the graph's layout and its attention."""


def make_decoder(graphs: Graphs, batch_size: int, capacity: int | None) -> Decoder:
    """Return a decoder of ``batch_size`` empty rows.

    Raises:
        BundleError: if no decoder drives such a graph.
    """
    form = (graphs.graph.layout, graphs.graph.attention)
    if form not in DECODERS:
        raise BundleError(
            f"the graph has layout {form[0]} and attention {form[1]}, which this version cannot run."
        )
    return DECODERS[form](graphs, batch_size, capacity)
