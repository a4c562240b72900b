"""All that a run reads, made ready: configuration, tokenizer, and ids on the disk."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from gpt_onnx.checkpoint import Checkpoint, read_checkpoint
from gpt_onnx.checkpoint.files import replace_file
from gpt_onnx.checkpoint.tokenizer_files import TokenizerFiles, default_tokenizer_config
from gpt_onnx.config import GPTConfig, named_config, named_configs, read_json_object
from gpt_onnx.errors import ConfigError, InputError
from gpt_onnx.train.corpus import Corpus, hold_out, read_corpus
from gpt_onnx.train.options import TrainOptions
from gpt_onnx.train.tokens import TokenIds, map_tokens, train_tokenizer, write_tokens

TRAINING_IDS = "training.ids"
VALIDATION_IDS = "validation.ids"
TOKENIZER = "tokenizer.json"


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
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise ConfigError(f"{path} could not be read as TOML: {exc}.") from exc
    return GPTConfig.from_dict(values, origin=choice)


def prepare(options: TrainOptions, work: Path) -> TrainingData:
    """Read the texts, and make tokenizer and ids in the folder ``work`` unless an earlier process did.

    Raises:
        ConfigError: if the configuration is wrong.
        InputError: if the texts cannot be used, or are too short for one window.
    """
    init = None if options.init is None else read_checkpoint(options.init)
    config = read_config(options.config) if init is None else init.config
    if options.dropout is not None:
        config = config.replace(dropout=options.dropout)
    corpus, validation = _texts(options)
    tokenizer = _tokenizer(work / TOKENIZER, corpus, config.vocab_size, init)
    if init is None:
        config = config.replace(vocab_size=tokenizer.get_vocab_size())
    for name, text in ((TRAINING_IDS, corpus), (VALIDATION_IDS, validation)):
        if not (work / name).exists():
            write_tokens(work / name, text.documents, tokenizer)
    training_ids = map_tokens(work / TRAINING_IDS, config.vocab_size)
    if len(training_ids) <= config.context_length:
        raise InputError(
            f"the corpus has {len(training_ids)} tokens and one window {config.context_length + 1}; "
            "give more text, or a configuration with a shorter context_length."
        )
    return TrainingData(
        config=config,
        tokenizer=TokenizerFiles(
            definition=tokenizer.to_str(), config=default_tokenizer_config(config.context_length)
        ),
        training=training_ids,
        validation=map_tokens(work / VALIDATION_IDS, config.vocab_size),
        validation_bytes=validation.byte_count,
        texts={"corpus": _describe(corpus), "validation": _describe(validation)},
        init=init,
    )


def _texts(options: TrainOptions) -> tuple[Corpus, Corpus]:
    corpus = read_corpus(options.corpus)
    if options.validation:
        return corpus, read_corpus(options.validation)
    return hold_out(corpus, options.held_out, options.seed)


def _tokenizer(path: Path, corpus: Corpus, vocab_size: int, init: Checkpoint | None) -> Tokenizer:
    if init is not None and init.tokenizer is None:
        raise InputError(
            f"{init.path} has no tokenizer, and text cannot be read without; start from one that has."
        )
    if not path.exists():
        known = init.tokenizer if init is not None else None
        text = known.definition if known else train_tokenizer(corpus.documents, vocab_size).to_str()
        replace_file(path, lambda file: file.write_text(text, encoding="utf-8"))
    return Tokenizer.from_str(path.read_text(encoding="utf-8"))


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
