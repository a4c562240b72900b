"""Measure bundles, one beside another and beside the PyTorch program that they came from.

    from gpt_onnx.runtime.bench import BenchPlan, bench
    report = bench(["bundle"], against="models/sotu", plan=BenchPlan(repetitions=5))
    report.to_json()

Every contender runs in a process of its own and gets the same token ids. They take turns, burst by burst, so
that what disturbs the machine disturbs them alike, and whoever's turn it is not is stopped, so that its
threads cannot spin beside the one that is measured.

Neither torch nor onnx is imported here; the PyTorch contender, gpt_onnx.eager_contender, is started by name.
A contender of anybody's is a program under any Python: Program, Entrant, read_peers.
"""

from __future__ import annotations

from .compare import bench
from .entrant import Entrant, Program
from .peers import read_peers
from .plan import BenchPlan
from .report import BenchReport, ContenderReport, PromptReport

__all__ = [
    "BenchPlan",
    "BenchReport",
    "ContenderReport",
    "Entrant",
    "Program",
    "PromptReport",
    "bench",
    "read_peers",
]
