"""The table of clients: which versions were run, what each needs of a bundle, and how it is used.

    for verdict in verdicts(facts): verdict.client.name, verdict.oldest, verdict.faults

A version stands here because the interop tests ran it. A new client is a new entry, and a test beside the
others.
"""

from __future__ import annotations

from gpt_onnx.bundle import Manifest
from gpt_onnx.clients import _usage
from gpt_onnx.clients._client import Client, Since, Verdict, is_older, judge, oldest_version
from gpt_onnx.clients._conditions import (
    A_TOKENIZER,
    ACCURACY_IN_FILE,
    ANGLES_IN_INT32,
    BYTE_LEVEL,
    CACHE_FOR_ATTENTION,
    EITHER_PADDING,
    FAST_PRODUCTS,
    FILES_FOR_BROWSERS,
    FLOAT_ACTIVATIONS,
    FLOATS_AT_LOAD,
    KNOWN_CACHE,
    ONE_GRAPH_WITH_CACHE,
    ONE_ROW,
    SMALL_WASM,
    STANDARD_OPERATORS,
    TABLE_AS_IT_IS,
    has_fused_integers,
    is_fused,
)
from gpt_onnx.clients._facts import BYTE_LEVEL_BPE, BundleFacts

ONNXRUNTIME = Client(
    name="onnxruntime",
    package="PyPI onnxruntime",
    tried=("1.19.2", "1.20.1", "1.23.0", "1.32.0"),
    limits=(ACCURACY_IN_FILE,),
    since=(Since(version="1.23.0", holds=has_fused_integers),),
)
GENAI = Client(
    name="onnxruntime-genai",
    package="PyPI onnxruntime-genai",
    tried=("0.6.0", "0.9.2", "0.12.2", "0.15.2", "0.18.0"),
    needs=(ONE_GRAPH_WITH_CACHE, KNOWN_CACHE),
    limits=(A_TOKENIZER, BYTE_LEVEL, ACCURACY_IN_FILE),
    usage=_usage.GENAI,
)
NODE = Client(
    name="onnxruntime-node",
    package="npm onnxruntime-node",
    tried=("1.19.2", "1.23.0", "1.30.0"),
    limits=(ACCURACY_IN_FILE,),
    since=(Since(version="1.23.0", holds=has_fused_integers),),
)
WEB = Client(
    name="onnxruntime-web",
    package="npm onnxruntime-web",
    tried=("1.20.1", "1.23.0", "1.30.0"),
    needs=(FILES_FOR_BROWSERS,),
    limits=(FAST_PRODUCTS, FLOATS_AT_LOAD, FLOAT_ACTIVATIONS),
    since=(Since(version="1.23.0", holds=has_fused_integers),),
)
TRANSFORMERS_JS = Client(
    name="transformers.js",
    package="npm @huggingface/transformers",
    tried=("3.4.0", "4.0.0", "4.3.2"),
    since=(Since(version="4.0.0", holds=has_fused_integers),),
    needs=(ONE_GRAPH_WITH_CACHE, KNOWN_CACHE, FILES_FOR_BROWSERS),
    limits=(A_TOKENIZER, SMALL_WASM, EITHER_PADDING, ACCURACY_IN_FILE),
    usage=_usage.TRANSFORMERS_JS,
)
OPENVINO = Client(
    name="OpenVINO",
    package="PyPI openvino",
    tried=("2025.0.0", "2025.4.1", "2026.4.1"),
    since=(Since(version="2026.4.1", holds=is_fused),),
    needs=(TABLE_AS_IT_IS, ANGLES_IN_INT32, CACHE_FOR_ATTENTION),
    limits=(ONE_ROW, FLOAT_ACTIVATIONS),
    usage=_usage.OPENVINO,
)
OPTIMUM = Client(
    name="optimum",
    package="PyPI optimum-onnx",
    tried=("0.1.0",),
    needs=(ONE_GRAPH_WITH_CACHE, KNOWN_CACHE),
    limits=(A_TOKENIZER, EITHER_PADDING, ACCURACY_IN_FILE),
    usage=_usage.OPTIMUM,
)
REFERENCE = Client(
    name="ONNX reference evaluator",
    package="PyPI onnx",
    tried=("1.18.0", "1.23.2"),
    needs=(STANDARD_OPERATORS,),
    limits=(FLOAT_ACTIVATIONS,),
    usage=_usage.REFERENCE,
)

CLIENTS = (ONNXRUNTIME, GENAI, NODE, WEB, TRANSFORMERS_JS, OPENVINO, OPTIMUM, REFERENCE)
"""All clients, the most used first."""


def verdicts(facts: BundleFacts) -> tuple[Verdict, ...]:
    """Return for each client whether it can run a bundle."""
    return tuple(judge(client, facts) for client in CLIENTS)


def _placed(text: str, facts: BundleFacts) -> str:
    """Fill in what a paragraph says of a bundle; braces of programs stay."""
    by_text = _usage.GENAI_TEXT if facts.tokenizer == BYTE_LEVEL_BPE else _usage.GENAI_IDS
    graph = next(iter(facts.manifest.graph.graphs.values()))
    for name, value in {"graph": graph, **by_text}.items():
        text = text.replace("{" + name + "}", value)
    return text


def usage_of(facts: BundleFacts) -> str:
    """Return how each client that can run a bundle runs it, a paragraph each, as Markdown."""
    told = [_usage.BY_LAYOUT[facts.layout]]
    for verdict in verdicts(facts):
        if verdict.runs and verdict.client.usage:
            notes = "".join(f"\nNote on {verdict.client.name}: {limit}.\n" for limit in verdict.limits)
            told.append(_placed(verdict.client.usage, facts) + notes)
    return "\n" + "\n".join(told)


def fault_of_onnxruntime(manifest: Manifest, version: str) -> str | None:
    """Return why a version of onnxruntime cannot run a bundle, where it is too old; None where it is not."""
    oldest = oldest_version(ONNXRUNTIME, BundleFacts(manifest=manifest, model_type=None, tokenizer=None))
    if not is_older(version, oldest):
        return None
    return (
        f"onnxruntime is {version} and {manifest.name}, of target {manifest.target} in {manifest.precision}, "
        f"needs {oldest} or newer; upgrade it with pip install -U onnxruntime"
    )
