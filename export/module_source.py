"""A module of anybody's as the source: traced as it stands, into a graph input_ids -> logits.

``FILE.py:NAME`` names a torch.nn.Module or a function that returns one. Importing the file runs the user's own
code; nothing else in the toolkit runs code that a file brings.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gpt_onnx.bundle import ModelInfo
from gpt_onnx.config import SYNONYMS
from gpt_onnx.errors import ExportError, InputError

from .gate.foreign import ModuleReference, logits_in
from .gate.reference import Reference
from .graphs import check_frozen_length, example_sizes, plain_graph
from .options import ExportOptions
from .source import Traced, hash_of_state, own_tokenizer, to_numpy
from .trace import trace

LONGEST_PROBE = 4096  # tokens: a module that takes so many is taken to have no limit
PREFIX = "module."


def names_code(source: str) -> bool:
    """Whether a source has the form FILE.py:NAME."""
    return re.fullmatch(r".+\.py:[A-Za-z_][A-Za-z0-9_]*", source) is not None


def load_module(source: str) -> nn.Module:
    """Import FILE.py and return the module that NAME is or makes.

    Raises:
        InputError: if there is no such file or name.
        ExportError: if the file cannot be run, or NAME gives something else.
    """
    file, _, name = source.rpartition(":")
    if not Path(file).is_file():
        raise InputError(f"{file} does not exist; FILE.py:NAME needs a file of Python code.")
    found = getattr(_imported(Path(file)), name, None)
    if found is None:
        raise InputError(f"{file} has no {name}; name a torch.nn.Module or a function that returns one.")
    made = found if isinstance(found, nn.Module) else _called(found, source)
    if not isinstance(made, nn.Module):
        raise ExportError(f"{source} gave a {type(made).__name__}; a torch.nn.Module is needed.")
    return made


def _imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_gpt_onnx_source_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickling look the module up there
    with _importable(path.resolve().parent):
        try:
            spec.loader.exec_module(module)
        except Exception as exc:
            raise ExportError(f"{path} could not be run: {type(exc).__name__}: {exc}.") from exc
    return module


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let the file import its neighbours, as ``python FILE.py`` would."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _called(found: Any, source: str) -> Any:
    if not callable(found):
        return found
    try:
        return found()
    except Exception as exc:
        raise ExportError(f"{source}() raised {type(exc).__name__}: {exc}.") from exc


class LogitsOnly(nn.Module):
    """The module reduced to input_ids -> logits (B, S, V), or (B, 1, V) where it gives the last position alone."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return the logits, with a dim for positions."""
        logits = logits_in(self.module(input_ids))
        return logits if logits.dim() == 3 else logits.unsqueeze(1)


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Set evaluation mode, and restore every submodule's own mode afterwards."""
    modes = {child: child.training for child in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for child, mode in modes.items():
            child.training = mode


class ModuleSource:
    """Any torch.nn.Module: no cache, its own attention, gated against that very module.

    Raises:
        ExportError: if it has no parameters, or does not map ids (B, S) to logits.
    """

    config = None
    attention = "traced"

    def __init__(self, module: nn.Module, options: ExportOptions) -> None:
        self.name = _snake_case(type(module).__name__)
        self.module = module
        self._wrapped = LogitsOnly(in_float32(module))
        with evaluating(self._wrapped):
            self.vocab_size, self.last_only = _describe(self._wrapped)
            self.context_length = _named_context(module)
            self.position_limit = _limit(self._wrapped, self.context_length)
        self.tokenizer = own_tokenizer(options, self.context_length or LONGEST_PROBE)

    def trace(self, options: ExportOptions) -> list[Traced]:
        """See Source."""
        check_frozen_length(options, self.position_limit)
        graph = plain_graph(self._wrapped, options, self.vocab_size, self.position_limit)
        if self.last_only:
            graph = dataclasses.replace(graph, outputs={"logits": (graph.outputs["logits"][0], 1, self.vocab_size)})
        sizes = example_sizes(self._sizes(), self.position_limit)
        with evaluating(self._wrapped):
            model = trace(graph, sizes)
        _share_tied(model, self._wrapped)
        return [Traced(graph=graph, model=model, sizes=sizes)]

    def parameter_names(self) -> Mapping[str, str]:
        """See Source."""
        return {name: name.removeprefix(PREFIX) for name, _ in self._wrapped.named_parameters()}

    def weight(self, name: str) -> NDArray[Any]:
        """See Source."""
        return to_numpy(self._wrapped.module.get_parameter(name))

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
        return ModuleReference(self.module, name=self.name)

    def sha256(self) -> str:
        """See Source."""
        return hash_of_state(self.module.state_dict(), type(self.module).__name__)

    def _sizes(self) -> set[int]:
        """Return the sizes of all parameters and buffers, and of what they are commonly cut into."""
        tensors = [*self._wrapped.parameters(), *self._wrapped.buffers()]
        numbers = {int(dim) for tensor in tensors for dim in tensor.shape}
        whole = {value for child in self._wrapped.modules() for value in vars(child).values() if type(value) is int}
        return numbers | whole


def in_float32(module: nn.Module) -> nn.Module:
    """Return the module itself if it is float32, else a float32 copy, which represents it exactly."""
    dtypes = {parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()}
    if not dtypes:
        raise ExportError("the module has no parameters; a GPT with weights is needed.")
    return module if dtypes == {torch.float32} else copy.deepcopy(module).to(torch.float32)


def _logits(wrapped: LogitsOnly, length: int) -> Tensor:
    result = wrapped(torch.zeros((2, length), dtype=torch.int64))
    if not isinstance(result, Tensor) or result.dim() != 3 or result.shape[0] != 2:
        raise ExportError(
            f"the module made logits of the shape {tuple(result.shape)} from ids of (2, {length}); "
            f"(2, {length}, vocab_size) was expected."
        )
    return result


def _describe(wrapped: LogitsOnly) -> tuple[int, bool]:
    """Return the vocabulary's size and whether only the last position's logits come out."""
    try:
        logits = _logits(wrapped, 2)
    except ExportError:
        raise
    except Exception as exc:
        raise ExportError(
            f"the module cannot compute input_ids of shape (2, 2): {type(exc).__name__}: {exc}; "
            "its forward must take int64 ids (B, S)."
        ) from exc
    return logits.shape[2], logits.shape[1] == 1


def _named_context(module: nn.Module) -> int | None:
    """Return the context length that the module or its config names, by any of the usual names."""
    names = ("context_length", *SYNONYMS["context_length"], "max_len", "max_length")
    for holder in (module, getattr(module, "config", None), getattr(module, "cfg", None)):
        for name in names:
            value = holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
            if type(value) is int and value > 1:
                return value
    return None


def _runs(wrapped: LogitsOnly, length: int) -> bool:
    try:
        _logits(wrapped, length)
    except Exception:  # a module may raise anything to say that a sequence is too long
        return False
    return True


def _limit(wrapped: LogitsOnly, context_length: int | None) -> int | None:
    """Return the longest sequence that the module computes; None where no limit was found."""
    runs = functools.partial(_runs, wrapped)
    if context_length is not None and runs(context_length) and not runs(context_length + 1):
        return context_length
    works = 2
    while works < LONGEST_PROBE and runs(works * 2):
        works *= 2
    return None if works >= LONGEST_PROBE else _bisect(runs, works, works * 2)


def _bisect(runs: Callable[[int], bool], works: int, fails: int) -> int:
    """Return the largest length that runs, between one that does and one that does not."""
    while fails - works > 1:
        middle = (works + fails) // 2
        works, fails = (middle, fails) if runs(middle) else (works, middle)
    return works


def _share_tied(model: ir.Model, wrapped: nn.Module) -> None:
    """Let parameters that are one tensor in the module be one initializer in the graph."""
    first: dict[int, str] = {}
    for name, parameter in wrapped.named_parameters(remove_duplicate=False):
        kept = first.setdefault(id(parameter), name)
        initializers = model.graph.initializers
        if kept != name and name in initializers and kept in initializers:
            ir.convenience.replace_all_uses_with(initializers[name], initializers[kept])
            del initializers[name]


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
