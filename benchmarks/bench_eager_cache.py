"""How does eager PyTorch decode fastest: a cache written in place, or torch.cat; fused attention, or by hand?

    python benchmarks/bench_eager_cache.py [SOURCE]

The variants take turns, generation by generation, in one process; all are bound by the same matrix products.
Prints a table and one JSON object on the last line. The fastest is what ``gpt-onnx bench`` compares with.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from rich.table import Table
from torch import Tensor
from torch.nn import functional as F

from gpt_onnx.checkpoint import find_shipped
from gpt_onnx.cli._console import print_tables
from gpt_onnx.eager import EagerGPT, InPlaceAttention
from gpt_onnx.eager_contender import load_eager
from gpt_onnx.model.attention import (
    AttentionForm,
    Heads,
    KeyValue,
    SdpaAttention,
    append,
    merge_heads,
    share_heads,
    split_heads,
)
from gpt_onnx.runtime.bench.contender import run_burst
from gpt_onnx.runtime.bench.environment import describe
from gpt_onnx.runtime.bench.plan import BenchPlan
from gpt_onnx.runtime.bench.statistics import Paired, Summary


class ByHand(InPlaceAttention):
    """In place, but a single token's attention is two matrix products and a softmax."""

    def __call__(self, qkv: Tensor, past: KeyValue | None, heads: Heads) -> tuple[Tensor, KeyValue]:
        """See AttentionForm."""
        if qkv.shape[1] > 1:
            return super().__call__(qkv, past, heads)
        assert past is not None
        query, key, value = split_heads(qkv, heads)
        for buffer, new in zip(past, (key, value), strict=True):
            buffer[:, :, self.length : self.length + 1] = new
        keys, values = (share_heads(part[:, :, : self.length + 1], heads.group_size) for part in past)
        scores = (query * heads.scale) @ keys.transpose(-1, -2)
        return merge_heads(torch.softmax(scores, dim=-1) @ values), past


class Concatenating:
    """The cache is what the last step returned; every step copies it into a longer one."""

    def __init__(self, length: int, bias: Tensor | None = None) -> None:
        assert bias is None
        self.length = length

    def __call__(self, qkv: Tensor, past: KeyValue | None, heads: Heads) -> tuple[Tensor, KeyValue]:
        """See AttentionForm."""
        if self.length == 0:
            return SdpaAttention()(qkv, None, heads)
        assert past is not None
        query, key, value = split_heads(qkv, heads)
        present = append(past, key, value)
        out = F.scaled_dot_product_attention(query, *present, enable_gqa=heads.group_size > 1)
        return merge_heads(out), present


IN_PLACE = "in place, fused"
VARIANTS: Mapping[str, Callable[[int, Tensor | None], AttentionForm]] = {
    IN_PLACE: InPlaceAttention,
    "in place, by hand": ByHand,
    "torch.cat, fused": Concatenating,
}


def medians(models: Mapping[str, EagerGPT], plan: BenchPlan, length: int) -> dict[str, list[float]]:
    """Return the median step in ms of each variant, one a round."""
    rows = plan.rows(length, models[IN_PLACE].gpt.config.vocab_size)
    found: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(plan.repetitions):
        names = list(models)[turn % len(models) :] + list(models)[: turn % len(models)]
        for name in names:
            burst = run_burst(models[name], rows, plan.new_tokens)
            found[name].append(Summary.of(burst.step_ms).median)
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", nargs="?", type=Path, help="default: the model that ships")
    parser.add_argument("--prompt-tokens", default="16,128,448", metavar="N,N", help="default: %(default)s")
    parser.add_argument("-n", "--new-tokens", type=int, default=48, help="default: %(default)s")
    parser.add_argument("-r", "--repetitions", type=int, default=20, help="default: %(default)s")
    parser.add_argument("-t", "--threads", type=int, default=1, help="default: %(default)s")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    source = arguments.source or find_shipped()
    if source is None:
        sys.exit("There is no model here that ships; name a checkpoint.")
    torch.set_num_threads(arguments.threads)
    loaded = load_eager(str(source))
    assert isinstance(loaded, EagerGPT)
    models = {name: EagerGPT(loaded.gpt, make_attention=make) for name, make in VARIANTS.items()}
    lengths = tuple(int(length) for length in arguments.prompt_tokens.split(","))
    plan = BenchPlan(new_tokens=arguments.new_tokens, repetitions=arguments.repetitions)
    table = Table("variant", "prompt", "step ms (p90)", "time beside in place, fused")
    results = []
    for length in lengths:
        found = medians(models, plan, length)
        for name, steps in found.items():
            summary, ratio = Summary.of(steps), Paired.of(steps, found[IN_PLACE]).ratio
            table.add_row(name, str(length), f"{summary.median:.3f} ({summary.p90:.3f})", f"{ratio:.3f}")
            results.append(
                {"variant": name, "prompt_tokens": length, "step_ms": asdict(summary), "ratio": ratio}
            )
    print_tables(table, width=120)
    environment = asdict(describe(arguments.threads)) | {"torch": torch.__version__}
    print(", ".join(f"{name}: {value}" for name, value in environment.items()))
    print(json.dumps({"results": results, "environment": environment}))


if __name__ == "__main__":
    main()
