"""A GPT without weights."""

from __future__ import annotations

import subprocess
import sys

import torch

from gpt_onnx.config import GPTConfig
from gpt_onnx.model import GPT, skeleton

CONFIG = GPTConfig(vocab_size=50, context_length=16, n_embd=16, n_layer=2, n_head=2, position="learned")


def test_names_and_shapes_are_those_of_the_model() -> None:
    expected = {name: tensor.shape for name, tensor in GPT(CONFIG).state_dict().items()}
    assert {name: tensor.shape for name, tensor in skeleton(CONFIG).state_dict().items()} == expected


def test_nothing_is_in_memory() -> None:
    assert {parameter.device for parameter in skeleton(CONFIG).parameters()} == {torch.device("meta")}


def test_weights_are_still_drawn_afterwards() -> None:
    skeleton(CONFIG)
    assert 0.01 < float(GPT(CONFIG).wte.weight.detach().std()) < 0.03


def test_no_computer_algebra_is_imported() -> None:
    program = (
        "import sys; from gpt_onnx.config import GPTConfig; from gpt_onnx.model import skeleton; "
        "skeleton(GPTConfig(vocab_size=5, context_length=4, n_embd=4, n_layer=1, n_head=1)); "
        "sys.exit('sympy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
