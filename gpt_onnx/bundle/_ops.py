"""Which operators a graph may use: what the passes of this project make out of a GPT, and nothing else.

A module that is not ours is traced as it is: any standard operator may be in its graph, as long as it holds
no graph of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpt_onnx.bundle._manifest import Manifest
from gpt_onnx.bundle._names import shorten
from gpt_onnx.bundle._summary import STANDARD_DOMAIN, GraphSummary, Node
from gpt_onnx.bundle._targets import TARGETS
from gpt_onnx.errors import BundleError

MICROSOFT_DOMAIN = "com.microsoft"

_ARITHMETIC = """
    Abs Add Ceil Clip Cos CumSum Div Erf Exp Floor Gemm Log MatMul Max Mean Min Mod Mul Neg Pow Reciprocal
    Round Sign Sin Sqrt Sub Sum Tanh
"""
_LAYERS = """
    Attention Elu Gelu HardSigmoid HardSwish LayerNormalization LeakyRelu LogSoftmax RMSNormalization Relu
    RotaryEmbedding Sigmoid Softmax Softplus Swish
"""
_LOGIC = "And Equal Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Not Or Where Xor"
_REDUCTIONS = "ArgMax ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare TopK"
_SHAPES = """
    Cast CastLike Concat Constant ConstantOfShape Expand Flatten Gather GatherElements GatherND Identity
    NonZero OneHot Pad Range Reshape ScatterElements ScatterND Shape Size Slice Split Squeeze TensorScatter
    Tile Transpose Trilu Unsqueeze
"""
_QUANTIZED = "DequantizeLinear DynamicQuantizeLinear MatMulInteger QuantizeLinear"
_MICROSOFT = """
    BiasGelu FastGelu FusedMatMul GatherBlockQuantized Gelu GroupQueryAttention MatMulNBits MultiHeadAttention
    QuickGelu RotaryEmbedding SimplifiedLayerNormalization SkipLayerNormalization
    SkipSimplifiedLayerNormalization
"""

OPERATORS: Mapping[str, frozenset[str]] = {
    STANDARD_DOMAIN: frozenset((_ARITHMETIC + _LAYERS + _LOGIC + _REDUCTIONS + _SHAPES + _QUANTIZED).split()),
    MICROSOFT_DOMAIN: frozenset(_MICROSOFT.split()),
}
"""Domain to the operators that a graph of ours may use."""
_DOMAIN_VERSIONS: Mapping[str, int] = {MICROSOFT_DOMAIN: 1}


def allowed_domains(manifest: Manifest) -> tuple[str, ...]:
    """Return the domains whose operators the bundle's graphs may use."""
    is_traced = manifest.graph.attention == "traced" and manifest.quantization is None
    is_standard = not TARGETS.get(manifest.target, True) or is_traced
    return (STANDARD_DOMAIN,) if is_standard else tuple(OPERATORS)


def check_versions(summary: GraphSummary, manifest: Manifest) -> None:
    """Check the IR version and the operator sets against the manifest.

    Raises:
        BundleError: if they differ, or a domain is imported that is not allowed.
    """
    graph = manifest.graph
    if summary.ir_version != graph.ir_version:
        raise BundleError(f"its IR version is {summary.ir_version}; the manifest says {graph.ir_version}.")
    if summary.opsets.get(STANDARD_DOMAIN) != graph.opset:
        raise BundleError(
            f"its opset is {summary.opsets.get(STANDARD_DOMAIN)}; the manifest says {graph.opset}."
        )
    for domain, version in summary.opsets.items():
        if domain not in allowed_domains(manifest):
            raise BundleError(
                f"it imports operators of {shorten(domain)}; {_say_domains(manifest)} may be used."
            )
        if version != (wanted := _DOMAIN_VERSIONS.get(domain, version)):
            raise BundleError(f"it imports version {version} of {domain}; known is {wanted}.")


def _say_domains(manifest: Manifest) -> str:
    return " and ".join(domain or "the standard ones" for domain in allowed_domains(manifest))


def _is_allowed(node: Node, manifest: Manifest) -> bool:
    if node.domain not in allowed_domains(manifest):
        return False
    if manifest.graph.attention == "traced":
        return node.op.isascii() and node.op.isidentifier()
    return node.op in OPERATORS[node.domain]


def _check_attention(summary: GraphSummary, manifest: Manifest) -> None:
    """Hold the manifest's form of attention against the graph: other padding is right for each."""
    fused = summary.op_counts.get((MICROSOFT_DOMAIN, "GroupQueryAttention"), 0)
    is_fused = manifest.graph.attention == "gqa" and manifest.graph.layout != "plain"
    if fused != (manifest.model.n_layer if is_fused else 0):
        said = f"{manifest.model.n_layer} layers" if is_fused else "that attention is decomposed"
        raise BundleError(f"it has {fused} GroupQueryAttention; the manifest says {said}.")


def check_operators(summary: GraphSummary, manifest: Manifest) -> None:
    """Check that every node is of a known operator and holds no graph, and that no function is defined.

    Raises:
        BundleError: for the first that is not; the message names it.
    """
    if summary.functions:
        raise BundleError(f"it defines {summary.functions} functions; a graph of ours has none.")
    if summary.oddities:
        raise BundleError(f"it has {summary.oddities[0]}; a graph of ours has none.")
    for node in summary.nodes:
        told = f"node {shorten(node.name)} is {shorten(f'{node.domain}::{node.op}'.removeprefix('::'))}"
        if node.has_subgraph:
            raise BundleError(f"{told}, which holds a graph of its own; none may.")
        if not _is_allowed(node, manifest) or node.domain not in summary.opsets:
            raise BundleError(f"{told}, which graphs of target {manifest.target} do not use.")
    _check_attention(summary, manifest)
