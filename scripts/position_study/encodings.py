"""Ways to compute the sinusoidal encoding, and how far each is from float64, in eager PyTorch and as a graph.

Every way is a module that takes positions (1, S), int64, and returns (1, S, n_embd).
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gpt_onnx.model import SinusoidalPositionalEncoding
from gpt_onnx.model import positions as ours
from gpt_onnx.model.sines import by_angle_sum

Positions = NDArray[np.int64]
Encoding = NDArray[np.floating[Any]]
PROBES = 256
OPSET = 21


def reference(positions: Positions, n_embd: int) -> NDArray[np.float64]:
    """Return the formula in float64, (S, n_embd); its angles at 2^20 are right to 2e-10."""
    angles = positions[:, None] / 10000.0 ** (np.arange(0, n_embd, 2) / n_embd)
    encoding = np.empty((len(positions), n_embd))
    encoding[:, 0::2], encoding[:, 1::2] = np.sin(angles), np.cos(angles)
    return encoding


def probe_positions(exponent: int) -> Positions:
    """Return at most PROBES positions spread over (2^(exponent - 1), 2^exponent]; 0 and 1 for exponent 0."""
    if exponent == 0:
        return np.array([0, 1])
    spread = np.linspace(2 ** (exponent - 1) + 1, 2**exponent, PROBES)
    return np.unique(spread.astype(np.int64))


class NaiveFloat32(nn.Module):
    """The usual walk-through: float32 positions times float32 frequencies."""

    def __init__(self, n_embd: int) -> None:
        super().__init__()
        self.n_embd = n_embd

    def forward(self, position_ids: Tensor) -> Tensor:
        """See the module docstring."""
        frequency = torch.exp(torch.arange(0, self.n_embd, 2) * (-math.log(10000.0) / self.n_embd))
        angle = position_ids.to(torch.float32).unsqueeze(-1) * frequency
        return torch.stack((torch.sin(angle), torch.cos(angle)), dim=-1).flatten(-2)


class PythonConstants(nn.Module):
    """float64 and reduced modulo 2 pi, but 2 pi is a Python float, which the exporter stores as float32."""

    def __init__(self, n_embd: int) -> None:
        super().__init__()
        self.divisors = ours.divisors(n_embd)

    def forward(self, position_ids: Tensor) -> Tensor:
        """See the module docstring."""
        divisor = torch.tensor(self.divisors, dtype=torch.float64)
        angle = position_ids.to(torch.float64).unsqueeze(-1) / divisor
        angle = (angle - torch.floor(angle / (2 * math.pi)) * (2 * math.pi)).to(torch.float32)
        return torch.stack((torch.sin(angle), torch.cos(angle)), dim=-1).flatten(-2)


class Shipped(nn.Module):
    """The module that the model uses."""

    def __init__(self, n_embd: int) -> None:
        super().__init__()
        self.encoding = SinusoidalPositionalEncoding(n_embd)

    def forward(self, position_ids: Tensor) -> Tensor:
        """See the module docstring."""
        out: Tensor = self.encoding(torch.zeros(1, 1, 1), position_ids)
        return out


class AngleSum(nn.Module):
    """What the module that the model uses does on a device without float64."""

    def __init__(self, n_embd: int) -> None:
        super().__init__()
        self.n_embd = n_embd

    def forward(self, position_ids: Tensor) -> Tensor:
        """See the module docstring."""
        sines = SinusoidalPositionalEncoding(self.n_embd).sines
        return by_angle_sum(position_ids, sines.frequencies, sines.phases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to compute the encoding, and where it is measured."""

    label: str
    """For the table and the legend."""
    make: Callable[[int], nn.Module]
    """Makes the module of a width."""
    as_graph: bool
    """Whether the exported graph is measured; else eager PyTorch."""


WAYS = (
    Way(label="float32 angle, eager", make=NaiveFloat32, as_graph=False),
    Way(label="float32 angle, graph", make=NaiveFloat32, as_graph=True),
    Way(label="float64, Python constants, eager", make=PythonConstants, as_graph=False),
    Way(label="float64, Python constants, graph", make=PythonConstants, as_graph=True),
    Way(label="gpt-onnx, eager", make=Shipped, as_graph=False),
    Way(label="gpt-onnx, graph", make=Shipped, as_graph=True),
    Way(label="gpt-onnx without float64 (angle sums)", make=AngleSum, as_graph=False),
)


def export_graph(module: nn.Module) -> Any:
    """Return the ONNX model of a way, its length dynamic, as the tracer makes it."""
    length = torch.export.Dim("length", min=1)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module.eval(),
            (torch.arange(5)[None],),
            dynamo=True,
            opset_version=OPSET,
            dynamic_shapes=({1: length},),
            verbose=False,
        )
    assert program is not None
    return program.model_proto


def run_graph(model: Any, positions: Positions) -> list[NDArray[Any]]:
    """Return every output of an ONNX model that takes positions (1, S)."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    outputs: list[NDArray[Any]] = session.run(None, {session.get_inputs()[0].name: positions[None]})
    return outputs


def encoder(way: Way, n_embd: int) -> Callable[[Positions], Encoding]:
    """Return a function from positions (S,) to the encoding (S, n_embd) that a way computes."""
    module = way.make(n_embd)
    if way.as_graph:
        model = export_graph(module)
        return lambda positions: run_graph(model, positions)[0][0]
    return lambda positions: module(torch.from_numpy(positions)[None])[0].numpy()


def largest_errors(n_embd: int, exponents: range) -> Mapping[str, list[float]]:
    """Return for each way its largest distance from float64 over the probe positions of each exponent."""
    probes = [probe_positions(exponent) for exponent in exponents]
    errors: dict[str, list[float]] = {}
    for way in WAYS:
        encode = encoder(way, n_embd)
        errors[way.label] = [
            float(np.abs(encode(positions) - reference(positions, n_embd)).max()) for positions in probes
        ]
    return errors


def rotated(encoding: NDArray[np.float64], offset: int) -> NDArray[np.float64]:
    """Return PE(pos + offset) made from PE(pos), (S, n_embd), by rotating each pair by its own angle."""
    n_embd = encoding.shape[1]
    turn = offset / 10000.0 ** (np.arange(0, n_embd, 2) / n_embd)
    sine, cosine = encoding[:, 0::2], encoding[:, 1::2]
    out = np.empty_like(encoding)
    out[:, 0::2] = sine * np.cos(turn) + cosine * np.sin(turn)
    out[:, 1::2] = cosine * np.cos(turn) - sine * np.sin(turn)
    return out
