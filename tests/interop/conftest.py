"""Bundles for clients, made by the exporter once a run.

def test_it(bundles): bundles("gpt2", "int4").check(rows)
def test_it(bundles): bundles("llama", "fp32", "portable")
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.interop._known import Known, known_of
from tests.interop._models import source

KEPT = "GPT_ONNX_INTEROP_BUNDLES"
"""Names a folder where bundles stay between runs."""
FEW_TOKENS = 512


class BundleMaker(Protocol):
    """Exports a model; equal arguments give the same bundle, which no test may change."""

    def __call__(self, name: str, precision: str = "fp32", target: str = "cpu", **options: Any) -> Known:
        """``name``: of _models.NAMES; ``options``: further fields of ExportOptions."""
        ...


def _exported(checkpoint: Path, folder: Path, options: dict[str, Any]) -> Path:
    """Export; activations and quality are looked at on little text, as clients see neither."""
    from gpt_onnx import export_bundle
    from gpt_onnx.export import quality_texts

    integers = {"quantizer": "rtn"} if options["precision"].startswith("int") else {}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MEASURED", "CALIBRATED"):
            patch.setattr(quality_texts, name, FEW_TOKENS)
        export_bundle(checkpoint, folder, **{"check": "none", **integers, **options})
    return folder


def _label(name: str, options: Mapping[str, Any]) -> str:
    extra = [f"{key}-{value}" for key, value in sorted(options.items()) if key not in ("precision", "target")]
    return "-".join([name, options["precision"], options["target"], *extra])


@pytest.fixture(scope="session")
def bundles_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where bundles are made: KEPT, for whoever runs tests again and has not changed the exporter."""
    kept = os.environ.get(KEPT)
    return Path(kept) if kept else tmp_path_factory.mktemp("bundles")


@pytest.fixture(scope="session")
def bundles(bundles_folder: Path) -> BundleMaker:
    """Makes a bundle and what this project's runtime writes with it: model, precision, target."""
    made: dict[str, Known] = {}

    def make(name: str, precision: str = "fp32", target: str = "cpu", **options: Any) -> Known:
        chosen = {"precision": precision, "target": target, **options}
        label = _label(name, chosen)
        folder = bundles_folder / label / "bundle"
        if not folder.exists():
            _exported(source(name, bundles_folder / f"src-{name}"), folder, chosen)
        if label not in made:
            made[label] = known_of(folder, name, precision)
        return made[label]

    return make
