"""How far from float32 is each way to store the weights in few bits, and what does it cost in bytes?

    python benchmarks/bench_quantizers.py                  # the model that ships, on the excerpts that ship
    python benchmarks/bench_quantizers.py my-checkpoint --calibration my-text.txt --only "int4 gptq 128"

Weights are quantised, dequantised and put back into the eager model, so that nothing but their rounding is
measured (an exported graph rounds activations as well). Calibration and measured text share no token.
llama.cpp's formats are computed as its reference quantisers do (ggml-quants.c): Q4_0 with the table in Q6_K,
as its quantise tool stores a model whose head is tied, and Q8_0.
Prints a table and one JSON object on the last line.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table
from torch import Tensor

from gpt_onnx.checkpoint import Checkpoint, find_shipped, load_model, read_checkpoint
from gpt_onnx.cli._console import print_tables
from gpt_onnx.errors import GptOnnxError
from gpt_onnx.export.quality_texts import Texts, calibration_sequences, read_texts
from gpt_onnx.export.quantize.calibrate import HEAD, TABLE, calibrated
from gpt_onnx.export.quantize.grid import Grid
from gpt_onnx.export.quantize.quantized import Quantized
from gpt_onnx.export.quantize.quantizers import find_quantizer, quantize
from gpt_onnx.model import GPT
from gpt_onnx.runtime.quality import Comparison, ComparisonMeter

Floats = NDArray[np.float32]
WINDOW = 512


@dataclass(frozen=True, slots=True)
class Stored:
    """Weights as they are computed with, and what they cost."""

    weights: Mapping[str, Floats]
    size: int
    """Bytes, scales and zero points included."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to store a model."""

    name: str
    store: Callable[[GPT, list[list[int]]], Stored]


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of it."""

    name: str
    size: int
    seconds: float
    quality: Comparison

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return {"name": self.name, "bytes": self.size, "seconds": self.seconds} | self.quality.to_json()


def matrices(gpt: GPT) -> dict[str, Floats]:
    """All weights that an export quantises."""
    return {
        name: weight.detach().numpy()
        for name, weight in gpt.named_parameters()
        if weight.ndim == 2 and not name.startswith("wpe.")
    }


def half(values: NDArray[Any]) -> Floats:
    return values.astype(np.float16).astype(np.float32)


def q4_0(weight: Floats) -> tuple[Floats, float]:
    """llama.cpp's quantize_row_q4_0_ref: 32 numbers share d = peak / -8 in half precision."""
    blocks = weight.reshape(-1, 32)
    peak = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)
    d = peak / -8
    inverse = np.divide(1, d, out=np.zeros_like(d), where=d != 0)
    q = np.minimum(15, np.trunc(blocks * inverse + 8.5))
    return ((q - 8) * half(d)).reshape(weight.shape), 18 / 32


def q8_0(weight: Floats) -> tuple[Floats, float]:
    """llama.cpp's quantize_row_q8_0_ref: 32 numbers share d = largest size / 127 in half precision."""
    blocks = weight.reshape(-1, 32)
    d = np.abs(blocks).max(axis=1, keepdims=True) / 127
    inverse = np.divide(1, d, out=np.zeros_like(d), where=d != 0)
    return (np.rint(blocks * inverse) * half(d)).reshape(weight.shape), 34 / 32


def q6_k_scales(groups: Floats) -> Floats:
    """llama.cpp's make_qx_quants with rmse_type 1: of 19 scales the one of least error weighted by w^2."""
    peak = np.take_along_axis(groups, np.abs(groups).argmax(axis=-1)[..., None], axis=-1)
    safe = np.where(peak == 0, 1, peak)
    best, scales = np.full(peak.shape, -1.0), np.zeros(peak.shape)
    for step in range(-9, 10):
        q = np.clip(np.rint(-(32 + 0.1 * step) / safe * groups), -32, 31)
        weight = groups.astype(np.float64) ** 2
        along = (weight * groups * q).sum(axis=-1, keepdims=True)
        square = np.maximum((weight * q * q).sum(axis=-1, keepdims=True), 1e-300)
        gain = along * along / square
        scales = np.where(gain > best, along / square, scales)
        best = np.maximum(best, gain)
    return scales.astype(np.float32)


