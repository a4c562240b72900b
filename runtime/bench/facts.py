"""What a contender's process tells of itself once it has loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from gpt_onnx.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """JSON values; only the device must be told.

    Raises:
        InputError: from ``read``, if the device is missing or a fact is not one of these.
    """

    device: str
    """Where it runs: ``cpu``, ``cuda:0``."""
    threads: int | None = None
    """Threads that compute; None where the program does not know."""
    vocab_size: int | None = None
    """Ids are below it; None: any id of the others."""
    limit: int | None = None
    """The longest sequence; None: any."""
    context_length: int | None = None
    """The length of its training sequences."""
    file_bytes: int | None = None
    """Size of everything that it needs on disk."""
    weight_bytes: int | None = None
    """Bytes of weights that a step reads: see gpt_onnx.runtime.bench.traffic."""
    cache_bytes_per_token: int | None = None
    """Bytes of cache that a step reads for each token of context of each sequence."""
    kl: float | None = None
    """Mean Kullback-Leibler divergence from the same weights in float32, nats a token."""
    notes: tuple[str, ...] = ()
    """Sentences for the report."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the packages that compute."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What else it is."""

    @classmethod
    def read(cls, values: Mapping[str, Any], name: str) -> Self:
        """Check what a process told; ``name`` is the contender's."""
        known = {item.name for item in dataclasses.fields(cls)}
        unknown = sorted(set(values) - known)
        if "device" not in values or unknown:
            found = f"unknown {', '.join(unknown)}" if unknown else "no device"
            raise InputError(f"{name} tells {found} among its facts; they are {', '.join(sorted(known))}.")
        return cls(**{**values, "notes": tuple(values.get("notes", ()))})
