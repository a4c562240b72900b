"""Bundles on text: perplexity of one, or one beside another, window by window.

    found = evaluate("bundle-int4", "speech.txt", against="bundle")
    found.comparison.kl.mean, found.perplexity.bits_per_byte

Logits exist a block of rows at a time, of one window of one model each: memory depends on the model alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from gpt_onnx.errors import InputError
from gpt_onnx.runtime.text import TextGPT, load

from .meter import ComparisonMeter, PerplexityMeter
from .predictors import BundlePredictor, Predict, in_step
from .records import Comparison, Perplexity
from .texts import TokenFile, open_tokens
from .windows import Window, at_most, window_length, windows

Told = Callable[[Window], None]
"""Told of each window that is done."""
Progress = Callable[[int, int | None], None]
"""Told how many tokens are done, and about how many there are if that can be known."""

TOKENIZER = "tokenizer.json"


def _nobody(window: Window) -> None:
    """Tell nobody."""


class _Bytes:
    """Counts bytes of text; there are none where one window does not know."""

    def __init__(self) -> None:
        self.count: int | None = 0

    def add(self, size: int | None) -> None:
        self.count = None if size is None or self.count is None else self.count + size


def measure(predict: Predict, sequences: Iterable[Window], told: Told = _nobody) -> Perplexity:
    """Return the perplexity of a model over windows.

    Raises:
        InputError: if there is no token, or logits are not finite.
    """
    meter, size = PerplexityMeter(), _Bytes()
    for window in sequences:
        done = 0
        for logits in predict(window):
            meter.add(logits, window.next_ids[done : done + len(logits)])
            done += len(logits)
        size.add(window.text_bytes)
        told(window)
    return meter.result(size.count)


def compare(base: Predict, test: Predict, sequences: Iterable[Window], told: Told = _nobody) -> Comparison:
    """Return how far a model under test is from a base model, over windows.

    Raises:
        InputError: if there is no token, or logits are not finite.
    """
    meter, size = ComparisonMeter(), _Bytes()
    for window in sequences:
        done = 0
        for one, other in in_step(base(window), test(window)):
            meter.add(one, other, window.next_ids[done : done + len(one)])
            done += len(one)
        size.add(window.text_bytes)
        told(window)
    return meter.result(size.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What a bundle makes of a text."""

    bundle: str
    against: str | None
    text: str
    window: int
    """Tokens of a window."""
    perplexity: Perplexity
    """Of the bundle."""
    comparison: Comparison | None
    """With ``against``, the base."""
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "bundle": self.bundle,
            "against": self.against,
            "text": self.text,
            "window": self.window,
            "perplexity": self.perplexity.to_json(),
            "comparison": None if self.comparison is None else self.comparison.to_json(),
            "notes": list(self.notes),
        }


def _check_vocabularies(test: TextGPT, base: TextGPT) -> None:
    """Refuse models whose predictions cannot be compared.

    Raises:
        InputError: if one has more tokens than the other.
    """
    sizes = [gpt.engine.vocab_size for gpt in (test, base)]
    if sizes[0] != sizes[1]:
        raise InputError(
            f"the bundles have vocabularies of {sizes[0]} and {sizes[1]} tokens; only predictions of the "
            "same tokens can be compared."
        )


def _tokenizer_hash(gpt: TextGPT) -> str | None:
    entry = gpt.engine.bundle.manifest.files.get(TOKENIZER)
    return None if entry is None else entry.sha256


def _tokenizer_notes(test: TextGPT, base: TextGPT | None) -> Iterator[str]:
    hashes = set() if base is None else {_tokenizer_hash(test), _tokenizer_hash(base)}
    if len(hashes) == 2 and None not in hashes:
        yield "the bundles have different tokenizers; the text was read with that of the first."


def _window_notes(window: int, gpts: Iterable[TextGPT], tokens: int) -> Iterator[str]:
    """Say what became of a window that the user asked for: beyond the training, or beyond the text."""
    for gpt in gpts:
        manifest = gpt.engine.bundle.manifest
        if (trained := manifest.model.context_length) and min(window, tokens) > trained:
            yield (
                f"windows of {window:,} tokens are longer than the {trained:,} that {manifest.name} was "
                "trained on; what it predicts beyond them may be worse."
            )
    if tokens < window:
        yield f"the text has {tokens:,} tokens, fewer than a window of {window:,}; it was one window."


def _told(progress: Progress | None, tokens: TokenFile, most: int | None) -> Told:
    """Turn windows that are done into tokens done of about so many."""
    if progress is None:
        return _nobody
    done, read = 0, 0

    def told(window: Window) -> None:
        nonlocal done, read
        done += window.next_ids.size
        read += (window.text_bytes or 0) if tokens.is_text else window.next_ids.size
        guess = None if tokens.size is None else max(done, round(done * tokens.size / max(read, 1)))
        progress(done, min((total for total in (guess, most) if total is not None), default=None))

    return told


def _limit(gpt: TextGPT) -> int | None:
    """Return the longest window that a bundle should see: what it was trained on, and no more than it can."""
    model = gpt.engine.bundle.manifest.model
    return min((size for size in (gpt.engine.limit, model.context_length) if size), default=None)


def _measured(
    test: TextGPT, base: TextGPT | None, sequences: Iterable[Window], told: Told
) -> tuple[Perplexity, Comparison | None]:
    if base is None:
        return measure(BundlePredictor(test.engine), sequences, told), None
    comparison = compare(BundlePredictor(base.engine), BundlePredictor(test.engine), sequences, told)
    return comparison.test, comparison


def evaluate(
    bundle: str | Path,
    text: str | Path | BinaryIO,
    *,
    against: str | Path | None = None,
    window: int | None = None,
    max_tokens: int | None = None,
    provider: str = "auto",
    threads: int | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Measure a bundle on a text.

    Args:
        bundle: Its folder.
        text: A file of UTF-8 text or of token ids (.npy), or a stream of text; of any size.
        against: Another bundle of the same vocabulary, the base of the comparison.
        window: Tokens of a window, no more than the models can compute; None: 512, or as many as they were
            trained on. Of a text with fewer tokens it is one window.
        max_tokens: Read no more of the text.
        provider: As for ``load``.
        threads: As for ``load``.
        progress: Told how far it is.

    Raises:
        InputError: if the text cannot be used or is too short, or the vocabularies differ.
        BundleError: if a bundle is damaged.
        ProviderError: if the provider is not to be had.
    """
    test = load(bundle, provider, threads)
    base = None if against is None else load(against, provider, threads)
    if base is not None:
        _check_vocabularies(test, base)
    gpts = [gpt for gpt in (test, base) if gpt is not None]
    limits = [gpt.engine.limit if window else _limit(gpt) for gpt in gpts]
    length = window_length(window, limits)
    tokenizer = test.tokenizer or (None if base is None else base.tokenizer)
    prefix = () if tokenizer is None else tokenizer.prefix
    with open_tokens(text, tokenizer, test.engine.vocab_size) as tokens:
        before = prefix if tokens.is_text else ()
        sequences = windows(at_most(tokens.chunks, max_tokens), length=length, prefix=before)
        found, comparison = _measured(test, base, sequences, _told(progress, tokens, max_tokens))
    read = len(before) + found.tokens + (not before)  # without a token before it the first is not predicted
    notes = [*_tokenizer_notes(test, base), *(_window_notes(window, gpts, read) if window else ())]
    return Evaluation(
        bundle=Path(bundle).name,
        against=None if against is None else Path(against).name,
        text=tokens.name,
        window=length,
        perplexity=found,
        comparison=comparison,
        notes=tuple(notes),
    )
