"""Figures for people are true at any size, and so are the tables of quality."""

from __future__ import annotations

import io
import json
import math

import numpy as np
import pytest
from rich.console import Console

from gpt_onnx._figures import decimals, exponential, significant
from gpt_onnx.cli._quality_table import comparison_table, perplexity_table
from gpt_onnx.runtime.quality import Comparison, ComparisonMeter


def of_logits(base: float, test: float, rows: int = 3) -> Comparison:
    """A base model whose right token leads the other by so many nats, beside one where it leads by others."""
    ids = np.zeros(rows, np.int64)
    leads = [np.array([[lead, 0]] * rows, np.float32) for lead in (base, test)]
    meter = ComparisonMeter()
    meter.add(leads[0], leads[1], ids)
    return meter.result(text_bytes=10)


def shown(found: Comparison) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(perplexity_table({"test": found.test, "base": found.base}))
    console.print(comparison_table(found, "fp32"))
    file = console.file
    assert isinstance(file, io.StringIO)
    return " ".join(file.getvalue().split())


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0.0, "0.0000"),
        (-0.5, "-0.5000"),
        (1234.5678, "1,234.5678"),
        (0.00006, "0.0001"),
        (0.00004, "4e-05"),
        (3.2e-9, "3.2e-09"),
        (1e12, "1e+12"),
        (math.inf, "inf"),
        (math.nan, "unknown"),
    ],
)
def test_decimals_show_something_of_every_number(number: float, said: str) -> None:
    assert decimals(number, 4) == said


def test_an_error_that_is_not_known_is_said_to_be_so() -> None:
    assert (significant(math.nan), significant(0.01234)) == ("unknown", "0.012")
    assert exponential(0.0, math.nan) == "1.0000 +- unknown"


@pytest.mark.parametrize(
    ("logarithm", "said"),
    [
        (math.log(1.25), "1.2500 +- 0.0125"),
        (-30.0, "9.36e-14 +- 9.36e-16"),
        (-2000.0, "e^(-2,000.0 +- 0.01)"),
        (2000.0, "e^(2,000.0 +- 0.01)"),
    ],
)
def test_a_number_beyond_float64_is_told_by_its_logarithm(logarithm: float, said: str) -> None:
    assert exponential(logarithm, 0.01) == said


@pytest.mark.parametrize(("base", "test", "said"), [(-3e4, 9, "e^(-30,"), (9, -3e4, "e^(30,")])
def test_a_ratio_that_overflows_is_neither_nothing_nor_infinite(base: float, test: float, said: str) -> None:
    found = of_logits(base, test)
    text = shown(found)
    assert f"perplexity ratio {said}" in text
    assert f"perplexity x {said}" in found.summary("fp32")
    assert "0.0000 +- 0.0000 KL" not in text
    assert not {"inf", "nan", "unknown"} & set(text.split())
    values = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert values["ratio"] == {"value": None, "error": None}
    assert values["ln_ratio"]["value"] == pytest.approx(math.copysign(30_000, -test + base), rel=1e-3)


def test_one_token_has_figures_and_no_errors() -> None:
    found = of_logits(1, 2, rows=1)
    text = shown(found)
    assert f"perplexity ratio {found.ratio.value:.4f} +- unknown" in text
    assert "nan" not in text


def test_what_is_usual_is_told_as_it_was() -> None:
    found = of_logits(1.0, 1.1)
    assert f"perplexity ratio {found.ratio.value:.4f} +- 0.0000" in shown(found)
    assert found.to_json()["ratio"]["value"] == found.ratio.value
