"""What the nodes of a graph say of integer weights, held against what the manifest says of them.

    check_integer_weights(summary, manifest)

    MatMulNBits, GatherBlockQuantized      bits, block_size, accuracy_level, whether there are zero points
    DequantizeLinear                       block_size; the bits of its integers
    Gather of one byte a number            the blocks that its scales make; of packed rows, zero points too

Of ``float_weights`` each name must be there, and no other weight may be. Which method chose the integers
(``quantizer``), and whether stored zero points are all the middle, no node says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpt_onnx.bundle._manifest import Manifest
from gpt_onnx.bundle._names import AGAIN, shorten
from gpt_onnx.bundle._ops import MICROSOFT_DOMAIN
from gpt_onnx.bundle._parameters import ENDS
from gpt_onnx.bundle._quantization_info import FLOAT_BITS, QuantizationInfo
from gpt_onnx.bundle._summary import STANDARD_DOMAIN, GraphSummary, Initializer, Node
from gpt_onnx.errors import BundleError

_PRODUCTS = ("MatMul", "Gemm", "MatMulNBits")
_INTEGERS: Mapping[str, int] = {"uint4": 4, "int4": 4, "uint8": 8, "int8": 8}
_PACKED = ".packed"
_ROWS = (".integers", _PACKED)
"""How tables that lookups in standard operators read are called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What one node says of an integer weight; None where it says nothing."""

    node: str
    weight: str
    """The initializer that holds the integers."""
    bits: int | None
    block_size: int
    is_lookup: bool = False
    symmetric: bool | None = None
    accuracy_level: int | None = None


def _input(node: Node, index: int) -> str:
    return node.inputs[index] if index < len(node.inputs) else ""


@dataclass(slots=True)
class _Graph:
    """A graph by the names of its values."""

    summary: GraphSummary
    weights: dict[str, Initializer] = field(init=False)
    makers: dict[str, Node] = field(init=False)

    def __post_init__(self) -> None:
        self.weights = {weight.name: weight for weight in self.summary.initializers}
        self.makers = {name: node for node in self.summary.nodes for name in node.outputs if name}

    def behind(self, name: str) -> Initializer | None:
        """Return the initializer that a value is, or was before it was reshaped."""
        node = self.makers.get(name)
        while node is not None and node.op == "Reshape":
            name = _input(node, 0)
            node = self.makers.get(name)
        return self.weights.get(name)

    def product_before(self, name: str) -> Node | None:
        """Return the product that a value comes from, through sums, scalings and changes of shape."""
        node = self.makers.get(name)
        while node is not None and node.op not in _PRODUCTS:
            node = next((self.makers[made] for made in node.inputs if made in self.makers), None)
        return node


def _of_kernel(node: Node, graph: _Graph, place: int, **told: Any) -> Use | None:
    """Read a node of ONNX Runtime's own, with integers at a place of its inputs, and zero points at 3."""
    weight = graph.behind(_input(node, place))
    if weight is None:
        return None
    return Use(
        node=node.name,
        weight=weight.name,
        bits=node.integers.get("bits", 4),
        block_size=node.integers.get("block_size", 128),
        symmetric=not _input(node, 3),
        **told,
    )


def _of_product(node: Node, graph: _Graph) -> Use | None:
    return _of_kernel(node, graph, 1, accuracy_level=node.integers.get("accuracy_level", 0))


def _of_lookup(node: Node, graph: _Graph) -> Use | None:
    return _of_kernel(node, graph, 0, is_lookup=True)


def _of_linear(node: Node, graph: _Graph) -> Use | None:
    """Read a weight in blocks; a module's own tensors of one scale are none of ours."""
    weight = graph.weights.get(_input(node, 0))
    block_size = node.integers.get("block_size", 0)
    if weight is None or weight.dtype not in _INTEGERS or not block_size:
        return None
    return Use(node=node.name, weight=weight.name, bits=_INTEGERS[weight.dtype], block_size=block_size)


def _of_rows(node: Node, graph: _Graph) -> Use | None:
    """Read a lookup of one byte a number; its scales tell the blocks.

    Packed rows, which MatMulNBits could read too, have 8 bits; others any bits.
    """
    weight = graph.weights.get(_input(node, 0))
    suffix = next((end for end in _ROWS if weight is not None and weight.name.endswith(end)), None)
    if weight is None or suffix is None or weight.dtype != "uint8":
        return None
    name = weight.name.removesuffix(suffix)
    scales = graph.weights.get(f"{name}.scales")
    is_packed = suffix == _PACKED
    if scales is None or len(weight.dims) != (3 if is_packed else 2) or len(scales.dims) != 2:
        return None
    return Use(
        node=node.name,
        weight=weight.name,
        bits=8 if is_packed else None,
        block_size=weight.dims[2] if is_packed else weight.dims[1] // max(1, scales.dims[1]),
        is_lookup=True,
        symmetric=f"{name}.zero_points" not in graph.weights if is_packed else None,
    )


