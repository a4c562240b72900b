"""A module of anybody's that generates: no cache of it is known, so each token takes the whole sequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


class EagerModule:
    """Any module that maps ids (B, S) to logits, computing the whole sequence for each token."""

    vocab_size: int | None = None
    limit: int | None = None
    traffic: Mapping[str, int] = MappingProxyType({})
    """Not known."""

    def __init__(
        self,
        module: nn.Module,
        find_logits: Callable[[object], Tensor],
        device: str = "cpu",
        compiled: bool = False,
    ) -> None:
        self.module = module.to(device).eval()
        self._mode = "torch.compile" if compiled else "inference_mode"
        self._run: Callable[[Tensor], object] = (
            torch.compile(self.module, dynamic=True) if compiled else self.module
        )
        self.device = device
        self._find_logits = find_logits

    @property
    def details(self) -> Mapping[str, Any]:
        """What it is, for the report."""
        parameters = sum(parameter.numel() for parameter in self.module.parameters())
        return {
            "parameters": parameters,
            "cache": "none",
            "attention": "the module's",
            "mode": self._mode,
        }

    def start(self, rows: Sequence[Sequence[int]], capacity: int) -> list[int]:
        """See gpt_onnx.eager.EagerGPT."""
        self._ids = torch.tensor(rows, device=self.device)
        return self._choose()

    def step(self, tokens: Sequence[int]) -> list[int]:
        """See gpt_onnx.eager.EagerGPT."""
        new = torch.tensor(tokens, device=self.device).unsqueeze(1)
        self._ids = torch.cat((self._ids, new), dim=1)
        return self._choose()

    def scores(self) -> NDArray[np.float32]:
        """See gpt_onnx.eager.EagerGPT."""
        scores: NDArray[np.float32] = self._logits.float().cpu().numpy()
        return scores

    @torch.inference_mode()
    def _choose(self) -> list[int]:
        logits = self._find_logits(self._run(self._ids))
        self._logits = logits if logits.dim() == 2 else logits[:, -1]
        tokens: list[int] = self._logits.argmax(-1).tolist()
        return tokens
