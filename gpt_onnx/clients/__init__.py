"""Other programs that open bundles: one table of their versions, their needs and their usage.

    from gpt_onnx.bundle import open_bundle
    from gpt_onnx.clients import facts_of, verdicts
    for verdict in verdicts(facts_of(open_bundle("my-gpt"))):
        print(verdict.client.name, verdict.oldest, verdict.faults or "runs")

Standard library, ``gpt_onnx.bundle`` and ``gpt_onnx.config`` alone: neither torch nor onnx. A bundle's README
and ``gpt-onnx inspect --clients`` are written from this table. What goes into the files that clients read is
made here too, and ``check_companions`` holds those of a bundle against it.
"""

from __future__ import annotations

from gpt_onnx.clients._client import Client, Condition, Since, Verdict, is_older, judge, oldest_version
from gpt_onnx.clients._companions import CONFIG_FILE, GENAI_FILE, GENERATION_FILE, check_companions
from gpt_onnx.clients._config_json import config_json
from gpt_onnx.clients._facts import BundleFacts, facts_in, facts_of, known_model_type, tokenizer_kind
from gpt_onnx.clients._genai_config import genai_config_json
from gpt_onnx.clients._generation_config import generation_config_json
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
    "CONFIG_FILE",
    "GENAI",
    "GENAI_FILE",
    "GENERATION_FILE",
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
    "check_companions",
    "config_json",
    "facts_in",
    "facts_of",
    "fault_of_onnxruntime",
    "genai_config_json",
    "generation_config_json",
    "is_older",
    "judge",
    "known_model_type",
    "oldest_version",
    "required_operators",
    "tokenizer_kind",
    "usage_of",
    "verdicts",
]
