"""How much memory and time does an export take, and how much of it is the gate's?

    python benchmarks/bench_export_memory.py                        # 1.1 billion parameters, as TinyLlama
    python benchmarks/bench_export_memory.py --shape gpt2-large --precision int4
    python benchmarks/bench_export_memory.py --n-layer 2 --n-embd 512 --n-head 8 --n-kv-head 2 --d-ff 1408
    python benchmarks/bench_export_memory.py --checkpoint my-folder --check quick standard

Makes a checkpoint of random weights, tensor by tensor, in Hugging Face's layout, exports it in a process of
its own for each level, and prints each one's largest resident memory, and one JSON object on the last line.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from gpt_onnx.checkpoint.safetensors import Entry, write_entries
from gpt_onnx.checkpoint.writers import choose_layout
from gpt_onnx.checkpoint.writers._parts import parts_of
from gpt_onnx.cli._console import print_tables
from gpt_onnx.config import GPTConfig
from gpt_onnx.model import skeleton
from gpt_onnx.runtime.bench.environment import describe

GIGABYTE = 1e9
LIMITS = {"none": (1.3, 0.7 * GIGABYTE), "quick": (2.0, 0.0), "standard": (2.0, 0.0)}
"""Of the checkpoint's bytes, and so many more: what an export may take, by how it is checked."""
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "tinyllama": {
        "n_embd": 2048,
        "n_layer": 22,
        "n_head": 32,
        "n_kv_head": 4,
        "d_ff": 5632,
        "vocab_size": 32000,
        "context_length": 2048,
        "position": "rotary",
        "norm": "rmsnorm",
        "activation": "swiglu",
        "bias": False,
        "tie_embeddings": False,
    },
    "gpt2-large": {
        "n_embd": 1280,
        "n_layer": 36,
        "n_head": 20,
        "n_kv_head": 20,
        "d_ff": 5120,
        "vocab_size": 50257,
        "context_length": 1024,
        "position": "learned",
        "activation": "gelu_tanh",
    },
}
"""Published shapes: 1,100 and 774 million parameters."""
SIZES = ("n_embd", "n_layer", "n_head", "n_kv_head", "d_ff", "vocab_size", "context_length")
DTYPES = {"fp16": ("F16", np.float16), "fp32": ("F32", np.float32)}
WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One export."""

    check: str
    exit_code: int
    seconds: float
    peak_bytes: int
    """Largest resident memory of the process."""
    bundle_bytes: int


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=list(SHAPES), default="tinyllama", help="default: %(default)s")
    for name in SIZES:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help="default: the shape's")
    parser.add_argument("--dtype", choices=list(DTYPES), default="fp16", help="default: %(default)s")
    parser.add_argument("--checkpoint", type=Path, help="an existing one, in place of random weights")
    parser.add_argument(
        "--check", nargs="+", default=["none", "quick"], metavar="LEVEL", help="default: none quick"
    )
    parser.add_argument("--target", default="cpu", help="default: %(default)s")
    parser.add_argument("--precision", default="fp32", help="default: %(default)s")
    parser.add_argument("--folder", type=Path, help="where the files go; default: a temporary folder")
    parser.add_argument("--keep", action="store_true", help="leave the files where they are")
    return parser.parse_args()


def config_of(arguments: argparse.Namespace) -> GPTConfig:
    said = {name: getattr(arguments, name) for name in SIZES if getattr(arguments, name) is not None}
    return GPTConfig(**{**SHAPES[arguments.shape], **said})


def drawn(seed: int, shape: tuple[int, ...], dtype: type[np.floating[Any]]) -> NDArray[Any]:
    """Draw weights as large as trained ones: matrices that keep a vector's length, norms around one."""
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    scaled = values / np.sqrt(shape[-1]) if len(shape) > 1 else 1 + 0.1 * values
    cast: NDArray[Any] = scaled.astype(dtype)
    return cast


