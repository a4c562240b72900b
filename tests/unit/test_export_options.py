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
    ("options", "batch"), [({}, None), ({"seq_len": 8}, 1), ({"seq_len": 8, "batch_size": "dynamic"}, None)]
)
def test_a_frozen_length_freezes_the_batch_unless_it_is_said(
    options: dict[str, Any], batch: int | None
) -> None:
    assert ExportOptions(**options).frozen("batch_size") == batch


@pytest.mark.parametrize(
    ("opset", "versions"), [(None, (21, 10)), (17, (17, 8)), (19, (19, 9)), (20, (20, 9)), (21, (21, 10))]
)
def test_an_opset_brings_its_ir_version(opset: int | None, versions: tuple[int, int]) -> None:
    assert ExportOptions(target="portable", opset=opset).versions == versions


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"opset": 17},
            "opset is 17 and target cpu has 21; choose 21, or target portable.",
        ),
        (
            {"opset": 16, "target": "portable"},
            "opset is 16 and target portable has 17, 18, 19, 20, 21; choose one of them.",
        ),
        (
            {"opset": 20, "target": "portable", "precision": "int4"},
            "opset is 20 and precision int4 of target portable needs 21; choose that, or precision "
            "fp32 or fp16.",
        ),
        (
            {"precision": "fp16"},
            "the precision is 'fp16' and target cpu has fp32, int8, int4; choose one of them, or target web "
            "or portable.",
        ),
        (
            {"precision": "fp16", "target": "web", "block_size": 32},
            "block_size is 32 and the weights stay fp16; choose precision int8 or int4.",
        ),
        (
            {"max_kl": 0.1},
            "max_kl is 0.1 and the weights stay fp32; choose precision int8 or int4.",
        ),
        (
            {"precision": "int8", "head_precision": "fp16"},
            "head_precision is 'fp16'; beside integers it is fp32, int8 or int4.",
        ),
    ],
)
def test_versions_and_precisions_that_do_not_go_together(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ExportOptions(**options)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "gpu"}, "the target is 'gpu'; known are cpu, web, portable."),
        ({"check": "thorough"}, "check is 'thorough'; known are none, quick, standard, deep."),
        ({"kv_cache": "no"}, "kv_cache is 'no'; it must be true or false."),
        ({"overwrite": 1}, "overwrite is 1; it must be true or false."),
        ({"precision": "int3"}, "the precision is 'int3'; known are fp32, fp16, int8, int4."),
        (
            {"block_size": 64},
            "block_size is 64 and the weights stay fp32; choose precision int8 or int4.",
        ),
        (
            {"precision": "int4", "block_size": 48},
            "block_size is 48; it must be one of 16, 32, 64, 128, 256.",
        ),
        ({"precision": "int4", "accuracy_level": 2}, "accuracy_level is 2; it must be 0 or 4."),
        ({"precision": "int8", "quantizer": "awq"}, "quantizer is 'awq'; it must be one of rtn, hqq, gptq."),
        ({"precision": "int4", "max_kl": -1.0}, "max_kl is -1.0; it must be a positive number."),
        ({"precision": "int4", "max_kl": float("nan")}, "max_kl is nan; it must be a positive number."),
        (
            {"check": "none", "reference": Path("r.npz")},
            "check is 'none' and a reference is given, which quick, standard, deep look at; choose one of "
            "them.",
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
    if (name, value) == ("batch_size", None):
        assert ExportOptions().frozen(name) is None
        assert ExportOptions(seq_len=64).frozen(name) == 1
        return
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
        "'sequence' is no option of an export; known are target, seq_len, batch_size, kv_cache, opset, "
        "check, reference, tokenizer, config, names, precision, block_size, accuracy_level, quantizer, "
        "head_precision, calibration, max_kl, overwrite."
    )


def test_weights_stay_float_unless_a_precision_is_chosen() -> None:
    assert ExportOptions().choice is None


@pytest.mark.parametrize(("precision", "bits", "symmetric"), [("int8", 8, True), ("int4", 4, False)])
def test_a_precision_chooses_how_weights_become_integers(precision: str, bits: int, symmetric: bool) -> None:
    choice = ExportOptions(precision=precision).choice
    assert choice is not None
    assert (choice.bits, choice.head_bits, choice.symmetric) == (bits, 8, symmetric)
    assert choice.accuracy_level == 4


def test_what_is_said_of_integers_is_taken() -> None:
    options = ExportOptions(
        precision="int4", head_precision="int4", block_size=64, accuracy_level=0, quantizer="rtn"
    )
    choice = options.choice
    assert choice is not None
    assert (choice.head_bits, choice.block_sizes, choice.accuracy_level) == (4, (64,), 0)
    assert choice.quantizer == "rtn"


@pytest.mark.parametrize("width", [100, 24])
def test_a_width_that_no_block_divides_is_refused(width: int) -> None:
    choice = ExportOptions(precision="int4").choice
    assert choice is not None
    with pytest.raises(ConfigError, match=rf"^odd has {width} inputs.*; export it in fp32\.$"):
        choice.block_size({"narrow": 128, "odd": width})
