"""How much of a step is the loop, and how much is the graph? Does the cache's capacity matter?

    python benchmarks/bench_loop.py                              # exports the model that ships
    python benchmarks/bench_loop.py my-bundle another-bundle

A step is what ``engine.stream`` takes from one token to the next; beside ``run_with_iobinding`` it is Python:
ids, positions, mask, the check of the logits, the choice, and the generator that yields the token.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from gpt_onnx.checkpoint import find_shipped
from gpt_onnx.cli._console import print_tables
from gpt_onnx.export import export_bundle
from gpt_onnx.runtime import OnnxGPT, Sampling
from gpt_onnx.runtime._shared_cache import SharedCacheDecoder

WIDTH = 120
WARM = 5
SAMPLINGS: Mapping[str, Sampling] = {
    "greedy": Sampling(temperature=0.0),
    "default": Sampling(),
    "top-p": Sampling(top_k=0, top_p=0.9),
    "repetition penalty": Sampling(repetition_penalty=1.1),
}
CAPACITIES = (256, 65_536)


class Timed:
    """A session of ONNX Runtime that takes the time of its runs."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def run_with_iobinding(self, binding: Any, *options: Any) -> None:
        """Run, and add to ``seconds``."""
        started = time.perf_counter()
        self._raw.run_with_iobinding(binding, *options)
        self.seconds += time.perf_counter() - started


def steps(session: Timed, step: Callable[[], object], count: int) -> np.ndarray:
    """Return times of steps and of the runs in them, in milliseconds, (count, 2)."""
    times = []
    for _ in range(count):
        before, started = session.seconds, time.perf_counter()
        step()
        times.append((time.perf_counter() - started, session.seconds - before))
    return np.array(times) * 1e3


def loop_times(engine: OnnxGPT, prompt: np.ndarray, new_tokens: int) -> dict[str, dict[str, float]]:
    session, found = Timed(engine._graphs.main.raw), {}
    engine._graphs.main.raw = session
    for name, sampling in SAMPLINGS.items():
        random = np.random.default_rng(0)
        stream = engine.stream(
            prompt, new_tokens + WARM, sampling, generator=random, speculate="off", ignore_eos=True
        )
        times = steps(session, lambda stream=stream: next(stream), new_tokens + WARM)[WARM:]  # type: ignore[misc]
        step, run = np.median(times, axis=0)
        beside = np.median(times[:, 0] - times[:, 1])
        found[name] = {"step_ms": float(step), "run_ms": float(run), "beside_ms": float(beside)}
    engine._graphs.main.raw = session._raw
    return found


def capacity_ratio(engine: OnnxGPT, prompt: np.ndarray, rounds: int) -> float | None:
    """Return the time of a step with much room as a multiple of one with little; None without a buffer."""
    decoders = [engine.decoder(1, capacity) for capacity in CAPACITIES]
    if not isinstance(decoders[0], SharedCacheDecoder):
        return None
    times: list[list[float]] = [[], []]
    for decoder in decoders:
        decoder.append([prompt])
    for _ in range(rounds):
        for decoder, kept in zip(decoders, times, strict=True):
            started = time.perf_counter()
            decoder.step(7)
            kept.append(time.perf_counter() - started)
            decoder.rewind([prompt.size])
    return float(np.median(np.array(times[1]) / np.array(times[0])))


def show(name: str, found: dict[str, dict[str, float]], ratio: float | None) -> None:
    table = Table(title=name, title_justify="left")
    for column in ("sampling", "step ms", "run ms", "beside ms"):
        table.add_column(column, justify="right")
    for sampling, times in found.items():
        table.add_row(sampling, *(f"{value:.3f}" for value in times.values()))
    print_tables(table, width=WIDTH)
    if ratio is not None:
        print(f"a step with room for {CAPACITIES[1]} tokens: {ratio:.3f} x one for {CAPACITIES[0]}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundles", nargs="*", type=Path, help="default: the model that ships, exported")
    parser.add_argument("-n", "--new-tokens", type=int, default=64, help="default: %(default)s")
    parser.add_argument("-t", "--threads", type=int, help="default: the cores that this process may use")
    return parser.parse_args()


def main() -> None:
    arguments, report = parse(), {}
    with tempfile.TemporaryDirectory() as folder:
        bundles = arguments.bundles
        if not bundles:
            shipped = find_shipped()
            if shipped is None:
                sys.exit("There is no model here that ships; name a bundle.")
            bundles = [Path(folder) / "shipped"]
            export_bundle(shipped, bundles[0], check="none")
        for path in bundles:
            engine = OnnxGPT.load(path, threads=arguments.threads, check_hashes=False)
            prompt = np.random.default_rng(0).integers(0, engine.vocab_size, 128)
            found = loop_times(engine, prompt, arguments.new_tokens)
            ratio = capacity_ratio(engine, prompt, arguments.new_tokens)
            show(path.name, found, ratio)
            report[path.name] = {"sampling": found, "capacity_ratio": ratio}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
