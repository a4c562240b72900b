"""All that a run reads, made ready: configuration, tokenizer, and ids on the disk."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from gpt_onnx._user_text import read_toml
from gpt_onnx._whole_files import replace_file
from gpt_onnx.checkpoint import Checkpoint, read_checkpoint
from gpt_onnx.checkpoint.generation import GENERATION_FILE
from gpt_onnx.checkpoint.special_ids import special_ids
from gpt_onnx.checkpoint.tokenizer_files import END_OF_TEXT, TokenizerFiles, default_tokenizer_config
from gpt_onnx.config import GPTConfig, named_config, named_configs, read_json_object
from gpt_onnx.errors import ConfigError, GptOnnxError, InputError
from gpt_onnx.train.corpus import Corpus, hold_out, read_corpus
from gpt_onnx.train.options import TrainOptions
from gpt_onnx.train.tokens import TokenIds, map_tokens, train_tokenizer, write_tokens

TRAINING_IDS = "training.ids"
VALIDATION_IDS = "validation.ids"
TOKENIZER = "tokenizer.json"
_OF_SOURCES = re.compile(r"--(config|names|tokenizer)\b")
"""Options that describe a source where one is exported or converted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """What the loop needs to know of the texts."""

    config: GPTConfig
    """Of the model, its vocabulary as large as the tokenizer's."""
    tokenizer: TokenizerFiles
    """To be stored in the checkpoint."""
    training: TokenIds
    """Ids to learn from."""
    validation: TokenIds
    """Ids to measure on."""
    validation_bytes: int
    """Bytes of the text that ``validation`` encodes."""
    texts: Mapping[str, Any]
    """What the texts are, for the record: documents, bytes and hashes."""
    generation: Mapping[str, Any]
    """To be stored as well: what the first checkpoint says about generation."""
    init: Checkpoint | None
    """Where the first weights come from; None: from the seed."""


def read_config(choice: str) -> GPTConfig:
    """Return a named configuration, or read a TOML or JSON file.

    Raises:
        ConfigError: if there is neither, or it is wrong.
    """
    path = Path(choice)
    if choice in named_configs():
        return named_config(choice)
    if not path.is_file():
        raise ConfigError(f"{choice!r} is neither a file nor one of {', '.join(named_configs())}.")
    if path.suffix != ".toml":
        return GPTConfig.from_dict(read_json_object(path), origin=choice)
    try:
        values = read_toml(path)
    except (OSError, ValueError) as exc:
        raise ConfigError(f"{path} could not be read as TOML: {exc}.") from exc
    return GPTConfig.from_dict(values, origin=choice)


def _start(path: Path) -> Checkpoint:
    """Read the checkpoint to start from.

    Raises:
        InputError: if it needs an option that a training has not, which may have one of that name for itself.
    """
    try:
        return read_checkpoint(path)
    except GptOnnxError as exc:
        if not _OF_SOURCES.search(str(exc)):
            raise
        told = str(exc).removesuffix(".")
        raise InputError(f"{told}; that is for gpt-onnx convert {path} -o NEW, and NEW for --init.") from exc


