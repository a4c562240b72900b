"""On which provider each node of a bundle really ran, as ONNX Runtime's profile tells.

    nodes = placement("bundle", provider="cuda")
    strays = floats_off(nodes, "CUDAExecutionProvider")      # empty: all arithmetic ran on the card

ONNX Runtime puts nodes that a provider lacks on the CPU without a word; integer arithmetic on shapes it puts
there on purpose.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .engine import OnnxGPT
from .providers import AUTO
from .sampling import Sampling

FLOATS = frozenset({"float", "float16", "bfloat16", "double"})
PROMPT, NEW_TOKENS = (0, 0, 0), 3
_KERNEL = "_kernel_time"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedNode:
    """One node that ran."""

    name: str
    op: str
    provider: str
    """ONNX Runtime's name of the provider."""
    is_float: bool
    """Whether any of its outputs are floating-point numbers."""


def _node(event: dict[str, Any]) -> PlacedNode:
    details = event["args"]
    types = {kind for output in details.get("output_type_shape", ()) for kind in output}
    return PlacedNode(
        name=event["name"].removesuffix(_KERNEL),
        op=details.get("op_name", ""),
        provider=details.get("provider", ""),
        is_float=bool(types & FLOATS),
    )


def read_profile(path: Path) -> Iterator[PlacedNode]:
    """Yield the nodes that a profile of ONNX Runtime recorded, once for each time they ran."""
    for event in json.loads(path.read_text(encoding="utf-8")):
        if event.get("cat") == "Node" and event["name"].endswith(_KERNEL):
            yield _node(event)


def placement(path: str | Path, provider: str = AUTO, threads: int | None = None) -> tuple[PlacedNode, ...]:
    """Load a bundle, generate a few tokens, and return each node that ran, once.

    Raises:
        BundleError: if the bundle is not as it should be.
        ProviderError: if the provider is not to be had.
    """
    with tempfile.TemporaryDirectory() as folder:
        engine = OnnxGPT.load(path, provider, threads, profile=Path(folder) / "profile")
        prompt = PROMPT[: max((engine.limit or len(PROMPT) + NEW_TOKENS) - NEW_TOKENS, 1)]
        engine.generate([prompt], NEW_TOKENS, Sampling(temperature=0.0), ignore_eos=True)
        nodes = [node for profile in engine.end_profiles() for node in read_profile(profile)]
    return tuple(dict.fromkeys(nodes))


def floats_off(nodes: Iterable[PlacedNode], provider: str) -> tuple[PlacedNode, ...]:
    """Return the nodes that computed floating-point numbers elsewhere than on ``provider``."""
    return tuple(node for node in nodes if node.is_float and node.provider != provider)
