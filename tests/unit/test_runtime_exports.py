"""What ``gpt_onnx.runtime`` offers, and what importing it does not bring along."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from gpt_onnx import runtime

HEAVY = ("torch", "onnx", "onnx_ir", "onnxscript", "safetensors", "onnxruntime", "numpy", "tokenizers")


def test_exported_names_are_these_and_all_exist() -> None:
    assert runtime.__all__ == ["Generation", "OnnxGPT", "Sampling", "TextGPT", "load"]
    assert all(hasattr(runtime, name) for name in runtime.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"'gpt_onnx\.runtime' has no attribute 'nothing'"):
        runtime.nothing  # noqa: B018


def loaded_after(statement: str) -> list[str]:
    code = f"{statement}; import sys; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    return done.stdout.split()


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert loaded_after("import gpt_onnx.runtime, gpt_onnx.cli.generate") == []


def test_text_needs_numpy_alone_until_a_bundle_is_loaded() -> None:
    assert loaded_after("import gpt_onnx.runtime.text") == ["numpy"]


def test_the_engine_names_no_text_and_no_training_package() -> None:
    assert "tokenizers" not in loaded_after("import gpt_onnx.runtime.engine")
    assert not {"torch", "onnx"} & set(loaded_after("import gpt_onnx.runtime.engine, gpt_onnx.runtime.text"))


def test_the_folder_is_not_a_package_of_its_own() -> None:
    spec = importlib.util.spec_from_file_location("runtime", runtime.__file__)
    assert spec is not None
    assert spec.loader is not None
    with pytest.raises(ImportError, match=r"import gpt_onnx\.runtime"):
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