def prepare(options: TrainOptions, work: Path) -> TrainingData:
    """Read the texts, and make tokenizer and ids in the folder ``work`` unless an earlier process did.

    Raises:
        ConfigError: if the configuration is wrong.
        InputError: if the texts cannot be used, or are too short for one window.
    """
    init = None if options.init is None else _start(options.init)
    config = read_config(options.config) if init is None else init.config
    if options.dropout is not None:
        config = config.replace(dropout=options.dropout)
    corpus, validation = _texts(options)
    files = _trained(work / TOKENIZER, corpus, config) if init is None else _kept(init)
    tokenizer = _loaded(files, init)
    if init is None:
        config = config.replace(vocab_size=tokenizer.get_vocab_size())
    end = _end_token(files, tokenizer, init)
    for name, text in ((TRAINING_IDS, corpus), (VALIDATION_IDS, validation)):
        if not (work / name).exists():
            write_tokens(work / name, text.documents, tokenizer, end=end, vocab_size=config.vocab_size)
    training_ids = map_tokens(work / TRAINING_IDS, config.vocab_size)
    if len(training_ids) <= config.context_length:
        raise InputError(
            f"the corpus has {len(training_ids)} tokens and one window {config.context_length + 1}; "
            f"give more text{'' if init else ', or a configuration with a shorter context_length'}."
        )
    return TrainingData(
        config=config,
        tokenizer=files,
        training=training_ids,
        validation=map_tokens(work / VALIDATION_IDS, config.vocab_size),
        validation_bytes=validation.byte_count,
        texts={"corpus": _describe(corpus), "validation": _describe(validation)},
        generation={} if init is None else init.generation,
        init=init,
    )


def _texts(options: TrainOptions) -> tuple[Corpus, Corpus]:
    corpus = read_corpus(options.corpus)
    if options.validation:
        return corpus, read_corpus(options.validation)
    return hold_out(corpus, options.held_out, options.seed)


def _trained(path: Path, corpus: Corpus, config: GPTConfig) -> TokenizerFiles:
    """Train a tokenizer, unless an earlier process did."""
    if not path.exists():
        text = train_tokenizer(corpus.documents, config.vocab_size).to_str()
        replace_file(path, lambda file: file.write_text(text, encoding="utf-8"))
    return TokenizerFiles(
        definition=path.read_text(encoding="utf-8"), config=default_tokenizer_config(config.context_length)
    )


def _kept(init: Checkpoint) -> TokenizerFiles:
    if init.tokenizer is None:
        raise InputError(
            f"{init.path} has no tokenizer, and text cannot be read without; start from one that has."
        )
    return init.tokenizer


def _loaded(files: TokenizerFiles, init: Checkpoint | None) -> Tokenizer:
    try:
        return Tokenizer.from_str(files.definition)
    except Exception as exc:  # the library raises no narrower one
        origin = TOKENIZER if init is None else f"the tokenizer of {init.path}"
        raise InputError(
            f"{origin} cannot be loaded: {exc}; save it anew with the newest release of tokenizers."
        ) from exc


def _end_token(files: TokenizerFiles, tokenizer: Tokenizer, init: Checkpoint | None) -> int:
    """Return the id that separates documents: the one that ends a text for the first checkpoint.

    Raises:
        InputError: if nothing says which that is.
    """
    told = special_ids(files) | ({} if init is None else dict(init.generation))
    ends: int | list[int] | None = told.get("eos_token_id", tokenizer.token_to_id(END_OF_TEXT))
    if ends is None:
        assert init is not None, "a tokenizer that was trained here has END_OF_TEXT"
        raise InputError(
            f"{init.path} does not say which token ends a text, and one must stand between documents; put "
            f"its number, as eos_token_id, into the {GENERATION_FILE} of the checkpoint's folder."
        )
    return ends[0] if isinstance(ends, list) else ends


def _describe(corpus: Corpus) -> dict[str, Any]:
    return {"documents": len(corpus.documents), "bytes": corpus.byte_count, "sha256": corpus.sha256}


def fingerprint(options: TrainOptions, data: TrainingData) -> str:
    """Return as JSON what decides the result of a run; paths are not in it."""
    decisive = {
        name: getattr(options, name)
        for name in (
            "batch_size",
            "learning_rate",
            "final_learning_rate",
            "warmup",
            "weight_decay",
            "gradient_clip",
            "precision",
            "validate_every",
            "seed",
        )
    }
    total_steps = options.total_steps(len(data.training), data.config.context_length)
    init = {} if data.init is None else {"init": data.init.sha256}
    return json.dumps(
        {**decisive, **init, "steps": total_steps, "config": data.config.to_dict(), **data.texts}
    )
