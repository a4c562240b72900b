"""What was measured: perplexity of a model, and how far a model is from the one that it was made of.

Every estimate has its standard error. ``to_json`` gives plain numbers; what is no number (a perplexity beyond
float64, or so near 0 that float64 has nothing but 0; the standard error of a single value) is null there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gpt_onnx._figures import exp, exponential

QUANTILES = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99_9": 0.999}
"""Names of the quantiles in a Distribution."""


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its standard error."""

    value: float
    error: float

    def exp(self) -> Estimate:
        """Return the estimate of exp of it: the error times the derivative."""
        value = _exp(self.value)
        return Estimate(value, value * self.error if self.error else 0.0)

    def exp_to_json(self) -> dict[str, float | None]:
        """Return what ``to_json`` does of exp of it; both null where float64 has no such value."""
        return self.exp().to_json() if exp(self.value) is not None else {"value": None, "error": None}

    def to_json(self) -> dict[str, float | None]:
        """Return ``{"value", "error"}``."""
        return {"value": _number(self.value), "error": _number(self.error)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Perplexity:
    """How well one model predicts a text."""

    tokens: int
    """Tokens that were predicted."""
    text_bytes: int | None
    """Bytes of the text that those tokens stand for; None where there is no text."""
    nll: Estimate
    """-ln of the right token's probability, in the mean: nats a token."""

    @property
    def perplexity(self) -> Estimate:
        """Return exp of it."""
        return self.nll.exp()

    @property
    def bits_per_byte(self) -> float | None:
        """Return what a byte of the text costs, whatever the tokens are; None where there is no text."""
        return self.nll.value * self.tokens / math.log(2) / self.text_bytes if self.text_bytes else None

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "tokens": self.tokens,
            "text_bytes": self.text_bytes,
            "nll": self.nll.to_json(),
            "perplexity": self.nll.exp_to_json(),
            "bits_per_byte": self.bits_per_byte,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """The Kullback-Leibler divergences of all tokens, in nats."""

    mean: Estimate
    median: float
    p90: float
    p95: float
    p99: float
    p99_9: float
    max: float
    min: float

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        names = ("min", *QUANTILES, "max")
        return {"mean": self.mean.to_json()} | {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """How far a model under test is from a base model, on the same tokens."""

    base: Perplexity
    test: Perplexity
    ln_ratio: Estimate
    """ln of the perplexity of the one under test over that of the base; the error is that of the paired
    differences, far less than that of either perplexity."""
    kl: Distribution
    """KL(base || test) at each token."""
    same_top: Estimate
    """Share of the tokens where both find the same one the most likely."""
    rms_change: Estimate
    """Root mean square of the change in the right token's probability."""

    @property
    def tokens(self) -> int:
        """Return how many tokens were compared."""
        return self.test.tokens

    @property
    def ratio(self) -> Estimate:
        """Return the perplexity of the one under test over that of the base."""
        return self.ln_ratio.exp()

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {
            "tokens": self.tokens,
            "base": self.base.to_json(),
            "test": self.test.to_json(),
            "ln_ratio": self.ln_ratio.to_json(),
            "ratio": self.ln_ratio.exp_to_json(),
            "kl": self.kl.to_json(),
            "same_top": self.same_top.to_json(),
            "rms_change": self.rms_change.to_json(),
        }

    def summary(self, base: str) -> str:
        """Return one line; ``base`` is what the base model is called."""
        ratio = exponential(self.ln_ratio.value, self.ln_ratio.error)
        return (
            f"KL mean {self.kl.mean.value:.3g} against {base}, perplexity x {ratio}, "
            f"top-1 {100 * self.same_top.value:.2f} %"
        )
