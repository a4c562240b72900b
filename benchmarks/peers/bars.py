"""What must hold between contenders of one run, as ratios, and whether it does.

Times are divided round by round, as in gpt_onnx.runtime.bench.statistics, so that a busy moment of the
machine slows both sides; "the best" is whoever has the least median among those named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.peers.contenders import CONTENDERS
from gpt_onnx.runtime.bench.entrant import PEER
from gpt_onnx.runtime.bench.entrants import COMPILED_NAME, EAGER_NAME
from gpt_onnx.runtime.bench.report import BenchReport, ContenderReport, PromptReport
from gpt_onnx.runtime.bench.statistics import Paired

FP32, INT8, INT4 = "gpt-onnx-fp32", "gpt-onnx-int8", "gpt-onnx-int4"
SMALL = "gpt-onnx-int4-head-int4"
Q4_0, TWO_TABLES = "llama.cpp q4_0", "llama.cpp q4_0, two tables"
PYTORCH = (EAGER_NAME, COMPILED_NAME)
PEERS = tuple(one.name for one in CONTENDERS if one.kind == PEER)
FP32_PEERS = tuple(one.name for one in CONTENDERS if one.kind == PEER and one.precision == "fp32")
SHORT, LONG = 128, 900
DECODE, PREFILL, FILE, MEMORY = "decode", "prefill", "file", "peak memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One ratio: how many times faster, or how many times as large."""

    what: str
    ours: str
    theirs: tuple[str, ...]
    """Whoever is the best of them."""
    wanted: float
    """The least that it must be, of a speed; the most, of a size."""
    prompt_tokens: int | None = None
    """None for a size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of a bar."""

    bar: Bar
    against: str
    """Who was the best."""
    ratio: float
    low: float
    """Of the interval of the ratio."""
    high: float
    is_met: bool


def _speeds(what: str, ours: str, theirs: tuple[str, ...], short: float, long: float) -> tuple[Bar, Bar]:
    bars = [
        Bar(what=what, ours=ours, theirs=theirs, wanted=wanted, prompt_tokens=length)
        for length, wanted in ((SHORT, short), (LONG, long))
    ]
    return bars[0], bars[1]


BARS = (
    *_speeds(DECODE, FP32, (EAGER_NAME,), 1.9, 1.9),
    *_speeds(DECODE, FP32, FP32_PEERS, 1.0, 1.0),
    *_speeds(DECODE, INT8, ("llama.cpp q8_0",), 1.3, 1.15),
    *_speeds(DECODE, INT4, (Q4_0,), 1.45, 1.25),
    *_speeds(DECODE, SMALL, (Q4_0,), 1.45, 1.25),
    *_speeds(DECODE, SMALL, ("genai int4, head int4",), 1.0, 1.0),
    *_speeds(PREFILL, FP32, (*FP32_PEERS, *PYTORCH), 1.1, 1.1),
    *_speeds(PREFILL, INT8, PEERS, 1.0, 1.0),
    *_speeds(PREFILL, INT4, PEERS, 1.0, 1.0),
    *_speeds(PREFILL, SMALL, PEERS, 1.0, 1.0),
    *(
        Bar(what=what, ours=ours, theirs=(theirs,), wanted=wanted)
        for what, wanted in ((FILE, 0.65), (MEMORY, 0.75))
        for ours in (INT4, SMALL)
        for theirs in (TWO_TABLES, Q4_0)
    ),
)

ROUNDS: Mapping[str, Callable[[PromptReport], Sequence[float]]] = {
    DECODE: lambda prompt: prompt.step_rounds_ms,
    PREFILL: lambda prompt: prompt.ttft_rounds_ms,
}
MEDIANS: Mapping[str, Callable[[PromptReport], float]] = {
    DECODE: lambda prompt: prompt.step_ms.median,
    PREFILL: lambda prompt: prompt.ttft_ms.median,
}
SIZES: Mapping[str, Callable[[ContenderReport], int | None]] = {
    FILE: lambda contender: contender.file_bytes,
    MEMORY: lambda contender: contender.peak_resident_bytes,
}


def _speed(bar: Bar, contenders: Mapping[str, ContenderReport]) -> Verdict | None:
    prompts = {
        name: prompt
        for name, contender in contenders.items()
        for prompt in contender.prompts
        if prompt.prompt_tokens == bar.prompt_tokens and prompt.batch_size == 1
    }
    rivals = [name for name in bar.theirs if name in prompts]
    if bar.ours not in prompts or not rivals:
        return None
    best = min(rivals, key=lambda name: MEDIANS[bar.what](prompts[name]))
    rounds = ROUNDS[bar.what]
    found = Paired.of(rounds(prompts[best]), rounds(prompts[bar.ours]))
    met = found.ratio >= bar.wanted
    return Verdict(bar=bar, against=best, ratio=found.ratio, low=found.low, high=found.high, is_met=met)


def _size(bar: Bar, contenders: Mapping[str, ContenderReport]) -> Verdict | None:
    known = {name: size for name, one in contenders.items() if (size := SIZES[bar.what](one)) is not None}
    rivals = [name for name in bar.theirs if name in known]
    if bar.ours not in known or not rivals:
        return None
    best = min(rivals, key=known.__getitem__)
    ratio = known[bar.ours] / known[best]
    return Verdict(bar=bar, against=best, ratio=ratio, low=ratio, high=ratio, is_met=ratio <= bar.wanted)


def judge(report: BenchReport, bars: Sequence[Bar] = BARS) -> list[Verdict]:
    """Return what came of each bar whose contenders were measured."""
    contenders = {contender.name: contender for contender in report.contenders}
    found = [(_size if bar.what in SIZES else _speed)(bar, contenders) for bar in bars]
    return [verdict for verdict in found if verdict is not None]
