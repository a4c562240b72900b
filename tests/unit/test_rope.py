"""Rotary frequencies and their scaling, against transformers and against formulas of their own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from gpt_onnx.errors import ConfigError
from gpt_onnx.rope import RopeScaling, frequencies

LLAMA3: dict[str, Any] = {
    "kind": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_context_length": 512,
}


def of_transformers(size: int, theta: float, values: dict[str, Any]) -> np.ndarray:
    config = LlamaConfig(
        hidden_size=2 * size,
        num_attention_heads=2,
        max_position_embeddings=4096,
        rope_parameters={"rope_theta": theta, **values},
    )
    found, factor = ROPE_INIT_FUNCTIONS[values["rope_type"]](config, "cpu")
    assert factor == 1.0
    return np.asarray(found.double().numpy())


@pytest.mark.parametrize("size", [2, 8, 64])
@pytest.mark.parametrize("theta", [10000.0, 500000.0])
def test_unscaled_frequencies_are_powers_of_theta(size: int, theta: float) -> None:
    expected = np.power(theta, -2 * np.arange(size // 2) / size)
    np.testing.assert_allclose(frequencies(size, theta), expected, rtol=1e-15)


@pytest.mark.parametrize("factor", [1.5, 4.0])
def test_linear_scaling_is_that_of_transformers(factor: float) -> None:
    expected = of_transformers(16, 10000.0, {"rope_type": "linear", "factor": factor})
    found = frequencies(16, 10000.0, RopeScaling(kind="linear", factor=factor))
    np.testing.assert_allclose(found, expected, rtol=3e-7)


@pytest.mark.parametrize(("size", "original"), [(16, 512), (64, 8192), (64, 64)])
def test_llama3_scaling_is_that_of_transformers(size: int, original: int) -> None:
    """Both bounds, and frequencies between them, are met."""
    scaling = RopeScaling(**(LLAMA3 | {"original_context_length": original}))
    values = {"rope_type": "llama3"} | {name: LLAMA3[name] for name in LLAMA3 if name != "kind"}
    values["original_max_position_embeddings"] = original
    del values["original_context_length"]
    expected = of_transformers(size, 500000.0, values)
    np.testing.assert_allclose(frequencies(size, 500000.0, scaling), expected, rtol=2e-6)


def test_llama3_scaling_keeps_fast_pairs_and_divides_slow_ones() -> None:
    plain = np.array(frequencies(64, 500000.0))
    scaled = np.array(frequencies(64, 500000.0, RopeScaling(**LLAMA3)))
    wavelength = 2 * math.pi / plain
    fast, slow = wavelength < 512 / 4, wavelength > 512
    assert fast.any()
    assert slow.any()
    assert (~fast & ~slow).any()
    np.testing.assert_allclose(scaled[fast], plain[fast], rtol=1e-15)
    np.testing.assert_allclose(scaled[slow], plain[slow] / 8, rtol=1e-15)
    between = scaled[~fast & ~slow] / plain[~fast & ~slow]
    assert ((between > 1 / 8) & (between < 1)).all()


@pytest.mark.parametrize("factor", [2.0, 10.0])
def test_ntk_scaling_keeps_the_fastest_pair_and_divides_the_slowest(factor: float) -> None:
    plain = frequencies(64, 10000.0)
    scaled = frequencies(64, 10000.0, RopeScaling(kind="ntk", factor=factor))
    assert scaled[0] == plain[0] == 1.0
    assert scaled[-1] == pytest.approx(plain[-1] / factor, rel=1e-12)
    expected = np.power(10000.0 * factor ** (64 / 62), -2 * np.arange(32) / 64)
    np.testing.assert_allclose(scaled, expected, rtol=1e-14)


def test_the_names_of_hugging_face_are_read() -> None:
    theirs = {"rope_type": "llama3", "original_max_position_embeddings": 512}
    theirs |= {name: LLAMA3[name] for name in ("factor", "low_freq_factor", "high_freq_factor")}
    assert RopeScaling.from_dict(theirs) == RopeScaling(**LLAMA3)
    assert RopeScaling.from_dict({"type": "linear", "factor": 2}) == RopeScaling(kind="linear", factor=2)
    assert RopeScaling.from_dict({"rope_type": "default"}) is None


@pytest.mark.parametrize(
    ("values", "match"),
    [
        (
            {"kind": "dynamic", "factor": 2.0},
            "kind 'dynamic', which gives each length frequencies .*; known are linear, ntk",
        ),
        ({"kind": "yarn", "factor": 2.0}, "kind 'yarn', which changes the scale of attention"),
        (
            {"kind": "xpos", "factor": 2.0},
            "rope_scaling is of the kind 'xpos'; known are linear, ntk, llama3",
        ),
        ({"kind": ["linear"], "factor": 2.0}, r"kind \['linear'\]; known are"),
        ({"kind": "x" * 5000, "factor": 2.0}, r"kind 'x{36}\.\.\.; known are"),
        ({"kind": "linear", "type": "ntk", "factor": 2.0}, "kind = 'linear' and type = 'ntk'; remove one"),
        ({"kind": "linear"}, "lacks 'factor'"),
        ({"factor": 2.0}, "lacks 'kind'"),
        ({"kind": "linear", "factor": 0}, "factor = 0; it must be above 0"),
        ({"kind": "linear", "factor": float("nan")}, "factor = nan"),
        ({"kind": "linear", "factor": True}, "factor = True"),
        ({"kind": "linear", "factor": 2.0, "beta_fast": 32}, "unknown key 'beta_fast'"),
        (LLAMA3 | {"low_freq_factor": 4.0}, "low_freq_factor = 4.0 and high_freq_factor = 4.0; the first"),
        (LLAMA3 | {"original_context_length": None}, "original_context_length = None"),
    ],
)
def test_what_cannot_be_is_refused_by_name(values: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match) as caught:
        RopeScaling.from_dict(values)
    assert str(caught.value).endswith(".")
