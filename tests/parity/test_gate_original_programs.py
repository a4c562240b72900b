"""``--reference`` with what transformers computes in float32: honest programs are accepted, far out too.

transformers makes rotary angles in float32, so that at position 2000 its logits are off by many times what
float32 costs otherwise. Programs that are read wrongly must be refused all the same.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from gpt_onnx.checkpoint import load_model, read_checkpoint
from gpt_onnx.export import export_bundle
from gpt_onnx.export.gate import GptReference, run_gate
from gpt_onnx.export.gate.case import Finding, Setting
from gpt_onnx.export.gate.cases import LEVELS, Facts
from gpt_onnx.export.gate.nudged import COUNT
from gpt_onnx.export.gate.oracle import Oracle
from gpt_onnx.export.gate.original import check_original
from gpt_onnx.export.gate.original_file import read_original
from gpt_onnx.model import GPT
from gpt_onnx.model.positions import with_float32_angles
from gpt_onnx.runtime import OnnxGPT

VOCAB, CONTEXT, WIDTH = 97, 2048, 64
LENGTHS = (40, 500, 2000)


def lively(model: nn.Module) -> None:
    """Give weights as large as trained ones: attention that chooses, norms and biases that matter."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if any(part in name for part in ("c_attn.weight", "q_proj.weight", "k_proj.weight")):
                parameter.copy_(2.5 * noise / WIDTH**0.5)
            elif parameter.dim() > 1:
                parameter.copy_(1.2 * noise / WIDTH**0.5)
            else:
                parameter.add_(0.2 * noise)


def llama(**changes: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": 96, "num_hidden_layers": 3}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": CONTEXT}
    theta = {"rope_parameters": {"rope_type": "default", "rope_theta": changes.pop("theta", 10_000.0)}}
    ends = {"bos_token_id": None, "eos_token_id": None, "rms_norm_eps": 1e-5}
    model: Any = LlamaForCausalLM(LlamaConfig(**(sizes | heads | theta | ends | changes)))
    lively(model)
    return model.eval()


def gpt2(**changes: Any) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": VOCAB, "n_positions": CONTEXT, "n_embd": WIDTH, "n_layer": 3, "n_head": 4}
    model: Any = GPT2LMHeadModel(
        GPT2Config(**(sizes | {"bos_token_id": None, "eos_token_id": None} | changes))
    )
    lively(model)
    return model.eval()


MODELS: dict[str, Callable[..., Any]] = {"llama": llama, "gpt2": gpt2}


@dataclass(frozen=True)
class Exported:
    """A model of transformers, read and exported."""

    folder: Path
    bundle: Path
    reference: GptReference

    def check(self, file: Path) -> Finding:
        """Compare the graph with the numbers in a file, and look twice where the gate does."""
        engine = OnnxGPT.load(self.bundle, threads=1)
        facts = Facts.of(engine.bundle.manifest, causal=True)
        oracle = Oracle(self.reference)
        setting = Setting(engine=engine, oracle=oracle, facts=facts, level=LEVELS["quick"])
        original = read_original(file, facts)
        finding = check_original(setting, original)
        if finding.passed or not finding.marginal:
            return finding
        with oracle.careful(COUNT):
            return check_original(setting, original)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Exported]:
    made: dict[str, Exported] = {}

    def export(kind: str) -> Exported:
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            MODELS[kind]().save_pretrained(folder / "model")
            bundle = export_bundle(folder / "model", folder / "bundle", check="none").path
            checkpoint = read_checkpoint(folder / "model")
            reference = GptReference(load_model(checkpoint), is_original=checkpoint.is_original)
            made[kind] = Exported(folder / "model", bundle, reference)
        return made[kind]

    return export


def ids_of(length: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(7).integers(0, VOCAB, (1, length)))


