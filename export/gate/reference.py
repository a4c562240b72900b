"""The original program, as the gate asks it: what it computes, and what it is.

GptReference(gpt)                      our own GPT (gpt_onnx.export.gate.ours)
ModuleReference(module)                any torch.nn.Module (gpt_onnx.export.gate.foreign)
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from .cases import Ids
from .nudged import Program
from .rounding import NOTHING, Rounding
from .truth import Truth

if TYPE_CHECKING:
    from .case import Case
    from .trial import Trial

Draft = Callable[[Ids, int], Sequence[int]]
"""Guesses the tokens after some ids, at most so many; what it says is never taken unseen."""


class Refused(Exception):  # noqa: N818  # not an error: the original program does not take this sequence
    """The original program itself raises on a sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """How it is measured what float32 costs."""

    beside: int = 0
    """As the largest error of this program and so many beside it; see gpt_onnx.export.gate.nudged."""
    float32_angles: bool = False
    """In a program that makes the angles of its positions in float32, as most do and our own does not."""
    exact_products: bool = False
    """In a program that rounds nothing to int8, though the bundle does."""


PLAIN = Units()
FLOAT32 = "float32"
"""What a right graph costs beside float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """Weights that take the place of a program's own."""

    names: frozenset[str]
    """The program's names of them."""
    read: Callable[[str], Tensor]
    """Reads one, in float32 and as the program has it."""
    rounding: Rounding = NOTHING
    """What is rounded besides, where units are measured."""


class Reference(Protocol):
    """The original program."""

    @property
    def name(self) -> str:
        """What it is, for the report: no path."""
        ...

    @property
    def cost(self) -> str:
        """What units measure, for the report: what a right graph may do that R64 does not."""
        ...

    @property
    def dtype(self) -> str:
        """In which precision R64 really is: "float64", or "float32" where the program cannot do better."""
        ...

    @property
    def is_original(self) -> bool:
        """Whether it is the very program that was trained, not our reading of what that program wrote."""
        ...

    @property
    def padded_vocab_size(self) -> int | None:
        """Tokens of its own head, where the last of them are padding that the graph has not."""
        ...

    @property
    def causal(self) -> bool:
        """Whether a token's logits depend on nothing after it."""
        ...

    @property
    def shares_prefixes(self) -> bool:
        """Whether one pass over a sequence stands for all of its prefixes: only where the code is known."""
        ...

    def with_weights(self, others: Others) -> Reference:
        """Return the same program with other weights in some places."""
        ...

    def vocabulary(self, length: int) -> int:
        """Return how many tokens it knows, seen on a sequence of some length if need be.

        Raises:
            Refused: if the program does not take such a sequence.
        """
        ...

    def compute_all(self, sequences: Sequence[Ids], units: Units = PLAIN) -> list[Truth]:
        """Return the truth for each sequence; what can be done for all at once is done once.

        Raises:
            Refused: if the program does not take one.
        """
        ...

    def greedy(self, prompt: Ids, count: int, draft: Draft | None = None) -> Ids:
        """Return the most likely tokens after a prompt, the lowest id on ties; fewer where positions end.

        Args:
            prompt: Ids.
            count: How many tokens.
            draft: Saves passes where it guesses right, and decides nothing.
        """
        ...

    def own_cases(self, trial: Trial) -> Iterable[Case]:
        """Return what is looked at beside the usual cases, because the reference is what it is."""
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
