"""The graph alone, as other programs run it: a bare ONNX Runtime session, numpy in and numpy out.

Our engine packs rows and feeds a cache of its own making; transformers and transformers.js feed batches that
are padded, masks and positions. Both must get the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpt_onnx.bundle import Bundle
from gpt_onnx.runtime import Generation, Sampling
from gpt_onnx.runtime.providers import find_device, import_onnxruntime

from .case import Logits, StepDecoder

ERRORS_ONLY = 3
QDQ_LEVEL = "session.qdq_matmulnbits_accuracy_level"
Ints = npt.NDArray[np.int64]
Past = Sequence[Logits]


def positions_of(mask: Ints) -> Ints:
    """Return where each token stands, counting those that the mask (B, T) marks; 0 on padding before them."""
    return np.maximum(np.cumsum(mask, axis=1) - 1, 0)


class BareGraph:
    """The graph of whole sequences (static bundles: the prefill), with ONNX Runtime's defaults or none."""

    def __init__(self, bundle: Bundle, provider: str = "cpu", *, optimised: bool = True) -> None:
        device = find_device(provider)
        ort = import_onnxruntime(device)
        options = ort.SessionOptions()
        options.log_severity_level = ERRORS_ONLY
        if quantization := bundle.manifest.quantization:  # standard operators do not say it themselves
            options.add_session_config_entry(QDQ_LEVEL, str(quantization.accuracy_level))
        if not optimised:
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        role = "prefill" if bundle.manifest.graph.layout == "static" else "model"
        self._session = ort.InferenceSession(
            str(bundle.graph_path(role)), options, providers=device.providers
        )
        self._inputs = [port.name for port in self._session.get_inputs()]
        self._caches = [name for name in self._inputs if name.startswith("past_key_values")]
        self.manifest = bundle.manifest

    def run(self, ids: Ints, mask: Ints, past: Past | None = None) -> tuple[Logits, Past]:
        """Compute.

        Args:
            ids: (B, S).
            mask: (B, P + S): 1 where a cached or new token counts.
            past: What the last run returned; None: nothing cached.

        Returns:
            Logits (B, S, V) and the present keys and values of each layer in turn.
        """
        feeds = {
            "input_ids": ids,
            "attention_mask": mask,
            "position_ids": positions_of(mask)[:, mask.shape[1] - ids.shape[1] :],
        }
        feeds |= dict(zip(self._caches, past or self._nothing(len(ids)), strict=True))
        found = self._session.run(None, {name: feeds[name] for name in self._inputs})
        return found[0], found[1:]

    def _nothing(self, batch: int) -> Past:
        model = self.manifest.model
        dtype = np.float16 if self.manifest.precision == "fp16" else np.float32
        empty = np.zeros((batch, model.n_kv_head, 0, model.cache_head_size), dtype)
        return [empty] * len(self._caches)


class BareEngine:
    """A BareGraph where an engine is expected: whole sequences only."""

    def __init__(self, graph: BareGraph) -> None:
        self._graph = graph

    def logits(self, input_ids: Any, attention_mask: Any = None) -> Logits:
        """Return logits (B, S, V) of rows of one length; frozen graphs are padded on the right."""
        ids = np.array(input_ids, dtype=np.int64)
        batch, length = ids.shape
        frozen = self._graph.manifest.graph
        width, rows = frozen.seq_len or length, frozen.batch_size or batch
        mask = np.zeros((rows, width), np.int64)
        mask[:, :length] = 1
        padded = np.zeros_like(mask)
        padded[:batch, :length] = ids
        return self._graph.run(padded, mask)[0][:batch, :length]

    def decoder(self, batch_size: int = 1, capacity: int | None = None) -> StepDecoder:
        """Refuse: only whole sequences are run this way."""
        raise NotImplementedError

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        max_new_tokens: int,
        sampling: Sampling,
        *,
        ignore_eos: bool = False,
    ) -> Sequence[Generation]:
        """Refuse: only whole sequences are run this way."""
        raise NotImplementedError
