"""A fault of a bundle that is being made names its graph, and no folder that nobody can look into."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpt_onnx.errors import BundleError, ExportError
from gpt_onnx.export.unpublished import told_of_the_graph
from gpt_onnx.runtime._checks import check_finite

LOGITS = [np.array([[1.0, np.nan]], np.float32)]


def test_logits_that_overflow_are_told_with_the_checkpoint_as_the_remedy(tmp_path: Path) -> None:
    staging = tmp_path / ".b.0123456789ab.partial"
    with pytest.raises(ExportError) as told, told_of_the_graph(staging):
        check_finite(LOGITS, staging / "onnx" / "model.onnx")
    assert str(told.value) == (
        "onnx/model.onnx returned NaN or infinite logits (row 0, new token 0) instead of finite; its weights "
        "overflow or are damaged: export it again, if need be from an earlier checkpoint."
    )


def test_a_bundle_that_is_published_is_named(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=rf"{tmp_path / 'b'}.* returned NaN"):
        check_finite(LOGITS, tmp_path / "b" / "onnx" / "model.onnx")
