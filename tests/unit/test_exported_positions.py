"""Positions in exported graphs: right to 2e-6 of float64 up to 2^20; a learned table ends where it ends."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

N_EMBD = 36
POSITIONS = np.unique(
    np.concatenate(
        [
            np.arange(70),
            2 ** np.arange(21),
            2 ** np.arange(1, 21) - 1,
            np.random.default_rng(0).integers(0, 2**20, 900),
            [2**20],
        ]
    )
)


def _truth(positions: np.ndarray) -> np.ndarray:
    """PE(pos, 2i) = sin(pos / 10000^(2i / n)), PE(pos, 2i + 1) = cos, in float64."""
    angle = positions[..., None] / 10000.0 ** (np.arange(0, N_EMBD, 2) / N_EMBD)
    return np.stack((np.sin(angle), np.cos(angle)), axis=-1).reshape(*positions.shape, N_EMBD)


def _show_encoding(folder: Path, role: str) -> Path:
    """Make what the one Sin of a graph computes an output of its own."""
    model = onnx.load(str(folder / f"{role}.onnx"), load_external_data=False)
    (sine,) = (node for node in model.graph.node if node.op_type == "Sin")
    model.graph.output.append(
        onnx.helper.make_tensor_value_info(sine.output[0], onnx.TensorProto.FLOAT, None)
    )
    shown = folder / f"{role}_shown.onnx"
    shown.write_bytes(model.SerializeToString())
    return shown


def _feeds(path: Path, positions: np.ndarray, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    """Zeros for everything that the graph takes, but for the positions and a mask of ones."""
    feeds: dict[str, np.ndarray] = {}
    for value in onnx.load(str(path), load_external_data=False).graph.input:
        kind = value.type.tensor_type
        shape = [sizes[dim.dim_param] if dim.dim_param else dim.dim_value for dim in kind.shape.dim]
        dtype = np.float32 if kind.elem_type == onnx.TensorProto.FLOAT else np.int64
        feeds[value.name] = np.zeros(shape, dtype)
    feeds["position_ids"] = positions
    feeds["attention_mask"] += 1
    return feeds


def _encoding_at_every_magnitude(run_ort: Any, onnx: Path, role: str) -> tuple[np.ndarray, np.ndarray]:
    """Return POSITIONS as this graph takes them, (B, S), and what it makes of them, (B, S, N)."""
    path = _show_encoding(onnx, role)
    positions = POSITIONS[:, None] if role == "decode" else POSITIONS[None]
    batch, length = positions.shape
    sizes = {
        "batch_size": batch,
        "sequence_length": length,
        "past_sequence_length": 0,
        "past_sequence_length + sequence_length": length,
    }
    return positions, list(run_ort(path, _feeds(path, positions, sizes)).values())[-1]


@pytest.mark.parametrize(
    ("options", "role"),
    [
        ({}, "model"),
        ({"target": "portable"}, "model"),
        ({"target": "web"}, "model"),
        ({"seq_len": 16, "batch_size": "dynamic"}, "decode"),
    ],
    ids=["cpu", "portable", "web", "static"],
)
def test_exported_encoding_is_right_at_every_magnitude(
    exported: Any, run_ort: Any, tmp_path: Path, options: Any, role: str
) -> None:
    shutil.copytree(exported(**options).path / "onnx", tmp_path / "onnx")
    positions, found = _encoding_at_every_magnitude(run_ort, tmp_path / "onnx", role)
    assert found.shape == (*positions.shape, N_EMBD)
    assert np.abs(found - _truth(positions)).max() < 2e-6


def _rotary_truth(positions: np.ndarray) -> np.ndarray:
    """Cosines of a head of 12, then its sines, negative in the first half: all in float64."""
    angle = positions[..., None] / 10000.0 ** (np.arange(0, 12, 2) / 12)
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.concatenate((cosine, cosine, -sine, sine), axis=-1)


@pytest.mark.parametrize(
    ("options", "role"),
    [({}, "model"), ({"target": "web"}, "model"), ({"seq_len": 16, "batch_size": "dynamic"}, "decode")],
    ids=["cpu", "web", "static"],
)
def test_exported_rotation_is_right_at_every_magnitude(
    exported: Any, run_ort: Any, tmp_path: Path, options: Any, role: str
) -> None:
    report = exported({"position": "rotary", "norm": "rmsnorm"}, **options)
    shutil.copytree(report.path / "onnx", tmp_path / "onnx")
    positions, found = _encoding_at_every_magnitude(run_ort, tmp_path / "onnx", role)
    assert found.shape == (*positions.shape, 24)
    assert np.abs(found - _rotary_truth(positions)).max() < 2e-6


def test_plain_graph_counts_its_own_positions(exported: Any, run_ort: Any, tmp_path: Path) -> None:
    shutil.copytree(exported(kv_cache=False).path / "onnx", tmp_path / "onnx")
    path = _show_encoding(tmp_path / "onnx", "model")
    for length in (1, 2, 333):
        found = list(run_ort(path, {"input_ids": np.zeros((1, length), np.int64)}).values())[-1]
        assert np.abs(found.reshape(length, N_EMBD) - _truth(np.arange(length))).max() < 2e-6


def test_learned_positions_read_the_table_up_to_its_end(exported: Any, run_ort: Any, make_gpt: Any) -> None:
    changes = {"position": "learned"}
    report = exported(changes, target="portable", batch_size=2)
    assert report.manifest.model.position_limit == 64
    path = report.path / "onnx/model.onnx"
    table = make_gpt(**changes).wpe.weight.detach().numpy()
    (gather,) = (
        node
        for node in onnx.load(str(path), load_external_data=False).graph.node
        if node.op_type == "Gather" and "wpe.weight" in node.input
    )
    assert list(gather.input) == ["wpe.weight", "position_ids"]
    assert table.shape == (64, N_EMBD)
    sizes = {
        "sequence_length": 64,
        "past_sequence_length": 0,
        "past_sequence_length + sequence_length": 64,
    }
    ids = np.tile(np.arange(64), (2, 1))
    logits = run_ort(path, _feeds(path, ids, sizes))["logits"]
    assert logits.shape == (2, 64, 89)
    assert np.isfinite(logits).all()
