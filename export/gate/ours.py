"""Our own GPT as the reference: float64 beside float32, a layer at a time, whatever its size.

GptReference(gpt)                                          a model in memory
GptReference.of_weights(config, checkpoint.tensor)         weights on a disk, read when they are needed
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gpt_onnx.config import GPTConfig
from gpt_onnx.model import GPT, skeleton
from gpt_onnx.model.positions import with_float32_angles

from .cases import Ids
from .layered import Pass, run_layers
from .lending import Read, Weights
from .norms_in_turn import NormsInTurn
from .nudged import nudged_reading
from .original import BesideItsNumbers
from .reference import FLOAT32, PLAIN, Draft, Others, Units
from .rounding import NOTHING, Rounding
from .tolerance import FloatArray, RowErrors
from .truth import Truth, rows_at_once


class GptReference(BesideItsNumbers):
    """See the module.

    Args:
        gpt: The model.
        is_original: See Reference; a model in memory is the program itself.
    """

    name = "GPT"
    cost = FLOAT32
    dtype = "float64"
    causal = True
    shares_prefixes = True

    def __init__(self, gpt: GPT, *, is_original: bool = True) -> None:
        self.is_original = is_original
        self.padded_vocab_size: int | None = None
        self._use(Weights.of_gpt(gpt))

    @classmethod
    def of_weights(
        cls, config: GPTConfig, read: Read, *, is_original: bool, padded_vocab_size: int | None = None
    ) -> GptReference:
        """Take weights that are read one at a time.

        Args:
            config: What the model is made of.
            read: Reads one by its name in ``GPT.state_dict``.
            is_original: See Reference.
            padded_vocab_size: See Reference.
        """
        reference = cls.__new__(cls)
        reference.is_original, reference.padded_vocab_size = is_original, padded_vocab_size
        reference._use(Weights(skeleton(config), read))
        return reference

    def _use(self, weights: Weights, rounding: Rounding = NOTHING) -> None:
        self._weights, self._rounding = weights, rounding
        self._f32, self._f64 = weights.program(torch.float32), weights.program(torch.float64)

    def with_weights(self, others: Others) -> GptReference:
        """See Reference; weights are still read one at a time."""
        before = self._weights.read

        def read(name: str) -> Tensor:
            return others.read(name) if name in others.names else before(name)

        reference = GptReference.__new__(GptReference)
        reference.is_original, reference.padded_vocab_size = self.is_original, self.padded_vocab_size
        reference._use(Weights(self._weights.gpt, read), others.rounding)
        return reference

    def vocabulary(self, length: int) -> int:
        """See Reference."""
        return self._f64.config.vocab_size

    def compute_all(self, sequences: Sequence[Ids], units: Units = PLAIN) -> list[Truth]:
        """See Reference."""
        truths = self._compute(sequences, units)
        for stream in range(units.beside):
            with NormsInTurn():  # the program beside is gone before the next one is made
                truths = self._beside(stream)._raised(truths, units)
        return truths

    def _raised(self, truths: Sequence[Truth], units: Units) -> list[Truth]:
        """Return truths of another program, with errors no smaller than those of this one."""
        found = self._compute([truth.ids for truth in truths], units)
        return [truth.with_largest_errors(other) for truth, other in zip(truths, found, strict=True)]

    def compute(self, ids: Ids, units: Units = PLAIN) -> Truth:
        """Return the truth of one sequence."""
        return self.compute_all([ids], units)[0]

    def _beside(self, stream: int) -> GptReference:
        """Return a program beside this one."""
        reference = GptReference.__new__(GptReference)
        reference._use(Weights(self._f32, nudged_reading(self._weights.read, stream)), self._rounding)
        return reference

    def _compute(self, sequences: Sequence[Ids], units: Units) -> list[Truth]:
        single = with_float32_angles(self._f32) if units.float32_angles else self._f32
        rounding = self._rounding.exact if units.exact_products else self._rounding
        with rounding.during(self._f32):
            passes = run_layers(self._weights, (single, self._f64), sequences, rounding.cached)
            return [self._truth(ids, found) for ids, found in zip(sequences, passes, strict=True)]

    def _truth(self, ids: Ids, found: Pass) -> Truth:
        rows = rows_at_once(self._f64.config.vocab_size)
        blocks = zip(torch.split(found.single, rows), torch.split(found.double, rows), strict=True)
        with torch.no_grad(), self._weights.head_lent(self._f32):
            errors = [
                RowErrors.measure(
                    self._weights.head(self._f32, low).cpu().numpy(),
                    self._weights.head(self._f64, high).cpu().numpy(),
                )
                for low, high in blocks
            ]
        return Truth(
            ids=ids,
            first=0,
            hidden=found.double.cpu().numpy(),
            head=self._head,
            errors=RowErrors.join(errors),
            caches=tuple(found.caches),
        )

    def _head(self, hidden: FloatArray) -> FloatArray:
        device = self._weights.device
        with torch.no_grad():
            rows = torch.from_numpy(np.ascontiguousarray(hidden)).to(device)
            logits: FloatArray = self._weights.head(self._f64, rows).cpu().numpy()
        return logits

    def greedy(self, prompt: Ids, count: int, draft: Draft | None = None) -> Ids:
        """See Reference: each pass decides all tokens up to the first that was guessed wrongly."""
        limit = self._f64.config.position_limit
        room = count if limit is None else min(count, limit - len(prompt) + 1)
        tokens: Ids = ()
        while len(tokens) < room:
            guess = _guessed(draft, prompt + tokens, room - len(tokens) - 1)
            tokens += self._agreed(prompt + tokens, guess)
        return tokens

    def _agreed(self, ids: Ids, guess: Ids) -> Ids:
        """Return the guessed tokens that are the most likely ones, and the one that follows them."""
        truth = self.compute(ids + guess)
        best = [int(token) for token in truth.logits(slice(len(ids) - 1, None)).argmax(axis=1)]
        right = next((at for at, token in enumerate(guess) if token != best[at]), len(guess))
        return tuple(best[: right + 1])


def _guessed(draft: Draft | None, ids: Ids, count: int) -> Ids:
    """Ask for guesses; nothing where nobody guesses or one token is wanted alone."""
    if draft is None or count < 1:
        return ()
    return tuple(int(token) for token in draft(ids, count))[:count]
