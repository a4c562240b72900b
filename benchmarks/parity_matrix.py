"""Does a bundle compute what the program that wrote the model does, for every kind of source and target?

    python -m benchmarks.parity_matrix                 # from a clone, with the dev extra installed
    python -m benchmarks.parity_matrix --only gpt2 --target cpu --check quick

Makes small models of random weights with each original program (transformers, nanoGPT and minGPT as written
again in the tests, the GPT in C++ of tests/libtorch, a module of one's own), exports what that program saved,
and compares the bundle with the program in float64 by the rule of docs/parity.md: prompts of several lengths,
and 128 greedy tokens. Prints a table in Markdown, and one JSON object on the last line; the exit code is 1
where a bundle differs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from gpt_onnx.errors import GptOnnxError
from gpt_onnx.export import export_bundle
from gpt_onnx.export.gate.tolerance import Ratio
from gpt_onnx.runtime import OnnxGPT
from gpt_onnx.runtime.bench.environment import describe
from tests.originals.programs import NEW_TOKENS, ORIGINALS, Original


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One bundle beside the original program."""

    family: str
    reader: str
    target: str
    ratio: float
    """Largest error in units of what float32 costs the original program; 4 is the most that may be."""
    rms_ratio: float
    """The same of root mean squares; 3 is the most that may be."""
    equal: int
    """Greedy tokens that are those of the original program in float64."""
    near_ties: int
    """Others, where the original's best logit and that of the token are within the bound of each other."""
    seconds: float
    """From the source to the end of the comparison."""

    @property
    def passed(self) -> bool:
        """Whether the numbers agree, and the text up to near ties."""
        agree = Ratio(peak=self.ratio, rms=self.rms_ratio).passed
        return agree and self.equal + self.near_ties == NEW_TOKENS


def measured(family: str, reader: str, original: Original, target: str, folder: Path, check: str) -> Row:
    start = time.perf_counter()
    bundle = folder / f"bundle-{target}"
    export_bundle(original.source, bundle, target=target, check=check, **original.options)
    found = original.compare(OnnxGPT.load(bundle, threads=1))
    return Row(
        family=family,
        reader=reader,
        target=target,
        ratio=found.ratio.peak,
        rms_ratio=found.ratio.rms,
        equal=found.equal,
        near_ties=found.near_ties,
        seconds=time.perf_counter() - start,
    )


HEADER = ("family", "reader", "target", "ratio", "RMS ratio", f"greedy tokens equal of {NEW_TOKENS}")


def line_of(row: Row) -> str:
    ties = f" ({row.near_ties} near ties)" if row.near_ties else ""
    cells = (row.family, row.reader, row.target, f"{row.ratio:.2f}", f"{row.rms_ratio:.2f}")
    return f"| {' | '.join(cells)} | {row.equal}{ties} |"


def table_of(rows: list[Row]) -> str:
    return "\n".join([f"| {' | '.join(HEADER)} |", "|---|---|---|---|---|---|", *map(line_of, rows)])


def rows_of(arguments: argparse.Namespace, folder: Path) -> tuple[list[Row], list[str]]:
    """Measure everything that was asked for; return what was refused as well."""
    rows, failures = [], []
    for number, (family, reader, make) in enumerate(ORIGINALS):
        name = f"{family}: {reader}"
        if not any(word in name for word in arguments.only or [""]):
            continue
        place = folder / str(number)
        place.mkdir()
        original = make(place)
        for target in arguments.target:
            try:
                rows.append(measured(family, reader, original, target, place, arguments.check))
                print(line_of(rows[-1]), file=sys.stderr, flush=True)
            except GptOnnxError as exc:
                failures.append(f"{name}, {target}: {exc}")
    return rows, failures


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="WORD", help="rows whose family or reader has a word")
    parser.add_argument("--target", nargs="+", default=["cpu", "portable"], choices=["cpu", "portable"])
    levels = ["none", "quick", "standard", "deep"]
    parser.add_argument("--check", default="quick", choices=levels, help="the gate's level")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        rows, failures = rows_of(arguments, Path(folder))
    print(table_of(rows))
    for line in failures:
        print(f"\nFAILED {line}")
    found = [asdict(row) for row in rows]
    told = {"check": arguments.check, "rows": found, "failures": failures}
    print(json.dumps(told | {"environment": asdict(describe(1))}))
    if failures or not all(row.passed for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
