"""Tiny GPTs whose every part matters, exported once a session and gated as often as a test likes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

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
