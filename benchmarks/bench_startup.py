"""How long from the start of a process to the first token, and where does the time go?

    python benchmarks/bench_startup.py                          # exports the model that ships
    python benchmarks/bench_startup.py my-bundle another-bundle -r 31

Runs ``gpt-onnx generate BUNDLE -n 1`` again and again and waits for the first byte that it prints; then once
more with a clock in the phases of loading. Everything is in the file cache, and bytecode is cached as pip
leaves it (PYTHONPYCACHEPREFIX, so that a clone stays clean). Phases overlap: hashing and the making of
sessions are threads, so each phase has a start, an end, and the processor time of its own thread, which a
busy machine disturbs least. Prints tables, and one JSON object on the last line.
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

PROMPT = "My fellow citizens,"
PROMPT_IDS = "1,2,3,4"
FLOORS = {
    "python, nothing imported": "pass",
    "import numpy": "import numpy",
    "import onnxruntime (and numpy)": "import onnxruntime",
    "import click": "import click",
}
"""What no program of this kind can be without, each in a process of its own."""
PACKAGES = (
    "click",
    "numpy",
    "numpy.random",
    "onnxruntime",
    "tokenizers",
    "gpt_onnx.cli.generate",
    "gpt_onnx.runtime.engine",
)
"""Modules of which the trace tells how long the import took, with all that they import first."""
PHASES = {
    ("gpt_onnx.bundle._verifying", "open_bundle"): "manifest, listing, hashes of all but the weights",
    ("gpt_onnx.bundle._verifying", "hash_file"): "hash of the weights (thread)",
    ("gpt_onnx.runtime._loading", "check_graph"): "check of the graph",
    ("gpt_onnx.runtime._loading", "_load_graphs"): "sessions (thread)",
    ("gpt_onnx.runtime.text", "_tokenizer"): "tokenizer",
    ("gpt_onnx.runtime.text", "load"): "load, all of it",
}
"""Functions of which the trace tells when they were entered and left."""


class Tracer:
    """A finder that lets the others find, and times what they load; see PACKAGES and PHASES."""

    def __init__(self, started_ns: int) -> None:
        self.started_ns = started_ns
        self.rows: list[tuple[str, float, float, float]] = []

    def now_ms(self) -> float:
        """Return the time since the process was started."""
        return (time.monotonic_ns() - self.started_ns) / 1e6

    def timed(self, label: str, work: Any) -> Any:
        """Return ``work`` with a clock about it."""

        def run(*arguments: Any, **options: Any) -> Any:
            begun, cpu_ns = self.now_ms(), time.thread_time_ns()
            try:
                return work(*arguments, **options)
            finally:
                cpu_ms = (time.thread_time_ns() - cpu_ns) / 1e6
                self.rows.append((label, begun, self.now_ms(), cpu_ms))

        return run

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return what the other finders find, to be loaded with a clock about it."""
        wanted = [(attribute, label) for (module, attribute), label in PHASES.items() if module == name]
        if not wanted and name not in PACKAGES:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec: Any = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is None or spec.loader is None:
            return spec
        execute = self.timed(f"import {name}", spec.loader.exec_module)

        def load(module: Any) -> None:
            execute(module)
            for attribute, label in wanted:
                setattr(module, attribute, self.timed(label, getattr(module, attribute)))

        spec.loader.exec_module = load
        return spec


def trace(started_ns: str, target: str, *command: str) -> None:
    """Run the command in this process, which the parent started, and write when each phase was."""
    tracer = Tracer(int(started_ns))
    tracer.rows.append(("interpreter", 0.0, tracer.now_ms(), time.process_time() * 1e3))
    sys.meta_path.insert(0, tracer)
    from gpt_onnx.cli import main as run_command

    try:
        run_command(list(command))
    finally:
        tracer.rows.append(("all, on all threads", 0.0, tracer.now_ms(), time.process_time() * 1e3))
        rows = sorted(tracer.rows, key=lambda row: row[1])
        Path(target).write_text(json.dumps([row for row in rows if is_phase(row[0])]), encoding="utf-8")


def is_phase(label: str) -> bool:
    return not label.startswith("import ") or label.removeprefix("import ") in PACKAGES


def session_ms(path: str, prepack: str) -> None:
    """Print how long it takes to make one session, with or without its weights reordered beforehand."""
    import onnxruntime

    from gpt_onnx.runtime._session import SessionSettings, session_options
    from gpt_onnx.runtime._threads import available_threads
    from gpt_onnx.runtime.providers import Device

    settings = SessionSettings(device=Device(kind="cpu"), threads=available_threads())
    options = session_options(onnxruntime, settings)
    options.add_session_config_entry("session.disable_prepacking", "0" if prepack == "yes" else "1")
    begun = time.perf_counter()
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    print((time.perf_counter() - begun) * 1e3)


