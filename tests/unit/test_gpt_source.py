"""Our own GPT as a source: traced without its weights, described for the manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch

from gpt_onnx.checkpoint import read_checkpoint, write_checkpoint
from gpt_onnx.config import GPTConfig
from gpt_onnx.export import ExportOptions
from gpt_onnx.export.gpt_source import GptSource, hash_of_state, sizes_of, to_numpy
from gpt_onnx.export.passes._graph import is_parameter
from gpt_onnx.export.source import resolve

CONFIG = GPTConfig(vocab_size=89, context_length=64, n_embd=36, n_layer=1, n_head=3)


def _forbidden(*_: Any) -> NoReturn:
    raise AssertionError("no weight may be read")


def _unread(config: GPTConfig = CONFIG) -> GptSource:
    return GptSource(name="x", config=config, read=_forbidden, reference=_forbidden, sha256=_forbidden)


def test_a_trace_reads_no_weight() -> None:
    source = _unread()
    (traced,) = source.trace(ExportOptions())
    names = set(source.parameter_names())
    assert names <= set(traced.model.graph.initializers)
    for name in names:  # a fake tensor stands for the value, until the passes take it away
        value = traced.model.graph.initializers[name]
        value.const_value = None
        assert is_parameter(value)


def test_parameters_are_named_as_in_the_checkpoint() -> None:
    names = _unread().parameter_names()
    assert names["gpt.h.0.attn.c_attn.weight"] == "h.0.attn.c_attn.weight"
    assert "lm_head.weight" not in names.values()  # tied


def test_sizes_to_avoid_are_avoided() -> None:
    source = _unread()
    first = source.trace(ExportOptions(kv_cache=False))[0].sizes
    again = source.trace(ExportOptions(kv_cache=False), frozenset(first.values()))[0].sizes
    assert not set(first.values()) & set(again.values())


def test_sizes_of_a_configuration() -> None:
    config = GPTConfig(
        vocab_size=89, context_length=64, n_embd=36, n_layer=1, n_head=4, n_kv_head=2, head_size=5
    )
    assert {89, 64, 36, 1, 4, 2, 5, 144, 20, 10, 8, 40, 18} <= sizes_of(config)


@pytest.mark.parametrize(("target", "cache"), [("cpu", 16), ("portable", 12)])
def test_the_model_is_described(target: str, cache: int) -> None:
    model = _unread().model_info(ExportOptions(target=target))
    assert (model.head_size, model.cache_head_size) == (12, cache)
    assert (model.n_layer, model.n_kv_head, model.vocab_size) == (1, 3, 89)
    assert (model.context_length, model.position, model.position_limit) == (64, "sinusoidal", None)


def test_a_checkpoint_is_read_one_weight_at_a_time(tmp_path: Path, make_gpt: Any) -> None:
    gpt = make_gpt(n_layer=1)
    write_checkpoint(tmp_path / "my gpt", gpt.config, gpt.state_dict(), store="bf16")
    source = resolve(tmp_path / "my gpt", ExportOptions())
    assert source.name == "my gpt"
    assert source.sha256() == read_checkpoint(tmp_path / "my gpt").sha256
    found = source.weight("h.0.mlp.c_fc.weight")
    assert found.dtype == np.float32
    wanted = gpt.h[0].mlp.c_fc.weight.detach().bfloat16().float().numpy()
    np.testing.assert_array_equal(found, wanted)


def test_the_reference_is_the_model_in_memory(make_gpt: Any) -> None:
    gpt = make_gpt(n_layer=1)
    truth = GptSource.of_model(gpt).reference().compute_all([(1, 2, 3)])[0]
    with torch.no_grad():
        wanted = gpt(torch.tensor([[1, 2, 3]]))[0][0].numpy()
    np.testing.assert_allclose(truth.logits(), wanted, rtol=1e-4, atol=1e-5)


def test_hash_follows_names_values_dtypes_and_the_program() -> None:
    state = {"a": torch.ones(2, 3), "b": torch.zeros(1)}
    hashes = {
        hash_of_state(state, "x"),
        hash_of_state(state, "y"),
        hash_of_state({"a": state["a"], "c": state["b"]}, "x"),
        hash_of_state({"a": state["a"].reshape(3, 2), "b": state["b"]}, "x"),
        hash_of_state({"a": state["a"].half(), "b": state["b"]}, "x"),
        hash_of_state({"a": state["a"] + 1e-7, "b": state["b"]}, "x"),
    }
    assert len(hashes) == 6
    assert hash_of_state(dict(reversed(state.items())), "x") == hash_of_state(state, "x")


def test_integers_keep_their_kind() -> None:
    assert to_numpy(torch.arange(3)).dtype == np.int64
    assert to_numpy(torch.ones(3, dtype=torch.float64)).dtype == np.float32
