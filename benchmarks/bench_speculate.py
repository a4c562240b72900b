"""How much sooner does a text that repeats its prompt come when its tokens are guessed, and elsewhere?

    python benchmarks/bench_speculate.py                         # the model that ships, and 124M parameters
    python benchmarks/bench_speculate.py my-bundle another-bundle -r 9

The texts are edits of this repository's own files: a prompt quotes a file and its answer is the file with a
name changed (EDITS). No model here can edit: a replay says which token is chosen at each place, after the
sampler has chosen its own from the logits, so that the runs, the guesses and the sampling are those of the
engine, and the text is one that a model which can edit would write. FRESH are documents whose second half
answers their first and repeats nothing but what the language does.

Greedy text of the model's own is written with and without guesses as well: where the two part, the gap of the
two best logits is told, which must be a near tie (a run over several tokens adds in another order).

Contenders take turns: each round runs each of them on each text. Ratios are taken round by round.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from gpt_onnx.checkpoint import find_shipped, write_checkpoint
from gpt_onnx.cli._console import print_tables
from gpt_onnx.config import GPTConfig
from gpt_onnx.export import export_bundle
from gpt_onnx.runtime import OnnxGPT, Sampling
from gpt_onnx.runtime._request import make_request
from gpt_onnx.runtime._rows import start_rows
from gpt_onnx.runtime._speculation import Speculation
from gpt_onnx.runtime.bench.environment import describe
from gpt_onnx.runtime.generation import run
from gpt_onnx.runtime.sampling import Sampler
from gpt_onnx.runtime.tokenizer import Tokenizer, load_tokenizer

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 120
CONTENDERS: tuple[int | str, ...] = ("off", "auto", 4, 8)
TOKENS = 320  # of a quoted text at most
OWN = 128  # tokens of the model's own greedy text
GREEDY = Sampling(temperature=0.0)
SHAPE_124M = GPTConfig(vocab_size=50257, context_length=1024, n_embd=768, n_layer=12, n_head=12)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A file of this repository, and what is changed in it."""

    path: str
    old: str
    new: str


EDITS = (
    Edit(path="runtime/_cache.py", old="capacity", new="slots"),
    Edit(path="runtime/_arguments.py", old="value", new="given"),
    Edit(path="runtime/_ngrams.py", old="tokens", new="ids"),
    Edit(path="gpt_onnx/cli/_units.py", old="size", new="count"),
    Edit(path="docs/gguf.md", old="file", new="container"),
    Edit(path="CONTRIBUTING.md", old="test", new="check"),
)
FRESH = ("docs/architecture.md", "docs/graph.md", "docs/cpp.md", "LICENSE")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A prompt and what is answered to it, in tokens."""

    name: str
    prompt: list[int]
    answer: list[int]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One generation: its time after the first token, and what became of guesses."""

    seconds: float
    speculation: Speculation | None


class Replay(Sampler):
    """Chooses as ``Sampler`` does, and then says the script's token."""

    __slots__ = ("left",)

    def sample(self, logits: Any, seen: Any, generator: Any = None) -> int:
        """Sample, and return the next token of the script."""
        Sampler.sample(self, logits, seen, generator)
        return next(self.left)  # type: ignore[attr-defined, no-any-return]


def replay(answer: Sequence[int]) -> Replay:
    sampler = Replay(sampling=Sampling())
    object.__setattr__(sampler, "left", iter(answer))
    return sampler


def edits(tokenizer: Tokenizer) -> list[Script]:
    scripts = []
    for edit in EDITS:
        quoted = tokenizer.decode(tokenizer.encode((ROOT / edit.path).read_text(encoding="utf-8"))[:TOKENS])
        prompt = f"{edit.path}:\n{quoted}\n\n{edit.path} with {edit.new} for {edit.old}:\n"
        answer = tokenizer.encode(quoted.replace(edit.old, edit.new))
        scripts.append(Script(name=edit.path, prompt=tokenizer.encode(prompt), answer=answer))
    return scripts


def fresh(tokenizer: Tokenizer) -> list[Script]:
    texts = {path: tokenizer.encode((ROOT / path).read_text(encoding="utf-8")) for path in FRESH}
    return [
        Script(name=path, prompt=ids[:TOKENS], answer=ids[TOKENS : 2 * TOKENS]) for path, ids in texts.items()
    ]


def generate(engine: OnnxGPT, script: Script, speculate: int | str) -> Outcome:
    options: Any = {"speculate": speculate, "ignore_eos": True}
    asked = make_request(engine._graphs, (), len(script.answer), Sampling(), options)
    request = dataclasses.replace(asked, sampler=replay(script.answer))
    rows = start_rows([np.array(script.prompt)], request, [np.random.default_rng(0)])
    room = len(script.prompt) + len(script.answer)
    steps = run(rows, lambda size: engine.decoder(size, room), request)
    next(steps)  # the prompt
    started = time.perf_counter()
    for _ in steps:
        pass
    seconds = time.perf_counter() - started
    assert rows[0].result().ids == tuple(script.answer)
    return Outcome(seconds=seconds, speculation=rows[0].result().speculation)


