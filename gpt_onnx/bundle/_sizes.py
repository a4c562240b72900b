"""The sizes that a manifest says of the model, held against the weights of a graph.

    check_sizes(summary, manifest)

    model.parameters                the elements of all parameters
    model.n_layer                   the layers that have some
    model.position, .context_length whether there is a table of learned positions, and its rows
    model.n_kv_head x .head_size    what c_attn makes of keys, beside c_proj, which takes the queries' width
    precision                       whether matrices are float16

Of a module that is not ours nothing but the precision is told: names and shapes of its weights are its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gpt_onnx.bundle._manifest import Manifest
from gpt_onnx.bundle._names import AGAIN
from gpt_onnx.bundle._parameters import parameter_sizes
from gpt_onnx.bundle._summary import GraphSummary
from gpt_onnx.bundle._targets import HALF
from gpt_onnx.errors import BundleError

_TABLE, _EMBEDDING = "wpe.weight", "wte.weight"
_PACKED, _PROJECTED = "h.0.attn.c_attn.weight", "h.0.attn.c_proj.weight"
_LAYER = re.compile(r"h\.([0-9]+)\.", re.ASCII)
Found = Iterator[tuple[str, object, object]]
"""Name of a field, what the manifest says, and what the weights say."""


def _layers(sizes: Mapping[str, int], manifest: Manifest) -> Found:
    layers = {found[1] for name in sizes if (found := _LAYER.match(name))}
    if layers:
        yield "n_layer", manifest.model.n_layer, len(layers)


def _positions(sizes: Mapping[str, int], manifest: Manifest) -> Found:
    """A table of positions is as wide as the one of tokens."""
    model = manifest.model
    if (_TABLE in sizes) != (model.position == "learned"):
        yield "position", model.position, "learned" if _TABLE in sizes else "others, without a table"
    elif _TABLE in sizes and _EMBEDDING in sizes:
        width = sizes[_EMBEDDING] // model.vocab_size
        yield "context_length", model.context_length, sizes[_TABLE] / width


def _heads(sizes: Mapping[str, int], manifest: Manifest) -> Found:
    """c_attn is (H + 2 K) D x E and c_proj E x H D: what is left of it is 2 K D x E."""
    model = manifest.model
    if {_PACKED, _PROJECTED, _EMBEDDING} <= sizes.keys():
        width = sizes[_EMBEDDING] // model.vocab_size
        found = (sizes[_PACKED] - sizes[_PROJECTED]) / (2 * width)
        yield "n_kv_head x head_size", model.n_kv_head * model.head_size, found


def _model(sizes: Mapping[str, int], manifest: Manifest) -> Found:
    for tell in (_positions, _layers, _heads):
        yield from tell(sizes, manifest)
    yield "parameters", manifest.model.parameters, sum(sizes.values())


def _check_precision(summary: GraphSummary, manifest: Manifest) -> None:
    """Matrices are float16 in that precision and in no other."""
    halves = [w for w in summary.initializers if w.dtype == "float16" and len(w.dims) > 1]
    if bool(halves) != (manifest.precision == HALF):
        found = "are float16" if halves else "are none of float16"
        raise BundleError(
            f"the manifest's precision is {manifest.precision} and its matrices {found}; {AGAIN}."
        )


def check_sizes(summary: GraphSummary, manifest: Manifest) -> None:
    """Check that the weights of a graph have the sizes and the type that the manifest says.

    Raises:
        BundleError: for the first that differs, with both values.
    """
    _check_precision(summary, manifest)
    if manifest.graph.attention == "traced":
        return
    block_size = None if manifest.quantization is None else manifest.quantization.block_size
    for name, said, found in _model(parameter_sizes(summary, block_size), manifest):
        if said != found:
            told = int(found) if isinstance(found, float) and found.is_integer() else found
            raise BundleError(f"the manifest's model.{name} is {said} and the weights say {told}; {AGAIN}.")
