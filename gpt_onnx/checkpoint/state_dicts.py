"""State dicts as training programs save them: what a file holds, and masks beside weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from gpt_onnx.checkpoint import stored_tables
from gpt_onnx.checkpoint.archive import LazyTensor, is_archive, read_archive
from gpt_onnx.checkpoint.archive_values import ValueReader
from gpt_onnx.checkpoint.names import Naming
from gpt_onnx.checkpoint.renamed_store import bare_names
from gpt_onnx.checkpoint.torch_store import FLOATS
from gpt_onnx.errors import CheckpointError, GptOnnxError


def root_of(path: Path) -> object:
    """Return what a file of torch.save holds; None where it is none, or damaged. Never raises."""
    if not path.is_file() or not is_archive(path):
        return None
    try:
        archive = read_archive(path)
    except GptOnnxError:
        return None
    return archive.root if archive.kind == "torch" else None


def names_in(root: object) -> frozenset[str]:
    """Return the names of a state dict's tensors, without prefixes; none where it is another value."""
    if not isinstance(root, dict):
        return frozenset()
    names = (name for name, value in root.items() if isinstance(name, str) and isinstance(value, LazyTensor))
    try:
        return frozenset(bare_names(names))
    except GptOnnxError:
        return frozenset()


def without_prefixes(tensors: Mapping[str, LazyTensor]) -> dict[str, LazyTensor]:
    """Return a state dict under its names without what torch.compile and DataParallel put before them.

    Raises:
        CheckpointError: if two names become one.
    """
    return {short: tensors[name] for short, name in bare_names(tensors).items()}


def check_floats(path: Path, tensors: Mapping[str, LazyTensor], naming: Naming) -> None:
    """Refuse a weight of whole numbers: it was quantised, or is no weight.

    Raises:
        CheckpointError: naming the tensor.
    """
    for name, tensor in tensors.items():
        if tensor.dtype not in FLOATS and not naming.ignores(name):
            raise CheckpointError(
                f"{path}: {name} has dtype {tensor.dtype}; weights are one of {', '.join(FLOATS)}: take the "
                "model as it was before it was quantised."
            )


def check_masks(path: Path, tensors: Mapping[str, LazyTensor], names: Iterable[str]) -> None:
    """See that stored masks are causal, also those of whole numbers or truth values, which no store has.

    Raises:
        CheckpointError: naming one that is not.
    """
    values = ValueReader(path)
    stored_tables.check_masks(path, tensors, names, lambda name: values.read(tensors[name]))
