from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpt_onnx.checkpoint import write_checkpoint
from gpt_onnx.config import GPTConfig
from gpt_onnx.eager import CompiledGPT, EagerGPT
from gpt_onnx.eager_contender import EagerContender
from gpt_onnx.eager_module import EagerModule
from gpt_onnx.errors import CheckpointError, InputError, ProviderError
from gpt_onnx.model import GPT

SIZES: dict[str, Any] = {"vocab_size": 53, "context_length": 40, "n_embd": 24, "n_layer": 3, "n_head": 4}
ROWS = [[5, 9, 2, 50, 11], [0, 1, 52, 3, 3]]
VARIANTS: list[dict[str, Any]] = [
    {},
    {"n_kv_head": 2, "head_size": 5},
    {"n_kv_head": 1, "position": "learned", "tie_embeddings": False, "head_bias": True},
    {"embedding_scale": "sqrt", "qkv_bias": True},
    {"position": "rotary", "n_kv_head": 2, "norm": "rmsnorm", "activation": "swiglu"},
    {"position": "alibi", "attention_scale_by_layer": True, "final_norm": False},
]


def make_gpt(**changes: Any) -> GPT:
    """A GPT whose every parameter is random and matters."""
    gpt = GPT(GPTConfig(**(SIZES | changes))).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    return gpt


def logits_without_cache(gpt: GPT, rows: list[list[int]]) -> np.ndarray:
    """The last position's logits of whole sequences, computed in float64."""
    with torch.no_grad():
        logits: np.ndarray = gpt.double()(torch.tensor(rows))[0][:, -1].numpy()
    return logits


@pytest.mark.parametrize("changes", VARIANTS)
def test_every_step_equals_the_whole_sequence_without_a_cache(changes: dict[str, Any]) -> None:
    eager, rows = EagerGPT(make_gpt(**changes)), [list(row) for row in ROWS]
    tokens = eager.start(rows, capacity=12)
    for _ in range(8):
        expected = logits_without_cache(make_gpt(**changes), rows)
        np.testing.assert_allclose(eager.scores(), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
        assert tokens == eager.scores().argmax(-1).tolist()
        rows = [[*row, token] for row, token in zip(rows, tokens, strict=True)]
        if len(rows[0]) <= 12:
            tokens = eager.step(tokens)


@pytest.mark.parametrize("changes", [{}, {"position": "alibi"}])
def test_a_compiled_step_equals_an_eager_one_at_every_length(changes: dict[str, Any]) -> None:
    compilations: list[object] = []

    def backend(graph: Any, inputs: Any) -> Any:
        compilations.append(graph)
        return graph.forward

    eager, compiled = EagerGPT(make_gpt(**changes)), CompiledGPT(make_gpt(**changes), backend=backend)
    for capacity in (12, 20):
        theirs, ours = eager.start(ROWS, capacity), compiled.start(ROWS, capacity)
        for _ in range(capacity - len(ROWS[0])):
            assert ours == theirs
            theirs, ours = eager.step(theirs), compiled.step(ours)
            np.testing.assert_allclose(compiled.scores(), eager.scores(), rtol=0, atol=1e-5)
    assert len(compilations) == 1
    assert compiled.details["compile_s"] > 0


def test_starting_again_forgets_the_tokens_before_and_keeps_the_buffers() -> None:
    eager = EagerGPT(make_gpt())
    first = eager.start(ROWS, capacity=12)
    buffer = eager._buffers[0][0].data_ptr()
    eager.step(first)
    eager.start([[1, 2], [3, 4]], capacity=9)
    assert eager.start(ROWS, capacity=12) == first
    assert eager._buffers[0][0].data_ptr() == buffer


def test_buffers_grow_for_more_rows_or_more_tokens() -> None:
    eager = EagerGPT(make_gpt())
    alone = eager.start(ROWS[:1], capacity=6)
    assert eager.start(ROWS, capacity=30)[:1] == alone
    assert eager._buffers[0][0].shape == (2, 4, 30, 6)


def test_a_full_cache_is_refused() -> None:
    eager = EagerGPT(make_gpt())
    tokens = eager.step(eager.start(ROWS, capacity=6))
    with pytest.raises(InputError, match="room for 6 tokens"):
        eager.step(tokens)


def test_no_gradients_are_recorded() -> None:
    eager = EagerGPT(make_gpt())
    eager.start(ROWS, capacity=6)
    assert eager._logits.is_inference()


def test_a_module_without_a_cache_gives_the_same_tokens() -> None:
    eager, plain = EagerGPT(make_gpt()), EagerModule(make_gpt(), lambda result: result[0])  # type: ignore[index]
    tokens = eager.start(ROWS, capacity=12)
    assert plain.start(ROWS, capacity=12) == tokens
    for _ in range(5):
        tokens = eager.step(tokens)
        assert plain.step(eager_input := plain._logits.argmax(-1).tolist()) == tokens
        assert len(eager_input) == 2


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    gpt = make_gpt()
    write_checkpoint(tmp_path / "tiny", gpt.config, gpt.state_dict())
    return tmp_path / "tiny"


def test_a_checkpoint_is_loaded_with_its_weights(checkpoint: Path) -> None:
    threads = torch.get_num_threads()
    try:
        contender = EagerContender(str(checkpoint), "cpu", 1)
    finally:
        torch.set_num_threads(threads)
    assert contender.start(ROWS, 8) == EagerGPT(make_gpt()).start(ROWS, 8)
    assert contender.facts["vocab_size"] == 53
    assert contender.facts["versions"]["torch"] == torch.__version__


def test_loading_imports_neither_the_exporter_nor_a_computer_algebra_system(checkpoint: Path) -> None:
    program = (
        "import sys\nfrom gpt_onnx.eager_contender import load_eager\n"
        f"load_eager({str(checkpoint)!r}).start([[1, 2]], 4)\n"
        "assert not {'onnx', 'onnxruntime', 'onnx_ir', 'sympy', 'gpt_onnx.export'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_missing_checkpoint_is_refused() -> None:
    with pytest.raises(CheckpointError, match="nowhere does not exist"):
        EagerContender("nowhere", "cpu", torch.get_num_threads())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA card")
def test_cuda_without_a_card_is_refused(checkpoint: Path) -> None:
    with pytest.raises(ProviderError, match="no CUDA card"):
        EagerContender(str(checkpoint), "cuda:0", 1)
