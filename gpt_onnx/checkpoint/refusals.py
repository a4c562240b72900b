"""What is said of a source that no reader takes: what it is instead, and what to name.

Folders are looked at for what could have been meant: LEVELS deep, ENTRIES at most, and no link is followed.
"""

from __future__ import annotations

import itertools
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

from gpt_onnx.bundle import FORMAT
from gpt_onnx.checkpoint.layout import CONFIG_FILE, WEIGHTS_FILE
from gpt_onnx.checkpoint.readers import READERS, Reader, ReadOptions
from gpt_onnx.config import read_json_object
from gpt_onnx.errors import CheckpointError, GptOnnxError

PICKLE_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
FILE_SUFFIXES = (*PICKLE_SUFFIXES, ".gguf", ".safetensors", ".npz", ".py", ".json", ".toml")
MANIFEST_FILE = "manifest.json"
LEVELS = 2
ENTRIES = 200
OFFERED = 3
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?", re.ASCII)
_PART = re.compile(
    r"(model|pytorch_model)(-\d+-of-\d+)?\.(safetensors|bin)(\.index\.json)?"
    r"|(config|generation_config|tokenizer|tokenizer_config)\.json"
)
"""Names of files that belong to a folder."""


def kinds(*others: str) -> str:
    """Return what can be read, and others, as the end of a sentence; the readers' table is its source."""
    *first, last = (*(reader.summary for reader in READERS if reader.summary), *others)
    return f"{', '.join(first)} or {last}" if first else last


def recogniser(path: Path) -> Reader | None:
    """Return the reader that recognises a source; None where none does."""
    return next((reader for reader in READERS if reader.recognises(path)), None)


def absent(path: Path) -> str:
    """Say that there is no such path, and of the name of a hub that nothing is downloaded."""
    text = path.as_posix()
    told = f"{path} does not exist"
    is_name = _HUB_NAME.fullmatch(text) and path.suffix.lower() not in FILE_SUFFIXES
    if not is_name or (len(path.parts) > 1 and path.parent.exists()):
        return told
    return (
        f"{told}, and nothing is downloaded: if this is the name of a model on a hub, save its folder "
        "(save_pretrained), and name that"
    )


def refuse_part(path: Path, options: ReadOptions) -> None:
    """Refuse one file of a folder that is a source as a whole, unless the user describes the file.

    Raises:
        CheckpointError: naming the folder.
    """
    described = options.config is not None or options.names is not None
    if described or not _PART.fullmatch(path.name) or not path.is_file():
        return
    reader = recogniser(path.parent) if (path.parent / CONFIG_FILE).is_file() else None
    if reader is not None:
        other = "" if path.suffix == ".json" else ", or describe the file's tensors with --config"
        raise CheckpointError(
            f"{path} is one file of a {reader.kind}; name the folder, {path.parent}{other}."
        )


def is_bundle(folder: Path) -> bool:
    """Whether a folder is what an export made."""
    try:
        return read_json_object(folder / MANIFEST_FILE).get("format") == FORMAT
    except GptOnnxError:
        return False


def _order(path: Path) -> list[tuple[int, str]]:
    """Return what sorts names by their letters, and among equal ones the higher number first."""
    parts = re.split(r"(\d{1,18})", path.name)
    return [(-int(part), "") if part.isdecimal() else (0, part) for part in parts]


def _entries(folder: Path) -> list[Path]:
    """Return a folder's entries but for links; some of them where there are more than ENTRIES."""
    try:
        some = list(itertools.islice(folder.iterdir(), ENTRIES))
    except OSError:
        return []
    return sorted((entry for entry in some if not entry.is_symlink()), key=_order)


def _inside(folder: Path) -> Iterator[Path]:
    """Yield a folder's files, and the folders in it, level by level and ENTRIES in all."""
    level = [folder]
    left = ENTRIES
    for number in range(LEVELS):
        found = [entry for above in level for entry in _entries(above)][:left]
        left -= len(found)
        yield from (entry for entry in found if number == 0 or entry.is_dir())
        level = [entry for entry in found if entry.is_dir() and recogniser(entry) is None]


def _offer(folder: Path) -> str | None:
    """Return a sentence's beginning that offers what a folder holds; None where it holds nothing readable."""
    readable = ((entry, reader) for entry in _inside(folder) if (reader := recogniser(entry)))
    found = list(itertools.islice(readable, OFFERED))
    if not found:
        return None
    names = " or ".join(str(entry) for entry, _ in found)
    entry, reader = found[0]
    held = entry.relative_to(folder)
    return f"{folder} is no checkpoint, but holds {held} ({reader.kind}): name {names}"


def _told_of_folder(folder: Path) -> str:
    missing = [name for name in (CONFIG_FILE, WEIGHTS_FILE) if not (folder / name).is_file()]
    if len(missing) == 2 and (offer := _offer(folder)):
        return offer
    return f"{folder} has no {missing[0]}" if missing else f"{folder} is of no known kind"


def _told_of_file(file: Path) -> str:
    if not file.is_file():
        return f"{file} is no file"
    if file.suffix.lower() in PICKLE_SUFFIXES and not zipfile.is_zipfile(file):
        return (
            f"{file} is, by its name, a bare pickle of Python objects, which may run code and is not opened: "
            "save it with torch.save"
        )
    return f"{file} is of no known kind"


def refusal(path: Path) -> CheckpointError:
    """Return the error for what no reader recognises, in a sentence that names what they do."""
    if ".py:" in str(path) or path.suffix == ".py":
        return CheckpointError(
            f"{path} is code, which export alone takes and runs; save its weights with "
            "torch.save(model.state_dict(), FILE) and name that."
        )
    if is_bundle(path):
        return CheckpointError(
            f"{path} is a bundle that gpt-onnx wrote, which is a result and no source; name the checkpoint "
            "that it was made from."
        )
    if not path.exists():
        told = absent(path)
    else:
        told = _told_of_folder(path) if path.is_dir() else _told_of_file(path)
    return CheckpointError(f"{told}; a checkpoint is {kinds()}.")
