"""The options of ``complete``, ``stream`` and ``generate``: what they are, and what they mean.

    gpt.complete("My fellow citizens,", temperature=0, stop=["."], seed=1)

An option that is left out, or None, is as the bundle says. Refused: an option that there is not, for a
misspelt one would be ignored in silence; and ``sampling`` beside one of its own fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, cast

import numpy as np

from gpt_onnx.errors import InputError

from ._arguments import as_flag, as_integer, check_names, shown
from .sampling import Sampling

SAMPLING = tuple(field.name for field in dataclasses.fields(Sampling))


class TextOptions(TypedDict, total=False):
    """The options of ``complete``, ``stream`` and ``generate``, all of which may be left out."""

    temperature: float | None
    """Divides the logits; 0 is greedy. This and the next four: None: as the bundle says; see ``Sampling``."""
    top_k: int | None
    """Keep the most probable tokens; 0 keeps all."""
    top_p: float | None
    """Keep the most probable tokens up to this sum of probabilities."""
    min_p: float | None
    """Keep tokens at least so many times as probable as the most probable."""
    repetition_penalty: float | None
    """Makes tokens that already stand in the text less likely; 1 is off."""
    sampling: Sampling | None
    """All five at once, instead of what the bundle says."""
    stop: Sequence[str] | None
    """Texts at which to stop; they are not part of the result."""
    seed: int | None
    """Seed of the random numbers; None: a fresh one."""
    ignore_eos: bool
    """Whether to go on after the end of a text."""
    on_context_end: str
    """What to do when the context is full: "stop", or "slide" and forget the beginning."""
    cancelled: Callable[[], bool] | None
    """Asked before each token; True ends what is on its way with the reason "cancelled"."""
    speculate: int | str | None
    """Whether to guess tokens of a text that repeats itself; see the engine's GenerateOptions."""


def chosen_sampling(options: TextOptions, default: Sampling) -> Sampling:
    """Return how tokens are chosen: ``sampling``, or the default with the fields that were given.

    Raises:
        InputError: if both are given, or a value is out of range.
    """
    values = cast("dict[str, Any]", options)
    given = {name: values[name] for name in SAMPLING if values.get(name) is not None}
    sampling = options.get("sampling")
    if sampling is None:
        return dataclasses.replace(default, **given)
    if not isinstance(sampling, Sampling):
        raise InputError(f"sampling is {shown(sampling)}; it must be a Sampling, or leave it out.")
    if given:
        raise InputError(f"sampling and {', '.join(given)} are both given; put {next(iter(given))} into it.")
    return sampling


def _stop(stop: Sequence[str] | None) -> tuple[str, ...]:
    texts = (stop,) if isinstance(stop, str) else () if stop is None else stop
    is_list = isinstance(texts, Sequence) and not isinstance(texts, bytes | bytearray)
    if not is_list or not all(isinstance(text, str) for text in texts):
        raise InputError(f"stop is {shown(stop)}; it must be a list of texts, or None.")
    if "" in texts:
        raise InputError("a stop string is empty and would stop before the first character; give some text.")
    return tuple(texts)


def _random(seed: int | None) -> np.random.Generator:
    return np.random.default_rng(None if seed is None else as_integer("seed", seed))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The options of one call, checked."""

    sampling: Sampling
    stop: tuple[str, ...]
    random: np.random.Generator
    """Of which each text gets a child."""
    ignore_eos: bool
    on_context_end: str
    cancelled: Callable[[], bool] | None
    speculate: int | str | None


def choose(options: TextOptions, default: Sampling) -> Choices:
    """Return what the options of one call mean; ``default`` is the bundle's sampling.

    Raises:
        InputError: if an option is unknown or cannot be used.
    """
    check_names(options, TextOptions.__annotations__)
    return Choices(
        sampling=chosen_sampling(options, default),
        stop=_stop(options.get("stop")),
        random=_random(options.get("seed")),
        ignore_eos=as_flag("ignore_eos", options.get("ignore_eos", False)),
        on_context_end=options.get("on_context_end", "stop"),
        cancelled=options.get("cancelled"),
        speculate=options.get("speculate"),
    )
