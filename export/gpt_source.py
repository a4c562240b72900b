"""What a source is, and our own GPT as one.

A source can be traced, gives weights by name one at a time, and describes itself for the manifest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch._subclasses.fake_tensor import FakeTensorMode

from gpt_onnx.bundle import ModelInfo
from gpt_onnx.checkpoint import Checkpoint, TokenizerFiles
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import CheckpointError
from gpt_onnx.model import GPT, skeleton

from .attention import padded_head_size
from .gate.ours import GptReference
from .gate.reference import Reference
from .graphs import LONGEST_EXAMPLE, Graph, check_frozen_length, example_sizes, graphs_of
from .options import ExportOptions
from .targets import find_target, fitted, has_score_bias
from .trace import trace


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

    @property
    def config(self) -> GPTConfig | None:
        """Return the configuration; None for a module whose inner structure is not known."""
        ...

    @property
    def attention(self) -> str | None:
        """Return "traced" where attention is the module's own, "decomposed" where standard operators alone
        compute it; None where the target decides.
        """
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Return sentences that the user should read: what the bundle cannot do, and why."""
        ...

    @property
    def generation(self) -> Mapping[str, Any]:
        """Return what the model says about generation, in the words of generation_config.json."""
        ...

    @property
    def causal(self) -> bool:
        """Return whether a token's logits depend on nothing after it: then padding may follow."""
        ...

    def trace(self, options: ExportOptions, avoid: frozenset[int] = frozenset()) -> list[Traced]:
        """Trace the graphs that the options ask for; parameters keep the names of ``parameter_names``.

        ``avoid`` are sizes that the example must not have.
        """
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
    counts = {config.n_head, config.n_kv_head}
    counts |= {config.n_head + config.n_kv_head, config.n_head + 2 * config.n_kv_head}
    widths = {count * config.head_size for count in counts}
    parts = {config.n_embd // 2, config.rope_size // 2, config.head_size - config.rope_size}
    return numbers | counts | widths | parts | {2 * config.head_size}


def _for_the_trace(config: GPTConfig, options: ExportOptions) -> GPTConfig:
    """Let a short position table be longer while the graph is traced.

    The example must be longer than one token and have a length that the model has nowhere else; a table of
    one or two rows would leave no such length. The graph looks rows up, and knows nothing of their number.
    """
    limit = config.position_limit
    if limit is None or limit >= LONGEST_EXAMPLE or options.frozen("seq_len") is not None:
        return config
    return config.replace(context_length=LONGEST_EXAMPLE)


def _cut_table(model: ir.Model, config: GPTConfig) -> None:
    """Give the traced position table the rows that it has."""
    table = model.graph.initializers.get("gpt.wpe.weight")
    if table is not None:
        table.shape = ir.Shape((config.context_length, config.n_embd))


class GptSource:
    """Our own GPT: traced without its weights, which are read one at a time while the file is written."""

    causal = True

    def __init__(
        self,
        *,
        name: str,
        config: GPTConfig,
        read: Callable[[str], NDArray[Any]],
        reference: Callable[[], Reference],
        sha256: Callable[[], str],
        tokenizer: TokenizerFiles | None = None,
        generation: Mapping[str, Any] | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.name, self.config, self.tokenizer = name, config, tokenizer
        self.attention: str | None = "decomposed" if has_score_bias(config) else None
        self.generation: Mapping[str, Any] = generation or {}
        self.notes = notes
        self.sha256 = sha256
        self._read, self.reference = read, reference

    @classmethod
    def of_checkpoint(cls, checkpoint: Checkpoint) -> GptSource:
        """Take a checkpoint on the disk."""
        return cls(
            name=checkpoint.name,
            config=checkpoint.config,
            read=checkpoint.numpy,
            reference=lambda: GptReference.of_weights(
                checkpoint.config,
                checkpoint.tensor,
                is_original=checkpoint.is_original,
                padded_vocab_size=checkpoint.padded_vocab_size,
            ),
            sha256=lambda: checkpoint.sha256,
            tokenizer=checkpoint.tokenizer,
            generation=checkpoint.generation,
            notes=checkpoint.notes,
        )

    @classmethod
    def of_model(cls, gpt: GPT, tokenizer: TokenizerFiles | None = None) -> GptSource:
        """Take a GPT in memory."""
        state = gpt.state_dict()
        return cls(
            name="gpt",
            config=gpt.config,
            read=lambda name: finite_numpy(name, state[name]),
            reference=lambda: GptReference(gpt),
            sha256=lambda: hash_of_state(state, repr(sorted(gpt.config.to_dict().items()))),
            tokenizer=tokenizer,
        )

    def trace(self, options: ExportOptions, avoid: frozenset[int] = frozenset()) -> list[Traced]:
        """See Source."""
        check_frozen_length(options, self.config.position_limit)
        config = _for_the_trace(self.config, options)
        taken = sizes_of(self.config) | sizes_of(config) | avoid | options.frozen_sizes
        sizes = example_sizes(taken, config.position_limit, options.frozen("seq_len"))
        with FakeTensorMode():
            gpt = GPT(config).eval()
            graphs = graphs_of(gpt, options)
            traced = [(graph, trace(graph, sizes)) for graph in graphs]
        for _, model in traced:
            _cut_table(model, self.config)
        return [Traced(graph=graph, model=model, sizes=sizes) for graph, model in traced]

    def parameter_names(self) -> Mapping[str, str]:
        """See Source: every graph's module holds the GPT as ``gpt``."""
        return {f"gpt.{name}": name for name, _ in skeleton(self.config).named_parameters()}

    def weight(self, name: str) -> NDArray[Any]:
        """See Source."""
        return np.ascontiguousarray(self._read(name), dtype=np.float32)

    def model_info(self, options: ExportOptions) -> ModelInfo:
        """See Source."""
        config = self.config
        multiple = fitted(find_target(options.target), config).head_size_multiple
        return ModelInfo(
            vocab_size=config.vocab_size,
            context_length=config.context_length,
            position=config.position,
            position_limit=config.position_limit,
            n_layer=config.n_layer,
            n_kv_head=config.n_kv_head,
            head_size=config.head_size,
            cache_head_size=padded_head_size(config.head_size, multiple),
            parameters=skeleton(config).parameter_count(),
        )


def to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a tensor's values; floating point becomes float32."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy()


def finite_numpy(name: str, tensor: torch.Tensor) -> NDArray[Any]:
    """Return a weight's values.

    Raises:
        CheckpointError: if it holds NaN or infinity.
    """
    array = to_numpy(tensor)
    if wrong := array.size - int(np.count_nonzero(np.isfinite(array))):
        raise CheckpointError(
            f"{name} has NaN or infinity in {wrong} of {array.size} places; "
            "such weights compute nothing: go back to an earlier checkpoint."
        )
    return array


def hash_of_state(state: Mapping[str, torch.Tensor], description: str) -> str:
    """Hash weights by name, with a description of the program that uses them."""
    digest = hashlib.sha256(description.encode())
    for name in sorted(state):
        digest.update(f"{name} {tuple(state[name].shape)} {state[name].dtype}".encode())
        digest.update(np.ascontiguousarray(to_numpy(state[name])).data)
    return digest.hexdigest()
