"""The targets: one frozen entry each; a new target is a new entry.

A target says in which form attention is written, which opset and IR version the graph has, and where it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import ConfigError

IR_VERSIONS: Mapping[int, int] = {17: 8, 18: 8, 19: 9, 20: 9, 21: 10}
"""Opset to the version of the file format that came with it; 10 loads on every ONNX Runtime from 1.19."""
STANDARD = ""
MICROSOFT = "com.microsoft"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a graph is made for."""

    name: str
    attention: str
    """"gqa": com.microsoft::GroupQueryAttention, cache in place; "decomposed": standard operators only."""
    domains: tuple[str, ...]
    """Whose operators the graph may use; "" are the standard ones."""
    opsets: tuple[int, ...]
    """Versions of the standard operators that the graph can have, the default first."""
    head_size_multiple: int
    """The cache's head size is padded with zeros to a multiple of this."""
    padding: str
    """Where other clients may pad: "right", or "left or right"."""
    precisions: tuple[str, ...]
    """How weights can be stored (gpt_onnx.export.precisions), the default first."""
    summary: str
    integers: str = "fused"
    """How integer weights are read: a key of gpt_onnx.export.passes.FORMS."""
    float64: bool = True
    """Whether its runtimes compute in float64."""
    max_file_bytes: int | None = None
    """The largest file of weights; None: any."""
    max_tensor_bytes: int | None = None
    """The largest weight; None: any."""

    @property
    def opset(self) -> int:
        """The default."""
        return self.opsets[0]

    @property
    def fuses(self) -> bool:
        """Whether operators of com.microsoft may be used."""
        return MICROSOFT in self.domains


_CPU = Target(
    name="cpu",
    attention="gqa",
    domains=(STANDARD, MICROSOFT),
    opsets=(21,),
    head_size_multiple=8,
    padding="right",
    precisions=("fp32", "int8", "int4"),
    summary="GroupQueryAttention with one cache buffer in place, for ONNX Runtime on a CPU",
)

TARGETS: Mapping[str, Target] = {
    target.name: target
    for target in (
        _CPU,
        replace(
            _CPU,
            name="web",
            precisions=("fp32", "fp16", "int8", "int4"),
            summary="as cpu, for ONNX Runtime in a browser",
            integers="bytes",
            float64=False,  # nor has WebGPU, nor the WebAssembly that comes with it
            max_file_bytes=2_000_000_000,  # a browser's ArrayBuffer ends at 2^31 bytes
            max_tensor_bytes=2**28,  # a buffer of WebGPU, unless the device has more
        ),
        Target(
            name="portable",
            attention="decomposed",
            domains=(STANDARD,),
            opsets=(21, 20, 19, 18, 17),
            head_size_multiple=1,
            padding="left or right",
            precisions=("fp32", "fp16", "int8", "int4"),
            summary="standard operators only, for any runtime and for ONNX Runtime on CUDA",
            integers="standard",
        ),
    )
}


def find_target(name: str) -> Target:
    """Return a target by name.

    Raises:
        ConfigError: if there is no such target.
    """
    if name not in TARGETS:
        raise ConfigError(f"the target is {name!r}; known are {', '.join(TARGETS)}.")
    return TARGETS[name]


def has_score_bias(config: GPTConfig) -> bool:
    """Whether something is added to the scores, which GroupQueryAttention takes in new runtimes only."""
    return config.position == "alibi"


def fitted(target: Target, config: GPTConfig) -> Target:
    """Return the target as it is for a model: attention of standard operators where scores have a bias."""
    if not has_score_bias(config):
        return target
    return replace(target, attention="decomposed", head_size_multiple=1, padding="left or right")
