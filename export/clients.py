"""The files by which other clients understand a bundle: configuration, generation defaults, genai, README.

One function a file; each returns plain JSON values. Only keys that every supported version of a client knows.
"""

from __future__ import annotations

import json
from typing import Any

from gpt_onnx.bundle import Manifest
from gpt_onnx.checkpoint import TokenizerFiles
from gpt_onnx.config import GPTConfig

from .targets import find_target

SAMPLING = {"do_sample": True, "temperature": 0.8, "top_k": 50, "top_p": 1.0, "repetition_penalty": 1.0}
GENERATION_FACTOR = 4  # where positions have no limit, genai may allocate this many times the context


def special_ids(tokenizer: TokenizerFiles | None) -> dict[str, int]:
    """Return bos_token_id and eos_token_id, as far as the tokenizer names such tokens."""
    if tokenizer is None:
        return {}
    definition = json.loads(tokenizer.definition)
    ids = {token["content"]: token["id"] for token in definition.get("added_tokens", [])}
    ids |= {
        token: number
        for token, number in _vocabulary(definition).items()
        if token in {_text(tokenizer.config.get(f"{role}_token")) for role in ("bos", "eos")}
    }
    found = {role: ids.get(_text(tokenizer.config.get(f"{role}_token"))) for role in ("bos", "eos")}
    return {f"{role}_token_id": number for role, number in found.items() if number is not None}


def _vocabulary(definition: dict[str, Any]) -> dict[str, int]:
    vocabulary = definition.get("model", {}).get("vocab", {})
    return vocabulary if isinstance(vocabulary, dict) else {}


def _text(token: Any) -> str | None:
    """Return a special token's text; tokenizer_config.json gives a string or an object."""
    return token.get("content") if isinstance(token, dict) else token


def config_json(manifest: Manifest, config: GPTConfig | None, special: dict[str, int]) -> dict[str, Any]:
    """Describe the model in GPT-2's words, which clients know, and whole under ``gpt_onnx``."""
    if config is None:
        described = {"vocab_size": manifest.model.vocab_size, "n_positions": manifest.model.context_length}
        return {"model_type": "gpt_onnx", **described, **special}
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_positions": config.context_length,
        "n_ctx": config.context_length,
        "n_embd": config.n_embd,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_inner": config.d_ff,
        "layer_norm_epsilon": config.norm_eps,
        "tie_word_embeddings": config.tie_embeddings,
        **special,
        "transformers.js_config": {"use_external_data_format": 1},
        "gpt_onnx": config.to_dict(),
    }


def generation_config_json(special: dict[str, int]) -> dict[str, Any]:
    """Give the sampling defaults and the token that ends a text."""
    return {**special, **({"pad_token_id": special["eos_token_id"]} if "eos_token_id" in special else {}), **SAMPLING}


def genai_config_json(manifest: Manifest, config: GPTConfig, special: dict[str, int]) -> dict[str, Any]:
    """Describe a dynamic graph to onnxruntime-genai; type "decoder", as "gpt2" means one combined cache."""
    limit = config.position_limit or GENERATION_FACTOR * config.context_length
    end = special.get("eos_token_id", config.vocab_size - 1)
    return {
        "model": {
            "type": "decoder",
            "bos_token_id": special.get("bos_token_id", end),
            "eos_token_id": end,
            "pad_token_id": end,
            "context_length": limit,
            "vocab_size": config.vocab_size,
            "decoder": _genai_decoder(manifest, config),
        },
        "search": {
            "do_sample": SAMPLING["do_sample"],
            "max_length": limit,
            "min_length": 0,
            "past_present_share_buffer": manifest.graph.attention == "gqa",
            "repetition_penalty": SAMPLING["repetition_penalty"],
            "temperature": SAMPLING["temperature"],
            "top_k": SAMPLING["top_k"],
            "top_p": SAMPLING["top_p"],
        },
    }


