"""What is asserted of a graph after the passes."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from gpt_onnx.errors import ExportError
from gpt_onnx.export.graphs import TOTAL, Graph
from gpt_onnx.export.promises import (
    BakedSizeError,
    check_dims,
    check_no_example_size,
    check_operators,
    rename_mask_length,
)

TEXT = """(int64[B, S] input_ids, int64[B, s53] attention_mask) => (float[B, S, 7] logits)
    <float[B, s53] one, float[s53, "2*s53"] two> {
    one = Cast<to = 1>(attention_mask)
    two = Tanh(one)
    logits = Sin(two)
}"""


def _graph(**outputs: Any) -> Graph:
    return Graph(
        role="model",
        module=nn.Identity(),
        inputs={"input_ids": ("B", "S"), "attention_mask": ("B", TOTAL)},
        outputs=outputs or {"logits": ("B", "S", 7)},
        sequence_limit=None,
    )


def _dims(model: Any) -> dict[str, str]:
    made = [output for node in model.graph for output in node.outputs]
    return {value.name: str(value.shape) for value in (*model.graph.inputs, *made)}


def test_the_mask_length_gets_its_name_everywhere(parse: Any) -> None:
    model = parse(TEXT.replace(', float[s53, "2*s53"] two', ""))
    rename_mask_length(model, _graph())
    assert _dims(model)["attention_mask"] == _dims(model)["one"] == f"[B,{TOTAL}]"
    assert _dims(model)["input_ids"] == "[B,S]"


def test_a_fixed_mask_length_is_left_for_the_check(parse: Any) -> None:
    model = parse(
        "(int64[B, S] input_ids, int64[B, 9] attention_mask) => (int64[B, S] y) { y = Abs(input_ids) }"
    )
    rename_mask_length(model, _graph())
    assert _dims(model)["attention_mask"] == "[B,9]"
    with pytest.raises(ExportError, match=r"attention_mask came out of the trace with the dims \['B', 9\]"):
        check_dims(model, _graph(y=("B", "S")))


def test_promised_dims_are_accepted(parse: Any) -> None:
    model = parse(
        "(int64[B, S] input_ids, int64[B, S] attention_mask) => (int64[B, 7] logits) "
        "{ logits = Add(input_ids, attention_mask) }"
    )
    graph = Graph(
        role="model",
        module=nn.Identity(),
        inputs={"input_ids": ("B", "S"), "attention_mask": ("B", "S")},
        outputs={"logits": ("B", 7)},
        sequence_limit=None,
    )
    check_dims(model, graph)


@pytest.mark.parametrize("dims", ["B, 9", "9, S", "S, B", "B", "B, S, 1"])
def test_other_dims_are_refused_by_name(parse: Any, dims: str) -> None:
    model = parse(f"(int64[{dims}] input_ids) => (int64[B, S] logits) {{ logits = Abs(input_ids) }}")
    with pytest.raises(ExportError, match=r"input_ids came out .* \['B', 'S'\] were promised"):
        check_dims(model, _graph(logits=("B", "S")))


BAKED = {
    "an initializer": "<int64[2] shape = {97, 4}> { y = Reshape(x, shape) }",
    "a constant": "{ shape = Constant<value = int64[2] {97, 4}>()\n y = Reshape(x, shape) }",
    "a constant of integers": "{ shape = Constant<value_ints = [97, 4]>()\n y = Reshape(x, shape) }",
}


@pytest.mark.parametrize("place", BAKED)
def test_a_size_of_the_example_is_found(parse: Any, place: str) -> None:
    model = parse(f"(float[B, S] x) => (float[B, S] y) {BAKED[place]}")
    with pytest.raises(
        BakedSizeError, match=r"the example's S of 97 was baked into the constant shape"
    ) as told:
        check_no_example_size(model, {"S": 97, "B": 61}, {"S", "B"})
    assert told.value.size == 97


@pytest.mark.parametrize(
    "body",
    [
        "<int64[2] shape = {96, 4}> { y = Reshape(x, shape) }",
        "<float[1] scale = {97}> { y = Mul(x, scale) }",
        "<int64[9] table = {97, 0, 0, 0, 0, 0, 0, 0, 0}> { y = Gather(x, table) }",
    ],
    ids=["another number", "no integer", "a table"],
)
def test_other_constants_are_accepted(parse: Any, body: str) -> None:
    model = parse(f"(float[B, S] x) => (float[B, S] y) {body}")
    check_no_example_size(model, {"S": 97, "B": 61}, {"S", "B"})


def test_a_frozen_size_may_be_a_constant(parse: Any) -> None:
    model = parse(f"(float[B, S] x) => (float[B, S] y) {BAKED['an initializer']}")
    check_no_example_size(model, {"S": 97, "B": 61}, {"B"})


def test_a_parameter_is_no_constant(parse: Any) -> None:
    model = parse(f"(float[B, S] x) => (float[B, S] y) {BAKED['an initializer']}", ("shape",))
    check_no_example_size(model, {"S": 97}, {"S"})


def test_operators_of_the_promised_domains_are_accepted(parse: Any) -> None:
    model = parse("(float[B] x) => (float[B] y) { y = Tanh(x) }")
    model.graph[0].domain = "com.microsoft"
    check_operators(model, ("", "com.microsoft"))
    with pytest.raises(ExportError, match=r"the trace uses the operator com.microsoft::Tanh, which"):
        check_operators(model, ("",))


def test_a_branch_is_refused(parse: Any) -> None:
    model = parse("""(bool c, float[B] x) => (float[B] y) {
        y = If (c) <then_branch = g1 () => (float[B] a) { a = Sin(x) },
                    else_branch = g2 () => (float[B] b) { b = Cos(x) }>
    }""")
    with pytest.raises(ExportError, match="the trace has the branch or loop If; a graph of ours has none"):
        check_operators(model, ("",))
