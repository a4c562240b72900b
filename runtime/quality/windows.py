"""From a stream of tokens to windows that a model computes: every token is predicted once.

    for window in windows(chunks, length=512):
        logits = model(window.ids)[window.first:]       # what follows is window.next_ids

Windows of ``length`` tokens overlap by half. The first window predicts all of its tokens; of every other one
the first half only gives context, and the second half is predicted. So all tokens but those of the first half
window are predicted with at least length / 2 tokens before them, as in llama.cpp's perplexity tool, which
scores the second half of windows that do not overlap: the same depths of context, and half the text unused.

Where a tokenizer puts tokens before every text (a Llama's <s>), each window begins with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpt_onnx.errors import InputError

Ids = NDArray[np.int64]

USUAL_LENGTH = 512
"""Tokens of a window where the model can take as many."""
LEAST_LENGTH = 2


@dataclass(frozen=True, slots=True)
class Tokens:
    """Some of the tokens of a text."""

    ids: Ids
    sizes: Ids | None
    """Bytes of the text that each stands for; None where there is no text."""

    def __len__(self) -> int:
        return self.ids.size

    def __getitem__(self, part: slice) -> Tokens:
        return Tokens(self.ids[part], None if self.sizes is None else self.sizes[part])

    def followed_by(self, other: Tokens) -> Tokens:
        """Return these and then those; both have sizes, or neither has."""
        ids = np.concatenate([self.ids, other.ids])
        if self.sizes is None or other.sizes is None:
            return Tokens(ids, None)
        return Tokens(ids, np.concatenate([self.sizes, other.sizes]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One sequence to compute."""

    ids: Ids
    """What the model sees, (S,)."""
    first: int
    """The first position whose prediction counts."""
    next_ids: Ids
    """The tokens that follow the positions from ``first`` on, (S - first,)."""
    text_bytes: int | None
    """Bytes of text that ``next_ids`` stand for."""


def window_length(asked: int | None, limits: Iterable[int | None]) -> int:
    """Return how long windows are.

    Args:
        asked: By the user; None: as long as is usual and the models can take.
        limits: Of each model; None for one without.

    Raises:
        InputError: if the user asked for more than the models can take, or for nothing.
    """
    most = min((limit for limit in limits if limit), default=None)
    length = min(USUAL_LENGTH, most or USUAL_LENGTH) if asked is None else asked
    if length < LEAST_LENGTH:
        raise InputError(f"windows of {length} tokens leave no context; at least {LEAST_LENGTH} are needed.")
    if most is not None and length > most:
        raise InputError(
            f"windows of {length} tokens are longer than the {most} that the model can take; ask for at most "
            "that."
        )
    return length


def at_most(chunks: Iterable[Tokens], count: int | None) -> Iterator[Tokens]:
    """Yield no more than the first ``count`` tokens; None: all."""
    left = count
    for chunk in chunks:
        yield chunk if left is None else chunk[:left]
        if left is not None:
            left -= len(chunk)
            if left <= 0:
                return


def _window(prefix: Ids, tokens: Tokens, old: int) -> Window:
    """Make a window of tokens, the last of which is only predicted; the first ``old`` ones were before."""
    ids = np.concatenate([prefix, tokens.ids[:-1]])
    new = tokens[old:]
    size = None if new.sizes is None else int(new.sizes.sum())
    return Window(ids=ids, first=ids.size - len(new), next_ids=new.ids, text_bytes=size)


def windows(
    chunks: Iterable[Tokens], *, length: int = USUAL_LENGTH, prefix: Sequence[int] = ()
) -> Iterator[Window]:
    """Yield the windows of a stream; no more of it is held than a window and a chunk.

    Args:
        chunks: The tokens, in pieces of any size.
        length: The longest sequence to compute, at least LEAST_LENGTH more than the prefix.
        prefix: Tokens that every window begins with.

    Raises:
        InputError: if the prefix leaves no room.
    """
    before = np.asarray(prefix, np.int64)
    size = length - before.size
    if size < LEAST_LENGTH:
        raise InputError(
            f"windows of {length} tokens have no room for text after the tokenizer's own {before.size}; "
            "ask for longer ones."
        )
    # Without a prefix nothing comes before the first token, so that it cannot be predicted.
    old, stride = 0 if before.size else 1, size - size // 2
    held: Tokens | None = None
    for chunk in chunks:
        held = chunk if held is None else held.followed_by(chunk)
        while len(held) > size:
            yield _window(before, held[: size + 1], old)
            held, old = held[stride:], size + 1 - stride
    if held is not None and len(held) > old:
        yield _window(before, held, old)
