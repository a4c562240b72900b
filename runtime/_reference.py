"""``reference.safetensors``: what the original program computed, for devices that have no PyTorch.

The format is read here with numpy alone: eight bytes with the header's length, the header (a JSON object of
names to dtype, shape and offsets), the data. The header is checked field by field before anything is read.
Refused is what nothing could fail by: a file without a case, bounds that are not positive, that are infinite,
or that are larger than the logits themselves. Bounds of 0 are those of logits that are all 0.

    case.{k}.input_ids int64 (S,)      case.{k}.positions int64 (n,)
    case.{k}.logits float64 (n, V')    case.{k}.tolerance float64 (2,): bounds of max-error and RMS error
    case.{k}.vocab_ids int64 (V',), where V' is a part of the vocabulary
    greedy.prompt int64, greedy.tokens int64, greedy.margins float64, greedy.tolerance float64 (1,)
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.errors import BundleError

FILE_NAME = "reference.safetensors"
MAX_BYTES = 8_000_000
MAX_HEADER_BYTES = 1_000_000
DTYPES: Mapping[str, np.dtype[Any]] = {"I64": np.dtype("<i8"), "F64": np.dtype("<f8")}

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCase:
    """Logits that the original program computed for one sequence."""

    name: str
    input_ids: NDArray[np.int64]
    """(S,)"""
    positions: NDArray[np.int64]
    """(n,), ascending."""
    vocab_ids: NDArray[np.int64] | None
    """(V',): which logits are stored; None: all."""
    logits: NDArray[np.float64]
    """(n, V')"""
    bounds: tuple[float, float]
    """The largest accepted max-error and RMS error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGreedy:
    """Tokens that the original program generated greedily."""

    prompt: NDArray[np.int64]
    tokens: NDArray[np.int64]
    margins: NDArray[np.float64]
    """By how much each token's logit leads the second."""
    tolerance: float
    """Where a margin is not above twice this, either token is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The content of the file."""

    cases: tuple[StoredCase, ...]
    greedy: StoredGreedy | None


def _sizes(entry: dict[str, Any], field: str) -> list[int]:
    value = entry.get(field)
    if not isinstance(value, list) or not all(type(item) is int and item >= 0 for item in value):
        raise ValueError(f"a tensor's {field} are {value!r}")
    return value


def _array(name: str, entry: object, data: bytes) -> NDArray[Any]:
    """Return one tensor of the file, or raise a ValueError."""
    if not isinstance(entry, dict) or str(entry.get("dtype")) not in DTYPES:
        raise ValueError(f"{name} is neither int64 nor float64")
    dtype, shape = DTYPES[entry["dtype"]], _sizes(entry, "shape")
    begin, end = [*_sizes(entry, "data_offsets"), 0, 0][:2]
    if end > len(data) or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name} does not fit its {end - begin} bytes")
    flat: NDArray[Any] = np.frombuffer(data, np.uint8)[begin:end].copy().view(dtype)
    return flat.reshape(shape)


def parse_safetensors(content: bytes) -> Arrays:
    """Return the int64 and float64 tensors of a safetensors file by name.

    Raises:
        ValueError: if anything in it is not as it should be.
    """
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(len(content) - 8, MAX_HEADER_BYTES):
        raise ValueError("it is truncated")
    header = json.loads(content[8 : 8 + length].decode("utf-8"))
    if not isinstance(header, dict):
        raise ValueError("its header is no JSON object")
    header.pop("__metadata__", None)
    return {name: _array(name, entry, content[8 + length :]) for name, entry in header.items()}


def _take(arrays: Arrays, name: str, kind: str, ndim: int) -> NDArray[Any]:
    array = arrays.get(name)
    if array is None or array.dtype.kind != kind or array.ndim != ndim:
        raise ValueError(f"{name} is missing or of the wrong kind")
    return array


def _bounds(name: str, told: NDArray[np.float64], largest: float) -> list[float]:
    """Return bounds that an error can break, for logits of which the largest is ``largest``."""
    for bound in told.tolist():
        if not (0 < bound <= largest or bound == largest == 0):
            raise ValueError(
                f"{name} is {bound:.3g}; it must be above 0 and at most {largest:.3g}, the largest logit"
            )
    return list(told.tolist())


def _largest(name: str, numbers: NDArray[np.float64]) -> float:
    """Return the largest of some numbers, whatever their signs."""
    if not np.isfinite(numbers).all():
        raise ValueError(f"{name} holds numbers that are not finite")
    return float(np.abs(numbers).max())


def _case(arrays: Arrays, name: str) -> StoredCase:
    vocab_ids = _take(arrays, f"{name}.vocab_ids", "i", 1) if f"{name}.vocab_ids" in arrays else None
    ids, positions = (_take(arrays, f"{name}.{part}", "i", 1) for part in ("input_ids", "positions"))
    logits, bounds = _take(arrays, f"{name}.logits", "f", 2), _take(arrays, f"{name}.tolerance", "f", 1)
    if bounds.shape != (2,) or not positions.size or len(logits) != positions.size or not logits.size:
        raise ValueError(f"{name} has shapes that contradict each other")
    if (np.diff(positions) <= 0).any() or positions[0] < 0 or positions[-1] >= ids.size:
        raise ValueError(f"{name}.positions are not ascending positions of its sequence")
    if vocab_ids is not None and vocab_ids.size != logits.shape[1]:
        raise ValueError(f"{name}.vocab_ids are not one for each logit")
    largest = _largest(f"{name}.logits", logits)
    peak, rms = _bounds(f"{name}.tolerance", bounds, largest)
    return StoredCase(
        name=name,
        input_ids=ids,
        positions=positions,
        vocab_ids=vocab_ids,
        logits=logits,
        bounds=(peak, rms),
    )


def _greedy(arrays: Arrays, largest: float) -> StoredGreedy | None:
    if "greedy.prompt" not in arrays:
        return None
    prompt, tokens = (_take(arrays, f"greedy.{part}", "i", 1) for part in ("prompt", "tokens"))
    margins, tolerance = (_take(arrays, f"greedy.{part}", "f", 1) for part in ("margins", "tolerance"))
    if margins.size != tokens.size or tolerance.size != 1 or not prompt.size:
        raise ValueError("greedy has shapes that contradict each other")
    if not tokens.size:
        raise ValueError("greedy.tokens are none; it must have one at least")
    if not (margins >= 0).all():
        raise ValueError("greedy.margins holds numbers that are not at least 0")
    (room,) = _bounds("greedy.tolerance", tolerance, largest)
    return StoredGreedy(prompt=prompt, tokens=tokens, margins=margins, tolerance=room)


def _cases(arrays: Arrays) -> tuple[StoredCase, ...]:
    names = sorted({name.rpartition(".")[0] for name in arrays if name.startswith("case.")})
    if not names:
        raise ValueError("it stores no case")
    return tuple(_case(arrays, name) for name in names)


def read_reference(path: Path) -> Reference:
    """Read a ``reference.safetensors``.

    Raises:
        BundleError: if it is not as it should be.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES} bytes")
        arrays = parse_safetensors(content)
        cases = _cases(arrays)
        largest = max(float(np.abs(case.logits).max()) for case in cases)
        return Reference(cases=cases, greedy=_greedy(arrays, largest))
    except (OSError, ValueError, RecursionError) as exc:
        raise BundleError(f"{path} cannot be used as a reference: {exc}; export the bundle again.") from exc
