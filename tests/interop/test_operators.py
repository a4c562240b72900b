"""required_operators.config of integer weights against the graphs that ONNX Runtime saves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.interop._models import NAMES
from tests.saved_operators import missing


@pytest.mark.parametrize("target", ["cpu", "portable", "web"])
@pytest.mark.parametrize("name", NAMES)
def test_what_onnxruntime_runs_is_in_the_file(bundles: Any, tmp_path: Path, name: str, target: str) -> None:
    assert not missing(bundles(name, "int4", target).path, tmp_path)
