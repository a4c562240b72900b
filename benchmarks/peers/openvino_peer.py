"""OpenVINO: our portable graph, with the cache made its own state, so that keys and values never leave it.

``prepare`` reads the ONNX graph, turns pasts and presents into state, and writes OpenVINO's files; the form
"int8" has its weights compressed by NNCF, one scale a row. float32 is asked for by name: on processors with
bfloat16 units OpenVINO would compute in bfloat16, and keep its cache in 8 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from _peer import main, size_of
from numpy.typing import NDArray
from openvino._offline_transformations import apply_make_stateful_transformation

GRAPH = "model.xml"
PASTS = ("past_key_values.", "present.")
SETTINGS = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "PERFORMANCE_HINT": "LATENCY",
    "NUM_STREAMS": "1",
}


def _pairs(model: ov.Model) -> dict[str, str]:
    """Return the name of the present of each past."""
    names = [port.get_any_name() for port in model.inputs]
    return {name: name.replace(*PASTS) for name in names if name.startswith(PASTS[0])}


def _of_one_row(port: ov.Output) -> ov.PartialShape:
    """Fix the batch: a state whose rows are not known begins with none, and cannot be added to."""
    shape = port.partial_shape
    shape[0] = 1
    return shape


def prepare(source: Path, made: Path, form: str) -> None:
    """Write OpenVINO's files from a portable bundle; ``form`` is "fp32" or "int8"."""
    model = ov.Core().read_model(source / "onnx" / "model.onnx")
    model.reshape(
        {
            port.get_any_name(): _of_one_row(port)
            for port in model.inputs
            if port.partial_shape.rank.get_length()
        }
    )
    apply_make_stateful_transformation(model, _pairs(model))
    if form == "int8":
        import nncf

        model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)
    made.mkdir()
    ov.save_model(model, made / GRAPH, compress_to_fp16=False)


class OpenVino:
    """See gpt_onnx.runtime.bench.contender.Contender."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self._path, self._threads = Path(order["source"]), order["threads"]
        settings = {**SETTINGS, "INFERENCE_NUM_THREADS": str(self._threads)}
        self._model = ov.Core().compile_model(self._path / GRAPH, "CPU", settings)
        self._request = self._model.create_infer_request()
        self._inputs = {port.get_any_name() for port in self._model.inputs}

    @property
    def facts(self) -> Mapping[str, Any]:
        """What it is."""
        return {
            "device": "cpu",
            "threads": self._threads,
            "file_bytes": size_of(self._path),
            "versions": {"openvino": metadata.version("openvino"), "numpy": np.__version__},
            "details": {"cache": "state"},
        }

    def start(self, rows: Sequence[Sequence[int]], capacity: int) -> list[int]:
        """Empty the cache and take a prompt."""
        self._request.reset_state()
        self._length = 0
        return self._choose(np.array(rows, np.int64))

    def step(self, tokens: Sequence[int]) -> list[int]:
        """Take a token a row."""
        return self._choose(np.array(tokens, np.int64)[:, None])

    def scores(self) -> NDArray[np.float32]:
        """Return the last logits."""
        return self._logits.copy()

    def _feeds(self, ids: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        batch_size, end = ids.shape[0], self._length + ids.shape[1]
        feeds = {
            "input_ids": ids,
            "attention_mask": np.ones((batch_size, end), np.int64),
            "position_ids": np.tile(np.arange(self._length, end), (batch_size, 1)),
            "num_logits_to_keep": np.array(1),
        }
        return {name: feed for name, feed in feeds.items() if name in self._inputs}

    def _choose(self, ids: NDArray[np.int64]) -> list[int]:
        self._request.infer(self._feeds(ids), share_inputs=True)
        self._length += ids.shape[1]
        self._logits: NDArray[np.float32] = self._request.get_tensor("logits").data[:, -1]
        tokens: list[int] = self._logits.argmax(-1).tolist()
        return tokens


if __name__ == "__main__":
    main(OpenVino, prepare)
