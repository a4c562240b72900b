"""The inputs and outputs that each layout promises: names, element types and dims.

    >>> [port.name for port in promised_outputs(manifest, "model")][:3]         # doctest: +SKIP
    ['logits', 'present.0.key', 'present.0.value']

The letters: B sequences, S new tokens, P tokens in the past, T = P + S, N the frozen length, K heads of the
keys and values, D the width of one head in the cache, V the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpt_onnx.bundle._manifest import Manifest
from gpt_onnx.bundle._names import shorten
from gpt_onnx.bundle._summary import GraphSummary, Initializer, Value
from gpt_onnx.errors import BundleError

BATCH = "batch_size"
SEQUENCE = "sequence_length"
PAST = "past_sequence_length"
TOTAL = f"{PAST} + {SEQUENCE}"
KEEP = "num_logits_to_keep"

Dims = tuple[int | str, ...]
_INT64 = ("int64",)
_SINGLE = ("float32",)
_CACHES: Mapping[str, tuple[str, ...]] = {"fp16": ("float16",)}
"""Element types of the cache by precision, where they are not float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A promised input or output."""

    name: str
    types: tuple[str, ...]
    """The element types that it may have."""
    dims: tuple[Dims, ...]
    """The dims that it may have."""


def _ids(name: str, *dims: int | str) -> Port:
    return Port(name=name, types=_INT64, dims=(dims,))


def _cache(manifest: Manifest, prefix: str, batch: int | str, length: int | str) -> list[Port]:
    """Keys and values of every layer: (B, K, length, D)."""
    model = manifest.model
    dims = (batch, model.n_kv_head, length, model.cache_head_size)
    names = [f"{prefix}.{layer}.{part}" for layer in range(model.n_layer) for part in ("key", "value")]
    types = _CACHES.get(manifest.precision, _SINGLE)
    return [Port(name=name, types=types, dims=(dims,)) for name in names]


def _logits(manifest: Manifest, *leading: Dims) -> Port:
    dims = tuple((*dims, manifest.model.vocab_size) for dims in leading)
    return Port(name="logits", types=_SINGLE, dims=dims)


_Ports = tuple[list[Port], list[Port]]


def _dynamic(manifest: Manifest) -> _Ports:
    batch = manifest.graph.batch_size or BATCH
    inputs = [
        _ids("input_ids", batch, SEQUENCE),
        _ids("attention_mask", batch, TOTAL),
        _ids("position_ids", batch, SEQUENCE),
        _ids(KEEP, 1),
        *_cache(manifest, "past_key_values", batch, PAST),
    ]
    return inputs, [_logits(manifest, (batch, SEQUENCE)), *_cache(manifest, "present", batch, TOTAL)]


def _prefill(manifest: Manifest) -> _Ports:
    batch, length = manifest.graph.batch_size or BATCH, manifest.graph.seq_len or SEQUENCE
    inputs = [_ids(name, batch, length) for name in ("input_ids", "attention_mask", "position_ids")]
    return inputs, [_logits(manifest, (batch, length)), *_cache(manifest, "present", batch, length)]


def _decode(manifest: Manifest) -> _Ports:
    batch, length = manifest.graph.batch_size or BATCH, manifest.graph.seq_len or SEQUENCE
    inputs = [
        _ids("input_ids", batch, 1),
        _ids("attention_mask", batch, length),
        _ids("position_ids", batch, 1),
        *_cache(manifest, "past_key_values", batch, length),
    ]
    return inputs, [_logits(manifest, (batch, 1)), *_cache(manifest, "present", batch, length)]


def _plain(manifest: Manifest) -> _Ports:
    batch, length = manifest.graph.batch_size or BATCH, manifest.graph.seq_len or SEQUENCE
    leading: tuple[Dims, ...] = ((batch, length),)
    if manifest.graph.attention == "traced":  # some modules give the last position only
        leading += ((batch, 1), (batch,))
    return [_ids("input_ids", batch, length)], [_logits(manifest, *leading)]


_PROMISES: Mapping[tuple[str, str], Callable[[Manifest], _Ports]] = {
    ("dynamic", "model"): _dynamic,
    ("static", "prefill"): _prefill,
    ("static", "decode"): _decode,
    ("plain", "model"): _plain,
}


def promised_inputs(manifest: Manifest, role: str) -> list[Port]:
    """Return the inputs that the graph of ``role`` has."""
    return _PROMISES[manifest.graph.layout, role](manifest)[0]


def promised_outputs(manifest: Manifest, role: str) -> list[Port]:
    """Return the outputs that the graph of ``role`` has."""
    return _PROMISES[manifest.graph.layout, role](manifest)[1]


def _check_ports(what: str, found: tuple[Value, ...], promised: list[Port]) -> None:
    names = [value.name for value in found]
    wanted = {port.name: port for port in promised}
    if unknown := [name for name in names if name not in wanted]:
        raise BundleError(f"it has the {what} {shorten(unknown[0])}, which its layout does not have.")
    if missing := [name for name in wanted if name not in names]:
        raise BundleError(f"it lacks the {what} {missing[0]!r}.")
    if len(names) > len(wanted):
        raise BundleError(f"it has an {what} twice.")
    for value in found:
        port = wanted[value.name]
        if value.elem_type not in port.types:
            raise BundleError(
                f"{what} {value.name} is {value.elem_type}; it must be {' or '.join(port.types)}."
            )
        if value.dims not in port.dims:
            expected = " or ".join(str(list(dims)) for dims in port.dims)
            raise BundleError(
                f"{what} {value.name} has the dims {shorten(list(value.dims))}; they must be {expected}."
            )


def _check_keep(summary: GraphSummary) -> None:
    """num_logits_to_keep is an input that clients may leave out: it has a default, and it alone has one."""
    inputs = {value.name for value in summary.inputs}
    defaults: list[Initializer] = [weight for weight in summary.initializers if weight.name in inputs]
    for weight in defaults:
        if weight.name != KEEP or weight.dtype != "int64" or weight.dims != (1,) or weight.external:
            raise BundleError(f"the input {shorten(weight.name)} has a default; only {KEEP}, int64 [1], may.")
    if KEEP in inputs and not defaults:
        raise BundleError(
            f"the input {KEEP} has no default; clients that do not know it could not run the graph."
        )


def check_signature(summary: GraphSummary, manifest: Manifest, role: str) -> None:
    """Check that the graph has the promised inputs and outputs, and no others.

    Raises:
        BundleError: for the first name, element type or dim that is not as promised.
    """
    _check_ports("input", summary.inputs, promised_inputs(manifest, role))
    _check_ports("output", summary.outputs, promised_outputs(manifest, role))
    _check_keep(summary)
