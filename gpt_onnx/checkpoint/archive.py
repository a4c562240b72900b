"""Files of ``torch.save``, and archives that a C++ program wrote with LibTorch: their tensors, and no code.

    >>> archive = read_archive("ckpt.pt")
    >>> archive.kind, type(archive.root)
    ('torch', <class 'dict'>)
    >>> values = archive.read(archive.root["model"]["transformer.wte.weight"])

Of a zip archive only ``data.pkl``, ``version``, ``byteorder`` and the storages below ``data/`` are opened;
the code of a TorchScript archive never is. No class or function that the file names is imported or called:
see gpt_onnx.checkpoint.archive_pickle. Tensors come as ``LazyTensor``: their values are read one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from numpy.typing import NDArray

from gpt_onnx.checkpoint.archive_legacy import is_legacy, read_legacy
from gpt_onnx.checkpoint.archive_machine import Inert, Named, PickleFault
from gpt_onnx.checkpoint.archive_pickle import read_pickle
from gpt_onnx.checkpoint.archive_tensors import LazyTensor, TensorBuilder
from gpt_onnx.checkpoint.archive_values import ValueReader
from gpt_onnx.checkpoint.archive_zip import Directory, Extent, is_zip, locate, read_directory, read_member
from gpt_onnx.errors import CheckpointError

__all__ = [
    "Archive",
    "Inert",
    "LazyTensor",
    "Named",
    "flatten",
    "is_archive",
    "load_legacy",
    "odd_tensors",
    "read_archive",
    "state_dict_of",
]

MAX_PICKLE_BYTES = 32 << 20
MAX_WORD_BYTES = 64  # of version and byteorder
NEWEST_VERSION = 10  # of the archive; PyTorch 2 reads up to it
MAX_TENSORS = 100_000
MAX_DEPTH = 64
MAX_PATH = 1000  # characters of a name with those of all that it lies in
PICKLE, SCRIPT_MEMBER, SCRIPT_FOLDER = "data.pkl", "constants.pkl", "code/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """What a file holds; its tensors are still on the disk."""

    path: Path
    kind: str
    """ "torch" for torch.save, "script" for TorchScript, which is what LibTorch writes."""
    root: object
    """The value that was saved: dicts, lists, tuples, numbers, text, LazyTensor, and Inert for all else."""
    values: ValueReader

    def read(self, tensor: LazyTensor) -> NDArray[Any]:
        """Read one tensor as an array of its own memory; bfloat16 comes as float32.

        Raises:
            CheckpointError: if the file has changed or is damaged there.
        """
        return self.values.read(tensor)


def is_archive(path: Path) -> bool:
    """Whether a file looks like one of torch.save's or LibTorch's; reads a few bytes and never raises."""
    return is_zip(path) or is_legacy(path)


def read_archive(path: str | Path) -> Archive:
    """Read all of a file but the values of its tensors.

    Raises:
        CheckpointError: if it is no such file, is damaged, or says what no checkpoint says.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            kind, root = _root_of(file, path)
    except OSError as exc:
        raise CheckpointError(f"{path} could not be read: {exc.strerror or exc}.") from exc
    except PickleFault as fault:
        raise CheckpointError(f"{path} {fault}; fetch it again from where you trust it.") from fault
    return Archive(path=path, kind=kind, root=root, values=ValueReader(path))


def load_legacy(path: str | Path) -> Archive:
    """Read a file of torch.save before PyTorch 1.6, which ``read_archive`` does too.

    Raises:
        CheckpointError: as ``read_archive``, or if it is a newer file.
    """
    if not is_legacy(Path(path)):
        raise CheckpointError(f"{path} is not a file of torch.save before PyTorch 1.6; use read_archive.")
    return read_archive(path)


def _root_of(file: BinaryIO, path: Path) -> tuple[str, object]:
    if is_legacy(path):
        return "torch", read_legacy(file, MAX_PICKLE_BYTES)
    if not is_zip(path):
        raise CheckpointError(
            f"{path} is not a file that torch.save or LibTorch wrote; a checkpoint of PyTorch is one."
        )
    directory = read_directory(file, path)
    if PICKLE not in directory.members:
        raise CheckpointError(
            f"{path} is a zip archive without {PICKLE}, which torch.save and LibTorch write; "
            "it is another kind of file: save the weights with torch.save(model.state_dict(), path)."
        )
    _check_words(file, directory)
    data = read_member(file, directory, PICKLE, MAX_PICKLE_BYTES)
    root, _ = read_pickle(data, TensorBuilder(partial(_storage, file, directory)))
    return _kind_of(directory), root


def _kind_of(directory: Directory) -> str:
    script = any(name == SCRIPT_MEMBER or name.startswith(SCRIPT_FOLDER) for name in directory.members)
    return "script" if script else "torch"


