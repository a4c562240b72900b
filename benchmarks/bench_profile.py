"""Which operators take the time of a prompt and of a step?

    python benchmarks/bench_profile.py my-bundle                         # prompts of 128 and 900 tokens
    python benchmarks/bench_profile.py my-bundle another-bundle --prompt-tokens 512 -t 1

Each bundle runs in a process of its own under ONNX Runtime's profiler, which adds to each node. Times
are sums over all nodes of an operator: of a prompt, all its runs; of a step, the mean over the steps. Medians
of the rounds after the first. Prints a table for each bundle, and one JSON object on the last line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from gpt_onnx.cli._console import print_tables
from gpt_onnx.runtime import OnnxGPT, Sampling
from gpt_onnx.runtime._threads import available_threads
from gpt_onnx.runtime.bench.environment import describe

WIDTH = 100
STEPS = 16
SMALL = 0.01  # of the time: operators below it are one row
OTHERS = "others"

Times = Mapping[str, float]
"""Operator to milliseconds."""


def runs_of(profile: Path) -> Iterator[Times]:
    """Yield the operators' times of each run of a session, in their order."""
    events = json.loads(profile.read_text(encoding="utf-8"))
    nodes = [
        event for event in events if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
    ]
    for run in sorted(
        (event for event in events if event["name"] == "model_run"), key=lambda event: event["ts"]
    ):
        within: Counter[str] = Counter()
        for node in nodes:
            if run["ts"] <= node["ts"] <= run["ts"] + run["dur"]:
                within[node["args"]["op_name"]] += node["dur"] / 1e3
        yield within


def summed(runs: Sequence[Times], divisor: int) -> Times:
    total: Counter[str] = Counter()
    for run in runs:
        total.update(run)
    return {op: time / divisor for op, time in total.items()}


def median_of(rounds: Sequence[Times]) -> dict[str, float]:
    """Return the median of each operator's time, the largest first."""
    names = {name for times in rounds for name in times}
    medians = {name: statistics.median(times.get(name, 0.0) for times in rounds) for name in names}
    return dict(sorted(medians.items(), key=lambda item: -item[1]))


def profiled(bundle: Path, prompt_tokens: int, rounds: int, threads: int, folder: Path) -> dict[str, Times]:
    """Return the operators' times of a prompt and of a step."""
    engine = OnnxGPT.load(bundle, "cpu", threads, profile=folder / f"profile{prompt_tokens}")
    prompt = np.random.default_rng(0).integers(0, engine.vocab_size, prompt_tokens).tolist()
    for _ in range(rounds + 1):
        engine.generate([prompt], STEPS + 1, Sampling(temperature=0.0), ignore_eos=True, speculate="off")
    runs = [run for profile in engine.end_profiles() for run in runs_of(profile)]
    each = len(runs) // (rounds + 1)
    bursts = [runs[start : start + each] for start in range(each, len(runs), each)]
    return {
        "prompt": median_of([summed(burst[:-STEPS], 1) for burst in bursts]),
        "step": median_of([summed(burst[-STEPS:], STEPS) for burst in bursts]),
    }


def child(bundle: str, rounds: str, threads: str, *lengths: str) -> None:
    """Profile one bundle and print one JSON object."""
    with tempfile.TemporaryDirectory() as folder:
        found = {
            length: profiled(Path(bundle), int(length), int(rounds), int(threads), Path(folder))
            for length in lengths
        }
    print(json.dumps(found))


def measure(bundle: Path, rounds: int, threads: int, lengths: Sequence[str]) -> dict[str, dict[str, Times]]:
    command = [sys.executable, __file__, "--child", str(bundle), str(rounds), str(threads), *lengths]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"Error: {bundle} cannot be profiled: {done.stderr.strip().splitlines()[-1:]}")
    found: dict[str, dict[str, Times]] = json.loads(done.stdout)
    return found


def folded(times: Times) -> dict[str, float]:
    """Return the times with all small ones in one."""
    least = SMALL * sum(times.values())
    large = {op: time for op, time in times.items() if time >= least}
    return large | {OTHERS: sum(times.values()) - sum(large.values())}


def table_of(name: str, found: Mapping[str, Mapping[str, Times]]) -> Table:
    table = Table(title=name, box=None, header_style="bold")
    table.add_column("ms (share)")
    columns = {f"{what} {length}": folded(found[length][what]) for length in found for what in found[length]}
    for column in columns:
        table.add_column(column, justify="right")
    names = dict.fromkeys(op for times in columns.values() for op in times if op != OTHERS)
    for op in (*names, OTHERS):
        cells = [(times.get(op), sum(times.values())) for times in columns.values()]
        table.add_row(
            op, *("-" if time is None else f"{time:.2f} ({time / total:4.0%})" for time, total in cells)
        )
    table.add_row("all", *(f"{sum(times.values()):.2f}" for times in columns.values()))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundles", nargs="+", type=Path)
    parser.add_argument("--prompt-tokens", default="128,900", metavar="N,N", help="default: %(default)s")
    parser.add_argument("-r", "--rounds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("-t", "--threads", type=int, default=available_threads(), help="default: %(default)s")
    arguments = parser.parse_args()
    lengths = arguments.prompt_tokens.split(",")
    found = {}
    for bundle in arguments.bundles:
        found[str(bundle)] = measure(bundle, arguments.rounds, arguments.threads, lengths)
        print_tables(table_of(str(bundle), found[str(bundle)]), width=WIDTH)
    facts: dict[str, Any] = {"rounds": arguments.rounds, "environment": asdict(describe(arguments.threads))}
    print(json.dumps({**facts, "bundles": found}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main()
