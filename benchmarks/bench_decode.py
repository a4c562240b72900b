"""Does a bundle decode faster than eager PyTorch with the same weights, and how long is the first token?

    python benchmarks/bench_decode.py                                   # exports the model that ships
    python benchmarks/bench_decode.py --against my-checkpoint my-bundle another-bundle

Prints tables, the machine and the versions, and one JSON object on the last line.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from gpt_onnx.checkpoint import find_shipped
from gpt_onnx.cli._bench_table import lines, tables
from gpt_onnx.cli._console import print_tables
from gpt_onnx.errors import GptOnnxError
from gpt_onnx.export import export_bundle
from gpt_onnx.runtime.bench import BenchPlan, BenchReport, bench

WIDTH = 120
TARGETS = ("cpu", "portable")


def counts(text: str) -> tuple[int, ...]:
    return tuple(int(count) for count in text.split(","))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundles", nargs="*", type=Path, help="default: SOURCE exported for cpu and portable")
    parser.add_argument("--against", type=Path, metavar="SOURCE", help="default: the model that ships")
    parser.add_argument("--prompt-tokens", default="16,128,448", metavar="N,N", help="default: %(default)s")
    parser.add_argument("-n", "--new-tokens", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--batch-size", default="1", metavar="N,N", help="default: %(default)s")
    parser.add_argument("-r", "--repetitions", type=int, default=10, help="default: %(default)s")
    parser.add_argument("-t", "--threads", type=int, help="default: the cores that this process may use")
    parser.add_argument("--provider", default="auto", help="default: %(default)s")
    return parser.parse_args()


def measure(arguments: argparse.Namespace, source: Path, folder: Path) -> BenchReport:
    bundles = arguments.bundles or [folder / target for target in TARGETS]
    for target in () if arguments.bundles else TARGETS:
        export_bundle(source, folder / target, check="none", target=target)
    plan = BenchPlan(
        prompt_tokens=counts(arguments.prompt_tokens),
        new_tokens=arguments.new_tokens,
        batch_sizes=counts(arguments.batch_size),
        repetitions=arguments.repetitions,
        threads=arguments.threads,
        provider=arguments.provider,
        bandwidth=True,
    )
    return bench(bundles, against=source, plan=plan)


def show(report: BenchReport) -> None:
    for table in tables(report):
        print_tables(table, width=WIDTH)
        print()
    for line in lines(report):
        print(line)
    print(json.dumps(report.to_json()))


def main() -> None:
    arguments = parse()
    source = arguments.against or find_shipped()
    if source is None:
        sys.exit("There is no model here that ships; name a checkpoint with --against.")
    try:
        with tempfile.TemporaryDirectory() as folder:
            show(measure(arguments, source, Path(folder)))
    except GptOnnxError as exc:
        sys.exit(f"Error: {exc}")


if __name__ == "__main__":
    main()
