"""--reference FILE: numbers that the original program wrote, and files that are none."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from gpt_onnx.errors import InputError
from gpt_onnx.export.gate.cases import Facts
from gpt_onnx.export.gate.original import bands, widened
from gpt_onnx.export.gate.original_file import read_original
from gpt_onnx.export.gate.tolerance import Unit

VOCAB = 13
FACTS = Facts(
    vocab_size=VOCAB,
    layout="dynamic",
    context_length=8,
    limit=8,
    position_limit=8,
    only_length=None,
    batch_size=None,
)
GENERATOR = np.random.default_rng(0)
IDS = GENERATOR.integers(0, VOCAB, (2, 5))
LOGITS = GENERATOR.standard_normal((2, 5, VOCAB)).astype(np.float32)


def as_safetensors(path: Path, arrays: dict[str, Any]) -> Path:
    save_file(arrays, path.with_suffix(".safetensors"))
    return path.with_suffix(".safetensors")


def as_npz(path: Path, arrays: dict[str, Any]) -> Path:
    np.savez(path.with_suffix(".npz"), **arrays)
    return path.with_suffix(".npz")


def as_pt(path: Path, arrays: dict[str, Any]) -> Path:
    torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, path.with_suffix(".pt"))
    return path.with_suffix(".pt")


Writer = Callable[[Path, dict[str, Any]], Path]
WRITERS: list[Writer] = [as_safetensors, as_npz, as_pt]


@pytest.mark.parametrize("write", WRITERS)
def test_every_kind_of_file_is_read(tmp_path: Path, write: Writer) -> None:
    original = read_original(write(tmp_path / "r", {"input_ids": IDS, "logits": LOGITS}), FACTS)
    np.testing.assert_array_equal(original.input_ids, IDS)
    np.testing.assert_array_equal(original.logits, LOGITS)
    assert original.rows == [tuple(row) for row in IDS.tolist()]


@pytest.mark.parametrize("write", WRITERS)
def test_logits_of_the_last_position_have_no_second_dim(tmp_path: Path, write: Writer) -> None:
    file = write(tmp_path / "r", {"input_ids": IDS.astype(np.int32), "logits": LOGITS[:, -1].copy()})
    assert read_original(file, FACTS).logits.shape == (2, 1, VOCAB)


def test_a_single_sequence_may_go_without_its_batch(tmp_path: Path) -> None:
    arrays = {"input_ids": IDS[0], "logits": LOGITS[0]}
    original = read_original(as_npz(tmp_path / "r", arrays), FACTS)
    assert original.input_ids.shape == (1, 5)
    np.testing.assert_array_equal(original.logits, LOGITS[:1])


def test_logits_of_padding_are_left_out_where_the_source_has_padding(tmp_path: Path) -> None:
    wide = np.concatenate([LOGITS, np.full((2, 5, 3), -np.inf, np.float32)], axis=-1)
    file = as_npz(tmp_path / "r", {"input_ids": IDS, "logits": wide})
    np.testing.assert_array_equal(read_original(file, FACTS, VOCAB + 3).logits, LOGITS)
    for padded in (None, VOCAB + 2):
        with pytest.raises(InputError, match="logits of shape"):
            read_original(file, FACTS, padded)


def scripted(path: Path, names: tuple[str, str]) -> Path:
    """Write what a C++ program writes with torch::save or an OutputArchive: a module of TorchScript."""
    module = torch.nn.Module()
    for name, array in zip(names, (IDS, LOGITS), strict=True):
        module.register_buffer(name, torch.from_numpy(array))
    torch.jit.save(torch.jit.script(module), str(path))
    return path


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("names", [("input_ids", "logits"), ("0", "1"), ("1", "0")])
def test_what_a_cpp_program_saves_is_read(tmp_path: Path, names: tuple[str, str]) -> None:
    original = read_original(scripted(tmp_path / "numbers.pt", names), FACTS)
    np.testing.assert_array_equal(original.input_ids, IDS)
    np.testing.assert_array_equal(original.logits, LOGITS)


def test_bfloat16_is_half_precision_in_a_pt_too(tmp_path: Path) -> None:
    file = tmp_path / "r.pt"
    torch.save({"input_ids": torch.from_numpy(IDS), "logits": torch.from_numpy(LOGITS).bfloat16()}, file)
    with pytest.raises(InputError, match="store float32 or float64"):
        read_original(file, FACTS)


def test_positions_are_compared_in_stretches_that_grow() -> None:
    assert bands(10) == [slice(0, 10)]
    assert bands(300) == [slice(0, 16), slice(16, 64), slice(64, 256), slice(256, 300)]
    assert bands(300, 299) == [slice(299, 300)]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no logits": ({"input_ids": IDS}, "lacks 'logits'"),
    "no ids": ({"logits": LOGITS}, "lacks 'input_ids'"),
    "ids of floats": ({"input_ids": IDS.astype(np.float32), "logits": LOGITS}, "integers"),
    "no tokens": ({"input_ids": IDS[:, :0], "logits": LOGITS[:, :0]}, "integers"),
    "an id beyond": ({"input_ids": IDS + VOCAB, "logits": LOGITS}, "ids of this model are 0 to 12"),
    "a negative id": ({"input_ids": IDS - VOCAB, "logits": LOGITS}, "has the id -"),
    "another vocabulary": ({"input_ids": IDS, "logits": LOGITS[..., :-1].copy()}, "logits of shape"),
    "another batch": ({"input_ids": IDS, "logits": LOGITS[:1]}, "logits of shape"),
    "half precision": ({"input_ids": IDS, "logits": LOGITS.astype(np.float16)}, "store float32 or float64"),
    "not finite": ({"input_ids": IDS, "logits": np.full_like(LOGITS, np.nan)}, "NaN or infinite"),
    "too long": (
        {"input_ids": np.zeros((1, 9), np.int64), "logits": np.zeros((1, 9, VOCAB), np.float32)},
        "takes at most 8",
    ),
}


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_not_for_this_model_is_refused_by_name(
    tmp_path: Path, name: str, write: Writer
) -> None:
    arrays, message = BAD[name]
    file = write(tmp_path / "numbers", arrays)
    with pytest.raises(InputError, match=message) as refusal:
        read_original(file, FACTS)
    assert str(file) in str(refusal.value)


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".pt"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no", b"\xff" * 100])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, suffix: str, content: bytes) -> None:
    file = tmp_path / f"damaged{suffix}"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"damaged.*could not be read"):
        read_original(file, FACTS)


def test_a_compressed_pt_is_refused(tmp_path: Path) -> None:
    stored = as_pt(tmp_path / "stored", {"input_ids": IDS, "logits": LOGITS})
    with zipfile.ZipFile(stored) as source, zipfile.ZipFile(tmp_path / "packed.pt", "w") as target:
        for entry in source.infolist():
            target.writestr(entry.filename, source.read(entry), zipfile.ZIP_DEFLATED)
    with pytest.raises(InputError, match="is compressed"):
        read_original(tmp_path / "packed.pt", FACTS)


def test_a_missing_file_and_an_unknown_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="could not be read"):
        read_original(tmp_path / "absent.npz", FACTS)
    with pytest.raises(InputError, match=r"ends in '.txt'; a reference file is one of"):
        read_original(tmp_path / "numbers.txt", FACTS)


class Trap:
    """Pickles into a call."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Path.touch, (self.marker,)