def run(command: list[str], environment: dict[str, str]) -> dict[str, float]:
    """Run one process; milliseconds to its first byte on stdout and to its end, CPU time, peak memory."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    assert process.stdout is not None
    first = process.stdout.read(1)
    first_ms = (time.perf_counter() - begun) * 1e3
    process.stdout.read()
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or not first:
        sys.exit(f"Error: {' '.join(command)} ended with {process.returncode} and printed nothing.")
    return {
        "first_ms": first_ms,
        "end_ms": (time.perf_counter() - begun) * 1e3,
        "cpu_ms": (usage.ru_utime + usage.ru_stime) * 1e3,
        "peak_mb": usage.ru_maxrss / 1024,
    }


def generate(bundle: Path) -> list[str]:
    """Return the arguments that print one token."""
    has_text = (bundle / "tokenizer.json").exists()
    prompt = ["-p", PROMPT] if has_text else ["--prompt-ids", PROMPT_IDS]
    return ["generate", str(bundle), *prompt, "-n", "1", "-s", "1"]


def summary(runs: list[dict[str, float]]) -> dict[str, float]:
    first = sorted(each["first_ms"] for each in runs)
    return {
        "least_ms": first[0],
        "median_ms": statistics.median(first),
        "p90_ms": first[int(0.9 * (len(first) - 1))],
        "to_end_ms": statistics.median(each["end_ms"] for each in runs),
        "cpu_ms": statistics.median(each["cpu_ms"] for each in runs),
        "peak_mb": max(each["peak_mb"] for each in runs),
    }


def measure(bundles: list[Path], rounds: int, environment: dict[str, str]) -> dict[str, Any]:
    """Run all commands in turn, ``rounds`` times, after one round that warms the caches."""
    python = [sys.executable]
    commands = {name: [*python, "-c", f"{code}\nprint(1)"] for name, code in FLOORS.items()}
    commands |= {
        f"first token of {bundle}": [*python, "-m", "gpt_onnx", *generate(bundle)] for bundle in bundles
    }
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
    for turn in range(rounds + 1):
        for name, command in commands.items():
            found = run(command, environment)
            runs[name] += [found] if turn else []
    return {name: summary(found) for name, found in runs.items()}


def traced(bundle: Path, rounds: int, environment: dict[str, str]) -> list[dict[str, Any]]:
    """Return the phases of the quickest of several traced runs: the one that was disturbed least."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "trace.json"
        for _ in range(rounds + 1):
            command = [sys.executable, __file__, "--trace", str(time.monotonic_ns()), str(target)]
            run([*command, *generate(bundle)], environment)
            found.append(json.loads(target.read_text(encoding="utf-8")))
    best = min(found, key=lambda rows: max(row[2] for row in rows))
    return [dict(zip(("phase", "from_ms", "to_ms", "cpu_ms"), row, strict=True)) for row in best]


def prepacking(bundle: Path, rounds: int, environment: dict[str, str]) -> dict[str, float]:
    """Return the median milliseconds of making a session, with and without prepacking."""
    graph = next(iter(sorted((bundle / "onnx").glob("*.onnx"))))
    found: dict[str, list[float]] = {"yes": [], "no": []}
    for _ in range(rounds):
        for prepack, times in found.items():
            command = [sys.executable, __file__, "--session", str(graph), prepack]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            times.append(float(done.stdout))
    return {
        "session_ms": statistics.median(found["yes"]),
        "without_prepacking_ms": statistics.median(found["no"]),
    }


def show(report: dict[str, Any]) -> None:
    print(f"{report['machine']}; to the first byte on stdout, from the start of the process\n")
    print(f"{'':58}{'least':>8}{'median':>8}{'p90':>8}{'to end':>8}{'CPU':>8}{'MB':>6}")
    for name, row in report["commands"].items():
        values = [row[key] for key in ("least_ms", "median_ms", "p90_ms", "to_end_ms", "cpu_ms")]
        print(f"{name[-58:]:58}{''.join(f'{value:8.0f}' for value in values)}{row['peak_mb']:6.0f}")
    for bundle, found in report["bundles"].items():
        print(
            f"\n{bundle}: a session takes {found['session_ms']:.0f} ms, "
            f"{found['without_prepacking_ms']:.0f} without prepacking; the phases of one run, ms:\n"
        )
        for row in found["phases"]:
            print(f"  {row['phase']:52}{row['from_ms']:8.0f} to{row['to_ms']:7.0f}{row['cpu_ms']:9.1f} CPU")
    print(json.dumps(report))


def shipped(folder: Path) -> Path:
    """Export the model that ships, in a process of its own: children inherit a parent's peak of memory."""
    target = str(folder / "bundle")
    command = [sys.executable, "-m", "gpt_onnx", "-q", "export", "-o", target, "--check", "none"]
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
        sys.exit("There is no model here that ships; name a bundle.")
    return Path(target)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundles", nargs="*", type=Path, help="default: the model that ships, exported")
    parser.add_argument("-r", "--repetitions", type=int, default=15, help="default: %(default)s")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bundles = arguments.bundles or [shipped(Path(folder))]
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(Path(folder) / "bytecode")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        commands = measure(bundles, arguments.repetitions, environment)
        report = {
            "machine": f"{platform.processor() or platform.machine()}, {len(os.sched_getaffinity(0))} cores, "
            f"Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}",
            "commands": commands,
            "bundles": {
                str(bundle): {
                    "phases": traced(bundle, min(arguments.repetitions, 5), environment),
                    **prepacking(bundle, min(arguments.repetitions, 7), environment),
                }
                for bundle in bundles
            },
        }
    show(report)


if __name__ == "__main__":
    modes: dict[str, Any] = {"--trace": trace, "--session": session_ms}
    if len(sys.argv) > 1 and sys.argv[1] in modes:
        modes[sys.argv[1]](*sys.argv[2:])
    else:
        main()
