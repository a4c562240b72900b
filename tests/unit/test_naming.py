"""Tables of names: whole and split projections, single heads, transposed weights, and what is left over."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt_onnx.checkpoint.leftovers import groups_of, listed
from gpt_onnx.checkpoint.names import OURS, Name, Naming, pattern
from gpt_onnx.checkpoint.naming import check_naming, matches_of, recipes_of
from gpt_onnx.checkpoint.recipe import make_weight
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import CheckpointError
from gpt_onnx.parameter_shapes import parameter_shapes

CONFIG = GPTConfig(
    vocab_size=11, context_length=8, n_embd=12, n_layer=2, n_head=4, n_kv_head=2, head_size=4, qkv_bias=True
)
"""16 rows of queries, 8 of keys, 8 of values."""
SHAPES = parameter_shapes(CONFIG)
WHOLE = Naming(tuple(Name(f"net.{name}", name) for name in SHAPES))


@dataclass
class _Memory:
    """A store of arrays."""

    arrays: dict[str, np.ndarray]
    path: Path = Path("weights.bin")
    files: tuple[Path, ...] = field(default=())

    @property
    def tensors(self) -> dict[str, Any]:
        return {name: _Info(array) for name, array in self.arrays.items()}

    def read(self, name: str) -> np.ndarray:
        return self.arrays[name].copy()


@dataclass
class _Info:
    array: np.ndarray
    dtype: str = "F32"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape


def _weights(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def _named(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"net.{name}": array for name, array in arrays.items()}


def _table(*changed: Name, ignored: tuple[str, ...] = ()) -> Naming:
    """The whole table, with other lines before it."""
    return Naming((*changed, *WHOLE.names), ignored)


def _made(naming: Naming, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    store = _Memory(arrays)
    recipes = recipes_of(naming, store, CONFIG)
    check_naming(naming, store, CONFIG, recipes)
    return {name: make_weight(store, recipe) for name, recipe in recipes.items()}


def _said(naming: Naming, arrays: dict[str, np.ndarray], config: GPTConfig = CONFIG, **options: Any) -> str:
    store = _Memory(arrays)
    with pytest.raises(CheckpointError) as caught:
        check_naming(naming, store, config, recipes_of(naming, store, config), **options)
    return str(caught.value)


def test_names_are_exchanged_and_values_kept() -> None:
    weights = _weights()
    made = _made(WHOLE, _named(weights))
    assert made.keys() == weights.keys()
    assert all(np.array_equal(made[name], weights[name]) for name in weights)


def test_a_transposed_weight_is_turned() -> None:
    weights = _weights()
    stored = _named(weights)
    for layer in range(2):
        stored[f"net.h.{layer}.mlp.c_fc.weight"] = weights[f"h.{layer}.mlp.c_fc.weight"].T
    naming = _table(Name("net.h.{layer}.mlp.c_fc.weight", "h.{layer}.mlp.c_fc.weight", transposed=True))
    made = _made(naming, stored)
    assert np.array_equal(made["h.1.mlp.c_fc.weight"], weights["h.1.mlp.c_fc.weight"])
    assert made["h.1.mlp.c_fc.weight"].flags["C_CONTIGUOUS"]


def _split(weights: dict[str, np.ndarray], *, turned: str = "") -> dict[str, np.ndarray]:
    """Queries, keys and values on their own; those in ``turned`` transposed."""
    stored = {name: array for name, array in _named(weights).items() if "c_attn" not in name}
    for layer in range(2):
        for kind in ("weight", "bias"):
            packed = weights[f"h.{layer}.attn.c_attn.{kind}"]
            for part, rows in (("q", packed[:16]), ("k", packed[16:24]), ("v", packed[24:])):
                flip = kind == "weight" and part in turned
                stored[f"layers.{layer}.w{part}.{kind}"] = rows.T if flip else rows
    return stored


def _split_lines(*, turned: str = "") -> list[Name]:
    return [
        Name(
            f"layers.{{layer}}.w{part}.{kind}",
            f"h.{{layer}}.attn.{part}.{kind}",
            kind == "weight" and part in turned,
        )
        for part in "qkv"
        for kind in ("weight", "bias")
    ]


@pytest.mark.parametrize("turned", ["", "k", "qkv"])
def test_queries_keys_and_values_are_joined(turned: str) -> None:
    weights = _weights()
    made = _made(_table(*_split_lines(turned=turned)), _split(weights, turned=turned))
    for name in ("h.0.attn.c_attn.weight", "h.1.attn.c_attn.bias"):
        assert np.array_equal(made[name], weights[name])


def test_keys_and_values_may_be_one_matrix() -> None:
    weights = _weights()
    stored = _split(weights)
    for layer in range(2):
        for kind in ("weight", "bias"):
            pair = [stored.pop(f"layers.{layer}.w{part}.{kind}") for part in "kv"]
            stored[f"layers.{layer}.wkv.{kind}"] = np.concatenate(pair)
    lines = [
        Name(f"layers.{{layer}}.wkv.{kind}", f"h.{{layer}}.attn.kv.{kind}") for kind in ("weight", "bias")
    ]
    made = _made(_table(*_split_lines(), *lines), stored)
    assert np.array_equal(made["h.1.attn.c_attn.weight"], weights["h.1.attn.c_attn.weight"])
    assert np.array_equal(made["h.1.attn.c_attn.bias"], weights["h.1.attn.c_attn.bias"])


@pytest.mark.parametrize("turned", [False, True])
def test_a_packed_projection_may_go_head_by_head(turned: bool) -> None:
    config = CONFIG.replace(n_kv_head=4)
    rng = np.random.default_rng(4)
    packed = rng.standard_normal((48, 12)).astype(np.float32)
    order = [4 * (4 * part + head) + row for head in range(4) for part in range(3) for row in range(4)]
    shapes = {name: shape for name, shape in parameter_shapes(config).items() if "c_attn.weight" not in name}
    stored = {f"net.{name}": np.ones(shape, np.float32) for name, shape in shapes.items()}
    for layer in range(2):
        stored[f"net.{layer}.qkv"] = packed[order].T if turned else packed[order]
    store = _Memory(stored)
    naming = _table(Name("net.{layer}.qkv", "h.{layer}.attn.qkv_by_head.weight", turned))
    recipes = recipes_of(naming, store, config)
    check_naming(naming, store, config, recipes)
    assert np.array_equal(make_weight(store, recipes["h.1.attn.c_attn.weight"]), packed)


def test_heads_that_share_keys_cannot_be_packed_head_by_head() -> None:
    stored = {name: array for name, array in _named(_weights()).items() if "c_attn.weight" not in name}
    stored |= {f"net.{layer}.qkv": np.ones((32, 12), np.float32) for layer in range(2)}
    said = _said(_table(Name("net.{layer}.qkv", "h.{layer}.attn.qkv_by_head.weight")), stored)
    assert "no use for: net.{layer}.qkv" in said


def _by_head(weights: dict[str, np.ndarray], parts: str) -> dict[str, np.ndarray]:
    """Single heads of some parts, in an order that is not that of their numbers."""
    stored = _split(weights)
    for layer in range(2):
        for part in parts:
            for kind in ("weight", "bias"):
                rows = stored.pop(f"layers.{layer}.w{part}.{kind}")
                for head in reversed(range(len(rows) // 4)):
                    stored[f"layers.{layer}.heads.{head}.{part}.{kind}"] = rows[4 * head : 4 * head + 4]
    return stored


def _head_lines(parts: str) -> list[Name]:
    return [
        Name(f"layers.{{layer}}.heads.{{head}}.{part}.{kind}", f"h.{{layer}}.attn.{part}.{{head}}.{kind}")
        for part in parts
        for kind in ("weight", "bias")
    ]


@pytest.mark.parametrize("parts", ["qkv", "q", "kv"])
def test_single_heads_are_joined_in_the_order_of_their_numbers(parts: str) -> None:
    weights = _weights()
    naming = _table(*_head_lines(parts), *_split_lines())
    made = _made(naming, _by_head(weights, parts))
    for name in ("h.0.attn.c_attn.weight", "h.1.attn.c_attn.bias"):
        assert np.array_equal(made[name], weights[name])


def test_the_first_line_that_fits_counts() -> None:
    naming = Naming((Name("a.0.weight", "ln_f.weight"), Name("a.{layer}.weight", "h.{layer}.ln_1.weight")))
    found = matches_of(naming, ["a.0.weight", "a.1.weight"])
    assert {ours: match.theirs for ours, match in found.items()} == {
        "ln_f.weight": "a.0.weight",
        "h.1.ln_1.weight": "a.1.weight",
    }


def test_dots_stand_for_themselves() -> None:
    assert not matches_of(Naming((Name("a.weight", "wte.weight"),)), ["aXweight", "a.weight.b", "b.a.weight"])


def test_two_tensors_for_one_weight_are_refused() -> None:
    naming = Naming((Name("a", "wte.weight"), Name("b", "wte.weight")))
    with pytest.raises(CheckpointError, match=r"b and a would both be wte\.weight"):
        matches_of(naming, ["a", "b"])


def test_ignored_tensors_are_no_weights() -> None:
    stored = {**_named(_weights()), "net.h.0.mask": np.ones((8, 8)), "net.h.1.mask": np.ones((8, 8))}
    assert "net.h.{layer}.mask [8, 8] (2 times)" in _said(WHOLE, stored)
    assert _made(_table(ignored=("net.h.{layer}.mask",)), stored).keys() == SHAPES.keys()


def test_a_missing_part_is_named_and_the_others_are_not() -> None:
    stored = _split(_weights())
    lines = [line for line in _split_lines() if line.theirs != "layers.{layer}.wk.weight"]
    said = _said(_table(*lines), stored, config_name="my.toml")
    assert said == (
        "weights.bin: the model of my.toml lacks h.{layer}.attn.k.weight [8, 12] (2 times) like "
        "layers.{layer}.wk.weight; and the file has tensors that are not named: layers.{layer}.wk.weight "
        "[8, 12] (2 times) like h.{layer}.attn.k.weight."
    )


def test_a_missing_head_is_named() -> None:
    stored = _by_head(_weights(), "qkv")
    del stored["layers.1.heads.3.q.weight"]
    said = _said(_table(*_head_lines("qkv")), stored)
    assert said == "weights.bin: the model of config.json lacks h.1.attn.q.3.weight [4, 12]."


def test_a_layer_too_many_is_told() -> None:
    said = _said(WHOLE, _named(_weights()), CONFIG.replace(n_layer=1))
    assert "that the model of config.json has no use for: net.h.1.ln_1.weight [12]" in said
    assert "lacks" not in said


def test_a_weight_that_is_stored_twice_in_two_forms_is_told() -> None:
    weights = _weights()
    said = _said(_table(*_split_lines()), {**_named(weights), **_split(weights)})
    assert "no use for: layers.{layer}.wq.weight [16, 12] (2 times)" in said


def test_both_sides_of_a_table_without_the_head_matrices_are_told_with_what_is_like_them() -> None:
    stored = {("x" + name if "mlp" in name else name): array for name, array in _named(_weights()).items()}
    said = _said(WHOLE, stored)
    assert "lacks h.{layer}.mlp.c_fc.weight [48, 12] (2 times) like xnet.h.{layer}.mlp.c_fc.weight;" in said
    assert (
        "not named: xnet.h.{layer}.mlp.c_fc.weight [48, 12] (2 times) like h.{layer}.mlp.c_fc.weight" in said
    )


def test_a_transposed_candidate_is_called_so() -> None:
    assert listed({"a": (3, 5)}, {"b": (5, 3), "c": (15,)}) == "a [3, 5] like transposed b"
    assert listed({"a": (3, 5)}, {"c": (15,), "d": (4,)}) == "a [3, 5] like c"
    assert listed({"a": (3, 5)}, {"d": (4,), "e": (9, 5)}) == "a [3, 5] like e"
    assert listed({"a": (3, 5)}, {"d": (4,)}) == "a [3, 5]"


def test_a_wrong_shape_is_told_with_our_name() -> None:
    stored = _named(_weights())
    stored["net.h.0.mlp.c_proj.weight"] = stored["net.h.0.mlp.c_proj.weight"].T
    assert _said(WHOLE, stored) == (
        "weights.bin: net.h.0.mlp.c_proj.weight has the shape [48, 12]; by config.json it must be [12, 48] "
        "for h.0.mlp.c_proj.weight, which is the same transposed."
    )


def test_long_lists_are_cut() -> None:
    said = listed({f"name{letter}.w": (2,) for letter in "abcdefghijkl"}, {})
    assert said.endswith("nameh.w [2]; and 4 more")


def test_long_names_are_cut() -> None:
    said = listed({"a" * 5000: (2,)}, {"b" * 5000: (2,)})
    assert said == f"{'a' * 200}... [2] like {'b' * 200}..."


def test_names_of_different_shape_are_different_groups() -> None:
    groups = groups_of({"a.0.w": (2,), "a.1.w": (3,), "a.2.w": (2,), "b.0.x.3.y": (1,), "b.1.x.2.y": (1,)})
    assert [(group.name, group.count) for group in groups] == [
        ("a.{layer}.w", 2),
        ("a.1.w", 1),
        ("b.{layer}.x.{head}.y", 2),
    ]


@pytest.mark.parametrize(
    ("theirs", "ours", "said"),
    [
        ("a.{layer}.w", "wte.weight", r"\{layer\} on one side alone"),
        ("a.w", "h.{layer}.ln_1.weight", r"\{layer\} on one side alone"),
        ("a.{layer}.{layer}", "h.{layer}.ln_1.weight", r"has \{layer\} twice"),
        ("a.{block}.w", "h.{layer}.ln_1.weight", r"the place \{block\}; known are \{layer\} and \{head\}"),
        ("a", "h.{layer}.attn.q.{}.weight", r"the place \{\}"),
        ("a.{layer}", "h.{layer}.attn.wq.weight", r"no name of a GPT's weight; the nearest are h\.\{layer\}"),
        ("a", "wte.bias", r"'wte.bias' is no name of a GPT's weight"),
    ],
)
def test_a_line_that_cannot_be_meant_is_refused(theirs: str, ours: str, said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        Name(theirs, ours)


def test_a_line_may_name_one_layer() -> None:
    assert Name("first.norm", "h.0.ln_1.weight").ours == "h.0.ln_1.weight"


def test_every_weight_of_a_gpt_has_a_name_of_ours() -> None:
    configs = [
        CONFIG,
        CONFIG.replace(position="learned", tie_embeddings=False, head_bias=True),
        CONFIG.replace(head_bias=True),
        CONFIG.replace(activation="swiglu"),
    ]
    names = {name for config in configs for name in parameter_shapes(config)}
    known = {text for text in OURS if any(pattern(text).fullmatch(name) for name in names)}
    assert all(any(pattern(text).fullmatch(name) for text in OURS) for name in names)
    parts = {text for text in OURS if ".attn.q" in text or ".attn.k" in text or ".attn.v" in text}
    assert known == set(OURS) - parts
