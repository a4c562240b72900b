"""The GPT in C++ of tests/libtorch, and what one run of it leaves."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

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


LEARNED = {"position": "learned", "sinusoidal_style": None}


PACKED = LEARNED | {"n_head": 3}


ENCODER = PACKED | {"norm_order": "post", "activation": "relu", "embedding_scale": "sqrt"}


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
"""Flags of the program, and the answers that differ from CPP_ANSWERS."""


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


def compiled(folder: Path) -> Path:
    """Return the program in a folder; it is compiled anew only where its sources or PyTorch have changed."""
    digest = hashlib.sha256(f"{torch.__version__} {_command(Path())}".encode())
    for path in sorted(CPP_SOURCES.iterdir()):
        digest.update(path.read_bytes())
    binary = folder / f"gpt-{digest.hexdigest()[:16]}"
    if not binary.exists():
        building = binary.with_suffix(f".{os.getpid()}")
        done = subprocess.run(_command(building), capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        building.replace(binary)
    return binary


def can_compile() -> bool:
    """Whether there is a compiler for a program of the torch package's libraries."""
    return COMPILER is not None and sys.platform.startswith("linux")


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


def run_program(binary: Path, folder: Path, flags: Mapping[str, Any]) -> CppRun:
    """Run the program, which fills a folder."""
    words = [f"--{name}={value}" for name, value in {**flags, "out": folder}.items()]
    done = subprocess.run([str(binary), *words], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return CppRun(folder=folder)
