"""Tiny GPTs whose every part matters, exported once a session and gated as often as a test likes.

make_gpt, export_unchecked   our own GPT
make_cpp                     a GPT in C++ (tests/libtorch), with what it computes
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gpt_onnx.config import GPTConfig
from gpt_onnx.export import export_bundle
from gpt_onnx.model import GPT
from tests.originals.cpp import CppRun, can_compile, compiled, run_program

GptMaker = Callable[..., GPT]
Exporter = Callable[..., Path]
CppMaker = Callable[..., CppRun]

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


@pytest.fixture(scope="session")
def cpp_program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C++ program."""
    if not can_compile():
        give_up = pytest.fail if os.environ.get("CI") else pytest.skip
        give_up("a program of LibTorch is compiled with g++ (or CXX) on Linux, and there is none here")
    cache = getattr(request.config, "cache", None)
    return compiled(cache.mkdir("libtorch") if cache else tmp_path_factory.mktemp("libtorch"))


@pytest.fixture(scope="session")
def make_cpp(cpp_program: Path, tmp_path_factory: pytest.TempPathFactory) -> CppMaker:
    """Runs the program; equal flags give the same folder."""
    made: dict[str, CppRun] = {}

    def run(**flags: Any) -> CppRun:
        key = repr(sorted(flags.items()))
        if key not in made:
            made[key] = run_program(cpp_program, tmp_path_factory.mktemp("cpp"), flags)
        return made[key]

    return run
