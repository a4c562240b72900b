"""A GPT without weights: the names and shapes of its parameters, and modules to put weights into.

>>> skeleton(named_config("gpt3")).wte.weight.device
device(type='meta')
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from gpt_onnx.config import GPTConfig
from gpt_onnx.model.gpt import GPT


class _Undrawn(TorchFunctionMode):
    """Leave new weights as they are.

    To draw random numbers for weights without memory, PyTorch imports a computer algebra system, which takes
    seconds and some hundred MB.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        return given["tensor"] if func is nn.init.normal_ else func(*args, **given)


def skeleton(config: GPTConfig) -> GPT:
    """Return a model on the meta device, whatever its size, at once."""
    with _Undrawn(), torch.device("meta"):
        return GPT(config)
