"""The gate is tested by mutation: rotary positions, ALiBi, RMSNorm, gated activations, shared heads.

A graph of the right program meets a reference with one fault, which is as far from it as a faulty graph from
the right reference. ``test_gate_mutation`` puts faults into graphs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import gpt_onnx.model.alibi
import gpt_onnx.model.attention
from gpt_onnx.config import GPTConfig
from gpt_onnx.export.gate import GptReference, run_gate
from gpt_onnx.export.gate.report import GateReport
from gpt_onnx.model import GPT
from gpt_onnx.model.rotary import turn_packed
from gpt_onnx.rope import RopeScaling

GptMaker = Callable[..., GPT]
Exporter = Callable[..., Path]
Fault = Callable[[GPT, pytest.MonkeyPatch], GPT]

KINDS: dict[str, dict[str, Any]] = {
    "rotary": {
        "position": "rotary",
        "norm": "rmsnorm",
        "activation": "swiglu",
        "n_kv_head": 2,
        "d_ff": 40,
        "bias": False,
        "qkv_bias": True,
        "attention_scale_by_layer": True,
        "tie_embeddings": False,
    },
    "alibi": {"position": "alibi", "n_kv_head": 2},
    "learned": {"position": "learned"},
}
TARGETS = ("cpu", "portable")
Q, D, WIDTH = 4, 8, 32  # query heads, their size, the stream


def another(gpt: GPT, **changes: Any) -> GPT:
    """Return a program with the same weights and another configuration."""
    other = GPT(gpt.config.replace(**changes))
    other.load_state_dict(gpt.state_dict())
    return other.eval()


def edited(gpt: GPT, edit: Callable[[dict[str, torch.Tensor]], None]) -> GPT:
    """Return the same program with other weights."""
    state = {name: weight.clone() for name, weight in gpt.state_dict().items()}
    edit(state)
    other = GPT(gpt.config)
    other.load_state_dict(state)
    return other.eval()


def turned_values(gpt: GPT, patch: pytest.MonkeyPatch) -> GPT:
    """Rotary positions turn values too."""
    patch.setattr(
        gpt_onnx.model.attention,
        "turn_packed",
        lambda qkv, rotation, n_turned: turn_packed(qkv, rotation, qkv.shape[-1] // D),
    )
    return gpt


def tiled_heads(gpt: GPT, patch: pytest.MonkeyPatch) -> GPT:
    """Query head h takes key head h mod K, and not h div (H / K)."""
    patch.setattr(gpt_onnx.model.attention, "share_heads", lambda heads, group: heads.repeat(1, group, 1, 1))
    return gpt


def steeper_slopes(gpt: GPT, patch: pytest.MonkeyPatch) -> GPT:
    slopes = gpt_onnx.model.alibi.slopes
    patch.setattr(gpt_onnx.model.alibi, "slopes", lambda n_head: tuple(1.0001 * s for s in slopes(n_head)))
    return gpt


def slopes_the_other_way_round(gpt: GPT, patch: pytest.MonkeyPatch) -> GPT:
    slopes = gpt_onnx.model.alibi.slopes
    patch.setattr(gpt_onnx.model.alibi, "slopes", lambda n_head: slopes(n_head)[::-1])
    return gpt


def swapped_gate(state: dict[str, torch.Tensor]) -> None:
    first, second = "h.1.mlp.c_gate.weight", "h.1.mlp.c_fc.weight"
    state[first], state[second] = state[second], state[first]


def missing_bias(state: dict[str, torch.Tensor]) -> None:
    state["h.1.attn.c_attn.bias"][2 * D : 3 * D] = 0  # of one query head in one layer


def swapped_key_heads(state: dict[str, torch.Tensor]) -> None:
    for name in ("h.0.attn.c_attn.weight", "h.0.attn.c_attn.bias"):
        first, second = Q * D, (Q + 1) * D
        rows = state[name][first : second + D].clone()
        state[name][first:second], state[name][second : second + D] = rows[D:], rows[:D]


def of_config(**changes: Any) -> Fault:
    return lambda gpt, patch: another(gpt, **changes)


def of_weights(edit: Callable[[dict[str, torch.Tensor]], None]) -> Fault:
    return lambda gpt, patch: edited(gpt, edit)


FAULTS: dict[str, tuple[str, Fault]] = {
    "theta of 10,001 for 10,000": ("rotary", of_config(rope_theta=10_001.0)),
    "neighbours for halves": ("rotary", of_config(rope_style="interleaved")),
    "positions that end early": ("rotary", of_config(rope_size=6)),
    "frequencies scaled": ("rotary", of_config(rope_scaling=RopeScaling(kind="linear", factor=1.0001))),
    "values turned too": ("rotary", turned_values),
    "an epsilon of 1e-6 for 1e-5": ("rotary", of_config(norm_eps=1e-6)),
    "GELU for SiLU in the gate": ("rotary", of_config(activation="geglu")),
    "gate and up swapped": ("rotary", of_weights(swapped_gate)),
    "key heads tiled, not repeated": ("rotary", tiled_heads),
    "two key heads swapped": ("rotary", of_weights(swapped_key_heads)),
    "a bias missing in one head": ("rotary", of_weights(missing_bias)),
    "the scale by layer dropped": ("rotary", of_config(attention_scale_by_layer=False)),
    "slopes off by 1e-4": ("alibi", steeper_slopes),
    "slopes the other way round": ("alibi", slopes_the_other_way_round),
}


@pytest.fixture(scope="module")
def bundles(make_gpt: GptMaker, export_unchecked: Exporter) -> Callable[[str, str], Path]:
    """Returns the bundle of a kind for a target; each is made once."""
    made: dict[tuple[str, str], Path] = {}

    def bundle(kind: str, target: str) -> Path:
        if (kind, target) not in made:
            made[kind, target] = export_unchecked(make_gpt(**KINDS[kind]), target=target)
        return made[kind, target]

    return bundle


@pytest.fixture
def gate(
    bundles: Callable[[str, str], Path], make_gpt: GptMaker, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., GateReport]:
    """Gates the right bundle of a kind against a program with a fault."""

    def run(kind: str, fault: Fault | None = None, target: str = "cpu", level: str = "quick") -> GateReport:
        bundle, right = bundles(kind, target), make_gpt(**KINDS[kind])
        program = right if fault is None else fault(right, monkeypatch)
        return run_gate(bundle, GptReference(program), level=level, threads=1)

    return run


Gate = Callable[..., GateReport]


@pytest.mark.parametrize("name", FAULTS)
def test_a_program_with_one_fault_is_refused(gate: Gate, name: str) -> None:
    kind, fault = FAULTS[name]
    report = gate(kind, fault)
    assert not report.passed
    wrong = [outcome for outcome in report.outcomes if outcome.group == "lengths" and not outcome.passed]
    assert wrong, "whole sequences show it, and not generation alone"


@pytest.mark.parametrize(("kind", "target"), [("rotary", "portable"), ("alibi", "cpu")])
def test_the_right_program_is_accepted(gate: Gate, kind: str, target: str) -> None:
    report = gate(kind, target=target)
    assert report.passed, report.summary()


def test_frequencies_divided_by_one_are_accepted(gate: Gate) -> None:
    report = gate("rotary", of_config(rope_scaling=RopeScaling(kind="linear", factor=1.0)))
    assert report.passed, report.summary()


@pytest.mark.parametrize("kind", ["rotary", "alibi"])
def test_twice_the_context_is_looked_at_where_positions_have_no_end(gate: Gate, kind: str) -> None:
    report = gate(kind, level="standard")
    assert report.passed, report.summary()
    assert any(outcome.name.startswith("96 tokens") for outcome in report.outcomes)


def test_one_token_beyond_a_learned_table_must_be_refused(gate: Gate) -> None:
    report = gate("learned")
    assert report.passed, report.summary()
    names = [outcome.name for outcome in report.outcomes if outcome.group == "lengths"]
    assert "49 tokens are refused" in names
    assert not any(name.startswith("96 tokens") for name in names)


def test_a_theta_that_shows_far_out_alone_is_found_at_the_end_of_the_context(
    make_gpt: GptMaker, export_unchecked: Exporter
) -> None:
    """The slowest pair of a large theta turns by a ten-thousandth of a turn a token."""
    changes = KINDS["rotary"] | {"context_length": 1024, "rope_theta": 500_000.0}
    right = make_gpt(**changes)
    bundle = export_unchecked(right)
    scaled = RopeScaling(
        kind="llama3", factor=2.0, low_freq_factor=1.0, high_freq_factor=1.5, original_context_length=8192
    )
    wrong = another(right, rope_scaling=scaled)
    report = run_gate(bundle, GptReference(wrong), level="quick", threads=1)
    failed = {outcome.name for outcome in report.outcomes if not outcome.passed}
    assert any(name.startswith("1024 tokens,") for name in failed)


def test_all_kinds_differ(make_gpt: GptMaker) -> None:
    configs = [make_gpt(**changes).config for changes in KINDS.values()]
    assert all(isinstance(config, GPTConfig) for config in configs)
    assert all(one != other for one, other in itertools.combinations(configs, 2))