def numbers(path: Path, compute: Callable[[Tensor], Tensor], length: int) -> Path:
    """Let a program write its numbers."""
    ids = ids_of(length)
    with torch.no_grad():
        save_file({"input_ids": ids, "logits": compute(ids).contiguous()}, path)
    return path


def of_transformers(model: Any) -> Callable[[Tensor], Tensor]:
    return lambda ids: model(ids, use_cache=False).logits


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", MODELS)
def test_honest_numbers_are_accepted_at_any_position(
    exported: Callable[[str], Exported], tmp_path: Path, kind: str, length: int
) -> None:
    file = numbers(tmp_path / "n.safetensors", of_transformers(MODELS[kind]()), length)
    finding = exported(kind).check(file)
    assert finding.passed, finding


def test_angles_in_float32_are_many_units_of_our_own_float32(
    exported: Callable[[str], Exported], tmp_path: Path
) -> None:
    """What the unit is for: without it an honest program would be refused."""
    ids = ids_of(2000)
    truth = exported("llama").reference.compute(tuple(ids[0].tolist()))
    with torch.no_grad():
        logits = llama()(ids, use_cache=False).logits[0].numpy()
    assert truth.ratio(logits).peak > 6


def swapped_heads(model: Any) -> Any:
    """Exchange two query heads of one layer."""
    weight = model.model.layers[1].self_attn.q_proj.weight
    with torch.no_grad():
        weight[:32] = torch.cat((weight[16:32], weight[:16]))
    return model


def gpt_with(folder: Path, **changes: Any) -> Callable[[Tensor], Tensor]:
    """Return a program that differs from the checkpoint's, and makes angles in float32."""
    right = load_model(read_checkpoint(folder))
    wrong = GPT(right.config.replace(**changes))
    wrong.load_state_dict(copy.deepcopy(right.state_dict()))
    program = with_float32_angles(wrong.eval())
    return lambda ids: program(ids)[0]


FAULTS: dict[str, tuple[str, Callable[[Path], Callable[[Tensor], Tensor]]]] = {
    "theta off by a thousandth": ("llama", lambda _: of_transformers(llama(theta=10_010.0))),
    "an epsilon of 1e-6 for 1e-5": ("llama", lambda _: of_transformers(llama(rms_norm_eps=1e-6))),
    "GELU for SiLU": ("llama", lambda _: of_transformers(llama(hidden_act="gelu"))),
    "two heads swapped": ("llama", lambda _: of_transformers(swapped_heads(llama()))),
    "neighbours for halves": ("llama", lambda folder: gpt_with(folder, rope_style="interleaved")),
    "ReLU for GELU": ("gpt2", lambda _: of_transformers(gpt2(activation_function="relu"))),
    "erf for tanh": ("gpt2", lambda _: of_transformers(gpt2(activation_function="gelu"))),
    "another epsilon": ("gpt2", lambda _: of_transformers(gpt2(layer_norm_epsilon=1e-6))),
    "attention unscaled": ("gpt2", lambda _: of_transformers(gpt2(scale_attn_weights=False))),
}


@pytest.mark.parametrize("length", [40, 500])
@pytest.mark.parametrize("name", FAULTS)
def test_a_program_that_was_read_wrongly_is_refused(
    exported: Callable[[str], Exported], tmp_path: Path, name: str, length: int
) -> None:
    kind, program = FAULTS[name]
    found = exported(kind)
    file = numbers(tmp_path / "n.safetensors", program(found.folder), length)
    assert not found.check(file).passed


def test_the_whole_gate_takes_the_numbers_and_says_so(
    exported: Callable[[str], Exported], tmp_path: Path
) -> None:
    found = exported("llama")
    reference = GptReference(load_model(read_checkpoint(found.folder)), is_original=False)
    file = numbers(tmp_path / "n.safetensors", of_transformers(llama()), 500)
    with_numbers = run_gate(found.bundle, reference, level="quick", reference_file=file)
    assert with_numbers.passed, with_numbers.summary()
    assert with_numbers.compared_with_original
