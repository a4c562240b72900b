"""The part of gpu_check.sh that runs in Python: gate, placement and latency of a bundle on a CUDA card.

    python scripts/gpu_check.py [SOURCE] [--provider cuda:0]

Prints three tables and, on the last line, one JSON object. Exit code 3: the numbers differ, or arithmetic ran
elsewhere than on the card.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from gpt_onnx.checkpoint import find_shipped
from gpt_onnx.cli._bench_table import lines, load_table, speed_table
from gpt_onnx.cli._parity_table import parity_table
from gpt_onnx.errors import GptOnnxError
from gpt_onnx.export import export_bundle
from gpt_onnx.export.gate import gate_against
from gpt_onnx.runtime.bench import BenchPlan, bench
from gpt_onnx.runtime.placement import PlacedNode, floats_off, placement
from gpt_onnx.runtime.providers import find_device

if TYPE_CHECKING:
    from gpt_onnx.export.gate import GateReport
    from gpt_onnx.runtime.bench import BenchReport

PLAN: dict[str, Any] = {"prompt_tokens": (128, 448), "new_tokens": 64, "repetitions": 7}
FAILED = 3


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", nargs="?", type=Path, help="a checkpoint; default: the model that ships")
    parser.add_argument("--provider", default="cuda", help="default: %(default)s")
    parser.add_argument("--level", default="quick", help="how much the gate looks at; default: %(default)s")
    return parser.parse_args(arguments)


def placement_table(nodes: Sequence[PlacedNode]) -> Table:
    """Return a line for each provider."""
    table = Table(title="where nodes ran", title_justify="left", box=None, header_style="bold")
    for name in ("provider", "nodes", "of them floating point"):
        table.add_column(name, justify="left" if name == "provider" else "right")
    for provider, count in Counter(node.provider for node in nodes).items():
        floats = sum(node.is_float for node in nodes if node.provider == provider)
        table.add_row(provider, str(count), str(floats))
    return table


def show(
    gate: GateReport, nodes: Sequence[PlacedNode], strays: Sequence[PlacedNode], latency: BenchReport
) -> None:
    """Print what was found."""
    console = Console(width=120)
    for table in (
        parity_table(gate.rows),
        placement_table(nodes),
        speed_table(latency),
        load_table(latency),
    ):
        console.print(table)
        console.print()
    for line in lines(latency):
        print(line)
    if not gate.passed:
        print(f"FAILED: {gate.summary()}")
    for node in strays:
        print(f"FAILED: {node.name} ({node.op}) computed floating-point numbers on {node.provider}.")


def check(source: Path, provider: str, level: str) -> int:
    """Export, gate, place and time; return the exit code."""
    before, device = time.monotonic(), find_device(provider)
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "portable"
        export_bundle(source, bundle, target="portable", check="none")
        gate = gate_against(bundle, source, level=level, provider=provider)
        nodes = placement(bundle, provider)
        strays = floats_off(nodes, device.provider)
        latency = bench([bundle], against=source, plan=BenchPlan(provider=provider, **PLAN))
    passed = gate.passed and not strays
    show(gate, nodes, strays, latency)
    result = {
        "passed": passed,
        "device": device.name,
        "seconds": round(time.monotonic() - before, 1),
        "parity": gate.to_json()["summary"],
        "placement": dict(Counter(node.provider for node in nodes)),
        "floating_point_elsewhere": [f"{node.name} ({node.op})" for node in strays],
        "latency": latency.to_json(),
    }
    print(json.dumps(result))
    return 0 if passed else FAILED


def main(arguments: Sequence[str] | None = None) -> int:
    """Check and return the exit code."""
    options = parse(arguments)
    source = options.source or find_shipped()
    if source is None:
        print("gpu_check: there is no model here that ships; name a checkpoint.", file=sys.stderr)
        return 2
    try:
        return check(source, options.provider, options.level)
    except GptOnnxError as exc:
        print(f"gpu_check: {exc}", file=sys.stderr)
        return exc.exit_code


if __name__ == "__main__":
    sys.exit(main())
