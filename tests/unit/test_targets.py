"""The table of targets."""

from __future__ import annotations

import dataclasses

import onnx.helper
import pytest

from gpt_onnx.config import POSITIONS, GPTConfig
from gpt_onnx.errors import ConfigError
from gpt_onnx.export import TARGETS, Target
from gpt_onnx.export.attention import padded_head_size
from gpt_onnx.export.graphs import GROWING_FORMS, SLOT_FORMS
from gpt_onnx.export.targets import IR_VERSIONS, find_target, fitted


def test_names_are_the_keys() -> None:
    assert [(name, target.name) for name, target in TARGETS.items()] == [
        (name, name) for name in ("cpu", "web", "portable")
    ]


def test_an_entry_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TARGETS["cpu"].opsets = (22,)  # type: ignore[misc]


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_every_target_loads_on_every_supported_runtime(target: Target) -> None:
    """The largest versions that ONNX Runtime 1.20, the oldest that is supported, accepts."""
    assert target.opset == max(target.opsets) == 21
    assert IR_VERSIONS[target.opset] == 10


def test_each_opset_has_the_ir_version_of_the_release_that_brought_it() -> None:
    table = {row[2]: row[1] for row in onnx.helper.VERSION_TABLE}
    assert all(table[opset] == version for opset, version in IR_VERSIONS.items())
    assert {opset for target in TARGETS.values() for opset in target.opsets} == set(IR_VERSIONS)


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_every_attention_has_a_form_with_and_without_a_frozen_cache(target: Target) -> None:
    assert target.attention in GROWING_FORMS
    assert target.attention in SLOT_FORMS


def test_an_unknown_target_is_told_with_those_known() -> None:
    with pytest.raises(ConfigError, match=r"the target is 'tpu'; known are cpu, web, portable\."):
        find_target("tpu")


@pytest.mark.parametrize(("size", "multiple", "padded"), [(12, 8, 16), (16, 8, 16), (1, 8, 8), (13, 1, 13)])
def test_head_sizes_are_padded_up(size: int, multiple: int, padded: int) -> None:
    assert padded_head_size(size, multiple) == padded


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
@pytest.mark.parametrize("position", POSITIONS)
def test_only_a_bias_on_the_scores_takes_the_fused_operator_from_a_target(
    target: Target, position: str
) -> None:
    config = GPTConfig(vocab_size=9, context_length=8, n_embd=8, n_layer=1, n_head=2, position=position)
    found = fitted(target, config)
    if position != "alibi":
        assert found == target
    else:
        assert (found.name, found.domains, found.opset) == (target.name, target.domains, target.opset)
        assert (found.attention, found.head_size_multiple, found.padding) == (
            "decomposed",
            1,
            "left or right",
        )
