"""One data file: every weight once, aligned where it pays, read one at a time, upcast exactly."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gpt_onnx.bundle import open_bundle, read_graph
from gpt_onnx.config import GPTConfig, named_config
from gpt_onnx.errors import CheckpointError
from gpt_onnx.export.gpt_source import GptSource
from gpt_onnx.export.passes import STORED_TRANSPOSED
from gpt_onnx.export.weights import (
    ALIGN_FROM,
    ALIGNMENT,
    INLINE_BELOW,
    align_from,
    bind,
    collect_parameters,
    collect_tables,
)
from gpt_onnx.parameter_shapes import parameter_shapes

Shapes = dict[str, tuple[int, ...]]
AWKWARD = GPTConfig(vocab_size=5003, context_length=77, n_embd=302, n_layer=5, n_head=2, d_ff=1111)
"""About 5.5 million parameters, no size a power of two."""


def _silent(done: int, total: int) -> None:
    """Hear of progress and do nothing."""


def _model(shapes: Shapes) -> ir.Model:
    """A graph of parameters without values, and no node."""
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 21}, name="main")
    for name, shape in shapes.items():
        value = ir.Value(name=f"gpt.{name}", shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.FLOAT))
        graph.initializers[f"gpt.{name}"] = value
    return ir.Model(graph, ir_version=10)


def _names(shapes: Shapes) -> dict[str, str]:
    return {f"gpt.{name}": name for name in shapes}


def _values(shapes: Shapes) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def _write(shapes: Shapes, path: Path, values: dict[str, np.ndarray], *, transposed: str = "") -> ir.Model:
    model = _model(shapes)
    if transposed:
        value = model.graph.initializers[f"gpt.{transposed}"]
        value.shape = ir.Shape(reversed(shapes[transposed]))
        value.meta[STORED_TRANSPOSED] = True
    weights = collect_parameters([model], _names(shapes), values.__getitem__)
    bind(weights, path, _silent)
    return model


def _external(model: ir.Model) -> dict[str, ir.ExternalTensor]:
    tensors = {name: value.const_value for name, value in model.graph.initializers.items()}
    return {name: tensor for name, tensor in tensors.items() if isinstance(tensor, ir.ExternalTensor)}


def test_every_weight_comes_back_bit_for_bit(tmp_path: Path) -> None:
    shapes: Shapes = {"wte": (301, 70), "big": (130, 140), "small": (7,), "scalar": ()}
    values = _values(shapes)
    model = _write(shapes, tmp_path / "model.onnx_data", values, transposed="big")
    for name in shapes:
        found = model.graph.initializers[name].const_value
        assert found is not None
        np.testing.assert_array_equal(found.numpy(), values[name].T if name == "big" else values[name])


def test_weights_lie_apart_and_cover_the_file_from_the_biggest_down(tmp_path: Path) -> None:
    shapes: Shapes = {"a": (300, 70), "b": (1000, 70), "c": (16, 16), "d": (999,)}
    path = tmp_path / "model.onnx_data"
    tensors = sorted(_external(_write(shapes, path, _values(shapes))).values(), key=lambda t: t.offset or 0)
    assert [tensor.name for tensor in tensors] == ["b", "a", "d", "c"]
    ends = [(tensor.offset or 0) + (tensor.length or 0) for tensor in tensors]
    starts = [tensor.offset or 0 for tensor in tensors]
    assert starts[0] == 0
    assert all(0 <= start - end < ALIGNMENT for start, end in zip(starts[1:], ends, strict=False))
    assert ends[-1] == path.stat().st_size


def test_small_tensors_stay_in_the_graph(tmp_path: Path) -> None:
    shapes: Shapes = {"in": (INLINE_BELOW // 4 - 1,), "out": (INLINE_BELOW // 4,)}
    model = _write(shapes, tmp_path / "model.onnx_data", _values(shapes))
    assert list(_external(model)) == ["out"]


@pytest.mark.parametrize("config", [named_config("gpt2"), AWKWARD], ids=["gpt2", "awkward"])
def test_big_tensors_are_aligned_and_the_file_is_hardly_larger(config: GPTConfig) -> None:
    sizes = sorted((4 * int(np.prod(shape)) for shape in parameter_shapes(config).values()), reverse=True)
    assert sum(sizes) > 20_000_000
    threshold, end = align_from(sizes), 0
    for size in sizes:
        end += -end % ALIGNMENT if size >= threshold else 0
        end += size
    assert end <= 1.02 * sum(sizes)


def test_tensors_above_the_threshold_begin_on_a_boundary(tmp_path: Path) -> None:
    shapes = parameter_shapes(AWKWARD)
    path = tmp_path / "model.onnx_data"
    values = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    tensors = _external(_write(shapes, path, values)).values()
    payload = sum(values[name].nbytes for name in values)
    threshold = align_from(tensor.length or 0 for tensor in tensors)
    big = [tensor for tensor in tensors if (tensor.length or 0) >= threshold]
    assert big
    assert all((tensor.offset or 0) % ALIGNMENT == 0 for tensor in big)
    assert path.stat().st_size <= 1.02 * payload


@given(st.lists(st.integers(1024, 50_000_000), min_size=1, max_size=60))
def test_padding_is_under_two_percent_of_any_weights(sizes: list[int]) -> None:
    threshold = align_from(sizes)
    assert threshold in ALIGN_FROM
    padding = sum(-size % ALIGNMENT for size in sizes if size >= threshold)
    assert padding <= 0.02 * sum(sizes)


def test_few_weights_are_in_memory_at_once(tmp_path: Path) -> None:
    shapes: Shapes = {f"layer.{index}": (500, 40 + index) for index in range(30)}
    alive, peak = {"bytes": 0}, {"bytes": 0}

    def forget(nbytes: int) -> None:
        alive["bytes"] -= nbytes

    def read(name: str) -> np.ndarray:
        array = np.ones(shapes[name], np.float32)
        weakref.finalize(array, forget, array.nbytes)
        alive["bytes"] += array.nbytes
        peak["bytes"] = max(peak["bytes"], alive["bytes"])
        return array

    bind(collect_parameters([_model(shapes)], _names(shapes), read), tmp_path / "data", _silent)
    biggest = 4 * 500 * 69
    assert peak["bytes"] <= 2 * biggest
    assert alive["bytes"] == 0


def test_progress_ends_at_the_total(tmp_path: Path) -> None:
    shapes: Shapes = {"a": (300, 70), "b": (1000, 70)}
    told: list[tuple[int, int]] = []
    weights = collect_parameters([_model(shapes)], _names(shapes), _values(shapes).__getitem__)
    bind(weights, tmp_path / "data", lambda done, total: told.append((done, total)))
    assert told == [(0, 364_000), (280_000, 364_000), (364_000, 364_000)]


def test_graphs_share_one_copy_of_a_weight(tmp_path: Path) -> None:
    shapes: Shapes = {"a": (300, 70)}
    models = [_model(shapes), _model(shapes)]
    bind(collect_parameters(models, _names(shapes), _values(shapes).__getitem__), tmp_path / "data", _silent)
    first, second = (_external(model)["a"] for model in models)
    assert (first.offset, first.length) == (second.offset, second.length)
    assert (tmp_path / "data").stat().st_size == 4 * 300 * 70


def test_a_name_that_the_graph_uses_is_not_given_to_a_weight(tmp_path: Path) -> None:
    """A module may call a parameter "logits": the graph's output has that name already."""
    shapes: Shapes = {"logits": (300, 70)}
    model = _model(shapes)
    node = ir.node("Identity", [model.graph.initializers["gpt.logits"]])
    node.outputs[0].name = "logits"
    model.graph.append(node)
    bind(collect_parameters([model], _names(shapes), _values(shapes).__getitem__), tmp_path / "data", _silent)
    assert list(model.graph.initializers) == ["gpt.logits"]
    assert isinstance(model.graph.initializers["gpt.logits"].const_value, ir.ExternalTensor)


