"""How weights are stored: rounded to a format, or refused by name where the format cannot hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpt_onnx.errors import CheckpointError

STORES: Mapping[str, tuple[str, torch.dtype]] = {
    "fp32": ("F32", torch.float32),
    "fp16": ("F16", torch.float16),
    "bf16": ("BF16", torch.bfloat16),
}
"""The name of a format in the file and the dtype that weights are rounded to."""


def check_store(store: str) -> None:
    """Refuse an unknown format.

    Raises:
        CheckpointError: if ``store`` is no key of STORES.
    """
    if store not in STORES:
        raise CheckpointError(f"weights cannot be stored as {store!r}; known are {', '.join(STORES)}.")


def as_stored(name: str, tensor: Tensor, store: str) -> NDArray[Any]:
    """Return a tensor rounded to a format, as an array of the same bytes.

    Raises:
        CheckpointError: if it is not finite once rounded, by its name.
    """
    dtype = STORES[store][1]
    rounded = tensor.detach().to("cpu", dtype).contiguous()
    if not torch.isfinite(rounded).all():
        raise CheckpointError(_told(name, tensor, store))
    return rounded.view(torch.uint16).numpy() if dtype == torch.bfloat16 else np.asarray(rounded.numpy())


def _told(name: str, tensor: Tensor, store: str) -> str:
    if not torch.isfinite(tensor).all():
        return f"{name} holds NaN or infinity; go back to an earlier checkpoint."
    largest, bound = float(tensor.abs().max()), torch.finfo(STORES[store][1]).max
    return f"{name} has a value of {largest:,.6g}, and {store} ends at {bound:,.6g}; store it as fp32."
