"""Figures over a stream of predictions, in memory that does not grow with the text.

    meter = ComparisonMeter()
    meter.add(base_logits, test_logits, next_ids)      # (S, V), (S, V), (S,); as often as there are blocks
    meter.result(text_bytes=1234).kl.mean

The formulas are those of llama.cpp's perplexity tool (tools/perplexity/perplexity.cpp, ``kl_divergence``),
and so are the names of the figures; see docs/quality.md. The error of ln(PPL_q / PPL_p), which that tool
writes as sqrt(Var q + Var p - 2 Cov(p, q)) of the mean negative log-likelihoods, is here that of the mean of
their differences: the same number, without the cancellation.
"""

from __future__ import annotations

import math

from gpt_onnx.errors import InputError

from ._moments import Moments
from ._quantiles import Quantiles
from ._rows import Ids, Logits, compare_rows, score_rows
from .records import QUANTILES, Comparison, Distribution, Estimate, Perplexity

_BASE, _TEST, _DIFFERENCE, _KL, _SAME, _SQUARE = range(6)


def _refuse_nothing(tokens: int) -> None:
    """Refuse to tell figures of no token.

    Raises:
        InputError: if there was none.
    """
    if not tokens:
        raise InputError("there is no token to predict; give a text of at least two tokens.")


class PerplexityMeter:
    """The perplexity of one model."""

    def __init__(self) -> None:
        self._moments = Moments(1)

    def add(self, logits: Logits, next_ids: Ids) -> None:
        """Take logits (S, V) and the tokens (S,) that follow.

        Raises:
            InputError: if shapes or ids do not fit, or a logit is not finite.
        """
        self._moments.add(score_rows(logits, next_ids).nll)

    def result(self, text_bytes: int | None = None) -> Perplexity:
        """Return what all blocks say; ``text_bytes`` of text were predicted.

        Raises:
            InputError: if there was no token.
        """
        moments = self._moments
        _refuse_nothing(moments.count)
        nll = Estimate(float(moments.mean[0]), moments.error(0))
        return Perplexity(tokens=moments.count, text_bytes=text_bytes, nll=nll)


class ComparisonMeter:
    """A model under test beside a base model."""

    def __init__(self) -> None:
        self._moments = Moments(6)
        self._divergences = Quantiles()

    def add(self, base: Logits, test: Logits, next_ids: Ids) -> None:
        """Take logits (S, V) of both models and the tokens (S,) that follow.

        Raises:
            InputError: if shapes or ids do not fit, or a logit is not finite.
        """
        rows = compare_rows(base, test, next_ids)
        difference = rows.test.nll - rows.base.nll
        self._moments.add(rows.base.nll, rows.test.nll, difference, rows.kl, rows.same_top, rows.change**2)
        self._divergences.add(rows.kl)

    def result(self, text_bytes: int | None = None) -> Comparison:
        """Return what all blocks say; ``text_bytes`` of text were predicted.

        Raises:
            InputError: if there was no token.
        """
        _refuse_nothing(self._moments.count)
        base, test = (
            Perplexity(tokens=self._moments.count, text_bytes=text_bytes, nll=self._estimate(index))
            for index in (_BASE, _TEST)
        )
        return Comparison(
            base=base,
            test=test,
            ln_ratio=self._estimate(_DIFFERENCE),
            kl=self._distribution(),
            same_top=self._estimate(_SAME),
            rms_change=self._rms(),
        )

    def _estimate(self, index: int) -> Estimate:
        return Estimate(float(self._moments.mean[index]), self._moments.error(index))

    def _distribution(self) -> Distribution:
        found = self._divergences
        quantiles = {name: found.at(fraction) for name, fraction in QUANTILES.items()}
        return Distribution(
            mean=self._estimate(_KL), min=float(found.least), max=float(found.largest), **quantiles
        )

    def _rms(self) -> Estimate:
        """Return the root of a mean square: its error is that of the mean over twice the root."""
        square = self._estimate(_SQUARE)
        root = math.sqrt(square.value)
        return Estimate(root, square.error / (2 * root) if root else 0.0)
