"""What a manifest says of integer weights, and which forms of them there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpt_onnx.bundle._rules import FLAG, NAME, WORD, Rule, check_fields, number_of

ACCURACY_LEVELS = (0, 4)
WEIGHT_BITS = (4, 8)
BLOCK_SIZES = (16, 32, 64, 128, 256)
"""What com.microsoft::MatMulNBits takes."""
INTEGER_PRECISIONS: Mapping[str, int] = {"int4": 4, "int8": 8}
"""Precisions of integer weights, and the bits of one."""
FLOAT_BITS = 32
_QUANTIZATION_RULES: Mapping[str, Rule] = {
    "bits": number_of(WEIGHT_BITS),
    "block_size": number_of(BLOCK_SIZES),
    "symmetric": FLAG,
    "accuracy_level": number_of(ACCURACY_LEVELS),
    "quantizer": WORD,
    "head_bits": number_of((*WEIGHT_BITS, FLOAT_BITS)),
    "float_weights": (
        "a list of names",
        lambda value: isinstance(value, list) and all(NAME[1](name) for name in value),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationInfo:
    """How weights were turned into small integers: each is ``scale * (integer - zero point)``.

    Raises:
        BundleError: if a value is of the wrong kind.
    """

    bits: int
    """Of a weight within the layers."""
    block_size: int
    """Consecutive inputs of one output that share a scale and a zero point."""
    symmetric: bool
    """Whether every zero point is the middle of the range, and none is stored."""
    accuracy_level: int
    """4: products see activations rounded to int8; 0: activations stay float32."""
    quantizer: str
    """The method that chose the integers: "rtn", "hqq", "gptq"."""
    head_bits: int
    """Of a weight of the head, and of the embedding where they are one table; 32: float32."""
    float_weights: list[str]
    """What stayed float32; "*" stands for every layer's number."""

    def __post_init__(self) -> None:
        check_fields(self, _QUANTIZATION_RULES, "quantization.")
