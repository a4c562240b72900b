"""Every original program: a small model of it as it saves models, and its comparison with a bundle.

for family, reader, make in ORIGINALS:
    original = make(folder)                      # original.source is what to export
    original.compare(OnnxGPT.load(bundle))       # the rule of docs/parity.md, and 128 greedy tokens
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gpt_onnx.export.gate.tolerance import MAX_FACTOR, Ratio, RowErrors, ratio_of, worst
from gpt_onnx.runtime import OnnxGPT, Sampling
from tests.originals import cpp, gguf_files, hugging_face, nano, own_module

Floats = NDArray[Any]
LENGTHS = (1, 2, 17, 64, 160)
CONTEXT = 160
PROMPT, NEW_TOKENS = 16, 128


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was found out about an engine."""

    ratio: Ratio
    equal: int
    near_ties: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """A model as its program saved it, what the user has to say of it, and its comparison with an engine."""

    source: Any
    compare: Callable[[OnnxGPT], Comparison]
    options: Mapping[str, Any] = field(default_factory=dict)


def drawn(length: int, vocab_size: int, seed: int) -> list[int]:
    return [int(number) for number in np.random.default_rng(seed).integers(0, vocab_size, length)]


def near_ties(short: Floats, unit: float) -> int:
    return int(((short > 0) & (short <= 2 * MAX_FACTOR * unit)).sum())


@dataclass(frozen=True, slots=True)
class Program:
    """A program in Python: the logits (S, V) of one sequence, in two precisions."""

    float32: Callable[[list[int]], Floats]
    float64: Callable[[list[int]], Floats]
    vocab_size: int

    def _measured(self, ids: list[int]) -> tuple[Floats, RowErrors]:
        expected = self.float64(ids)[:, : self.vocab_size]
        return expected, RowErrors.measure(self.float32(ids)[:, : self.vocab_size], expected)

    def compare(self, engine: OnnxGPT) -> Comparison:
        """Compare prompts of every length, and a text."""
        ratios = []
        for length in LENGTHS:
            ids = drawn(length, self.vocab_size, 3)
            expected, errors = self._measured(ids)
            ratios.append(ratio_of(engine.logits([ids])[0], expected, errors.unit()))
        return Comparison(worst(ratios), *self._greedy(engine))

    def _greedy(self, engine: OnnxGPT) -> tuple[int, int]:
        """Hold each token against the program's logits after what the engine has written before it."""
        prompt = drawn(PROMPT, self.vocab_size, 5)
        greedy = Sampling(temperature=0.0)
        [generation] = engine.generate([prompt], NEW_TOKENS, sampling=greedy, ignore_eos=True)
        tokens = list(generation.ids)
        logits, errors = self._measured([*prompt, *tokens[:-1]])
        rows = logits[PROMPT - 1 :]
        short = rows.max(axis=-1) - rows[np.arange(NEW_TOKENS), tokens]
        return int((short == 0).sum()), near_ties(short, errors.unit().peak)


def evaluated(model: Any, logits: Callable[[Any], Any]) -> Callable[[list[int]], Floats]:
    """Return what computes the logits of one sequence."""

    def run(ids: list[int]) -> Floats:
        with torch.no_grad():
            return np.asarray(logits(model(torch.tensor([ids])))[0].double().numpy())

    return run


def of_transformers(model: Any, source: Path) -> Original:
    def in_dtype(dtype: torch.dtype) -> Callable[[list[int]], Floats]:
        return evaluated(hugging_face.exact(model, dtype), lambda output: output.logits)

    program = Program(in_dtype(torch.float32), in_dtype(torch.float64), model.config.vocab_size)
    return Original(source=source, compare=program.compare)


def of_module(module: Any, source: Any, vocab_size: int, options: Mapping[str, Any]) -> Original:
    plain, exact = (
        evaluated(twin, lambda logits: logits) for twin in (module, copy.deepcopy(module).double())
    )
    return Original(source=source, compare=Program(plain, exact, vocab_size).compare, options=options)


def hugging_face_folder(variant: str, form: str) -> Callable[[Path], Original]:
    def make(folder: Path) -> Original:
        model = hugging_face.make_model(variant)
        if not variant.startswith("gpt2"):
            model.config.max_position_embeddings = CONTEXT
        return of_transformers(model, hugging_face.save(model, folder / "model", form))

    return make


def gguf_file(make_model: Callable[..., Any], length: str, kind: str) -> Callable[[Path], Original]:
    def make(folder: Path) -> Original:
        model, wanted = make_model(**{length: CONTEXT}), gguf_files.TYPES[kind]
        path = folder / "model.gguf"
        stands = gguf_files.write(
            path, model, lambda _, array: wanted if array.ndim > 1 else gguf_files.TYPES.F32
        )
        return of_transformers(gguf_files.put(model, stands), path)

    return make


