"""The same model and options give the same bytes: in another process, folder, and order of hashes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gpt_onnx.checkpoint import write_checkpoint
from gpt_onnx.config import GPTConfig
from gpt_onnx.model import GPT

FOREIGN = Path(__file__).parent / "foreign_modules.py"
PROGRAM = """
import sys
from gpt_onnx.export import export_bundle
source, *destinations = sys.argv[1:]
export_bundle(source, destinations[0], check="none")
export_bundle(sys.argv[1], destinations[1], check="none", target="portable", seq_len=16)
export_bundle({foreign!r} + ":walk_through", destinations[2], check="none")
"""


def _export(checkpoint: Path, folder: Path, seed: str) -> None:
    folder.mkdir()
    names = [str(folder / name) for name in ("dynamic", "static", "foreign")]
    program = PROGRAM.replace("{foreign!r}", repr(str(FOREIGN)))
    command = [sys.executable, "-c", program, str(checkpoint), *names]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_bundles_are_the_same_bytes_in_another_process_and_folder(tmp_path: Path) -> None:
    torch.manual_seed(0)
    gpt = GPT(GPTConfig(vocab_size=89, context_length=64, n_embd=36, n_layer=2, n_head=3))
    checkpoint = tmp_path / "model"
    write_checkpoint(checkpoint, gpt.config, gpt.state_dict())
    _export(checkpoint, tmp_path / "first", "1")
    _export(checkpoint, tmp_path / "another, with a longer name", "4242")
    first, second = _contents(tmp_path / "first"), _contents(tmp_path / "another, with a longer name")
    assert len(first) == 8 + 8 + 7
    assert set(first) == set(second)
    assert [name for name in first if first[name] != second[name]] == []
