"""How large the numbers of a model's products become on text, before any of them is float16.

    check_activations(source, texts, 512, progress)

float16 ends at 65,504. What a product takes and gives, and so what a cache holds, is met in float32 on the
text, each number under the name of the part of the model that makes it; a peak above half of that is
refused, as other text may well reach twice as far.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gpt_onnx.errors import ExportError
from gpt_onnx.model import GPT, skeleton

from .gate.lending import Weights
from .gate.products import Products
from .gate.reference import evaluating
from .gate.streams import embedded, lent_layers
from .gpt_source import Source
from .module_source import ModuleSource, in_float32
from .quality_texts import Texts, calibration_sequences
from .user_code import module_code

Progress = Callable[[str, int, int], None]
STEP = "activations"
HALF_ENDS = 65_504.0
MARGIN = 2.0
"""How many times larger than on this text activations may become on another."""
HEAD = "the head"
ROWS = 256  # of logits that exist at once
TOKENS = 2048  # of short sequences that are computed at once


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest number of a part of a model."""

    name: str
    value: float


class _Peaks(Products):  # type: ignore[no-untyped-call]  # of PyTorch's __init_subclass__
    """Notes the largest number in and out of the products of each part."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[str, float] = {}
        self.names = [HEAD]
        """The part that is computing is the last."""

    def multiplied(self, left: Tensor, right: Tensor) -> Tensor:
        """See Products; a weight is looked at as well, which costs little."""
        out = torch.matmul(left, right)
        name = self.names[-1]
        for tensor in (left, right, out):
            peak = float(tensor.abs().max()) if tensor.numel() else 0.0
            before = self.found.get(name, 0.0)
            self.found[name] = peak if not peak <= before else before  # NaN is kept
        return out

    @contextmanager
    def naming(self, module: nn.Module) -> Iterator[None]:
        """Follow which part of a module computes."""
        with ExitStack() as stack:
            for name, part in module.named_modules():
                if name:
                    for handle in self._hooked(name, part):
                        stack.callback(handle.remove)
            yield

    def _hooked(self, name: str, part: nn.Module) -> Sequence[torch.utils.hooks.RemovableHandle]:
        enter = part.register_forward_pre_hook(lambda module, inputs: self.names.append(name))
        leave = part.register_forward_hook(lambda module, inputs, output: _popped(self.names))
        return enter, leave


def _popped(names: list[str]) -> None:
    names.pop()


def _batches(sequences: Sequence[NDArray[np.int64]]) -> list[Tensor]:
    """Put sequences of one length together, (B, S), of TOKENS tokens at most."""
    batches: list[Tensor] = []
    for size, same in itertools.groupby(sequences, key=len):
        stacked = torch.from_numpy(np.stack(list(same)))
        batches += torch.split(stacked, max(1, TOKENS // max(1, size)))
    return batches


def _of_gpt(
    peaks: _Peaks, source: Source, sequences: Sequence[NDArray[np.int64]], progress: Progress
) -> None:
    """Take the sequences through our own GPT, a layer's weights at a time."""
    config = source.config
    assert config is not None
    weights = Weights(skeleton(config), lambda name: torch.from_numpy(source.weight(name)))
    program: GPT = weights.program(torch.float32)
    batches = _batches(sequences)
    progress(STEP, 0, config.n_layer)
    with torch.no_grad(), peaks.naming(program), peaks:
        streams = [stream for (stream,) in embedded(weights, [program], batches)]
        for layer in lent_layers(weights, program):
            for stream in streams:
                stream.through(layer)
            progress(STEP, layer + 1, config.n_layer)
        with weights.lent("ln_f.", program):
            rows = [program.finish(stream.x).flatten(0, 1) for stream in streams]
        for block in torch.split(torch.cat(rows), ROWS):
            weights.head(program, block)


def _of_module(
    peaks: _Peaks, source: ModuleSource, sequences: Sequence[NDArray[np.int64]], progress: Progress
) -> None:
    """Take the sequences through a module of anybody's."""
    module = in_float32(source.module)
    with module_code("its activations were looked at"), evaluating(module), peaks.naming(module), peaks:
        for done, ids in enumerate(sequences):
            module(torch.from_numpy(ids)[None])
            progress(STEP, done + 1, len(sequences))


def peaks_of(source: Source, texts: Texts, length: int, progress: Progress) -> list[Peak]:
    """Return the largest number of each part, the largest first.

    Args:
        source: The model.
        texts: Whose calibration text is read.
        length: Tokens of a sequence.
        progress: Told of each layer, or sequence.

    Raises:
        ConfigError: if the text makes no sequence.
        ExportError: if the user's own module fails.
    """
    peaks, sequences = _Peaks(), calibration_sequences(texts, length)
    if isinstance(source, ModuleSource):
        _of_module(peaks, source, sequences, progress)
    else:
        _of_gpt(peaks, source, sequences, progress)
    found = [Peak(name, value) for name, value in peaks.found.items()]
    return sorted(found, key=lambda peak: (not np.isnan(peak.value), -peak.value, peak.name))


def check_activations(source: Source, texts: Texts, length: int, progress: Progress) -> Peak:
    """Refuse a model whose activations are too near to the end of float16; see ``peaks_of``.

    Returns:
        The largest.

    Raises:
        ExportError: naming the part and the number.
    """
    largest = peaks_of(source, texts, length, progress)[0]
    if not largest.value <= HALF_ENDS / MARGIN:
        raise ExportError(
            f"{largest.name} reaches {largest.value:,.0f} on {texts.name_of_calibration}, and fp16 is for "
            f"models that stay below {HALF_ENDS / MARGIN:,.0f}, half of where float16 ends; keep fp32, or "
            "choose int8 or int4, whose activations are float32."
        )
    return largest
