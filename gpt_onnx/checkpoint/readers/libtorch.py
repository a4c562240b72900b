"""An archive that a C++ program wrote with LibTorch: torch::save(module, path), or an OutputArchive.

Such an archive is TorchScript and can hold code, which is never opened: tensors come from ``data.pkl`` by a
reader that imports and calls nothing (gpt_onnx.checkpoint.archive). A module's parts keep the names under
which the program registered them; where these are in the lists of gpt_onnx.checkpoint.spellings, no table of
names is needed. What tensors cannot say is asked for.
"""

from __future__ import annotations

from pathlib import Path

from gpt_onnx.checkpoint.archive import LazyTensor, flatten, is_archive, odd_tensors, read_archive
from gpt_onnx.checkpoint.archive_zip import read_directory
from gpt_onnx.checkpoint.assembly import POSITIONS, Reading, asking_reader, reading_of
from gpt_onnx.checkpoint.given_names import check_lines
from gpt_onnx.checkpoint.names import Naming
from gpt_onnx.checkpoint.names_file import read_names
from gpt_onnx.checkpoint.naming import matches_of
from gpt_onnx.checkpoint.readers._reader import ReadOptions
from gpt_onnx.checkpoint.spellings import is_mask, is_no_weight, spelled
from gpt_onnx.checkpoint.state_dicts import check_masks
from gpt_onnx.checkpoint.store import Store
from gpt_onnx.checkpoint.torch_store import TorchStore
from gpt_onnx.checkpoint.unnamed import REMEDY, check_spelled
from gpt_onnx.errors import CheckpointError, GptOnnxError, InputError

KIND = "LibTorch archive"
CODE = "code/"


def recognises(path: Path) -> bool:
    """Whether it is a zip archive with TorchScript's folder of code, which every archive of LibTorch has."""
    if not path.is_file() or not is_archive(path):
        return False
    try:
        with path.open("rb") as file:
            return any(name.startswith(CODE) for name in read_directory(file, path).members)
    except (GptOnnxError, OSError):
        return False


def _tensors(path: Path, root: object) -> dict[str, LazyTensor]:
    """Return every tensor under the dotted names of the modules that hold it.

    Raises:
        CheckpointError: if the file is damaged, or holds none.
    """
    tensors = flatten(root, path)
    if not tensors:
        raise CheckpointError(f"{path} holds no tensor; save the module itself: torch::save(module, path).")
    return tensors


def _naming(store: Store, own: Naming, given: Path | None) -> Naming:
    """Return the user's table, and for names that it does not have what the lists of spellings give.

    Raises:
        UnknownNamesError: if a name is in neither, or two would be one weight.
    """
    named = {match.theirs for match in matches_of(own, store.tensors).values()}
    found = spelled(name for name in store.tensors if name not in named and not own.ignores(name))
    both = Naming((*own.names, *found.naming.names), (*own.ignored, *found.naming.ignored))
    check_spelled(found, both, store, given)
    return both


def _check_table(store: TorchStore, naming: Naming, reading: Reading) -> None:
    """Refuse a table of positions that was not trained and that is no formula of ours."""
    match = matches_of(naming, store.tensors).get(POSITIONS)
    if match is None or reading.position_rows is not None or store.tensors[match.theirs].requires_grad:
        return
    raise InputError(
        f"{store.path}: {match.theirs} is a table of positions that was not trained and is not sinusoidal "
        "(10000^(2i / n_embd), interleaved or concatenated); if its rows are added to the embeddings as they "
        f"are, say so with a table of names (--names FILE) that maps it to {POSITIONS}."
    )


def _check_odd(path: Path, root: object, naming: Naming) -> None:
    """Refuse tensors that cannot be read, unless they are no weights."""
    for name, what in odd_tensors(root, path).items():
        if not (naming.ignores(name) or is_no_weight(name)):
            raise CheckpointError(
                f"{path}: {name} is {what}; every weight must be a dense tensor of real numbers: save it as "
                "one, or ignore it in a table of names (--names FILE)."
            )


def _understood(path: Path, options: ReadOptions) -> Reading:
    root = read_archive(path).root
    tensors = _tensors(path, root)
    store = TorchStore(path, tensors)
    own = Naming(()) if options.names is None else read_names(options.names)
    naming = _naming(store, own, options.names)
    _check_odd(path, root, naming)
    check_masks(path, tensors, (name for name in tensors if is_mask(name) and not own.ignores(name)))
    try:
        reading = reading_of(store, naming)
    except CheckpointError as exc:
        raise InputError(f"{str(exc).removesuffix('.')}; {REMEDY}.") from exc
    if POSITIONS not in matches_of(own, store.tensors):
        _check_table(store, naming, reading)
    if options.names is not None:
        check_lines(own, store, options.names)
    return reading


READER = asking_reader(
    kind=KIND,
    summary="what C++ wrote (torch::save, OutputArchive)",
    recognises=recognises,
    understood=_understood,
)