def q6_k(weight: Floats) -> tuple[Floats, float]:
    """llama.cpp's quantize_row_q6_K_ref: 16 groups of 16 share a half-precision scale of 8-bit scales."""
    groups = weight.reshape(-1, 16, 16)
    scales = q6_k_scales(groups)
    peak = np.take_along_axis(scales, np.abs(scales).argmax(axis=1)[:, None], axis=1)
    d = np.where(peak == 0, 1, peak / -128)
    scales = half(d) * np.minimum(127, np.rint(scales / d))
    q = np.clip(np.rint(groups / np.where(scales == 0, 1, scales)), -32, 31)
    return (q * scales).reshape(weight.shape), 210 / 256


Format = Callable[[Floats], tuple[Floats, float]]


def llama(name: str, layers: Format, table: Format) -> Contender:
    """Store a model in a format of llama.cpp."""

    def format_of(name: str) -> Format:
        return table if name in (TABLE, HEAD) else layers

    def store(gpt: GPT, _: list[list[int]]) -> Stored:
        kept = matrices(gpt)
        done = {name: format_of(name)(weight) for name, weight in kept.items()}
        size = sum(kept[name].size * per_weight for name, (_, per_weight) in done.items())
        return Stored({name: weight for name, (weight, _) in done.items()}, round(size))

    return Contender(name, store)


def stored_bytes(weight: Quantized) -> int:
    parts = (weight.packed, weight.scales, weight.zero_points)
    return sum(part.nbytes for part in parts if part is not None)


def ours(quantizer: str, grid: Grid, head_bits: int | None) -> Contender:
    """Store a model as an export does."""
    table = (
        None
        if head_bits is None
        else Grid(bits=head_bits, block_size=grid.block_size, symmetric=grid.symmetric)
    )

    def store(gpt: GPT, sequences: list[list[int]]) -> Stored:
        kept = matrices(gpt)
        asked = {name: table if name in (TABLE, HEAD) else grid for name in kept}
        grids = {name: found for name, found in asked.items() if found is not None}
        if find_quantizer(quantizer).calibrated:
            done = calibrated(gpt.config, gpt.get_parameter, grids, sequences, quantizer=quantizer)
        else:
            done = {name: quantize(quantizer, kept[name], grid) for name, grid in grids.items()}
        floats = sum(weight.nbytes for name, weight in kept.items() if name not in done)
        size = floats + sum(stored_bytes(each) for each in done.values())
        return Stored({name: q.dequantized() for name, q in done.items()}, size)

    kind = "symmetric" if grid.symmetric else "asymmetric"
    head = "fp32" if head_bits is None else f"int{head_bits}"
    return Contender(f"int{grid.bits} {quantizer} {grid.block_size} {kind}, head {head}", store)


def contenders() -> Iterator[Contender]:
    yield llama("llama.cpp Q4_0, head Q6_K", q4_0, q6_k)
    yield llama("llama.cpp Q8_0", q8_0, q8_0)
    coarse, fine = Grid(bits=4, block_size=128), Grid(bits=4, block_size=32)
    for grid in (coarse, fine):
        for quantizer in ("gptq", "hqq", "rtn"):
            yield ours(quantizer, grid, 8)
        yield ours("gptq", grid, 4)
    yield ours("gptq", Grid(bits=4, block_size=64), 8)
    yield ours("hqq", Grid(bits=4, block_size=64), 8)
    yield ours("gptq", Grid(bits=4, block_size=128, symmetric=True), 8)
    yield ours("hqq", coarse, 4)
    yield ours("gptq", coarse, None)
    for quantizer in ("rtn", "hqq", "gptq"):
        yield ours(quantizer, Grid(bits=8, block_size=128, symmetric=True), 8)
    yield ours("rtn", Grid(bits=8, block_size=128), 8)
    yield ours("rtn", Grid(bits=8, block_size=32, symmetric=True), 8)


