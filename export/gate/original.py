"""Numbers that the original program wrote itself (``--reference FILE``).

Agreement with our own reading of a checkpoint says nothing about the reading. The file holds ``input_ids``
(B, S) and ``logits``, (B, S, V) or (B, V) of the last position, in safetensors, npz, or a ``.pt`` of tensors
alone.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gpt_onnx.errors import InputError

from .case import Case, Finding, Setting
from .cases import Facts, Ids
from .reference import Refused
from .tolerance import MAX_FACTOR, RMS_FACTOR, AnyFloats, FloatArray, Ratio, Unit, ratio_of, worst
from .truth import Truth
from .whole import last_logits

NAMES = ("input_ids", "logits")


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """What the original program computed."""

    input_ids: npt.NDArray[np.int64]
    """(B, S)."""
    logits: AnyFloats
    """(B, S, V), or (B, 1, V) of the last position; float32 or float64."""

    @property
    def rows(self) -> list[Ids]:
        """The sequences."""
        return [tuple(int(token) for token in row) for row in self.input_ids]


def _from_safetensors(path: Path) -> dict[str, Any]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys() if name in NAMES}  # noqa: SIM118


def _from_npz(path: Path) -> dict[str, Any]:
    if not zipfile.is_zipfile(path):  # NumPy would take it for a pickle, and say how to run it
        raise InputError("it is not a zip archive of arrays")
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:  # np.load leaks a bad file
        try:
            return {name: file[name] for name in NAMES if name in file}
        except ValueError as exc:
            raise InputError("an array in it holds Python objects; numbers are needed") from exc


def _from_torch(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:  # torch.save compresses nothing; what does may be of any size
        if packed := [
            entry.filename for entry in archive.infolist() if entry.compress_type != zipfile.ZIP_STORED
        ]:
            raise InputError(f"its member {packed[0]} is compressed")
    loaded = torch.load(path, map_location="cpu", weights_only=True)
    return dict(loaded) if isinstance(loaded, Mapping) else {}


READERS: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    ".safetensors": _from_safetensors,
    ".npz": _from_npz,
    ".pt": _from_torch,
    ".pth": _from_torch,
}


def _arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    if path.suffix not in READERS:
        raise InputError(f"{path} ends in {path.suffix!r}; a reference file is one of {', '.join(READERS)}.")
    try:
        loaded = READERS[path.suffix](path)
    except Exception as exc:  # each library raises its own
        reason = next(iter(str(exc).splitlines()), type(exc).__name__)
        raise InputError(f"{path} could not be read as a {path.suffix} of tensors: {reason}.") from exc
    if missing := [name for name in NAMES if name not in loaded]:
        raise InputError(f"{path} lacks {missing[0]!r}; a reference file holds {' and '.join(NAMES)}.")
    return {name: _array(path, name, loaded[name]) for name in NAMES}


def _array(path: Path, name: str, value: object) -> npt.NDArray[Any]:
    if isinstance(value, np.ndarray):
        return value
    if not isinstance(value, torch.Tensor):
        raise InputError(f"{path} holds a {type(value).__name__} as {name!r}; a tensor was expected.")
    if value.dtype in (torch.bfloat16, torch.float16):
        return value.detach().to(torch.float16).numpy()
    array: npt.NDArray[Any] = value.detach().numpy()
    return array


def _checked_ids(path: Path, ids: npt.NDArray[Any], facts: Facts) -> npt.NDArray[np.int64]:
    ids = ids[None] if ids.ndim == 1 else ids
    if ids.ndim != 2 or not ids.size or ids.dtype.kind not in "iu":
        raise InputError(f"{path} has input_ids of {ids.dtype} {ids.shape}; integers (B, S) were expected.")
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= facts.vocab_size:
        found = low if low < 0 else high
        raise InputError(f"{path} has the id {found}; ids of this model are 0 to {facts.vocab_size - 1}.")
    if facts.within(ids.shape[1]) != ids.shape[1]:
        raise InputError(
            f"{path} has sequences of {ids.shape[1]} tokens; this graph takes "
            f"{'exactly' if facts.only_length else 'at most'} {facts.within(ids.shape[1])}."
        )
    return ids.astype(np.int64)


def _checked_logits(
    path: Path, logits: npt.NDArray[Any], shape: tuple[int, ...], vocab_size: int
) -> AnyFloats:
    batch, length = shape
    if logits.dtype not in (np.float32, np.float64):
        raise InputError(
            f"{path} has half-precision or other logits ({logits.dtype}); store float32 or float64."
        )
    if logits.shape not in ((batch, length, vocab_size), (batch, 1, vocab_size), (batch, vocab_size)):
        raise InputError(
            f"{path} has logits of shape {logits.shape} for input_ids {shape}; "
            f"({batch}, {length}, {vocab_size}), or that without the second dim, was expected."
        )
    if not np.isfinite(logits).all():
        raise InputError(f"{path} has logits that are NaN or infinite; finite ones were expected.")
    return logits.reshape(batch, -1, vocab_size)


def read_original(path: Path, facts: Facts) -> Original:
    """Read a file that the original program wrote.

    Raises:
        InputError: if it cannot be read, or is not for a model and a graph like these.
    """
    arrays = _arrays(path)
    ids = _checked_ids(path, arrays["input_ids"], facts)
    return Original(
        input_ids=ids, logits=_checked_logits(path, arrays["logits"], ids.shape, facts.vocab_size)
    )


def widened(unit: Unit, dtype: np.dtype[Any]) -> Unit:
    """Allow one unit more where the stored numbers are float32: they are that far from float64 themselves."""
    if dtype == np.float64:
        return unit
    return Unit(peak=unit.peak * (MAX_FACTOR + 1) / MAX_FACTOR, rms=unit.rms * (RMS_FACTOR + 1) / RMS_FACTOR)


def _ratio(truth: Truth, found: AnyFloats, stored: AnyFloats) -> Ratio:
    """Compare one row (S or 1, V) with what is stored (S or 1, V), on the positions that both have."""
    rows = min(len(found), len(stored), len(truth.ids) - truth.first)
    unit = widened(truth.unit(slice(len(truth.ids) - rows, None)), stored.dtype)
    expected: FloatArray = stored[-rows:].astype(np.float64)
    return ratio_of(found[-rows:], expected, unit)


def check_original(setting: Setting, original: Original) -> Finding:
    """Compare the graph with the stored logits, each row in units of our own float32 on the same ids."""
    try:
        truths = [setting.oracle.truth(row) for row in original.rows]
    except Refused as exc:
        raise InputError(f"the module itself refuses the input_ids of the reference file: {exc}.") from exc
    found = last_logits(setting, original.rows) if truths[0].first else setting.engine.logits(original.rows)
    return Finding(ratio=worst(map(_ratio, truths, found, original.logits)))


def original_cases(setting: Setting, original: Original | None) -> Iterator[Case]:
    """The stored numbers, if there are any."""
    if original is not None:
        batch, length = original.input_ids.shape
        name = f"{batch} x {length} tokens that the original program computed"
        yield Case(group="original", name=name, run=partial(check_original, setting, original))
