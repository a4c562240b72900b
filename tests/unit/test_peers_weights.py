"""The weights that peers get are those of the model: folded, written as GPT-2, written as GGUF."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.peers._gpt2_folder import Gpt2Folder
from benchmarks.peers.gguf_file import write_gguf
from benchmarks.peers.weights import as_gpt2, write_weights
from gpt_onnx.checkpoint import load_model, read_checkpoint, write_checkpoint
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import InputError
from gpt_onnx.model import GPT

CONFIG = GPTConfig(
    vocab_size=40, context_length=16, n_embd=32, n_layer=2, n_head=2, embedding_scale="sqrt", qkv_bias=True
)


def made(config: GPTConfig) -> GPT:
    torch.manual_seed(0)
    gpt = GPT(config).double()
    with torch.no_grad():
        for weight in gpt.parameters():
            weight.normal_(0.0, 0.3)
    return gpt.eval()


def logits(gpt: GPT) -> torch.Tensor:
    with torch.inference_mode():
        found: torch.Tensor = gpt(torch.arange(12)[None] * 3 % 40)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    gpt = made(CONFIG).float()
    write_checkpoint(folder / "source", CONFIG, gpt.state_dict())
    write_weights(folder, str(folder / "source"))
    return folder


@pytest.mark.parametrize("tied", [True, False])
def test_sinusoids_in_a_table_and_a_folded_factor_compute_the_same(tied: bool) -> None:
    gpt = made(CONFIG.replace(tie_embeddings=tied))
    config, state = as_gpt2(gpt)
    same = GPT(config).double().eval()
    same.load_state_dict(state)
    assert (config.position, config.embedding_factor) == ("learned", 1.0)
    torch.testing.assert_close(logits(same), logits(gpt), rtol=1e-9, atol=1e-9)


def test_positions_that_are_no_table_are_refused() -> None:
    with pytest.raises(InputError, match=r"positions are rotary.*take learned or sinusoidal"):
        as_gpt2(made(CONFIG.replace(position="rotary")))


def test_the_folder_of_the_peers_holds_the_weights_of_ours(folder: Path) -> None:
    ours, theirs = load_model(read_checkpoint(folder / "ours")).state_dict(), Gpt2Folder(folder / "gpt2")
    np.testing.assert_array_equal(theirs.linear("h.1.mlp.c_fc"), ours["h.1.mlp.c_fc.weight"].numpy())
    np.testing.assert_array_equal(theirs.weight("h.0.ln_1.bias"), ours["h.0.ln_1.bias"].numpy())
    assert theirs.layers == 2


@pytest.mark.parametrize("two_tables", [False, True])
def test_a_gguf_file_reads_back_as_the_same_weights(folder: Path, tmp_path: Path, two_tables: bool) -> None:
    write_gguf(folder / "gpt2", tmp_path / "gpt2.gguf", two_tables=two_tables)
    ours = load_model(read_checkpoint(folder / "ours")).state_dict()
    theirs = load_model(read_checkpoint(tmp_path / "gpt2.gguf")).state_dict()
    assert all(torch.equal(theirs[name], weight) for name, weight in ours.items())


def test_weights_are_made_once(folder: Path) -> None:
    before = (folder / "gpt2" / "model.safetensors").stat().st_mtime_ns
    written = write_weights(folder, "a source that does not exist")
    assert (written.gpt2 / "model.safetensors").stat().st_mtime_ns == before
