"""The file of ``--reference``: ids and logits of the original program, in any form that programs write them.

It holds ``input_ids`` (B, S) and ``logits``: (B, S, V), (B, V) of the last position, or (S, V) of a single
sequence. It is a safetensors, an npz, or what torch.save or LibTorch wrote; of the latter a list of the two
will do. No code in it is ever run (gpt_onnx.checkpoint.archive).
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gpt_onnx.checkpoint.archive import Archive, LazyTensor, flatten, read_archive
from gpt_onnx.errors import InputError

from .cases import Facts, Ids
from .tolerance import AnyFloats

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


def _by_name(tensors: Mapping[str, LazyTensor]) -> dict[str, LazyTensor]:
    """Find the two: by name, or in a list of two by what they hold, integers or not."""
    if set(tensors) != {"0", "1"}:
        return {name: tensors[name] for name in NAMES if name in tensors}
    return {NAMES[tensor.dtype[0] in "FB"]: tensor for tensor in tensors.values()}


def _values(archive: Archive, tensor: LazyTensor) -> npt.NDArray[Any]:
    """Read one; bfloat16 is told apart as half precision, which it is."""
    array = archive.read(tensor)
    return array.astype(np.float16) if tensor.dtype == "BF16" else array


def _from_torch(path: Path) -> dict[str, Any]:
    archive = read_archive(path)
    if isinstance(archive.root, dict):
        for name in NAMES:
            if name in archive.root and not isinstance(archive.root[name], LazyTensor):
                raise InputError(f"{name} in it is no tensor")
    found = _by_name(flatten(archive.root, path))
    return {name: _values(archive, tensor) for name, tensor in found.items()}


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


def _in_three_dims(logits: npt.NDArray[Any], shape: tuple[int, int]) -> npt.NDArray[Any]:
    """Return (B, S, V) or (B, 1, V), where the logits are of one of the three forms."""
    batch, length = shape
    if logits.ndim == 2 and batch == 1 and len(logits) == length:
        return logits[None]
    return logits[:, None] if logits.ndim == 2 else logits


def _checked_logits(
    path: Path, logits: npt.NDArray[Any], shape: tuple[int, int], widths: tuple[int, ...]
) -> AnyFloats:
    """See that logits are of these ids, and keep those of the tokens that the model has: ``widths[0]``."""
    batch, length = shape
    if logits.dtype not in (np.float32, np.float64):
        raise InputError(
            f"{path} has half-precision or other logits ({logits.dtype}); store float32 or float64."
        )
    found = _in_three_dims(logits, shape)
    if found.shape not in [(batch, rows, width) for rows in (length, 1) for width in widths]:
        raise InputError(
            f"{path} has logits of shape {logits.shape} for input_ids {shape}; "
            f"({batch}, {length}, {widths[0]}), or that without the second dim, was expected."
        )
    kept: AnyFloats = found[..., : widths[0]]
    if not np.isfinite(kept).all():
        raise InputError(f"{path} has logits that are NaN or infinite; finite ones were expected.")
    return kept


def read_original(path: Path, facts: Facts, padded_vocab_size: int | None = None) -> Original:
    """Read a file that the original program wrote.

    Args:
        path: The file.
        facts: What the graphs take.
        padded_vocab_size: Tokens that the original program's head has, where the last of them are padding.

    Raises:
        InputError: if it cannot be read, or is not for a model and a graph like these.
    """
    arrays = _arrays(path)
    ids = _checked_ids(path, arrays["input_ids"], facts)
    widths = (facts.vocab_size, padded_vocab_size or facts.vocab_size)
    shape = (ids.shape[0], ids.shape[1])
    return Original(input_ids=ids, logits=_checked_logits(path, arrays["logits"], shape, widths))
