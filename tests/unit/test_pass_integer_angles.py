"""integer_angles: angles of positions without float64, as right as with it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from gpt_onnx.export.passes.integer_angles import integer_angles
from gpt_onnx.export.passes.tidy import tidy
from gpt_onnx.model.sines import QUARTER, Sines

FREQUENCIES = (1.0, 0.31622776601683794, 1e-4)
PHASES = (0.0, QUARTER, math.pi)
POSITIONS = np.array([[0, 1, 2, 511, 512, 4095], [65_535, 65_536, 10**6, 2**20 - 1, 2**20, 2**21 - 1]])
GRAPH = """(int64[B, S, 1] positions) => (float[B, S, 3] table)
    <double[3] frequencies = {1.0, 0.31622776601683794, 0.0001},
     double[3] phases = {0.0, 1.5707963267948966, 3.141592653589793}, double turn = {6.283185307179586}> {
    wide = Cast<to = 11>(positions)
    turned = Mul(wide, frequencies)
    angle = Add(turned, phases)
    turns = Div(angle, turn)
    whole = Floor(turns)
    taken = Mul(whole, turn)
    rest = Sub(angle, taken)
    narrow = Cast<to = 1>(rest)
    table = Sin(narrow)
}"""


def truth() -> Any:
    """The columns in float64, the angle reduced with the remainder of exact multiples."""
    angles = POSITIONS[..., None] * np.array(FREQUENCIES, np.longdouble) + np.array(PHASES, np.longdouble)
    return np.sin(angles)


def run(model: Any, folder: Any) -> Any:
    import onnx_ir as ir
    import onnxruntime as ort

    ir.save(model, folder / "model.onnx")
    session = ort.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    return session.run(None, {"positions": POSITIONS[..., None]})[0]


def test_columns_are_those_of_float64_up_to_position_2_to_the_20(parse: Any, tmp_path: Any) -> None:
    model = parse(GRAPH)
    assert integer_angles(model) == 1
    tidy(model)
    error = np.abs(run(model, tmp_path) - truth())
    assert error[POSITIONS <= 2**20].max() <= 2e-6
    assert error.max() <= 4e-6


def test_no_float64_is_left(parse: Any) -> None:
    model = parse(GRAPH)
    integer_angles(model)
    tidy(model)
    kinds = {node.attributes["to"].as_int() for node in model.graph if node.op_type == "Cast"}
    assert kinds == {1}
    doubles = [name for name, value in model.graph.initializers.items() if value.dtype == 11]
    assert doubles == []
    assert model.graph.outputs[0].name == "table"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Sub(angle, taken)", "Add(angle, taken)"),
        ("Div(angle, turn)", "Div(turned, turn)"),
        ("Mul(wide, frequencies)", "Mul(wide, wide)"),
        ("narrow = Cast<to = 1>(rest)", "narrow = Cast<to = 1>(turned)"),
    ],
    ids=["not taken off", "of something else", "no constant", "turns not taken off"],
)
def test_declines(parse: Any, old: str, new: str) -> None:
    model = parse(GRAPH.replace(old, new))
    nodes = [node.op_type for node in model.graph]
    assert integer_angles(model) == 0
    assert [node.op_type for node in model.graph] == nodes


def test_the_expression_is_the_models_own() -> None:
    """What the graph above says is what Sines computes."""
    table = Sines(FREQUENCIES, PHASES)(torch.tensor(POSITIONS), torch.float64).numpy()
    np.testing.assert_allclose(table, truth().astype(np.float64), rtol=0, atol=1e-9)