def nano_checkpoint(name: str) -> Callable[[Path], Original]:
    def make(folder: Path) -> Original:
        case = nano.made(name)
        path = nano.save(case, folder / "ckpt.pt")
        rows = case.model.lm_head.weight if hasattr(case.model, "lm_head") else case.model.head.weight
        words = 50257 if len(rows) == 50304 else len(rows)  # the rest is padding
        return of_module(case.model, path, words, {"config": nano.answered(case, folder)})

    return make


def described(folder: Path) -> dict[str, Path]:
    (folder / "names.toml").write_text(own_module.NAMES)
    (folder / "config.toml").write_text(own_module.CONFIG)
    return {"names": folder / "names.toml", "config": folder / "config.toml"}


def own_state(folder: Path) -> Original:
    module = own_module.mine()
    torch.save(module.state_dict(), folder / "mine.pt")
    return of_module(module, folder / "mine.pt", own_module.VOCAB, described(folder))


def own_code(folder: Path) -> Original:
    module = own_module.mine()
    return of_module(module, module, own_module.VOCAB, described(folder))


def compare_cpp(made: cpp.CppRun, engine: OnnxGPT) -> Comparison:
    """Compare with the numbers that the C++ program left; its text is followed up to the first difference."""
    exact, plain = made.numbers("reference64"), made.numbers("reference")["logits"]
    ratios = [
        ratio_of(found, expected, RowErrors.measure(single, expected).unit())
        for found, expected, single in zip(
            engine.logits(exact["input_ids"]), exact["logits"], plain, strict=True
        )
    ]
    greedy = made.numbers("greedy")
    sampling = Sampling(temperature=0.0)
    [generation] = engine.generate(greedy["prompt"], NEW_TOKENS, sampling=sampling, ignore_eos=True)
    differs = np.flatnonzero(np.array(generation.ids) != greedy["tokens"][0])
    if not differs.size:
        return Comparison(worst(ratios), NEW_TOKENS, 0)
    first = int(differs[0])
    tied = greedy["margins"][first] <= 2 * made.tolerance()
    return Comparison(worst(ratios), first, NEW_TOKENS - first if tied else 0)


def cpp_archive(case: str, form: str) -> Callable[[Path], Original]:
    def make(folder: Path) -> Original:
        flags, answers = cpp.CASES[case]
        made = cpp.run_program(cpp.compiled(folder.parent), folder, flags)
        options = {"config": made.config(**answers), "reference": made.reference}
        return Original(
            source=getattr(made, form), compare=lambda engine: compare_cpp(made, engine), options=options
        )

    return make


FOLDER, STATE, ARCHIVE = "Hugging Face folder", "state dict of minGPT or nanoGPT", "LibTorch archive"
NANO, GGUF = "nanoGPT checkpoint", "GGUF file"
ORIGINALS: tuple[tuple[str, str, Callable[[Path], Original]], ...] = (
    ("gpt2", f"{FOLDER} (.bin)", hugging_face_folder("gpt2", "bin")),
    ("gpt2, scores by layer", FOLDER, hugging_face_folder("gpt2 by layer", "safetensors")),
    ("llama", f"{FOLDER} (shards)", hugging_face_folder("llama", "shards")),
    ("llama, rope llama3", FOLDER, hugging_face_folder("llama llama3", "safetensors")),
    ("mistral", FOLDER, hugging_face_folder("mistral", "safetensors")),
    ("qwen2, tied", f"{FOLDER} (shards)", hugging_face_folder("qwen2 tied", "shards")),
    ("nanoGPT", NANO, nano_checkpoint("nanogpt")),
    ("nanoGPT, no biases", NANO, nano_checkpoint("nanogpt without biases")),
    ("nanoGPT, padded", NANO, nano_checkpoint("nanogpt with padding")),
    ("minGPT", STATE, nano_checkpoint("mingpt")),
    ("minGPT, older", STATE, nano_checkpoint("older mingpt")),
    ("gpt2", f"{GGUF} (F32)", gguf_file(gguf_files.gpt2, "n_positions", "F32")),
    ("gpt2", f"{GGUF} (Q8_0)", gguf_file(gguf_files.gpt2, "n_positions", "Q8_0")),
    ("llama", f"{GGUF} (F32)", gguf_file(gguf_files.llama, "max_position_embeddings", "F32")),
    ("llama", f"{GGUF} (Q8_0)", gguf_file(gguf_files.llama, "max_position_embeddings", "Q8_0")),
    ("qwen2", f"{GGUF} (F32)", gguf_file(gguf_files.qwen2, "max_position_embeddings", "F32")),
    ("C++, a module a head", ARCHIVE, cpp_archive("heads with biases, gelu", "module")),
    ("C++, packed", ARCHIVE, cpp_archive("packed, tied head, masks", "archive")),
    ("C++, TransformerEncoder", ARCHIVE, cpp_archive("torch::nn::TransformerEncoder", "module")),
    ("somebody's own", "state dict with --names", own_state),
    ("somebody's own", "module with --names", own_code),
)
"""A family, the reader that reads it, and what makes one with its original program."""
