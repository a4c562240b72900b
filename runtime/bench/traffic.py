"""How many bytes a step reads, and how fast: the measure of a decode loop that waits for memory.

    bytes = weights read + cache bytes per token * sequences * (prompt + new tokens / 2)

The weights are read once a step, however many sequences there are; the cache grows during the steps, and its
mean length is taken. Activations stay in the processor's caches and are not counted.

Of a bundle's weights a step reads each initializer once, but for the tables of which it reads a row: an
embedding table (unless the head is the same table), positions, cosines and sines. ``weights_read`` finds them
by the inputs that they go into.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpt_onnx.bundle._summary import GraphSummary, Initializer

from .plan import Point

ROW_READERS: Mapping[str, frozenset[int]] = {
    "Gather": frozenset({0}),
    "GatherND": frozenset({0}),
    "GatherBlockQuantized": frozenset({0, 2, 3}),  # table, scales, zero points
    "GroupQueryAttention": frozenset({7, 8}),  # cosines and sines
    "RotaryEmbedding": frozenset({1, 2, 3}),  # the same, in the places of ONNX and of com.microsoft
    "Slice": frozenset({0}),
}
"""Operators to the inputs of which they read some rows only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What one contender's median step reads at one point."""

    step_bytes: float
    """Weights and cache."""
    gb_per_s: float
    """1e9 bytes a second."""
    share: float | None
    """Of what as many threads can read from an array of about that size; None where that was not measured."""


def weights_read(summary: GraphSummary) -> int:
    """Return the bytes of weights of which a step reads every one."""
    whole: set[str] = set()
    for node in summary.nodes:
        rows = ROW_READERS.get(node.op, frozenset())
        whole.update(name for place, name in enumerate(node.inputs) if place not in rows)
    regions = {_region(weight): weight.bytes for weight in summary.initializers if weight.name in whole}
    return sum(regions.values())


def _region(weight: Initializer) -> object:
    """Return what tells whether two weights are the same bytes."""
    place = weight.external
    return weight.name if place is None else (place.location, place.offset)


def step_bytes(
    weight_bytes: int | None, cache_bytes_per_token: int | None, point: Point, new_tokens: int
) -> float | None:
    """Return what a step reads on average; None where it is not known."""
    if weight_bytes is None or cache_bytes_per_token is None:
        return None
    context = point.prompt_tokens + new_tokens / 2
    return weight_bytes + cache_bytes_per_token * point.batch_size * context
