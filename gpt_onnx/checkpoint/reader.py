"""From a path to a checkpoint: the first reader that recognises it reads it.

Names and shapes are held against the configuration at once; weights are read when asked for, one at a time.

    >>> checkpoint = read_checkpoint("models/sotu")
    >>> checkpoint.tensor("wte.weight").shape
    torch.Size([4096, 256])
"""

from __future__ import annotations

from pathlib import Path

from gpt_onnx.checkpoint.checkpoint import Checkpoint
from gpt_onnx.checkpoint.layout import CONFIG_FILE, WEIGHTS_FILE
from gpt_onnx.checkpoint.readers import READERS, Reader, ReadOptions
from gpt_onnx.errors import CheckpointError

PICKLE_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")
SUPPORTED = f"a checkpoint is a folder with {CONFIG_FILE} and {WEIGHTS_FILE}"


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
    assert reader is not None
    return reader


def find_shipped() -> Path | None:
    """Return the folder of the model that ships with the sources; None where this is not a clone."""
    root = Path(__file__).resolve().parents[2]
    shipped = root / "models" / "sotu"
    return shipped if (root / "pyproject.toml").is_file() and (shipped / WEIGHTS_FILE).is_file() else None


def _refuse(folder: Path) -> None:
    """Refuse what is no checkpoint in a sentence that names what is one; nothing is opened."""
    if folder.suffix.lower() in PICKLE_SUFFIXES:
        raise CheckpointError(
            f"{folder} is a file of pickled Python objects, which may run code; {SUPPORTED}."
        )
    if not folder.is_dir():
        found = "is not a folder" if folder.exists() else "does not exist"
        raise CheckpointError(f"{folder} {found}; {SUPPORTED}.")
    missing = [name for name in (CONFIG_FILE, WEIGHTS_FILE) if not (folder / name).is_file()]
    pickles = sorted(entry.name for entry in folder.iterdir() if entry.suffix.lower() in PICKLE_SUFFIXES)
    hint = f" ({pickles[0]} holds pickled Python objects and is not opened)" if pickles else ""
    raise CheckpointError(f"{folder} has no {missing[0]}{hint}; {SUPPORTED}.")
