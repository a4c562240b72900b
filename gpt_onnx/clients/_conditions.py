"""What clients need of a bundle, one condition a name; _table.py says which client needs which."""

from __future__ import annotations

from gpt_onnx.bundle._quantization_info import FLOAT_BITS
from gpt_onnx.clients._client import Condition
from gpt_onnx.clients._facts import BYTE_LEVEL_BPE, BundleFacts

BYTE_BITS = 8
ROUNDED = 4
"""The accuracy level at which products round activations to int8; ONNX Runtime's own default."""
SMALL_WASM_SINCE = "4.0.0"
"""The first transformers.js whose WebAssembly lacks float64 and GatherBlockQuantized of those tried."""
ANGLED = ("sinusoidal", "rotary")
"""Positions of which graphs compute angles."""
BROWSER_FILE_BYTES = 2 * 10**9
"""A browser holds a file as one array, which can be no longer."""


def is_fused(facts: BundleFacts) -> bool:
    """Whether the graph has operators of com.microsoft."""
    return facts.is_fused


def has_fused_integers(facts: BundleFacts) -> bool:
    """Whether integer weights are read by operators of com.microsoft."""
    return facts.is_fused and facts.has_integers


def has_standard_integers(facts: BundleFacts) -> bool:
    """Whether integer weights are read by DequantizeLinear."""
    return facts.has_integers and not facts.is_fused


def is_gqa(facts: BundleFacts) -> bool:
    """Whether attention is GroupQueryAttention."""
    return facts.manifest.graph.attention == "gqa"


def is_half(facts: BundleFacts) -> bool:
    """Whether weights and cache are float16."""
    return facts.manifest.precision == "fp16"


def has_tied_integers(facts: BundleFacts) -> bool:
    """Whether head and embedding are one table of integers that MatMulNBits sees through a Reshape."""
    quantization = facts.manifest.quantization
    if quantization is None or quantization.head_bits == FLOAT_BITS or not facts.tied:
        return False
    as_it_is = facts.manifest.target == "web" and quantization.head_bits == BYTE_BITS
    return facts.is_fused and not as_it_is


def has_wide_angles(facts: BundleFacts) -> bool:
    """Whether the graph makes angles of positions of whole numbers that int32 cannot hold."""
    return facts.manifest.target == "web" and facts.manifest.model.position in ANGLED


def runs_in_small_wasm(facts: BundleFacts) -> bool:
    """Whether WebAssembly without float64 and without GatherBlockQuantized has all operators."""
    is_float32 = facts.manifest.model.position == "learned" and not has_fused_integers(facts)
    quantization = facts.manifest.quantization
    has_large_table = quantization is None or quantization.head_bits >= BYTE_BITS
    return (facts.manifest.target == "web" and has_large_table) or is_float32


ONE_GRAPH_WITH_CACHE = Condition(
    holds=lambda facts: facts.layout == "dynamic",
    otherwise="its layout is {layout} and this client feeds one graph with a cache of any length; export "
    "with --kv-cache and without --seq-len",
)
KNOWN_CACHE = Condition(
    holds=lambda facts: facts.model_type is not None,
    otherwise="its config.json does not tell the cache's shape, as the model's layers are not known; export "
    "it with --names",
)
STANDARD_OPERATORS = Condition(
    holds=lambda facts: not facts.is_fused,
    otherwise="its graph has operators of com.microsoft; export with --target portable",
)
FILES_FOR_BROWSERS = Condition(
    holds=lambda facts: max(facts.data_bytes, default=0) < BROWSER_FILE_BYTES,
    otherwise="a file of its weights has {largest:,} bytes and browsers take less than 2,000,000,000; export "
    "with --target web, or with --precision int4",
)
SMALL_WASM = Condition(
    holds=runs_in_small_wasm,
    otherwise="in Node as it is, in a browser only with --target web and a head of 8 bits or more: from "
    f"{SMALL_WASM_SINCE} on its WebAssembly has neither float64 nor GatherBlockQuantized, and says that it "
    "could not find an implementation for Cast or for the latter",
)
FAST_PRODUCTS = Condition(
    holds=lambda facts: not has_fused_integers(facts),
    otherwise="WebAssembly multiplies its integer weights slowly; for speed export with --target portable",
)
FLOATS_AT_LOAD = Condition(
    holds=lambda facts: not has_standard_integers(facts),
    otherwise='set the session option session.disable_quant_qdq to "1": a token then takes a tenth of the '
    "time, as integer weights become floats once, at load",
)
TABLE_AS_IT_IS = Condition(
    holds=lambda facts: not has_tied_integers(facts),
    otherwise="its head and embedding are one table of integers, which this client does not take through a "
    "Reshape; export with --target web or portable, or with --head-precision fp32",
)
ANGLES_IN_INT32 = Condition(
    holds=lambda facts: not has_wide_angles(facts),
    otherwise="the angles of its positions are computed in int64, which this client computes in int32 and, "
    "silently, wrongly; export with --target cpu or portable",
)
CACHE_FOR_ATTENTION = Condition(
    holds=lambda facts: not is_gqa(facts) or facts.layout == "dynamic",
    otherwise="its layout is {layout}, whose GroupQueryAttention reads a prompt without a cache, and this "
    "client asks for one; export with --target portable, or with --kv-cache and without --seq-len",
)
A_TOKENIZER = Condition(
    holds=lambda facts: facts.tokenizer is not None,
    otherwise="it has no tokenizer: by ids alone",
)
BYTE_LEVEL = Condition(
    holds=lambda facts: facts.tokenizer in (None, BYTE_LEVEL_BPE),
    otherwise="its tokenizer is {tokenizer} and this client reads byte-level BPE alone rightly: encode "
    "elsewhere, and give ids",
)
EITHER_PADDING = Condition(
    holds=lambda facts: not is_gqa(facts),
    otherwise="it pads on the left, which GroupQueryAttention cannot see: one prompt at a time, or prompts "
    "of one length; for batches export with --target portable",
)
ONE_ROW = Condition(
    holds=lambda facts: not is_gqa(facts),
    otherwise="it computes GroupQueryAttention for one prompt at a time; for batches export with --target "
    "portable",
)
ACCURACY_IN_FILE = Condition(
    holds=lambda facts: not (has_standard_integers(facts) and facts.accuracy_level != ROUNDED),
    otherwise='set the session option session.qdq_matmulnbits_accuracy_level to "{level}": it rounds '
    "activations to int8 unless told",
)
FLOAT_ACTIVATIONS = Condition(
    holds=lambda facts: facts.accuracy_level != ROUNDED,
    otherwise="it does not round activations to int8, as gpt-onnx does with this bundle: its text may differ "
    "at near ties, and is nearer to the float32 model's",
)