def test_code_in_a_file_is_never_run(tmp_path: Path) -> None:
    torch.save({"input_ids": torch.from_numpy(IDS), "logits": Trap(tmp_path / "run")}, tmp_path / "trap.pt")
    np.savez(tmp_path / "trap.npz", input_ids=IDS, logits=np.array([Trap(tmp_path / "run")], dtype=object))
    for name in ("trap.pt", "trap.npz"):
        with pytest.raises(InputError, match="could not be read"):
            read_original(tmp_path / name, FACTS)
    assert not (tmp_path / "run").exists()


def test_stored_float32_counts_one_unit_itself() -> None:
    unit = Unit(peak=1e-6, rms=1e-7)
    assert widened(unit, np.dtype(np.float64)) == unit
    assert widened(unit, np.dtype(np.float32)).bounds == pytest.approx((5e-6, 4e-7))


@pytest.mark.parametrize("kind", ["text", "objects"])
def test_an_npz_that_holds_no_numbers_is_refused_without_advice_to_run_it(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    if kind == "text":
        path.write_text("hello")
    else:
        np.savez(path, input_ids=np.array([[1, 2]]), logits=np.array([[{}]], dtype=object))
    with pytest.raises(InputError) as caught:
        read_original(path, FACTS)
    assert "pickle" not in str(caught.value)
    assert str(path) in str(caught.value)
