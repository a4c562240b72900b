"""One checkpoint for all: GPT-2 weights as a Hugging Face folder, which every peer reads or is made from.

    python -m benchmarks.peers.weights FOLDER                    # the shape of GPT-2 124M, random weights
    python -m benchmarks.peers.weights FOLDER --source models/sotu

A model with sinusoidal positions is written as GPT-2 too: its table of positions holds the sinusoids, and a
factor on the embedding goes into the table of tokens. Where that table is the head as well, the final norm is
divided by the factor, so that the logits stay: head(norm(x)) = (s W) (norm(x) / s).
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gpt_onnx.checkpoint import TokenizerFiles, load_model, read_checkpoint, write_checkpoint
from gpt_onnx.checkpoint.convert import convert_checkpoint
from gpt_onnx.config import GPTConfig, named_config
from gpt_onnx.errors import InputError
from gpt_onnx.model import GPT

SHAPE = "gpt2"
FINAL_NORM = ("ln_f.weight", "ln_f.bias")
STD = 0.02  # of GPT-2's weights when training begins

State = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The same weights in both layouts."""

    ours: Path
    """A checkpoint in our layout: bundles and PyTorch."""
    gpt2: Path
    """Hugging Face's gpt2: the peers."""


def random_gpt2(seed: int = 0) -> tuple[GPTConfig, State]:
    """Return GPT-2 124M with random weights; biases are random too, so that none can be left out unseen."""
    config = named_config(SHAPE)
    gpt = GPT(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in gpt.named_parameters():
            if weight.dim() == 2 or name.endswith("bias"):
                weight.normal_(0.0, STD, generator=generator)
    return config, gpt.state_dict()


def _position_table(gpt: GPT) -> Tensor:
    assert gpt.wpe is not None
    with torch.no_grad():
        table: Tensor = gpt.wpe(gpt.wte.weight.new_zeros(1, gpt.config.context_length, gpt.config.n_embd))
    return table


def as_gpt2(gpt: GPT) -> tuple[GPTConfig, State]:
    """Return the same model with a table of positions and no factor on the embedding; see the module.

    Raises:
        InputError: if its positions are no table.
    """
    config, state = gpt.config, dict(gpt.state_dict())
    if config.position not in ("learned", "sinusoidal"):
        raise InputError(
            f"positions are {config.position}, which GPT-2 lacks; take learned or sinusoidal ones."
        )
    state["wpe.weight"] = _position_table(gpt)
    factor = config.embedding_factor
    state["wte.weight"] = state["wte.weight"] * factor
    for name in FINAL_NORM if config.tie_embeddings else ():
        if name in state:
            state[name] = state[name] / factor
    return config.replace(position="learned", embedding_scale=1.0), state


def _random() -> tuple[GPTConfig, State, TokenizerFiles | None]:
    return *random_gpt2(), None


def _of_checkpoint(source: str) -> tuple[GPTConfig, State, TokenizerFiles | None]:
    checkpoint = read_checkpoint(source)
    return *as_gpt2(load_model(checkpoint)), checkpoint.tokenizer


def write_weights(folder: Path, source: str | None = None) -> Weights:
    """Write a checkpoint as GPT-2 in both layouts, or find them written.

    Args:
        folder: Where they lie; each part appears whole or not at all.
        source: A checkpoint; None: random weights in the shape of GPT-2 124M.

    Raises:
        GptOnnxError: if the source cannot be read, or is nothing that GPT-2 can compute.
    """
    made = Weights(ours=folder / "ours", gpt2=folder / "gpt2")
    if not made.ours.exists():
        config, state, tokenizer = _random() if source is None else _of_checkpoint(source)
        folder.mkdir(parents=True, exist_ok=True)
        write_checkpoint(made.ours, config, state, tokenizer)
    if not made.gpt2.exists():
        convert_checkpoint(made.ours, made.gpt2, to="huggingface")
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--source")
    parser.add_argument("--overwrite", action="store_true")
    arguments = parser.parse_args()
    if arguments.overwrite:
        shutil.rmtree(arguments.folder, ignore_errors=True)
    print(write_weights(arguments.folder, arguments.source))


if __name__ == "__main__":
    main()
