"""From a path to a checkpoint: the first reader that recognises it reads it.

Names and shapes are held against the configuration at once; weights are read when asked for, one at a time.

    >>> checkpoint = read_checkpoint("models/sotu")
    >>> checkpoint.tensor("wte.weight").shape
    torch.Size([4096, 256])
"""

from __future__ import annotations

from pathlib import Path

from gpt_onnx.checkpoint.checkpoint import Checkpoint
from gpt_onnx.checkpoint.layout import WEIGHTS_FILE
from gpt_onnx.checkpoint.readers import Reader, ReadOptions
from gpt_onnx.checkpoint.refusals import recogniser, refusal, refuse_part


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
    return find_reader(Path(path), options).read(Path(path), options)


def find_reader(path: Path, options: ReadOptions | None = None) -> Reader:
    """Return the reader that recognises a source.

    Raises:
        CheckpointError: if none does, or it is one file of a folder that is to be named as a whole.
    """
    refuse_part(path, options or ReadOptions())
    reader = recogniser(path)
    if reader is None:
        raise refusal(path)
    return reader


def find_shipped() -> Path | None:
    """Return the folder of the model that ships with the sources; None where this is not a clone."""
    root = Path(__file__).resolve().parents[2]
    shipped = root / "models" / "sotu"
    return shipped if (root / "pyproject.toml").is_file() and (shipped / WEIGHTS_FILE).is_file() else None
