"""From a checkpoint to a model in memory."""

from __future__ import annotations

import torch

from gpt_onnx.checkpoint.checkpoint import Checkpoint
from gpt_onnx.model import GPT, skeleton


def load_model(checkpoint: Checkpoint, dtype: torch.dtype = torch.float32) -> GPT:
    """Return the model in evaluation mode, its stored weights converted to ``dtype``.

    Raises:
        CheckpointError: if a weight holds NaN or infinity.
    """
    model = skeleton(checkpoint.config)
    state = {name: checkpoint.tensor(name).to(dtype) for name in checkpoint.recipes}
    model.load_state_dict(state, assign=True)
    return model.requires_grad_(True).eval()
