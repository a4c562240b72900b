"""Where a graph comes from: a checkpoint, a GPT in memory, or a module of anybody's.

A source can be traced, gives weights by name one at a time, and describes itself for the manifest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from gpt_onnx.bundle import ModelInfo
from gpt_onnx.checkpoint import Checkpoint, TokenizerFiles, find_shipped, load_model, read_checkpoint
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import InputError
from gpt_onnx.model import GPT

from .attention import padded_head_size
from .gate.reference import GptReference, Reference
from .graphs import Graph, example_sizes, graphs_of
from .options import ExportOptions
from .targets import find_target
from .trace import trace

KINDS = (
    "a checkpoint folder with config.json and model.safetensors, or FILE.py:NAME, a torch.nn.Module "
    "or a function that returns one"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A graph out of the trace, its promise, and the names of its dynamic dims with their example sizes."""

    graph: Graph
    model: ir.Model
    sizes: Mapping[str, int]


class Source(Protocol):
    """What the exporter needs to know of a model."""

    name: str
    tokenizer: TokenizerFiles | None
    config: GPTConfig | None
    """None for a module whose inner structure is not known."""
    attention: str | None
    """"traced" where attention is the module's own; None where the target decides."""

    def trace(self, options: ExportOptions) -> list[Traced]:
        """Trace the graphs that the options ask for; parameters keep the names of ``parameter_names``."""
        ...

    def parameter_names(self) -> Mapping[str, str]:
        """Return the graph's name of each parameter and the name by which ``weight`` knows it."""
        ...

    def weight(self, name: str) -> NDArray[Any]:
        """Read one weight as float32."""
        ...

    def model_info(self, options: ExportOptions) -> ModelInfo:
        """Describe the model for the manifest."""
        ...

    def reference(self) -> Reference:
        """Return what the gate compares with."""
        ...

    def sha256(self) -> str:
        """Return the hash of configuration, weights and tokenizer, whatever they are called."""
        ...


