"""The parameters of our GPT in a graph, whatever they are stored as.

    >>> parameter_sizes(summary, block_size=32)["h.0.attn.c_attn.weight"]       # doctest: +SKIP
    49152

A parameter of floats is an initializer of its own name, transposed or not. One of integers has parts instead;
of its scales each stands for ``block_size`` of its elements.
"""

from __future__ import annotations

import math

from gpt_onnx.bundle._summary import GraphSummary

ENDS = (".weight", ".bias")
"""Ends of the names of our GPT's parameters; constants and parts of integer weights have others."""
TIED_HEAD_BIAS = "lm_head_bias"
_SCALES = (".scales", ".column_scales")
"""Ends of the names of scales, which every form of integer weights has."""


def is_parameter(name: str) -> bool:
    """Return whether an initializer of our GPT's graphs is a parameter of floats."""
    return name.endswith(ENDS) or name == TIED_HEAD_BIAS


def parameter_sizes(summary: GraphSummary, block_size: int | None) -> dict[str, int]:
    """Return the elements of each parameter in a graph by name.

    Args:
        summary: The graph of a GPT of ours.
        block_size: Weights that share a scale; None where none are integers.
    """
    sizes: dict[str, int] = {}
    for weight in summary.initializers:
        elements = math.prod(weight.dims)
        if is_parameter(weight.name):
            sizes[weight.name] = elements
        for end in _SCALES:
            if block_size is not None and is_parameter(name := weight.name.removesuffix(end)):
                sizes.setdefault(name, elements * block_size)
    return sizes
