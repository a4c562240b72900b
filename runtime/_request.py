"""What a generation is asked to do: the arguments of the engine, checked once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.errors import InputError

from ._checks import as_ids
from .decoder import Graphs
from .sampling import Sampler, Sampling

STOP, SLIDE = "stop", "slide"
Generators: TypeAlias = np.random.Generator | Sequence[np.random.Generator] | None
AllowedVocab: TypeAlias = int | NDArray[np.bool_] | None


class GenerateOptions(TypedDict, total=False):
    """The keyword arguments of ``OnnxGPT.generate`` and ``OnnxGPT.stream``; each may be left out."""

    stop_ids: Iterable[int]
    """Tokens that end a row with the reason "stop". Default: none."""
    generator: Generators
    """A random generator, of which each row gets a child (row i the i-th of ``generator.spawn(B)``), or one
    generator a row. Default: a fresh one."""
    allowed_vocab: AllowedVocab
    """Which ids may be chosen: those below a number, or a mask (V,). Default: all."""
    on_context_end: str
    """"stop" (the default), or "slide": when the window is full, go on with its last half. The window is
    ``OnnxGPT.limit``, or for "slide" without a limit the length that the model was trained on."""
    ignore_eos: bool
    """Whether the bundle's end-of-text tokens are tokens like any other. Default: False."""
    cancelled: Callable[[], bool] | None
    """Asked before each step; True ends all rows with the reason "cancelled"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """How to generate."""

    sampler: Sampler
    max_new_tokens: int
    eos_ids: Set[int]
    """Tokens that end a row with the reason "eos"."""
    stop_ids: Set[int]
    """Tokens that end it with "stop"."""
    window: int | None
    """Tokens that a row may hold; None: any number."""
    slide: bool
    """Whether a full window is halved; otherwise it ends the row with "context"."""
    cancelled: Callable[[], bool] | None


def _allowed(allowed_vocab: AllowedVocab, vocab_size: int) -> NDArray[np.bool_] | None:
    """Return the mask (V,) of the ids that may be chosen; None: all."""
    if allowed_vocab is None:
        return None
    if isinstance(allowed_vocab, int):
        return np.arange(vocab_size) < allowed_vocab
    allowed = np.asarray(allowed_vocab)
    if allowed.shape != (vocab_size,) or allowed.dtype != np.bool_:
        raise InputError(
            f"allowed_vocab has shape {allowed.shape}; it must be {vocab_size} booleans, or a number of ids."
        )
    return allowed


def make_request(
    graphs: Graphs,
    eos_ids: Iterable[int],
    max_new_tokens: int,
    sampling: Sampling,
    *,
    stop_ids: Iterable[int] = (),
    generator: Generators = None,
    allowed_vocab: AllowedVocab = None,
    on_context_end: str = STOP,
    ignore_eos: bool = False,
    cancelled: Callable[[], bool] | None = None,
) -> Request:
    """Return the checked request; ``generator`` is the rows' business and not looked at.

    Raises:
        InputError: if an option is out of range.
    """
    is_count = isinstance(max_new_tokens, int | np.integer) and not isinstance(max_new_tokens, bool)
    if not is_count or max_new_tokens < 0:
        raise InputError(f"max_new_tokens is {max_new_tokens!r}; it must be an integer of at least 0.")
    if on_context_end not in (STOP, SLIDE):
        raise InputError(f"on_context_end is {on_context_end!r}; it must be {STOP!r} or {SLIDE!r}.")
    model, slide = graphs.model, on_context_end == SLIDE
    return Request(
        sampler=Sampler(sampling=sampling, allowed=_allowed(allowed_vocab, model.vocab_size)),
        max_new_tokens=int(max_new_tokens),
        eos_ids=frozenset() if ignore_eos else frozenset(eos_ids),
        stop_ids=frozenset(as_ids(list(stop_ids), model.vocab_size, "stop_ids").tolist()),
        window=graphs.limit or (model.context_length if slide else None),
        slide=slide,
        cancelled=cancelled,
    )
