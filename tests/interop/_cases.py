"""The bundles that every client is held to: model, precision and target.

@every_bundle
def test_greedy_text_is_as_the_table_says(bundles, name, precision, target): ...

Whether a client runs one is for the table of clients to say, and for the test to see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.interop._models import NAMES

TARGETS: Mapping[str, tuple[str, ...]] = {
    "fp32": ("cpu", "web", "portable"),
    "fp16": ("web", "portable"),
    "int8": ("cpu", "web", "portable"),
    "int4": ("cpu", "web", "portable"),
}
"""Precision to the targets that have it."""
MODELS: Mapping[str, tuple[str, ...]] = {"int8": ("sinusoidal",)}
"""Precision to its models, where those are not all; int8 differs from int4 in its bytes alone."""
CASES = [
    (name, precision, target)
    for precision, targets in TARGETS.items()
    for target in targets
    for name in MODELS.get(precision, NAMES)
]
FROZEN = [
    *((name, "fp32", target) for target in ("cpu", "portable") for name in NAMES),
    ("gpt2", "fp16", "portable"),
    ("llama", "int4", "portable"),
    ("sinusoidal", "int4", "cpu"),
]
"""Of these, bundles of frozen lengths are made, too."""
SLOTS = 128
"""Their length: the prompts and what is written after them."""
every_bundle = pytest.mark.parametrize(("name", "precision", "target"), CASES)


def exact(precision: str) -> dict[str, Any]:
    """Return the options of an export for clients that never round activations to int8."""
    return {"accuracy_level": 0} if precision.startswith("int") else {}


every_frozen_bundle = pytest.mark.parametrize(("name", "precision", "target"), FROZEN)
