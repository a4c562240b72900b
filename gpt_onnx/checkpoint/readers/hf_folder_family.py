"""What a family of Hugging Face is: defaults of its keys, names of its tensors, its configuration in ours.

A key that config.json lacks has the value that transformers gives it, which differs from family to family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpt_onnx.checkpoint.naming import Naming
from gpt_onnx.checkpoint.readers.hf_folder_keys import NEUTRAL, PASSIVE, Neutral
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import ConfigError

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Claim:
    """A size in config.json that a tensor's shape shows as well."""

    key: str
    """Its name in config.json."""
    tensor: str
    """Our name of a tensor; of layer 0, where it is in a layer."""
    side: int
    """The dim of our form of the tensor."""
    counted: str
    """What is counted there, for messages, e.g. "rows"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One model_type."""

    model_type: str
    architectures: tuple[str, ...]
    """Classes whose weights these are; the last may be without a head."""
    defaults: Values
    """Each key that shapes the computation, and its value where it is absent."""
    describe: Callable[[Values], dict[str, Any]]
    """From such keys to the fields of GPTConfig; raises a ConfigError."""
    naming: Naming
    """Its names of tensors, without the prefix."""
    prefix: str
    """What stands before the names where the weights are those of a model with a head."""
    claims: tuple[Claim, ...]
    layers_key: str
    """The key that says how many layers there are."""
    synonyms: Mapping[str, str] = field(default_factory=dict)
    """Other names of its keys."""
    neutral: Mapping[str, Neutral] = field(default_factory=dict)
    """Keys of its own that may have no effect."""
    notes: Callable[[Values], tuple[str, ...]] = lambda values: ()
    """From such keys to sentences that the user should read."""


def shown(value: object) -> str:
    """Return a value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def own_keys(family: Family, values: Values) -> dict[str, Any]:
    """Return the family's keys with their values, defaults filled in and synonyms resolved.

    Raises:
        ConfigError: if a key and its synonym contradict each other.
    """
    given = dict(values)
    for synonym, key in family.synonyms.items():
        if synonym in given and given.setdefault(key, given[synonym]) != given[synonym]:
            raise ConfigError(
                f"it says {key} = {shown(given[key])} and {synonym} = {shown(given[synonym])}; remove one"
            )
    return {key: given.get(key, default) for key, default in family.defaults.items()}


def _is_neutral(value: object, neutral: Neutral) -> bool:
    return value is None or any(value == known for known in neutral.values)


def check_keys(family: Family, values: Values, path: Path) -> tuple[str, ...]:
    """Refuse keys of config.json that change what is computed; return those that are unknown.

    Raises:
        ConfigError: naming the key, its value and what it does.
    """
    tables = {**NEUTRAL, **family.neutral}
    for key, neutral in tables.items():
        if key not in family.defaults and not _is_neutral(values.get(key), neutral):
            raise ConfigError(
                f"{path}: it has {key} = {shown(values[key])}, which means {neutral.meaning}; "
                "our GPT lacks that."
            )
    known = {*family.defaults, *family.synonyms, *tables, *PASSIVE}
    return tuple(sorted(str(key) for key in values if key not in known))


def check_architecture(family: Family, values: Values) -> None:
    """See that the weights are those of a language model.

    Raises:
        ConfigError: if they are of another class, such as a classifier.
    """
    named = values.get("architectures") or []
    known = {name.lower() for name in family.architectures}
    if not isinstance(named, list) or (named and not known.intersection(str(name).lower() for name in named)):
        raise ConfigError(
            f"it has architectures = {shown(named)}; of {family.model_type}, "
            f"{' and '.join(family.architectures)} can be read"
        )


def config_of(family: Family, values: Values, path: Path) -> GPTConfig:
    """Return our configuration of a config.json.

    Raises:
        ConfigError: naming the file, and the key that is not understood.
    """
    try:
        check_architecture(family, values)
        fields = family.describe(own_keys(family, values))
        return GPTConfig(**fields)
    except ConfigError as exc:
        raise ConfigError(f"{path}: {str(exc).removesuffix('.')}.") from exc
