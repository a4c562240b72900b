"""What a measurement found: one frozen record, for tables, JSON and tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .agreement import Agreement
from .environment import Environment
from .plan import BenchPlan
from .statistics import Paired, Summary

FORMAT_VERSION = 1
BUNDLE, EAGER = "bundle", "eager"


@dataclass(frozen=True, slots=True, kw_only=True)
class Versus:
    """One contender beside eager PyTorch at one length of prompt."""

    decode: Paired
    """Time of a step."""
    ttft: Paired
    """Time to the first token."""
    tokens: Agreement
    """Whether both chose the same tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptReport:
    """One contender at one length of prompt."""

    prompt_tokens: int
    ttft_ms: Summary
    """From a prompt to the first new token: prefill, head and choice."""
    step_ms: Summary
    """From one token to the next, over all steps of all rounds."""
    decode_tokens_per_s: float
    """Rows divided by the median step."""
    versus_eager: Versus | None = None
    """None for eager PyTorch itself, and where it was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContenderReport:
    """One contender."""

    name: str
    kind: str
    """BUNDLE or EAGER."""
    source: str
    """What was loaded, as it was named."""
    device: str
    details: Mapping[str, Any]
    """What it is: target, layout and precision of a bundle; the cache of the PyTorch program."""
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
class BenchReport:
    """All contenders, and where and how they were measured."""

    plan: BenchPlan
    environment: Environment
    contenders: Sequence[ContenderReport]
    notes: Sequence[str]
    """Sentences on what was done otherwise than asked."""

    def to_json(self) -> dict[str, Any]:
        """Return the whole report in types of JSON."""
        return {"format": "gpt-onnx bench", "format_version": FORMAT_VERSION, **dataclasses.asdict(self)}
