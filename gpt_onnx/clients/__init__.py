"""Other programs that open bundles: one table of their versions, their needs and their usage.

    from gpt_onnx.bundle import open_bundle
    from gpt_onnx.clients import facts_of, verdicts
    for verdict in verdicts(facts_of(open_bundle("my-gpt"))):
        print(verdict.client.name, verdict.oldest, verdict.faults or "runs")

Standard library and ``gpt_onnx.bundle`` alone: neither torch nor onnx. Files for other clients, a bundle's
README and ``gpt-onnx inspect --clients`` are written from this table.
"""

from __future__ import annotations

from gpt_onnx.clients._client import Client, Condition, Since, Verdict, is_older, judge, oldest_version
from gpt_onnx.clients._facts import BundleFacts, facts_in, facts_of, known_model_type, tokenizer_kind
from gpt_onnx.clients._operators import OPERATORS_FILE, required_operators
from gpt_onnx.clients._table import (
    CLIENTS,
    GENAI,
    NODE,
    ONNXRUNTIME,
    OPENVINO,
    OPTIMUM,
    REFERENCE,
    TRANSFORMERS_JS,
    WEB,
    fault_of_onnxruntime,
    usage_of,
    verdicts,
)

__all__ = [
    "CLIENTS",
    "GENAI",
    "NODE",
    "ONNXRUNTIME",
    "OPENVINO",
    "OPERATORS_FILE",
    "OPTIMUM",
    "REFERENCE",
    "TRANSFORMERS_JS",
    "WEB",
    "BundleFacts",
    "Client",
    "Condition",
    "Since",
    "Verdict",
    "facts_in",
    "facts_of",
    "fault_of_onnxruntime",
    "is_older",
    "judge",
    "known_model_type",
    "oldest_version",
    "required_operators",
    "tokenizer_kind",
    "usage_of",
    "verdicts",
]
