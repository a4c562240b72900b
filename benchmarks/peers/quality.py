"""How much do integer weights cost: llama.cpp's formats and ours, on the same trained weights and tokens.

    python -m benchmarks.peers.quality                         # the model that ships, its validation text
    python -m benchmarks.peers.quality --source my-gpt --text mine.txt

llama.cpp reads the model as GPT-2 whose table of positions holds the sinusoids (weights.py). Each format is
compared with float32 in its own program: KL(float32 || format) at each token, perplexity, and how often both
find the same token the most likely. The windows are those of ``gpt-onnx eval``. llama.cpp computes GELU by
its tanh formula, and GPT-2's format has no other, so that its float32 differs from ours; a row says how much.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.environments import HERE, PeerMissingError, python_of
from benchmarks.peers.forms import Forms
from benchmarks.peers.run import CACHE, tell
from benchmarks.peers.weights import write_weights
from gpt_onnx.checkpoint import find_shipped
from gpt_onnx.errors import GptOnnxError
from gpt_onnx.runtime import OnnxGPT
from gpt_onnx.runtime._threads import thread_count
from gpt_onnx.runtime.bench.environment import describe
from gpt_onnx.runtime.quality import BundlePredictor, Comparison, Predict, Window, compare, windows
from gpt_onnx.runtime.quality.texts import open_tokens
from gpt_onnx.runtime.quality.windows import at_most
from gpt_onnx.runtime.tokenizer import load_tokenizer

TOKENS = 20_480
LLAMA = ("q8_0.gguf", "q4_0.gguf", "q4_0-two-tables.gguf")
OURS = ("gpt-onnx-int8", "gpt-onnx-int4", "gpt-onnx-int4-head-int4")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One format beside float32."""

    name: str
    against: str
    bytes: int
    comparison: Comparison


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--environments", type=Path, default=CACHE / "environments", metavar="DIR")
    parser.add_argument("--weights", type=Path, default=CACHE / "trained", metavar="DIR")
    parser.add_argument("--source", type=Path, help="default: the model that ships")
    parser.add_argument("--text", type=Path, help="default: the source's validation.txt")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="default: %(default)s")
    parser.add_argument("-t", "--threads", type=int)
    return parser.parse_args()


def windows_of(text: Path, source: Path, engine: OnnxGPT, tokens: int, length: int) -> list[Window]:
    """Return the windows whose length is whole, about as many as have so many tokens to predict."""
    tokenizer = load_tokenizer(source / "tokenizer.json")
    with open_tokens(text, tokenizer, engine.vocab_size) as found:
        chunks = at_most(found.chunks, tokens + 1)
        return [window for window in windows(chunks, length=length) if window.ids.size == length]


class LlamaPredictors:
    """The logits of llama.cpp, computed for all windows at once and read from a file; see Predict."""

    def __init__(self, python: Path, folder: Path, sequences: Sequence[Window], threads: int) -> None:
        self._python, self._folder, self._threads = python, folder, threads
        self._index = {id(window): index for index, window in enumerate(sequences)}
        np.save(folder / "windows.npy", np.stack([window.ids for window in sequences]))

    def predictor(self, model: Path) -> Predict:
        """Return the predictor of a GGUF file.

        Raises:
            PeerMissingError: if llama.cpp cannot compute it.
        """
        made = self._folder / f"{model.name}.npy"
        script, given = HERE / "llama_cpp_logits.py", self._folder / "windows.npy"
        command = [self._python, script, model, given, made, self._threads]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if done.returncode:
            raise PeerMissingError(f"llama.cpp cannot compute {model.name}: {done.stderr.strip()[-300:]}")
        logits: NDArray[np.float32] = np.load(made, mmap_mode="r")

        def predict(window: Window) -> Iterator[NDArray[np.float32]]:
            yield logits[self._index[id(window)], window.first :]

        return predict


def compared(
    names: Sequence[str],
    base: Predict,
    base_name: str,
    make: Callable[[str], Predict],
    forms: Forms,
    given: list[Window],
) -> Iterator[Row]:
    """Yield a row for each format."""
    for name in names:
        tell(f"comparing {name} with {base_name}")
        path = forms.path(name)
        size = sum(file.stat().st_size for file in path.rglob("*")) if path.is_dir() else path.stat().st_size
        yield Row(name=name, against=base_name, bytes=size, comparison=compare(base, make(name), given))


def rows_of(arguments: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Compare all, llama.cpp's first."""
    source = arguments.source or find_shipped()
    text = arguments.text or source / "validation.txt"
    threads = thread_count(arguments.threads)
    environments, weights = arguments.environments.expanduser(), arguments.weights.expanduser()
    write_weights(weights, str(source))
    forms = Forms(weights, lambda peer: python_of(peer, environments, tell), tell)

    def engine(name: str) -> OnnxGPT:
        return OnnxGPT.load(forms.path(name), "cpu", threads)

    ours = engine("gpt-onnx-fp32")
    assert ours.limit is not None
    given = windows_of(text, source, ours, arguments.tokens, min(512, ours.limit))
    base = BundlePredictor(ours)
    yield from compared(OURS, base, "gpt-onnx-fp32", lambda name: BundlePredictor(engine(name)), forms, given)
    python = python_of("llama_cpp", environments, tell)
    llama = LlamaPredictors(python, folder, given, threads)
    float32 = llama.predictor(forms.path("f32.gguf"))
    yield from compared(("f32.gguf",), base, "gpt-onnx-fp32", lambda name: float32, forms, given)
    yield from compared(
        LLAMA, float32, "f32.gguf", lambda name: llama.predictor(forms.path(name)), forms, given
    )


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield "| format | against | MB | KL mean | KL median | KL 99 % | perplexity x | top-1 |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for row in rows:
        kl, found = row.comparison.kl, row.comparison
        cells = (
            row.name,
            row.against,
            f"{row.bytes / 1e6:.2f}",
            f"{kl.mean.value:.3g} +- {kl.mean.error:.1g}",
            f"{kl.median:.3g}",
            f"{kl.p99:.3g}",
            f"{found.ratio.value:.4f} +- {found.ratio.error:.4f}",
            f"{100 * found.same_top.value:.2f} %",
        )
        yield f"| {' | '.join(cells)} |"


def main() -> int:
    arguments = parse()
    try:
        with tempfile.TemporaryDirectory() as folder:
            rows = list(rows_of(arguments, Path(folder)))
    except GptOnnxError as exc:
        tell(f"Error: {exc}")
        return 1
    print("\n".join(table(rows)), end="\n\n")
    environment = describe(thread_count(arguments.threads))
    result: Mapping[str, object] = {
        "environment": dataclasses.asdict(environment),
        "rows": [{**dataclasses.asdict(row), "comparison": row.comparison.to_json()} for row in rows],
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
