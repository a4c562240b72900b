"""From a path to a checkpoint: the first reader that recognises it reads it.

Names and shapes are held against the configuration at once; weights are read when asked for, one at a time.

    >>> checkpoint = read_checkpoint("models/sotu")
    >>> checkpoint.tensor("wte.weight").shape
    torch.Size([4096, 256])
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import NoReturn

from gpt_onnx.checkpoint.checkpoint import Checkpoint
from gpt_onnx.checkpoint.layout import CONFIG_FILE, WEIGHTS_FILE
from gpt_onnx.checkpoint.readers import READERS, Reader, ReadOptions
from gpt_onnx.errors import CheckpointError

PICKLE_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")


def read_checkpoint(
    path: str | Path,
    *,
    tokenizer: str | Path | None = None,
    config: str | Path | None = None,
    names: str | Path | None = None,
) -> Checkpoint:
    """Open a checkpoint of any kind that is known and check all but the values of its weights.

    Args:
        path: The folder or file.
        tokenizer: Another folder or ``tokenizer.json`` to take the tokenizer from; "none" for no tokenizer;
            None for the checkpoint's own.
        config: A configuration (JSON or TOML) of a source that does not tell its own.
        names: A table (TOML) of the source's names of tensors, for a source of another naming.

    Raises:
        CheckpointError: if a file is missing or damaged, or weights and configuration disagree.
        ConfigError: if the configuration cannot be understood.
        InputError: if an option is missing, or one is given that the source has no use for.
    """
    options = ReadOptions(
        tokenizer=tokenizer,
        config=None if config is None else Path(config),
        names=None if names is None else Path(names),
    )
    return find_reader(Path(path)).read(Path(path), options)


def find_reader(path: Path) -> Reader:
    """Return the reader that recognises a source.

    Raises:
        CheckpointError: if none does.
    """
    reader = next((reader for reader in READERS if reader.recognises(path)), None)
    if reader is None:
        _refuse(path)
    return reader


def find_shipped() -> Path | None:
    """Return the folder of the model that ships with the sources; None where this is not a clone."""
    root = Path(__file__).resolve().parents[2]
    shipped = root / "models" / "sotu"
    return shipped if (root / "pyproject.toml").is_file() and (shipped / WEIGHTS_FILE).is_file() else None


def kinds(*others: str) -> str:
    """Return what can be read, and others, as the end of a sentence; the readers' table is its source."""
    *first, last = (*(reader.summary for reader in READERS if reader.summary), *others)
    return f"{', '.join(first)} or {last}" if first else last


def _recognised_inside(folder: Path) -> tuple[Path, Reader] | None:
    """Return a file of a folder that could have been named instead, e.g. the ckpt.pt of an output folder."""
    files = sorted(entry for entry in folder.iterdir() if entry.is_file())
    found = ((file, reader) for file in files for reader in READERS if reader.recognises(file))
    return next(found, None)


def _told_of_folder(folder: Path) -> str:
    missing = [name for name in (CONFIG_FILE, WEIGHTS_FILE) if not (folder / name).is_file()]
    if len(missing) == 2 and (inside := _recognised_inside(folder)):
        file, reader = inside
        return f"{folder} itself is no checkpoint, but holds {file.name} ({reader.kind}): name {file}"
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


def _refuse(path: Path) -> NoReturn:
    """Refuse what no reader recognises, in a sentence that names what they do."""
    if ".py:" in str(path) or path.suffix == ".py":
        raise CheckpointError(
            f"{path} is code, which export alone takes and runs; save its weights with "
            "torch.save(model.state_dict(), FILE) and name that."
        )
    if not path.exists():
        told = f"{path} does not exist"
    else:
        told = _told_of_folder(path) if path.is_dir() else _told_of_file(path)
    raise CheckpointError(f"{told}; a checkpoint is {kinds()}.")
