"""Bundles for clients, made by the exporter once a run.

def test_it(bundles): bundles("gpt2", "int4").check(rows)
def test_it(bundles): bundles("llama", "fp32", "portable")
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.interop._known import Known, known_of
from tests.interop._models import source


class BundleMaker(Protocol):
    """Exports a model; equal arguments give the same bundle, which no test may change."""

    def __call__(self, name: str, precision: str = "fp32", target: str = "cpu", **options: Any) -> Known:
        """``name``: of _models.NAMES; ``options``: further fields of ExportOptions."""
        ...


def _exported(checkpoint: Path, folder: Path, options: dict[str, Any]) -> Path:
    from gpt_onnx import export_bundle

    integers = {"quantizer": "rtn"} if options["precision"].startswith("int") else {}
    export_bundle(checkpoint, folder, **{"check": "none", **integers, **options})
    return folder


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> BundleMaker:
    """Makes a bundle and what this project's runtime writes with it: model, precision, target."""
    checkpoints: dict[str, Path] = {}
    made: dict[str, Known] = {}

    def make(name: str, precision: str = "fp32", target: str = "cpu", **options: Any) -> Known:
        chosen = {"precision": precision, "target": target, **options}
        key = repr((name, sorted(chosen.items())))
        if name not in checkpoints:
            checkpoints[name] = source(name, tmp_path_factory.mktemp(name))
        if key not in made:
            folder = tmp_path_factory.mktemp(f"{name}-{precision}-{target}") / "bundle"
            made[key] = known_of(_exported(checkpoints[name], folder, chosen), name, precision)
        return made[key]

    return make
