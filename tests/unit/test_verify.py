"""Verification without PyTorch: it passes for what is right, and is seen failing for what is not."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from safetensors.numpy import load_file, save, save_file

from gpt_onnx.errors import BundleError, GptOnnxError, InputError, ParityError
from gpt_onnx.runtime import OnnxGPT
from gpt_onnx.runtime._reference import FILE_NAME, StoredGreedy, parse_safetensors, read_reference
from gpt_onnx.runtime.verify import _part, _verify_greedy, verify_bundle, verify_files
from tests.resealing import reseal, reseal_with_evidence

NANO_GPT = Path(__file__).parent / "foreign_modules.py"
LAYOUTS: dict[str, dict[str, Any]] = {
    "gqa": {},
    "decomposed": {"target": "portable"},
    "static": {"seq_len": 32, "batch_size": 2},
    "plain": {"kv_cache": False},
}


@pytest.fixture(scope="module")
def checked(tiny_bundle: Any) -> Path:
    path: Path = tiny_bundle(check="quick").path
    return path


@pytest.fixture
def copy(checked: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checked, tmp_path / "copy"))


def resealed(path: Path) -> Path:
    """Make all hashes right for what the folder holds now."""
    reseal_with_evidence(path)
    return path


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_right_bundle_passes(tiny_bundle: Any, layout: str) -> None:
    report = verify_bundle(tiny_bundle(check="quick", **LAYOUTS[layout]).path, threads=1)
    assert report.passed
    assert report.computed
    assert len(report.cases) >= 4
    assert all(0 <= case.max_ratio <= 1 and 0 <= case.rms_ratio <= 1 for case in report.cases)
    assert report.greedy is not None
    assert report.greedy.compared == report.greedy.tokens > 0
    assert "greedy tokens agree with PyTorch on cpu" in report.summary()
    report.raise_if_failed()


def _shift_positions_of_later_rows(graph: Path) -> None:
    """Let a graph compute the first row of a batch rightly, and every other one position too far on."""
    model = onnx.load(graph, load_external_data=False)
    reader = next(node for node in model.graph.node if "position_ids" in node.input)
    one = numpy_helper.from_array(np.array(1, np.int64), "one")
    axis = numpy_helper.from_array(np.array(0, np.int64), "rows")
    model.graph.initializer.extend([one, axis])
    chain = [
        helper.make_node("Add", ["position_ids", "one"], ["raised"]),
        helper.make_node("Sign", ["raised"], ["ones"]),
        helper.make_node("CumSum", ["ones", "rows"], ["numbers"], exclusive=1),
        helper.make_node("Min", ["numbers", "one"], ["later"]),
        helper.make_node("Add", ["position_ids", "later"], ["shifted"]),
    ]
    place = list(model.graph.node).index(reader)
    for node in reversed(chain):
        model.graph.node.insert(place, node)
    reader.input[list(reader.input).index("position_ids")] = "shifted"
    graph.write_bytes(model.SerializeToString())


@pytest.mark.parametrize("layout", ["gqa", "decomposed"])
def test_a_fault_of_later_rows_of_a_batch_is_found(tiny_bundle: Any, tmp_path: Path, layout: str) -> None:
    original = tiny_bundle(check="quick", **LAYOUTS[layout]).path
    path = Path(shutil.copytree(original, tmp_path / "rows"))
    _shift_positions_of_later_rows(path / "onnx/model.onnx")
    operators = path / "required_operators.config"
    text = operators.read_text()
    operators.write_text(re.sub(r"(ai\.onnx;\d+;)", r"\1CumSum,Min,Sign,Add,", text, count=1))
    report = verify_bundle(resealed(path), threads=1)
    failed = [case.name for case in report.cases if not case.passed]
    assert [name for name in failed if name.endswith("in a batch")] == failed != []
    assert "in a batch" in report.summary()


@pytest.mark.parametrize("options", [{}, {"seq_len": 24, "batch_size": 2}])
def test_a_graph_of_the_last_position_alone_passes(tmp_path: Path, options: dict[str, Any]) -> None:
    from gpt_onnx.export import export_bundle

    path = export_bundle(f"{NANO_GPT}:nano_gpt", tmp_path / "last", check="quick", **options).path
    report = verify_bundle(path, threads=1)
    assert report.passed
    assert report.cases
    assert all(case.logits % 61 == 0 for case in report.cases)


def test_a_refusal_names_calls_that_give_the_last_position(tmp_path: Path) -> None:
    from gpt_onnx.export import export_bundle

    engine = OnnxGPT.load(export_bundle(f"{NANO_GPT}:nano_gpt", tmp_path / "last", check="none").path)
    with pytest.raises(InputError, match=r"decoder\(batch_size\)\.append\(rows\), or generate"):
        engine.logits([[1, 2, 3]])
    assert engine.decoder(1).append([[1, 2, 3]])[0].shape == (61,)
    assert len(engine.generate([[1, 2, 3]], 2)[0].ids) == 2


@pytest.mark.parametrize("verify", [verify_files, verify_bundle])
def test_a_tokenizer_that_the_runtime_refuses_is_found(copy: Path, verify: Any) -> None:
    (copy / "tokenizer.json").write_text(json.dumps({"model": {"type": "Unigram", "vocab": []}}))
    with pytest.raises(
        BundleError, match=r"the tokenizer of .* cannot be used: .*; export again with another"
    ):
        verify(resealed(copy))


def test_progress_counts_the_sequences(checked: Path) -> None:
    seen: list[tuple[int, int]] = []
    report = verify_bundle(checked, threads=1, progress=lambda done, total: seen.append((done, total)))
    total = len(report.cases)
    assert seen == [(done, total) for done in range(1, total + 1)]


def test_a_bundle_made_without_the_gate_has_nothing_to_compare(tiny_bundle: Any) -> None:
    report = verify_bundle(tiny_bundle().path, threads=1)
    assert (report.passed, report.computed, report.provider) == (True, False, "cpu")
    assert report.summary().endswith("it stores no reference logits.")


def test_files_only_computes_nothing(checked: Path) -> None:
    report = verify_files(checked)
    assert (report.passed, report.computed, report.provider) == (True, False, None)


def scale_a_weight(path: Path, factor: float) -> None:
    """Multiply one large weight in the data file, as a careless tool would that keeps all hashes right."""
    data = path / "onnx/model.onnx_data"
    weights = np.fromfile(data, np.float32)
    weights[np.abs(weights).argmax()] *= factor
    weights.tofile(data)
    reseal_with_evidence(path)


def test_a_changed_weight_is_found(copy: Path) -> None:
    scale_a_weight(copy, 1.01)
    report = verify_bundle(copy, threads=1)
    assert not report.passed
    assert max(case.max_ratio for case in report.cases) > 10
    with pytest.raises(ParityError, match="stored sequences differ on cpu; the error of"):
        report.raise_if_failed()


def test_a_changed_weight_makes_the_evidence_that_of_another_bundle(copy: Path) -> None:
    scale_a_weight(copy, 1.01)
    parity = json.loads((copy / "parity.json").read_text())
    (copy / "parity.json").write_text(
        json.dumps(parity | {"sha256": parity["sha256"] | {"onnx/model.onnx_data": "0" * 64}})
    )
    reseal(copy)
    for verify in (verify_bundle, verify_files):
        with pytest.raises(BundleError, match=r"parity\.json .*the hash of onnx/model\.onnx_data is '0000"):
            verify(copy)


def test_a_damaged_file_is_found_before_anything_runs(copy: Path) -> None:
    (copy / FILE_NAME).write_bytes((copy / FILE_NAME).read_bytes()[:-1] + b"\x7f")
    for verify in (verify_bundle, verify_files):
        with pytest.raises(BundleError, match=r"reference\.safetensors"):
            verify(copy)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("part", ["logits", "tolerance"])
def test_bounds_and_logits_that_are_not_finite_are_refused(copy: Path, part: str, value: float) -> None:
    arrays = load_file(copy / FILE_NAME)
    arrays[f"case.0.{part}"][...] = value
    save_file(arrays, copy / FILE_NAME)
    with pytest.raises(BundleError, match=rf"cannot be used as a reference: case\.0\.{part} "):
        verify_files(resealed(copy))


STORED: dict[str, Any] = {
    "case.0.input_ids": np.array([3, 1]),
    "case.0.positions": np.array([0, 1]),
    "case.0.logits": np.array([[1.0, -2.0], [0.5, 0.0]]),
    "case.0.tolerance": np.array([1e-3, 1e-4]),
    "greedy.prompt": np.array([3]),
    "greedy.tokens": np.array([1, 0]),
    "greedy.margins": np.array([0.5, 0.0]),
    "greedy.tolerance": np.array([1e-3]),
}
NO_TOKENS = {"greedy.tokens": np.zeros(0, np.int64), "greedy.margins": np.zeros(0)}
ALL_ZERO = {
    "case.0.logits": np.zeros((2, 2)),
    "case.0.tolerance": np.zeros(2),
    "greedy.tolerance": np.zeros(1),
}
TOO_MUCH: list[tuple[dict[str, Any], str]] = [
    ({name: None for name in STORED if name.startswith("case")}, "it stores no case"),
    (NO_TOKENS, r"greedy\.tokens are none"),
    *(
        (
            {name: np.full_like(STORED[name], bound)},
            rf"{name} is {bound:.3g}; it must be above 0 and at most 2,",
        )
        for name in ("case.0.tolerance", "greedy.tolerance")
        for bound in (0.0, -1.0, 2.1, math.inf, math.nan)
    ),
    ({"case.0.tolerance": np.array([1e-3, math.inf])}, r"case\.0\.tolerance is inf"),
    ({"greedy.margins": np.array([0.5, -1.0])}, r"greedy\.margins holds numbers that are not at least 0"),
    ({"greedy.margins": np.array([0.5, math.nan])}, r"greedy\.margins holds numbers"),
]
"""What a reference says instead of ``STORED``: nothing, or bounds that no error breaks."""


def stored(folder: Path, changed: dict[str, Any]) -> Path:
    """Write a reference; what is None is left out."""
    arrays = {name: array for name, array in (STORED | changed).items() if array is not None}
    save_file(arrays, folder / FILE_NAME)
    return folder / FILE_NAME


@pytest.mark.parametrize(("changed", "says"), TOO_MUCH)
def test_a_reference_that_nothing_could_fail_by_is_refused(
    tmp_path: Path, changed: dict[str, Any], says: str
) -> None:
    with pytest.raises(BundleError, match=says):
        read_reference(stored(tmp_path, changed))


def test_a_reference_may_have_no_greedy_tokens_and_logits_that_are_all_zero(tmp_path: Path) -> None:
    assert read_reference(stored(tmp_path, {})).greedy is not None
    greedy = {name: None for name in STORED if name.startswith("greedy")}
    assert read_reference(stored(tmp_path, greedy)).greedy is None
    assert read_reference(stored(tmp_path, ALL_ZERO)).cases[0].bounds == (0.0, 0.0)


def test_only_the_stored_part_of_the_vocabulary_is_compared(copy: Path) -> None:
    arrays = load_file(copy / FILE_NAME)
    vocab_ids = np.array([3, 50, 96])
    for name in [name for name in arrays if name.endswith(".logits")]:
        arrays[name] = np.ascontiguousarray(arrays[name][:, vocab_ids])
        arrays[name.replace("logits", "vocab_ids")] = vocab_ids
    save_file(arrays, copy / FILE_NAME)
    report = verify_bundle(resealed(copy), threads=1)
    assert report.passed
    assert all(case.logits % 3 == 0 for case in report.cases)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("case.0.positions", np.array([5]), "not ascending positions"),
        ("case.1.positions", np.array([2, 1]), "contradict each other|not ascending"),
        ("case.0.logits", np.ones((1, 5)), r"stores logits \(1, 5\); \(1, 97\) were computed"),
        ("case.0.logits", np.zeros(5), "is missing or of the wrong kind"),
        ("case.0.input_ids", np.zeros(1), "is missing or of the wrong kind"),
        ("case.0.tolerance", np.zeros(3), "contradict each other"),
        ("case.0.vocab_ids", np.arange(3), "not one for each logit"),
        ("case.0.vocab_ids", np.arange(1, 98), "has the id 97"),
        ("case.0.input_ids", np.array([97]), "has the id 97"),
        ("greedy.margins", np.zeros(1), "greedy has shapes that contradict"),
        ("greedy.prompt", np.zeros(0, np.int64), "greedy has shapes that contradict"),
    ],
)
def test_a_reference_that_contradicts_itself_is_refused(
    copy: Path, name: str, value: Any, message: str
) -> None:
    save_file(load_file(copy / FILE_NAME) | {name: value}, copy / FILE_NAME)
    with pytest.raises(GptOnnxError, match=message):
        verify_bundle(resealed(copy), threads=1)


class FixedEngine(SimpleNamespace):
    """Generates what it is told to."""

    def generate(self, prompts: Any, count: int, sampling: Any, **options: Any) -> Any:
        return [SimpleNamespace(ids=tuple(self.tokens))]


@pytest.mark.parametrize(
    ("tokens", "compared", "differs_at"),
    [
        ([1, 2, 3, 4], 4, None),
        ([1, 9, 8, 7], 1, None),  # the second is a near tie: nothing can be compared after it
        ([9, 2, 3, 4], 0, 0),
        ([1, 2, 9, 4], 2, 2),
        ([1, 2], 2, 2),
    ],
)
def test_greedy_tokens_may_differ_only_at_near_ties(
    tokens: list[int], compared: int, differs_at: int | None
) -> None:
    stored = StoredGreedy(
        prompt=np.array([0]),
        tokens=np.array([1, 2, 3, 4]),
        margins=np.array([1.0, 0.002, 1.0, 1.0]),
        tolerance=0.001,
    )
    engine: Any = FixedEngine(tokens=tokens)
    result = _verify_greedy(engine, stored)
    assert (result.compared, result.differs_at) == (compared, differs_at)
    assert result.passed is (differs_at is None)
    assert result.told.endswith(" up to a near tie") is (compared < 4)


@pytest.mark.parametrize(
    ("error", "bound", "part"),
    [
        (0.0, 0.0, 0.0),
        (1.0, 2.0, 0.5),
        (1.0, 0.0, math.inf),
        (math.nan, 1.0, math.inf),
        (1.0, -1.0, math.inf),
    ],
)
def test_errors_are_parts_of_their_bounds(error: float, bound: float, part: float) -> None:
    assert _part(error, bound) == part


def test_the_json_form_has_no_number_that_json_lacks(copy: Path) -> None:
    arrays = load_file(copy / FILE_NAME)
    arrays["case.0.logits"][...] = 0
    arrays["case.0.tolerance"][...] = 0
    save_file(arrays, copy / FILE_NAME)
    found = verify_bundle(resealed(copy), threads=1).to_json()
    assert json.loads(json.dumps(found, allow_nan=False))["passed"] is False


# --- the format -----------------------------------------------------------------------------------


@given(
    arrays=st.dictionaries(
        st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8),
        st.tuples(st.lists(st.integers(0, 4), max_size=3), st.sampled_from([np.int64, np.float64])),
        max_size=4,
    )
)
def test_the_reader_agrees_with_the_reference_implementation(arrays: Any) -> None:
    values = {
        name: np.random.default_rng(0).normal(size=shape).astype(kind)
        for name, (shape, kind) in arrays.items()
    }
    found = parse_safetensors(save(values))
    assert found.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_array_equal(found[name], value)
        assert found[name].dtype == value.dtype


@given(
    st.binary(max_size=200)
    | st.builds(lambda text: len(text).to_bytes(8, "little") + text, st.binary(max_size=99))
)
def test_arbitrary_bytes_are_refused_and_never_crash(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_safetensors(content)


@pytest.mark.parametrize(
    "header",
    [
        {"a": {"dtype": "I64", "shape": [2], "data_offsets": [0, 8]}},
        {"a": {"dtype": "I64", "shape": [1], "data_offsets": [8, 16]}},
        {"a": {"dtype": "I64", "shape": [-1], "data_offsets": [0, 8]}},
        {"a": {"dtype": "I64", "shape": [True], "data_offsets": [0, 8]}},
        {"a": {"dtype": "I64", "shape": [1], "data_offsets": [0]}},
        {"a": {"dtype": "I64", "shape": 1, "data_offsets": [0, 8]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
        {"a": {"dtype": ["I64"], "shape": [1], "data_offsets": [0, 8]}},
        {"a": [1]},
        [1],
        {"a": {"dtype": "I64", "shape": [2**62, 4], "data_offsets": [0, 8]}},
    ],
)
def test_headers_that_lie_are_refused(header: Any, tmp_path: Path) -> None:
    text = json.dumps(header).encode()
    path = tmp_path / FILE_NAME
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(BundleError, match="cannot be used as a reference"):
        read_reference(path)
