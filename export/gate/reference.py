"""What the original program says: float64 logits, keys and values, and what float32 costs there.

    Reference.compute(ids) -> Truth        one sequence, no cache, no padding
    GptReference(gpt)                      our own GPT
    ModuleReference(module)                any torch.nn.Module (gpt_onnx.export.gate.foreign)

A Truth answers for any of its positions, so one pass over a long sequence serves all of its prefixes where
the program is known to be causal (Oracle).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from gpt_onnx.model import GPT
from gpt_onnx.model.attention import KeyValue, SdpaAttention

from .cases import Ids
from .nudged import Program, nudged
from .tolerance import AnyFloats, FloatArray, Ratio, RowErrors, Unit, ratio_of, ratio_of_blocks, worst

BLOCK = 256  # rows of logits that exist in float64 at once

Head = Callable[[FloatArray], FloatArray]


class Refused(Exception):  # noqa: N818  # not an error: the original program does not take this sequence
    """The original program itself raises on a sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheTruth:
    """Keys or values of one layer: (S, K, D), positions first."""

    r64: FloatArray
    errors: RowErrors

    def ratio(self, found: AnyFloats) -> Ratio:
        """Compare (K, S, D) as the graph gives them, or the first positions of them."""
        length = found.shape[1]
        return ratio_of(found.swapaxes(0, 1), self.r64[:length], self.errors.unit(slice(length)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What the reference computes for one sequence."""

    ids: Ids
    first: int
    """Position of the first row of logits: 0, or the last position where only that one is computed."""
    hidden: FloatArray
    """What ``head`` turns into logits, one row a position."""
    head: Head
    errors: RowErrors
    """Of the logits, one row a position from ``first``."""
    caches: tuple[CacheTruth, ...] = ()
    """Keys and values of each layer in turn; empty for programs without a cache."""

    def _rows(self, positions: slice | Sequence[int]) -> slice | list[int]:
        if isinstance(positions, slice):
            start, stop, _ = positions.indices(len(self.ids))
            return slice(start - self.first, stop - self.first)
        return [position - self.first for position in positions]

    def logits(self, positions: slice | Sequence[int] = slice(None)) -> FloatArray:
        """Return float64 logits (n, V) at some positions."""
        return self.head(self.hidden[self._rows(positions)])

    def unit(self, positions: slice | Sequence[int] = slice(None)) -> Unit:
        """Return what float32 costs there."""
        return self.errors.unit(self._rows(positions))

    def ratio(self, found: AnyFloats, start: int | None = None) -> Ratio:
        """Compare logits (n, V) of the positions from ``start`` (default: the first that has logits)."""
        start = self.first if start is None else start
        stop = start + len(found)
        blocks = (
            (found[low - start : low - start + BLOCK], self.logits(slice(low, min(low + BLOCK, stop))))
            for low in range(start, stop, BLOCK)
        )
        return ratio_of_blocks(blocks, self.unit(slice(start, stop)))

    def cache_ratio(self, layers: Sequence[tuple[AnyFloats, AnyFloats]], row: int) -> Ratio:
        """Compare one row of all keys and values that a decoder returned, each by its own unit."""
        found = [part[row] for pair in layers for part in pair]
        if len(found) != len(self.caches):
            raise ValueError(
                f"the decoder has {len(found)} keys and values; {len(self.caches)} were expected."
            )
        return worst(
            cache.ratio(part[:, : len(self.ids)]) for cache, part in zip(self.caches, found, strict=True)
        )

    def with_largest_errors(self, others: Iterable[Truth]) -> Truth:
        """Return the same, each unit the largest of its own and those of programs beside this one."""
        found = [[t.errors, *(cache.errors for cache in t.caches)] for t in (self, *others)]
        logits, *caches = (RowErrors.largest(errors) for errors in zip(*found, strict=True))
        pairs = zip(self.caches, caches, strict=True)
        return replace(
            self, errors=logits, caches=tuple(replace(cache, errors=errors) for cache, errors in pairs)
        )

    def prefix(self, length: int) -> Truth:
        """Return the same for the first tokens alone: exact for a causal program."""
        caches = tuple(replace(c, r64=c.r64[:length], errors=c.errors.prefix(length)) for c in self.caches)
        return replace(
            self,
            ids=self.ids[:length],
            hidden=self.hidden[:length],
            errors=self.errors.prefix(length),
            caches=caches,
        )


class Reference(Protocol):
    """The original program."""

    @property
    def name(self) -> str:
        """What it is, for the report: no path."""
        ...

    @property
    def dtype(self) -> str:
        """In which precision R64 really is: "float64", or "float32" where the program cannot do better."""
        ...

    @property
    def causal(self) -> bool:
        """Whether a token's logits depend on nothing after it."""
        ...

    @property
    def shares_prefixes(self) -> bool:
        """Whether one pass over a sequence stands for all of its prefixes: only where the code is known."""
        ...

    def compute(self, ids: Ids) -> Truth:
        """Return the truth for one sequence.

        Raises:
            Refused: if the program does not take it.
        """
        ...

    def compute_careful(self, ids: Ids) -> Truth:
        """Return the same, its units the largest of what float32 costs here and in programs beside this one.

        Raises:
            Refused: if the program does not take it.
        """
        ...

    def greedy(self, prompt: Ids, count: int) -> Ids:
        """Return the most likely tokens after a prompt, the lowest id on ties; fewer where positions end."""
        ...


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Compute without dropout and without gradients; each part's training mode is restored."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training


def in_dtype(module: Program, dtype: torch.dtype) -> Program:
    """Return the module itself where all that floats is of that dtype, else a copy that is."""
    tensors = [*module.parameters(), *module.buffers()]
    if all(tensor.dtype == dtype for tensor in tensors if tensor.is_floating_point()):
        return module
    return copy.deepcopy(module).to(dtype)


def _positions_first(part: Tensor) -> AnyFloats:
    """Turn (1, K, S, D) into (S, K, D)."""
    array: AnyFloats = part[0].transpose(0, 1).cpu().numpy()
    return array


class GptReference:
    """Our own GPT in float64 beside itself in float32."""

    name = "GPT"
    dtype = "float64"
    causal = True
    shares_prefixes = True

    def __init__(self, gpt: GPT) -> None:
        self._f32, self._f64 = in_dtype(gpt, torch.float32), in_dtype(gpt, torch.float64)

    @staticmethod
    def _hidden(gpt: GPT, ids: Ids) -> tuple[Tensor, list[KeyValue]]:
        """Return what the head sees, (S, n_embd), and the cache: GPT.forward without its last step."""
        x = gpt.embed(torch.tensor([ids], dtype=torch.int64, device=gpt.wte.weight.device))
        presents = []
        for block in gpt.h:
            x, present = block(x, SdpaAttention())
            presents.append(present)
        return gpt.ln_f(x)[0], presents

    def compute(self, ids: Ids) -> Truth:
        """See Reference."""
        with evaluating(self._f32), evaluating(self._f64):
            hidden32, presents32 = self._hidden(self._f32, ids)
            hidden64, presents64 = self._hidden(self._f64, ids)
            errors = [
                RowErrors.measure(self._f32.head(low).cpu().numpy(), self._f64.head(high).cpu().numpy())
                for low, high in zip(torch.split(hidden32, BLOCK), torch.split(hidden64, BLOCK), strict=True)
            ]
        caches = []
        for pair32, pair64 in zip(presents32, presents64, strict=True):
            for part32, part64 in zip(pair32, pair64, strict=True):
                r64 = _positions_first(part64).astype(np.float64, copy=False)
                caches.append(CacheTruth(r64=r64, errors=RowErrors.measure(_positions_first(part32), r64)))
        return Truth(
            ids=ids,
            first=0,
            hidden=hidden64.cpu().numpy(),
            head=self._head,
            errors=RowErrors.join(errors),
            caches=tuple(caches),
        )

    def compute_careful(self, ids: Ids) -> Truth:
        """See Reference."""
        beside = (GptReference(gpt).compute(ids) for gpt in nudged(self._f32))
        return self.compute(ids).with_largest_errors(beside)

    def _head(self, hidden: FloatArray) -> FloatArray:
        with torch.no_grad():
            rows = torch.from_numpy(np.ascontiguousarray(hidden)).to(self._f64.wte.weight.device)
            logits: FloatArray = self._f64.head(rows).cpu().numpy()
        return logits

    def greedy(self, prompt: Ids, count: int) -> Ids:
        """See Reference."""
        limit = self._f64.config.position_limit
        room = count if limit is None else min(count, limit - len(prompt) + 1)
        new = torch.tensor([prompt], dtype=torch.int64, device=self._f64.wte.weight.device)
        tokens: list[int] = []
        past: list[KeyValue] | None = None
        with evaluating(self._f64):
            while len(tokens) < room:
                logits, past = self._f64(new, past_key_values=past)
                tokens.append(int(np.argmax(logits[0, -1].cpu().numpy())))
                new = torch.full_like(new[:, :1], tokens[-1])
        return tuple(tokens)
