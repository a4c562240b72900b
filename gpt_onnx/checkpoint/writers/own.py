"""Our own layout: config.json has the fields of GPTConfig, and every model fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpt_onnx.checkpoint.writers._layout import Layout
from gpt_onnx.config import GPTConfig


def describe(config: GPTConfig, special: Mapping[str, int]) -> dict[str, Any]:
    """See Layout; our tokenizer's files tell the special tokens."""
    return config.to_dict()


LAYOUT = Layout(
    name="gpt-onnx",
    family="gpt-onnx",
    fits=lambda config: None,
    widened=lambda config: config,
    describe=describe,
)