def _word(file: BinaryIO, directory: Directory, name: str) -> bytes | None:
    if name not in directory.members:
        return None
    return read_member(file, directory, name, MAX_WORD_BYTES).strip()


def _check_words(file: BinaryIO, directory: Directory) -> None:
    """Refuse an archive of a newer format, or of a machine that stores numbers the other way round."""
    order, version = _word(file, directory, "byteorder"), _word(file, directory, "version")
    if order not in (None, b"little"):
        raise CheckpointError(
            f"{directory.path} stores numbers in the byte order {order!r}; only little endian is read: "
            "load it where it was written and save it on a little-endian machine."
        )
    if version is not None and not (version.isdigit() and int(version) <= NEWEST_VERSION):
        raise CheckpointError(
            f"{directory.path} has the format version {version!r}; up to {NEWEST_VERSION} are known: "
            "save it with a PyTorch of today."
        )


def _storage(file: BinaryIO, directory: Directory, key: str, count: int, item_size: int) -> Extent:
    if not (key.isascii() and key.isdigit()):
        raise PickleFault(f"has a storage with the name {key[:100]!r}, which is no number")
    extent = locate(file, directory, f"data/{key}")
    if extent.size != count * item_size:
        raise PickleFault(
            f"has {extent.size} bytes in the storage {key!r}, whose tensors need {count * item_size}"
        )
    return extent


def state_dict_of(root: object, path: Path, what: str = "") -> dict[str, LazyTensor]:
    """Return a state dict; every value must be a tensor that can be read.

    Args:
        root: The dict of names and tensors.
        path: The file, for messages.
        what: Where in the file it stands, for messages, e.g. "model".

    Raises:
        CheckpointError: naming the first that is something else.
    """
    place = f"{path}: {what}" if what else f"{path}"
    if not isinstance(root, dict):
        raise CheckpointError(
            f"{place} is {_described(root)}; a dict of names and tensors was expected: "
            "save it with torch.save(model.state_dict(), path)."
        )
    for name, value in root.items():
        if not isinstance(name, str) or not isinstance(value, LazyTensor):
            raise CheckpointError(
                f"{place} holds {_described(value)} as {str(name)[:200]!r}; every weight must be a dense "
                "tensor of real numbers: save the state_dict of the module with such weights."
            )
    return root


def _described(value: object) -> str:
    """Say what a value is: an inert one by what the file calls it."""
    if not isinstance(value, Inert):
        return f"a value of type {type(value).__name__}"
    known = value.of.startswith("a tensor") or value.of.startswith("a ")
    return value.of if known else f"an object of the class {value.of[:200]}, which is not opened"


def _children(value: object) -> Mapping[str, object]:
    if isinstance(value, Inert):
        value = value.state
    if isinstance(value, list | tuple):
        return {str(index): child for index, child in enumerate(value)}
    if isinstance(value, dict):
        return {key: child for key, child in value.items() if isinstance(key, str)}
    return {}


def _leaves(root: object, path: Path) -> Iterator[tuple[str, object]]:
    """Yield what nested dicts, lists and modules hold, by its path joined with points.

    Raises:
        CheckpointError: if they are nested too deep or too many, as those of a file made for that are.
    """
    stack: list[tuple[str, object, int]] = [("", root, 0)]
    seen = 0
    while stack:
        name, value, depth = stack.pop()
        seen += 1
        children = _children(value)
        if depth > MAX_DEPTH or seen + len(stack) + len(children) > MAX_TENSORS or len(name) > MAX_PATH:
            raise CheckpointError(
                f"{path} nests its values more than {MAX_DEPTH} deep, has more than {MAX_TENSORS} of them, "
                f"or names of more than {MAX_PATH} characters; no model does."
            )
        if not children:
            yield name, value
        inner = [(f"{name}.{key}" if name else key, child, depth + 1) for key, child in children.items()]
        stack.extend(reversed(inner))


def flatten(root: object, path: Path) -> dict[str, LazyTensor]:
    """Return every tensor of nested dicts, lists and modules, by its path joined with points.

    What is no tensor (flags, numbers, text) is left out. The modules of TorchScript, which is what LibTorch
    writes, are inert objects whose state is a dict.

    Raises:
        CheckpointError: if they are nested too deep or too many, as those of a file made for that are.
    """
    return {name: value for name, value in _leaves(root, path) if isinstance(value, LazyTensor)}


def odd_tensors(root: object, path: Path) -> dict[str, str]:
    """Return tensors that cannot be read, such as sparse or complex ones, and what they are.

    Raises:
        CheckpointError: as ``flatten``.
    """
    inert = ((name, value) for name, value in _leaves(root, path) if isinstance(value, Inert))
    return {name: value.of for name, value in inert if value.of.startswith("a ")}
