"""From what the user named to a source: a checkpoint of any kind, FILE.py:NAME, a module, or nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

import torch
from torch import nn

from gpt_onnx.checkpoint import find_shipped, read_checkpoint
from gpt_onnx.checkpoint.questions import is_open
from gpt_onnx.checkpoint.reader import find_reader
from gpt_onnx.checkpoint.refusals import absent
from gpt_onnx.checkpoint.refusals import kinds as readable_kinds
from gpt_onnx.errors import CheckpointError, InputError
from gpt_onnx.model import GPT, skeleton

from .gpt_source import GptSource, Source
from .mapped_source import mapped_source, mapped_template
from .module_source import ModuleSource
from .options import ExportOptions
from .overrides import check_tokenizer, own_tokenizer
from .user_code import load_module, names_code, refuse_code_without_name

SourceLike = str | Path | nn.Module | None
"""What can be exported."""
CODE = "FILE.py:NAME (a torch.nn.Module, or a function that returns one)"


def kinds() -> str:
    """Return what can be exported, as the end of a sentence."""
    return readable_kinds(CODE)


def of_module(module: nn.Module, options: ExportOptions, name: str | None = None) -> Source:
    """Take a module in memory: as our GPT, with a cache, where it is one or a table of names makes it one.

    Args:
        module: The module.
        options: With a table of names, or without.
        name: What messages call it.
    """
    if not _is_our_gpt(module):
        if options.names is None:
            return ModuleSource(module, options)
        return mapped_source(module, options, name)
    _refuse_description(options)
    config = module.config
    return GptSource.of_model(module, own_tokenizer(options, config.context_length, config.vocab_size))


def _is_our_gpt(module: nn.Module) -> TypeGuard[GPT]:
    """Whether a module computes what GPT does: a subclass, or one with a part exchanged, may not."""
    if type(module) is not GPT:
        return False
    return _anatomy(skeleton(module.config)) == _anatomy(module)


def _anatomy(module: nn.Module) -> tuple[dict[str, type], dict[str, torch.Size]]:
    parts = {name: type(part) for name, part in module.named_modules()}
    return parts, {name: tensor.shape for name, tensor in module.state_dict().items()}


def _refuse_description(options: ExportOptions) -> None:
    """Refuse what describes a source that describes itself."""
    for name in ("config", "names"):
        if (value := getattr(options, name)) is not None:
            raise InputError(
                f"the source tells its own configuration and names; leave --{name} {value} away."
            )


def _found(source: str | Path | None) -> Path:
    if source is not None:
        refuse_code_without_name(str(source))
        if not str(source):
            raise InputError(f"the source is an empty name; name {kinds()}.")
        if not os.path.lexists(source):
            raise CheckpointError(f"{absent(Path(source))}; name {kinds()}.")
        return Path(source)
    shipped = find_shipped()
    if shipped is None:
        raise InputError(f"no source was named, and this is not a clone with its own model; name {kinds()}.")
    return shipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A source, and what it was recognised as."""

    source: Source
    kind: str
    """E.g. "nanoGPT checkpoint", or "torch.nn.Module (MyGPT)"."""
    is_original: bool
    """Whether it is the very program whose numbers count; False: it is our reading of another program's."""


def _of_code(named: str, options: ExportOptions) -> Found:
    module = load_module(named)
    found = of_module(module, options, named)
    found.name = Path(named.rpartition(":")[0]).stem
    return Found(source=found, kind=_module_kind(module), is_original=True)


def _module_kind(module: nn.Module) -> str:
    return f"torch.nn.Module ({type(module).__name__})"


def _of_path(source: str | Path | None, options: ExportOptions) -> Found:
    if source is not None and names_code(str(source)):
        return _of_code(str(source), options)
    checkpoint = read_checkpoint(
        _found(source), tokenizer=options.tokenizer, config=options.config, names=options.names
    )
    return Found(
        source=GptSource.of_checkpoint(checkpoint),
        kind=checkpoint.kind,
        is_original=checkpoint.is_original,
    )


def look_at(source: SourceLike, options: ExportOptions) -> Found:
    """Find out what a source is, and its kind; see ``resolve``."""
    if isinstance(source, nn.Module):
        found = Found(source=of_module(source, options), kind=_module_kind(source), is_original=True)
    elif isinstance(source, str | Path | None):
        found = _of_path(source, options)
    else:
        raise InputError(f"the source is a {type(source).__name__}; name {kinds()}.")
    check_tokenizer(found.source.tokenizer, found.source.model_info(options).vocab_size)
    return found


def resolve(source: SourceLike, options: ExportOptions) -> Source:
    """Find out what a source is.

    Args:
        source: A checkpoint, ``FILE.py:NAME``, a module in memory, or None for the model that ships.
        options: Where tokenizer and configuration may be overridden.

    Raises:
        InputError: if there is no source, or the runtime would refuse its tokenizer.
        CheckpointError: if it is a checkpoint that cannot be used.
        ExportError: if it is Python code that does not give a usable module.
    """
    return look_at(source, options).source


def _template(source: SourceLike, options: ExportOptions) -> str | None:
    """Return the questions of a source with the answers that there are; None where it tells all."""
    if isinstance(source, nn.Module):
        return mapped_template(source, options) if options.names is not None else None
    if source is not None and names_code(str(source)):
        if options.names is None:
            return None
        return mapped_template(load_module(str(source)), options, str(source))
    path = _found(source)
    reader = find_reader(path, options.reading)
    return reader.template(path, options.reading) if reader.template else None


def config_template(source: SourceLike, options: ExportOptions) -> str | None:
    """Return the text of a --config file for a source whose questions are not all answered; else None.

    Raises:
        CheckpointError, InputError: if the source cannot be understood.
        UnknownNamesError: if names of tensors are not known; its ``table`` is to be filled in.
        ConfigError: if an answer contradicts a tensor.
    """
    text = _template(source, options)
    return text if text is not None and is_open(text) else None
