"""What a refused export is advised: only what would help, and is not so already."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_onnx.errors import ConfigError
from gpt_onnx.export.nearer import ways_nearer
from gpt_onnx.export.options import ExportOptions
from gpt_onnx.export.precisions import PRECISIONS
from gpt_onnx.export.targets import TARGETS
from gpt_onnx.export.wording import either


@pytest.mark.parametrize(
    ("options", "block_size", "calibrates", "expected"),
    [
        (
            {"precision": "int4", "quantizer": "rtn"},
            128,
            True,
            [
                "--precision int8",
                "--block-size 64, 32 or 16",
                "--head-precision fp32",
                "--quantizer hqq or gptq",
                "--accuracy-level 0",
            ],
        ),
        (
            {"precision": "int4", "quantizer": "rtn", "head_precision": "int4", "target": "portable"},
            16,
            False,
            [
                "--precision int8 or fp16",
                "--head-precision int8 or fp32",
                "--quantizer hqq",
                "--accuracy-level 0",
            ],
        ),
        (
            {"precision": "int8", "quantizer": "gptq", "head_precision": "fp32", "accuracy_level": 0},
            32,
            True,
            ["--block-size 16"],
        ),
        ({"precision": "fp16", "target": "web"}, None, True, []),
    ],
)
def test_what_is_so_already_is_not_advised(
    options: dict[str, Any], block_size: int | None, calibrates: bool, expected: list[str]
) -> None:
    assert ways_nearer(ExportOptions(**options), block_size=block_size, calibrates=calibrates) == expected


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_precision_is_refused_with_the_targets_that_have_it(target: str, precision: str) -> None:
    if precision in TARGETS[target].precisions:
        assert ExportOptions(target=target, precision=precision).precision == precision
        return
    having = [name for name, other in TARGETS.items() if precision in other.precisions]
    with pytest.raises(ConfigError, match=rf"choose one of them, or target {either(having)}\.$"):
        ExportOptions(target=target, precision=precision)


@pytest.mark.parametrize("target", [name for name, target in TARGETS.items() if 17 not in target.opsets])
def test_an_opset_that_a_target_lacks_is_refused_with_what_would_do(target: str) -> None:
    opset = TARGETS[target].opset
    with pytest.raises(ConfigError, match=rf"choose {opset}, or target portable\.$"):
        ExportOptions(target=target, opset=17)
    assert ExportOptions(target=target, opset=opset).opset == opset
    assert ExportOptions(target="portable", opset=17).opset == 17


@pytest.mark.parametrize("precision", ["int8", "int4"])
def test_a_precision_that_an_opset_lacks_is_refused_with_what_would_do(precision: str) -> None:
    with pytest.raises(ConfigError, match=r"needs 21; choose that, or precision fp32 or fp16\.$"):
        ExportOptions(target="portable", opset=20, precision=precision)
    for other in ("fp32", "fp16"):
        assert ExportOptions(target="portable", opset=20, precision=other).opset == 20


@pytest.mark.parametrize(
    ("names", "words"), [(["a"], "a"), (["a", "b"], "a or b"), ([64, 32, 16], "64, 32 or 16")]
)
def test_names_are_the_end_of_a_sentence(names: list[object], words: str) -> None:
    assert either(names) == words
