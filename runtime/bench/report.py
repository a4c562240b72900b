"""What a measurement found: one frozen record, for tables, plots, JSON and tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .agreement import Agreement
from .environment import Environment
from .plan import BenchPlan
from .statistics import Paired, Summary
from .traffic import Traffic

FORMAT_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Versus:
    """One contender beside the baseline at one point."""

    decode: Paired
    """Time of a step."""
    ttft: Paired
    """Time to the first token."""
    tokens: Agreement
    """Whether both chose the same tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptReport:
    """One contender with so many sequences after prompts of so many tokens."""

    prompt_tokens: int
    """Context of the first step; the last one has ``new_tokens`` - 2 more."""
    batch_size: int
    ttft_ms: Summary
    """From a prompt to the first new token: prefill, head and choice."""
    step_ms: Summary
    """From one token to the next, over all steps of all rounds."""
    decode_tokens_per_s: float
    """Sequences divided by the median step."""
    ttft_rounds_ms: tuple[float, ...]
    """One a round: what ratios between any two contenders are made of."""
    step_rounds_ms: tuple[float, ...]
    """The median of each round."""
    traffic: Traffic | None = None
    """None where it is not known what a step reads."""
    versus: Versus | None = None
    """None for the baseline itself, and where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContenderReport:
    """One contender."""

    name: str
    kind: str
    """One of the kinds of entrants."""
    source: str
    """What was loaded, as it was named."""
    device: str
    versions: Mapping[str, str]
    """Of the packages that computed in it."""
    details: Mapping[str, Any]
    """What it is: target, layout and precision of a bundle; the cache of the PyTorch program."""
    file_bytes: int | None
    """Everything that it needs on disk; None where it is not known."""
    kl: float | None
    """Mean Kullback-Leibler divergence from float32, nats a token, as its export measured it."""
    start_ms: Summary
    """From the start of a fresh process until it takes a prompt: interpreter, imports, load."""
    load_ms: Summary
    """Of that: from the files (verified, if a bundle) to a model in memory; no imports."""
    resident_bytes: int | None
    """Memory of the whole process after loading; None where the system does not tell."""
    peak_resident_bytes: int | None
    """Most memory of the whole process so far: interpreter, libraries, weights, cache and work space."""
    prompts: Sequence[PromptReport]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySpeed:
    """How fast this machine's memory was read, in turns with the contenders."""

    array_bytes: int
    """What was read again and again; a small array may stay in the processor's caches."""
    gb_per_s: float
    """1e9 bytes a second, of the median pass."""
    best_gb_per_s: float
    """Of the fastest pass."""
    kernel: str
    """The fastest way to read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """All contenders, and where and how they were measured."""

    plan: BenchPlan
    environment: Environment
    contenders: Sequence[ContenderReport]
    notes: Sequence[str]
    """Sentences on what was done otherwise than asked."""
    baseline: str | None = None
    """The contender that the others are compared with."""
    memory: Sequence[MemorySpeed] = ()
    """By size of the array; the largest is far larger than the processor's caches."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Peers that could not be measured, and why."""

    def to_json(self) -> dict[str, Any]:
        """Return the whole report in types of JSON."""
        return {"format": "gpt-onnx bench", "format_version": FORMAT_VERSION, **dataclasses.asdict(self)}
