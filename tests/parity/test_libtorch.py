"""GPTs written in C++, trained weights and numbers saved by C++: read, exported, and compared with them.

The program of tests/libtorch is compiled once against the headers and libraries that the torch package
carries. R64 is what it computes in float64, and e32 what its own float32 makes of that; nothing here is
compared with our reading of its weights.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils import cpp_extension

from gpt_onnx.checkpoint import read_checkpoint
from gpt_onnx.checkpoint.load import load_model
from gpt_onnx.checkpoint.reader import find_reader
from gpt_onnx.checkpoint.readers import libtorch
from gpt_onnx.checkpoint.readers._reader import ReadOptions
from gpt_onnx.errors import CheckpointError, ConfigError, InputError, ParityError
from gpt_onnx.export import export_bundle
from gpt_onnx.runtime import OnnxGPT, Sampling

SOURCES = Path(__file__).resolve().parents[1] / "libtorch"
COMPILER = shutil.which(os.environ.get("CXX", "g++"))
STANDARD = "-std=c++20"
EPS32 = 2.0**-24

ANSWERS: Mapping[str, Any] = {
    "position": "sinusoidal",
    "sinusoidal_style": "interleaved",
    "context_length": 192,
    "norm_order": "pre",
    "norm_eps": 1e-5,
    "activation": "gelu",
    "attention_scale": "head_size",
    "embedding_scale": 1.0,
}
LEARNED = {"position": "learned", "sinusoidal_style": None}
PACKED = LEARNED | {"n_head": 3}
ENCODER = PACKED | {"norm_order": "post", "activation": "relu", "embedding_scale": "sqrt"}

Numbers = dict[str, NDArray[Any]]


def _command(binary: Path) -> list[str]:
    """Return the compiler's command for a program of the torch package's own headers and libraries."""
    includes = [f"-I{path}" for path in cpp_extension.include_paths()]
    libraries = [
        part for path in cpp_extension.library_paths() for part in (f"-L{path}", f"-Wl,-rpath,{path}")
    ]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    assert COMPILER is not None
    start = [COMPILER, STANDARD, "-O1", "-w", abi, *includes, str(SOURCES / "main.cpp"), "-o", str(binary)]
    return [*start, *libraries, "-ltorch", "-ltorch_cpu", "-lc10"]


@pytest.fixture(scope="session")
def program(request: pytest.FixtureRequest) -> Path:
    """The C++ program; compiled anew only where its sources or PyTorch have changed."""
    if COMPILER is None:
        pytest.skip("there is no C++ compiler (g++, or CXX), so that no LibTorch program can be made here")
    digest = hashlib.sha256(torch.__version__.encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.read_bytes())
    folder = request.config.cache.mkdir("libtorch")  # type: ignore[union-attr]
    binary = folder / f"gpt-{digest.hexdigest()[:16]}"
    if not binary.exists():
        building = binary.with_suffix(f".{os.getpid()}")
        done = subprocess.run(_command(building), capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        building.replace(binary)
    return binary


def script_tensors(path: Path) -> Numbers:
    """Read an archive of our own program as PyTorch itself does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = torch.jit.load(path)  # type: ignore[no-untyped-call]
    return {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What one run of the C++ program left."""

    folder: Path

    @property
    def module(self) -> Path:
        """What torch::save(module, path) wrote."""
        return self.folder / "module.pt"

    @property
    def archive(self) -> Path:
        """An OutputArchive of the module, its optimizer and a counter."""
        return self.folder / "archive.pt"

    @property
    def reference(self) -> Path:
        """Ids and logits in float32."""
        return self.folder / "reference.pt"

    def numbers(self, name: str) -> Numbers:
        """Return the tensors of a file by name."""
        return script_tensors(self.folder / f"{name}.pt")

    def tolerance(self) -> float:
        """Return the gate's rule, in units of the C++ program's own float32."""
        f32, r64 = self.numbers("reference")["logits"], self.numbers("reference64")["logits"]
        return 4 * max(float(np.abs(f32 - r64).max()), 8 * EPS32 * float(np.abs(r64).max()))

    def config(self, **answers: Any) -> Path:
        """Write a --config file: ANSWERS with changes; None takes one away."""
        lines = [f"{key} = {_toml(value)}" for key, value in (ANSWERS | answers).items() if value is not None]
        path = self.folder / f"{hashlib.sha256(repr(lines).encode()).hexdigest()[:8]}.toml"
        path.write_text("\n".join(lines))
        return path


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


Maker = Callable[..., Made]


@pytest.fixture(scope="session")
def make(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Maker:
    """Runs the program; equal flags give the same folder."""
    made: dict[str, Made] = {}

    def run(**flags: Any) -> Made:
        key = repr(sorted(flags.items()))
        if key not in made:
            folder = tmp_path_factory.mktemp("cpp")
            words = [
                word
                for name, value in (flags | {"out": folder}).items()
                for word in (f"--{name}", str(value))
            ]
            done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=120)
            assert done.returncode == 0, done.stderr
            made[key] = Made(folder=folder)
        return made[key]

    return run


CASES: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "heads with biases, gelu": ({}, {}),
    "heads without biases, relu": ({"head_bias": 0, "activation": "relu"}, {"activation": "relu"}),
    "sines, then cosines; tanh": (
        {"position": "concatenated", "activation": "gelu_tanh"},
        {"sinusoidal_style": "concatenated", "activation": "gelu_tanh"},
    ),
    "learned table, scaled by the width": (
        {"position": "learned", "scale": "n_embd"},
        LEARNED | {"attention_scale": "n_embd"},
    ),
    "masks stored in every head": ({"mask": 1}, {}),
    "packed, free head": ({"kind": "packed"}, PACKED),
    "packed, tied head, masks": ({"kind": "packed", "tied": 1, "mask": 1, "head_bias": 0}, PACKED),
    "torch::nn::TransformerEncoder": ({"kind": "encoder", "activation": "relu"}, ENCODER),
}
"""Flags of the program, and the answers that differ from ANSWERS."""


@pytest.mark.parametrize("name", CASES)
def test_weights_read_from_cpp_compute_its_float64_logits(name: str, make: Maker) -> None:
    flags, answers = CASES[name]
    made = make(**flags)
    numbers = made.numbers("reference64")
    for path in (made.module, made.archive):
        model = load_model(read_checkpoint(path, config=made.config(**answers)), torch.float64)
        with torch.no_grad():
            found = model(torch.from_numpy(numbers["input_ids"]))[0].numpy()
        assert np.abs(found - numbers["logits"]).max() <= 1e-11 * np.abs(numbers["logits"]).max()


EXPORTS = {
    "heads with biases, gelu": ("module", "cpu"),
    "heads without biases, relu": ("archive", "portable"),
    "packed, tied head, masks": ("archive", "cpu"),
    "torch::nn::TransformerEncoder": ("module", "portable"),
}


def agree(found: NDArray[Any], expected: Numbers, tolerance: float) -> bool:
    """Whether greedy tokens are equal, up to a place where the C++ program's own two best nearly tie."""
    differs = np.flatnonzero(found != expected["tokens"][0])
    return not differs.size or bool(expected["margins"][differs[0]] <= 2 * tolerance)


@pytest.mark.parametrize("name", EXPORTS)
def test_bundle_computes_the_logits_and_the_text_of_the_cpp_program(
    name: str, make: Maker, tmp_path: Path
) -> None:
    (flags, answers), (form, target) = CASES[name], EXPORTS[name]
    made = make(**flags)
    bundle = tmp_path / "bundle"
    export_bundle(getattr(made, form), bundle, target=target, config=made.config(**answers), check="none")
    engine, numbers, greedy = (
        OnnxGPT.load(bundle, threads=1),
        made.numbers("reference64"),
        made.numbers("greedy"),
    )
    found = np.stack(engine.logits(numbers["input_ids"]))
    assert np.abs(found - numbers["logits"]).max() <= made.tolerance()
    generated = engine.generate(greedy["prompt"], 128, Sampling(temperature=0.0), ignore_eos=True)[0]
    assert len(set(greedy["tokens"][0].tolist())) > 10  # a text, not one token for ever
    assert agree(np.array(generated.ids), greedy, made.tolerance())
