"""Measure bundles, one beside another and beside the PyTorch program that they came from.

    from gpt_onnx.runtime.bench import BenchPlan, bench
    report = bench(["bundle"], against="models/sotu", plan=BenchPlan(repetitions=5))
    report.to_json()

Every contender runs in a process of its own and gets the same token ids. They take turns, burst by burst, so
that what disturbs the machine disturbs them alike, and whoever's turn it is not is stopped, so that its
threads cannot spin beside the one that is measured.

Neither torch nor onnx is imported here; the PyTorch contender lives in gpt_onnx.eager and is started by name.
"""

from __future__ import annotations

from .compare import bench
from .plan import BenchPlan
from .report import BenchReport, ContenderReport, PromptReport

__all__ = ["BenchPlan", "BenchReport", "ContenderReport", "PromptReport", "bench"]
