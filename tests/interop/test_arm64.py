"""The runtime alone on a 64-bit ARM, emulated: the same text as here, and the bundle's own check passes.

What it takes is emulation's, so nothing is timed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop._arm64 import Root, arm64_root, sizes
from tests.interop._known import NEW_TOKENS
from tests.interop._models import NAMES
from tests.interop.conftest import BundleMaker

PRECISIONS = ("fp32", "int8", "int4")
LIMIT = 250e6
"""Bytes that the runtime may take with all that it needs."""
FACTS = """
import importlib.util, json, platform
found = {name: importlib.util.find_spec(name) is not None for name in ("torch", "onnx", "onnxruntime")}
print(json.dumps({"machine": platform.machine(), **found}))
"""


OPTIONS = ("-n", str(NEW_TOKENS), "--temperature", "0", "--ignore-eos", "--speculate", "off", "--json")


def written(root: Root, bundle: Path, prompt: Sequence[int]) -> list[int]:
    """Return the ids that the emulated runtime writes after a prompt."""
    ids: list[int] = json.loads(
        root.run("generate", bundle, "--prompt-ids", ",".join(map(str, prompt)), *OPTIONS)
    )["ids"]
    return ids


@pytest.fixture(scope="module")
def root() -> Root:
    return arm64_root()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_greedy_text_on_arm_is_the_same_as_here(
    root: Root, bundles: BundleMaker, name: str, precision: str
) -> None:
    known = bundles(name, precision, check="quick")
    known.check([written(root, known.path, known.prompt_ids[0])])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_bundle_verifies_on_arm_without_torch(
    root: Root, bundles: BundleMaker, name: str, precision: str
) -> None:
    answer = json.loads(root.run("verify", bundles(name, precision, check="quick").path, "--json"))
    assert answer["passed"] is True
    assert answer["checked"] is True
    assert 0 < max(case["max_ratio"] for case in answer["cases"]) < 1


@pytest.mark.parametrize("target", ["web", "portable"])
def test_half_precision_on_arm_writes_the_same(root: Root, bundles: BundleMaker, target: str) -> None:
    known = bundles("gpt2", "fp16", target)
    known.check([written(root, known.path, known.prompt_ids[0])])


def test_the_machine_is_an_arm_and_has_the_runtime_alone(root: Root, bundles: BundleMaker) -> None:
    done = root.python(bundles("gpt2").path, "-c", FACTS)
    expected = {"machine": "aarch64", "torch": False, "onnx": False, "onnxruntime": True}
    assert json.loads(done.stdout) == expected, done.stderr


def test_the_runtime_is_small(root: Root) -> None:
    found = sizes(root)
    assert found["onnxruntime"] > 10e6
    assert sum(found.values()) < LIMIT
