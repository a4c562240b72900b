"""What does each session option of ONNX Runtime bring: loading, first token, steps, memory?

    python benchmarks/bench_sessions.py my-bundle                       # all variants
    python benchmarks/bench_sessions.py my-bundle -r 15 --only spinning --only arena
    python benchmarks/bench_sessions.py my-bundle -t 1                  # one thread: processor time is exact

Every variant is the runtime's own options (the first row) and one change. Each round measures every variant
once, in a process of its own, and the order moves on by one; ratios to the first row are taken round by
round. The loop is the leanest that drives a graph of target cpu: all bound once, arrays changed in place.
``CPU`` is the processor time of a step, all threads together, spinning included; on a busy machine with
``-t 1`` it is the number to trust. Prints a table, and one JSON object on the last line.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

STEPS = 24
VARIANTS: dict[str, dict[str, Any]] = {
    "as the runtime does": {},
    "memory pattern": {"enable_mem_pattern": True},
    "no arena": {"enable_cpu_mem_arena": False},
    "no memory reuse": {"enable_mem_reuse": False},
    "spinning between runs": {"session.force_spinning_stop": "0"},
    "no spinning": {"session.intra_op.allow_spinning": "0"},
    "spinning for 100 us": {"session.intra_op.spin_duration_us": "100"},
    "spinning backs off": {"session.intra_op.spin_backoff_max": "8"},
    "dynamic blocks, 4": {"session.dynamic_block_base": "4"},
    "denormals are zero": {"session.set_denormal_as_zero": "1"},
    "optimiser: extended": {"graph_optimization_level": "ORT_ENABLE_EXTENDED"},
    "optimiser: basic": {"graph_optimization_level": "ORT_ENABLE_BASIC"},
    "optimiser: none": {"graph_optimization_level": "ORT_DISABLE_ALL"},
    "no constant folding": {"optimization.disable_specified_optimizers": "ConstantFolding"},
    "optimised before": {"optimised": True},
    "optimised and prepacked before": {"optimised": True, "prepacked": True},
    "prepacking in parallel": {"session.prepack.enable_parallel": "1"},
    "no prepacking": {"session.disable_prepacking": "1"},
    "device allocator for weights": {"session.use_device_allocator_for_initializers": "1"},
    "file buffers directly": {"session.use_external_initializer_file_buffers_directly": "1"},
    "lookup-table products": {"mlas.use_lut_gemm": "1"},
    "one thread": {"intra_op_num_threads": 1},
    "twice the threads": {"threads_times": 2},
    "an entry that does not exist": {"session.no_such_entry": "1"},
}
"""Name to what it changes: attributes of SessionOptions, entries (with a dot), and three words of our own."""
SLOW = ("no prepacking", "optimiser: none", "no constant folding")
"""Measured only when asked for by name: a step of a quantised graph takes a second."""


def session_options(ort: Any, threads: int, changes: dict[str, Any]) -> Any:
    from gpt_onnx.runtime._session import SessionSettings, session_options
    from gpt_onnx.runtime.providers import Device

    count = threads * changes.get("threads_times", 1)
    options = session_options(ort, SessionSettings(device=Device(kind="cpu"), threads=count))
    for name, value in changes.items():
        if "." in name:
            options.add_session_config_entry(name, value)
        elif name == "graph_optimization_level":
            options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, value)
        elif hasattr(options, name):
            setattr(options, name, value)
    return options


def optimised(ort: Any, graph: Path, folder: Path, changes: dict[str, Any], threads: int) -> Path:
    """Have ONNX Runtime write the graph as it would run it, and return where."""
    options, target = session_options(ort, threads, {}), folder / "model.onnx"
    options.optimized_model_filepath = str(target)
    entries = {
        "session.optimized_model_external_initializers_file_name": "model.data",
        "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
        "session.save_external_prepacked_constant_initializers": "1" if changes.get("prepacked") else "0",
    }
    for name, value in entries.items():
        options.add_session_config_entry(name, value)
    ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    return target


class Loop:
    """A session of a graph of target cpu, with its cache and everything else bound once."""

    def __init__(self, ort: Any, session: Any, capacity: int) -> None:
        import numpy as np

        self.run, self.value = session.run_with_iobinding, ort.OrtValue.ortvalue_from_numpy
        shapes = {port.name: port.shape for port in session.get_inputs()}
        self.vocab_size = int(session.get_outputs()[0].shape[-1])
        self.mask = np.zeros((1, capacity), np.int64)
        self.logits = np.zeros((1, 1, self.vocab_size), np.float32)
        self.caches = {
            name: np.zeros((1, shape[1], capacity, shape[3]), np.float32)
            for name, shape in shapes.items()
            if name.startswith("past_key_values")
        }
        self.inputs = set(shapes)
        self.session = session

    def bound(self, ids: Any, positions: Any) -> Any:
        """Return a binding of new ids; the arrays may be changed afterwards."""
        import numpy as np

        binding, keep = self.session.io_binding(), np.ones(1, np.int64)
        feeds = {"input_ids": ids, "position_ids": positions, "attention_mask": self.mask}
        for name, array in feeds.items():
            if name in self.inputs:
                binding.bind_ortvalue_input(name, self.value(array))
        binding.bind_ortvalue_input("num_logits_to_keep", self.value(keep))
        for name, array in self.caches.items():
            shared = self.value(array)
            binding.bind_ortvalue_input(name, shared)
            binding.bind_ortvalue_output(name.replace("past_key_values", "present"), shared)
        binding.bind_ortvalue_output("logits", self.value(self.logits))
        self.held = (*getattr(self, "held", ()), keep)
        return binding


def burst(loop: Loop, prompt: int) -> dict[str, float]:
    """Prefill a prompt twice and time the second; then time steps."""
    import numpy as np

    random = np.random.default_rng(0)
    ids = random.integers(0, loop.vocab_size, (1, prompt))
    prefill = loop.bound(ids, np.arange(prompt, dtype=np.int64)[None])
    one, position = np.zeros((1, 1), np.int64), np.zeros((1, 1), np.int64)
    step = loop.bound(one, position)
    loop.mask[:] = 0
    loop.mask[0, :prompt] = 1
    loop.run(prefill)
    begun = time.perf_counter()
    loop.run(prefill)
    first_ms, times, cpu = (time.perf_counter() - begun) * 1e3, [], time.process_time()
    for index in range(prompt, prompt + STEPS):
        one[0, 0], position[0, 0], loop.mask[0, index] = int(loop.logits[0, 0].argmax()), index, 1
        begun = time.perf_counter()
        loop.run(step)
        times.append((time.perf_counter() - begun) * 1e3)
    cpu_ms = (time.process_time() - cpu) * 1e3 / STEPS
    return {
        f"first_{prompt}_ms": first_ms,
        f"step_{prompt}_ms": statistics.median(times[3:]),
        f"cpu_{prompt}_ms": cpu_ms,
    }


def peak_mb() -> float:
    """Return this process's peak of resident memory (not ru_maxrss, which begins with the parent's)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def child(graph: str, changes_json: str, threads: str, *contexts: str) -> None:
    """Measure one variant once and print one JSON object."""
    import onnxruntime as ort

    changes, count = json.loads(changes_json), int(threads)
    begun = time.perf_counter(), time.process_time()
    options = session_options(ort, count, changes)
    session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    found = {
        "load_ms": (time.perf_counter() - begun[0]) * 1e3,
        "load_cpu_ms": (time.process_time() - begun[1]) * 1e3,
        "load_peak_mb": peak_mb(),
    }
    for prompt in map(int, contexts):
        found |= burst(Loop(ort, session, -(-(prompt + STEPS) // 256) * 256), prompt)
    found["peak_mb"] = peak_mb()
    print(json.dumps(found))


def once(graph: Path, changes: dict[str, Any], threads: int, contexts: list[int]) -> dict[str, float]:
    numbers = [str(threads), *map(str, contexts)]
    command = [sys.executable, __file__, "--child", str(graph), json.dumps(changes), *numbers]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"Error: {changes} failed: {done.stderr.strip().splitlines()[-1:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measure(
    graph: Path, names: list[str], rounds: int, threads: int, contexts: list[int], folder: Path
) -> dict[str, list[dict[str, float]]]:
    """Measure every variant in each round; the order moves on by one from round to round."""
    import onnxruntime as ort

    graphs = {}
    for name in names:
        graphs[name] = graph
        if VARIANTS[name].get("optimised"):
            (folder / name).mkdir()
            graphs[name] = optimised(ort, graph, folder / name, VARIANTS[name], threads)
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            runs[name].append(once(graphs[name], VARIANTS[name], threads, contexts))
            print(f"round {turn + 1} of {rounds}: {name}", file=sys.stderr)
    return runs


def ratios(runs: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Return for each variant the median of each number, and of its ratio to the first variant's."""
    base = next(iter(runs.values()))
    table: dict[str, dict[str, float]] = {}
    for name, found in runs.items():
        table[name] = {}
        for key in found[0]:
            pairs = zip(found, base, strict=True)
            table[name][key] = statistics.median(each[key] for each in found)
            table[name][f"{key}_ratio"] = statistics.median(each[key] / other[key] for each, other in pairs)
    return table


def show(table: dict[str, dict[str, float]], facts: dict[str, Any]) -> None:
    keys = [
        "load_ms",
        "load_cpu_ms",
        *(f"{what}_{prompt}_ms" for prompt in facts["contexts"] for what in ("first", "step", "cpu")),
    ]
    print(
        f"{facts['graph']}: {facts['machine']}; medians of {facts['rounds']}, and ratios to the first row\n"
    )
    print(
        f"{'':31}"
        + "".join(f"{key.removesuffix('_ms'):>15}" for key in keys)
        + f"{'load MB':>9}{'peak MB':>9}"
    )
    for name, row in table.items():
        cells = [f"{row[key]:9.2f} x{row[f'{key}_ratio']:.2f}" for key in keys]
        memory = f"{row['load_peak_mb']:9.0f}{row['peak_mb']:9.0f}"
        print(f"{name:31}" + "".join(f"{cell:>15}" for cell in cells) + memory)
    print(json.dumps({**facts, "variants": table}))


def main() -> None:
    from gpt_onnx.runtime._threads import available_threads

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=Path, help="a bundle of target cpu, or its graph")
    parser.add_argument("-r", "--rounds", type=int, default=7, help="default: %(default)s")
    parser.add_argument("-t", "--threads", type=int, default=available_threads(), help="default: %(default)s")
    parser.add_argument("--contexts", default="128,900", metavar="N,N", help="default: %(default)s")
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="variants with this word")
    arguments = parser.parse_args()
    base, *others = VARIANTS
    chosen = [name for name in others if any(word in name for word in arguments.only or [""])]
    names = [base, *(name for name in chosen if arguments.only or name not in SLOW)]
    bundle: Path = arguments.bundle
    contexts = [int(number) for number in arguments.contexts.split(",")]
    graph = bundle / "onnx" / "model.onnx" if bundle.is_dir() else bundle
    with tempfile.TemporaryDirectory() as folder:
        runs = measure(graph, names, arguments.rounds, arguments.threads, contexts, Path(folder))
    facts = {
        "graph": str(graph),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "contexts": contexts,
    }
    show(ratios(runs), facts)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main()
