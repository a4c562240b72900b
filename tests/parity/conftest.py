"""Tiny GPTs whose every part matters, exported once a session and gated as often as a test likes.

make_gpt, export_unchecked   our own GPT
make_cpp                     a GPT in C++ (tests/libtorch), with what it computes
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gpt_onnx.config import GPTConfig
from gpt_onnx.export import export_bundle
from gpt_onnx.model import GPT

GptMaker = Callable[..., GPT]
Exporter = Callable[..., Path]

SIZES: dict[str, Any] = {"vocab_size": 97, "context_length": 48, "n_embd": 32, "n_layer": 2, "n_head": 4}


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny matrices gain nothing from threads, and lose much where other programs run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def lively(gpt: GPT, seed: int) -> GPT:
    """Give a new GPT weights as large as trained ones: attention that chooses, norms and biases that matter.

    At initialisation attention is nearly uniform and biases are zero, so that a wrong scale or a lost bias
    changes nothing, and no comparison could tell.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in gpt.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("c_attn.weight"):
                parameter.copy_(0.45 * noise)
            elif parameter.dim() > 1:
                parameter.copy_(0.15 * noise)
            else:
                parameter.add_(0.2 * noise)
    return gpt.eval()


@pytest.fixture(scope="session")
def make_gpt() -> GptMaker:
    """Makes a GPT: fields of GPTConfig that differ from SIZES, and a seed."""

    def make(*, seed: int = 0, **changes: Any) -> GPT:
        return lively(GPT(GPTConfig(**(SIZES | changes))), seed)

    return make


@pytest.fixture(scope="session")
def export_unchecked(tmp_path_factory: pytest.TempPathFactory) -> Exporter:
    """Exports a module without the gate and returns the bundle's folder: options as of ``export_bundle``."""

    def export(module: torch.nn.Module, **options: Any) -> Path:
        folder = tmp_path_factory.mktemp("bundle") / "bundle"
        export_bundle(module, folder, check="none", **options)
        return folder

    return export


CPP_SOURCES = Path(__file__).resolve().parents[1] / "libtorch"
COMPILER = shutil.which(os.environ.get("CXX", "g++"))
STANDARD = "-std=c++20"
EPS32 = 2.0**-24

CPP_ANSWERS: Mapping[str, Any] = {
    "position": "sinusoidal",
    "sinusoidal_style": "interleaved",
    "context_length": 192,
    "norm_order": "pre",
    "norm_eps": 1e-5,
    "activation": "gelu",
    "attention_scale": "head_size",
    "embedding_scale": 1.0,
}
"""What the tensors of the C++ program cannot say, where its flags do not say otherwise."""


def _command(binary: Path) -> list[str]:
    """Return the compiler's command for a program of the torch package's own headers and libraries."""
    from torch.utils import cpp_extension

    includes = [f"-I{path}" for path in cpp_extension.include_paths()]
    libraries = [
        part for path in cpp_extension.library_paths() for part in (f"-L{path}", f"-Wl,-rpath,{path}")
    ]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    assert COMPILER is not None
    source = str(CPP_SOURCES / "main.cpp")
    start = [COMPILER, STANDARD, "-O1", "-w", abi, *includes, source, "-o", str(binary)]
    # libtorch and what lies below libtorch_cpu may need CUDA's libraries, which this program does without
    return [*start, *libraries, "-ltorch_cpu", "-lc10", "-Wl,--allow-shlib-undefined"]


@pytest.fixture(scope="session")
def cpp_program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C++ program; compiled anew only where its sources or PyTorch have changed."""
    if COMPILER is None or not sys.platform.startswith("linux"):
        give_up = pytest.fail if os.environ.get("CI") else pytest.skip
        give_up("a program of LibTorch is compiled with g++ (or CXX) on Linux, and there is none here")
    digest = hashlib.sha256(f"{torch.__version__} {_command(Path())}".encode())
    for path in sorted(CPP_SOURCES.iterdir()):
        digest.update(path.read_bytes())
    cache = getattr(request.config, "cache", None)
    folder = cache.mkdir("libtorch") if cache else tmp_path_factory.mktemp("libtorch")
    binary: Path = folder / f"gpt-{digest.hexdigest()[:16]}"
    if not binary.exists():
        building = binary.with_suffix(f".{os.getpid()}")
        done = subprocess.run(_command(building), capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        building.replace(binary)
    return binary


def script_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """Read an archive of our own program as PyTorch itself does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = torch.jit.load(path)  # type: ignore[no-untyped-call]
    return {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class CppRun:
    """What one run of the C++ program left; see tests/libtorch/main.cpp."""

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

    def numbers(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the tensors of a file by name."""
        return script_tensors(self.folder / f"{name}.pt")

    def tolerance(self) -> float:
        """Return the gate's rule, in units of the C++ program's own float32."""
        f32, r64 = self.numbers("reference")["logits"], self.numbers("reference64")["logits"]
        return 4 * max(float(np.abs(f32 - r64).max()), 8 * EPS32 * float(np.abs(r64).max()))

    def config(self, **answers: Any) -> Path:
        """Write a --config file: CPP_ANSWERS with changes; None takes one away."""
        chosen = {**CPP_ANSWERS, **answers}
        lines = [f"{key} = {json.dumps(value)}" for key, value in chosen.items() if value is not None]
        path = self.folder / f"{hashlib.sha256(repr(lines).encode()).hexdigest()[:8]}.toml"
        path.write_text("\n".join(lines))
        return path


CppMaker = Callable[..., CppRun]


@pytest.fixture(scope="session")
def make_cpp(cpp_program: Path, tmp_path_factory: pytest.TempPathFactory) -> CppMaker:
    """Runs the program; equal flags give the same folder."""
    made: dict[str, CppRun] = {}

    def run(**flags: Any) -> CppRun:
        key = repr(sorted(flags.items()))
        if key not in made:
            folder = tmp_path_factory.mktemp("cpp")
            words = [f"--{name}={value}" for name, value in {**flags, "out": folder}.items()]
            command = [str(cpp_program), *words]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
            assert done.returncode == 0, done.stderr
            made[key] = CppRun(folder=folder)
        return made[key]

    return run