def sizes_of(config: GPTConfig) -> set[int]:
    """Return every number that a graph of this configuration may hold as a constant."""
    numbers = {value for value in config.to_dict().values() if type(value) is int}
    heads = config.n_head + 2 * config.n_kv_head
    return numbers | {config.qkv_size, heads, config.n_head * config.head_size, config.n_embd // 2}


def wrapped_name(graph: Graph, module: nn.Module, name: str) -> str:
    """Return the name that a parameter of ``module`` has in the traced graph's module around it."""
    prefix = next((prefix for prefix, child in graph.module.named_modules() if child is module), "")
    return f"{prefix}.{name}" if prefix else name


class GptSource:
    """Our own GPT: traced without its weights, which are read one at a time while the file is written."""

    attention = None

    def __init__(
        self,
        *,
        name: str,
        config: GPTConfig,
        read: Callable[[str], NDArray[Any]],
        load: Callable[[], GPT],
        sha256: Callable[[], str],
        tokenizer: TokenizerFiles | None = None,
    ) -> None:
        self.name, self.config, self.tokenizer = name, config, tokenizer
        self.sha256 = sha256
        self._read, self._load = read, load

    @classmethod
    def of_checkpoint(cls, checkpoint: Checkpoint) -> GptSource:
        """Take a checkpoint on the disk."""
        return cls(
            name=checkpoint.path.resolve().name,
            config=checkpoint.config,
            read=checkpoint.numpy,
            load=lambda: load_model(checkpoint),
            sha256=lambda: checkpoint.sha256,
            tokenizer=checkpoint.tokenizer,
        )

    @classmethod
    def of_model(cls, gpt: GPT, tokenizer: TokenizerFiles | None = None) -> GptSource:
        """Take a GPT in memory."""
        state = gpt.state_dict()
        return cls(
            name="gpt",
            config=gpt.config,
            read=lambda name: to_numpy(state[name]),
            load=lambda: gpt,
            sha256=lambda: hash_of_state(state, repr(sorted(gpt.config.to_dict().items()))),
            tokenizer=tokenizer,
        )

    def trace(self, options: ExportOptions) -> list[Traced]:
        """See Source."""
        sizes = example_sizes(sizes_of(self.config), self.config.position_limit)
        with FakeTensorMode():
            gpt = GPT(self.config).eval()
            graphs = graphs_of(gpt, options)
            traced = [(graph, trace(graph, sizes)) for graph in graphs]
        return [Traced(graph=graph, model=model, sizes=sizes) for graph, model in traced]

    def parameter_names(self) -> Mapping[str, str]:
        """See Source: every graph's module holds the GPT as ``gpt``."""
        with torch.device("meta"):
            return {f"gpt.{name}": name for name, _ in GPT(self.config).named_parameters()}

    def weight(self, name: str) -> NDArray[Any]:
        """See Source."""
        return np.ascontiguousarray(self._read(name), dtype=np.float32)

    def model_info(self, options: ExportOptions) -> ModelInfo:
        """See Source."""
        config, multiple = self.config, find_target(options.target).head_size_multiple
        with torch.device("meta"):
            parameters = GPT(config).parameter_count()
        return ModelInfo(
            vocab_size=config.vocab_size,
            context_length=config.context_length,
            position=config.position,
            position_limit=config.position_limit,
            n_layer=config.n_layer,
            n_kv_head=config.n_kv_head,
            head_size=config.head_size,
            cache_head_size=padded_head_size(config.head_size, multiple),
            parameters=parameters,
        )

    def reference(self) -> Reference:
        """See Source."""
        return GptReference(self._load())


def to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a tensor's values; floating point becomes float32."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy()


def hash_of_state(state: Mapping[str, torch.Tensor], description: str) -> str:
    """Hash weights by name, with a description of the program that uses them."""
    digest = hashlib.sha256(description.encode())
    for name in sorted(state):
        digest.update(f"{name} {tuple(state[name].shape)} {state[name].dtype}".encode())
        digest.update(np.ascontiguousarray(to_numpy(state[name])).data)
    return digest.hexdigest()


def resolve(source: str | Path | nn.Module | None, options: ExportOptions) -> Source:
    """Find out what a source is.

    Args:
        source: A checkpoint folder, ``FILE.py:NAME``, a module in memory, or None for the model that ships.
        options: Where tokenizer and configuration may be overridden.

    Raises:
        InputError: if there is no source.
        CheckpointError: if it is a checkpoint that cannot be used.
        ExportError: if it is Python code that does not give a usable module.
    """
    from .module_source import ModuleSource, load_module, names_code  # imports this module's helpers

    if isinstance(source, GPT):
        return GptSource.of_model(source, own_tokenizer(options, source.config.context_length))
    if isinstance(source, nn.Module):
        return ModuleSource(source, options)
    if source is not None and names_code(str(source)):
        return resolve_module(load_module(str(source)), str(source), options)
    return GptSource.of_checkpoint(read_checkpoint(_found(source), tokenizer=options.tokenizer))


def resolve_module(module: nn.Module, source: str, options: ExportOptions) -> Source:
    """Take a module that ``FILE.py:NAME`` gave, and name it after the file."""
    found = resolve(module, options)
    found.name = Path(source.rpartition(":")[0]).stem
    return found


def _found(source: str | Path | None) -> Path:
    if source is not None:
        return Path(source)
    shipped = find_shipped()
    if shipped is None:
        raise InputError(f"no source was named, and this is not a clone with a model of its own; name {KINDS}.")
    return shipped


def own_tokenizer(options: ExportOptions, context_length: int) -> TokenizerFiles | None:
    """Read the tokenizer that the options name for a source without one."""
    from gpt_onnx.checkpoint.tokenizer_files import read_tokenizer

    if options.tokenizer is None or str(options.tokenizer) == "none":
        return None
    found = read_tokenizer(Path(options.tokenizer), context_length)
    if found is None:
        raise InputError(f"{options.tokenizer} has neither tokenizer.json nor vocab.json with merges.txt.")
    return found


SourceLike = str | Path | nn.Module | None
GraphSequence = Sequence[Graph]
