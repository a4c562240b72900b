"""The metadata of a GGUF file by key, each value of the type that it must have, and none passed over.

keys = Keys(path, header.metadata, "llama")
keys.count("block_count")                # llama.block_count, an integer of at least 1
keys.refuse_others(NEUTRAL)              # a key that nobody asked for may change what is computed
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpt_onnx.errors import CheckpointError

LARGEST = 2**31 - 1


def shown(value: object) -> str:
    """Return a value as a message shows it."""
    text = f"an array of {len(value)}" if isinstance(value, list | np.ndarray) else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def decimal(value: float) -> float:
    """Return the shortest decimal that float32 stores as this: 1e-05 where the file says 9.99999974e-06."""
    return float(str(np.float32(value)))


class Keys:
    """The keys of one architecture."""

    def __init__(self, path: Path, metadata: Mapping[str, Any], prefix: str) -> None:
        self.path, self.prefix = path, prefix
        self._metadata = metadata
        self._asked: set[str] = set()

    def fault(self, key: str, wanted: str) -> CheckpointError:
        """Return the error of a key that is missing or of another type."""
        name = f"{self.prefix}.{key}"
        found = f"has {name} = {shown(self._metadata[name])}" if name in self._metadata else f"lacks {name}"
        return CheckpointError(f"{self.path} {found}; {wanted} was expected.")

    def find(self, key: str) -> Any:
        """Return a value of any type; None where the key is absent."""
        self._asked.add(key)
        return self._metadata.get(f"{self.prefix}.{key}")

    def count(self, key: str, default: int | None = None) -> int:
        """Return an integer of at least 1; one for each layer, all equal, counts as one.

        Raises:
            CheckpointError: if it is missing without a default, or something else.
        """
        value = self.find(key)
        if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iu":
            if (value != value[0]).any():
                raise self.fault(key, "the same number in every layer")
            value = value[0].item()
        value = default if value is None else value
        if type(value) is not int or not 1 <= value <= LARGEST:
            raise self.fault(key, f"an integer from 1 to {LARGEST}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a finite number.

        Raises:
            CheckpointError: if it is missing without a default, or something else.
        """
        value = self.find(key)
        value = default if value is None else value
        if not isinstance(value, int | float) or isinstance(value, bool) or not np.isfinite(value):
            raise self.fault(key, "a number")
        return decimal(value)

    def word(self, key: str, default: str) -> str:
        """Return a text.

        Raises:
            CheckpointError: if it is something else.
        """
        value = self.find(key)
        if not isinstance(value, str | None):
            raise self.fault(key, "a text")
        return default if value is None else value

    def refuse_others(self, neutral: Mapping[str, Collection[Any] | None]) -> None:
        """Refuse a key that was not asked for.

        Args:
            neutral: Keys that may be there with one of some values that change nothing; None for any value.

        Raises:
            CheckpointError: naming the key and its value.
        """
        for name, value in self._metadata.items():
            key = name.removeprefix(f"{self.prefix}.")
            if key == name or key in self._asked or (key in neutral and _is_neutral(value, neutral[key])):
                continue
            raise CheckpointError(
                f"{self.path} has {name} = {shown(value)}, which changes what is computed in a way that is "
                "not known here; such a model cannot be read."
            )


def _is_neutral(value: Any, values: Collection[Any] | None) -> bool:
    return values is None or (not isinstance(value, np.ndarray | list) and value in values)
