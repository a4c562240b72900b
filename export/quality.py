"""How far a quantised bundle is from the float32 model, on text.

    texts = read_texts(source.tokenizer, vocab_size, options.calibration)
    quality = measure_quality(source, OnnxGPT.load(staging), texts, progress)
    check_max_kl(quality, options.max_kl, ways_nearer(options, block_size=128, calibrates=True))
    quality.summary()        # KL mean 0.0123 against fp32, perplexity x 1.0040 +- 0.0010, top-1 98.20 %

The base is the model as PyTorch computes it in float32: our own GPT a layer at a time, so that it needs the
memory of one layer; the user's own module as it stands. The bundle runs as it will for its users. (Of a
module whose weights were put into our GPT, it is our GPT: that the two agree is for the gate to say.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from gpt_onnx.errors import ParityError
from gpt_onnx.runtime import OnnxGPT
from gpt_onnx.runtime.quality import BundlePredictor, Comparison, Predict, Window, compare, windows
from gpt_onnx.runtime.quality.predictors import rows_at_once
from gpt_onnx.runtime.quality.windows import window_length

from .gate.foreign import logits_in
from .gate.reference import evaluating
from .gpt_source import Source
from .module_source import ModuleSource, in_float32
from .quality_texts import MEASURED, Texts
from .streamed import streamed_predictor
from .user_code import module_code
from .wording import either

Progress = Callable[[str, int, int], None]

STEP = "quality"
BASE = "fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """A quantised bundle beside the float32 model."""

    comparison: Comparison
    """The base is the float32 model."""
    window: int
    """Tokens of a window."""
    text: str
    """What it was measured on."""

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        about = {"against": BASE, "text": self.text, "window": self.window, "tokens_wanted": MEASURED}
        return about | self.comparison.to_json()

    def summary(self) -> str:
        """Return it as one line."""
        return self.comparison.summary(BASE)

    def notes(self) -> tuple[str, ...]:
        """Return what a reader of the figures must know."""
        if self.comparison.tokens >= MEASURED:
            return ()
        return (f"Quality was measured on {self.comparison.tokens:,} tokens, fewer than {MEASURED:,}.",)


def check_max_kl(quality: Quality, limit: float | None, ways: Sequence[str]) -> None:
    """Refuse a bundle that is farther from the float32 model than the user accepts.

    Args:
        quality: What was measured.
        limit: The user's; None: any.
        ways: Options that would bring it nearer; see ``ways_nearer``.

    Raises:
        ParityError: if it is.
    """
    found = quality.comparison.kl.mean.value
    if limit is not None and not found <= limit:
        raise ParityError(
            f"the mean KL divergence from {BASE} is {found:.4g} and --max-kl is {limit:g}; "
            f"choose {either([*ways, 'a larger --max-kl', 'fp32 without it'])}."
        )


def _module_predictor(module: nn.Module, vocab_size: int) -> Predict:
    """Return what asks a user's own module, a window at a time."""
    single, rows = in_float32(module), rows_at_once(vocab_size)

    def predict(window: Window) -> Iterator[NDArray[Any]]:
        with module_code("its predictions were measured"), evaluating(single):
            logits = logits_in(single(torch.from_numpy(window.ids)[None])).detach()
        for block in torch.split(logits.reshape(-1, logits.shape[-1])[-window.next_ids.size :], rows):
            yield block.numpy()

    return predict


def _last_alone(window: Window) -> Window:
    """Return the window of a model that predicts what follows a sequence and nothing before."""
    return replace(window, first=window.ids.size - 1, next_ids=window.next_ids[-1:], text_bytes=None)


def _base(source: Source, sequences: Sequence[Window], progress: Progress) -> Predict:
    if isinstance(source, ModuleSource):
        return _module_predictor(source.module, source.vocab_size)
    assert source.config is not None
    progress("fp32", 0, source.config.n_layer)
    return streamed_predictor(
        source.config, source.weight, sequences, lambda done, layers: progress("fp32", done, layers)
    )


def measure_quality(source: Source, engine: OnnxGPT, texts: Texts, progress: Progress) -> Quality:
    """Measure a bundle beside its source.

    Args:
        source: What the bundle was made of.
        engine: Of the bundle.
        texts: Of ``read_texts``.
        progress: Told about the layers of the float32 model, and then about the windows.

    Raises:
        ExportError: if the user's own module fails.
        BundleError: if the bundle's graph does.
    """
    trained = engine.bundle.manifest.model.context_length
    length = window_length(None, [engine.limit, trained])
    sequences = list(windows([texts.quality], length=length, prefix=texts.prefix))
    if isinstance(source, ModuleSource) and source.last_only:
        sequences = [_last_alone(window) for window in sequences]
    done = 0

    def told(window: Window) -> None:
        nonlocal done
        done += 1
        progress(STEP, done, len(sequences))

    base = _base(source, sequences, progress)
    progress(STEP, 0, len(sequences))
    found = compare(base, BundlePredictor(engine), sequences, told)
    return Quality(comparison=found, window=length, text=texts.name)
