"""ExportOptions: defaults, what follows from them, one sentence for each mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt_onnx.errors import ConfigError
from gpt_onnx.export import ExportOptions
from gpt_onnx.export.options import options_of


def test_defaults() -> None:
    options = ExportOptions()
    assert options.recorded() == {
        "target": "cpu",
        "seq_len": "dynamic",
        "batch_size": "dynamic",
        "kv_cache": True,
        "check": "standard",
    }
    assert options.layout == "dynamic"
    assert options.frozen("seq_len") is None
    assert options.frozen_sizes == frozenset()


@pytest.mark.parametrize(
    ("options", "layout"),
    [
        ({"seq_len": 8}, "static"),
        ({"batch_size": 8}, "dynamic"),
        ({"kv_cache": False}, "plain"),
        ({"kv_cache": False, "seq_len": 8}, "plain"),
    ],
)
def test_layout_follows(options: dict[str, Any], layout: str) -> None:
    assert ExportOptions(**options).layout == layout


def test_frozen_sizes_are_numbers() -> None:
    options = ExportOptions(seq_len=8, batch_size=3)
    assert (options.frozen("seq_len"), options.frozen("batch_size")) == (8, 3)
    assert options.frozen_sizes == {8, 3}


def test_no_path_is_recorded() -> None:
    options = ExportOptions(reference=Path("/secret/r.npz"), tokenizer="/secret/t", config=Path("/secret/c"))
    assert "secret" not in str(options.recorded())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "gpu"}, "the target is 'gpu'; known are cpu, portable."),
        ({"check": "thorough"}, "check is 'thorough'; known are none, quick, standard, deep."),
        ({"kv_cache": "no"}, "kv_cache is 'no'; it must be true or false."),
        ({"overwrite": 1}, "overwrite is 1; it must be true or false."),
        (
            {"check": "none", "reference": Path("r.npz")},
            "check is 'none' and a reference is given; choose a check that looks at it.",
        ),
    ],
)
def test_a_mistake_is_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as told:
        ExportOptions(**options)
    assert str(told.value) == message


@pytest.mark.parametrize("name", ["seq_len", "batch_size"])
@pytest.mark.parametrize("value", [0, -1, 2.0, "8", "", None, True, "Dynamic"])
def test_a_size_is_dynamic_or_a_positive_integer(name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as told:
        ExportOptions(**{name: value})
    assert str(told.value) == f"{name} is {value!r}; it must be 'dynamic' or an integer of at least 1."


@pytest.mark.parametrize(("name", "largest"), [("seq_len", 2**20), ("batch_size", 2**16)])
def test_a_size_has_an_upper_bound(name: str, largest: int) -> None:
    def options(value: Any) -> ExportOptions:
        return ExportOptions(**{name: value})

    assert options(largest).frozen(name) == largest
    for value in (largest + 1, 2**63 - 1, 10**20):
        with pytest.raises(ConfigError) as told:
            options(value)
        assert str(told.value) == f"{name} is {value}; a graph can be frozen at no more than {largest}."


def test_an_integer_of_numpy_is_an_integer() -> None:
    given: dict[str, Any] = {"seq_len": np.int64(8), "batch_size": np.uint8(3)}
    options = ExportOptions(**given)
    assert type(options.seq_len) is type(options.batch_size) is int
    assert options == ExportOptions(seq_len=8, batch_size=3)


@pytest.mark.parametrize("name", ["reference", "config", "tokenizer", "names"])
def test_a_path_may_be_text(name: str) -> None:
    def options(value: Any) -> ExportOptions:
        return ExportOptions(**{name: value})

    assert options("a/b") == options(Path("a/b"))
    for value in (3, b"a", "", ["a"]):
        with pytest.raises(ConfigError) as told:
            options(value)
        assert str(told.value) == f"{name} is {value!r}; it must be a path."


def test_an_unknown_option_is_told_with_the_known_ones() -> None:
    with pytest.raises(ConfigError) as told:
        options_of({"check": "none", "sequence": 3})
    assert str(told.value) == (
        "'sequence' is no option of an export; known are target, seq_len, batch_size, kv_cache, check, "
        "reference, tokenizer, config, names, overwrite."
    )
