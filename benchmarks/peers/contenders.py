"""Who takes part, and what each needs on disk: two tables. A new contender is a line of each.

``FORMS`` are the forms of the same weights; each is made from another one, down to the checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpt_onnx.runtime.bench.entrant import BUNDLE, COMPILED, EAGER, PEER
from gpt_onnx.runtime.bench.entrants import COMPILED_NAME, EAGER_NAME

OURS, GPT2 = "ours", "gpt2"
"""The checkpoint in both layouts, from which every form is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A file or folder that some contender loads."""

    source: str
    """The form that it is made from."""
    maker: str
    """Of forms.MAKERS, or the peer whose script prepares it."""
    argument: str = ""
    """What the maker is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One row of the table."""

    name: str
    form: str
    kind: str = PEER
    peer: str = ""
    """Of its environment and script; empty for what runs under our own Python."""
    precision: str = "fp32"
    """fp32, int8 or int4, as the bars have it."""
    options: Mapping[str, Any] = field(default_factory=dict)


FORMS: Mapping[str, Form] = {
    "gpt-onnx-fp32": Form(source=OURS, maker="bundle", argument="fp32"),
    "gpt-onnx-int8": Form(source=OURS, maker="bundle", argument="int8"),
    "gpt-onnx-int4": Form(source=OURS, maker="bundle", argument="int4"),
    "gpt-onnx-int4-head-int4": Form(source=OURS, maker="bundle", argument="int4 int4"),
    "portable": Form(source=OURS, maker="portable"),
    "f32.gguf": Form(source=GPT2, maker="gguf"),
    "q8_0.gguf": Form(source="f32.gguf", maker="llama_cpp", argument="q8_0"),
    "q4_0.gguf": Form(source="f32.gguf", maker="llama_cpp", argument="q4_0"),
    "f32-two-tables.gguf": Form(source=GPT2, maker="gguf", argument="two tables"),
    "q4_0-two-tables.gguf": Form(source="f32-two-tables.gguf", maker="llama_cpp", argument="q4_0"),
    "ctranslate2-float32": Form(source=GPT2, maker="ctranslate2", argument="float32"),
    "ctranslate2-int8": Form(source=GPT2, maker="ctranslate2", argument="int8"),
    "openvino-fp32": Form(source="portable", maker="openvino", argument="fp32"),
    "openvino-int8": Form(source="portable", maker="openvino", argument="int8"),
    "optimum": Form(source=GPT2, maker="optimum", argument="fp32"),
}

CONTENDERS = (
    Contender(name="gpt-onnx-fp32", form="gpt-onnx-fp32", kind=BUNDLE),
    Contender(name="gpt-onnx-int8", form="gpt-onnx-int8", kind=BUNDLE, precision="int8"),
    Contender(name="gpt-onnx-int4", form="gpt-onnx-int4", kind=BUNDLE, precision="int4"),
    Contender(name="gpt-onnx-int4-head-int4", form="gpt-onnx-int4-head-int4", kind=BUNDLE, precision="int4"),
    Contender(name=EAGER_NAME, form=OURS, kind=EAGER),
    Contender(name=COMPILED_NAME, form=OURS, kind=COMPILED),
    Contender(name="llama.cpp f32", form="f32.gguf", peer="llama_cpp"),
    Contender(name="llama.cpp q8_0", form="q8_0.gguf", peer="llama_cpp", precision="int8"),
    Contender(name="llama.cpp q4_0", form="q4_0.gguf", peer="llama_cpp", precision="int4"),
    Contender(
        name="llama.cpp q4_0, two tables", form="q4_0-two-tables.gguf", peer="llama_cpp", precision="int4"
    ),
    Contender(name="genai fp32", form="gpt-onnx-fp32", peer="genai"),
    Contender(name="genai int4, head int4", form="gpt-onnx-int4-head-int4", peer="genai", precision="int4"),
    Contender(name="OpenVINO fp32", form="openvino-fp32", peer="openvino"),
    Contender(name="OpenVINO int8", form="openvino-int8", peer="openvino", precision="int8"),
    Contender(
        name="CTranslate2 fp32", form="ctranslate2-float32", peer="ctranslate2", options={"form": "float32"}
    ),
    Contender(
        name="CTranslate2 int8",
        form="ctranslate2-int8",
        peer="ctranslate2",
        precision="int8",
        options={"form": "int8"},
    ),
    Contender(name="optimum fp32", form="optimum", peer="optimum"),
)
