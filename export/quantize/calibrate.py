"""The weights of our own GPT quantised on text, one layer after another, so that each sees what it will see.

    grids = {"h.0.attn.c_attn.weight": Grid(bits=4, block_size=128), ...}
    quantized = calibrated(checkpoint.config, checkpoint.tensor, grids, sequences)

A tied table comes first: its Hessian is that of the head's inputs in the model as it is, which takes a pass
of its own. Then hidden states of all sequences go through the layers in float32, and inside each layer in the
order of the data (STAGES): the inputs of a projection are computed by everything before it as it is after
quantisation, their Hessian H = sum x x^T is collected, its weights are quantised. A head of its own comes
last.

In memory at once: the hidden states, one layer's weights, a Hessian or two, and the results.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import ConfigError, InputError
from gpt_onnx.export.gate.lending import Read, Weights
from gpt_onnx.export.gate.streams import Stream, embedded, lent_layers
from gpt_onnx.model import skeleton

from .grid import Grid
from .quantized import Quantized
from .quantizers import quantize

STAGES = (("attn.c_attn",), ("attn.c_proj",), ("mlp.c_gate", "mlp.c_fc"), ("mlp.c_proj",))
"""Projections of a layer in the order of the data; those of one stage have the same inputs."""
TABLE = "wte.weight"
HEAD = "lm_head.weight"
LOOKED_UP = 1.0
"""What is added to the diagonal of a tied table's Hessian, as a share of its mean: its rows are looked up as
well, where each number counts alike. Of 0, 0.1, 1 and 10 it is the best (docs/quantisation.md)."""

Progress = Callable[[str, int, int], None]
"""Is told the name of a weight that was quantised, how many are done, and how many there are."""


def _silent(name: str, done: int, total: int) -> None:
    """Tell nobody."""


class _Enough(Exception):  # noqa: N818 - it is no error
    """The inputs are known; what follows in the layer need not be computed."""


class _Moments:
    """Collects the sum of x x^T over the inputs x of a linear layer."""

    def __init__(self, linear: nn.Module) -> None:
        self.total: Tensor | None = None
        self._handle: RemovableHandle = linear.register_forward_pre_hook(self._see)

    def add(self, x: Tensor) -> None:
        """Add inputs (..., K)."""
        rows = x.flatten(0, -2)
        product = rows.T @ rows
        self.total = product if self.total is None else self.total.add_(product)

    def _see(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.add(inputs[0])
        raise _Enough

    def close(self) -> Tensor:
        """Stop collecting and return the sum, (K, K)."""
        self._handle.remove()
        assert self.total is not None, "there is a sequence, and its layer was computed"
        return self.total


class _Walk:
    """One calibration; see the module."""

    def __init__(
        self,
        config: GPTConfig,
        read: Read,
        grids: Mapping[str, Grid],
        sequences: Sequence[Sequence[int]],
        quantizer: str,
        progress: Progress,
    ) -> None:
        self.config, self.grids, self.sequences = config, grids, sequences
        self.quantizer, self.progress = quantizer, progress
        self.done: dict[str, Quantized] = {}
        self._read = read
        self.weights = Weights(skeleton(config), self._current)
        self.program = self.weights.program(torch.float32)

    def _current(self, name: str) -> Tensor:
        """Read a weight as it is now: quantised, once it has been."""
        if name in self.done:
            return torch.from_numpy(self.done[name].dequantized())
        return self._read(name)

    def quantise(self, name: str, hessian: Tensor | None) -> None:
        """Quantise one weight, if it is to be."""
        if name not in self.grids or name in self.done:
            return
        weight = self._read(name).detach().float().cpu().numpy()
        moments = None if hessian is None else hessian.cpu().numpy()
        self.done[name] = quantize(self.quantizer, weight, self.grids[name], moments, called=name)
        self.progress(name, len(self.done), len(self.grids))

    def embedded(self) -> list[Stream]:
        """Return every sequence before the first layer."""
        batches = [torch.tensor([ids]) for ids in self.sequences]
        return [stream for (stream,) in embedded(self.weights, [self.program], batches)]

    def layers(self, streams: list[Stream]) -> Iterator[int]:
        """Lend one layer after another, and take all sequences through it after its turn."""
        for layer in lent_layers(self.weights, self.program):
            yield layer
            for stream in streams:
                stream.through(layer)

    def layer(self, layer: int, streams: list[Stream]) -> None:
        """Quantise the weights of one layer, which has been lent."""
        block = self.program.h[layer]
        for stage in STAGES:
            names = {part: f"h.{layer}.{part}.weight" for part in stage}
            wanted = [part for part, name in names.items() if name in self.grids]
            if not wanted:
                continue
            moments = _Moments(block.get_submodule(wanted[0]))
            for stream in streams:
                with contextlib.suppress(_Enough):
                    stream.through(layer)
            hessian = moments.close()
            for part in wanted:
                self.quantise(names[part], hessian)
                linear = block.get_submodule(part)
                device = stream.x.device
                linear.weight = nn.Parameter(self._current(names[part]).to(device), requires_grad=False)

    def ends(self, streams: list[Stream]) -> Tensor:
        """Return the Hessian of what the head sees."""
        with self.weights.lent("ln_f.", self.program):
            rows = (self.program.finish(stream.x).flatten(0, -2) for stream in streams)
            first = next(rows)
            total = first.T @ first
            for x in rows:
                total += x.T @ x
        return total

    def table(self) -> None:
        """Quantise a tied table, before anything else."""
        streams = self.embedded()
        for _ in self.layers(streams):
            pass
        hessian = self.ends(streams)
        hessian.diagonal().add_(LOOKED_UP * hessian.diagonal().mean())
        self.quantise(TABLE, hessian)

    def run(self) -> Mapping[str, Quantized]:
        """Quantise all."""
        tied = self.config.tie_embeddings
        if TABLE in self.grids:
            self.table() if tied else self.quantise(TABLE, None)
        if set(self.grids) <= set(self.done):
            return self.done
        streams = self.embedded()
        for layer in self.layers(streams):
            self.layer(layer, streams)
        if HEAD in self.grids:
            self.quantise(HEAD, self.ends(streams))
        return self.done


def _check(config: GPTConfig, grids: Mapping[str, Grid], sequences: Sequence[Sequence[int]]) -> None:
    layers = range(config.n_layer)
    known = {f"h.{layer}.{part}.weight" for layer in layers for stage in STAGES for part in stage}
    if unknown := sorted(set(grids) - known - {TABLE, HEAD}):
        raise ConfigError(f"{unknown[0]} is no weight that text can calibrate; leave it out.")
    ids = np.concatenate([np.asarray(sequence, np.int64) for sequence in [*sequences, []]])
    if not ids.size or not all(len(sequence) for sequence in sequences):
        raise InputError("calibration has no tokens; give it some thousands of them, in sequences.")
    if outside := [int(i) for i in (ids.min(), ids.max()) if not 0 <= i < config.vocab_size]:
        raise InputError(
            f"calibration has the token id {outside[0]}; the model's are 0 to {config.vocab_size - 1}: "
            "take its own tokenizer."
        )


def calibrated(
    config: GPTConfig,
    read: Read,
    grids: Mapping[str, Grid],
    sequences: Sequence[Sequence[int]],
    progress: Progress = _silent,
    *,
    quantizer: str = "gptq",
) -> Mapping[str, Quantized]:
    """Quantise weights of a model on text.

    Args:
        config: The model's.
        read: Reads a weight by its name in ``GPT.state_dict``.
        grids: What is to be quantised, and how finely: projections of layers, the token table, the head.
        sequences: Token ids, each sequence on its own, none longer than the model takes.
        progress: Is told of each weight that is done.
        quantizer: One of QUANTIZERS; without a Hessian where a table is only looked up.

    Returns:
        Each name of ``grids`` and its weight.

    Raises:
        ConfigError: if a name is none of the model's, or a weight does not fill blocks.
        InputError: if the sequences are empty, too long, or of another vocabulary.
        CheckpointError: if a weight or the model's hidden states hold NaN or infinity.
    """
    _check(config, grids, sequences)
    with torch.no_grad():
        return _Walk(config, read, grids, sequences, quantizer, progress).run()
