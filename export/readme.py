"""The README of a bundle: what it is, and how each client runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpt_onnx.bundle import Manifest
from gpt_onnx.config import GPTConfig
from gpt_onnx.original import original_words

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

DYNAMIC = """
With ONNX Runtime alone, in any of its languages: feed `input_ids`, `attention_mask`, `position_ids` (int64)
and the cache `past_key_values.N.key` and `.value`, empty at first; take `logits` and feed the `present.*`
back. `num_logits_to_keep` may be left out (all positions) or be 1 (the last alone).
"""
STATIC = """
With ONNX Runtime alone: feed a prompt, padded on the right, to the prefill graph, and its `present.*` with
one token after another to the decode graph. `attention_mask` is 1 up to and including the newest token.
"""
PLAIN = """
With ONNX Runtime alone, in any of its languages: feed `input_ids` (int64), take `logits`.
"""
GENAI = """
With onnxruntime-genai: `genai_config.json` is beside this file (`onnxruntime_genai.Model(".")`).
"""
TRANSFORMERS_JS = """
With transformers.js: `pipeline("text-generation", "path/of/this/folder", {dtype: "fp32"})`.
"""
OPENVINO = """
With OpenVINO: `openvino.Core().read_model("{graph}")`.
"""


@dataclass(frozen=True, slots=True)
class _Facts:
    """What decides which clients can run a bundle."""

    manifest: Manifest
    config: GPTConfig | None
    has_tokenizer: bool

    @property
    def layout(self) -> str:
        return self.manifest.graph.layout

    @property
    def looks_like_gpt2(self) -> bool:
        """Whether the cache has the shape that clients work out from GPT-2's configuration."""
        config, model = self.config, self.manifest.model
        if config is None:
            return False
        return config.n_kv_head == config.n_head and model.cache_head_size * config.n_head == config.n_embd


CLIENTS: tuple[tuple[str, Callable[[_Facts], bool]], ...] = (
    (DYNAMIC, lambda facts: facts.layout == "dynamic"),
    (STATIC, lambda facts: facts.layout == "static"),
    (PLAIN, lambda facts: facts.layout == "plain"),
    (GENAI, lambda facts: facts.layout == "dynamic" and facts.has_tokenizer),
    (
        TRANSFORMERS_JS,
        lambda facts: facts.layout == "dynamic" and facts.has_tokenizer and facts.looks_like_gpt2,
    ),
    (OPENVINO, lambda facts: facts.layout != "static"),
)
"""How another client runs a bundle, and whether it can."""


def readme(
    manifest: Manifest,
    config: GPTConfig | None,
    *,
    has_tokenizer: bool,
    causal: bool = True,
    notes: tuple[str, ...] = (),
    quality: str | None = None,
) -> str:
    """Say what the bundle is and how to run it.

    Args:
        manifest: The bundle's description.
        config: The model's configuration; None for a module of anybody's.
        has_tokenizer: Whether the bundle takes and gives text.
        causal: Whether what comes after a token leaves its logits alone.
        notes: What the user should know besides.
        quality: How far a quantised model is from the float32 one, in one line.
    """
    facts = _Facts(manifest, config, has_tokenizer)
    text = README.format(
        notes="".join(f"\n{note}\n" for note in (*_integers(manifest, quality), *notes)),
        padding=_padding(manifest) if causal else "none",
        **_about(manifest),
        **_usage(has_tokenizer),
    )
    path = next(iter(manifest.graph.graphs.values()))
    return text + "".join(part.replace("{graph}", path) for part, fits in CLIENTS if fits(facts))


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
        yield "Products round activations to int8 (`accuracy_level` 4), in every client."


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
    words = original_words(checked=True, compared=manifest.compared_with_original)
    return f"It was checked against the model in PyTorch. It was {words}."


def _layout(manifest: Manifest) -> str:
    graph = manifest.graph
    batch = f"batch {graph.batch_size}" if graph.batch_size else "any batch"
    length = f"sequence length {graph.seq_len}" if graph.seq_len else "any sequence length"
    cache = "without a cache" if graph.layout == "plain" else "with a key-value cache"
    return f"{graph.layout}: {length}, {batch}, {cache}"
