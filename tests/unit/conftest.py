"""Real exports of small models, each made once a session, and publications of small bundles."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpt_onnx.bundle._publish as publication
from gpt_onnx.bundle import Manifest, publishing, seal
from gpt_onnx.config import GPTConfig

TINY: dict[str, Any] = {
    "vocab_size": 89,
    "context_length": 64,
    "n_embd": 36,
    "n_layer": 2,
    "n_head": 3,
    "qkv_bias": True,
}
"""Heads of 12, which a cpu graph pads to 16."""
WALK_THROUGH = Path(__file__).parent / "foreign_modules.py"

GptMaker = Callable[..., Any]
Exporter = Callable[..., Any]
Runner = Callable[..., dict[str, np.ndarray]]


def tiny_gpt(seed: int = 0, **changes: Any) -> Any:
    """A GPT whose every parameter is random and matters, biases and norms too."""
    import torch

    from gpt_onnx.model import GPT

    gpt = GPT(GPTConfig(**(TINY | changes))).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return gpt


@pytest.fixture(scope="session")
def make_gpt() -> GptMaker:
    """Makes a tiny GPT: a seed, and any field of its configuration."""
    return tiny_gpt


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exporter:
    """Exports, unchecked: ``model`` (changes to TINY, or "FILE.py:NAME") and options -> BundleReport.

    Quality of integers is measured, and calibration reads, a twentieth of the tokens that it usually is.
    """
    from gpt_onnx.export import export_bundle

    made: dict[str, Any] = {}

    def export(model: dict[str, Any] | str | None = None, **options: Any) -> Any:
        key = json.dumps([model, options], sort_keys=True)
        if key not in made:
            source = model if isinstance(model, str) else tiny_gpt(**(model or {}))
            folder = tmp_path_factory.mktemp("exported") / "bundle"
            with pytest.MonkeyPatch.context() as patch:
                for name in ("MEASURED", "CALIBRATED"):
                    patch.setattr(f"gpt_onnx.export.quality_texts.{name}", 1024)
                made[key] = export_bundle(source, folder, check="none", **options)
        return made[key]

    return export


def run_graph(path: Path, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run one graph on ONNX Runtime with numpy arrays in and out."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # a graph input with a default is warned of
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


@pytest.fixture(scope="session")
def run_ort() -> Runner:
    """Runs a graph: its path and what to feed -> outputs by name."""
    return run_graph


def parse_graph(text: str, parameters: tuple[str, ...] = ()) -> Any:
    """An onnx_ir model of ONNX's text form; the parameters named lose their values, as in a trace."""
    import onnx_ir as ir

    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["": 21]>\nmain {text}')
    for name in parameters:
        model.graph.initializers[name].const_value = None
    return model


def evaluate_graph(
    model: Any, feeds: dict[str, np.ndarray], weights: dict[str, np.ndarray] | None = None
) -> list[np.ndarray]:
    """Run a model on ONNX's reference evaluator, its parameters bound to ``weights`` for as long."""
    import onnx_ir as ir
    from onnx.reference import ReferenceEvaluator

    from gpt_onnx.export.passes import STORED_TRANSPOSED

    bound = [value for value in model.graph.initializers.values() if value.const_value is None]
    for value in bound:
        array = (weights or {})[value.name]
        value.const_value = ir.tensor(array.T.copy() if value.meta.get(STORED_TRANSPOSED) else array)
    try:
        return list(ReferenceEvaluator(ir.to_proto(model)).run(None, feeds))
    finally:
        for value in bound:
            value.const_value = None


@pytest.fixture(scope="session")
def parse() -> Any:
    """Parses a graph: text, and the names of its parameters."""
    return parse_graph


@pytest.fixture(scope="session")
def evaluate() -> Any:
    """Evaluates a graph: model, feeds, weights of its parameters."""
    return evaluate_graph


@pytest.fixture
def source(make_bundle: Callable[..., Path]) -> Path:
    """A bundle to publish copies of."""
    return make_bundle("source")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A destination in a folder of its own, which nothing else is in."""
    return tmp_path / "published" / "out"


@pytest.fixture
def publish(source: Path, make_manifest: Callable[..., Manifest]) -> Callable[..., None]:
    """Publishes a copy of ``source`` under a name."""

    def act(destination: Path, name: str = "toy", *, overwrite: bool = False) -> None:
        with publishing(destination, overwrite=overwrite) as staging:
            shutil.copytree(source, staging, dirs_exist_ok=True)
            seal(staging, make_manifest(name=name))

    return act


@pytest.fixture(params=["exchange", "two renames"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The two ways of replacing a folder."""
    if request.param == "two renames":
        monkeypatch.setattr(publication, "exchange", lambda first, second: False)
    return str(request.param)