def test_a_big_buffer_goes_to_the_data_file(tmp_path: Path, parse: Any) -> None:
    model = parse("(float[200, 200] x) => (float[200, 200] y) <float[2] small = {1, 2}> { y = Tanh(x) }")
    table = ir.tensor(np.tri(200, dtype=np.float32), name="tril")
    model.graph.register_initializer(
        ir.Value(name="tril", shape=ir.Shape([200, 200]), type=ir.TensorType(table.dtype), const_value=table)
    )
    weights = collect_tables({"model": model})
    assert [weight.name for weight in weights] == ["model.tril"]
    bind(weights, tmp_path / "data", _silent)
    found = model.graph.initializers["tril"].const_value
    assert isinstance(found, ir.ExternalTensor)
    np.testing.assert_array_equal(found.numpy(), np.tri(200, dtype=np.float32))


@pytest.mark.parametrize("options", [{}, {"target": "portable"}, {"seq_len": 16}, {"kv_cache": False}])
def test_a_bundle_holds_every_parameter_once(exported: Any, make_gpt: Any, options: Any) -> None:
    report, parameters = exported(**options), make_gpt().parameter_count()
    assert report.payload_bytes == 4 * parameters == 4 * report.manifest.model.parameters
    bundle, regions, inline = open_bundle(report.path), set(), {}
    for role in bundle.manifest.graph.graphs:
        for weight in read_graph(bundle.graph_path(role)).initializers:
            if weight.external is not None:
                regions.add((weight.external.offset, weight.external.length))
            elif weight.dtype == "float32":
                inline[weight.name] = weight.bytes
    stored = sum(length for _, length in regions) + sum(inline.values())
    assert 4 * parameters <= stored <= 1.001 * 4 * parameters + 16  # scalars of attention besides


def test_a_bundle_keeps_the_names_of_the_checkpoint(exported: Any, make_gpt: Any) -> None:
    bundle = open_bundle(exported().path)
    names = {weight.name for weight in read_graph(bundle.graph_path("model")).initializers}
    assert set(make_gpt().state_dict()) <= names


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_weights_are_upcast_exactly(make_gpt: Any, dtype: torch.dtype) -> None:
    half = make_gpt().to(dtype)
    source = GptSource.of_model(half)
    for name, tensor in half.state_dict().items():
        found = source.weight(name)
        assert found.dtype == np.float32
        assert torch.equal(torch.from_numpy(found).to(dtype), tensor)


def test_a_weight_that_is_not_finite_is_refused(make_gpt: Any) -> None:
    gpt = make_gpt()
    with torch.no_grad():
        gpt.h[1].mlp.c_fc.weight[3, 4] = float("nan")
    with pytest.raises(CheckpointError, match=r"h.1.mlp.c_fc.weight has NaN or infinity in 1 of 5184 places"):
        GptSource.of_model(gpt).weight("h.1.mlp.c_fc.weight")