def measure(engine: OnnxGPT, scripts: Sequence[Script], rounds: int) -> dict[str, Any]:
    """Return for each contender its tokens a second, its speed as a multiple of "off" and its guesses."""
    seconds: dict[str, list[float]] = {str(name): [] for name in CONTENDERS}
    guesses: dict[str, list[Speculation]] = {str(name): [] for name in CONTENDERS}
    for number in range(rounds + 1):
        turn = number % len(CONTENDERS)
        totals = dict.fromkeys(seconds, 0.0)
        for script in scripts:
            for name in (*CONTENDERS[turn:], *CONTENDERS[:turn]):
                outcome = generate(engine, script, name)
                totals[str(name)] += outcome.seconds
                if number and outcome.speculation is not None:
                    guesses[str(name)].append(outcome.speculation)
        for key, total in totals.items() if number else ():  # the first round warms up
            seconds[key].append(total)
    tokens = sum(len(script.answer) - 1 for script in scripts)
    return {key: summary(times, seconds["off"], tokens, guesses[key]) for key, times in seconds.items()}


def summary(
    times: Sequence[float], off: Sequence[float], tokens: int, guesses: Sequence[Speculation]
) -> dict[str, Any]:
    proposed, accepted = sum(each.proposed for each in guesses), sum(each.accepted for each in guesses)
    return {
        "tokens_per_s": tokens / float(np.median(times)),
        "times_off": float(np.median([plain / own for plain, own in zip(off, times, strict=True)])),
        "runs": sum(each.runs for each in guesses),
        "proposed": proposed,
        "accepted": accepted,
        "acceptance": accepted / proposed if proposed else None,
    }


def partings(engine: OnnxGPT, scripts: Sequence[Script]) -> dict[str, Any]:
    """Compare greedy texts, plain and guessed: equal tokens, and the gaps of logits where they part."""
    tokens, guessed, gaps = 0, 0, []
    for script in scripts:
        plain, other = (
            engine.generate([script.prompt], OWN, GREEDY, ignore_eos=True, speculate=speculate)[0]
            for speculate in ("off", 8)
        )
        pairs = enumerate(zip(plain.ids, other.ids, strict=True))
        parted = next((at for at, (left, right) in pairs if left != right), None)
        tokens += OWN if parted is None else parted
        guessed += other.speculation.accepted if other.speculation else 0
        if parted is not None:
            logits = engine.logits([[*script.prompt, *plain.ids[:parted]]])[0, -1]
            second, first = np.sort(logits)[-2:]
            gaps.append(float((first - second) / np.abs(logits).max()))
    return {"texts": len(scripts), "equal_tokens": tokens, "accepted": guessed, "gaps_where_parted": gaps}


def shown(name: str, kind: str, found: dict[str, Any]) -> Table:
    table = Table(title=f"{name}: {kind}", title_justify="left")
    for column in ("speculate", "tokens/s", "x off", "accepted", "of proposed"):
        table.add_column(column, justify="right")
    for key, values in found.items():
        share = "" if values["acceptance"] is None else f"{values['acceptance']:.0%}"
        speed = (f"{values['tokens_per_s']:.1f}", f"{values['times_off']:.2f}")
        table.add_row(key, *speed, str(values["accepted"]), share)
    return table


def random_124m(folder: Path) -> Path:
    """Write a checkpoint of 124M random parameters."""
    import torch

    from gpt_onnx.model import GPT

    torch.manual_seed(0)
    write_checkpoint(folder, SHAPE_124M, GPT(SHAPE_124M).state_dict())
    return folder


def exported(folder: Path, shipped: Path, precisions: Sequence[str]) -> dict[str, Path]:
    bundles = {}
    for name, source in (("shipped", shipped), ("124M", random_124m(folder / "124m"))):
        for precision in precisions:
            options: Any = {} if precision == "fp32" else {"precision": precision}
            path = folder / f"{name}-{precision}"
            export_bundle(source, path, check="none", **options)
            bundles[f"{name} {precision}"] = path
    return bundles


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundles", nargs="*", type=Path, help="default: exports of both models")
    parser.add_argument("--precision", default="fp32", metavar="P,P", help="of exports; default: %(default)s")
    parser.add_argument("-r", "--repetitions", type=int, default=5, help="default: %(default)s")
    parser.add_argument("-t", "--threads", type=int, help="default: the cores that this process may use")
    return parser.parse_args()


def main() -> None:
    arguments, shipped = parse(), find_shipped()
    if shipped is None:
        sys.exit("There is no model here that ships, and its tokenizer is needed; run this in a clone.")
    tokenizer = load_tokenizer(shipped / "tokenizer.json")
    report: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        named = {path.name: path for path in arguments.bundles}
        bundles = named or exported(Path(folder), shipped, arguments.precision.split(","))
        for name, path in bundles.items():
            engine = OnnxGPT.load(path, threads=arguments.threads, check_hashes=False)
            report[name] = {}
            for kind, scripts in (("edits", edits(tokenizer)), ("fresh text", fresh(tokenizer))):
                found = measure(engine, scripts, arguments.repetitions)
                report[name][kind] = found
                print_tables(shown(name, kind, found), width=WIDTH)
            report[name]["greedy"] = partings(engine, edits(tokenizer) + fresh(tokenizer))
            print(f"greedy, with and without guesses: {report[name]['greedy']}")
    environment = dataclasses.asdict(describe(engine.threads))
    print(f"{environment}")
    print(
        json.dumps(
            {
                "environment": environment,
                "files": [dataclasses.asdict(edit) for edit in EDITS],
                "found": report,
            }
        )
    )


if __name__ == "__main__":
    main()
