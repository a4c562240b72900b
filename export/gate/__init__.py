"""The parity gate: does the graph compute what the original program computes, and how do we know?

    run_gate(folder, reference) -> GateReport      drives gpt_onnx.runtime over the bundle
    gate_engine(engine, reference) -> GateReport   the same for one that is loaded
    gate_against(bundle, source) -> GateReport     the same for a bundle that exists and a source on the disk
    write_reference(folder, report)                reference.safetensors, for devices without PyTorch

docs/parity.md says what is compared and how far apart two computations of the same numbers may be.
"""

from __future__ import annotations

from .against import gate_against
from .cases import LEVELS
from .foreign import ModuleReference, logits_in
from .gate import Progress, gate_engine, run_gate
from .ours import GptReference
from .quantized import quantized_reference, reference_for
from .reference import Reference
from .report import GateReport, Outcome, Row
from .stored import write_reference

__all__ = [
    "LEVELS",
    "GateReport",
    "GptReference",
    "ModuleReference",
    "Outcome",
    "Progress",
    "Reference",
    "Row",
    "gate_against",
    "gate_engine",
    "logits_in",
    "quantized_reference",
    "reference_for",
    "run_gate",
    "write_reference",
]
