"""Three models for clients to run: the one that ships, and a small GPT-2 and Llama, written by transformers.

Weights of the two are random, but spread so that greedy text does not repeat itself; all three have the
byte-level BPE of the model that ships.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

SHIPPED = Path(__file__).parents[2] / "models" / "sotu"
VOCAB_SIZE = 4096
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
SPREAD: Mapping[str, float] = {"gpt2": 0.15, "llama": 0.08}
"""Standard deviation of what is added to each weight."""
FINAL_NORM = ("ln_f.weight", "model.norm.weight")
POSITIONS = "wpe.weight"


def _gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCAB_SIZE,
            n_positions=256,
            n_embd=128,
            n_layer=3,
            n_head=4,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCAB_SIZE,
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


MAKERS: Mapping[str, Callable[[], Any]] = {"gpt2": _gpt2, "llama": _llama}
NAMES = ("sinusoidal", *MAKERS)


def _spread(model: Any, deviation: float) -> None:
    """Make tokens and places that differ give logits that differ; the final norm weighs each channel anew."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(deviation * torch.randn_like(parameter))
            if name.endswith(FINAL_NORM):
                parameter.copy_(torch.randn_like(parameter))
            if name.endswith(POSITIONS):
                parameter.mul_(4)


def source(name: str, folder: Path) -> Path:
    """Return the checkpoint of a model: a name in NAMES; ``folder`` is where it may be written."""
    if name not in MAKERS:
        return SHIPPED
    if folder.exists():
        return folder
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = MAKERS[name]()
        _spread(model, SPREAD[name])
    model.save_pretrained(folder)
    for file in TOKENIZER_FILES:
        shutil.copy(SHIPPED / file, folder)
    return folder
