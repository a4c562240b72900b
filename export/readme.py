"""The README of a bundle: what it is, and how each client runs it."""

from __future__ import annotations

from collections.abc import Iterator

from gpt_onnx.bundle import Manifest
from gpt_onnx.clients import BundleFacts, usage_of
from gpt_onnx.original import FLOAT32, original_words

from .precisions import HALF
from .targets import find_target

README = """\
# {name}

A GPT as an ONNX bundle, made by gpt-onnx {version}: {parameters:,} parameters, {precision}, target `{target}`
({summary}). {checked}
{notes}
| | |
|---|---|
| graphs | {graphs}; opset {opset}, IR version {ir_version} |
| layout | {layout} |
| vocabulary | {vocab_size:,} |
| trained on sequences of | {context} |
| longest sequence | {limit} |
| other clients may pad | {padding} |

`manifest.json` lists every file with its SHA-256.{evidence}

## Run it

With gpt-onnx, which needs neither PyTorch nor onnx:

    pip install 'gpt-onnx[cpu]'
    gpt-onnx verify .
    gpt-onnx generate . {prompt}

From Python:

    from gpt_onnx import {imported}
    gpt = {loaded}
    print({call})
"""

PRECISION_OF_BITS = {4: "int4", 8: "int8", 32: "fp32"}
DEQUANTIZED = (
    "ONNX Runtime turns `DequantizeLinear` and `MatMul` into one product that rounds activations to int8, "
    "unless the session option `session.qdq_matmulnbits_accuracy_level` says otherwise; a file cannot carry "
    "it. gpt-onnx sets it to {level}; set it too where you want the same numbers."
)

HALVES = (
    "Matrices, products and the cache (`past_key_values.*`, `present.*`) are float16; norms, softmax, "
    "activations, positions and the logits are float32."
)

WHICH = """
`gpt-onnx inspect . --clients` tells which clients and versions run this bundle, and why others do not;
gpt-onnx's docs/clients.md has a whole program for each.
"""
WORDS_OF_OTHERS = (
    "`config.json` says `model_type: {model_type}`, as clients work out the cache's shape from those words. "
    "The model is no {family}: its positions are {position}. Run the graph, which has all of it. Do not load "
    "this folder as PyTorch weights (transformers' `from_pretrained` would begin with random ones), and do "
    "not fine-tune it: train the checkpoint that it was made from."
)
FAMILIES = {"gpt2": ("GPT-2", "learned"), "llama": ("Llama", "rotary")}
"""Each model_type with the family that clients take the model for, and that family's positions."""


def readme(
    facts: BundleFacts,
    *,
    causal: bool = True,
    notes: tuple[str, ...] = (),
    quality: str | None = None,
) -> str:
    """Say what the bundle is and how to run it.

    Args:
        facts: The bundle as clients see it.
        causal: Whether what comes after a token leaves its logits alone.
        notes: What the user should know besides.
        quality: How far a quantised model is from the float32 one, in one line.
    """
    manifest = facts.manifest
    told = (*_integers(manifest, quality), *_halves(manifest, quality), *_words_of_others(facts), *notes)
    text = README.format(
        notes="".join(f"\n{note}\n" for note in told),
        padding=_padding(manifest) if causal else "none",
        **_about(manifest),
        **_usage(facts.tokenizer is not None),
    )
    return text + usage_of(facts) + WHICH


def _words_of_others(facts: BundleFacts) -> Iterator[str]:
    """Say that clients take the model for one of a family that it is not of."""
    if facts.model_type is None:
        return
    family, position = FAMILIES[facts.model_type]
    if (own := facts.manifest.model.position) != position:
        yield WORDS_OF_OTHERS.format(model_type=facts.model_type, family=family, position=own)


def _integers(manifest: Manifest, quality: str | None) -> Iterator[str]:
    """Say how weights were quantised, what that cost, and what clients do with it silently."""
    info = manifest.quantization
    if info is None:
        return
    head = "" if info.head_bits == info.bits else f"; head and embedding {PRECISION_OF_BITS[info.head_bits]}"
    floats = ", ".join(f"`{name}`" for name in info.float_weights)
    how = f"{info.quantizer}, one scale for {info.block_size} of them{head}"
    yield f"Weights are {manifest.precision} ({how}); {floats} are fp32."
    if quality is not None:
        yield f"Quality: {quality} (`quality.json`)."
    if manifest.target == "portable":
        yield DEQUANTIZED.format(level=info.accuracy_level)
    elif info.accuracy_level:
        yield (
            "Products round activations to int8 (`accuracy_level` 4); in browsers and OpenVINO they do not, "
            "and text may differ at near ties."
        )


def _halves(manifest: Manifest, quality: str | None) -> Iterator[str]:
    """Say what of a bundle in float16 is float16, and what that cost."""
    if manifest.precision == HALF:
        yield HALVES
        if quality is not None:
            yield f"Quality: {quality} (`quality.json`)."


def _about(manifest: Manifest) -> dict[str, object]:
    graph, model, target = manifest.graph, manifest.model, find_target(manifest.target)
    return {
        "name": manifest.name,
        "version": manifest.versions.get("gpt-onnx", "?"),
        "parameters": model.parameters,
        "precision": manifest.precision,
        "target": manifest.target,
        "summary": target.summary if graph.attention == target.attention else "standard operators only",
        "checked": _checked(manifest),
        "evidence": " `parity.json` is the evidence of the comparison." if manifest.checked else "",
        "graphs": ", ".join(f"`{path}`" for path in graph.graphs.values()),
        "opset": graph.opset,
        "ir_version": graph.ir_version,
        "layout": _layout(manifest),
        "vocab_size": model.vocab_size,
        "context": _tokens(model.context_length, "unknown length"),
        "limit": _tokens(graph.seq_len or model.position_limit, "any"),
    }


def _padding(manifest: Manifest) -> str:
    if manifest.graph.layout != "dynamic":
        return "right"
    decomposed = manifest.graph.attention == "decomposed"
    return "left or right" if decomposed else find_target(manifest.target).padding


def _usage(has_tokenizer: bool) -> dict[str, str]:
    if has_tokenizer:
        call = 'gpt.complete("Once upon a time")'
        return {"prompt": '-p "Once upon a time"', "imported": "load", "loaded": 'load(".")', "call": call}
    return {
        "prompt": "--prompt-ids 1,2,3",
        "imported": "OnnxGPT",
        "loaded": 'OnnxGPT.load(".")',
        "call": "gpt.generate([[1, 2, 3]], max_new_tokens=16)",
    }


def _tokens(count: int | None, unknown: str) -> str:
    return unknown if count is None else f"{count:,} tokens"


def _checked(manifest: Manifest) -> str:
    if not manifest.checked:
        return "It was NOT compared with the model it was made from (`checked: false`)."
    compared, precision = manifest.compared_with_original, manifest.precision
    words = original_words(checked=True, compared=compared, precision=precision)
    same = "" if precision == FLOAT32 else f" with the same {precision} weights"
    return f"It was checked against the model in PyTorch{same}. It was {words}."


def _layout(manifest: Manifest) -> str:
    graph = manifest.graph
    batch = f"batch {graph.batch_size}" if graph.batch_size else "any batch"
    length = f"sequence length {graph.seq_len}" if graph.seq_len else "any sequence length"
    cache = "without a cache" if graph.layout == "plain" else "with a key-value cache"
    return f"{graph.layout}: {length}, {batch}, {cache}"
