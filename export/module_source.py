"""A module of anybody's as the source: traced as it stands, into a graph input_ids -> logits.

It has no cache and its own attention; the gate compares the graph with that very module.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gpt_onnx.bundle import ModelInfo
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import ExportError

from .gate.cases import Ids
from .gate.foreign import ModuleReference
from .gate.reference import PLAIN, Reference, Units, evaluating
from .gate.truth import Truth
from .gpt_source import Traced, finite_numpy, hash_of_state
from .graphs import check_frozen_length, example_sizes, plain_graph
from .options import ExportOptions
from .overrides import own_tokenizer, read_config
from .probing import LONGEST_PROBE, Findings, LogitsOnly, named_context, probe
from .trace import trace
from .user_code import LeftError, module_code, told, user_code

PREFIX = "module."
NARROW = (torch.float16, torch.bfloat16)
LAST_ALONE = (
    "The module returns the logits of the last position alone, and so does the graph: "
    "it generates text, and gives no logits of earlier positions."
)
NOT_CAUSAL = (
    "The module is not causal: the logits of a token depend on what comes after it, so that padding changes "
    "them; give it rows of the same length."
)


class ModuleOfUser(ModuleReference):
    """The module as the gate runs it: its prints go to stderr, and it cannot end the process."""

    def compute(self, ids: Ids, units: Units = PLAIN) -> Truth:
        """See Reference."""
        try:
            with user_code():
                return super().compute(ids, units)
        except LeftError as exc:
            raise ExportError(f"the module ended its forward by {told(exc)}; let it return logits.") from exc


class ModuleSource:
    """Any torch.nn.Module; see Source.

    Raises:
        ExportError: if it is no eager module with weights, or does not map ids (B, S) to finite logits.
    """

    config: GPTConfig | None = None
    attention: str | None = "traced"
    generation: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, module: nn.Module, options: ExportOptions) -> None:
        self.name = snake_case(type(module).__name__)
        self.module = module
        described = None if options.config is None else read_config(options.config)
        with module_code("it was looked at"):
            refuse_compiled(module)
            self._wrapped = LogitsOnly(in_float32(module))
            self.context_length = described.context_length if described else named_context(module)
            found = self._probed(options)
            self._state = _tensors_by_name(module)
        self.vocab_size, self.last_only, self.causal = found.vocab_size, found.last_only, found.causal
        self.position_limit = found.position_limit
        self.tokenizer = own_tokenizer(options, self.context_length or LONGEST_PROBE, self.vocab_size)

    def _probed(self, options: ExportOptions) -> Findings:
        """Run the module, and see that it computes numbers.

        Raises:
            CheckpointError: if it does not, as its weights are not finite.
            ExportError: if it does not, though they are.
        """
        frozen, batch = options.frozen("seq_len"), options.frozen("batch_size") or 1
        with evaluating(self._wrapped):
            found = probe(self._wrapped, self.context_length, frozen, batch)
        if found.faults is not None:
            for name in self.parameter_names().values():
                self.weight(name)
            raise ExportError(
                f"the module's own logits are NaN or infinite at {found.faults} of its vocabulary; let it "
                "give finite ones, such as -1e4 where a token is ruled out."
            )
        return found

    @property
    def notes(self) -> tuple[str, ...]:
        """See Source."""
        if self.last_only:
            return (LAST_ALONE,)
        return () if self.causal else (NOT_CAUSAL,)

    def trace(self, options: ExportOptions, avoid: frozenset[int] = frozenset()) -> list[Traced]:
        """See Source."""
        check_frozen_length(options, self.position_limit)
        graph = plain_graph(self._wrapped, options, self.vocab_size, self.position_limit)
        if self.last_only:
            batch = graph.outputs["logits"][0]
            graph = dataclasses.replace(graph, outputs={"logits": (batch, 1, self.vocab_size)})
        taken = self._sizes() | avoid | options.frozen_sizes
        sizes = example_sizes(taken, self.position_limit, options.frozen("seq_len"))
        with evaluating(self._wrapped):
            model = trace(graph, sizes)
        _share_tied(model, self._wrapped)
        return [Traced(graph=graph, model=model, sizes=sizes)]

    def parameter_names(self) -> Mapping[str, str]:
        """See Source: a tied parameter may be in the graph by any of its names, and has one weight."""
        return {name: kept.removeprefix(PREFIX) for name, kept in _first_names(self._wrapped).items()}

    def weight(self, name: str) -> NDArray[Any]:
        """See Source."""
        return finite_numpy(name, self._wrapped.module.get_parameter(name))

    def model_info(self, options: ExportOptions) -> ModelInfo:
        """See Source: what a foreign module does not tell is 0."""
        return ModelInfo(
            vocab_size=self.vocab_size,
            context_length=self.context_length or self.position_limit,
            position="unknown",
            position_limit=self.position_limit,
            n_layer=0,
            n_kv_head=0,
            head_size=0,
            cache_head_size=0,
            parameters=sum(parameter.numel() for parameter in self._wrapped.parameters()),
        )

    def reference(self) -> Reference:
        """See Source."""
        with module_code("it was copied to float64"):
            return ModuleOfUser(self.module, name=self.name)

    def sha256(self) -> str:
        """See Source."""
        return hash_of_state(self._state, type(self.module).__name__)

    def _sizes(self) -> set[int]:
        """Return the sizes of all parameters and buffers, and every integer that a submodule holds."""
        tensors = _tensors(self._wrapped)
        numbers = {int(dim) for tensor in tensors for dim in tensor.shape}
        held = [value for child in self._wrapped.modules() for value in vars(child).values()]
        return numbers | {value for value in held if type(value) is int}


def _tensors(module: nn.Module) -> Iterable[Tensor]:
    return [*module.parameters(), *module.buffers()]


def _tensors_by_name(module: nn.Module) -> dict[str, Tensor]:
    return {key: value for key, value in module.state_dict().items() if isinstance(value, Tensor)}


def refuse_compiled(module: nn.Module) -> None:
    """Refuse what is no program any more that can be traced, or has no weights yet.

    Raises:
        ExportError: naming the part.
    """
    for name, part in module.named_modules():
        where = f"{type(part).__name__} {name}".rstrip()
        if isinstance(part, torch.jit.ScriptModule):
            raise ExportError(f"{where} is compiled by torch.jit; give the eager module it was made from.")
        if re.search(r"\bquantized\b", type(part).__module__):
            raise ExportError(f"{where} is quantized; give the module in floating point it was made from.")
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_meta:
            raise ExportError(
                f"{name} is on the meta device and has no values; load the weights before the export."
            )


def in_float32(module: nn.Module) -> nn.Module:
    """Return the module itself if it is float32 on the CPU, else such a copy.

    Half-precision weights are float32 exactly. Buffers of float64 keep it, unless the weights are float64.

    Raises:
        ExportError: if there are no weights.
    """
    dtypes = {parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()}
    if not dtypes:
        raise ExportError("the module has no parameters; a GPT with weights is needed.")
    if dtypes == {torch.float32} and all(tensor.device.type == "cpu" for tensor in _tensors(module)):
        return module
    copied = copy.deepcopy(module).to("cpu")
    if torch.float64 in dtypes:
        return copied.to(torch.float32)
    for child in copied.modules():
        for name, buffer in child.named_buffers(recurse=False):
            child._buffers[name] = _widened(buffer)
    for parameter in copied.parameters():
        parameter.data = _widened(parameter.data)
    return copied


def _widened(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in NARROW else tensor


def _first_names(module: nn.Module) -> dict[str, str]:
    """Return every name of every parameter with the first name of the same parameter."""
    first: dict[int, str] = {}
    named = module.named_parameters(remove_duplicate=False)
    return {name: first.setdefault(id(parameter), name) for name, parameter in named}


def _share_tied(model: ir.Model, wrapped: nn.Module) -> None:
    """Let parameters that are one tensor in the module be one initializer in the graph."""
    initializers = model.graph.initializers
    for name, kept in _first_names(wrapped).items():
        if kept != name and name in initializers and kept in initializers:
            ir.convenience.replace_all_uses_with(initializers[name], initializers[kept])
            del initializers[name]


def snake_case(name: str) -> str:
    """Return a class's name as one of a file."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
