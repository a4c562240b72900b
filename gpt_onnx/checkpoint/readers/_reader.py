"""What a reader is: it recognises a kind of source by looking at it, and reads it or says what it lacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpt_onnx.checkpoint.checkpoint import Checkpoint
from gpt_onnx.checkpoint.tokenizer_files import TokenizerFiles, read_tokenizer
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import CheckpointError, InputError

NO_TOKENIZER = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What the user says about a source besides where it is."""

    tokenizer: str | Path | None = None
    """Another folder or tokenizer.json to take the tokenizer from; "none" for no tokenizer."""
    config: Path | None = None
    """A configuration (JSON or TOML) of a source that does not tell its own."""
    names: Path | None = None
    """A table (TOML) of the source's names of tensors, for a source of another naming."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One kind of source."""

    kind: str
    """What it is called, e.g. "nanoGPT checkpoint"."""
    summary: str
    """What it looks like, for the message that lists what can be read; empty where all of it is refused."""
    recognises: Callable[[Path], bool]
    """Whether a source is of this kind; looks, and never raises for a source of another kind."""
    read: Callable[[Path, ReadOptions], Checkpoint]
    """Reads it; raises a CheckpointError, ConfigError or InputError that names what is wrong."""
    template: Callable[[Path, ReadOptions], str] | None = None
    """Returns the text of a --config file (TOML) to be filled in; None where the source tells all."""


def refuse_options(options: ReadOptions, kind: str) -> None:
    """Refuse a configuration and a table of names for a source that needs neither.

    Raises:
        InputError: naming the option.
    """
    for name in ("config", "names"):
        if (value := getattr(options, name)) is not None:
            raise InputError(f"a {kind} tells its own configuration and names; leave --{name} {value} away.")


def find_tokenizer(
    folder: Path | None, choice: str | Path | None, config: GPTConfig
) -> TokenizerFiles | None:
    """Return the tokenizer of a folder, or the one that the user chose instead.

    Raises:
        CheckpointError: if there is none where one was named, or it has ids that the model lacks.
    """
    if choice is not None and str(choice) == NO_TOKENIZER:
        return None
    if choice is None and folder is None:
        return None
    source = Path(choice) if choice is not None else folder
    assert source is not None
    if not source.exists():
        raise CheckpointError(
            f"the tokenizer {source} does not exist; name a folder, a tokenizer.json or none."
        )
    files = read_tokenizer(source, config.context_length)
    if files is None and choice is not None:
        raise CheckpointError(f"{source} has neither tokenizer.json nor vocab.json with merges.txt.")
    if files is not None and files.vocab_size > config.vocab_size:
        raise CheckpointError(
            f"the tokenizer in {source} has ids up to {files.vocab_size - 1} and the model's vocabulary has "
            f"{config.vocab_size} rows; take the tokenizer that it was trained with, or none."
        )
    return files
