"""The same 124M weights through every program that a user might pick instead of ours.

    python -m benchmarks.peers.run                                  # from a clone, with the dev extra
    python -m benchmarks.peers.run --only gpt-onnx --only llama.cpp --repetitions 3 --plot peers.svg

Makes what is missing (environments, weights, every program's form of them), then measures all contenders in
turn, each in its own process, with the same number of threads. Prints tables in Markdown and one JSON object
on the last line. What was made is kept, so that a second run measures at once.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.peers.bars import judge
from benchmarks.peers.contenders import CONTENDERS, Contender
from benchmarks.peers.environments import HERE, python_of
from benchmarks.peers.forms import Forms
from benchmarks.peers.tables import contender_table, verdict_table
from benchmarks.peers.weights import write_weights
from gpt_onnx.errors import GptOnnxError
from gpt_onnx.runtime.bench import BenchPlan, BenchReport, bench
from gpt_onnx.runtime.bench.entrant import BUNDLE, COMPILED, EAGER, PEER, Entrant, Program

CACHE = Path("~/.cache/gpt-onnx/peers")
EVERY = 0.05  # of the turns, between two lines of progress


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--environments", type=Path, default=CACHE / "environments", metavar="DIR")
    parser.add_argument("--weights", type=Path, default=CACHE / "weights", metavar="DIR")
    parser.add_argument("--source", help="a checkpoint; default: random weights in the shape of GPT-2 124M")
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="names that contain it")
    parser.add_argument("--prompt-tokens", default="128,900", metavar="N,N", help="default: %(default)s")
    parser.add_argument("-n", "--new-tokens", type=int, default=64, help="default: %(default)s")
    parser.add_argument("-r", "--repetitions", type=int, default=5, help="default: %(default)s")
    parser.add_argument("-t", "--threads", type=int, help="default: the cores that this process may use")
    parser.add_argument("--prepare-only", action="store_true", help="make what is missing, measure nothing")
    parser.add_argument("--plot", type=Path, help="also draw it: FILE.svg, .png or .pdf")
    return parser.parse_args(arguments)


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def told_turns() -> Callable[[int, int], None]:
    """Return what prints a line on every twentieth part of the turns."""
    begin, last = time.monotonic(), 0

    def told(done: int, total: int) -> None:
        nonlocal last
        if done == total or done - last >= EVERY * total:
            last, spent = done, time.monotonic() - begin
            tell(f"{done} of {total} turns, {spent:.0f} s; about {spent * (total - done) / done:.0f} s to go")

    return told


def chosen(only: Sequence[str]) -> list[Contender]:
    """Return the contenders whose names contain one of some texts; all for none."""
    return [one for one in CONTENDERS if not only or any(text in one.name for text in only)]


def entrant_of(contender: Contender, source: Path, python: Path) -> Entrant:
    program = Program(script=str(HERE / f"{contender.peer}_peer.py"), python=str(python.absolute()))
    return Entrant(
        name=contender.name, kind=PEER, program=program, source=str(source), options=contender.options
    )


class Preparation:
    """What the contenders need, and which of them cannot be had."""

    def __init__(self, environments: Path, weights: Path) -> None:
        self.environments = environments
        self.forms = Forms(weights, self.python_of, tell)
        self.sources: dict[str, Path] = {}
        self.peers: list[Entrant] = []
        self.missing: dict[str, str] = {}

    def python_of(self, peer: str) -> Path:
        """Return the interpreter of a peer, see environments."""
        return python_of(peer, self.environments, tell)

    def prepare(self, contender: Contender) -> None:
        """Make what one contender needs; what cannot be made is noted."""
        try:
            source = self.forms.path(contender.form)
            if contender.kind == PEER:
                self.peers.append(entrant_of(contender, source, self.python_of(contender.peer)))
            self.sources[contender.name] = source
        except (GptOnnxError, OSError) as exc:
            self.missing[contender.name] = str(exc)
            tell(f"{contender.name} is left out: {exc}")


def measure(
    arguments: argparse.Namespace, contenders: Sequence[Contender], prepared: Preparation
) -> BenchReport:
    present = [one for one in contenders if one.name in prepared.sources]
    kinds = {one.kind for one in present}
    bundles = [prepared.sources[one.name] for one in present if one.kind == BUNDLE]
    plan = BenchPlan(
        prompt_tokens=tuple(int(count) for count in arguments.prompt_tokens.split(",")),
        new_tokens=arguments.new_tokens,
        repetitions=arguments.repetitions,
        threads=arguments.threads,
        provider="cpu",
        bandwidth=True,
    )
    return bench(
        bundles,
        against=prepared.forms.path("ours") if kinds & {EAGER, COMPILED} else None,
        compiled=COMPILED in kinds,
        peers=prepared.peers,
        baseline=bundles[0].name if bundles else None,
        plan=plan,
        progress=told_turns(),
    )


def show(report: BenchReport, missing: dict[str, str]) -> None:
    verdicts = judge(report)
    failures = {**missing, **report.failures}
    left_out = {
        name: why for name, why in failures.items() if all(name != one.name for one in report.contenders)
    }
    print("\n".join(contender_table(report, left_out)), end="\n\n")
    print("\n".join(verdict_table(verdicts)), end="\n\n")
    for name, why in failures.items():
        print(f"{name} could not be measured: {why}")
    for note in report.notes:
        print(note)
    result = {
        "report": report.to_json(),
        "bars": [dataclasses.asdict(verdict) for verdict in verdicts],
        "missing": failures,
    }
    print(json.dumps(result))


def main() -> int:
    arguments = parse()
    if arguments.plot is not None:
        from gpt_onnx.cli._bench_plot import check_plot

        check_plot(arguments.plot)
    weights = arguments.weights.expanduser()
    try:
        tell(f"weights in {weights}")
        write_weights(weights, arguments.source)
        contenders = chosen(arguments.only)
        prepared = Preparation(arguments.environments.expanduser(), weights)
        for contender in contenders:
            prepared.prepare(contender)
        if arguments.prepare_only:
            return 1 if prepared.missing else 0
        report = measure(arguments, contenders, prepared)
    except GptOnnxError as exc:
        tell(f"Error: {exc}")
        return 1
    show(report, prepared.missing)
    if arguments.plot is not None:
        from gpt_onnx.cli._bench_plot import draw

        draw(report, arguments.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
