"""What a generation is asked to do: the arguments of the engine, checked once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.errors import InputError

from ._arguments import as_flag, as_integer, check_names, shown
from ._checks import as_ids
from ._speculation import AUTO, MOST_GUESSED, OFF
from .decoder import Graphs
from .sampling import Sampler, Sampling

STOP, SLIDE = "stop", "slide"
Generators: TypeAlias = np.random.Generator | Sequence[np.random.Generator] | None
AllowedVocab: TypeAlias = int | Sequence[bool] | NDArray[np.bool_] | None


class GenerateOptions(TypedDict, total=False):
    """The keyword arguments of ``OnnxGPT.generate`` and ``OnnxGPT.stream``; each may be left out."""

    stop_ids: Iterable[int] | None
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
    speculate: int | str | None
    """Whether to guess tokens of a text that repeats itself, which costs fewer runs and leaves the tokens as
    they are but for near ties: "auto", where it pays; "off"; or a number, the most tokens of a guess, which
    then is always tried. Only a row that is alone is guessed. Default: "auto", and "off" where products round
    activations to int8: near ties are many there, and a seed would not give one text."""


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
    speculate: int | str
    """Most tokens of a guess, or AUTO or OFF."""

    def is_cancelled(self) -> bool:
        """Whether the caller wants no more tokens."""
        return self.cancelled is not None and self.cancelled()


def _allowed(allowed_vocab: AllowedVocab, vocab_size: int) -> NDArray[np.bool_] | None:
    """Return the mask (V,) of the ids that may be chosen; None: all."""
    if allowed_vocab is None:
        return None
    allowed = np.asarray(allowed_vocab) if isinstance(allowed_vocab, Sequence | np.ndarray) else None
    if allowed is None:
        return np.arange(vocab_size) < as_integer("allowed_vocab", allowed_vocab)
    if allowed.shape != (vocab_size,) or allowed.dtype != np.bool_:
        raise InputError(
            f"allowed_vocab has shape {allowed.shape}; it must be {vocab_size} booleans, or a number of ids."
        )
    return allowed


def _stop_ids(stop_ids: Iterable[int] | None, vocab_size: int) -> Set[int]:
    try:
        ids = None if isinstance(stop_ids, str | bytes) else list(() if stop_ids is None else stop_ids)
    except TypeError:
        ids = None
    if ids is None:
        raise InputError(f"stop_ids is {shown(stop_ids)}; it must be a list of token ids.")
    return frozenset(as_ids(ids, vocab_size, "stop_ids").tolist())


def _asked(cancelled: Callable[[], bool] | None) -> Callable[[], bool] | None:
    if cancelled is not None and not callable(cancelled):
        raise InputError(
            f"cancelled is {shown(cancelled)}; it must be a function that returns True or False."
        )
    return cancelled


def _speculate(speculate: int | str | None, graphs: Graphs) -> int | str:
    if speculate is None:
        return OFF if graphs.rounds_activations else AUTO
    if isinstance(speculate, str) and speculate in (AUTO, OFF):
        return speculate
    try:
        return as_integer("speculate", speculate, most=MOST_GUESSED)
    except InputError as exc:
        raise InputError(
            f"speculate is {shown(speculate)}; it must be {AUTO!r}, {OFF!r} or an integer from 0 to "
            f"{MOST_GUESSED}."
        ) from exc


def check_sampling(sampling: Sampling) -> Sampling:
    """Return ``sampling`` if it is a ``Sampling``.

    Raises:
        InputError: if it is anything else.
    """
    if not isinstance(sampling, Sampling):
        raise InputError(
            f"sampling is {shown(sampling)}; it must be a Sampling, such as Sampling(temperature=0)."
        )
    return sampling


def _slides(on_context_end: str) -> bool:
    if not isinstance(on_context_end, str) or on_context_end not in (STOP, SLIDE):
        raise InputError(f"on_context_end is {shown(on_context_end)}; it must be {STOP!r} or {SLIDE!r}.")
    return on_context_end == SLIDE


def make_request(
    graphs: Graphs, eos_ids: Iterable[int], max_new_tokens: int, sampling: Sampling, options: GenerateOptions
) -> Request:
    """Return the checked request; ``generator`` is the rows' business and not looked at.

    Raises:
        InputError: if an option is unknown or out of range.
    """
    check_names(options, GenerateOptions.__annotations__)
    model, slide = graphs.model, _slides(options.get("on_context_end", STOP))
    allowed = _allowed(options.get("allowed_vocab"), model.vocab_size)
    ignore_eos = as_flag("ignore_eos", options.get("ignore_eos", False))
    return Request(
        sampler=Sampler(sampling=check_sampling(sampling), allowed=allowed),
        max_new_tokens=as_integer("max_new_tokens", max_new_tokens),
        eos_ids=frozenset() if ignore_eos else frozenset(eos_ids),
        stop_ids=_stop_ids(options.get("stop_ids"), model.vocab_size),
        window=graphs.limit or (model.context_length if slide else None),
        slide=slide,
        cancelled=_asked(options.get("cancelled")),
        speculate=_speculate(options.get("speculate"), graphs),
    )