def write_random(folder: Path, config: GPTConfig, dtype: str) -> Path:
    """Write a checkpoint of random weights; one tensor at a time is in memory."""
    layout = choose_layout(config, "huggingface")
    wide = layout.widened(config)
    word, kind = DTYPES[dtype]
    entries: dict[str, Entry] = {
        part.theirs: Entry(dtype=word, shape=part.shape, make=partial(drawn, seed, part.shape, kind))
        for seed, part in enumerate(parts_of(layout.naming, wide))
    }
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(layout.describe(wide, {})))
    write_entries(folder / "model.safetensors", entries, {"format": "pt"})
    return folder


def size_of(folder: Path, pattern: str = "*") -> int:
    return sum(path.stat().st_size for path in folder.rglob(pattern) if path.is_file())


def waited(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """Wait for a process; return its exit code and its largest resident memory in bytes."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def export(checkpoint: Path, bundle: Path, check: str, options: Sequence[str]) -> Run:
    command = [sys.executable, "-m", "gpt_onnx", "export", str(checkpoint), "-o", str(bundle)]
    start = time.perf_counter()
    process = subprocess.Popen([*command, "--check", check, *options], stdout=sys.stderr)
    code, peak = waited(process)
    seconds = time.perf_counter() - start
    return Run(check=check, exit_code=code, seconds=seconds, peak_bytes=peak, bundle_bytes=size_of(bundle))


def measure(arguments: argparse.Namespace, folder: Path) -> tuple[int, list[Run]]:
    """Return the checkpoint's bytes and what each level took."""
    made = folder / "checkpoint"
    checkpoint = arguments.checkpoint or write_random(made, config_of(arguments), arguments.dtype)
    options = ("--target", arguments.target, "--precision", arguments.precision)
    runs = []
    for check in arguments.check:
        bundle = folder / f"bundle-{check}"
        runs.append(export(checkpoint, bundle, check, options))
        if not arguments.keep:
            shutil.rmtree(bundle, ignore_errors=True)
    return size_of(checkpoint, "*.safetensors"), runs


def table_of(stored: int, runs: list[Run]) -> Table:
    table = Table(title=f"checkpoint {stored / GIGABYTE:.2f} GB", box=None, header_style="bold")
    for column in ("check", "exit", "time", "peak memory", "of the checkpoint", "bundle"):
        table.add_column(column, justify="left" if column == "check" else "right")
    for run in runs:
        table.add_row(
            run.check,
            str(run.exit_code),
            f"{run.seconds:.0f} s",
            f"{run.peak_bytes / GIGABYTE:.2f} GB",
            f"{run.peak_bytes / max(stored, 1):.2f} x",
            f"{run.bundle_bytes / GIGABYTE:.2f} GB",
        )
    return table


def show(arguments: argparse.Namespace, stored: int, runs: list[Run]) -> None:
    print_tables(table_of(stored, runs), width=WIDTH)
    for run in runs:
        factor, more = LIMITS.get(run.check, LIMITS["standard"])
        verdict = "within" if run.peak_bytes <= factor * stored + more else "MORE THAN"
        print(f"check {run.check}: {verdict} {factor} x checkpoint + {more / GIGABYTE} GB")
    sizes = None if arguments.checkpoint else config_of(arguments).to_dict()
    count = None if sizes is None else skeleton(config_of(arguments)).parameter_count()
    print(
        json.dumps(
            {
                "parameters": count,
                "config": sizes,
                "checkpoint_bytes": stored,
                "target": arguments.target,
                "precision": arguments.precision,
                "runs": [asdict(run) for run in runs],
                "environment": asdict(describe(os.cpu_count() or 1)),
            }
        )
    )


def main() -> None:
    arguments = parse()
    if arguments.folder is not None:
        arguments.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        stored, runs = measure(arguments, folder)
    finally:
        if not arguments.keep:
            shutil.rmtree(folder, ignore_errors=True)
    show(arguments, stored, runs)


if __name__ == "__main__":
    main()
