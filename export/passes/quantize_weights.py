"""Every weight that products and lookups use becomes integers; one function a form of the graph.

    rewrite = QuantizeWeights(choice, FORMS["fused"])
    rewrite(model)              # how many products and lookups now read integers

fused: com.microsoft::MatMulNBits and GatherBlockQuantized. bytes: MatMulNBits, and lookups of 8-bit tables
in standard operators over the same bytes: the WebAssembly that ONNX Runtime has for WebGPU, which
transformers.js runs in browsers, lacks GatherBlockQuantized on the CPU. standard: DequantizeLinear before
MatMul and after Gather, for targets of standard operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from gpt_onnx.export.quantize.choice import Choice
from gpt_onnx.export.quantize.grid import Grid
from gpt_onnx.export.quantize.parts import scale_parts

from ._quantized import Uses, part_value, quantizable
from .dequantize_lookups import dequantize_lookup
from .dequantize_products import dequantize_product
from .quantize_lookups import quantize_lookup
from .quantize_products import quantize_product

BYTE = 8
Form = Callable[[ir.Graph, Uses, Grid, int], None]
"""Rewrites all uses of one weight; the last argument is the accuracy level."""


def fused(graph: ir.Graph, uses: Uses, grid: Grid, accuracy_level: int) -> None:
    """Use the operators of com.microsoft."""
    packed: ir.Value | None = None
    for product in uses.products:
        packed = quantize_product(graph, product, uses, grid, accuracy_level, packed)
    for lookup in uses.lookups:
        quantize_lookup(graph, lookup, uses, grid)


def standard(graph: ir.Graph, uses: Uses, grid: Grid, accuracy_level: int) -> None:
    """Use standard operators; they have no accuracy level, which is the runtime's to choose."""
    for product in uses.products:
        dequantize_product(graph, product, uses, grid)
    for lookup in uses.lookups:
        dequantize_lookup(graph, lookup, uses, grid)


def fused_products(graph: ir.Graph, uses: Uses, grid: Grid, accuracy_level: int) -> None:
    """Use com.microsoft::MatMulNBits, and standard operators for lookups of bytes."""
    if grid.bits != BYTE:
        fused(graph, uses, grid, accuracy_level)
        return
    scales, *zeros = scale_parts(grid)
    for product in uses.products:
        quantize_product(graph, product, uses, grid, accuracy_level, part_value(graph, uses, grid, "packed"))
    for lookup in uses.lookups:
        dequantize_lookup(graph, lookup, uses, grid, ("packed", *zeros, scales))


FORMS: Mapping[str, Form] = {"fused": fused, "bytes": fused_products, "standard": standard}


class QuantizeWeights:
    """See the module; ``form`` is one of FORMS.

    Raises:
        ConfigError: if no block size divides the inputs of every weight.
    """

    __name__ = "quantize_weights"

    def __init__(self, choice: Choice, form: Form) -> None:
        self._choice, self._form = choice, form
        self.block_size: int | None = None
        """The block size that was taken; None before the first graph."""

    def __call__(self, model: ir.Model) -> int:
        """Return the number of nodes that now read integers."""
        every = [
            uses for uses in quantizable(model) if not (uses.is_table and self._choice.head_bits is None)
        ]
        if every:
            self.block_size = self._choice.block_size(
                {uses.value.name or "": uses.shape[1] for uses in every}
            )
        for uses in every:
            assert self.block_size is not None
            grid = self._choice.grid(self.block_size, head=uses.is_table)
            assert grid is not None
            self._form(model.graph, uses, grid, self._choice.accuracy_level)
        model.graph.sort()  # a weight's parts are made before its first use, whichever that is
        return sum(len(uses.products) + len(uses.lookups) for uses in every)
