"""What the options bring for a source that lacks it: a tokenizer, a configuration."""

from __future__ import annotations

import tempfile
from pathlib import Path

from gpt_onnx._user_text import read_toml
from gpt_onnx.checkpoint import TokenizerFiles
from gpt_onnx.checkpoint.tokenizer_files import read_tokenizer
from gpt_onnx.config import GPTConfig, read_json_object
from gpt_onnx.errors import ConfigError, GptOnnxError, InputError
from gpt_onnx.runtime.tokenizer import load_tokenizer

from .options import ExportOptions


def read_config(path: Path | str) -> GPTConfig:
    """Read a configuration from a JSON or TOML file.

    Raises:
        ConfigError: if it cannot be read or understood.
    """
    path = Path(path)
    if path.suffix.lower() != ".toml":
        return GPTConfig.from_dict(read_json_object(path), origin=str(path))
    try:
        values = read_toml(path)
    except (OSError, ValueError) as exc:
        raise ConfigError(f"{path} could not be read as TOML: {exc}.") from exc
    return GPTConfig.from_dict(values, origin=str(path))


def own_tokenizer(options: ExportOptions, context_length: int, vocab_size: int) -> TokenizerFiles | None:
    """Read the tokenizer that the options name for a source without one.

    Raises:
        InputError: if there is none, or it has ids that the model lacks.
    """
    if options.tokenizer is None or str(options.tokenizer) == "none":
        return None
    found = read_tokenizer(Path(options.tokenizer), context_length)
    if found is None:
        raise InputError(f"{options.tokenizer} has neither tokenizer.json nor vocab.json with merges.txt.")
    if found.vocab_size > vocab_size:
        raise InputError(
            f"the tokenizer in {options.tokenizer} has ids up to {found.vocab_size - 1} and the model's "
            f"vocabulary has {vocab_size} rows; take the tokenizer that it was trained with, or none."
        )
    return found


def check_tokenizer(tokenizer: TokenizerFiles | None, vocab_size: int) -> None:
    """Load a tokenizer as the runtime will, before a bundle is made with it.

    Raises:
        InputError: if the runtime would refuse it.
    """
    if tokenizer is None:
        return
    with tempfile.TemporaryDirectory(prefix="gpt-onnx-") as folder:
        file = Path(folder) / "tokenizer.json"
        file.write_text(tokenizer.definition, encoding="utf-8")
        try:
            load_tokenizer(file).allowed(vocab_size)
        except GptOnnxError as exc:
            said = str(exc).replace(f"{file}", "tokenizer.json").removesuffix(".")
            remedy = "" if "--tokenizer" in said else "; name another with --tokenizer, or none"
            raise InputError(f"the runtime would refuse this tokenizer: {said}{remedy}.") from exc
