"""GPTs written in C++, trained weights and numbers saved by C++: read, exported, and compared with them.

The program of tests/libtorch is compiled once against the headers and libraries that the torch package
carries. R64 is what it computes in float64, and e32 what its own float32 makes of that; nothing here is
compared with our reading of its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gpt_onnx.checkpoint import read_checkpoint
from gpt_onnx.checkpoint.load import load_model
from gpt_onnx.errors import ParityError
from gpt_onnx.export import export_bundle
from gpt_onnx.export.gate.cases import Facts
from gpt_onnx.export.gate.original_file import read_original
from gpt_onnx.runtime import OnnxGPT, Sampling
from tests.originals.cpp import CASES

Numbers = dict[str, NDArray[Any]]


CppMaker = Callable[..., Any]


@pytest.mark.parametrize("name", CASES)
def test_weights_read_from_cpp_compute_its_float64_logits(name: str, make_cpp: CppMaker) -> None:
    flags, answers = CASES[name]
    made = make_cpp(**flags)
    numbers = made.numbers("reference64")
    for path in (made.module, made.archive):
        model = load_model(read_checkpoint(path, config=made.config(**answers)), torch.float64)
        with torch.no_grad():
            found = model(torch.from_numpy(numbers["input_ids"]))[0].numpy()
        assert np.abs(found - numbers["logits"]).max() <= 1e-11 * np.abs(numbers["logits"]).max()


EXPORTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "heads with biases, gelu": ("module", {"check": "quick", "reference": "reference"}),
    "heads without biases, relu": ("archive", {"target": "portable", "check": "quick", "reference": "list"}),
    "packed, tied head, masks": ("archive", {"check": "none"}),
    "torch::nn::TransformerEncoder": ("module", {"target": "portable", "check": "none"}),
}
"""What is exported of a case, and how; the reference is a file that the C++ program wrote."""


def agree(found: NDArray[Any], expected: Numbers, tolerance: float) -> bool:
    """Whether greedy tokens are equal, up to a place where the C++ program's own two best nearly tie."""
    differs = np.flatnonzero(found != expected["tokens"][0])
    return not differs.size or bool(expected["margins"][differs[0]] <= 2 * tolerance)


def export(
    made: Any, form: str, bundle: Path, answers: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    """Export one of the files of a run."""
    chosen = dict(options)
    if "reference" in chosen:
        chosen["reference"] = made.folder / f"{chosen['reference']}.pt"
    export_bundle(getattr(made, form), bundle, config=made.config(**answers), **chosen)


@pytest.mark.parametrize("name", EXPORTS)
def test_bundle_computes_the_logits_and_the_text_of_the_cpp_program(
    name: str, make_cpp: CppMaker, tmp_path: Path
) -> None:
    (flags, answers), (form, options) = CASES[name], EXPORTS[name]
    made = make_cpp(**flags)
    export(made, form, tmp_path / "bundle", answers, options)
    engine = OnnxGPT.load(tmp_path / "bundle", threads=1)
    numbers, greedy = made.numbers("reference64"), made.numbers("greedy")
    found = engine.logits(numbers["input_ids"])
    assert np.abs(found - numbers["logits"]).max() <= made.tolerance()
    generated = engine.generate(greedy["prompt"], 128, Sampling(temperature=0.0), ignore_eos=True)[0]
    assert len(set(greedy["tokens"][0].tolist())) > 8  # a text, not one token for ever
    assert agree(np.array(generated.ids), greedy, made.tolerance())


def test_relu_told_of_a_gelu_is_caught_by_the_cpp_program(make_cpp: CppMaker, tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="original program computed"):
        export(
            make_cpp(),
            "module",
            tmp_path / "b",
            {"activation": "relu"},
            {"check": "quick", "reference": "reference"},
        )
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("form", ["reference", "list", "pickled"])
def test_every_form_in_which_cpp_writes_numbers_is_a_reference(form: str, make_cpp: CppMaker) -> None:
    made = make_cpp()
    numbers = made.numbers("reference")
    facts = Facts(
        vocab_size=53,
        layout="dynamic",
        context_length=192,
        limit=None,
        position_limit=None,
        only_length=None,
        batch_size=None,
    )
    found = read_original(made.folder / f"{form}.pt", facts)
    np.testing.assert_array_equal(found.input_ids, numbers["input_ids"])
    np.testing.assert_array_equal(found.logits, numbers["logits"])