_READERS: Mapping[tuple[str, str], Callable[[Node, _Graph], Use | None]] = {
    (MICROSOFT_DOMAIN, "MatMulNBits"): _of_product,
    (MICROSOFT_DOMAIN, "GatherBlockQuantized"): _of_lookup,
    (STANDARD_DOMAIN, "DequantizeLinear"): _of_linear,
    (STANDARD_DOMAIN, "Gather"): _of_rows,
}
"""Domain and type of a node that reads integer weights to what reads the node."""


def _uses(graph: _Graph) -> Iterator[Use]:
    for node in graph.summary.nodes:
        read = _READERS.get((node.domain, node.op))
        if read is not None and (use := read(node, graph)) is not None:
            yield use


def _head_weight(graph: _Graph) -> str | None:
    """Return the initializer of integers that makes the logits, None where that is not known."""
    product = graph.product_before("logits")
    if product is None:
        return None
    operand = _input(product, 1)
    maker = graph.makers.get(operand)
    is_linear = maker is not None and maker.op == "DequantizeLinear"
    weight = graph.behind(_input(maker, 0) if maker is not None and is_linear else operand)
    return None if weight is None else weight.name


def _differs(name: str, told: object, node: str, found: object) -> BundleError:
    return BundleError(
        f"the manifest's quantization.{name} is {told} and node {shorten(node)} says {found}; {AGAIN}."
    )


def _check_bits(use: Use, info: QuantizationInfo, *, is_table: bool, may_be_table: bool) -> None:
    """Compare the bits of one use; of a module that is not ours it is not known which product is the head."""
    if use.bits is None or (may_be_table and use.bits in (info.bits, info.head_bits)):
        return
    name = "head_bits" if is_table else "bits"
    if use.bits != (told := getattr(info, name)):
        raise _differs(name, told, use.node, use.bits)


def _check_use(use: Use, info: QuantizationInfo) -> None:
    """Compare what one node says beside the bits."""
    for name in ("block_size", "symmetric", "accuracy_level"):
        found, told = getattr(use, name), getattr(info, name)
        if found is not None and found != told:
            raise _differs(name, str(told).lower(), use.node, str(found).lower())


def _check_floats(graph: _Graph, info: QuantizationInfo, *, is_ours: bool) -> None:
    """Look for every float weight that is told, and in graphs of ours for one that is not."""
    names = {*graph.weights, *graph.makers, *(value.name for value in graph.summary.inputs)}
    patterns = {
        told: re.compile(re.escape(told).replace(re.escape("*"), "[0-9]+")) for told in info.float_weights
    }
    for told, pattern in patterns.items():
        if not any(pattern.fullmatch(name) for name in names):
            raise BundleError(
                f"the manifest's quantization.float_weights has {shorten(told)}, which the graph does not; "
                f"{AGAIN}."
            )
    for weight in graph.weights.values() if is_ours else ():
        is_float = weight.dtype.startswith("float") and weight.name.endswith(ENDS)
        if is_float and not any(pattern.fullmatch(weight.name) for pattern in patterns.values()):
            raise BundleError(
                f"{shorten(weight.name)} is {weight.dtype}, and the manifest's quantization.float_weights "
                f"does not have it; {AGAIN}."
            )


def check_integer_weights(summary: GraphSummary, manifest: Manifest) -> None:
    """Check that a graph reads integer weights as the manifest says, and none where it says nothing.

    Raises:
        BundleError: for the first value that differs, naming the field, what it is and what a node says.
    """
    graph, info = _Graph(summary), manifest.quantization
    uses, is_ours = list(_uses(graph)), manifest.graph.attention != "traced"
    if info is None:
        if uses and is_ours:
            raise BundleError(
                f"node {shorten(uses[0].node)} reads integers and the manifest's precision is "
                f"{manifest.precision}; {AGAIN}."
            )
        return
    if not uses:
        raise BundleError(
            f"the manifest's quantization.bits is {info.bits} and no node reads integers; {AGAIN}."
        )
    head = _head_weight(graph)
    tables = {use.weight for use in uses if use.is_lookup} | ({head} if is_ours else set())
    for use in uses:
        may_be_table = not is_ours and use.weight == head
        _check_bits(use, info, is_table=use.weight in tables, may_be_table=may_be_table)
        _check_use(use, info)
    if is_ours and info.head_bits != FLOAT_BITS and not any(use.weight in tables for use in uses):
        raise BundleError(
            f"the manifest's quantization.head_bits is {info.head_bits} and the head is read as floats; "
            f"{AGAIN}."
        )
    _check_floats(graph, info, is_ours=is_ours)
