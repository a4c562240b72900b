"""What a manifest says of weights in four bits."""

from __future__ import annotations

from gpt_onnx.bundle import QuantizationInfo

INT4 = QuantizationInfo(
    bits=4,
    block_size=32,
    symmetric=False,
    accuracy_level=4,
    quantizer="rtn",
    head_bits=8,
    float_weights=["ln_f.weight"],
)
