"""How well the shipped model predicts a text, by position, beyond the length that it was trained on.

Windows of FACTOR x context_length tokens start every half context, so that a token is predicted once in
each of a window's 2 x FACTOR pieces; only tokens that are seen in all pieces count. What differs between the
pieces is then the position, and how much stands before, never the text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch.nn import functional as F

from gpt_onnx.checkpoint import load_model, read_checkpoint
from gpt_onnx.model import GPT

FACTOR = 4
PIECES = 2 * FACTOR
AT_ONCE = 2
TEXT = "validation.txt"
Losses = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionLosses:
    """Losses of the same tokens at growing positions."""

    context_length: int
    """Tokens that the model was trained on at once."""
    losses: Losses
    """In nats, (R, FACTOR x context_length): column p is the prediction of the token behind position p."""
    unigram: float
    """Perplexity of guessing by the frequencies of the text's own tokens, blind to what stands before."""
    weights: str
    """The start of the checkpoint's SHA-256."""

    def perplexity(self, start: int, stop: int) -> float:
        """Return the perplexity over positions [start, stop), all rows together."""
        return math.exp(self.losses[:, start:stop].mean())

    def quartiles(self, start: int, stop: int) -> tuple[float, float, float]:
        """Return the quartiles, over rows, of each row's perplexity over positions [start, stop)."""
        low, median, high = np.exp(np.percentile(self.losses[:, start:stop].mean(axis=1), [25, 50, 75]))
        return float(low), float(median), float(high)


def cut_windows(ids: NDArray[np.int64], length: int, stride: int) -> NDArray[np.int64]:
    """Return all whole windows (W, length + 1) of ids, one every stride; the last id is only predicted."""
    if len(ids) <= length:
        raise ValueError(f"the text has {len(ids)} tokens; one window needs {length + 1}")
    starts = range(0, len(ids) - length, stride)
    return np.stack([ids[start : start + length + 1] for start in starts])


def align(losses: Losses, pieces: int) -> Losses:
    """Bring losses (W, pieces x C) of windows that start every C tokens to (W - pieces + 1, pieces x C).

    A row of the result holds, in each of its pieces, the losses of one and the same C tokens: piece q comes
    from the window that started q x C tokens before them.
    """
    count, length = losses.shape
    if count < pieces:
        raise ValueError(
            f"the text gives {count} windows; {pieces} are needed for one token to be in each piece"
        )
    parts = losses.reshape(count, pieces, length // pieces)
    rows = range(pieces - 1, count)
    return np.stack([np.concatenate([parts[row - piece, piece] for piece in range(pieces)]) for row in rows])


def unigram_perplexity(ids: NDArray[np.int64]) -> float:
    """Return exp of the entropy of the ids' own frequencies."""
    counts = np.unique(ids, return_counts=True)[1]
    frequency = counts / counts.sum()
    return math.exp(-float((frequency * np.log(frequency)).sum()))


@torch.no_grad()
def window_losses(model: GPT, windows: NDArray[np.int64]) -> Losses:
    """Return the cross entropy in nats of each prediction, (W, length), of windows (W, length + 1)."""
    rows = []
    for start in range(0, len(windows), AT_ONCE):
        batch = torch.from_numpy(windows[start : start + AT_ONCE])
        logits, _ = model(batch[:, :-1])
        losses = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="none")
        rows.append(losses.view(len(batch), -1).double().numpy())
    return np.concatenate(rows)


def encode_text(folder: Path) -> NDArray[np.int64]:
    """Return the ids of the checkpoint's validation text."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    text = (folder / TEXT).read_text(encoding="utf-8")
    return np.array(tokenizer.encode(text, add_special_tokens=False).ids, np.int64)


def measure(folder: Path) -> PositionLosses:
    """Measure a checkpoint on its own validation text."""
    checkpoint = read_checkpoint(folder)
    context = checkpoint.config.context_length
    ids = encode_text(folder)
    windows = cut_windows(ids, FACTOR * context, context // 2)
    losses = window_losses(load_model(checkpoint), windows)
    return PositionLosses(
        context_length=context,
        losses=align(losses, PIECES),
        unigram=unigram_perplexity(ids),
        weights=checkpoint.sha256[:12],
    )


def verdict(ratio: float) -> str:
    """Say in words what a perplexity that is ``ratio`` times the trained one means."""
    for limit, words in VERDICTS:
        if ratio < limit:
            return words
    raise AssertionError(ratio)


VERDICTS: Sequence[tuple[float, str]] = (
    (0.98, "a little better"),
    (1.05, "as good"),
    (1.25, "a little worse"),
    (2.0, "clearly worse"),
    (5.0, "much worse"),
    (math.inf, "useless"),
)
