"""The state of a run on the disk: one safetensors file, replaced whole, from which it goes on bit for bit.

Tensors are the weights and AdamW's two moments; everything else is text in the file's metadata. Nothing is
pickled.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from gpt_onnx._whole_files import replace_file
from gpt_onnx.checkpoint.safetensors import read_array, read_header, write_file
from gpt_onnx.errors import CheckpointError
from gpt_onnx.model import GPT

MOMENTS = ("exp_avg", "exp_avg_sq")
KEY = "training_state"


@dataclass(slots=True, kw_only=True)
class RunState:
    """The part of the state that is not a tensor."""

    step: int = 0
    """Steps done."""
    best_loss: float = float("inf")
    """Lowest validation loss so far, nats a token."""
    best_step: int = 0
    """Its step."""
    seconds: float = 0.0
    """Wall time so far."""
    fingerprint: str = ""
    """JSON of what must not change between the processes of one run."""


def save_state(
    path: Path, state: RunState, model: GPT, optimizer: torch.optim.Optimizer, batches: torch.Generator
) -> None:
    """Write the state; the global generator, from which dropout draws, is part of it."""
    tensors = {}
    for name, parameter in model.named_parameters():
        tensors[f"weight.{name}"] = parameter.detach()
        for moment in MOMENTS:
            if moment in optimizer.state[parameter]:
                tensors[f"{moment}.{name}"] = optimizer.state[parameter][moment]
    metadata = {
        KEY: json.dumps(asdict(state)),
        "batches": _to_text(batches.get_state()),
        "dropout": _to_text(torch.get_rng_state()),
    }
    arrays = {name: ("F32", np.asarray(tensor.contiguous().numpy())) for name, tensor in tensors.items()}
    replace_file(path, lambda file: write_file(file, arrays, metadata))


def read_state(path: Path) -> RunState:
    """Read the part that is not a tensor.

    Raises:
        CheckpointError: if the file is missing or damaged.
    """
    try:
        return RunState(**json.loads(read_header(path).metadata[KEY]))
    except (KeyError, TypeError, ValueError) as exc:
        raise CheckpointError(
            f"{path} is not the state of a run: {exc}; start again in a new folder."
        ) from exc


def load_state(
    path: Path, model: GPT, optimizer: torch.optim.Optimizer, batches: torch.Generator
) -> RunState:
    """Read the state into a model, its optimizer and the two generators.

    Raises:
        CheckpointError: if the file is missing or damaged, or is the state of another model.
    """
    state, header = read_state(path), read_header(path)
    try:
        generators = [_from_text(header.metadata[name]) for name in ("batches", "dropout")]
        for name, parameter in model.named_parameters():
            info = {kind: header.tensors[f"{kind}.{name}"] for kind in ("weight", *MOMENTS)}
            values = {kind: torch.from_numpy(read_array(path, entry)) for kind, entry in info.items()}
            parameter.data.copy_(values.pop("weight"))
            optimizer.state[parameter] = {"step": torch.tensor(float(state.step)), **values}
        batches.set_state(generators[0])
        torch.set_rng_state(generators[1])
    except (KeyError, TypeError, ValueError, RuntimeError) as exc:
        raise CheckpointError(
            f"{path} is not the state of this run: {exc}; start again in a new folder."
        ) from exc
    return state


def _to_text(generator_state: torch.Tensor) -> str:
    return bytes(generator_state.tolist()).hex()


def _from_text(text: str) -> torch.Tensor:
    return torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8)
