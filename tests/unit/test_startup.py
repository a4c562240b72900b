"""From the start of a process to the first token: nothing unused is imported, and weights are mapped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

UNUSED = {
    "asyncio",
    "concurrent.futures",
    "email",
    "http",
    "importlib.metadata",
    "logging",
    "onnx",
    "rich",
    "shutil",
    "socket",
    "subprocess",
    "tempfile",
    "tokenizers",
    "torch",
    "zipfile",
}
"""What a bundle without a tokenizer needs none of; each takes from a few milliseconds to seconds."""
GENERATE = """
import sys
from gpt_onnx.cli import main
try:
    main(["generate", sys.argv[1], "--prompt-ids", "1,2,3", "-n", "1", "-s", "1"])
except SystemExit as exc:
    assert not exc.code, exc.code
"""
MAPPINGS = """
import sys
from gpt_onnx.runtime import OnnxGPT
engine = OnnxGPT.load(sys.argv[1], threads=1)
print(sum(line.rstrip().endswith("model.onnx_data") for line in open("/proc/self/maps")))
"""


def run(code: str, bundle: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, str(bundle)], capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout


def test_generating_imports_nothing_that_it_does_not_use(tiny_bundle: Any) -> None:
    code = GENERATE + f"print(*sorted(set(sys.modules) & {UNUSED}))"
    token, imported = run(code, tiny_bundle().path).splitlines()
    assert (token.isdigit(), imported) == (True, "")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells what is mapped")
def test_weights_are_mapped_and_not_read(tiny_bundle: Any) -> None:
    assert int(run(MAPPINGS, tiny_bundle().path)) >= 1
