"""Checkpoints as the programs nanoGPT and minGPT write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.nano_models import NanoGPT, OldMinGPT, new_gelu, randomised

Answers = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A model, how its program saves it, and what its checkpoint does not say."""

    model: Any
    form: str
    answers: Answers


def made(name: str) -> Case:
    """Return one of the cases; all weights are random and matter."""
    tanh: Answers = {"activation": "gelu_tanh"}
    cases = {
        "nanogpt": lambda: Case(randomised(NanoGPT()), "ckpt", {}),
        "nanogpt without biases": lambda: Case(randomised(NanoGPT(bias=False, mask=True)), "ckpt", {}),
        "nanogpt of early 2023": lambda: Case(
            randomised(NanoGPT(mask=True, activation=new_gelu)), "ckpt", tanh
        ),
        "nanogpt with padding": lambda: Case(
            randomised(NanoGPT(vocab_size=50304, n_embd=16, n_layer=1)), "ckpt", {}
        ),
        "nanogpt state": lambda: Case(randomised(NanoGPT()), "state", {"activation": "gelu", "n_head": 4}),
        "mingpt": lambda: Case(
            randomised(NanoGPT(mask=True, tied=False, activation=new_gelu)), "state", {**tanh, "n_head": 4}
        ),
        "older mingpt": lambda: Case(randomised(OldMinGPT()), "state", {"activation": "gelu", "n_head": 4}),
    }
    return cases[name]()


def save(case: Case, path: Path) -> Path:
    """Write a checkpoint as nanoGPT's train.py does, compiled and on several cards, or as minGPT does."""
    state = case.model.state_dict()
    if case.form == "state":
        torch.save(state, path)
        return path
    wrapped = {f"_orig_mod.module.{name}": value for name, value in state.items()}
    optimizer = torch.optim.AdamW(case.model.parameters(), lr=1e-3)
    case.model(torch.zeros(1, 2, dtype=torch.long)).sum().backward()
    optimizer.step()
    torch.save(
        {
            "model": wrapped,
            "optimizer": optimizer.state_dict(),
            "model_args": case.model.model_args,
            "iter_num": 3,
            "best_val_loss": torch.tensor(1e9),
            "config": {"out_dir": "out", "compile": True, "lr": np.float64(0.1)},
        },
        path,
    )
    return path


def answered(case: Case, folder: Path) -> Path | None:
    if not case.answers:
        return None
    path = folder / "config.toml"
    path.write_text("\n".join(f"{key} = {value!r}" for key, value in case.answers.items()), encoding="utf-8")
    return path