def _genai_decoder(manifest: Manifest, config: GPTConfig) -> dict[str, Any]:
    return {
        "filename": manifest.graph.graphs["model"],
        "session_options": {"provider_options": []},
        "hidden_size": config.n_embd,
        "head_size": manifest.model.cache_head_size,
        "num_attention_heads": config.n_head,
        "num_key_value_heads": config.n_kv_head,
        "num_hidden_layers": config.n_layer,
        "inputs": {
            "input_ids": "input_ids",
            "attention_mask": "attention_mask",
            "position_ids": "position_ids",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {
            "logits": "logits",
            "present_key_names": "present.%d.key",
            "present_value_names": "present.%d.value",
        },
    }


README = """\
# {name}

A GPT as an ONNX bundle, made by gpt-onnx {version}: {parameters:,} parameters, {precision}, target `{target}`
({summary}). {checked}

| | |
|---|---|
| graphs | {graphs}, opset {opset}, IR version {ir_version} |
| layout | {layout} |
| vocabulary | {vocab_size:,} |
| trained on sequences of | {context} |
| other clients may pad | {padding} |

`manifest.json` lists every file with its SHA-256; `parity.json` is the evidence of the comparison.

## Run it

With gpt-onnx, which needs neither PyTorch nor onnx:

    pip install 'gpt-onnx[cpu]'
    gpt-onnx verify .
    gpt-onnx generate . {prompt}

From Python:

    from gpt_onnx import load
    gpt = load(".")
    {python}
{clients}"""

CLIENTS = """
With ONNX Runtime alone, in any of its languages: feed `input_ids`, `attention_mask` and `position_ids` (int64)
and the cache `past_key_values.N.key` and `.value`, empty at first; take `logits` and the `present.*` back in.
`num_logits_to_keep` may be left out (all positions) or be 1 (the last alone).

With onnxruntime-genai: `genai_config.json` is beside this file (`onnxruntime_genai.Model(".")`).

With transformers.js: `pipeline("text-generation", "path/of/this/folder", {{dtype: "fp32"}})`.

With OpenVINO: `openvino.Core().read_model("{graph}")`.
"""


def readme(manifest: Manifest, *, has_tokenizer: bool) -> str:
    """Say what the bundle is and how to run it."""
    graph, model, target = manifest.graph, manifest.model, find_target(manifest.target)
    dynamic = graph.layout == "dynamic"
    return README.format(
        name=manifest.name,
        version=manifest.versions.get("gpt-onnx", "?"),
        parameters=model.parameters,
        precision=manifest.precision,
        target=manifest.target,
        summary=target.summary,
        checked=_checked(manifest),
        graphs=", ".join(f"`{path}`" for path in graph.graphs.values()),
        opset=graph.opset,
        ir_version=graph.ir_version,
        layout=_layout(manifest),
        vocab_size=model.vocab_size,
        context=f"{model.context_length} tokens" if model.context_length else "unknown length",
        padding=target.padding if dynamic else "right",
        prompt='-p "Once upon a time"' if has_tokenizer else "--prompt-ids 1,2,3",
        python='print(gpt.complete("Once upon a time"))' if has_tokenizer else "print(gpt.engine.generate([[1, 2, 3]], 16))",
        clients=CLIENTS.format(graph=graph.graphs["model"]) if dynamic else "",
    )


def _checked(manifest: Manifest) -> str:
    if not manifest.checked:
        return "It was NOT compared with the model it was made from (`checked: false`)."
    original = "" if manifest.compared_with_original else " It was not compared with the original program's own numbers."
    return f"It was checked against the model in PyTorch.{original}"


def _layout(manifest: Manifest) -> str:
    graph = manifest.graph
    batch = f"batch {graph.batch_size}" if graph.batch_size else "any batch"
    length = f"sequence length {graph.seq_len}" if graph.seq_len else "any sequence length"
    cache = "without a cache" if graph.layout == "plain" else "with a key-value cache"
    return f"{graph.layout}: {length}, {batch}, {cache}"