def windows(texts: Texts) -> list[tuple[Tensor, NDArray[np.int64]]]:
    """Cut the measured text into windows and the tokens that follow each of theirs."""
    ids = np.asarray(texts.quality.ids, np.int64)
    starts = range(0, len(ids) - 1, WINDOW)
    cuts = [(ids[start : start + WINDOW], ids[start + 1 : start + 1 + WINDOW]) for start in starts]
    return [(torch.tensor(seen[: len(following)])[None], following) for seen, following in cuts]


@torch.inference_mode()
def logits(gpt: GPT, ids: Tensor) -> Floats:
    out: Floats = gpt(ids)[0][0].numpy()
    return out


def cells(row: Row) -> list[str]:
    kl, ratio = row.quality.kl, row.quality.ln_ratio.exp()
    return [
        row.name,
        f"{row.size / 1e6:.2f}",
        f"{kl.mean.value:.5f} ± {kl.mean.error:.5f}",
        f"{kl.p99:.4f}",
        f"x {ratio.value:.4f} ± {ratio.error:.4f}",
        f"{row.quality.same_top.value:.2%}",
        f"{row.seconds:.1f}",
    ]


def shown(rows: list[Row]) -> Table:
    table = Table("weights", "MB", "KL mean", "99 %", "perplexity", "same top", "s")
    for row in rows:
        table.add_row(*cells(row))
    return table


def measure(gpt: GPT, texts: Texts, sequences: list[list[int]], only: list[str]) -> Iterator[Row]:
    parts = windows(texts)
    base = [logits(gpt, ids) for ids, _ in parts]
    for contender in contenders():
        if not any(part in contender.name for part in only):
            continue
        start = time.perf_counter()
        stored = contender.store(gpt, sequences)
        seconds = time.perf_counter() - start
        test, meter = copy.deepcopy(gpt), ComparisonMeter()
        for name, weight in stored.weights.items():
            test.get_parameter(name).data = torch.from_numpy(weight)
        for (ids, following), expected in zip(parts, base, strict=True):
            meter.add(expected, logits(test, ids), following)
        row = Row(contender.name, stored.size, seconds, meter.result())
        print(*cells(row), sep=" | ", file=sys.stderr, flush=True)
        yield row


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", nargs="?", type=Path, help="a checkpoint; default: the model that ships")
    parser.add_argument(
        "--calibration", type=Path, metavar="FILE", help="text; default: the excerpts that ship"
    )
    parser.add_argument("--tokens", type=int, default=32768, help="of calibration; default: %(default)s")
    parser.add_argument("--only", nargs="*", default=[""], help="contenders whose names contain one of these")
    return parser.parse_args()


def prepare(arguments: argparse.Namespace) -> tuple[Checkpoint, Texts]:
    source = arguments.source or find_shipped()
    if source is None:
        sys.exit("There is no model here that ships; name a checkpoint.")
    checkpoint = read_checkpoint(source)
    vocab_size = checkpoint.config.vocab_size
    return checkpoint, read_texts(checkpoint.tokenizer, vocab_size, arguments.calibration, calibrates=True)


def main() -> None:
    arguments = parse()
    try:
        checkpoint, texts = prepare(arguments)
        gpt = load_model(checkpoint)
        length = min(WINDOW, checkpoint.config.context_length)
        sequences = [row.tolist() for row in calibration_sequences(texts, length)]
        sequences = sequences[: max(1, arguments.tokens // length)]
        rows = list(measure(gpt, texts, sequences, arguments.only))
    except GptOnnxError as exc:
        sys.exit(f"Error: {exc}")
    print_tables(shown(rows), width=130)
    tokens = rows[0].quality.base.tokens
    print(f"{checkpoint.name}: {tokens:,} tokens of {texts.name}; torch {torch.__version__}")
    print(json.dumps({"model": checkpoint.name, "rows": [row.to_json() for row in rows]}))


if __name__ == "__main__":
    main()
