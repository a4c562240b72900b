"""The frequencies of rotary positions, and how they are scaled for contexts beyond the trained one.

Pair i of a head's first D elements is turned by position x frequency i, with frequency i = theta^(-2i / D)
("RoFormer", section 3.2.2). Scaling lowers frequencies:

    linear   every frequency / factor (position interpolation)
    ntk      theta becomes theta x factor^(D / (D - 2)): the lowest frequency / factor, the highest as it was
    llama3   low frequencies / factor, high ones as they were, those between blended (Llama 3.1)

    >>> frequencies(4, 10000.0)
    [1.0, 0.01]

Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpt_onnx.errors import ConfigError

SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "kind": ("rope_type", "type"),
    "original_context_length": ("original_max_position_embeddings",),
}
REFUSED: Mapping[str, str] = {
    "dynamic": "gives each length frequencies of its own, so that keys in a cache would be turned wrongly",
    "yarn": "changes the scale of attention as well",
    "longrope": "has other frequencies for long texts than for short ones, and a scale of attention",
}
"""Kinds of other programs, and why they are none of ours."""
UNSCALED = "default"  # what other programs call no scaling
LARGEST_FACTOR = 1e6
LARGEST_CONTEXT = 2**31 - 1


def shown(value: object) -> str:
    """Return a value as a message shows it; a file may hold an integer of thousands of digits."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """How frequencies are lowered.

    Raises:
        ConfigError: if the kind is unknown, or a number is missing or out of its range.
    """

    kind: str
    """One of KINDS."""
    factor: float
    """How many times longer the context has become."""
    low_freq_factor: float | None = None
    """llama3: wavelengths above original_context_length / this are stretched in full."""
    high_freq_factor: float | None = None
    """llama3: wavelengths below original_context_length / this stay."""
    original_context_length: int | None = None
    """llama3: tokens that the model was first trained on."""

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or self.kind not in KINDS:
            known = isinstance(self.kind, str) and self.kind in REFUSED
            reason = f", which {REFUSED[self.kind]}" if known else ""
            raise ConfigError(
                f"rope_scaling is of the kind {shown(self.kind)}{reason}; known are {', '.join(KINDS)}."
            )
        _check_number("factor", self.factor, LARGEST_FACTOR)
        if self.kind == "llama3":
            for name in ("low_freq_factor", "high_freq_factor"):
                _check_number(name, getattr(self, name), LARGEST_FACTOR)
            _check_number("original_context_length", self.original_context_length, LARGEST_CONTEXT)
            if not self.low_freq_factor < self.high_freq_factor:  # type: ignore[operator]
                raise ConfigError(
                    f"rope_scaling has low_freq_factor = {self.low_freq_factor} and high_freq_factor = "
                    f"{self.high_freq_factor}; the first must be less."
                )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, origin: str = "rope_scaling") -> RopeScaling | None:
        """Read a mapping whose keys may be those of Hugging Face; None where it says "default".

        Raises:
            ConfigError: if a key is unknown, missing, or a value is out of its range.
        """
        fields = {
            ours: _given(values, names, origin) for ours, names in _names().items() if {*names} & {*values}
        }
        known = {name for names in _names().values() for name in names}
        if unknown := sorted(set(values) - known):
            raise ConfigError(
                f"{origin} has the unknown key {shown(unknown[0])}; known are {', '.join(sorted(known))}."
            )
        if fields.get("kind") == UNSCALED:
            return None
        if missing := [name for name in ("kind", "factor") if name not in fields]:
            raise ConfigError(f"{origin} lacks {missing[0]!r}; it needs kind and factor.")
        return cls(**fields)


def _names() -> dict[str, tuple[str, ...]]:
    """Return each field with every name that it may have."""
    return {name: (name, *SYNONYMS.get(name, ())) for name in RopeScaling.__slots__}


def _given(values: Mapping[str, Any], names: tuple[str, ...], origin: str) -> Any:
    """Return a field that may be given under several names, which must agree.

    Raises:
        ConfigError: naming two that do not.
    """
    first, *others = (name for name in names if name in values)
    for name in others:
        if values[name] != values[first]:
            raise ConfigError(
                f"{origin} says {first} = {shown(values[first])} and {name} = {shown(values[name])}; "
                "remove one."
            )
    return values[first]


def _check_number(name: str, value: object, largest: float) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and 0 < value <= largest):  # type: ignore[operator]
        raise ConfigError(
            f"rope_scaling has {name} = {shown(value)}; it must be above 0 and at most {largest:g}."
        )


def _unscaled(size: int, theta: float) -> list[float]:
    return [theta ** (-2 * pair / size) for pair in range(size // 2)]


def _linear(size: int, theta: float, scaling: RopeScaling) -> list[float]:
    return [frequency / scaling.factor for frequency in _unscaled(size, theta)]


def _ntk(size: int, theta: float, scaling: RopeScaling) -> list[float]:
    return _unscaled(size, theta * scaling.factor ** (size / (size - 2)))


def _llama3(size: int, theta: float, scaling: RopeScaling) -> list[float]:
    low, high, length = scaling.low_freq_factor, scaling.high_freq_factor, scaling.original_context_length
    assert low is not None
    assert high is not None
    assert length is not None

    def scaled(frequency: float) -> float:
        turns = length * frequency / (2 * math.pi)  # in the original context
        kept = min(1.0, max(0.0, (turns - low) / (high - low)))
        return kept * frequency + (1 - kept) * frequency / scaling.factor

    return [scaled(frequency) for frequency in _unscaled(size, theta)]


KINDS: Mapping[str, Callable[[int, float, RopeScaling], list[float]]] = {
    "linear": _linear,
    "ntk": _ntk,
    "llama3": _llama3,
}


def frequencies(size: int, theta: float, scaling: RopeScaling | None = None) -> list[float]:
    """Return the size / 2 frequencies, in radians a token, of heads whose first ``size`` elements turn."""
    return _unscaled(size, theta) if scaling is None else KINDS[scaling.kind](size, theta, scaling)
