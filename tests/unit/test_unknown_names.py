"""Patterns of unknown names, what each may be, and the table that is written of them."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from gpt_onnx.checkpoint.likely import Likely
from gpt_onnx.checkpoint.names import Name
from gpt_onnx.checkpoint.names_sheet import sheet
from gpt_onnx.checkpoint.patterns import Group, Shape, groups_of, width_of

W = 64


def _patterns(*names: str, shape: Shape = (W,)) -> list[tuple[str, int]]:
    return [(group.name, group.count) for group in groups_of(dict.fromkeys(names, shape), W)]


def test_numbers_at_the_end_of_words_are_layers_and_heads() -> None:
    names = [f"stage{layer}.unit{head}.q" for layer in range(2) for head in range(3)]
    assert _patterns(*names, shape=(16, W)) == [("stage{layer}.unit{head}.q", 6)]
    assert _patterns("layer_0_q", "layer_1_q") == [("layer_{layer}_q", 2)]
    assert _patterns("layers_0/q", "layers_1/q") == [("layers_{layer}/q", 2)]


def test_heads_of_a_single_layer_are_heads() -> None:
    names = [f"layers.0.heads.{head}.q" for head in range(3)]
    assert _patterns(*names, shape=(16, W)) == [("layers.0.heads.{head}.q", 3)]


def test_numbers_that_count_nothing_stay() -> None:
    names = [f"blocks.{layer}.ln{norm}.w" for layer in range(2) for norm in (1, 2)]
    assert _patterns(*names) == [("blocks.{layer}.ln1.w", 2), ("blocks.{layer}.ln2.w", 2)]
    assert _patterns("0.weight", "5.weight") == [("0.weight", 1), ("5.weight", 1)]
    assert _patterns("layer1.w", "layer2.w") == [("layer1.w", 1), ("layer2.w", 1)]
    assert _patterns("layer00.w", "layer01.w") == [("layer00.w", 1), ("layer01.w", 1)]


def test_parts_as_wide_as_the_model_are_no_heads() -> None:
    """Four matrices of a layer in a list are queries, keys, values and the projection."""
    names = [f"blocks.{layer}.lin.{part}" for layer in range(2) for part in range(2)]
    whole = [("blocks.{layer}.lin.0", 2), ("blocks.{layer}.lin.1", 2)]
    assert _patterns(*names, shape=(W, W)) == whole
    assert _patterns(*names, shape=(16, W)) == [("blocks.{layer}.lin.{head}", 4)]


def test_names_of_thousands_of_numbers_are_gathered() -> None:
    long = ".".join(map(str, range(5000)))
    assert [group.count for group in groups_of({f"a.{layer}.{long}": (2,) for layer in range(2)})] == [2]


def test_the_width_is_what_most_matrices_have() -> None:
    assert width_of({"a": (100, W), "b": (W, W), "c": (256, W), "d": (256,), "e": (256,)}) == W
    assert width_of({"d": (256,)}) == 0


def _likely(name: str, shape: Shape, **others: Shape) -> list[str]:
    stored = {"square": (W, W), "other": (W, W), name.format(layer=0, head=0): shape, **others}
    stored |= {name.format(layer=1, head=1): shape}
    likely = Likely.of({**stored, "wide": (7, W)}, {})
    return likely.names(Group(name, shape, 2))


@pytest.mark.parametrize(
    ("name", "shape", "first"),
    [
        ("a.{layer}.packed", (3 * W, W), "h.{layer}.attn.c_attn.weight"),
        ("a.{layer}.x.{head}.key", (16, W), "h.{layer}.attn.k.{head}.weight"),
        ("a.{layer}.values.weight", (W, W), "h.{layer}.attn.v.weight"),
        ("a.{layer}.x", (W, W), "h.{layer}.attn.c_proj.weight"),
        ("a.{layer}.x", (4 * W, W), "h.{layer}.mlp.c_fc.weight"),
        ("a.{layer}.x.gamma", (W,), "h.{layer}.ln_1.weight"),
        ("a.{layer}.x.beta", (W,), "h.{layer}.ln_1.bias"),
        ("x.g", (W,), "ln_f.weight"),
        ("x.b", (900,), "lm_head.bias"),
        ("x", (900, W), "wte.weight"),
        ("x", (1, 40, W), "wpe.weight"),
    ],
)
def test_the_likeliest_name_has_the_shape_and_the_kind(name: str, shape: Shape, first: str) -> None:
    assert _likely(name, shape)[0] == first


def test_what_is_stored_the_other_way_round_is_called_transposed() -> None:
    assert _likely("a.{layer}.x", (W, 3 * W))[0] == "transposed h.{layer}.attn.c_attn.weight"


def test_what_is_like_nothing_is_offered_nothing() -> None:
    assert _likely("a.{layer}.mask", (40, 40)) == []
    assert _likely("a.{layer}.x", (2, 3, 4, 5)) == []


def test_a_bias_goes_with_its_matrix() -> None:
    stored = {f"a.{layer}.x.weight": (4 * W, W) for layer in range(2)}
    stored |= {f"a.{layer}.y.weight": (W, W) for layer in range(2)}
    bias = Group("a.{layer}.y.bias", (W,), 2)
    assert Likely.of(stored, {}).names(bias)[0] == "h.{layer}.attn.c_proj.bias"
    known = {"a.{layer}.y.weight": "h.{layer}.attn.k.weight"}
    assert Likely.of(stored, known).names(bias) == ["h.{layer}.attn.k.bias"]


def test_a_table_holds_any_name_and_moves_no_cursor() -> None:
    names = ['a"b\\c', "tab\there", "\x1b[2J\x7f", "\U0001f600.w", "a\nb"]
    groups = [Group(name, (W,), 1) for name in names]
    known = [Name("p", "h.0.mlp.c_fc.weight", transposed=True), Name("q", "ln_f.weight")]
    text = sheet(Path("a\nb.pt"), [(group, ["ln_f.weight"]) for group in groups], known, ["m.{layer}"])
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert tomllib.loads(text) == {
        "ignore": ["m.{layer}"],
        "names": {
            **dict.fromkeys(names, "?"),
            "p": {"to": "h.0.mlp.c_fc.weight", "transposed": True},
            "q": "ln_f.weight",
        },
    }


def test_a_name_that_no_table_can_hold_is_a_comment() -> None:
    text = sheet(Path("a.pt"), [(Group("a{x}", (W,), 1), [])], [], [])
    assert tomllib.loads(text) == {"ignore": [], "names": {}}
    assert "A table cannot hold this name." in text
