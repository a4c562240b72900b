"""The model that a bundle's config.json describes, held against the manifest and the graphs.

of = described(bundle, summaries)       # BundleError: it is another model than the graphs have
of.config, of.special
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

from gpt_onnx.bundle import Bundle, GraphSummary, Manifest
from gpt_onnx.bundle._names import AGAIN, MANIFEST, shorten
from gpt_onnx.bundle._parameters import parameter_sizes
from gpt_onnx.clients._comparing import read_values
from gpt_onnx.clients._config_json import OURS
from gpt_onnx.clients._facts import CONFIG
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import BundleError, ConfigError
from gpt_onnx.hf_words import ROLES
from gpt_onnx.parameter_shapes import parameter_shapes

_SIZES = ("vocab_size", "context_length", "position", "position_limit", "n_layer", "n_kv_head", "head_size")
"""Fields of the manifest's model that a configuration has under the same names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What the files for other clients are written from."""

    manifest: Manifest
    config: GPTConfig | None
    """The model; None where its layers are not known."""
    special: dict[str, Any]
    """The ids of the tokens that begin, end and pad a text, by role."""


def _own_config(bundle: Bundle, values: Mapping[str, Any]) -> GPTConfig | None:
    """Return the configuration that config.json holds whole; None where layers are not known.

    Raises:
        BundleError: if it is not one.
    """
    if not bundle.manifest.model.n_layer:
        return None
    told = values.get(OURS)
    if not isinstance(told, dict):
        raise BundleError(f"it has {OURS} = {shorten(told)}; it must hold the whole configuration: {AGAIN}.")
    try:
        return GPTConfig.from_dict(told, origin=OURS)
    except ConfigError as exc:
        raise BundleError(f"{exc}") from exc


def _special(values: Mapping[str, Any], vocab_size: int) -> dict[str, Any]:
    """Return the ids of special tokens that a file names.

    Raises:
        BundleError: if one is no token.
    """
    special = {role: values[role] for role in ROLES if values.get(role) is not None}
    for role, told in special.items():
        ids = told if isinstance(told, list) and role == "eos_token_id" else [told]
        if not ids or not all(type(number) is int and 0 <= number < vocab_size for number in ids):
            raise BundleError(
                f"{role} is {shorten(told)}; ids are integers from 0 to {vocab_size - 1}: correct it, or "
                f"{AGAIN}."
            )
    return special


def _check_model(bundle: Bundle, config: GPTConfig) -> None:
    """See that the manifest describes the model of the configuration.

    Raises:
        BundleError: for the first size that differs.
    """
    said = asdict(bundle.manifest.model)
    shapes = parameter_shapes(config).values()
    expected = {name: getattr(config, name) for name in _SIZES}
    expected["parameters"] = sum(prod(shape) for shape in shapes)
    for name, value in expected.items():
        if said[name] != value:
            raise BundleError(
                f"{OURS} makes model.{name} {shorten(value)} and {MANIFEST} says {shorten(said[name])}; "
                f"{AGAIN}."
            )


def _check_weights(bundle: Bundle, config: GPTConfig, summaries: Iterable[GraphSummary]) -> None:
    """See that the graphs have the parameters of the configuration, and no others.

    Raises:
        BundleError: for the first that is missing, unknown or of another size.
    """
    quantization = bundle.manifest.quantization
    block_size = None if quantization is None else quantization.block_size
    expected = {name: prod(shape) for name, shape in parameter_shapes(config).items()}
    for summary in summaries:
        found = parameter_sizes(summary, block_size)
        for name in sorted(expected.keys() | found.keys()):
            if expected.get(name) != found.get(name):
                raise BundleError(
                    f"{OURS} makes {shorten(name)} of {expected.get(name, 'no')} elements and the graph has "
                    f"{found.get(name, 'none')}; {AGAIN}."
                )


def described(bundle: Bundle, summaries: Iterable[GraphSummary]) -> Described:
    """Read what config.json says of the model, and see that it is the model of the graphs.

    Raises:
        BundleError: if it is not; the message names the file.
    """
    manifest, values = bundle.manifest, read_values(bundle, CONFIG)
    try:
        config = _own_config(bundle, values)
        special = _special(values, manifest.model.vocab_size)
        if config is not None:
            _check_weights(bundle, config, summaries)
            _check_model(bundle, config)
    except BundleError as exc:
        raise BundleError(f"{bundle.file(CONFIG)} contradicts the bundle: {exc}") from exc
    return Described(manifest=manifest, config=config, special=special)
