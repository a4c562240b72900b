"""How well a model predicts a text, and how far one model is from another.

    from gpt_onnx.runtime.quality import evaluate
    found = evaluate("bundle-int4", "speech.txt", against="bundle")
    print(found.comparison.kl.mean, found.comparison.ratio, found.perplexity.bits_per_byte)

Text of any size is read, tokenised and computed in pieces. What the figures mean is in docs/quality.md.
Neither torch nor onnx is imported here.
"""

from __future__ import annotations

from .evaluate import Evaluation, compare, evaluate, measure
from .meter import ComparisonMeter, PerplexityMeter
from .predictors import BundlePredictor, Predict
from .records import Comparison, Distribution, Estimate, Perplexity
from .windows import Tokens, Window, windows

__all__ = [
    "BundlePredictor",
    "Comparison",
    "ComparisonMeter",
    "Distribution",
    "Estimate",
    "Evaluation",
    "Perplexity",
    "PerplexityMeter",
    "Predict",
    "Tokens",
    "Window",
    "compare",
    "evaluate",
    "measure",
    "windows",
]
